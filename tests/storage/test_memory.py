"""A log in memory."""

from __future__ import annotations

import pytest

from radiator.errors import StorageError
from radiator.storage.memory import MemoryPartition
from radiator.storage.options import PartitionOptions
from tests.storage.driving import NOW, answer, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

MEMORY = PartitionOptions(store="memory")


def partition_with(**options: object) -> tuple[FaultyFileSystem, object, MemoryPartition]:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("m", PartitionOptions(store="memory", **options))  # type: ignore[arg-type]
    assert isinstance(partition, MemoryPartition)
    return fs, store, partition


def test_it_commits_at_once_and_touches_no_disk() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("m", MEMORY)
    before = fs.calls.copy()
    put(partition, b"one", b"two")
    partition.open_batch.waiters.append("receipt")
    assert partition.high_watermark == 0
    (job,) = store.take(NOW)
    assert job.finished and not job.needs_sync and job.waiters == ["receipt"] and job.batch is not None
    assert partition.high_watermark == 2
    job.done(NOW)
    assert read_all(partition) == {0: b"one", 1: b"two"}
    assert fs.calls == before


def test_count_is_kept_to_the_record() -> None:
    _, store, partition = partition_with(retention_count=3)
    for number in range(10):
        put(partition, b"%d" % number, b"x")
        commit(store)  # type: ignore[arg-type]
    assert partition.log_start_offset == 17
    assert read_all(partition) == {17: b"x", 18: b"9", 19: b"x"}
    job = partition.fetch(3)
    assert job.finished and job.skip_to == 17


def test_bytes_are_bounded_and_the_oldest_goes_first() -> None:
    _, store, partition = partition_with(retention_bytes=50_000)
    for number in range(100):
        put(partition, b"%d" % number * 1_000)
        commit(store)  # type: ignore[arg-type]
        assert partition.tail.budget.bytes <= 50_000
    assert 0 < partition.log_start_offset < 99
    assert partition.read(99) is not None and partition.read(0) is None


def test_age_drops_what_is_old_when_time_passes() -> None:
    _, store, partition = partition_with(retention_age_ns=1_000)
    put(partition, b"old", at=NOW)
    commit(store)  # type: ignore[arg-type]
    put(partition, b"new", at=NOW + 600)
    commit(store, NOW + 600)  # type: ignore[arg-type]
    store.tick(NOW + 1_000)  # type: ignore[attr-defined]
    assert partition.log_start_offset == 0
    assert store.next_deadline_ns(NOW) == NOW + 1_001  # type: ignore[attr-defined]
    store.tick(NOW + 1_001)  # type: ignore[attr-defined]
    assert partition.log_start_offset == 1


def test_what_is_still_needed_is_not_dropped_but_refuses_more() -> None:
    _, store, partition = partition_with(retention_bytes=20_000)
    partition.retain_from = 0
    with pytest.raises(StorageError, match="full.*consume"):
        for _ in range(100):
            put(partition, b"x" * 1_000)
            commit(store)  # type: ignore[arg-type]
    assert partition.log_start_offset == 0
    partition.retain_from = partition.high_watermark
    put(partition, b"goes on")
    commit(store)  # type: ignore[arg-type]
    assert partition.log_start_offset > 0


def test_positions_are_found() -> None:
    _, store, partition = partition_with()
    for number in range(20):
        put(partition, b"", at=NOW + number // 2, destination=f"/t/{number % 3}")
        commit(store)  # type: ignore[arg-type]
    assert answer(partition.offset_for_time(NOW + 3)) == 6
    assert answer(partition.offset_for_time(0)) == 0
    assert answer(partition.offset_for_time(NOW + 100)) == 20
    job = partition.offset_for_last(2, lambda name: name != "/t/1")
    assert (answer(job), job.starts) == (14, {"/t/0": 15, "/t/2": 14})


def test_a_temporary_one_can_be_forgotten() -> None:
    _, store, partition = partition_with()
    store.forget(partition)  # type: ignore[attr-defined]
    assert "m" not in store.partitions  # type: ignore[attr-defined]
