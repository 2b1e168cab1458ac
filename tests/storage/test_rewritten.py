"""Segments that were rewritten under those who read them: offsets hold, positions do not, and a hole is no gap."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from radiator import limits
from radiator.config import Settings
from radiator.storage import index, layout, reader
from radiator.storage.format import encode_batch
from radiator.storage.header import DamagedBatch, decode_header
from radiator.storage.index import IndexEntry
from radiator.storage.partition import Partition
from radiator.storage.reader import Damage
from radiator.storage.reads import Hint
from radiator.storage.store import Store
from tests.storage.driving import NOW, LastOf, answer, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.storage.rewriting import Keep, everything, swap

DIRECTORY = layout.partition_path("/data", "q")
COUNT = 300


@pytest.fixture(autouse=True)
def many_index_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEX_INTERVAL_BYTES", 1_000)


def even(offset: int) -> bool:
    return offset % 2 == 0


def late(offset: int) -> bool:
    """Whole batches, and the beginning of a segment, are removed."""
    return offset % 50 > 40


def cold(count: int = COUNT, destinations: int = 1, per_batch: int = 1, body: bytes = b"") -> Any:
    """A store just opened, with several sealed segments: nothing in memory."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    options = Settings(segment_bytes=8_000 + 60 * len(body))
    partition = store.partition("q", options)
    for number in range(count):
        put(partition, b"%d" % number + body, at=NOW + number, destination=f"/t/{number % destinations}")
        if (number + 1) % per_batch == 0:
            commit(store)
    commit(store)
    store.close()
    store, notes = opened(fs)
    assert not notes
    return fs, store, store.partition("q", options)


def rewrite(fs: FaultyFileSystem, partition: Partition, keep: Keep, **how: Any) -> set[int]:
    """Rewrites all sealed segments; returns the offsets that are left."""
    left = set(range(partition.high_watermark))
    for segment, following in zip(partition.segments, partition.segments[1:], strict=False):
        swap(fs, DIRECTORY, segment.base_offset, keep, **how)
        left -= {each for each in range(segment.base_offset, following.base_offset - 1) if not keep(each)}
    return left


def reopened(fs: FaultyFileSystem, store: Store) -> Partition:
    store.close()
    store, notes = opened(fs)
    assert not notes
    return store.partition("q", Settings(segment_bytes=8_000))


KEEPS = [everything, even, late]


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_broker_reads_what_is_left_from_every_offset(keep: Keep, level: int, fresh: bool) -> None:
    fs, store, partition = cold()
    left = rewrite(fs, partition, keep, level=level, index=fresh)
    partition = reopened(fs, store)
    assert len(partition.segments) > 3
    assert read_all(partition) == {offset: b"%d" % offset for offset in left}
    for start in range(0, COUNT, 7):
        assert set(read_all(partition, start, memory=False)) == {each for each in left if each >= start}
    for time in range(0, COUNT, 7):
        found = answer(partition.offset_for_time(NOW + time))
        assert {each for each in left if each >= found} == {each for each in left if each >= time}


@pytest.mark.parametrize("keep", KEEPS)
def test_segments_say_whether_records_are_missing(keep: Keep) -> None:
    fs, store, partition = cold()
    rewrite(fs, partition, keep)
    partition = reopened(fs, store)
    assert [segment.sparse for segment in partition.segments[:-1]] == [keep is not everything] * (
        len(partition.segments) - 1
    )
    assert not partition.segments[-1].sparse


def test_a_remembered_position_is_verified_when_the_segment_was_swapped_between_two_reads() -> None:
    for keep in KEEPS:
        for bytes_max in (600, 2_000, 5_000):
            fs, _, partition = cold()
            left = set(range(COUNT))
            found: dict[int, bytes] = {}
            offset, swapped = 0, False
            while offset < COUNT:
                job = partition.fetch(offset, bytes_max)
                job.run()
                job.done()
                assert job.error is None and job.result is not None, "no gap, wherever the old position leads"
                found.update(zip(job.result.offsets, job.result.bodies, strict=True))
                offset = job.result.next_offset
                if not swapped:
                    left, swapped = rewrite(fs, partition, keep), True
            assert left <= set(found), "what was read before the swap may be more"
            assert all(body == b"%d" % offset for offset, body in found.items())


@pytest.mark.parametrize("known", [True, False])
def test_a_message_that_looks_like_the_batch_that_was_there_is_not_taken_for_it(known: bool) -> None:
    """Its sender knows offsets and can guess positions, but not the salt."""
    forged = b"".join(encode_batch(10, [NOW], None, None, [0], ["/t/evil"], [b""], [b"forged"], salt=4711))
    fs, _, partition = cold(40, destinations=2, per_batch=40, body=forged)
    path = layout.segment_path(DIRECTORY, 0)
    place = next(at for at in range(0, len(fs.nodes[path].cache), 8) if fs.nodes[path].cache.startswith(forged, at))
    salt = decode_header(bytes(fs.nodes[path].cache)).salt
    if known:
        partition.cold.hints[10] = Hint(0, place, salt)
    else:  # in the index
        entries = [IndexEntry(0, 0, NOW), IndexEntry(10, place, NOW)]
        fs.nodes[layout.index_path(DIRECTORY, 0)].cache[:] = index.encode_head(0) + index.encode_entries(entries)
    job = partition.fetch(10)
    job.run()
    assert job.result is not None and job.result.base_offset == 0 and job.result.names == ["/t/0", "/t/1"]
    last = LastOf(partition, 15, lambda name: True)
    assert answer(last) == 10 and set(last.starts) == {"/t/0", "/t/1"}


def test_the_last_n_are_records_not_offsets() -> None:
    fs, store, partition = cold()
    left = sorted(rewrite(fs, partition, even))
    partition = reopened(fs, store)
    name = next(iter(partition.destinations))
    for count in (1, 5, 60, 100, 150, len(left), 10_000):
        job = LastOf(partition, count, lambda name: True)
        assert answer(job) == answer(partition.offset_of_last(count)) == left[-count:][0], count
        assert job.starts == {name: left[-count:][0]}


def test_the_last_n_across_sparse_and_dense_segments() -> None:
    fs, store, partition = cold()
    bases = [segment.base_offset for segment in partition.segments]
    swap(fs, DIRECTORY, bases[2], late, index=True)
    left = sorted(
        set(range(COUNT)) - {each for each in range(bases[2], bases[3] - 1) if not late(each)},
    )
    partition = reopened(fs, store)
    for count in (1, COUNT - bases[3], COUNT - bases[3] + 3, COUNT - bases[2] - 30, len(left) - 2, 10_000):
        assert answer(partition.offset_of_last(count)) == left[-count:][0], count


def test_the_last_n_that_stand_in_dense_segments_need_no_disk() -> None:
    fs, store, partition = cold()
    swap(fs, DIRECTORY, 0, even)
    partition = reopened(fs, store)
    before = fs.calls.copy()
    job = partition.offset_of_last(100)
    assert job.finished and job.offset == COUNT - 100 and fs.calls == before


def test_the_last_n_of_each_of_several_destinations() -> None:
    for fresh in (True, False):
        fs, store, partition = cold(destinations=3)
        left = sorted(rewrite(fs, partition, even, index=fresh))
        partition = reopened(fs, store)
        job = LastOf(partition, 40, lambda name: name != "/t/1")
        answer(job)
        assert job.starts == {f"/t/{number}": [each for each in left if each % 3 == number][-40] for number in (0, 2)}


@pytest.mark.parametrize("keep", KEEPS)
def test_readers_outside_see_no_gap_even_if_the_swap_comes_between_listing_and_reading(keep: Keep) -> None:
    fs, _, live = cold()
    before = reader.list_partitions("/data", fs)[0]
    left = rewrite(fs, live, keep)
    for listed in (before, reader.list_partitions("/data", fs)[0]):
        for start in (0, 1, 99, 150, 299):
            gaps: list[tuple[int, int]] = []
            found: dict[int, bytes] = {}
            for batch in reader.batches(listed, start, lambda first, last, _: gaps.append((first, last)), fs, 1_000):  # noqa: B023
                found.update(zip(batch.offsets, batch.bodies, strict=True))
            assert gaps == []
            assert {each for each in found if each >= start} == {each for each in left if each >= start}
            assert all(body == b"%d" % offset for offset, body in found.items())


def test_a_compressed_segment_is_read_about_once_though_a_run_is_what_it_is_unpacked() -> None:
    fs, _, _ = cold(600, per_batch=10, body=bytes(1_000))
    swap(fs, DIRECTORY, 0, level=3, per_batch=2)
    listed = reader.list_partitions("/data", fs)[0]
    size = len(fs.nodes[layout.segment_path(DIRECTORY, 0)].cache)
    sizes: list[int] = []
    pread = fs.pread

    def counted(fd: int, length: int, position: int) -> bytes:
        data = pread(fd, length, position)
        sizes.append(len(data))
        return data

    fs.pread = counted  # type: ignore[method-assign]
    first = replace(listed, segments=listed.segments[:1])
    runs = list(reader.batches(first, 0, fs=fs, bytes_max=4_000))  # type: ignore[arg-type]
    assert len(runs) > 10 and sum(map(len, runs)) == first.segments[0].end_offset
    assert sum(sizes) < 4 * size, "locating, its salt, and every byte twice at worst"


def test_a_damaged_batch_between_sparse_ones_is_a_gap_of_what_it_covered() -> None:
    fs, store, _ = cold()
    swap(fs, DIRECTORY, 0, even, level=0)
    path = layout.segment_path(DIRECTORY, 0)
    spans = list(reader.segment_spans(path, fs))
    position, header, following = spans[1]
    assert not isinstance(header, Damage)
    fs.nodes[path].cache[position + header.total_len - 20] ^= 1
    gaps: list[tuple[int, int]] = []
    listed = reader.list_partitions("/data", fs)[0]
    for _ in reader.batches(listed, 0, lambda first, last, _: gaps.append((first, last)), fs):
        pass
    assert gaps == [(header.base_offset, following - 1)]
    partition = reopened(fs, store)
    job = partition.fetch(header.base_offset + 1)
    job.run()
    assert (job.result, job.skip_to) == (None, following)


def test_a_header_with_a_wrong_offset_hides_no_batch_behind_it() -> None:
    fs, store, _ = cold(60, per_batch=20)
    path = layout.segment_path(DIRECTORY, 0)
    fs.nodes[path].cache[17] ^= 2  # base offset 0 is now 512
    del fs.nodes[layout.index_path(DIRECTORY, 0)]
    store.close()
    store, _ = opened(fs)
    found = read_all(store.partition("q", Settings()), 25)
    assert set(found) == set(range(25, 60))


def test_what_a_segment_holds_is_counted_by_records() -> None:
    fs, _, live = cold()
    left = rewrite(fs, live, late)
    listed = reader.list_partitions("/data", fs)[0]
    assert sum(reader.count_records(segment, fs) for segment in listed.segments) == len(left)
    assert [reader.newest_receive_ns(each, fs) for each in listed.segments] == [
        NOW + each.end_offset - 1 for each in listed.segments
    ], "though the index is older than the file"


def test_records_and_spans_of_a_file() -> None:
    fs, _, _ = cold(40)
    path = layout.segment_path(DIRECTORY, 0)
    swap(fs, DIRECTORY, 0, late, per_batch=4)
    spans = [(header.base_offset, after) for _, header, after in reader.segment_spans(path, fs) if after]
    assert spans[0][0] == 0 and all(end == base for (_, end), (base, _) in pairwise(spans))
    batches = [batch for _, batch in reader.segment_records(path, fs)]
    assert [(each.base_offset, each.next_offset) for each in batches] == spans


def test_a_region_that_cannot_be_unpacked_is_reported_as_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, _, _ = cold(40)
    swap(fs, DIRECTORY, 0)

    def broken(frame: bytes, length: int) -> bytes:
        raise DamagedBatch("compressed region: no")

    monkeypatch.setattr("radiator.storage.format.decompress", broken)
    found = [item for _, item in reader.segment_records(layout.segment_path(DIRECTORY, 0), fs)]
    assert found and all(isinstance(each, Damage) and "no" in each.reason for each in found)


def test_time_does_not_fall_over_a_restart_behind_an_index_that_is_older_than_its_segment() -> None:
    fs, store, partition = cold()
    store.close()
    last = partition.segments[-1].base_offset
    fs.nodes[layout.segment_path(DIRECTORY, last)].cache.clear()
    swap(fs, DIRECTORY, partition.segments[-2].base_offset, everything, per_batch=200)
    store, _ = opened(fs)
    partition = store.partition("q", Settings())
    assert partition.last_receive_ns == NOW + last - 1


def test_a_rewritten_segment_that_has_become_the_last_one_is_gone_on_with() -> None:
    """A power cut may take the name of the segment that followed it."""
    fs, store, partition = cold()
    store.close()
    sealed, last = (segment.base_offset for segment in partition.segments[-2:])
    swap(fs, DIRECTORY, sealed, even)
    for path in (layout.segment_path(DIRECTORY, last), layout.index_path(DIRECTORY, last), layout.head_path(DIRECTORY)):
        fs.nodes.pop(path, None)
    store, notes = opened(fs)
    partition = store.partition("q", Settings())
    assert partition.high_watermark == last and not notes and partition.segments[-1].sparse
    put(partition, b"more")
    commit(store)
    assert read_all(partition, last - 1) == {last - 1: b"%d" % (last - 1), last: b"more"}
    assert answer(LastOf(partition, 3, lambda name: name == "/t/0")) == max(
        each for each in range(last - 3) if even(each)
    )


def test_memory_holds_sparse_batches_like_others() -> None:
    """A cold read leaves one; whoever comes to an offset in its hole finds it."""
    fs, store, partition = cold()
    rewrite(fs, partition, late)
    partition = reopened(fs, store)
    job = partition.fetch(7)
    job.run()
    job.done()
    assert job.result is not None and job.result.base_offset == 0 and job.result.offsets[0] == 41
    for offset in (0, 7, 40, 41):
        assert partition.read(offset) is job.result


def test_random_rewriting_keeps_every_reader_right() -> None:
    chance = random.Random(5)
    for _ in range(10):
        fs, store, partition = cold(120, destinations=chance.choice([1, 3]), per_batch=chance.choice([1, 4]))
        kept = {offset for offset in range(120) if chance.random() < 0.4}
        how = {"level": chance.choice([0, 3]), "per_batch": chance.choice([1, 3, 50]), "index": chance.random() < 0.5}
        left = rewrite(fs, partition, kept.__contains__, **how)
        partition = reopened(fs, store)
        for start in (0, chance.randrange(120), 119):
            assert set(read_all(partition, start, memory=False)) == {each for each in left if each >= start}
