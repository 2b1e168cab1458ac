"""What the journal says of cursors holds for as long as they are there, and says nothing of those that followed."""

from __future__ import annotations

from random import Random

import pytest

from radiator.storage.journal.group import GroupJob
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, checkpoint, commit, opened, put, read_all
from tests.storage.faults import Crash, FaultyFileSystem
from tests.tiers import sampled

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
    store.cursors.sync_soon()


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
    store.cursors.sync_soon()
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


def test_the_number_of_a_deleted_cursor_is_not_used_again() -> None:
    """The disk was full at that start, so the journal stayed; the next start would have taken the new one for gone."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("a", ALWAYS), *[b"in"] * 6)
    deleted = store.cursors._facts[store.cursors.open(NAME, "a", 0)][0]
    commit(store)
    store.cursors.delete(NAME)
    store.cursors.sync_soon()
    commit(store)
    fs.kill()
    fs.capacity = sum(len(node.cache) for node in fs.nodes.values())
    store, notes = opened(fs)
    assert "until there is room" in str(notes[-1])
    cursor = store.cursors.open(NAME, "a", 0)
    assert store.cursors._facts[cursor][0] > deleted


def crashed(fs: FaultyFileSystem, call: int) -> bool:
    """Return whether a start has so many calls; at that one the power fails."""
    fs.crash_at(call)
    try:
        opened(fs)
    except Crash:
        return True
    finally:
        fs.power_cut()
    return False


@pytest.mark.parametrize("seed", sampled(range(6), 1))
def test_of_an_entry_that_was_not_synced_a_start_makes_all_or_nothing_wherever_the_power_fails(seed: int) -> None:
    """A kill left it whole; the acks must not get to the disk before the messages that are in it."""
    call, held = 1, set()
    while True:
        fs = FaultyFileSystem(Random(seed * 1_000 + call))
        store = acked_together(fs)
        (group,) = [job for job in store.take(both(NOW)) if isinstance(job, GroupJob)]
        group.needs_sync = False
        group.write()
        fs.kill()
        over = not crashed(fs, call)
        crashed(fs, call)
        store, _ = opened(fs)
        cursor = store.cursors.get(NAME, "a")
        sent = "b" in store.partitions and list(read_all(store.partitions["b"]).values()) == [b"out"]
        assert (cursor is not None and cursor.floor == 2) == sent, call
        held.add(sent)
        if over:
            break
        call += 1
    assert call > 20 and held == {False, True}
