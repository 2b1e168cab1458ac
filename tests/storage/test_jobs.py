"""Jobs pass between the threads, and an error stays with the one it belongs to."""

from __future__ import annotations

from radiator.storage.jobs import AppendJob, RemoveJob, RollJob, SyncJob
from radiator.storage.options import PartitionOptions, SyncPolicy
from tests.storage.driving import ALWAYS, NOW, commit, error_of, opened, put
from tests.storage.faults import FaultyFileSystem


def test_a_group_writes_everything_before_it_syncs_anything() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for name in "ab":
        put(store.partition(name, ALWAYS), b"x")
    directories, *jobs = store.take(NOW)
    directories.write()
    assert all(type(job) is AppendJob and job.needs_sync and not job.finished for job in jobs)
    for job in jobs:
        job.write()
    assert [job.partition.high_watermark for job in jobs] == [0, 0]
    for job in jobs:
        job.sync()
        job.done(NOW)
    assert [job.partition.high_watermark for job in jobs] == [1, 1]


def test_an_error_stays_with_its_partition() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for name in "ab":
        put(store.partition(name, ALWAYS), b"x")
    commit(store)
    for name in "ab":
        put(store.partitions[name], b"y")
    fs.fail("pwritev", 1)
    first, second = commit(store)
    assert first.error is not None and second.error is None
    assert store.partitions["a"].failed is not None and store.partitions["b"].failed is None


def test_a_failed_interval_sync_fails_the_partition_though_nobody_waits() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", PartitionOptions(sync=SyncPolicy(10)))
    put(partition, b"x", destination="q")
    commit(store)
    fs.fail("fdatasync")
    store.tick(NOW + 10)
    (job,) = commit(store, NOW + 10)
    assert type(job) is SyncJob and job.error is not None and partition.failed is not None
    assert partition.read(0) is not None, "what is in memory can still be read"


def test_a_failed_roll_fails_the_partition_and_a_failed_removal_does_not() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", PartitionOptions(segment_bytes=100, roll_at_seconds=0))
    for _ in range(3):
        put(partition, b"x", destination="q")
        commit(store)
    partition.set_options(PartitionOptions(segment_bytes=100, roll_at_seconds=0, retention_count=1))
    fs.fail("remove")
    (job,) = commit(store)
    assert type(job) is RemoveJob and job.error is not None and partition.failed is None
    fs.fail("fdatasync")
    store.tick(NOW + 86_400_000_000_000)
    (job,) = commit(store, NOW + 86_400_000_000_000)
    assert type(job) is RollJob and error_of([job]) is not None and partition.failed is not None
