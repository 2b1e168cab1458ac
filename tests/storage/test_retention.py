"""Whole sealed segments go, oldest first, and never what somebody still needs."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

from radiator.config import Settings
from radiator.storage import layout
from radiator.storage.partition import Partition
from radiator.storage.retention import roll_due_ns
from radiator.storage.store import Store
from tests.clocks import both, deadline
from tests.storage.driving import NOW, checkpoint, commit, opened, put, read_all
from tests.storage.faults import Crash, FaultyFileSystem

DIRECTORY = layout.partition_path("/data", "q")
SECOND = 1_000_000_000
DAY = 86_400 * SECOND


def filled(segments: int = 5, **options: object) -> tuple[FaultyFileSystem, Store, Partition]:
    """Segments of two records each."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(segment_bytes=400, **options))  # type: ignore[arg-type]
    for number in range(2 * segments):
        put(partition, b"%d" % number * 40, at=NOW + number * SECOND, destination="q")
        commit(store, NOW + number * SECOND)
    commit(store, NOW + 2 * segments * SECOND)
    return fs, store, partition


def on_disk(fs: FaultyFileSystem) -> list[int]:
    return [base for base in map(layout.segment_base, fs.listdir(DIRECTORY)) if base is not None]


def test_without_a_limit_everything_is_kept() -> None:
    fs, _, partition = filled()
    assert on_disk(fs) == [0, 2, 4, 6, 8] == [segment.base_offset for segment in partition.segments]


def test_by_count() -> None:
    fs, _, partition = filled(retention_count=3)
    assert on_disk(fs) == [6, 8] and partition.log_start_offset == 6
    assert list(read_all(partition)) == [6, 7, 8, 9]
    assert partition.fetch(1).skip_to == 6


def test_by_size() -> None:
    fs, store, partition = filled(retention_bytes=900)
    store.tick(both(NOW + 3_600 * SECOND))
    commit(store, NOW + 3_600 * SECOND)
    assert on_disk(fs) == [6, 8]
    assert sum(segment.size_bytes for segment in partition.segments) <= 900


def test_by_age_also_when_nothing_is_written() -> None:
    fs, store, partition = filled(retention_age_ns=60 * SECOND)
    assert len(on_disk(fs)) == 5
    due = deadline(store, NOW)
    assert due is not None and due <= NOW + 61 * SECOND + 1
    store.tick(both(NOW + 62 * SECOND))
    commit(store, NOW + 62 * SECOND)
    assert on_disk(fs) == [2, 4, 6, 8]
    store.tick(both(NOW + 10_000 * SECOND))
    commit(store, NOW + 10_000 * SECOND)
    assert on_disk(fs) == [8], "the active segment stays"
    assert list(read_all(partition)) == [8, 9]


def test_what_a_cursor_needs_stays_until_it_has_moved() -> None:
    fs, store, partition = filled(retention_count=1_000)
    partition.retain_from = 5
    partition.configure(Settings(segment_bytes=400, retention_count=1))
    commit(store)
    assert on_disk(fs) == [4, 6, 8] and partition.log_start_offset == 4
    partition.retain_from = 10
    store.tick(both(NOW + 3_600 * SECOND))
    commit(store, NOW + 3_600 * SECOND)
    assert on_disk(fs) == [8]


def test_a_crash_between_two_deletions_leaves_whole_segments_which_go_later() -> None:
    fs, store, _ = filled()
    partition = store.partition("q", Settings(segment_bytes=400, retention_count=1))
    fs.fail("remove", 3)
    commit(store)
    assert partition.failed is None
    fs.kill()
    store, notes = opened(fs)
    assert not notes
    partition = store.partition("q", Settings(segment_bytes=400, retention_count=1))
    commit(store)
    assert on_disk(fs) == [8] and list(read_all(partition)) == [8, 9]


def test_a_reader_of_a_removed_segment_gets_the_start_of_the_log() -> None:
    fs, store, partition = filled()
    job = partition.fetch(0)
    partition.configure(Settings(segment_bytes=400, retention_count=1))
    commit(store)
    job.run()
    job.done()
    assert job.result is None and job.error is None and job.skip_to == 8
    assert on_disk(fs) == [8]


@pytest.mark.parametrize(
    ("first", "at", "due"),
    [
        ("2024-03-01T12:00:00", 0, "2024-03-02T00:00:00"),
        ("2024-03-01T00:00:00", 0, "2024-03-02T00:00:00"),
        ("2024-03-01T23:59:59", 0, "2024-03-02T00:00:00"),
        ("2024-03-01T05:00:00", 6 * 3600, "2024-03-01T06:00:00"),
        ("2024-03-01T07:00:00", 6 * 3600, "2024-03-02T06:00:00"),
        ("2024-12-31T23:00:00", 3600, "2025-01-01T01:00:00"),
    ],
)
def test_a_daily_segment_ends_at_the_next_daily_time_in_utc(first: str, at: int, due: str) -> None:
    def ns(text: str) -> int:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND

    assert roll_due_ns(ns(first), at) == ns(due)


def test_a_segment_rolls_at_its_time_when_idle_and_once_only() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(roll_at_seconds=0))
    midnight = NOW // DAY * DAY + DAY
    put(partition, b"one", destination="q")
    commit(store)
    assert deadline(store, NOW) == midnight
    store.tick(both(midnight - 1))
    assert commit(store, midnight - 1) == []
    store.tick(both(midnight))
    commit(store, midnight)
    assert on_disk(fs) == [0, 1]
    for day in range(1, 4):
        store.tick(both(midnight + day * DAY))
        commit(store, midnight + day * DAY)
    assert on_disk(fs) == [0, 1], "an empty segment does not roll"
    put(partition, b"two", at=midnight + 5 * DAY, destination="q")
    commit(store, midnight + 5 * DAY)
    store.tick(both(midnight + 6 * DAY))
    put(partition, b"three", at=midnight + 6 * DAY, destination="q")
    commit(store, midnight + 6 * DAY)
    assert on_disk(fs) == [0, 1, 2]
    assert read_all(partition) == {0: b"one", 1: b"two", 2: b"three"}
    store.close()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"one", 1: b"two", 2: b"three"}


def test_a_roll_that_was_missed_while_the_broker_was_down_happens_at_once() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("q", Settings(roll_at_seconds=0)), b"one", destination="q")
    commit(store)
    store.close()
    store, _ = opened(fs)
    store.partition("q", Settings(roll_at_seconds=0))
    store.tick(both(NOW + 3 * DAY))
    commit(store, NOW + 3 * DAY)
    assert on_disk(fs) == [0, 1]


# --- clocks that step -------------------------------------------------------------------------------------------------

HOUR = 3_600 * SECOND
MIDNIGHT = NOW // DAY * DAY + DAY


def rolling() -> tuple[FaultyFileSystem, Store, Partition]:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    return fs, store, store.partition("q", Settings(roll_at_seconds=0))


def at(store: Store, now_ns: int, partition: Partition | None = None) -> None:
    """The driver comes by, with a message or without."""
    store.tick(both(now_ns))
    if partition is not None:
        put(partition, b"%d" % now_ns, at=now_ns, destination="q")
    commit(store, now_ns)


@pytest.mark.parametrize("step", [-HOUR, HOUR])
@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("before", [30, 90], ids=lambda minutes: f"{minutes} minutes before")
def test_a_clock_that_steps_by_an_hour_rolls_neither_twice_nor_never(before: int, idle: bool, step: int) -> None:
    """The clock steps shortly before midnight or shortly behind it, and in a while is set right again."""
    minute = HOUR // 60
    for wrong_from in (-before * minute, -minute, minute):
        fs, store, partition = rolling()
        put(partition, b"first", at=MIDNIGHT - 3 * HOUR, destination="q")
        commit(store, MIDNIGHT - 3 * HOUR)
        for minutes in range(-170, 300):
            real = minutes * minute
            wrong = wrong_from <= real < wrong_from + 2 * HOUR
            at(store, MIDNIGHT + real + (step if wrong else 0), None if idle else partition)
        put(partition, b"last", at=MIDNIGHT + 6 * HOUR, destination="q")
        commit(store, MIDNIGHT + 6 * HOUR)
        assert len(on_disk(fs)) == 2, (wrong_from // minute, on_disk(fs))
        times = [time for each in partition.tail.newest_first()[::-1] for time in each.receive_ns]
        assert times == sorted(times)


def test_a_batch_that_was_open_at_midnight_does_not_bring_a_second_roll() -> None:
    fs, store, partition = rolling()
    at(store, MIDNIGHT - HOUR, partition)
    put(partition, b"open", at=MIDNIGHT - 1, destination="q")
    store.tick(both(MIDNIGHT))
    commit(store, MIDNIGHT)
    for seconds in range(1, 4):
        at(store, MIDNIGHT + seconds * SECOND, partition)
    assert on_disk(fs) == [0, 1]
    at(store, MIDNIGHT + DAY, partition)
    assert on_disk(fs) == [0, 1, 5], "the next day has its own"


def test_a_broker_that_starts_with_a_clock_set_back_keeps_the_order_of_times() -> None:
    fs, store, partition = rolling()
    at(store, MIDNIGHT - HOUR, partition)
    store.close()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(roll_at_seconds=0))
    at(store, MIDNIGHT - 2 * HOUR, partition)
    at(store, MIDNIGHT, partition)
    at(store, MIDNIGHT + 1, partition)
    assert on_disk(fs) == [0, 2]
    assert list(partition.tail.newest_first()[-1].receive_ns) == [MIDNIGHT - HOUR], "not before what was there"


# --- size -------------------------------------------------------------------------------------------------------------


def test_by_size_the_oldest_goes_as_soon_as_the_limit_is_passed_and_no_more_than_must() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(segment_bytes=4_000, retention_bytes=9_000))
    largest = 0
    for number in range(100):
        put(partition, b"%d" % number * 150, destination="q")
        commit(store)
        largest = max(largest, partition.size_bytes)
        commit(store)
        assert partition.size_bytes <= 9_000, "no sweep was needed"
        assert number < 40 or partition.size_bytes > 9_000 - 4_000 - 500, "no more went than had to"
    assert largest <= 9_500


@pytest.mark.parametrize("seed", range(8))
def test_a_segment_whose_name_is_not_on_the_disk_is_not_left_alone(seed: int) -> None:
    """The power fails between the removal of all segments before it and the sync of that."""
    fs = FaultyFileSystem(Random(seed))
    store, _ = opened(fs)
    partition = store.partition("p", Settings(segment_bytes=1))
    put(partition, b"0", at=NOW)
    for _ in range(3):  # until no file of the journal has this
        checkpoint(store)
        put(store.partition("other", Settings()), b"")
    put(partition, b"1", at=NOW)
    fs.fail("sync_dir", 1, under=partition.directory, fatal=True)
    partition.configure(Settings(segment_bytes=1, retention_count=1))
    with pytest.raises(Crash):
        for _ in range(3):
            commit(store)
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["p"])[1] == b"1"
