"""Where a group of disk jobs is done, and in which order it is told."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.clock import MonoNs
from radiator.server import group
from radiator.storage.jobs import Job
from radiator.storage.options import PartitionOptions, SyncPolicy
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
    for name, options in [("a", ALWAYS), ("n", NEVER), ("i", PartitionOptions(sync=SyncPolicy(10**9)))]:
        put(store.partition(name, options), b"first", destination=name)
    commit(store)
    return store


def run(jobs: list[Any]) -> tuple[list[Any], list[Any]]:
    """What of a group is told before its sync, and what behind it; without those that have no partition."""
    early: list[Any] = []
    others = group.run_group(jobs, early.extend)
    return [job for job in early if job.partition is not None], [job for job in others if job.partition is not None]


def test_what_needs_no_sync_is_told_before_the_sync_of_others(store: Store) -> None:
    syncs: list[int] = []
    fdatasync = store.fs.fdatasync
    store.fs.fdatasync = lambda fd: (syncs.append(len(told)), fdatasync(fd))  # type: ignore[method-assign]
    told: list[Any] = []
    jobs = jobs_of(store, a=[b"x"], n=[b"y"], i=[b"z"])
    others = group.run_group(jobs, told.extend)
    assert [job.partition.name for job in told if job.batch is not None] == ["n", "i"]
    assert [job.partition.name for job in others if job.batch is not None] == ["a"]
    assert syncs == [len(told)], "one sync, when they had been told"


def test_a_group_that_syncs_nothing_or_everything_is_told_as_one(store: Store) -> None:
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
    assert not group.Shortcut().allows(jobs, 1)
    early, others = run(jobs)
    assert not early and [job.partition.name for job in others] == ["a", "n", "i"]
    for job in jobs:
        job.done(both(NOW))
    assert outcomes == [True]


def test_the_loop_does_a_group_itself_only_for_one_session_and_a_small_group(store: Store) -> None:
    shortcut = group.Shortcut()
    jobs = jobs_of(store, a=[b"x"])
    assert shortcut.allows(jobs, 1)
    assert not shortcut.allows(jobs, 2) and not shortcut.allows(jobs, 0)
    assert not shortcut.allows(jobs_of(store, a=[b"x"] * 5), 1)
    assert not shortcut.allows(jobs_of(store, a=[b"x" * 40_000]), 1)


def test_a_group_that_begins_a_file_is_left_to_the_thread(store: Store) -> None:
    put(store.partition("new", ALWAYS), b"x", destination="new")
    assert not group.Shortcut().allows(store.take(both(NOW)), 1)
    store.partitions["a"].set_options(PartitionOptions(segment_bytes=65_536))
    assert not group.Shortcut().allows(jobs_of(store, a=[b"x"]), 1), "it may roll"


def test_after_a_slow_sync_the_thread_has_the_disk_for_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(group.clock, "monotonic_ns", lambda: now[0])
    shortcut, jobs = group.Shortcut(), jobs_of(store, a=[b"x"])
    fdatasync = store.fs.fdatasync

    def slow(fd: int) -> None:
        now[0] += group.SLOW_NS + 1
        fdatasync(fd)

    monkeypatch.setattr(store.fs, "fdatasync", slow)
    assert shortcut.allows(jobs, 1)
    for job in shortcut.run(jobs):
        assert job.error is None
        job.done(both(NOW))
    assert store.partitions["a"].high_watermark == 2
    jobs = jobs_of(store, a=[b"x"])
    assert not shortcut.allows(jobs, 1)
    now[0] += group.SLOW_FOR * (group.SLOW_NS + 1)
    assert shortcut.allows(jobs, 1)


def test_a_group_of_many_logs_is_followed_by_one_as_large() -> None:
    gathering, jobs = group.Gathering(), [Job()] * group.GATHER_JOBS_MIN
    assert not gathering.waits(100, MonoNs(0)), "nothing was ever done"
    gathering.begins(jobs, MonoNs(1_000))
    gathering.ended(700, MonoNs(3_000))
    assert gathering.waits(100, MonoNs(3_000)) and gathering.waits(699, MonoNs(4_999))
    assert not gathering.waits(700, MonoNs(3_000)), "as much as before is there"
    assert not gathering.waits(0, MonoNs(3_000)), "what is to be done is about no message"
    assert not gathering.waits(100, MonoNs(5_000)), "it waits no longer than the last group took"
    gathering.begins(jobs, MonoNs(10_000))
    gathering.ended(700, MonoNs(10_000 + 10 * group.GATHER_NS_MAX))
    assert not gathering.waits(100, MonoNs(10_000 + 11 * group.GATHER_NS_MAX))


def test_a_group_of_few_logs_is_followed_at_once() -> None:
    gathering = group.Gathering()
    gathering.begins([Job()] * (group.GATHER_JOBS_MIN - 1), MonoNs(1_000))
    gathering.ended(700, MonoNs(3_000))
    assert not gathering.waits(100, MonoNs(3_000))
