"""A running broker whose data directory is moved, removed, or robbed of its LOCK by someone else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import free_port
from tests.server.test_admin import Served
from tests.server.wire import Wire

WORDS = "the data directory was moved, replaced or removed under the running broker"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    broker = Served(tmp_path)
    broker.start()
    yield broker
    if broker.running:
        assert broker.stop() == 0, broker.text()


def send(wire: Wire, destination: str, body: bytes = b"x") -> str:
    """The code of the ERROR, or the offset in the RECEIPT."""
    wire.inbox.clear()
    wire.say("SEND", body, destination=destination, receipt="r")
    while not wire.inbox:
        assert wire.more()
    (frame,) = wire.inbox
    return frame.headers["error-code" if frame.command == "ERROR" else "offset"]


def connecting(wire: Wire) -> str:
    """The code of the ERROR that answers CONNECT."""
    wire.say("CONNECT", accept_version="1.2", host="x")
    return wire.hear("ERROR").headers["error-code"]


def wait_for(served: Served, status: int) -> dict[str, object]:
    while True:
        found, said = served.ask("/ready")
        if found == status:
            return said
        assert served.running


def second(data: Path) -> subprocess.CompletedProcess[str]:
    """A second broker over the same directory: it ends by itself if it is refused."""
    command = [sys.executable, "-m", "radiator", "serve", "--data", str(data)]
    command += ["--listen", f"stomp://127.0.0.1:{free_port()}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.thorough
@pytest.mark.parametrize("there", ["removed", "replaced"])
def test_a_second_broker_is_refused_whatever_became_of_the_file_lock(served: Served, there: str) -> None:
    with Wire(served) as wire:
        wire.open()
        assert send(wire, "/queue/a") == "0"
        (served.data / "LOCK").unlink()
        if there == "replaced":
            (served.data / "LOCK").write_text("1\n")
        refused = second(served.data)
        assert refused.returncode != 0 and "in use by another broker" in refused.stderr
        assert send(wire, "/queue/a") == "1", "the first one goes on"
        assert served.ask("/ready")[0] == 200


@pytest.mark.thorough
def test_a_moved_directory_is_the_one_that_is_written_until_the_broker_refuses(served: Served) -> None:
    away = served.data.with_name("data.away")
    with Wire(served) as wire:
        wire.open()
        assert send(wire, "/queue/a") == "0"
        served.data.rename(away)
        stored = []
        while (found := send(wire, f"/queue/new-{len(stored)}")) != "storage":
            stored.append(found)
    assert WORDS in str(wait_for(served, 503))
    assert not served.data.exists(), "nothing is created under the old name"
    names = {path.name for path in (away / "partitions").iterdir()}
    assert names == {"%2Fqueue%2Fa", *(f"%2Fqueue%2Fnew-{number}" for number in range(len(stored)))}
    served.data.mkdir()  # another directory of that name is not the one that was opened
    with Wire(served) as wire:
        assert connecting(wire) == "storage"
    assert WORDS in served.text() and not list(served.data.iterdir())
    served.data.rmdir()
    away.rename(served.data)
    wait_for(served, 200)
    with Wire(served) as wire:
        wire.open()
        assert send(wire, "/queue/a") == "1"
        assert send(wire, "/queue/after") == "0"
    served.kill()
    served.start()
    with Wire(served) as wire:
        wire.open().say("SUBSCRIBE", destination="/queue/#", id="0", ack="auto")
        wire.hear_many("MESSAGE", 3 + len(stored))


def test_nothing_is_acknowledged_and_nothing_kept_in_memory_while_it_is_away(served: Served) -> None:
    with Wire(served) as worker, Wire(served) as other:
        worker.open().say("SUBSCRIBE", destination="/queue/a", id="0", ack="client-individual")
        assert send(other.open(), "/queue/a") == "0"
        message = worker.hear("MESSAGE")
        served.data.rename(served.data.with_name("data.away"))
        wait_for(served, 503)
        worker.say("ACK", id=message.headers["ack"], receipt="r")
        error = worker.hear("ERROR")
        assert (error.headers["error-code"], error.headers["receipt-id"]) == ("storage", "r")
        assert send(other, "/temp-queue/x") == "storage"
    served.data.with_name("data.away").rename(served.data)
    wait_for(served, 200)
    with Wire(served) as wire:
        wire.open().say("SUBSCRIBE", destination="/queue/a", id="0", ack="auto")
        assert wire.hear("MESSAGE").headers["redelivered"] == "true"


def test_a_removed_directory_is_not_made_again(served: Served) -> None:
    with Wire(served) as wire:
        wire.open()
        assert send(wire, "/queue/a") == "0"
        shutil.rmtree(served.data)
        found = send(wire, "/queue/new")
    assert found == "storage"
    while WORDS not in str(wait_for(served, 503)):
        assert served.running
    assert not served.data.exists()
    served.kill()
