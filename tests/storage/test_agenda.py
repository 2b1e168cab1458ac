"""What time brings: one deadline per partition at most, none that has passed, and clocks that step back."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator.storage.file_partition import FilePartition
from radiator.storage.options import PartitionOptions, SyncPolicy
from radiator.storage.partition import Agenda
from radiator.storage.store import Store
from tests.storage.driving import NOW, commit, opened, put
from tests.storage.faults import FaultyFileSystem

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
MEMORY_SECOND = PartitionOptions(store="memory", retention_age_ns=SECOND)


def deadlines(store: Store) -> list[Any]:
    return store._agenda.timers


def test_what_is_old_but_still_needed_does_not_keep_the_clock_busy() -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("m", MEMORY_SECOND)
    partition.retain_from = 0
    put(partition, b"unsettled")
    commit(store)
    store.tick(NOW + 2 * SECOND)
    assert partition.log_start_offset == 0
    assert store.next_deadline_ns(NOW + 2 * SECOND) is None, "nothing to wait for until the pin moves"
    put(partition, b"new", at=NOW + 2 * SECOND)
    commit(store, NOW + 2 * SECOND)
    store.tick(NOW + 9 * SECOND)
    assert store.next_deadline_ns(NOW + 9 * SECOND) is None
    partition.retain_from = None
    commit(store, NOW + 9 * SECOND)
    assert partition.log_start_offset == 2


def test_age_goes_on_by_itself_when_the_pin_has_moved() -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("m", MEMORY_SECOND)
    partition.history = True
    partition.retain_from = 0
    put(partition, b"one")
    commit(store)
    put(partition, b"two", at=NOW + SECOND)
    commit(store, NOW + SECOND)
    store.tick(NOW + SECOND + 1)
    partition.retain_from = 2
    store.take(NOW + SECOND + 1)
    assert partition.log_start_offset == 1
    deadline = store.next_deadline_ns(NOW + SECOND + 1)
    assert deadline == NOW + 2 * SECOND + 1
    store.tick(deadline)
    assert partition.log_start_offset == 2


def test_a_partition_has_one_deadline_however_often_it_commits() -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("m", MEMORY_SECOND)
    for number in range(500):
        put(partition, b"x", at=NOW + number)
        commit(store, NOW + number)
    assert len(deadlines(store)) == 1
    for number in range(2_000):
        now = NOW + number * 10_000_000
        put(partition, b"x", at=now)
        commit(store, now)
        store.tick(now)
    assert len(deadlines(store)) <= 2


@pytest.mark.parametrize("retain_from", [None, 0])
def test_a_log_with_files_has_few_deadlines_too_and_comes_to_rest(retain_from: int | None) -> None:
    store, _ = opened(FaultyFileSystem())
    options = PartitionOptions(
        sync=SyncPolicy(SECOND), segment_bytes=400, roll_at_seconds=0, retention_age_ns=5 * SECOND
    )
    partition = store.partition("q", options)
    partition.retain_from = retain_from
    for number in range(600):
        put(partition, b"x" * 90, at=NOW + number * SECOND)
        commit(store, NOW + number * SECOND)
        store.tick(NOW + number * SECOND)
        assert len(deadlines(store)) <= 70
    now = NOW + 600 * SECOND
    for _ in range(10):
        store.tick(now)
        commit(store, now)
        now += 10 * SECOND
    deadline = store.next_deadline_ns(now)
    assert deadline is not None and deadline > now + SECOND, "only the end of the day is left"
    assert (len(partition.segments) > 100) is (retain_from == 0)


def test_of_several_deadlines_the_earliest_counts_and_each_partition_is_met_once() -> None:
    agenda = Agenda()
    first, second = object(), object()
    for deadline in (50, 30, 70, 30, 60):
        agenda.wake(first, deadline)  # type: ignore[arg-type]
    agenda.wake(second, 40)  # type: ignore[arg-type]
    assert agenda.next_ns() == 30
    assert agenda.due(29) == []
    assert agenda.due(45) == [first, second]
    assert agenda.next_ns() is None and agenda.due(100) == []
    for deadline in range(10_000, 0, -1):
        agenda.wake(first, deadline)  # type: ignore[arg-type]
    assert len(agenda.timers) < 100


def test_an_interval_is_kept_when_the_clock_steps_back() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", PartitionOptions(sync=SyncPolicy(SECOND)))
    put(partition, b"one")
    commit(store)
    synced = fs.calls["fdatasync"]
    now = NOW - HOUR
    commit(store, now)
    assert store.next_deadline_ns(now) == now + SECOND
    store.tick(now + SECOND)
    commit(store, now + SECOND)
    assert fs.calls["fdatasync"] == synced + 1


def test_a_clock_that_steps_back_while_nobody_writes_is_noticed_by_the_next_tick() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", PartitionOptions(sync=SyncPolicy(SECOND)))
    put(partition, b"one")
    commit(store)
    store.tick(NOW - HOUR)
    store.tick(NOW - HOUR + SECOND)
    assert [job.needs_sync for job in store.take(NOW - HOUR + SECOND)] == [True]


def test_a_full_disk_is_asked_again_when_the_clock_steps_back() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", PartitionOptions())
    put(partition, b"one")
    fs.fail("pwritev", 1, errno.ENOSPC)
    commit(store)
    store.tick(NOW - HOUR)
    store.tick(NOW - HOUR + 3 * SECOND)
    commit(store, NOW - HOUR + 3 * SECOND)
    assert partition.failed is None


def test_acks_are_synced_when_the_clock_steps_back() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    store.cursors.open("a", "q", 0)
    commit(store)
    synced = fs.calls["fdatasync"]
    store.tick(NOW - HOUR)
    assert (store.next_deadline_ns(NOW - HOUR) or 0) <= NOW - HOUR + SECOND
    commit(store, NOW - HOUR + SECOND)
    assert fs.calls["fdatasync"] == synced + 1


def test_an_interval_is_kept_after_a_full_disk() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", PartitionOptions(sync=SyncPolicy(SECOND)))
    assert isinstance(partition, FilePartition)
    put(partition, b"one")
    commit(store)
    fs.fail("pwritev", 1, errno.ENOSPC)
    put(partition, b"two")
    commit(store, NOW + 1)
    for step in range(1, 6):
        store.tick(NOW + step * SECOND)
        commit(store, NOW + step * SECOND)
    assert partition.failed is None
    assert partition.log.synced == partition.log.position > 0
    put(partition, b"three")
    commit(store, NOW + 6 * SECOND)
    store.tick(NOW + 7 * SECOND)
    commit(store, NOW + 7 * SECOND)
    assert partition.log.synced == partition.log.position


def test_what_is_due_at_one_time_comes_in_the_order_in_which_it_was_asked_for() -> None:
    """Not in an order that another run of the same seed would not repeat."""
    store, _ = opened(FaultyFileSystem())
    partitions = [store.partition(f"p{number}", MEMORY_SECOND) for number in range(50)]
    Random(3).shuffle(partitions)
    agenda = Agenda()
    for partition in partitions:
        agenda.wake(partition, NOW)
    assert agenda.due(NOW) == partitions
    for _ in range(10):  # stale ones are cleaned up in between
        for number, partition in enumerate(partitions):
            agenda.wake(partition, NOW - number // 10)
    armed = [each for number in (4, 3, 2, 1, 0) for each in partitions[10 * number : 10 * number + 10]]
    assert agenda.due(NOW) == armed


def test_memory_of_one_age_is_given_up_in_the_order_in_which_it_was_offered() -> None:
    store, _ = opened(FaultyFileSystem())
    partitions = [store.partition(f"p{number}", PartitionOptions(store="memory")) for number in range(50)]
    Random(3).shuffle(partitions)
    for partition in partitions:
        put(partition, b"x" * 1_000)
        commit(store)
    given = [partitions[0]]
    budget = store._memory
    while len(given) < len(partitions):
        budget.bytes_max = budget.bytes - 1
        budget.evict()
        given += [each for each in partitions if not each.tail.bytes and each not in given]
    assert given == partitions
