"""What the journal says of cursors holds for as long as they are there, and says nothing of those that followed."""

from __future__ import annotations

from random import Random

import pytest

from radiator.storage.store import Store
from tests.storage.driving import ALWAYS, checkpoint, commit, opened, put
from tests.storage.faults import FaultyFileSystem

NAME = "sub:billing"
ENDS = ["kill", "power_cut"]


def acked_together(fs: FaultyFileSystem) -> Store:
    """A cursor at 2 and a log, with a transaction over both under way."""
    store, _ = opened(fs)
    logs = [store.partition(name, ALWAYS) for name in "ab"]
    put(logs[0], *[b"in"] * 6)
    cursor = store.cursors.open(NAME, "a", 0)
    commit(store)
    put(logs[1], b"out")
    store.together([logs[1]], [(cursor, [0, 1])], lambda held: cursor.ack([0, 1]) if held else None)
    return store


def floor(fs: FaultyFileSystem, end: str) -> int | None:
    getattr(fs, end)()
    store, _ = opened(fs)
    found = store.cursors.get(NAME, "a")
    return None if found is None else found.floor


def again(store: Store, start: int) -> None:
    store.cursors.delete(NAME)
    store.cursors.open(NAME, "a", start)
    store.cursors.hurry()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", [0, 5])
def test_a_cursor_that_was_set_since_stays_where_it_was_set(start: int, end: str) -> None:
    fs = FaultyFileSystem(Random(start))
    store = acked_together(fs)
    commit(store)
    again(store, start)
    commit(store)
    assert floor(fs, end) == start


@pytest.mark.parametrize("end", ENDS)
def test_one_that_was_deleted_since_does_not_come_back(end: str) -> None:
    fs = FaultyFileSystem()
    store = acked_together(fs)
    commit(store)
    store.cursors.delete(NAME)
    store.cursors.hurry()
    commit(store)
    assert floor(fs, end) is None


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("start", [0, 5])
def test_one_that_is_set_in_the_same_turn_stays_where_it_was_set(start: int, snapshot: bool) -> None:
    for end in [*ENDS, "stop"]:
        fs = FaultyFileSystem()
        store = acked_together(fs)
        again(store, start)
        (checkpoint if snapshot else commit)(store)
        if end == "stop":
            store.close()
        assert floor(fs, "kill" if end == "stop" else end) == start, end


@pytest.mark.parametrize("kills", [1, 2, 3])
def test_one_that_was_deleted_before_a_snapshot_does_not_come_back(kills: int) -> None:
    """The file of the journal that had its acks is to be used again, and is still there."""
    fs = FaultyFileSystem()
    store = acked_together(fs)
    commit(store)
    store.cursors.delete(NAME)
    checkpoint(store)
    for _ in range(kills):
        fs.kill()
        store, _ = opened(fs)
    assert store.cursors.names() == []


def test_a_number_that_the_journal_knows_as_deleted_is_given_to_nobody() -> None:
    """The disk was full at that start, so the journal stayed; the next start would have taken the new one for gone."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("a", ALWAYS), *[b"in"] * 6)
    deleted = store.cursors._facts[store.cursors.open(NAME, "a", 0)][0]
    commit(store)
    store.cursors.delete(NAME)
    store.cursors.hurry()
    commit(store)
    fs.kill()
    fs.capacity = sum(len(node.cache) for node in fs.nodes.values())
    store, notes = opened(fs)
    assert "until there is room" in str(notes[-1])
    cursor = store.cursors.open(NAME, "a", 0)
    assert store.cursors._facts[cursor][0] > deleted
