"""A session: its outbox, its room, auto-acknowledged runs, and how it ends."""

from __future__ import annotations

from radiator.broker.session import AutoAck, Session, SessionLimits
from radiator.errors import ProtocolError


class Source:
    """What an AutoAck settles."""

    def __init__(self) -> None:
        self.settled: list[int] = []

    def settle(self, offsets: list[int]) -> None:
        self.settled += offsets


def new(outbox: int = 100) -> tuple[Session, list[Session]]:
    woken: list[Session] = []
    session = Session("s1", SessionLimits(outbox=outbox), woken.append, lambda each, error, receipt: each.fail(error))
    return session, woken


def test_the_transport_is_woken_once_per_filled_outbox() -> None:
    session, woken = new()
    session.send(b"a")
    session.send(b"b")
    assert woken == [session]
    assert session.take_outbox() == [b"a", b"b"]
    session.send(b"c")
    assert woken == [session, session]


def test_bytes_count_against_the_room_until_they_have_left() -> None:
    session, _ = new(outbox=100)
    session.send(b"x" * 60)
    session.take_outbox()
    assert session.room() == 40
    session.flushed(50)
    assert session.room() == 90
    session.flushed(10)
    assert session.room() == 100
    assert session.outbox_bytes == 0


def test_a_closed_session_takes_no_bytes() -> None:
    session, woken = new()
    session.closed = True
    session.send(b"a")
    assert not session.outbox
    assert not woken


def test_an_auto_acked_run_settles_when_its_last_byte_has_left() -> None:
    session, _ = new()
    source = Source()
    session.send(b"x" * 10)
    session.auto_acks.append(AutoAck(session.queued_total, source, [3, 4], [5, 5]))
    session.flushed(9)
    assert source.settled == []
    session.flushed(1)
    assert source.settled == [3, 4]
    assert not session.auto_acks


def test_a_run_that_was_cut_off_is_split_where_the_bytes_end() -> None:
    run = AutoAck(30, Source(), [1, 2, 3], [10, 10, 10])
    assert run.unwritten(0) == ([], [1, 2, 3])
    assert run.unwritten(9) == ([], [1, 2, 3])
    assert run.unwritten(10) == ([1], [2, 3])
    assert run.unwritten(29) == ([1, 2], [3])
    assert run.unwritten(30) == ([1, 2, 3], [])


def test_failing_sends_one_error_and_closes() -> None:
    session, _ = new(outbox=10_000)
    session.fail(ProtocolError("bad-header", "first"), b"r-1")
    (frame,) = session.take_outbox()
    assert frame.startswith(b"ERROR\n")
    assert b"first" in frame
    assert b"receipt-id:r-1" in frame
    assert session.closing
