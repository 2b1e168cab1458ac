"""Of a transaction over many files one sync of the journal decides; the files' own come later, and nothing depends on
when."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator import limits
from radiator.config import Settings
from radiator.storage import layout
from radiator.storage.file_partition import RETRY_EVERY_NS, AppendJob
from radiator.storage.journal.group import GroupJob
from radiator.storage.partition import Partition
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import ALWAYS, NEVER, NOW, SNAPSHOT_SYNCS, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled

LOGS = 12
STEPS = 4  # of a checkpoint, as ``checkpoint`` takes them


def begun(fs: FaultyFileSystem, options: Settings = ALWAYS, **more: Any) -> tuple[Store, list[Partition]]:
    """Logs that have files, with a message each."""
    store, _ = opened(fs, **more)
    logs = [store.partition(f"n{number:02}", options) for number in range(LOGS)]
    for log in logs:
        put(log, b"first")
    while store.dirty:
        commit(store)
    return store, logs


def decided(store: Store, logs: list[Partition], body: bytes = b"part") -> list[Any]:
    """One group with a transaction over all of them."""
    for log in logs:
        put(log, body)
    told: list[bool] = []
    store.together(logs, [], told.append)
    jobs = commit(store)
    assert told == [True]
    return jobs


def checkpoint(store: Store, steps: int = STEPS) -> None:
    """One checkpoint, or the first steps of it."""
    store.journal.wants_checkpoint = True
    if steps > 0:
        commit(store)
    if steps > 1:
        made = store.checkpoints.take()
        assert made is not None
        made.run(threads=1)
        store.checkpoints.done(made)
    if steps > 2:
        commit(store)
    if steps > 3:
        commit(store)


def found(fs: FaultyFileSystem) -> list[dict[int, bytes]]:
    store, _ = opened(fs)
    return [read_all(store.partitions[name], memory=False) for name in sorted(store.partitions)]


def test_one_sync_decides_and_a_checkpoint_syncs_each_file_once() -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    checkpoint(store)
    before = fs.calls["fdatasync"]
    decided(store, logs)
    assert fs.calls["fdatasync"] - before == 1
    assert all(log.high_watermark == 2 for log in logs), "it is there for readers"
    checkpoint(store)
    assert fs.calls["fdatasync"] - before == 1 + LOGS + SNAPSHOT_SYNCS
    assert not store.take(both(NOW)) and store.checkpoints.take() is None


@pytest.mark.parametrize("options", [ALWAYS, NEVER], ids=["always", "never"])
@pytest.mark.parametrize("steps", range(STEPS + 1))
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_any_time_takes_nothing_of_it(seed: int, steps: int, options: Settings) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs, options)
    decided(store, logs)
    checkpoint(store, steps)
    fs.power_cut()
    assert all(b"part" in each.values() for each in found(fs))


@pytest.mark.parametrize("seed", range(8))
def test_a_later_message_is_behind_it_whatever_a_power_cut_takes(seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs)
    decided(store, logs)
    for log in logs:
        put(log, b"later")
    for job in store.take(both(NOW)):
        if isinstance(job, GroupJob):
            job.needs_sync = False
        job.write()  # and before it is synced
    fs.power_cut()
    for each in found(fs):
        assert list(each.values())[:2] == [b"first", b"part"]


def test_the_next_transaction_keeps_what_the_one_before_it_still_needs() -> None:
    fs = FaultyFileSystem(Random(1))
    store, logs = begun(fs)
    decided(store, logs)
    decided(store, logs[:5], b"second")
    fs.power_cut()
    bodies = [list(each.values()) for each in found(fs)]
    assert bodies == [[b"first", b"part", b"second"]] * 5 + [[b"first", b"part"]] * (LOGS - 5)


def test_the_journal_does_not_grow_for_the_sake_of_it() -> None:
    fs = FaultyFileSystem(Random(1))
    store, logs = begun(fs, journal_file_bytes=6_000)
    most = 0
    for number in range(20):
        decided(store, logs, b"%03d" % number)
        if store.journal.wants_checkpoint:
            checkpoint(store)
        names = fs.listdir(layout.journal_path("/data"))
        most = max(most, sum(len(fs.nodes[f"/data/journal/{name}"].cache) for name in names))
    assert most <= 4 * 6_000 and store.checkpoints.made > 1
    fs.power_cut()
    assert [len(each) for each in found(fs)] == [1 + 20] * LOGS


def test_a_checkpoint_that_fails_costs_nothing() -> None:
    fs = FaultyFileSystem(Random(2))
    store, logs = begun(fs, tail_bytes_max=1)
    decided(store, logs)
    checkpoint(store, 1)
    fs.fail("fdatasync", 1, under="/partitions/")
    made = store.checkpoints.take()
    assert made is not None
    made.run(threads=1)
    store.checkpoints.done(made)
    commit(store)
    (failed,) = [log for log in logs if log.failed is not None]
    store.tick(both(NOW + 3_000_000_000))
    while store.dirty:
        jobs = commit(store, NOW + 3_000_000_000)
        assert error_of(jobs) is None and not any(job.lost for job in jobs)
    assert failed.failed is None
    decided(store, logs[:3], b"next")
    fs.power_cut()
    assert all(b"part" in each.values() for each in found(fs))


@pytest.mark.parametrize("stop", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_after_such_a_failure_takes_nothing_either(seed: int, stop: bool) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs)
    decided(store, logs)
    checkpoint(store, 1)
    fs.fail("fdatasync", 1, under="/partitions/")
    made = store.checkpoints.take()
    assert made is not None
    made.run(threads=1)
    store.checkpoints.done(made)
    commit(store)
    assert sum(log.failed is not None for log in logs) == 1
    decided(store, [log for log in logs if log.failed is None][:3], b"next")
    if stop:
        store.close()
    fs.power_cut()
    assert all(b"part" in each.values() for each in found(fs))


def test_a_clean_stop_leaves_nothing_to_be_made_up_for() -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    decided(store, logs)
    store.close()
    assert fs.listdir(layout.journal_path("/data")) == []
    fs.power_cut()
    assert all(list(each.values()) == [b"first", b"part"] for each in found(fs))


def test_logs_that_are_closed_for_want_of_descriptors_cost_no_sync() -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs, open_logs_max=3)
    before = fs.calls["fdatasync"]
    decided(store, logs)
    assert fs.calls["fdatasync"] - before == 1
    checkpoint(store)
    fs.power_cut()
    assert all(list(each.values()) == [b"first", b"part"] for each in found(fs))


def test_what_was_settled_before_its_log_was_synced_stays_settled() -> None:
    for seed in range(8):
        fs = FaultyFileSystem(Random(seed))
        store, logs = begun(fs)
        decided(store, logs)
        for log in logs:
            cursor = store.cursors.open("queue:q", log.name, 0)
            cursor.ack([0, 1])
        store.cursors.sync_soon()
        assert error_of(commit(store)) is None
        fs.power_cut()
        store, _ = opened(fs)
        for log in logs:
            found_cursor = store.cursors.get("queue:q", log.name)
            assert found_cursor is not None and found_cursor.floor == 2


@pytest.mark.parametrize("seed", sampled(range(12), 4))
def test_what_follows_in_the_same_group_and_log_does_not_outlive_it(seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs)
    log = logs[0]
    put(log, b"part")
    store.together([log], [], lambda holds: None)
    put(log, *[b"later"] * limits.BATCH_RECORDS_MAX)
    jobs = store.take(both(NOW))
    assert sum(isinstance(job, AppendJob) for job in jobs) == 2
    for job in jobs:
        job.write()
    fs.power_cut()  # the transaction was decided, and no segment was synced
    bodies = found(fs)[0].values()
    assert b"part" in bodies and sum(body == b"later" for body in bodies) == limits.BATCH_RECORDS_MAX


@pytest.mark.parametrize("steps", [0, STEPS])
@pytest.mark.parametrize("seed", range(12))
def test_what_was_postponed_is_safe_before_more_is_written(seed: int, steps: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs)
    log = logs[0]
    put(log, b"part")
    store.together([log], [], lambda holds: None)
    fs.fail("pwritev", 2, errno.ENOSPC)  # the first one decides
    commit(store)
    assert log.failed is not None and log.postponed
    checkpoint(store, steps)
    if seed % 2:
        store.tick(both(NOW + RETRY_EVERY_NS))
        commit(store, NOW + RETRY_EVERY_NS)
        put(log, b"next")
        store.together([log], [], lambda holds: None)
        for job in store.take(both(NOW)):
            job.write()
    fs.power_cut()
    assert b"part" in found(fs)[0].values()
