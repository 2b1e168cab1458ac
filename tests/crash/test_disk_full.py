"""A real file system that is full: what was receipted stays, reading goes on, and when there is room again so do sends.

On a tmpfs of a few MiB, where mounting one is permitted; elsewhere skipped (the same is tested through the file seam in
``tests/storage`` and ``tests/broker``).
"""

from __future__ import annotations

from tests.crash.asking import drain, replay
from tests.crash.small_disk import Small
from tests.crash.small_disk import small_disk as small_disk
from tests.running import BrokerProcess
from tests.server.wire import Wire

T, Q = "/topic/log", "/queue/work"


def fill_up(broker: BrokerProcess, destination: str, size: int) -> tuple[dict[int, bytes], bytes]:
    """Send until refused: what was receipted, by offset, and the text of the ERROR."""
    stored: dict[int, bytes] = {}
    with Wire(broker) as wire:
        wire.open()
        for number in range(10_000):
            body = b"%d:" % number + b"x" * size
            wire.say("SEND", body, destination=destination, receipt="r")
            while not wire.inbox:
                assert wire.more()
            (frame,) = wire.inbox
            wire.inbox.clear()
            if frame.command == "ERROR":
                assert frame.headers["error-code"] == "storage"
                assert frame.headers["receipt-id"] == "r"
                return stored, frame.body
            stored[int(frame.headers["offset"])] = body
    raise AssertionError("the disk never filled up")


def accepted(broker: BrokerProcess, destination: str, body: bytes = b"again") -> bool:
    """One message: is it receipted?"""
    with Wire(broker) as wire:
        wire.open().say("SEND", body, destination=destination, receipt="r")
        while not wire.inbox:
            if not wire.more():
                return False
        return wire.inbox[0].command == "RECEIPT"


def test_a_full_disk_refuses_with_the_reason_and_loses_nothing(small_disk: Small) -> None:
    broker, disk = small_disk("disk: {min_free: none}\ndestinations: [{match: '/topic/memory', store: memory}]")
    filler = disk / "filler"
    filler.write_bytes(b"x" * 2_000_000)
    stored, text = fill_up(broker, T, 60_000)
    assert len(stored) > 20
    assert b"free space" in text
    assert replay(broker, T) == stored
    assert accepted(broker, "/topic/memory")
    broker.kill()
    broker.start()  # over a disk that is still full
    assert replay(broker, T) == stored
    assert not accepted(broker, T, b"x" * 1_000_000)
    filler.unlink()
    while not accepted(broker, T):  # there is room: it finds out by itself
        assert broker.running
    found = replay(broker, T)
    assert {offset: found[offset] for offset in stored} == stored
    assert list(found.values())[-1] == b"again"
    assert list(found) == list(range(len(found)))
    assert broker.stop() == 0, broker.text()


def test_small_messages_meet_a_full_disk_as_well(small_disk: Small) -> None:
    broker, disk = small_disk("disk: {min_free: none}")
    (disk / "filler").write_bytes(b"x" * 6_200_000)
    stored, _ = fill_up(broker, Q, 900)
    broker.kill()
    (disk / "filler").unlink()
    broker.start()
    assert [body for body, _ in drain(broker, Q)][: len(stored)] == list(stored.values())
    assert broker.stop() == 0, broker.text()


def test_below_the_reserve_sends_are_refused_and_consuming_goes_on(small_disk: Small) -> None:
    broker, disk = small_disk("disk: {min_free: 4MiB}")
    assert accepted(broker, Q)
    filler = disk / "filler"
    filler.write_bytes(b"x" * 4_000_000)
    with Wire(broker) as consumer:
        consumer.open().say("SUBSCRIBE", destination=Q, id="0", ack="client")
        message = consumer.hear("MESSAGE")
        while accepted(broker, Q):  # it looks at the disk now and then
            pass
        _, text = fill_up(broker, Q, 10)
        assert b"disk.min_free" in text
        consumer.say("ACK", id=message.headers["ack"], receipt="r")
        consumer.hear("RECEIPT", receipt_id="r")
    assert replay(broker, Q)[0] == b"again"
    filler.unlink()
    while not accepted(broker, Q):
        assert broker.running
    assert broker.stop() == 0, broker.text()


def test_a_disk_smaller_than_the_reserve_can_be_used(small_disk: Small) -> None:
    """By default 1GiB must be free, which a small disk never has: a sixteenth of it will do."""
    broker, disk = small_disk("version: 1")
    assert accepted(broker, Q)
    (disk / "filler").write_bytes(b"x" * 6_200_000)
    while accepted(broker, Q):  # it looks at the disk now and then
        pass
    _, text = fill_up(broker, Q, 10)
    assert b"At least 655360 bytes" in text and b"disk.min_free" in text
    assert broker.stop() == 0, broker.text()
