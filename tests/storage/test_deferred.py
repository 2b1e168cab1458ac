"""Of a transaction over many files one sync decides; the files' own come later, and nothing depends on when."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator import limits
from radiator.server.group import run_jobs
from radiator.storage.file_partition import RETRY_EVERY_NS
from radiator.storage.jobs import AppendJob, SyncJob
from radiator.storage.options import PartitionOptions
from radiator.storage.partition import Partition
from radiator.storage.store import Store
from tests.storage.driving import ALWAYS, NEVER, NOW, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

LOGS = 12


def begun(fs: FaultyFileSystem, options: PartitionOptions = ALWAYS, **more: Any) -> tuple[Store, list[Partition]]:
    """Logs that have files, with a message each."""
    store, _ = opened(fs, together_synced_max=4, **more)
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
    store.together(logs, [], [], told.append)
    jobs = run_jobs(store.take(NOW, apart=True))
    for job in jobs:
        job.done(NOW)
    assert told == [True]
    return jobs


def units(store: Store, most: int = 1_000) -> int:
    """The units are done, one after the other; how many."""
    count = 0
    while count < most and (some := store.take_apart(NOW)):
        for unit in some:
            for job in run_jobs(unit):
                job.done(NOW)
            count += 1
    return count


def found(fs: FaultyFileSystem) -> list[dict[int, bytes]]:
    store, _ = opened(fs)
    return [read_all(store.partitions[name], memory=False) for name in sorted(store.partitions)]


def test_one_sync_decides_and_each_file_is_synced_once_later() -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    before = fs.calls["fdatasync"]
    decided(store, logs)
    assert fs.calls["fdatasync"] - before == 1
    assert all(log.high_watermark == 2 for log in logs), "it is there for readers"
    assert units(store) == LOGS and fs.calls["fdatasync"] - before == 1 + LOGS
    assert not store.take(NOW, apart=True) and not store.take_apart(NOW)


def test_few_files_are_synced_by_the_group_itself() -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    before = fs.calls["fdatasync"]
    decided(store, logs[:4])
    assert fs.calls["fdatasync"] - before == 1 + 4 and not store.take_apart(NOW)


@pytest.mark.parametrize("options", [ALWAYS, NEVER], ids=["always", "never"])
@pytest.mark.parametrize("done", [0, 1, 5, LOGS])
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_any_time_takes_nothing_of_it(seed: int, done: int, options: PartitionOptions) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs, options)
    decided(store, logs)
    units(store, done)
    fs.power_cut()
    assert all(b"part" in each.values() for each in found(fs))


@pytest.mark.parametrize("seed", range(8))
def test_a_later_message_is_behind_it_whatever_a_power_cut_takes(seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs)
    decided(store, logs)
    for log in logs:
        put(log, b"later")
    for job in store.take(NOW, apart=True):
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


def test_the_redo_log_does_not_grow_for_the_sake_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEFERRED_BYTES_MAX", 6_000)
    fs = FaultyFileSystem(Random(1))
    store, logs = begun(fs)
    sizes = []
    for number in range(20):
        decided(store, logs, b"%03d" % number)
        sizes.append(len(fs.nodes["/data/transactions"].cache))
    assert max(sizes) <= 6_000
    fs.power_cut()
    assert [len(each) for each in found(fs)] == [1 + 20] * LOGS


def test_a_later_sync_that_fails_costs_nothing() -> None:
    fs = FaultyFileSystem(Random(2))
    store, logs = begun(fs, tail_bytes_max=1)
    decided(store, logs)
    fs.fail("fdatasync", 1)
    units(store)
    (failed,) = [log for log in logs if log.failed is not None]
    store.tick(NOW + 3_000_000_000)
    while store.dirty:
        jobs = commit(store, NOW + 3_000_000_000)
        assert error_of(jobs) is None and not any(job.lost for job in jobs)
    assert failed.failed is None
    commit(store, NOW + 3_000_000_000)
    decided(store, logs[:3], b"next")
    fs.power_cut()
    assert all(b"part" in each.values() for each in found(fs))


def test_a_power_cut_after_such_a_failure_takes_nothing_either() -> None:
    fs = FaultyFileSystem(Random(3))
    store, logs = begun(fs)
    decided(store, logs)
    fs.fail("fdatasync", 1)
    units(store)
    decided(store, [log for log in logs if log.failed is None][:3], b"next")
    fs.power_cut()
    assert all(b"part" in each.values() for each in found(fs))


def test_a_clean_stop_leaves_nothing_to_be_made_up_for() -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    decided(store, logs)
    store.close()
    assert "/data/transactions" not in fs.nodes
    fs.power_cut()
    assert all(list(each.values()) == [b"first", b"part"] for each in found(fs))


def test_logs_that_owe_a_sync_stay_open_beside_the_others() -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs, open_logs_max=3)
    before = fs.calls["fdatasync"]
    decided(store, logs)
    assert fs.calls["fdatasync"] - before == 1, "none was closed, which would have been a sync"
    assert units(store) == LOGS
    jobs = run_jobs([SyncJob(log) for log in logs])
    assert error_of(jobs) is None and fs.calls["fdatasync"] - before == 1 + LOGS


def test_what_was_settled_before_its_log_was_synced_stays_settled() -> None:
    for seed in range(8):
        fs = FaultyFileSystem(Random(seed))
        store, logs = begun(fs)
        decided(store, logs)
        for log in logs:
            cursor = store.cursors.open("queue:q", log.name, 0)
            cursor.ack([0, 1])
        store.cursors.hurry()
        assert error_of([job for job in run_jobs(store.take(NOW, apart=True)) if job.done(NOW) is None]) is None
        fs.power_cut()
        store, _ = opened(fs)
        for log in logs:
            found_cursor = store.cursors.get("queue:q", log.name)
            assert found_cursor is not None and found_cursor.floor == 2


def test_a_log_that_owes_a_sync_and_is_to_begin_a_file_does_one_after_the_other() -> None:
    store, logs = begun(FaultyFileSystem())
    decided(store, logs)
    for log in logs:
        log.roll_wanted = True
        log.queue()
    for job in run_jobs(store.take(NOW, apart=True)):
        job.done(NOW)
    done: list[Any] = []
    out: list[list[Any]] = []
    while out := [*out, *store.take_apart(NOW)]:
        for job in run_jobs(out.pop(0)):
            job.done(NOW)
            done.append(type(job).__name__)
    assert done.count("SyncJob") == done.count("RollJob") == LOGS


@pytest.mark.parametrize("seed", range(12))
def test_what_follows_in_the_same_group_and_log_does_not_outlive_it(seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs)
    log = logs[0]
    put(log, b"part")
    store.together([log], [], [], lambda holds: None)
    put(log, *[b"later"] * limits.BATCH_RECORDS_MAX)
    jobs = store.take(NOW, apart=True)
    assert sum(isinstance(job, AppendJob) for job in jobs) == 2
    for job in jobs:
        job.write()
    fs.power_cut()  # the transaction was decided, nothing was synced by the group yet
    assert b"part" in found(fs)[0].values()


@pytest.mark.parametrize("seed", range(12))
def test_what_was_postponed_is_safe_before_more_is_written(seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, logs = begun(fs)
    log = logs[0]
    put(log, b"part")
    store.together([log], [], [], lambda holds: None)
    (jobs,) = [store.take(NOW, apart=True)]
    fs.fail("pwritev", 2, errno.ENOSPC)  # the first one decides
    for job in run_jobs(jobs):
        job.done(NOW)
    assert log.failed is not None and log.postponed
    store.tick(NOW + RETRY_EVERY_NS)
    for job in run_jobs(store.take(NOW + RETRY_EVERY_NS)):
        job.done(NOW)
    put(log, b"next")
    store.together([log], [], [], lambda holds: None)
    for job in store.take(NOW, apart=True):
        job.write()
    fs.power_cut()
    assert b"part" in found(fs)[0].values()
