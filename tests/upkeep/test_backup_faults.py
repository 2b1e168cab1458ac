"""Backups and restores on a disk that lets us down, and beside transactions that are under way."""

from __future__ import annotations

import errno

import pytest

from radiator.errors import StorageError
from radiator.storage import layout
from radiator.upkeep import backup as backups
from radiator.upkeep.copying import Copier
from radiator.upkeep.manifest import MANIFEST
from radiator.upkeep.restore import PARTIAL, restore, verify
from tests.broker.committing.test_atomic_commit import prepared, steps
from tests.broker.harness import World
from tests.storage.driving import commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.upkeep.test_backup import SMALL, made, restored

# --- the disk lets us down --------------------------------------------------------------------------------------------


def in_memory() -> FaultyFileSystem:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("/queue/a", SMALL)
    for number in range(40):
        put(log, b"%d" % number * 100)
        commit(store)
    store.cursors.open("c", "/queue/a", 0).ack([0, 1, 2])
    commit(store)
    store.close()
    return fs


def test_a_finished_backup_survives_a_power_cut() -> None:
    for seed in range(20):
        fs = in_memory()
        fs.random.seed(seed)
        made(fs, "/data", "/copy")
        fs.power_cut()
        assert list(restored(fs, "/copy", "/again")["/queue/a"]) == list(range(40))
        fs.power_cut()
        store, notes = opened(fs, "/again")
        assert (notes, store.partitions["/queue/a"].next_offset) == ([], 40)


def test_a_full_disk_is_reported_before_the_first_byte_or_leaves_nothing_behind() -> None:
    fs = in_memory()
    fs.capacity = fs._used() + 2000  # of which LOCK takes five
    with pytest.raises(StorageError, match=r"needs \d+ bytes, and there is room for 1995"):
        made(fs, "/data", "/copy")
    fs.capacity = None
    fs.fail("pwritev", 6, errno.ENOSPC)
    with pytest.raises(StorageError, match="No space left.*the incomplete backup was removed"):
        made(fs, "/data", "/copy")
    assert fs.listdir("/copy") == fs.listdir("/copy.partial") == []


@pytest.mark.parametrize("verb", ["fdatasync", "sync_dir", "rename", "open", "pread"])
def test_whatever_fails_no_backup_of_that_name_is_left(verb: str) -> None:
    fs, nth, failed = in_memory(), 0, True
    while failed:
        nth += 1
        target = f"/copy-{nth}"
        fs.fail(verb, nth)
        try:
            made(fs, "/data", target)
            failed = False
        except StorageError:
            if fs.listdir(target):  # only its name was not synced: what is there is whole
                assert verb == "sync_dir"
                verify(fs, target, Copier(fs))
            assert fs.listdir(f"{target}.partial") == []
        fs.heal()
    assert nth > 1


def test_what_an_interrupted_backup_left_is_replaced_and_one_under_way_is_not() -> None:
    fs = in_memory()
    held = backups._begin(fs, "/copy.partial")
    with pytest.raises(StorageError, match="another backup is being written"):
        made(fs, "/data", "/copy")
    fs.unlock(held)
    fs.close(fs.open("/copy.partial/half", create=True))
    made(fs, "/data", "/copy")
    assert fs.listdir("/copy") == [MANIFEST, "cursors", "partitions", "salt"]


def test_a_restore_that_was_interrupted_anywhere_is_repeated_and_no_broker_finds_a_part_of_a_store() -> None:
    nth, failed = 0, True
    while failed:
        nth += 1
        fs = in_memory()
        made(fs, "/data", "/copy")
        fs.fail("rename", nth)
        try:
            restore(fs, "/copy", "/again", Copier(fs))
            failed = False
        except StorageError:
            assert PARTIAL in fs.listdir("/again") and layout.PARTITIONS not in fs.listdir("/again")
            fs.kill()
            assert list(restored(fs, "/copy", "/again")["/queue/a"]) == list(range(40))
    assert nth > 2


# --- transactions -----------------------------------------------------------------------------------------------------


def in_copy(world: World) -> tuple[bool, ...]:
    """Which parts of the transaction a backup made now has, once it is restored and opened."""
    assert made(world.fs, "/data", "/copy").manifest.whole_transactions
    restore(world.fs, "/copy", "/again", Copier(world.fs))
    store, _ = opened(world.fs, "/again")
    there = {
        name: set(read_all(store.partitions[name], memory=False).values()) if name in store.partitions else set()
        for name in ("/topic/out", "/topic/weak", "/queue/new")
    }
    cursor = store.cursors.open("queue:/queue/in", "/queue/in", 0)
    found = (
        {b"one", b"two"} <= there["/topic/out"],
        b"three" in there["/topic/weak"],
        b"four" in there["/queue/new"],
        cursor.is_acked(0),
    )
    store.close()
    return found


def test_a_backup_made_at_any_step_of_a_commit_has_all_of_it_or_nothing() -> None:
    outcomes = []
    count = len(steps(prepared()[0]))
    for stop in range(count + 1):
        world, _ = prepared()
        for step in steps(world)[:stop]:
            step()
        outcomes.append(in_copy(world))
    assert all(len(set(outcome)) == 1 for outcome in outcomes), outcomes
    assert (outcomes[0][0], outcomes[-1][0]) == (False, True)


@pytest.mark.parametrize("verb", ["pwritev", "fdatasync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_backup_has_all_of_a_transaction_that_the_journal_has_not_taken_or_nothing(verb: str, code: int) -> None:
    world, _ = prepared()
    world.fs.fail(verb, 1, code, under="/journal/")
    for job in world.take():
        job.write()
    for job in world.jobs:
        if job.needs_sync:
            job.sync()
    world.completed()
    assert len(set(in_copy(world))) == 1
