"""A real broker over real sockets, whose disk begins to fail and stops failing."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.test_admin import Served
from tests.server.wire import Wire
from tests.tiers import sampled

BAD, GOOD = "/queue/bad", "/queue/good"


@pytest.fixture(params=sampled([1, 2], 1), ids=["the loop syncs", "the disk thread syncs"])
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


def bodies(broker: Served, destination: str, count: int) -> list[bytes]:
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination=destination, id="0", ack="auto")
        return [frame.body for frame in wire.hear_many("MESSAGE", count)]


def test_a_segment_that_cannot_be_written_is_reported_and_survived_without_a_restart(served: Served) -> None:
    assert send(served, BAD, b"kept") == "0" and send(served, GOOD, b"kept") == "0"
    fail = served.data / "fail"
    fail.write_text("bad")
    assert send(served, BAD, b"in the journal") == "1"
    assert send(served, BAD, b"refused") == "storage", "by now it is known that it has no segment"
    assert send(served, GOOD, b"other") == "1"
    status, said = served.ask("/ready")
    assert status == 503 and said["reasons"][0].startswith(f"partition {BAD}: ")
    assert served.ask("/health")[0] == 200
    assert served.ask("/stats")[1]["store"]["partitions_failed"] == 1
    fail.unlink()
    while served.ask("/ready")[0] != 200:
        assert served.running
    assert send(served, BAD, b"next") == "2"
    served.kill()
    served.start()
    assert send(served, BAD, b"after a kill") == "3"
    assert bodies(served, BAD, 4) == [b"kept", b"in the journal", b"next", b"after a kill"]


def test_what_waits_for_its_segment_is_delivered_and_survives_a_kill(served: Served) -> None:
    assert send(served, BAD, b"kept") == "0"
    (served.data / "fail").write_text("bad")
    assert send(served, BAD, b"in the journal") == "1"
    served.kill()
    (served.data / "fail").unlink()
    served.start()
    assert bodies(served, BAD, 2) == [b"kept", b"in the journal"]


@pytest.mark.thorough
def test_a_journal_that_fails_refuses_everything_and_is_survived_without_a_restart(served: Served) -> None:
    assert send(served, BAD, b"kept") == "0" and send(served, GOOD, b"kept") == "0"
    fail = served.data / "fail"
    fail.write_text("/journal/")
    assert send(served, BAD, b"refused") == "storage"
    assert send(served, GOOD, b"refused") == "storage"
    assert served.ask("/ready")[0] == 503 and served.ask("/health")[0] == 200
    fail.unlink()
    while served.ask("/ready")[0] != 200:
        assert served.running
    assert send(served, BAD, b"next") == "1"
    served.kill()
    served.start()
    assert bodies(served, BAD, 2) == [b"kept", b"next"]


def test_publishers_wait_while_checkpoints_are_late_and_others_are_served(tmp_path: Path) -> None:
    broker = Served(tmp_path)
    broker.program = ["tests.upkeep.small_journal"]
    broker.start()
    cursors, aside = broker.data / "cursors", broker.data / "aside"
    with Wire(broker) as wire, Wire(broker) as other:
        wire.open()
        other.open().say("SUBSCRIBE", destination=GOOD, id="0", ack="client-individual")
        wire.say("SEND", b"waits for its ACK", destination=GOOD, receipt="first")
        wire.hear("RECEIPT", receipt_id="first")
        message = other.hear("MESSAGE")
        cursors.rename(aside)
        cursors.write_text("no directory")
        sent = 0
        while broker.ask("/stats")[1]["stats"]["journal_pauses"] == 0:
            assert sent < 200, "more than the journal may have"
            wire.say("SEND", bytes(10_000), destination=BAD, receipt=str(sent))
            wire.hear("RECEIPT", receipt_id=str(sent))
            sent += 1
        assert broker.ask("/ready")[0] == 503
        wire.say("SEND", b"the last that is read", destination=BAD, receipt="last")
        wire.hear("RECEIPT", receipt_id="last")
        wire.say("SEND", b"waits", destination=BAD, receipt="waits")
        other.say("ACK", id=message.headers["ack"], receipt="acked")
        other.hear("RECEIPT", receipt_id="acked")
        assert select.select([wire.socket], [], [], 0)[0] == []
        cursors.unlink()
        aside.rename(cursors)
        wire.hear("RECEIPT", receipt_id="waits")
        assert broker.ask("/stats")[1]["stats"]["journal_pauses"] == 1
    assert broker.stop() == 0, broker.text()
