"""A real broker over real sockets, whose disk begins to fail and stops failing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.test_admin import Served
from tests.server.wire import Wire

BAD, GOOD = "/queue/bad", "/queue/good"


@pytest.fixture(params=[1, 2], ids=["the loop syncs", "the disk thread syncs"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    broker = Served(tmp_path)
    broker.program = ["tests.server.failing_broker"]
    broker.start()
    bystanders = [Wire(broker).open() for _ in range(request.param - 1)]
    yield broker
    for each in bystanders:
        each.close()
    assert broker.stop() == 0, broker.text()


def send(broker: Served, destination: str, body: bytes) -> str:
    """The code of the ERROR, or the offset in the RECEIPT."""
    with Wire(broker) as wire:
        wire.open().say("SEND", body, destination=destination, receipt="r")
        while not wire.inbox:
            assert wire.more()
        (frame,) = wire.inbox
        assert frame.headers["receipt-id"] == "r"
        return frame.headers["error-code" if frame.command == "ERROR" else "offset"]


def test_a_disk_that_fails_is_told_and_survived_without_a_restart(served: Served) -> None:
    assert send(served, BAD, b"kept") == "0" and send(served, GOOD, b"kept") == "0"
    fail = served.data / "fail"
    fail.write_text("bad")
    assert send(served, BAD, b"refused") == "storage"
    assert send(served, BAD, b"refused") == "storage", "by then without asking the disk"
    assert send(served, GOOD, b"other") == "1"
    status, said = served.ask("/ready")
    assert status == 503 and said["reasons"][0].startswith(f"partition {BAD}: ")
    assert served.ask("/health")[0] == 200
    assert served.ask("/stats")[1]["store"]["partitions_failed"] == 1
    fail.unlink()
    while served.ask("/ready")[0] != 200:
        assert served.running
    assert send(served, BAD, b"next") == "1"
    served.kill()
    served.start()
    assert send(served, BAD, b"after a kill") == "2"
    with Wire(served) as wire:
        wire.open().say("SUBSCRIBE", destination=BAD, id="0", ack="auto")
        assert [frame.body for frame in wire.hear_many("MESSAGE", 3)] == [b"kept", b"next", b"after a kill"]
