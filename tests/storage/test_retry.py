"""A write that fails in the middle of a group: what was whole is kept, what was not leaves no trace, and the log goes
on as one log when there is room again."""

from __future__ import annotations

import errno
from random import Random

import pytest

from radiator.storage import layout, partition
from radiator.storage.options import PartitionOptions, SyncPolicy
from radiator.storage.store import Store
from tests.storage.driving import ALWAYS, NOW, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.storage.model import Model

SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def batches_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "RECORDS_MAX", 2)


def recovered(store: Store, now: int) -> int:
    """Lets time pass until the disk has been asked again."""
    for _ in range(5):
        now += 3 * SECOND
        store.tick(now)
        commit(store, now)
    return now


def test_when_there_is_room_again_messages_are_taken_again() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    put(partition, b"kept")
    commit(store)
    fs.capacity = sum(len(node.cache) for node in fs.nodes.values()) + 100
    put(partition, b"x" * 500)
    assert error_of(commit(store)) is not None
    now = NOW
    for _ in range(3):
        now = store.next_deadline_ns(now) or 0
        assert now <= NOW + 15_000_000_000
        store.tick(now)
        assert error_of(commit(store, now)) is not None and partition.failed is not None, "still full"
    fs.capacity = None
    now = store.next_deadline_ns(now) or 0
    store.tick(now)
    assert error_of(commit(store, now)) is None and partition.failed is None
    assert put(partition, b"goes on") == [1]
    assert error_of(commit(store)) is None
    fs.kill()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"kept", 1: b"goes on"}


@pytest.mark.parametrize("room", range(0, 1_600, 40))
def test_wherever_the_disk_is_full_the_partition_goes_on_as_a_whole(room: int) -> None:
    """The directory, the segment, its head, the list of names, the next segment: each may be what finds no room."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", PartitionOptions(segment_bytes=400))
    fs.capacity = sum(len(node.cache) for node in fs.nodes.values()) + room
    now, kept, number = NOW, {}, 0
    while partition.failed is None and number < 20:
        (offset,) = put(partition, b"%d" % number, destination=f"{number % 3}")
        number += 1
        if error_of(commit(store, now)) is None:
            kept[offset] = b"%d" % (number - 1)
    fs.capacity = None
    while partition.failed is not None:
        now = store.next_deadline_ns(now) or 0
        store.tick(now)
        commit(store, now)
    for number in range(100, 110):
        (offset,) = put(partition, b"%d" % number)
        kept[offset] = b"%d" % number
        assert error_of(commit(store, now)) is None
        assert read_all(partition, memory=False) == kept == read_all(partition)
    head = layout.decode_head(bytes(fs.nodes["/data/partitions/q/head"].cache))
    assert head is not None and head.next_offset == partition.high_watermark
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == kept


def test_what_was_written_whole_before_the_failure_is_synced_and_told() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"first", destination="q")
    commit(store)
    put(log, b"A0", b"A1", b"B0", b"B1", b"C0", destination="q")
    fs.fail("pwritev", 2, errno.ENOSPC)
    jobs = commit(store)
    assert [job.error is not None for job in jobs] == [False, True, True]
    assert log.failed is not None and log.high_watermark == 3
    recovered(store, NOW)
    assert log.failed is None
    assert put(log, b"D") == [3]
    assert error_of(commit(store)) is None
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes
    assert read_all(store.partitions["q"]) == {0: b"first", 1: b"A0", 2: b"A1", 3: b"D"}


def test_a_sync_that_cannot_even_begin_is_final_for_the_file() -> None:
    """The hub took those offsets back while the file holds them."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"first", destination="q")
    commit(store)
    put(log, b"A0", b"A1", b"B0", destination="q")
    jobs = store.take(NOW)
    for job in jobs:
        job.write()
    log.log.fd, fd = -1, log.log.fd  # type: ignore[attr-defined]  # given back for others meanwhile
    fs.fail("open", 1, errno.EIO)
    for job in jobs:
        job.sync()
    for job in jobs:
        job.done(NOW)
    fs.close(fd)
    assert all(job.error is not None for job in jobs) and log.high_watermark == 1
    now = recovered(store, NOW)
    assert log.failed is None and put(log, b"next") == [1], "nobody was told of the offset"
    assert error_of(commit(store, now)) is None
    assert read_all(log, memory=False) == {0: b"first", 1: b"next"}


@pytest.mark.parametrize("interval_ns", [0, 50_000_000, None])
@pytest.mark.parametrize("end", ["kill", "power", "close"])
@pytest.mark.parametrize("verb", ["pwritev", "truncate", "open", "sync_dir"])
def test_no_promise_is_broken_wherever_a_group_of_several_batches_is_stopped(
    verb: str, end: str, interval_ns: int | None
) -> None:
    options = PartitionOptions(sync=SyncPolicy(interval_ns), segment_bytes=600)
    for nth in range(1, 20):
        fs, model, now, count = FaultyFileSystem(Random(nth)), Model(), NOW, 0
        store, _ = opened(fs)
        logs = [store.partition(name, options) for name in "pq"]
        fs.fail(verb, nth, errno.ENOSPC)
        if verb == "truncate":  # what a failed write left cannot be cut off at once
            fs.fail("pwritev", max(1, nth - 2), errno.ENOSPC)
        for step in range(8):
            for log in logs:
                for _ in range(1 + (step + nth) % 5):
                    if log.failed is None:
                        body, count = b"%d." % count + b"x" * (count % 90), count + 1
                        model.append(log.name, put(log, body, destination=f"/t/{count % 3}")[0], body)
            for job in commit(store, now):
                if job.batch is not None and job.error is None:
                    model.promise(
                        job.partition.name, range(job.batch.base_offset, job.batch.next_offset), job.batch.bodies
                    )
            if step % 4 == 3:
                now = recovered(store, now)
        fs.heal()
        assert all(log.failed is None for log in logs)
        for log in logs:
            assert read_all(log) == read_all(log, memory=False)
        if end == "power":
            if interval_ns is None:
                model.promised.clear()
            fs.power_cut()
        elif end == "kill":
            fs.kill()
        else:
            store.close()
        store, _ = opened(fs)
        model.check(store)


def test_a_clean_stop_syncs_what_is_whole_in_a_log_that_has_failed() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", PartitionOptions(sync=SyncPolicy(60 * SECOND)))
    put(log, b"A0", b"A1", b"B0", destination="q")
    fs.fail("pwritev", 3, errno.ENOSPC)  # the head, the first batch, the second
    jobs = commit(store)
    assert [job.error is not None for job in jobs] == [False, True]
    store.close()
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"A0", 1: b"A1"}
    head = layout.decode_head(bytes(fs.nodes[layout.head_path(layout.partition_path("/data", "q"))].cache))
    assert head is not None and head.next_offset == 2


def test_a_retry_of_a_log_that_works_does_nothing() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"one", destination="q")
    commit(store)
    before = fs.calls.copy()
    log.log.retry(1)  # type: ignore[attr-defined]
    assert fs.calls == before and log.failed is None


def test_a_log_whose_first_write_failed_is_not_forgotten() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    fs.fail("pwritev", 1, errno.ENOSPC)
    put(log, b"one", destination="q")
    commit(store)
    store.forget(log)
    assert store.partition("q", ALWAYS) is log, "another writer of the same file would be cut off by its retry"
    recovered(store, NOW)
    store.forget(log)
    assert store.partition("q", ALWAYS) is log
    empty = store.partition("empty", ALWAYS)
    store.forget(empty)
    assert "empty" not in store.partitions
