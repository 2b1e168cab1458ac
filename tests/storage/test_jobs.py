"""Jobs pass between the threads, and an error stays with the one it belongs to."""

from __future__ import annotations

from radiator.config import Settings, SyncPolicy
from radiator.storage.file_partition import AppendJob, RemoveJob, RollJob, SyncJob
from radiator.storage.journal.group import GroupJob
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem


def test_the_journal_is_written_and_synced_before_any_segment_is_written() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for name in "ab":
        put(store.partition(name, ALWAYS), b"x")
    group, *jobs = store.take(both(NOW))
    assert type(group) is GroupJob and group.needs_sync
    assert all(type(job) is AppendJob and job.needs_sync and not job.finished for job in jobs)
    group.write()
    assert store.journal.syncs == 1 and all(job.decided for job in jobs)
    assert not [path for path in fs.nodes if path.startswith("/data/partitions/")]
    for job in jobs:
        job.write()
    assert [job.partition.high_watermark for job in jobs] == [0, 0]
    for job in (group, *jobs):
        job.sync()
        job.done(both(NOW))
    assert [job.partition.high_watermark for job in jobs] == [1, 1]
    assert store.journal.syncs == 1 and store.facts()["syncs"] == 1, "for all of them"


def test_an_error_stays_with_its_partition() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for name in "ab":
        put(store.partition(name, ALWAYS), b"x")
    commit(store)
    for name in "ab":
        put(store.partitions[name], b"y")
    fs.fail("pwritev", 1, under="/partitions/")
    first, second = [job for job in commit(store) if job.batch is not None]
    assert first.error is not None and second.error is None
    assert store.partitions["a"].failed is not None and store.partitions["b"].failed is None


def test_an_interval_sync_that_the_journal_fails_is_made_by_the_segment() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(sync=SyncPolicy(10)))
    put(partition, b"x", destination="q")
    commit(store)
    fs.fail("fdatasync", under="/journal/")
    store.tick(both(NOW + 10))
    jobs = commit(store, NOW + 10)
    assert [type(job) for job in jobs if job.needs_sync] == [SyncJob]
    assert error_of(jobs) is None and partition.failed is None and partition.synced_to == 1
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"x"}


def test_a_failed_interval_sync_fails_the_partition_also_without_receipts() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(sync=SyncPolicy(10)))
    put(partition, b"x", destination="q")
    commit(store)
    fs.fail("fdatasync", under="/journal/")
    fdatasync = fs.fdatasync

    def fails(fd: int) -> None:
        if "/partitions/" in fs.descriptors[fd][0]:
            fs.fail("fdatasync", under="/partitions/")
        fdatasync(fd)

    fs.fdatasync = fails  # type: ignore[method-assign]
    store.tick(both(NOW + 10))
    (job,) = [job for job in commit(store, NOW + 10) if job.needs_sync]
    assert type(job) is SyncJob and job.error is not None and partition.failed is not None
    assert partition.read(0) is not None, "what is in memory can still be read"


def test_a_failed_roll_fails_the_partition_and_a_failed_removal_does_not() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(segment_bytes=100, roll_at_seconds=0))
    for _ in range(3):
        put(partition, b"x", destination="q")
        commit(store)
    partition.configure(Settings(segment_bytes=100, roll_at_seconds=0, retention_count=1))
    fs.fail("remove")
    (job,) = commit(store)
    assert type(job) is RemoveJob and job.error is not None and partition.failed is None
    fs.fail("fdatasync")
    store.tick(both(NOW + 86_400_000_000_000))
    (job,) = commit(store, NOW + 86_400_000_000_000)
    assert type(job) is RollJob and error_of([job]) is not None and partition.failed is not None
