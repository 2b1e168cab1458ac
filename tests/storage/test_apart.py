"""What is done apart from the group commits: one log at a time, each in its order, and no transaction in part."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.server.group import run_jobs
from radiator.storage import apart
from radiator.storage.jobs import AppendJob, DirectoriesJob
from radiator.storage.store import Store
from tests.storage.driving import ALWAYS, NOW, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def store(fs: FaultyFileSystem) -> Store:
    return opened(fs)[0]


def done(jobs: list[Any]) -> list[Any]:
    for job in run_jobs(jobs):
        job.done(NOW)
    return jobs


def bodies(jobs: list[Any]) -> list[bytes]:
    return [body for job in jobs if isinstance(job, AppendJob) for body in job.batch.bodies]


def test_a_message_to_a_log_that_is_there_does_not_wait_for_new_ones(store: Store) -> None:
    old = store.partition("old", ALWAYS)
    put(old, b"first")
    commit(store)
    for number in range(100):
        put(store.partition(f"n{number}", ALWAYS), b"x")
    put(old, b"second")
    assert bodies(store.take(NOW, apart=True)) == [b"second"]


def test_few_are_under_way_at_a_time_and_all_have_their_turn_in_their_order(store: Store) -> None:
    logs = [store.partition(f"n{number}", ALWAYS) for number in range(7)]
    for number, log in enumerate(logs):
        put(log, b"%d" % number)
    assert store.take(NOW, apart=True) == []
    found = []
    while units := store.take_apart(NOW):
        assert len(units) <= apart.AT_ONCE_MAX and store.take_apart(NOW) == [] and store.dirty
        found += [body for unit in units for body in bodies(done(unit))]
    assert found == [b"%d" % number for number in range(7)]
    assert not store.dirty and [log.high_watermark for log in logs] == [1] * 7


def test_what_is_sent_while_a_unit_is_under_way_comes_behind_it(store: Store) -> None:
    log = store.partition("new", ALWAYS)
    put(log, b"0")
    store.take(NOW, apart=True)
    (unit,) = store.take_apart(NOW)
    put(log, b"1")
    assert store.take(NOW, apart=True) == []
    done(unit)
    assert bodies(done(store.take(NOW, apart=True))) == [b"1"]
    assert read_all(log, memory=False) == {0: b"0", 1: b"1"}


def test_the_directories_of_many_new_logs_share_a_sync(store: Store, fs: FaultyFileSystem) -> None:
    for number in range(6):
        put(store.partition(f"n{number}", ALWAYS), b"x")
    before = fs.calls["sync_dir"]
    store.take(NOW, apart=True)
    jobs = []
    while units := store.take_apart(NOW):
        jobs += [job for unit in units for job in done(unit)]
    assert sum(isinstance(job, DirectoriesJob) for job in jobs) == 1
    assert fs.calls["sync_dir"] - before == 1 + 6, "the directory of all, and each log's own"
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and [read_all(each) for each in store.partitions.values()] == [{0: b"x"}] * 6


def test_one_that_fails_fails_alone(store: Store, fs: FaultyFileSystem) -> None:
    logs = [store.partition(f"n{number}", ALWAYS) for number in range(2)]
    for log in logs:
        put(log, b"x")
    store.take(NOW, apart=True)
    first, second = store.take_apart(NOW)
    fs.fail("pwritev", 2)  # the first is the head's
    assert error_of(done(first)) is not None and error_of(done(second)) is None
    assert [log.failed is None for log in logs] == [False, True]
    assert not store.dirty


def test_the_parts_of_a_transaction_are_in_one_group_though_some_wait_for_their_turn(store: Store) -> None:
    logs = [store.partition(f"n{number}", ALWAYS) for number in range(6)]
    for log in logs:
        put(log, b"before")
    store.take(NOW, apart=True)
    units = store.take_apart(NOW)
    for log in logs:
        put(log, b"part")
    told: list[bool] = []
    store.together(logs, [], [], told.append)
    assert store.take(NOW, apart=True) == [], "two of its logs have a unit under way"
    assert store.take_apart(NOW) == [], "and no other gets one"
    for unit in units:
        done(unit)
    jobs = store.take(NOW, apart=True)
    assert sorted(bodies(jobs)) == [b"before"] * 4 + [b"part"] * 6
    assert not store.take_apart(NOW)
    done(jobs)
    assert told == [True] and all(read_all(log) == {0: b"before", 1: b"part"} for log in logs)


def test_a_transaction_that_hangs_on_a_message_under_way_apart_waits_for_it(store: Store) -> None:
    other, new = store.partition("other", ALWAYS), store.partition("new", ALWAYS)
    put(other, b"first")
    commit(store)
    put(new, b"repeated")
    store.take(NOW, apart=True)
    (unit,) = store.take_apart(NOW)
    put(other, b"part")
    told: list[bool] = []
    store.together([other], [(new, 0)], [], told.append)
    assert store.take(NOW, apart=True) == []
    done(unit)
    done(store.take(NOW, apart=True))
    assert told == [True]


def test_a_close_that_is_late_begins_no_more_files_and_says_what_it_has_given_up(
    fs: FaultyFileSystem, store: Store
) -> None:
    old, cursor = store.partition("old", ALWAYS), store.cursors.open("c", "old", 0)
    put(old, b"first")
    commit(store)
    logs = [store.partition(f"n{number}", ALWAYS) for number in range(300)]
    for log in logs:
        put(log, b"1", b"2")
    put(old, b"second")
    cursor.ack([0])
    part = store.partition("part", ALWAYS)
    put(part, b"decided")
    told: list[bool] = []
    store.together([part, old], [], [], told.append)
    late = iter([False, False])
    given_up = store.close(lambda: next(late, True))
    again, notes = opened(fs)
    stored = [name for name in again.partitions if name.startswith("n")]
    assert 0 < len(stored) < 300 and given_up == 2 * (300 - len(stored))
    assert told == [True] and notes == []
    assert read_all(again.partitions["old"]) == {0: b"first", 1: b"second"}
    assert read_all(again.partitions["part"]) == {0: b"decided"}
    assert again.cursors.get("c", "old").floor == 1


def test_a_close_that_is_not_late_stores_everything(fs: FaultyFileSystem, store: Store) -> None:
    for number in range(300):
        put(store.partition(f"n{number}", ALWAYS), b"x")
    assert store.close() == 0
    assert len(opened(fs)[0].partitions) == 300
