"""Starting over what should not be there: another broker, damage, strangers' files. Each is told with its remedy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from radiator.storage import layout
from tests.crash.asking import drain, replay
from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
T, Q = "/topic/log", "/queue/work"


def fill(broker: BrokerProcess, count: int = 20, size: int = 2_000, destination: str = T) -> list[bytes]:
    """Messages, each synced in a batch of its own."""
    bodies = [b"%d:" % number + b"x" * size for number in range(count)]
    with Wire(broker) as wire:
        wire.open()
        for body in bodies:
            wire.say("SEND", body, destination=destination, receipt="r")
            wire.hear("RECEIPT")
    return bodies


def serve(data: Path) -> subprocess.CompletedProcess[str]:
    """A broker that is expected not to start."""
    return subprocess.run(
        [sys.executable, "-m", "radiator", "serve", "--data", str(data), "--listen", "stomp://127.0.0.1:0"],
        capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent.parent.parent,
    )  # fmt: skip


def segment(broker: BrokerProcess, destination: str = T) -> Path:
    return Path(layout.segment_path(layout.partition_path(str(broker.data), destination), 0))


# --- not alone --------------------------------------------------------------------------------------------------------


def test_a_second_broker_on_the_same_data_is_refused_and_the_first_goes_on(start_broker: StartBroker) -> None:
    broker = start_broker()
    bodies = fill(broker, 3)
    second = serve(broker.data)
    assert second.returncode == 1
    assert str(broker.pid) in second.stderr
    assert "data_dir" in second.stderr
    assert "Traceback" not in second.stderr
    bodies += fill(broker, 3)
    assert list(replay(broker, T).values()) == bodies


def test_a_killed_broker_leaves_no_lock_behind(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.kill()
    broker.start()


def test_a_data_directory_that_is_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    refused = serve(path)
    assert refused.returncode == 1
    assert str(path) in refused.stderr
    assert "Traceback" not in refused.stderr


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_off_and_reported(start_broker: StartBroker) -> None:
    broker = start_broker()
    bodies = fill(broker)
    broker.kill()
    path = segment(broker)
    raw = path.read_bytes().rstrip(b"\0")
    path.write_bytes(raw + b"\0" * (-len(raw) % 8) + raw[: len(raw) // 3])
    broker.start()
    assert list(replay(broker, T).values())[: len(bodies)] == bodies
    bodies = list(replay(broker, T).values())
    bodies += fill(broker, 2)
    assert list(replay(broker, T).values()) == bodies
    broker.stop()
    assert broker.logs("recovery")


@pytest.mark.thorough
def test_half_of_the_last_batch_is_a_torn_tail(start_broker: StartBroker) -> None:
    broker = start_broker("defaults: {fsync: never}")
    bodies = fill(broker)
    broker.kill()
    path = segment(broker)
    raw = path.read_bytes().rstrip(b"\0")
    path.write_bytes(raw[:-1_000])
    (path.parent / "head").unlink()  # which says that more had been safe
    shutil.rmtree(broker.data / "journal")  # which has it
    broker.start()
    assert list(replay(broker, T).values()) == bodies[:-1]
    broker.stop()
    assert broker.logs("torn tail")


def test_what_a_segment_has_lost_is_taken_from_the_journal(start_broker: StartBroker) -> None:
    broker = start_broker()
    bodies = fill(broker)
    broker.kill()
    path = segment(broker)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"7:xxxx")
    raw[at + 500] ^= 0xFF
    path.write_bytes(raw[:-1_000])
    broker.start()
    assert list(replay(broker, T).values()) == bodies
    broker.kill()
    path.unlink()
    broker.start()
    assert list(replay(broker, T).values()) == bodies
    assert broker.logs("were in the journal")


def test_damage_in_the_middle_costs_what_it_hit_and_is_reported_as_a_gap(start_broker: StartBroker) -> None:
    broker = start_broker()
    bodies = fill(broker)
    bodies_q = fill(broker, destination=Q)
    broker.stop()
    for destination in (T, Q):
        path = segment(broker, destination)
        raw = bytearray(path.read_bytes())
        at = raw.index(b"7:xxxx")
        raw[at + 500] ^= 0xFF
        path.write_bytes(raw)
    broker.start()
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination=T, id="0", start_position="first")
        messages = wire.hear_many("MESSAGE", 19)
        assert [message.body for message in messages] == bodies[:7] + bodies[8:]
        assert [message.headers.get("gap") for message in messages] == [None] * 7 + ["1"] + [None] * 11
    assert [body for body, _ in drain(broker, Q)] == bodies_q[:7] + bodies_q[8:]
    assert broker.stop() == 0
    assert "offsets 7 to 7 are lost" in broker.text() or "removed from the log" in broker.text()


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["head", "names", "*.idx", "../../cursors/delivered"])
def test_what_can_be_rebuilt_may_be_gone_or_nonsense(start_broker: StartBroker, what: str) -> None:
    broker = start_broker("destinations: [{match: '/topic/*', partition: shared}]\ndefaults: {segment: {size: 64KiB}}")
    bodies = fill(broker, 60)
    queued = fill(broker, 5, destination=Q)
    for damage in (b"", b"nonsense", None):
        broker.kill()
        directory = broker.data / "partitions" / "shared"
        for path in directory.glob(what) if "/" not in what else [(directory / what).resolve()]:
            path.unlink() if damage is None else path.write_bytes(damage)
        broker.start()
        assert list(replay(broker, T).values()) == bodies
    assert [body for body, _ in drain(broker, Q)] == queued


def test_damaged_cursors_cost_redeliveries_and_no_message(start_broker: StartBroker) -> None:
    broker = start_broker()
    bodies = fill(broker, 10, destination=Q)
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination=Q, id="0", ack="client-individual", prefetch_count="5")
        for message in wire.hear_many("MESSAGE", 5):
            wire.say("ACK", id=message.headers["ack"], receipt="a")
            wire.hear("RECEIPT")
    broker.kill()
    for path in [*(broker.data / "cursors").iterdir(), *(broker.data / "journal").iterdir()]:
        if path.name != "delivered":
            path.write_bytes(b"\xff" * 100)
    broker.start()
    assert [body for body, _ in drain(broker, Q)] == bodies
    assert broker.stop() == 0
    assert broker.logs("recovery")


@pytest.mark.thorough
def test_a_log_of_a_newer_version_is_refused_and_left_as_it_is(start_broker: StartBroker) -> None:
    broker = start_broker()
    fill(broker, 3)
    broker.stop()
    path = segment(broker)
    raw = path.read_bytes().replace(b"\x89RDB1", b"\x89RDB7")
    path.write_bytes(raw)
    refused = serve(broker.data)
    assert refused.returncode == 1
    assert "version" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert path.read_bytes() == raw


def test_strangers_files_are_left_alone(start_broker: StartBroker) -> None:
    broker = start_broker()
    bodies = fill(broker, 3)
    broker.stop()
    strangers = [
        broker.data / "notes.txt",
        broker.data / "partitions" / "README",
        segment(broker).parent / "backup.rlog.old",
        segment(broker).parent / "tmp",
    ]
    for path in strangers:
        path.write_bytes(b"mine")
    (broker.data / "partitions" / "%zz").mkdir()
    broker.start()
    assert list(replay(broker, T).values()) == bodies
    assert [path.read_bytes() for path in strangers] == [b"mine"] * 4
