"""A log in memory."""

from __future__ import annotations

import pytest

from radiator.config import Settings
from radiator.errors import StorageError
from radiator.memory import MemoryAccount
from radiator.storage.memory import MemoryPartition
from radiator.storage.partition import Partition
from radiator.storage.store import Store
from tests.clocks import both, deadline
from tests.storage.driving import NOW, LastOf, answer, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

MEMORY = Settings(store="memory")


def partition_with(**options: object) -> tuple[FaultyFileSystem, object, MemoryPartition]:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("m", Settings(store="memory", **options))  # type: ignore[arg-type]
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
    (job,) = store.take(both(NOW))
    assert job.finished and not job.needs_sync and job.waiters == ["receipt"] and job.batch is not None
    assert partition.high_watermark == 2
    job.done(both(NOW))
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
        assert partition.size_bytes <= 50_000
    assert 0 < partition.log_start_offset < 99
    assert partition.read(99) is not None and partition.read(0) is None


def test_age_drops_what_is_old_when_time_passes() -> None:
    _, store, partition = partition_with(retention_age_ns=1_000)
    put(partition, b"old", at=NOW)
    commit(store)  # type: ignore[arg-type]
    put(partition, b"new", at=NOW + 600)
    commit(store, NOW + 600)  # type: ignore[arg-type]
    store.tick(both(NOW + 1_000))  # type: ignore[attr-defined]
    assert partition.log_start_offset == 0
    assert deadline(store, NOW) == NOW + 1_001  # type: ignore[attr-defined]
    store.tick(both(NOW + 1_001))  # type: ignore[attr-defined]
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
    job = LastOf(partition, 2, lambda name: name != "/t/1")
    assert (answer(job), job.starts) == (14, {"/t/0": 15, "/t/2": 14})


def test_a_temporary_one_can_be_forgotten() -> None:
    _, store, partition = partition_with()
    store.forget(partition)  # type: ignore[attr-defined]
    assert "m" not in store.partitions  # type: ignore[attr-defined]


# --- consumed messages ------------------------------------------------------------------------------------------------


def test_what_a_queue_has_settled_frees_its_memory_at_once() -> None:
    _, store, partition = partition_with()
    partition.retain_from = 0
    for number in range(10):
        put(partition, b"x" * 10_000)
        commit(store)  # type: ignore[arg-type]
        partition.retain_from = number + 1
        assert partition.size_bytes == 0 and partition.log_start_offset == number + 1
    assert partition.fetch(3).skip_to == 10


def test_what_is_partly_settled_stays_in_memory_but_is_not_read_again() -> None:
    _, store, partition = partition_with()
    partition.retain_from = 0
    put(partition, b"settled", b"not yet")
    commit(store)  # type: ignore[arg-type]
    partition.retain_from = 1
    assert partition.size_bytes > 0 and partition.log_start_offset == 1
    assert read_all(partition) == {1: b"not yet"}


def test_a_log_with_history_keeps_what_its_queues_have_settled() -> None:
    """A topic stands in it as well: retention decides, and nobody else."""
    _, store, partition = partition_with(retention_count=5)
    partition.history = True
    partition.retain_from = 0
    for number in range(10):
        put(partition, b"%d" % number)
    commit(store)  # type: ignore[arg-type]
    assert partition.log_start_offset == 0
    partition.retain_from = 10
    assert partition.log_start_offset == 0
    commit(store)  # type: ignore[arg-type]
    assert list(read_all(partition)) == [5, 6, 7, 8, 9]


# --- one budget -------------------------------------------------------------------------------------------------------


def several(count: int, memory_bytes_max: int) -> tuple[Store, list[Partition]]:
    account = MemoryAccount(memory_bytes_max * 4 // 3 + 1)  # of which messages may use three quarters
    store, _ = opened(FaultyFileSystem(), memory=account)
    return store, [store.partition(f"m{number}", MEMORY) for number in range(count)]


def test_all_memory_partitions_share_one_budget_and_what_is_oldest_goes_first() -> None:
    store, partitions = several(5, 200_000)
    for number in range(300):
        put(partitions[number % 4], b"x" * 1_000, at=NOW + number)
        commit(store, NOW + number)
        assert sum(each.size_bytes for each in partitions) == store.facts()["memory_bytes"] <= 200_000
    starts = [each.log_start_offset for each in partitions[:4]]
    assert min(starts) > 0 and max(starts) - min(starts) <= 1
    put(partitions[4], b"x" * 30_000, at=NOW + 300)
    commit(store, NOW + 300)
    assert partitions[4].read(0) is not None and store.facts()["memory_bytes"] <= 200_000


def test_what_is_still_needed_outlasts_what_is_not_and_then_more_is_refused() -> None:
    store, (pinned, free) = several(2, 100_000)
    pinned.retain_from = 0
    for number in range(30):
        put(free, b"x" * 1_000, at=NOW + number)
        commit(store, NOW + number)
    for number in range(20):
        put(pinned, b"x" * 1_000, at=NOW + 100 + number)
        commit(store, NOW + 100 + number)
    assert pinned.log_start_offset == 0 and free.log_start_offset > 0
    with pytest.raises(StorageError, match="memory partitions .*full.* not settled.*consume"):
        for number in range(30):
            put(pinned, b"x" * 1_000, at=NOW + 200 + number)
            commit(store, NOW + 200 + number)
    assert free.size_bytes == 0
    with pytest.raises(StorageError):
        put(free, b"there is no room for this one either")
    pinned.retain_from = pinned.high_watermark
    put(free, b"goes on", at=NOW + 300)
    put(pinned, b"goes on", at=NOW + 300)
    commit(store, NOW + 300)
    assert free.read(free.high_watermark - 1) is not None


def test_history_that_a_queue_no_longer_needs_makes_room_for_others() -> None:
    store, (mixed, other) = several(2, 100_000)
    mixed.history = True
    mixed.retain_from = 0
    while store.facts()["memory_bytes"] < 95_000:
        put(mixed, b"x" * 1_000)
        commit(store)
    mixed.retain_from = mixed.high_watermark
    put(other, b"x" * 30_000, at=NOW + 1)
    commit(store, NOW + 1)
    put(other, b"x" * 10_000, at=NOW + 2)
    assert other.log_start_offset == 0 and store.facts()["memory_bytes"] <= 100_000


def test_one_that_is_forgotten_gives_its_memory_back_and_what_was_open_is_still_answered() -> None:
    store, (gone, stays) = several(2, 100_000)
    gone.retain_from = 0
    put(gone, b"x" * 10_000)
    commit(store)
    put(gone, b"x" * 10_000)
    gone.open_batch.waiters.append("receipt")
    store.forget(gone)
    (job,) = store.take(both(NOW))
    assert job.waiters == ["receipt"] and job.error is None
    assert store.facts()["memory_bytes"] == 0 == gone.size_bytes
    put(stays, b"x")
    commit(store)
    assert stays.size_bytes == store.facts()["memory_bytes"]


def test_one_that_is_forgotten_has_no_deadline() -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("m", Settings(store="memory", retention_age_ns=1_000))
    put(partition, b"x")
    commit(store)
    store.forget(partition)
    assert deadline(store, NOW) is None
