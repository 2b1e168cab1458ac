"""Delivery counts that the journal does not have yet: a kill forgets none, a power cut invents none."""

from __future__ import annotations

import pytest

from radiator.storage.cursor import Cursor
from radiator.storage.delivery_counts import COUNTS, HINTS_BYTES, DeliveryCounts, counts_in
from radiator.storage.store import Store
from tests.storage.driving import ALWAYS, commit, opened, put
from tests.storage.faults import FaultyFileSystem

DELIVERED = "/data/cursors/delivered"


def filled(fs: FaultyFileSystem) -> tuple[Store, Cursor]:
    store, _ = opened(fs)
    put(store.partition("p", ALWAYS), *[b""] * 20)
    cursor = store.cursors.open("a", "p", 0)
    commit(store)
    return store, cursor


def reopened(fs: FaultyFileSystem) -> Cursor:
    store, _ = opened(fs)
    cursor = store.cursors.get("a", "p")
    assert cursor is not None
    return cursor


def test_a_count_outlives_a_kill_before_anything_is_written() -> None:
    fs = FaultyFileSystem()
    _, cursor = filled(fs)
    for count in (2, 3, 4):
        before = fs.calls.copy()
        cursor.set_count(7, count)
        assert fs.calls == before
        fs.kill()
        cursor = reopened(fs)
        assert cursor.counts == {7: count} and cursor.delivered == 8


def test_a_count_of_what_was_settled_meanwhile_means_nothing() -> None:
    fs = FaultyFileSystem()
    store, cursor = filled(fs)
    cursor.set_count(7, 2)
    cursor.ack([7])
    commit(store)
    cursor.set_count(8, 2)
    cursor.ack([8])
    fs.kill()
    assert reopened(fs).counts == {8: 2}


def test_the_journal_has_it_and_its_place_is_free() -> None:
    fs = FaultyFileSystem()
    store, cursor = filled(fs)
    for offset in range(10):
        cursor.set_count(offset, 2)
    assert len(list(counts_in(bytes(fs.nodes[DELIVERED].cache), 0))) == 10
    commit(store)
    assert not list(counts_in(bytes(fs.nodes[DELIVERED].cache), 0))
    fs.kill()
    assert reopened(fs).counts == dict.fromkeys(range(10), 2)


def test_another_cursor_in_its_place_starts_afresh() -> None:
    fs = FaultyFileSystem()
    store, cursor = filled(fs)
    cursor.set_count(7, 5)
    store.cursors.delete("a")
    store.cursors.open("a", "p", 0)
    fs.kill()
    store, _ = opened(fs)
    again = store.cursors.get("a", "p")
    assert again is None or not again.counts or again.counts == {7: 5}  # neither was written: the old one is back
    store.cursors.delete("a")
    commit(store)
    new = store.cursors.open("b", "p", 0)
    commit(store)
    fs.kill()
    store, _ = opened(fs)
    found = store.cursors.get("b", "p")
    assert found is not None and not found.counts and not new.counts


def test_an_old_page_that_a_power_cut_brings_back_is_not_believed() -> None:
    fs = FaultyFileSystem()
    _, cursor = filled(fs)
    cursor.set_count(7, 5)
    page = bytes(fs.nodes[DELIVERED].cache)
    fs.kill()
    store, _ = opened(fs)  # this start has written a snapshot with the count
    found = store.cursors.get("a", "p")
    assert found is not None
    found.ack([7])
    store.cursors.delete("a")
    store.cursors.open("a", "p", 0)
    commit(store)
    fs.kill()
    fs.nodes[DELIVERED].cache[:] = page
    assert reopened(fs).counts == {}


@pytest.mark.parametrize("size", [0, 8, HINTS_BYTES // 2, HINTS_BYTES - 4, HINTS_BYTES])
def test_a_file_of_any_length_is_read(size: int) -> None:
    assert not list(counts_in(bytes(size), 0))


def test_beyond_its_places_it_notes_no_more_and_goes_on() -> None:
    words = memoryview(bytearray(HINTS_BYTES)).cast("Q")
    counted = DeliveryCounts(words)
    for offset in range(COUNTS + 5):
        counted.record(3, offset, 2)
    assert len(DeliveryCounts(words).restore(0)[3]) == COUNTS
    counted.take()
    counted.record(3, 0, 3)  # its entry is not written yet
    counted.written()
    assert DeliveryCounts(words).restore(0) == {3: {0: 3}}
    counted.record(4, 9, 2)
    assert DeliveryCounts(words).restore(0) == {3: {0: 3}, 4: {9: 2}}
