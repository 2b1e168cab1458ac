"""What time brings: one deadline per partition at most, none that has passed, and clocks that step back."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator.config import Settings, SyncPolicy
from radiator.storage.cursor_store import SYNC_WITHIN_NS
from radiator.storage.file_partition import FilePartition
from radiator.storage.store import Store
from tests.clocks import both, deadline, stepped
from tests.storage.driving import NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
MEMORY_SECOND = Settings(store="memory", retention_age_ns=SECOND)


def deadlines(store: Store) -> list[Any]:
    agenda = store._agenda
    return [*agenda._mono._heap, *agenda._wall._heap]


def test_what_is_old_but_still_needed_does_not_keep_the_clock_busy() -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("m", MEMORY_SECOND)
    partition.retain_from = 0
    put(partition, b"unsettled")
    commit(store)
    store.tick(both(NOW + 2 * SECOND))
    assert partition.log_start_offset == 0
    assert deadline(store, NOW + 2 * SECOND) is None, "nothing to wait for until the pin moves"
    put(partition, b"new", at=NOW + 2 * SECOND)
    commit(store, NOW + 2 * SECOND)
    store.tick(both(NOW + 9 * SECOND))
    assert deadline(store, NOW + 9 * SECOND) is None
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
    store.tick(both(NOW + SECOND + 1))
    partition.retain_from = 2
    store.take(both(NOW + SECOND + 1))
    assert partition.log_start_offset == 1
    due = deadline(store, NOW + SECOND + 1)
    assert due == NOW + 2 * SECOND + 1
    store.tick(both(due))
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
        store.tick(both(now))
    assert len(deadlines(store)) <= 2


@pytest.mark.parametrize("retain_from", [None, 0])
def test_a_log_with_files_has_few_deadlines_too_and_comes_to_rest(retain_from: int | None) -> None:
    store, _ = opened(FaultyFileSystem())
    options = Settings(sync=SyncPolicy(SECOND), segment_bytes=400, roll_at_seconds=0, retention_age_ns=5 * SECOND)
    partition = store.partition("q", options)
    partition.retain_from = retain_from
    for number in range(600):
        put(partition, b"x" * 90, at=NOW + number * SECOND)
        commit(store, NOW + number * SECOND)
        store.tick(both(NOW + number * SECOND))
        assert len(deadlines(store)) <= 70
    now = NOW + 600 * SECOND
    for _ in range(10):
        store.tick(both(now))
        commit(store, now)
        now += 10 * SECOND
    due = deadline(store, now)
    assert due is not None and due > now + SECOND, "only the end of the day is left"
    assert (len(partition.segments) > 100) is (retain_from == 0)


STEPS = pytest.mark.parametrize("step_ns", [-HOUR, 0, 120 * SECOND, 365 * 24 * HOUR])


@STEPS
def test_an_interval_is_neither_longer_nor_shorter_when_the_clock_steps(step_ns: int) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(sync=SyncPolicy(SECOND)))
    put(partition, b"one")
    commit(store)
    store.tick(stepped(NOW + SECOND - 1, step_ns))
    assert store.take(stepped(NOW + SECOND - 1, step_ns)) == []
    store.tick(stepped(NOW + SECOND, step_ns))
    assert [job.needs_sync for job in store.take(stepped(NOW + SECOND, step_ns))] == [True]


@STEPS
def test_a_full_disk_is_asked_again_in_time_when_the_clock_steps(step_ns: int) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings())
    put(partition, b"one")
    fs.fail("pwritev", 1, errno.ENOSPC, under="/partitions/")
    commit(store)
    store.tick(stepped(NOW + SECOND, step_ns))
    assert store.take(stepped(NOW + SECOND, step_ns)) == []
    store.tick(stepped(NOW + 3 * SECOND, step_ns))
    commit(store, NOW + 3 * SECOND)
    assert partition.failed is None


@STEPS
def test_acks_are_synced_in_time_when_the_clock_steps(step_ns: int) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    store.cursors.open("a", "q", 0)
    commit(store)
    assert store.take(stepped(NOW + SYNC_WITHIN_NS - 1, step_ns)) == []
    assert [job.needs_sync for job in store.take(stepped(NOW + SYNC_WITHIN_NS, step_ns))] == [True, True]


def test_an_interval_is_kept_after_a_full_disk() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(sync=SyncPolicy(SECOND)))
    assert isinstance(partition, FilePartition)
    put(partition, b"one")
    commit(store)
    fs.fail("pwritev", 1, errno.ENOSPC, under="/partitions/")
    put(partition, b"two")
    commit(store, NOW + 1)
    for step in range(1, 6):
        store.tick(both(NOW + step * SECOND))
        commit(store, NOW + step * SECOND)
    assert partition.failed is None
    assert partition.synced_to == partition.high_watermark == 2
    put(partition, b"three")
    commit(store, NOW + 6 * SECOND)
    store.tick(both(NOW + 7 * SECOND))
    commit(store, NOW + 7 * SECOND)
    assert partition.synced_to == 3
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"one", 1: b"two", 2: b"three"}


def test_memory_of_one_age_is_given_up_in_the_order_in_which_it_was_offered() -> None:
    store, _ = opened(FaultyFileSystem())
    partitions = [store.partition(f"p{number}", Settings(store="memory")) for number in range(50)]
    Random(3).shuffle(partitions)
    for partition in partitions:
        put(partition, b"x" * 1_000)
        commit(store)
    given = [partitions[0]]
    budget = store._memory
    while len(given) < len(partitions):
        budget.share.together_bytes_max = budget.bytes - 1
        budget.evict()
        given += [each for each in partitions if not each.tail.bytes and each not in given]
    assert given == partitions
