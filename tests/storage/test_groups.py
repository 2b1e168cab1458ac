"""What one group of jobs may cost: new files are made a few at a time, so that nobody waits for thousands of them."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from radiator.config import Settings
from radiator.storage import layout
from radiator.storage import store as module
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, SNAPSHOT_SYNCS, checkpoint, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

DAY = 86_400 * 1_000_000_000


@pytest.fixture(autouse=True)
def four_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEW_FILES_MAX", 4)


def names_of(jobs: list[Any]) -> list[str]:
    return [job.partition.name for job in jobs if job.batch is not None]


def test_new_logs_come_a_few_at_a_time_behind_the_others_and_none_is_left_out() -> None:
    store, _ = opened(FaultyFileSystem())
    old = store.partition("old", ALWAYS)
    put(old, b"0", destination="old")
    commit(store)
    news = [store.partition(f"n{number}", ALWAYS) for number in range(10)]
    for each in news:
        put(each, b"x")
    put(old, b"1", destination="old")
    groups = []
    while store.dirty:
        put(old, b"again", destination="old")
        groups.append(names_of(commit(store)))
    assert groups == [["old", "n0", "n1", "n2", "n3"], ["old", "n4", "n5", "n6", "n7"], ["old", "n8", "n9"]]
    assert all(read_all(each) == {0: b"x"} for each in news)
    assert commit(store) == []


def test_what_is_sent_to_a_log_that_waits_for_its_turn_joins_the_batch_that_waits() -> None:
    store, _ = opened(FaultyFileSystem())
    news = [store.partition(f"n{number}", ALWAYS) for number in range(6)]
    for each in news:
        put(each, b"x")
    commit(store)
    put(news[5], b"y")
    put(news[0], b"y")
    assert names_of(commit(store)) == ["n0", "n4", "n5"]
    assert read_all(news[5]) == {0: b"x", 1: b"y"} == read_all(news[0])


def test_new_logs_cost_one_sync_and_a_checkpoint_syncs_their_names() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    first = store.partition("first", ALWAYS)
    put(first, b"x")
    commit(store)  # begins the journal
    before, syncs = fs.calls["sync_dir"], fs.calls["fdatasync"]
    for number in range(3):
        put(store.partition(f"n{number}", ALWAYS), b"x")
    assert error_of(commit(store)) is None
    assert fs.calls["sync_dir"] - before == 0 and fs.calls["fdatasync"] - syncs == 1
    checkpoint(store)
    assert fs.calls["sync_dir"] - before == 1 + 4 + 1 + SNAPSHOT_SYNCS, "of all logs, each log's own, the journal's"
    assert {f"/data/partitions/{name}" for name in ("first", "n0", "n1", "n2")} <= fs.disk_dirs
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and [read_all(each) for each in store.partitions.values()] == [{0: b"x"}] * 4


@pytest.mark.parametrize("verb", ["mkdir", "sync_dir"])
def test_directories_that_cannot_be_made_fail_their_own_log_only(verb: str) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partitions = [store.partition(f"n{number}", ALWAYS) for number in range(4)]
    for each in partitions:
        put(each, b"x")
    fs.fail(verb, 1, errno.ENOSPC, "/partitions/")
    jobs = [*commit(store), *checkpoint(store)]
    assert [job.partition.name for job in jobs if job.postponed] == (["n0"] if verb == "mkdir" else [])
    fs.power_cut()
    store, _ = opened(fs)
    assert [read_all(each) for each in store.partitions.values()] == [{0: b"x"}] * 4


def test_segments_whose_day_ends_together_roll_a_few_at_a_time_and_messages_do_not_wait() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    midnight = NOW // DAY * DAY + DAY
    logs = [store.partition(f"n{number}", Settings(roll_at_seconds=0)) for number in range(10)]
    for each in logs:
        put(each, b"x")
    while store.dirty:
        commit(store)
    store.tick(both(midnight))
    for each in logs:
        put(each, b"y", at=midnight)
    jobs = commit(store, midnight)
    assert len(names_of(jobs)) == 10, "no message waits"
    assert sum(len(each.segments) for each in logs) == 10 + 4
    while store.dirty:
        commit(store, midnight)
    assert [len(each.segments) for each in logs] == [2] * 10
    assert all(read_all(each) == {0: b"x", 1: b"y"} == read_all(each, memory=False) for each in logs)


def test_a_stop_writes_everything_however_much_is_new() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for number in range(30):
        put(store.partition(f"n{number}", ALWAYS), b"x")
    store.close()
    store, notes = opened(fs)
    assert not notes and len(store.partitions) == 30
    assert all(read_all(each) == {0: b"x"} for each in store.partitions.values())
    assert layout.partitions_path("/data") in fs.dirs


def test_memory_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Store
    store, _ = opened(FaultyFileSystem())
    for number in range(10):
        put(store.partition(f"n{number}", ALWAYS), b"x")
    memory = store.partition("m", Settings(store="memory"))
    commit(store)
    put(memory, b"x")
    assert [job.partition.name for job in store.take_finished(both(NOW))] == ["m"]
    assert len(names_of(commit(store))) == 4
