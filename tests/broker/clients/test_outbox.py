"""The outbox of a session: room, pauses, and runs under ``ack:auto``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from radiator.broker.clients.outbox import AutoAck, Outbox


class Source:
    """What an AutoAck settles."""

    def __init__(self) -> None:
        self.settled: list[int] = []

    queue = SimpleNamespace(assignment=None)

    def settle(self, offsets: list[int]) -> None:
        self.settled += offsets


def new(most_bytes: int = 100) -> Outbox[str]:
    return Outbox(most_bytes, lambda: None)


def run(ends_at: int, source: Any, offsets: list[int], lengths: list[int]) -> AutoAck:
    return AutoAck(ends_at, source, offsets, lengths)


def test_bytes_count_against_the_room_until_they_have_left() -> None:
    outbox = new()
    outbox.add(b"x" * 60)
    outbox.take()
    assert outbox.room() == 40
    outbox.flushed(50)
    assert outbox.room() == 90
    outbox.flushed(10)
    assert outbox.room() == 100
    assert outbox.unsent_bytes == 0


def test_a_pause_leaves_deliveries_no_room_and_lets_answers_through() -> None:
    outbox = new()
    outbox.pause_deliveries()
    assert outbox.room() == 0
    outbox.waiting["a subscription"] = None
    outbox.add(b"RECEIPT")
    assert outbox.take() == [b"RECEIPT"]
    outbox.flushed(7)
    assert outbox.resume_deliveries() == {"a subscription": None}
    assert outbox.room() == 100 and not outbox.waiting


def test_an_auto_acked_run_settles_when_its_last_byte_has_left() -> None:
    outbox = new()
    outbox.expect_runs()
    source = Source()
    outbox.add(b"x" * 10)
    outbox.auto_acks.append(run(10, source, [3, 4], [5, 5]))
    outbox.flushed(9)
    assert source.settled == []
    outbox.flushed(1)
    assert source.settled == [3, 4]
    assert not outbox.auto_acks


def test_a_run_that_was_cut_off_is_split_where_the_bytes_end() -> None:
    cut = run(30, Source(), [1, 2, 3], [10, 10, 10])
    assert cut.unwritten(0) == ([], [1, 2, 3])
    assert cut.unwritten(9) == ([], [1, 2, 3])
    assert cut.unwritten(10) == ([1], [2, 3])
    assert cut.unwritten(29) == ([1, 2], [3])
    assert cut.unwritten(30) == ([1, 2, 3], [])
