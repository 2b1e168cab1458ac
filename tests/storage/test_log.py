"""The writing end: how many system calls, where the head stands, what rolls."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from radiator.config import Settings, SyncPolicy
from radiator.storage import index, layout
from radiator.storage.file_partition import FilePartition
from radiator.storage.open_logs import OpenLogs
from radiator.storage.partition import Partition
from radiator.storage.store import Store
from tests.clocks import both, deadline
from tests.storage.driving import ALWAYS, NEVER, NOW, checkpoint, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

DIRECTORY = layout.partition_path("/data", "q")


def calls(fs: FaultyFileSystem, store: Store, partition: Partition, *bodies: bytes) -> Counter[str]:
    before = fs.calls.copy()
    put(partition, *bodies, destination="q")
    commit(store)
    return fs.calls - before


def begin_journal(store: Store) -> None:
    """The first entry makes a file, which costs a sync."""
    put(store.partition("other", ALWAYS), b"one")
    commit(store)


def head(fs: FaultyFileSystem) -> layout.Head | None:
    return layout.decode_head(bytes(fs.nodes[f"{DIRECTORY}/head"].cache))


def test_a_commit_is_a_write_and_a_sync_of_the_journal_and_a_write_of_the_segment() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    calls(fs, store, partition, b"the first makes the files")
    zeros = 0
    for _ in range(100):
        made = calls(fs, store, partition, b"one", b"two")
        zeros += made["pwritev"] - 2
        assert made["fdatasync"] == 1 and made.keys() == {"pwritev", "fdatasync"}
    assert zeros <= 1, "the journal has them ahead for a long time"


def test_a_commit_over_many_logs_is_one_sync() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partitions = [store.partition(f"q{number}", ALWAYS) for number in range(50)]
    for turn in range(3):
        for partition in partitions:
            put(partition, b"%d" % turn)
        before = fs.calls.copy()
        commit(store)
        made = fs.calls - before
        assert turn == 0 or (made["fdatasync"], made["pwritev"]) == (1, 51)


def test_never_syncs_nothing_but_a_message_that_asks_for_it() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    begin_journal(store)
    partition = store.partition("q", NEVER)
    syncs = fs.calls["fdatasync"]
    assert calls(fs, store, partition, b"one")["fdatasync"] == 0
    assert calls(fs, store, partition, b"two") == {"pwritev": 2}, "the journal and the segment"
    assert head(fs) == layout.Head(0, len(fs.nodes[layout.segment_path(DIRECTORY, 0)].cache), 2)
    put(partition, b"three", destination="q")
    partition.open_batch.sync_requested = True
    assert all(job.needs_sync for job in commit(store)) and fs.calls["fdatasync"] == syncs + 1


def test_an_interval_syncs_when_it_is_over() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    begin_journal(store)
    partition = store.partition("q", Settings(sync=SyncPolicy(50_000_000)))
    syncs = fs.calls["fdatasync"]
    assert calls(fs, store, partition, b"one")["fdatasync"] == 0
    assert partition.high_watermark == 1, "the promise of an interval is the write"
    assert head(fs) is None, "the head waits for the sync"
    assert deadline(store, NOW) == NOW + 50_000_000
    store.tick(both(NOW + 49_999_999))
    assert commit(store) == []
    store.tick(both(NOW + 50_000_000))
    assert [job.needs_sync for job in commit(store)] == [True]
    assert fs.calls["fdatasync"] == syncs + 1 and (head(fs) or ())[2:] == (1,)
    store.tick(both(NOW + 500_000_000))
    assert commit(store) == [] and deadline(store, NOW) is None


def test_an_interval_is_one_sync_for_all_logs() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    begin_journal(store)
    partitions = [store.partition(f"q{number}", Settings(sync=SyncPolicy(50_000_000))) for number in range(20)]
    for partition in partitions:
        put(partition, b"one")
    commit(store)
    syncs = fs.calls["fdatasync"]
    store.tick(both(NOW + 50_000_000))
    assert len(commit(store)) == 20 and fs.calls["fdatasync"] == syncs + 1


def test_the_head_moves_after_the_sync() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    calls(fs, store, partition, b"one")
    before = head(fs)
    put(partition, b"two", destination="q")
    decides, append = store.take(both(NOW))
    syncs = fs.calls["fdatasync"]
    decides.write()
    assert fs.calls["fdatasync"] == syncs + 1 and head(fs) == before and partition.high_watermark == 1
    append.write()
    assert head(fs) != before and partition.high_watermark == 1
    for job in (decides, append):
        job.done(both(NOW))
    assert partition.high_watermark == 2


def test_a_segment_rolls_by_size_and_the_sealed_one_has_no_zeros_and_an_index() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(segment_bytes=100_000))
    for number in range(400):
        put(partition, b"%04d" % number * 100, destination="q")
        commit(store)
    bases = [segment.base_offset for segment in partition.segments]
    assert len(bases) > 2 and bases[0] == 0
    for base, segment in zip(bases, partition.segments, strict=True):
        path = layout.segment_path(DIRECTORY, base)
        size = len(fs.nodes[path].cache)
        sealed = base != bases[-1]
        assert segment.size_bytes == size if sealed else segment.size_bytes <= size <= 100_000
        if sealed:
            entries = index.decode(bytes(fs.nodes[layout.index_path(DIRECTORY, base)].cache), base)
            assert entries and entries[0].base_offset == base
            assert path in fs.disk_names and fs.nodes[path].disk == fs.nodes[path].cache
    assert len(read_all(partition)) == 400
    store.close()
    store, notes = opened(fs)
    assert not notes
    again = store.partitions["q"]
    assert [segment.base_offset for segment in again.segments] == bases
    assert len(read_all(again)) == 400


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_only_so_many_logs_hold_descriptors(limit: int) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    store._open_logs = OpenLogs(limit)
    before = len(fs.descriptors)
    partitions = [store.partition(f"q{number}", ALWAYS) for number in range(7)]
    for turn in range(3):
        for partition in partitions:
            put(partition, b"%d" % turn)
            commit(store)
            assert len(fs.descriptors) - before <= limit + 1, "and the journal has one"
    for partition in partitions:
        assert read_all(partition) == {0: b"0", 1: b"1", 2: b"2"}
    store.close()
    assert not fs.descriptors
    store, notes = opened(fs)
    assert not notes and all(partition.next_offset == 3 for partition in store.partitions.values())


def test_when_no_descriptor_is_left_logs_are_closed_and_nothing_is_refused() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partitions = [store.partition(f"q{number}", ALWAYS) for number in range(12)]
    fs.descriptors_max = len(fs.descriptors) + 4
    cursor = store.cursors.open("c", "q0", 0)
    for turn in range(3):
        for number, partition in enumerate(partitions):
            put(partition, b"%d" % turn, destination=f"d{number + turn}")  # the list of names is one more file
            cursor.ack([turn * 20 + number])
            store.cursors.waiters.append(object())
            commit(store)
            assert partition.failed is None and store.cursors.failed is None
    for partition in partitions:
        assert read_all(partition) == {0: b"0", 1: b"1", 2: b"2"}
    store.close()
    fs.descriptors_max = None
    store, _ = opened(fs)
    assert all(partition.next_offset == 3 for partition in store.partitions.values())


def test_a_process_with_no_descriptor_and_no_open_log_says_what_is_missing() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    fs.descriptors_max = len(fs.descriptors)
    partition = store.partition("q", ALWAYS)
    put(partition, b"one")
    commit(store)
    assert partition.failed is not None and "ulimit -n" in str(partition.failed)


def test_a_group_of_many_files_of_ids_holds_one_descriptor_at_a_time() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    options = replace(ALWAYS, dedup_window_ns=10**12, dedup_count=100)
    partitions = [store.partition(f"q{number}", options) for number in range(6)]
    for partition in partitions:
        partition.dedup = partition.new_dedup()
        put(partition, b"one")
    commit(store)
    for partition in partitions:
        assert isinstance(partition, FilePartition) and partition.dedup_file is not None
        partition.dedup_file.wanted = True
        partition.queue()
    before = fs.descriptors_max = len(fs.descriptors) + 1
    store._open_logs.queue.clear()  # none to be closed instead
    commit(store)
    assert all(partition.dedup_file.synced_to == 1 for partition in partitions)  # type: ignore[attr-defined]
    assert len(fs.descriptors) < before


def test_the_list_of_names_is_written_only_where_it_says_something() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    own, shared = store.partition("/queue/own", ALWAYS), store.partition("shared", ALWAYS)
    put(own, b"", destination="/queue/own")
    for name in ("shared", "/topic/a", "shared", "/topic/b"):
        put(shared, b"", destination=name)
        commit(store)
    assert layout.names_path(layout.partition_path("/data", "/queue/own")) not in fs.nodes
    fs.kill()
    store, _ = opened(fs)
    assert store.partitions["/queue/own"].destinations.keys() == {"/queue/own"}
    assert store.partitions["shared"].destinations.keys() == {"shared", "/topic/a", "/topic/b"}


def test_all_new_names_of_a_batch_cost_one_write_and_no_sync() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("shared", ALWAYS)
    put(partition, b"", destination="/topic/first")
    commit(store)
    before = fs.calls.copy()
    for number in range(1_000):
        put(partition, b"", destination=f"/topic/{number}")
    commit(store)
    made = fs.calls - before
    assert made.keys() == {"open", "pwritev", "fdatasync"}
    assert (made["open"], made["fdatasync"]) == (1, 1) and made["pwritev"] <= 3 + 1, "maybe zeros ahead in the journal"
    fs.power_cut()
    store, _ = opened(fs)
    assert len(store.partitions["shared"].destinations) == 1_001


def test_names_whose_sync_failed_are_written_again() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("shared", ALWAYS)
    put(partition, b"", destination="/topic/first")
    commit(store)
    put(partition, b"", destination="/topic/second")
    fs.fail("fdatasync")
    commit(store)
    for step in range(1, 4):
        store.tick(both(NOW + step * 3_000_000_000))
        commit(store, NOW + step * 3_000_000_000)
    put(partition, b"", destination="/topic/third")
    commit(store)
    fs.power_cut()
    store, _ = opened(fs)
    assert store.partitions["shared"].destinations.keys() >= {"/topic/first", "/topic/third"}


def head_of(fs: FaultyFileSystem, name: str) -> layout.Head | None:
    return layout.decode_head(bytes(fs.nodes[layout.head_path(layout.partition_path("/data", name))].cache))


def test_of_many_logs_most_are_opened_for_their_writes_alone() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs, open_logs_max=4)
    logs = [store.partition(f"q{number}", ALWAYS) for number in range(20)]
    for turn in range(5):
        for partition in logs:
            put(partition, b"%d" % turn)
        before = fs.calls.copy()
        commit(store)
        made = fs.calls - before
        for partition in logs:
            assert isinstance(partition, FilePartition)
            segment, found = partition.segments[-1], head_of(fs, partition.name)
            assert found is not None and (found.position, found.next_offset) == (segment.size_bytes, turn + 1)
            assert read_all(partition, memory=False) == {number: b"%d" % number for number in range(turn + 1)}
    assert sum(partition.log.head is not None for partition in logs if isinstance(partition, FilePartition)) == 4
    assert made["open"] <= 2 * 16 + 2 and made["size"] <= 2, "who is kept open hardly changes"
    store.close()
    assert not fs.descriptors
    again, notes = opened(fs)
    assert not notes
    for partition in logs:
        assert read_all(again.partitions[partition.name]) == {number: b"%d" % number for number in range(5)}


@pytest.mark.parametrize("file", ["head", "00000000000000000000"])
def test_a_write_in_passing_that_fails_loses_nothing(file: str) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs, open_logs_max=1)
    logs = [store.partition(f"q{number}", ALWAYS) for number in range(3)]
    for partition in logs:
        put(partition, b"first")
    commit(store)
    victim = next(each for each in logs if isinstance(each, FilePartition) and each.log.fd < 0)
    fs.fail("pwritev", under=f"{victim.directory}/{file}")
    put(victim, b"second")
    commit(store)
    assert victim.failed is not None and victim.high_watermark == 2, "the journal has it"
    fs.heal()
    now = NOW
    for _ in range(4):
        now += 3_000_000_000
        store.tick(both(now))
        commit(store, now)
    assert victim.failed is None
    put(victim, b"third")
    commit(store, now)
    assert read_all(victim, memory=False) == {0: b"first", 1: b"second", 2: b"third"}


INTERVAL = Settings(sync=SyncPolicy(1_000_000_000))


def closed_before_its_interval(fs: FaultyFileSystem) -> Store:
    """Two logs with a message each, of which only one can be open."""
    store, _ = opened(fs, open_logs_max=1)
    for name in "ab":
        put(store.partition(name, INTERVAL), b"x")
        commit(store)
    assert sum(each.log.fd < 0 for each in store.partitions.values() if isinstance(each, FilePartition)) == 1
    return store


@pytest.mark.parametrize("fails", [False, True])
def test_readers_get_what_an_interval_has_synced_though_the_log_was_closed_since(fails: bool) -> None:
    fs = FaultyFileSystem()
    store = closed_before_its_interval(fs)
    now = both(NOW + 2_000_000_000)
    store.tick(now)
    if fails:
        fs.fail("pwritev", under="/head")
    commit(store, now)
    heads = [head_of(fs, name) for name in "ab"]
    assert sum(found is not None for found in heads) == (1 if fails else 2) and not store.failures()
    store.close()
    assert [found and found.next_offset for found in (head_of(fs, name) for name in "ab")] == [1, 1]


def test_readers_get_what_a_clean_stop_leaves_though_a_checkpoint_has_synced_it_and_the_log_was_closed() -> None:
    fs = FaultyFileSystem()
    store = closed_before_its_interval(fs)
    checkpoint(store)
    store.close()
    assert [found and found.next_offset for found in (head_of(fs, name) for name in "ab")] == [1, 1]
