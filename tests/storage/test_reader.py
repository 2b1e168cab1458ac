"""Reading from outside, beside a broker that goes on writing."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from radiator.config import Settings, SyncPolicy
from radiator.errors import StorageError
from radiator.storage import layout, reader
from radiator.storage.partition import Partition
from radiator.storage.reader import Damage
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import NOW, commit, opened, put
from tests.storage.faults import FaultyFileSystem

DIRECTORY = layout.partition_path("/data", "q")


def written(count: int = 20, **options: Any) -> tuple[FaultyFileSystem, Store, Partition]:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(**options))
    for number in range(count):
        put(partition, b"%d" % number, destination="q")
        commit(store)
    return fs, store, partition


def bodies(fs: FaultyFileSystem, start: int = 0) -> tuple[dict[int, bytes], list[tuple[int, int]]]:
    found: dict[int, bytes] = {}
    gaps: list[tuple[int, int]] = []
    (partition,) = reader.list_partitions("/data", fs)  # type: ignore[arg-type]
    for batch in reader.batches(partition, start, lambda first, last, _: gaps.append((first, last)), fs, 1_000):  # type: ignore[arg-type]
        found.update(zip(batch.offsets, batch.bodies, strict=True))
    return found, gaps


def test_reading_ends_at_the_head_whatever_is_behind_it() -> None:
    fs, store, partition = written()
    partition.configure(Settings(sync=SyncPolicy(10**9)))
    put(partition, b"written, not synced", destination="q")
    commit(store)
    assert bodies(fs) == ({number: b"%d" % number for number in range(20)}, [])
    store.tick(both(NOW + 10**9))
    commit(store, NOW + 10**9)
    assert len(bodies(fs)[0]) == 21


def test_a_missing_damaged_or_unreadable_head_costs_a_walk() -> None:
    for damage in ("gone", "torn", "unreadable"):
        fs, _, _ = written()
        if damage == "unreadable":
            fs.fail("pread", 1, errno.EIO, under=layout.head_path(DIRECTORY), times=100)
        elif damage == "gone":
            del fs.nodes[layout.head_path(DIRECTORY)]
        else:
            fs.nodes[layout.head_path(DIRECTORY)].cache[20] ^= 1
        assert bodies(fs) == ({number: b"%d" % number for number in range(20)}, [])


def test_segments_are_listed_and_read_from_any_offset() -> None:
    fs, _, live = written(60, segment_bytes=2_000)
    (partition,) = reader.list_partitions("/data", fs)  # type: ignore[arg-type]
    assert [each.base_offset for each in partition.segments] == [each.base_offset for each in live.segments]
    assert [each.size_bytes for each in partition.segments] == [each.size_bytes for each in live.segments]
    assert (partition.log_start_offset, partition.next_offset) == (0, 60)
    assert partition.segments[0].first_receive_ns == NOW
    for start in (0, 17, 59, 60, 99):
        found = {offset for offset in bodies(fs, start)[0] if offset >= start}
        assert found == set(range(start, 60))


def test_gaps_are_reported() -> None:
    fs, _, live = written(60, segment_bytes=2_000)
    second, third = live.segments[1].base_offset, live.segments[2].base_offset
    del fs.nodes[layout.segment_path(DIRECTORY, second)]
    cache = fs.nodes[layout.segment_path(DIRECTORY, 0)].cache
    cache[cache.index(b"content-type")] ^= 1
    found, gaps = bodies(fs)
    assert gaps == [(0, 0), (second, third - 1)]
    assert set(found) == set(range(1, second)) | set(range(third, 60))


def test_a_segment_file_is_walked_with_its_damage() -> None:
    fs, store, _ = written(5)
    path = layout.segment_path(DIRECTORY, 0)
    whole = [item for _, item in reader.segment_batches(path, fs)]  # type: ignore[arg-type]
    assert [item.base_offset for item in whole if not isinstance(item, Damage)] == [0, 1, 2, 3, 4]
    fs.nodes[path].cache[whole[0].total_len + 70] ^= 1  # type: ignore[union-attr]
    items = list(reader.segment_batches(path, fs))  # type: ignore[arg-type]
    damage = items[1][1]
    assert isinstance(damage, Damage) and "crc" in damage.reason and damage.end == items[2][0]
    assert [getattr(item, "base_offset", None) for _, item in items] == [0, None, 2, 3, 4]
    store.close()


def test_a_directory_without_a_store_is_an_error_with_the_reason() -> None:
    with pytest.raises(StorageError, match="no radiator store here"):
        reader.list_partitions("/nowhere", FaultyFileSystem())  # type: ignore[arg-type]


def test_what_head_speaks_of_and_is_gone_is_a_gap() -> None:
    fs, store, _ = written(30, segment_bytes=1_000)
    store.close()
    last = layout.segment_path(DIRECTORY, max(base for base in map(layout.segment_base, fs.listdir(DIRECTORY)) if base))
    first = reader.base_of(last)
    fs.remove(last)
    found, gaps = bodies(fs)
    assert list(found) == list(range(first))
    assert gaps == [(first, 29)]
    for base in filter(None, map(layout.segment_base, fs.listdir(DIRECTORY))):
        fs.remove(layout.segment_path(DIRECTORY, base))
    fs.remove(layout.segment_path(DIRECTORY, 0))
    assert bodies(fs) == ({}, [(first, 29)])


def test_an_empty_partition_is_empty() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    assert reader.list_partitions("/data", fs) == []  # type: ignore[arg-type]
    put(store.partition("q", Settings(sync=SyncPolicy(10**9))), b"not synced", destination="q")
    commit(store)
    (partition,) = reader.list_partitions("/data", fs)  # type: ignore[arg-type]
    assert (partition.next_offset, partition.segments) == (0, ())


def test_cursors_are_listed() -> None:
    fs, store, _ = written()
    store.cursors.open("b", "q", 0).ack([0, 3])
    store.cursors.open("a", "q", 5).set_count(6, 2)
    commit(store)
    for _ in range(2):
        listed = [(each.name, each.floor, each.intervals, each.counts) for each in reader.list_cursors("/data", fs)]  # type: ignore[arg-type]
        assert listed == [("a", 5, [], {6: 2}), ("b", 1, [(3, 4)], {})]
        store.close()
        store, _ = opened(fs)
