"""A cursor knows what is settled."""

from __future__ import annotations

from radiator.storage.cursor import Cursor


def test_the_floor_rises_over_what_is_settled_in_order() -> None:
    cursor = Cursor(5)
    cursor.ack([5, 6])
    assert (cursor.floor, cursor.ceiling, cursor.intervals) == (7, 7, [])


def test_acks_above_an_unsettled_offset_are_one_interval() -> None:
    cursor = Cursor(0)
    cursor.ack(range(1, 100_000))
    assert (cursor.floor, cursor.ceiling, cursor.intervals) == (0, 100_000, [(1, 100_000)])
    assert list(cursor.unacked(100_002)) == [0, 100_000, 100_001]
    cursor.ack([0])
    assert (cursor.floor, cursor.intervals) == (100_000, [])


def test_what_is_settled_twice_or_below_the_floor_does_not_matter() -> None:
    cursor = Cursor(10)
    cursor.ack([3, 12, 12, 11])
    cursor.ack_range(0, 12)
    assert cursor.floor == 13
    cursor.ack([])
    cursor.ack_range(20, 20)
    assert (cursor.floor, cursor.intervals) == (13, [])


def test_counts_go_when_the_offset_is_settled() -> None:
    cursor = Cursor(0)
    for offset in (1, 2, 3):
        cursor.set_count(offset, 2)
    cursor.ack([2])
    assert cursor.counts == {1: 2, 3: 2}
    cursor.ack_range(0, 1_000)
    assert cursor.counts == {}


def test_a_cursor_in_memory_writes_nothing_to_the_journal() -> None:
    cursor = Cursor(0)
    assert not cursor.stored
    cursor.ack([0])
    assert cursor.take_changes() is None


def test_the_first_change_marks_a_stored_cursor_once() -> None:
    cursor, marked = Cursor(0), []
    cursor.attach(marked.append, memoryview(bytearray(8)).cast("Q"), 0)
    cursor.ack([0])
    cursor.ack([1, 4])
    cursor.set_count(2, 2)
    assert marked == [cursor]
    changes = cursor.take_changes()
    assert changes is not None and (changes.ranges, changes.counts) == ([(0, 2), (4, 5)], {2: 2})
    assert cursor.take_changes() is None
    cursor.ack([2])
    assert marked == [cursor, cursor]


def test_an_offset_that_is_named_twice_settles_no_other() -> None:
    cursor = Cursor(0)
    cursor.ack([0, 0, 0, 0, 0, 5])
    assert cursor.floor == 1 and cursor.intervals == [(5, 6)]
