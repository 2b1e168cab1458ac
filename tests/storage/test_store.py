"""One directory: who owns it, what is in it, what time brings."""

from __future__ import annotations

import pytest

from radiator.config import Settings, SyncPolicy
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.header import UnknownVersion
from tests.clocks import both, deadline
from tests.formats.newer import flagged, newer
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem


def test_a_partition_costs_nothing_until_it_is_written() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    before = fs.calls.copy()
    partition = store.partition("q", ALWAYS)
    assert store.partition("q", ALWAYS) is partition
    assert fs.calls == before and commit(store) == []
    with pytest.raises(ValueError, match="empty"):
        store.partition("", ALWAYS)
    with pytest.raises(ValueError, match="limit"):
        store.partition("x" * 300, ALWAYS)


def test_only_dirty_partitions_are_visited() -> None:
    store, _ = opened(FaultyFileSystem())
    partitions = [store.partition(str(number), ALWAYS) for number in range(10)]
    put(partitions[3], b"a")
    put(partitions[7], b"b")
    put(partitions[3], b"c")
    assert store.dirty
    assert [job.partition for job in commit(store) if job.batch is not None] == [partitions[3], partitions[7]]
    assert not store.dirty and commit(store) == []


def test_what_is_there_is_found_again_and_takes_its_rules_options() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("/topic/ä", Settings(segment_bytes=100_000)), b"body")
    commit(store)
    fs.kill()
    store, notes = opened(fs)
    assert not notes and list(store.partitions) == ["/topic/ä"]
    options = Settings(sync=SyncPolicy(None), segment_bytes=70_000)
    partition = store.partition("/topic/ä", options)
    assert partition.settings is options and partition.high_watermark == 1


def test_close_writes_what_is_open() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("q", Settings(sync=SyncPolicy(None))), b"body")
    store.close()
    assert not fs.descriptors and not fs.locked
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"body"}


def test_close_reports_the_first_error_and_releases_the_directory() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("q", ALWAYS), b"body")
    fs.fail("pwritev")
    with pytest.raises(StorageError, match="smartctl"):
        store.close()
    assert not fs.locked


def test_strangers_in_the_directory_are_reported_and_left_alone() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    store.close()
    fs.mkdir("/data/partitions/lost+found")
    store, notes = opened(fs)
    assert [note.kind for note in notes] == ["foreign"] and "lost+found" in str(notes[0])
    assert "/data/partitions/lost+found" in fs.dirs and not store.partitions


def test_a_newer_format_is_refused_with_the_reason_and_the_lock_is_given_back() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("q", ALWAYS), b"body")
    store.close()
    node = fs.nodes[layout.segment_path(layout.partition_path("/data", "q"), 0)]
    node.cache[:] = newer(bytes(node.cache))
    with pytest.raises(UnknownVersion, match="/data/partitions/q.*version 2"):
        opened(fs)
    assert not fs.locked


@pytest.mark.parametrize("part", [bytes(8), bytes(2 << 20)])  # more than is looked at at a time
def test_a_batch_with_a_part_of_a_newer_radiator_is_refused_and_not_cut_off(part: bytes) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("q", ALWAYS), b"body")
    store.close()
    node = fs.nodes[layout.segment_path(layout.partition_path("/data", "q"), 0)]
    node.cache[:] = stored = flagged(bytes(node.cache), part)
    with pytest.raises(UnknownVersion, match="/data/partitions/q.*flags .* of a newer radiator"):
        opened(fs)
    assert node.cache == stored


def test_the_next_deadline_is_the_earliest() -> None:
    store, _ = opened(FaultyFileSystem())
    assert deadline(store, NOW) is None
    for name, interval in (("a", 500), ("b", 300), ("c", 400)):
        put(store.partition(name, Settings(sync=SyncPolicy(interval))), b"")
    commit(store)
    assert deadline(store, NOW) == NOW + 300
    store.tick(both(NOW + 399))
    assert [job.partition.name for job in commit(store)] == ["b"]
    assert deadline(store, NOW) == NOW + 400
