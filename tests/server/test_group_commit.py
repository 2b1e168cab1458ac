"""Where a group of disk jobs is done, and in which order it is told."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from radiator.clock import MonoNs
from radiator.config import Settings, SyncPolicy
from radiator.server import group_commit
from radiator.storage.jobs import Job
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import ALWAYS, NEVER, NOW, commit, opened, put
from tests.storage.faults import FaultyFileSystem


def jobs_of(store: Store, **bodies: list[bytes]) -> list[Any]:
    for name, messages in bodies.items():
        put(store.partitions[name], *messages, destination=name)
    return store.take(both(NOW))


@pytest.fixture
def store() -> Store:
    store, _ = opened(FaultyFileSystem())
    for name, options in [("a", ALWAYS), ("n", NEVER), ("i", Settings(sync=SyncPolicy(10**9)))]:
        put(store.partition(name, options), b"first", destination=name)
    commit(store)
    return store


def run(jobs: list[Any]) -> tuple[list[Any], list[Any]]:
    """What of a group is told before its sync, and what behind it; without those that have no partition."""
    early: list[Any] = []
    others = group_commit.run_group(jobs, early.extend)
    return [job for job in early if job.partition is not None], [job for job in others if job.partition is not None]


def test_jobs_without_a_sync_are_reported_before_the_sync_of_others(store: Store) -> None:
    syncs: list[int] = []
    fdatasync = store.fs.fdatasync
    store.fs.fdatasync = lambda fd: (syncs.append(len(told)), fdatasync(fd))  # type: ignore[method-assign]
    told: list[Any] = []
    jobs = jobs_of(store, a=[b"x"], n=[b"y"], i=[b"z"])
    others = group_commit.run_group(jobs, told.extend)
    assert [job.partition.name for job in told if job.batch is not None] == ["n", "i"]
    assert [job.partition.name for job in others if job.batch is not None] == ["a"]
    assert syncs == [len(told)], "one sync, when they had been told"


def test_a_group_that_syncs_nothing_or_everything_is_reported_as_one(store: Store) -> None:
    jobs = jobs_of(store, n=[b"y"], i=[b"z"])
    assert run(jobs) == ([], [job for job in jobs if job.partition is not None])
    for job in jobs:
        job.done(both(NOW))
    jobs = jobs_of(store, a=[b"x"])
    assert run(jobs) == ([], [job for job in jobs if job.partition is not None])


def test_jobs_of_one_partition_keep_their_order(store: Store) -> None:
    log = store.partitions["n"]
    put(log, b"one", destination="n")
    log.make_room(1, 1 << 30)  # the next goes into another batch
    put(log, b"two", destination="n")
    log.open_batch.sync_requested = True
    early, others = run(jobs_of(store, i=[b"z"]))
    assert [job.partition.name for job in early] == ["i"]
    assert [job.batch.bodies for job in others] == [[b"one"], [b"two"]]


def test_a_transaction_over_several_logs_is_not_split(store: Store) -> None:
    logs = [store.partitions["a"], store.partitions["n"]]
    for log in logs:
        log.make_room(1, 10)
        put(log, b"t", destination=log.name)
    outcomes: list[bool] = []
    store.together(logs, [], outcomes.append)
    jobs = jobs_of(store, i=[b"z"])
    assert not group_commit.InlineCommit().allows(jobs, 1)
    early, others = run(jobs)
    assert not early and [job.partition.name for job in others] == ["a", "n", "i"]
    for job in jobs:
        job.done(both(NOW))
    assert outcomes == [True]


def test_the_loop_does_a_group_itself_only_for_few_sessions_and_a_small_group(store: Store) -> None:
    inline = group_commit.InlineCommit()
    jobs = jobs_of(store, a=[b"x"])
    assert inline.allows(jobs, 1) and inline.allows(jobs, group_commit.SESSIONS_MAX)
    assert not inline.allows(jobs, group_commit.SESSIONS_MAX + 1) and not inline.allows(jobs, 0)
    assert not inline.allows(jobs * group_commit.JOBS_MAX, 1)
    assert not inline.allows(jobs_of(store, a=[b"x"] * 5), 1)
    assert not inline.allows(jobs_of(store, a=[b"x" * 40_000]), 1)


def test_a_group_that_begins_a_file_is_left_to_the_thread(store: Store) -> None:
    put(store.partition("new", ALWAYS), b"x", destination="new")
    assert not group_commit.InlineCommit().allows(store.take(both(NOW)), 1)
    store.partitions["a"].configure(Settings(segment_bytes=65_536))
    assert not group_commit.InlineCommit().allows(jobs_of(store, a=[b"x"]), 1), "it may roll"


@pytest.mark.parametrize(
    ("slow_ns", "alone", "beside"),
    [
        (group_commit.SLOW_SHARED_NS, True, True),
        (group_commit.SLOW_SHARED_NS + 1, True, False),
        (group_commit.SLOW_NS + 1, False, False),
    ],
)
def test_after_a_slow_sync_the_thread_has_the_disk_for_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch, slow_ns: int, alone: bool, beside: bool
) -> None:
    now = [0]
    monkeypatch.setattr(group_commit.clock, "monotonic_ns", lambda: now[0])
    inline, jobs = group_commit.InlineCommit(), jobs_of(store, a=[b"x"])
    fdatasync = store.fs.fdatasync

    def slow(fd: int) -> None:
        now[0] += slow_ns
        fdatasync(fd)

    monkeypatch.setattr(store.fs, "fdatasync", slow)
    assert inline.allows(jobs, 1)
    for job in inline.run(jobs):
        assert job.error is None
        job.done(both(NOW))
    assert store.partitions["a"].high_watermark == 2
    jobs = jobs_of(store, a=[b"x"])
    assert (inline.allows(jobs, 1), inline.allows(jobs, 2)) == (alone, beside)
    now[0] += group_commit.SLOW_FOR * slow_ns
    assert inline.allows(jobs, 1) and inline.allows(jobs, 2)


def group_of(messages: int) -> list[Any]:
    """A job without messages, and one with so many."""
    append = Job()
    append.batch = [b""] * messages  # type: ignore[assignment]
    return [Job(), append]


def test_a_group_of_many_messages_is_followed_by_one_as_large() -> None:
    delay, jobs = group_commit.CommitDelay(), group_of(group_commit.DELAY_MESSAGES_MIN)
    assert not delay.wanted(100, MonoNs(0)), "nothing was ever done"
    end, took = 10 * group_commit.DELAY_NS_MAX, 2 * group_commit.DELAY_NS_MIN
    delay.started(jobs, MonoNs(end - took))
    delay.finished(700, MonoNs(end))
    assert delay.wanted(100, MonoNs(end)) and delay.wanted(699, MonoNs(end + took - 1))
    assert not delay.wanted(700, MonoNs(end)), "as much as before is there"
    assert not delay.wanted(0, MonoNs(end)), "what is to be done is about no message"
    assert not delay.wanted(100, MonoNs(end + took)), "it waits no longer than the last group took"


@pytest.mark.parametrize(
    ("took_ns", "waits_ns"),
    [(1, group_commit.DELAY_NS_MIN), (10 * group_commit.DELAY_NS_MAX, group_commit.DELAY_NS_MAX)],
)
def test_the_wait_for_more_messages_has_bounds(took_ns: int, waits_ns: int) -> None:
    delay, end = group_commit.CommitDelay(), 100 * group_commit.DELAY_NS_MAX
    delay.started(group_of(group_commit.DELAY_MESSAGES_MIN), MonoNs(end - took_ns))
    delay.finished(700, MonoNs(end))
    assert delay.wanted(100, MonoNs(end + waits_ns - 1))
    assert not delay.wanted(100, MonoNs(end + waits_ns))


def test_a_group_of_few_messages_is_followed_at_once() -> None:
    delay = group_commit.CommitDelay()
    delay.started(group_of(group_commit.DELAY_MESSAGES_MIN - 1), MonoNs(1_000))
    delay.finished(700, MonoNs(3_000))
    assert not delay.wanted(100, MonoNs(3_000))


def test_after_a_wait_in_vain_groups_are_followed_at_once_for_a_while() -> None:
    delay, jobs = group_commit.CommitDelay(), group_of(group_commit.DELAY_MESSAGES_MIN)
    begun = itertools.count(0, 10 * group_commit.DELAY_NS_MAX)

    def waits(then_bytes: int = 0) -> bool:
        begun_ns = next(begun)
        delay.started(jobs, MonoNs(begun_ns))
        delay.finished(700, MonoNs(begun_ns + 2_000))
        waited = delay.wanted(100, MonoNs(begun_ns + 2_000))
        assert not delay.wanted(then_bytes, MonoNs(begun_ns + 2 * group_commit.DELAY_NS_MAX))
        return waited

    assert waits(700), "as much as before has come"
    assert waits(0), "what came needed no group in the end"
    assert waits(300)
    assert [waits() for _ in range(group_commit.DELAY_PAUSE + 1)] == [False] * group_commit.DELAY_PAUSE + [True]
    jobs = [Job()] * group_commit.DELAY_JOBS_MIN
    assert waits(300) and waits(300), "with many logs another half costs more than a wait"
