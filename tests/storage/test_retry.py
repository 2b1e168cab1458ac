"""A write that fails in the middle of a group: what the journal has will be there, what it has not leaves no trace, and
the log goes on as one log when there is room again."""

from __future__ import annotations

import errno
from random import Random

import pytest

from radiator.config import Settings, SyncPolicy
from radiator.storage import layout, partition
from radiator.storage.file_partition import FilePartition
from radiator.storage.journal.format import FILE_HEADER_BYTES
from radiator.storage.journal.journal import AHEAD_BYTES_MIN
from radiator.storage.store import Store
from tests.clocks import both, deadline
from tests.storage.driving import ALWAYS, NOW, checkpoint, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.storage.model import Model
from tests.tiers import sampled

SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def batches_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "RECORDS_MAX", 2)


def recovered(store: Store, now: int) -> int:
    """Lets time pass until the disk has been asked again."""
    for _ in range(5):
        now += 3 * SECOND
        store.tick(both(now))
        commit(store, now)
    return now


def test_when_there_is_room_again_messages_are_taken_again() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    put(partition, b"kept")
    commit(store)
    fs.fill(100)
    put(partition, b"x" * 500)
    (job,) = [job for job in commit(store) if job.error is not None]
    assert job.postponed and not job.refused_count, "the journal had room for it, in its zeros"
    now = NOW
    for _ in range(3):
        now = deadline(store, now) or 0
        assert now <= NOW + 15_000_000_000
        store.tick(both(now))
        assert error_of(commit(store, now)) is not None and partition.failed is not None, "still full"
    fs.capacity = None
    now = deadline(store, now) or 0
    store.tick(both(now))
    assert error_of(commit(store, now)) is None and partition.failed is None
    assert put(partition, b"goes on") == [2]
    assert error_of(commit(store)) is None
    expected = {0: b"kept", 1: b"x" * 500, 2: b"goes on"}
    assert read_all(partition) == expected
    fs.kill()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == expected


def test_when_the_journal_has_room_again_messages_are_taken_again() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    logs = [store.partition(name, ALWAYS) for name in "pq"]
    for log in logs:
        put(log, b"kept")
    commit(store)
    refused = b"x" * 2 * AHEAD_BYTES_MIN  # more than its zeros
    fs.fill(100)
    for log in logs:
        put(log, refused)
    jobs = [job for job in commit(store) if job.batch is not None]
    assert [job.refused_count for job in jobs] == [1, 1] and all(log.failed is not None for log in logs)
    assert [log.next_offset for log in logs] == [1, 1]
    now = NOW
    for _ in range(3):
        now = deadline(store, now) or 0
        store.tick(both(now))
        assert error_of(commit(store, now)) is not None and all(log.failed is not None for log in logs), "still full"
    fs.capacity = None
    while any(log.failed is not None for log in logs):
        now = deadline(store, now) or 0
        store.tick(both(now))
        commit(store, now)
    for log in logs:
        assert put(log, b"goes on") == [1]
    assert error_of(commit(store, now)) is None
    for log in logs:
        assert read_all(log) == {0: b"kept", 1: b"goes on"}
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes
    assert [read_all(store.partitions[name]) for name in "pq"] == [{0: b"kept", 1: b"goes on"}] * 2


# The journal takes what it can get for its zeros; the rest is for the others.
ROOMS = [*range(0, 300, 20), *range(AHEAD_BYTES_MIN + FILE_HEADER_BYTES, AHEAD_BYTES_MIN + 2_000, 40)]


@pytest.mark.parametrize("room", sampled(ROOMS, 16))
def test_wherever_the_disk_is_full_the_partition_goes_on_as_a_whole(room: int) -> None:
    """The journal, the segment, its head, the list of names, the next segment: each may be what finds no room."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(segment_bytes=400))
    fs.fill(room)
    now, kept, number = NOW, {}, 0
    while partition.failed is None and number < 20:
        (offset,) = put(partition, b"%d" % number, destination=f"{number % 3}")
        number += 1
        jobs = commit(store, now)
        if error_of(jobs) is None or any(job.postponed for job in jobs):
            kept[offset] = b"%d" % (number - 1)
    fs.capacity = None
    while partition.failed is not None:
        now = deadline(store, now) or 0
        store.tick(both(now))
        commit(store, now)
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


def test_what_the_journal_has_is_written_when_there_is_room_again() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"first", destination="q")
    commit(store)
    put(log, b"A0", b"A1", b"B0", b"B1", b"C0", destination="q")
    fs.fail("pwritev", 2, errno.ENOSPC, under="/partitions/")
    jobs = [job for job in commit(store) if job.batch is not None]
    assert [job.error is not None for job in jobs] == [job.postponed for job in jobs] == [False, True, True]
    assert log.failed is not None and log.high_watermark == 6
    assert isinstance(log, FilePartition) and log.written_to == 3
    assert list(read_all(log).values()) == [b"first", b"A0", b"A1", b"B0", b"B1", b"C0"], "readers have it"
    recovered(store, NOW)
    assert log.failed is None and log.written_to == 6
    assert put(log, b"D") == [6]
    assert error_of(commit(store)) is None
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes
    bodies = [b"first", b"A0", b"A1", b"B0", b"B1", b"C0", b"D"]
    assert read_all(store.partitions["q"]) == dict(enumerate(bodies))


def test_what_the_journal_has_not_leaves_no_trace() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"first", destination="q")
    commit(store)
    put(log, b"A0", b"A1", b"B0", b"B1", b"C0", destination="q")
    fs.fail("pwritev", 1, errno.ENOSPC, under="/journal/")
    jobs = [job for job in commit(store) if job.batch is not None]
    assert [job.error is not None for job in jobs] == [True, True, True] and not any(job.postponed for job in jobs)
    assert log.failed is not None and log.high_watermark == log.next_offset == 1
    recovered(store, NOW)
    assert log.failed is None
    assert put(log, b"D") == [1]
    assert error_of(commit(store)) is None
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes
    assert read_all(store.partitions["q"]) == {0: b"first", 1: b"D"}


def test_a_sync_that_cannot_even_begin_is_final_for_the_file() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"first", destination="q")
    commit(store)
    checkpoint(store)
    put(log, b"A0", b"A1", b"B0", destination="q")
    commit(store)
    fs.fail("open", 1, errno.EIO, under=layout.segment_path(log.directory, 0))
    assert error_of(checkpoint(store)) is not None and log.failed is not None
    now = recovered(store, NOW)
    assert log.failed is None and [each.base_offset for each in log.segments] == [0, 1]
    assert put(log, b"next") == [4]
    assert error_of(commit(store, now)) is None
    assert read_all(log, memory=False) == {0: b"first", 1: b"A0", 2: b"A1", 3: b"B0", 4: b"next"}


@pytest.mark.parametrize("interval_ns", sampled([0, 50_000_000, None], 1))
@pytest.mark.parametrize("end", sampled(["power", "kill", "close"], 1))
@pytest.mark.parametrize("verb", ["pwritev", "truncate", "open", "sync_dir"])
@pytest.mark.parametrize("under", ["/partitions/", "/journal"])
def test_no_promise_is_broken_wherever_a_group_of_several_batches_is_stopped(
    under: str, verb: str, end: str, interval_ns: int | None
) -> None:
    options = Settings(sync=SyncPolicy(interval_ns), segment_bytes=600)
    for nth in range(1, 20):
        fs, model, now, count = FaultyFileSystem(Random(nth)), Model(), NOW, 0
        store, _ = opened(fs)
        logs = [store.partition(name, options) for name in "pq"]
        fs.fail(verb, nth, errno.ENOSPC, under)
        if verb == "truncate":  # what a failed write left cannot be cut off at once
            fs.fail("pwritev", max(1, nth - 2), errno.ENOSPC, under)
        for step in range(8):
            for log in logs:
                for _ in range(1 + (step + nth) % 5):
                    if log.failed is None:
                        body, count = b"%d." % count + b"x" * (count % 90), count + 1
                        model.append(log.name, put(log, body, destination=f"/t/{count % 3}")[0], body)
            for job in commit(store, now):
                if job.batch is not None and (job.error is None or job.postponed):
                    model.promise(
                        job.partition.name, range(job.batch.base_offset, job.batch.next_offset), job.batch.bodies
                    )
            if step % 4 == 3:
                now = recovered(store, now)
        unhurt = fs.harmless
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
        if unhurt:
            break  # no later call can be reached either


def test_a_clean_stop_syncs_what_is_whole_in_a_log_that_has_failed() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", Settings(sync=SyncPolicy(60 * SECOND)))
    put(log, b"A0", b"A1", b"B0", destination="q")
    fs.fail("pwritev", 3, errno.ENOSPC, "/partitions/")  # the head, the first batch, the second
    jobs = [job for job in commit(store) if job.batch is not None]
    assert [job.error is not None for job in jobs] == [False, True] and jobs[1].postponed
    store.close()
    head = layout.decode_head(bytes(fs.nodes[layout.head_path(layout.partition_path("/data", "q"))].cache))
    assert head is not None and head.next_offset == 2
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"A0", 1: b"A1", 2: b"B0"}


def test_a_retry_of_a_log_that_works_does_nothing() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"one", destination="q")
    commit(store)
    before = fs.calls.copy()
    log.log.retry(1)  # type: ignore[attr-defined]
    assert fs.calls == before and log.failed is None


@pytest.mark.parametrize("under", ["/partitions/", "/journal/"])
def test_a_log_whose_first_write_failed_is_not_forgotten(under: str) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    fs.fail("pwritev", 1, errno.ENOSPC, under)
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
