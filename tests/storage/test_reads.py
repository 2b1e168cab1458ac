"""Cold reads: off the hub, from files, and honest about what is gone."""

from __future__ import annotations

import errno
from contextlib import suppress
from unittest.mock import patch

import pytest

from radiator.config import Settings
from radiator.storage import layout
from radiator.storage.file_partition import FilePartition
from radiator.storage.journal.format import FILE_HEADER_BYTES
from radiator.storage.journal.reading import JournalFiles
from radiator.storage.partition import Partition
from radiator.storage.reads import PositionJob
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.damaging import without_journal
from tests.storage.driving import ALWAYS, NOW, LastOf, answer, checkpoint, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

DIRECTORY = layout.partition_path("/data", "q")


def cold(records: int = 300, **options: int) -> tuple[FaultyFileSystem, Store, Partition]:
    """A partition with nothing in memory, one record per batch."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(**options))  # type: ignore[arg-type]
    for number in range(records):
        put(partition, b"%d" % number, at=NOW + number, destination=f"/t/{number % 3}")
        commit(store)
    store.close()
    store, notes = opened(fs)
    assert not notes
    return fs, store, store.partition("q", Settings(**options))  # type: ignore[arg-type]


def test_a_read_merges_and_the_next_one_knows_where_to_go_on() -> None:
    fs, _, partition = cold()
    assert partition.read(0) is None
    job = partition.fetch(0, 10_000)
    assert partition.fetch(0, 10_000) is job, "readers at one place share a job"
    job.run()
    job.done()
    assert job.result is not None and 10 < len(job.result) < 100
    assert partition.read(0) is job.result and partition.read(len(job.result) - 1) is job.result
    before = fs.calls.copy()
    following = partition.fetch(job.result.next_offset, 10_000)
    following.run()
    following.done()
    assert following.result is not None and following.result.base_offset == job.result.next_offset
    assert (fs.calls - before) == {"open_read": 1, "pread": 1}, "neither the index nor a walk"


def test_reads_stop_at_the_high_watermark() -> None:
    _fs, store, partition = cold(3)
    put(partition, b"not yet")
    for job in store.take(both(NOW)):
        job.write()
    read = partition.fetch(0)
    read.run()
    assert read.result is not None and read.result.next_offset == 3
    ahead = partition.fetch(3)
    assert ahead.finished and ahead.result is None and ahead.skip_to is None


def test_reading_crosses_segments() -> None:
    _fs, _, partition = cold(300, segment_bytes=3_000)
    assert len(partition.segments) > 5
    assert read_all(partition) == {number: b"%d" % number for number in range(300)}
    assert answer(partition.offset_for_time(NOW + 123)) == 123
    assert answer(partition.offset_for_time(NOW + 1_000)) == 300
    assert answer(partition.offset_for_time(0)) == 0
    job = LastOf(partition, 40, lambda name: name == "/t/2")
    assert answer(job) == 299 - 39 * 3 and job.starts == {"/t/2": 182}
    everyone = LastOf(partition, 1, lambda name: True)
    assert answer(everyone) == 297 and everyone.starts == {"/t/0": 297, "/t/1": 298, "/t/2": 299}
    assert answer(LastOf(partition, 1, lambda name: name == "/t/9")) == 300


def test_a_missing_segment_in_the_middle_is_a_gap() -> None:
    fs, _, partition = cold(100, segment_bytes=3_000)
    gone, following = (segment.base_offset for segment in partition.segments[1:3])
    del fs.nodes[layout.segment_path(DIRECTORY, gone)]
    found = read_all(partition)
    assert set(found) == set(range(100)) - set(range(gone, following))
    job = partition.fetch(gone + 1)
    job.run()
    job.done()
    assert (job.result, job.error, job.skip_to) == (None, None, following)


def test_damage_in_a_sealed_segment_is_a_gap_of_one_batch() -> None:
    fs, _, partition = cold(100, segment_bytes=5_000)
    cache = fs.nodes[layout.segment_path(DIRECTORY, 0)].cache
    place = cache.index(b"content-type")
    cache[place] ^= 1
    assert set(read_all(partition)) == set(range(1, 100))


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
def test_what_the_system_could_not_write_to_a_segment_is_read_from_the_journal(bytes_max: int) -> None:
    """No sync has told the broker of it yet, and the pages have been dropped: only the journal has the messages."""
    fs = FaultyFileSystem()
    store, _ = opened(fs, tail_bytes_max=1)
    partition = store.partition("q", ALWAYS)
    stored = {number: b"%d" % number for number in range(10)}
    for number in stored:
        if number == 5:
            assert not error_of(checkpoint(store))
        put(partition, stored[number])
        commit(store)
    fs.fail("fdatasync", under="/q/")
    fd = fs.open(layout.segment_path(DIRECTORY, 0))
    with suppress(OSError):
        fs.fdatasync(fd)
    fs.evict(layout.segment_path(DIRECTORY, 0))
    found: dict[int, bytes] = {}
    while len(found) < 10:
        job = partition.fetch(len(found), bytes_max)
        job.run()
        job.done()
        assert job.result is not None and job.damage is None
        found |= zip(job.result.offsets, job.result.bodies, strict=True)
    assert found == stored


@pytest.mark.parametrize("lost", [slice(3, 6), slice(3, None)])
def test_a_time_in_a_damaged_range_leads_to_its_beginning(lost: slice) -> None:
    """The messages may be in the journal. If they are not, the reader gets a gap."""
    fs = FaultyFileSystem()
    store, _ = opened(fs, tail_bytes_max=1)
    partition = store.partition("q", ALWAYS)
    ends = [0]
    for number in range(10):
        put(partition, b"%d" % number, at=NOW + 10 * number)
        commit(store)
        ends.append(partition.log.position)  # type: ignore[attr-defined]
    cache = fs.nodes[layout.segment_path(DIRECTORY, 0)].cache
    first, stop = ends[lost.start], len(cache) if lost.stop is None else ends[lost.stop]
    cache[first:stop] = bytes(stop - first)
    found = [answer(PositionJob(partition, NOW + 10 * number)) for number in range(8)]  # type: ignore[arg-type]
    assert found == [0, 1, 2, 3, 3, 3, 3, 7 if lost.stop else 3]


def test_what_the_journal_has_of_a_damaged_range_ends_the_gap() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs, tail_bytes_max=1)
    partition = store.partition("q", ALWAYS)
    for number in range(4):
        put(partition, b"%d" % number)
        commit(store)
        if number == 1:
            checkpoint(store)
    fs.nodes[store.journal.path(1)].cache[FILE_HEADER_BYTES:] = bytes(100)
    fs.nodes[layout.segment_path(DIRECTORY, 0)].cache[:] = bytes(100)
    job = partition.fetch(0)
    job.run()
    job.done()
    assert job.result is None and job.skip_to == 2 and job.damage is not None and job.damage.end_offset == 2
    assert read_all(partition, memory=False) == {2: b"2", 3: b"3"}


@pytest.mark.parametrize("used", [False, True])
def test_no_batch_is_taken_from_a_journal_file_that_is_used_again(used: bool) -> None:
    """A checkpoint releases the file between the search and the read of a batch."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for number in range(2):
        put(store.partition("q", ALWAYS), b"%d" % number)
        commit(store)
    files = JournalFiles(fs, "/data")  # type: ignore[arg-type]
    first, second = files.batches("q", 0, 2)
    journal = fs.nodes[store.journal.path(store.journal.file_number)].cache
    at = journal.index(first)
    journal[at : at + len(first)] = second if used else bytes(len(first))
    with pytest.raises(FileNotFoundError, match="since"):
        list(files.batches("q", 0, 1))


def test_a_read_waits_for_a_journal_that_is_being_written() -> None:
    """A checkpoint releases files between the look for them and the read."""
    fs = FaultyFileSystem()
    store, _ = opened(fs, tail_bytes_max=1)
    partition = store.partition("q", ALWAYS)
    put(partition, b"0")
    commit(store)
    fs.nodes[layout.segment_path(DIRECTORY, 0)].cache[:] = bytes(100)
    path = store.journal.path(store.journal.file_number)
    job = partition.fetch(0)
    moved = fs.nodes.pop(path)
    with patch.object(FaultyFileSystem, "listdir", lambda self, directory: [path.rpartition("/")[2]]):
        job.run()
    job.done()
    assert job.error is not None and "journal" in str(job.error) and job.damage is None and job.skip_to is None
    fs.nodes[path] = moved
    assert read_all(partition, memory=False) == {0: b"0"}


def test_an_error_of_the_disk_is_reported_and_the_next_try_may_work() -> None:
    fs, _, partition = cold(3)
    fs.fail("pread", 1, errno.EIO)
    job = partition.fetch(0)
    job.run()
    job.done()
    assert job.error is not None and "smartctl" in str(job.error) and job.result is None
    assert read_all(partition) == {0: b"0", 1: b"1", 2: b"2"}


def test_positions_known_in_memory_need_no_disk() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    assert answer(partition.offset_for_time(0)) == 0
    assert answer(partition.offset_of_last(3)) == 0
    for number in range(10):
        put(partition, b"", at=NOW + number)
        commit(store)
    before = fs.calls.copy()
    for time, offset in ((0, 0), (NOW, 0), (NOW + 4, 4), (NOW + 99, 10)):
        job = partition.offset_for_time(time)
        assert job.finished and job.offset == offset
    assert partition.offset_of_last(3).offset == 7
    assert fs.calls == before


def with_postponed(fs: FaultyFileSystem) -> FilePartition:
    """A log with two messages in its segment, and two that wait for room."""
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    put(partition, b"0", b"1", at=NOW)
    commit(store)
    fs.fail("pwritev", error=errno.ENOSPC, under=".rlog")
    put(partition, b"2", b"3", at=NOW + 1)
    commit(store)
    assert isinstance(partition, FilePartition) and partition.written_to == 2 and partition.high_watermark == 4
    return partition


@pytest.mark.parametrize("in_memory", [True, False])
def test_positions_are_found_in_messages_that_wait_to_be_written(in_memory: bool) -> None:
    partition = with_postponed(FaultyFileSystem())
    if not in_memory:
        partition.tail.drop_below(2)
    for time, offset in ((NOW - 1, 0), (NOW, 0), (NOW + 1, 2), (NOW + 2, 4)):
        assert answer(partition.offset_for_time(time)) == offset
    for count, start in ((1, 3), (2, 2), (3, 1)):
        assert answer(LastOf(partition, count, lambda _: True)) == start


def test_a_read_of_lost_offsets_leads_to_a_message_that_waits_to_be_written() -> None:
    fs = FaultyFileSystem()
    partition = with_postponed(fs)
    partition.tail.drop_below(2)
    fs.nodes[f"{partition.directory}/{0:020d}.rlog"].cache.clear()
    without_journal(fs)
    job = partition.fetch(0)
    job.run()
    job.done()
    assert job.skip_to == 2 and read_all(partition, memory=False) == {2: b"2", 3: b"3"}
