"""A file whose sync or write failed is never trusted again, and the log goes on in another one without a restart."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator.config import Settings, SyncPolicy
from radiator.storage import layout, partition, reader
from radiator.storage.file_partition import FilePartition, RetryJob
from radiator.storage.journal.format import FILE_HEADER_BYTES
from radiator.storage.store import Store
from tests.clocks import both, deadline
from tests.storage.driving import (
    ALWAYS,
    NEVER,
    NOW,
    LastOf,
    answer,
    checkpoint,
    commit,
    error_of,
    opened,
    put,
    read_all,
)
from tests.storage.faults import Crash, FaultyFileSystem
from tests.storage.model import Model
from tests.tiers import sampled

SECOND = 1_000_000_000
INTERVAL = Settings(sync=SyncPolicy(SECOND))
Q = "/data/partitions/q"


def later(store: Store, now: int, seconds: int = 3) -> tuple[int, list[Any]]:
    """Time passes, and what that brings is done."""
    now += seconds * SECOND
    store.tick(both(now))
    return now, commit(store, now)


def outside(fs: FaultyFileSystem, name: str = "q") -> dict[int, bytes]:
    """What a reader of the files finds."""
    (log,) = [each for each in reader.list_partitions("/data", fs) if each.name == name]
    found: dict[int, bytes] = {}
    for batch in reader.batches(log, fs=fs):
        for offset, body in zip(batch.offsets, batch.bodies, strict=True):
            assert offset not in found
            found[offset] = body
    return found


def doubtful(fs: FaultyFileSystem, options: Settings = INTERVAL, **store_options: Any) -> tuple[Store, Any]:
    """Six messages that were told: a checkpoint has synced two, then that of the rest fails."""
    store, _ = opened(fs, **store_options)
    log = store.partition("q", options)
    put(log, b"0", destination="q")
    put(log, b"1", destination="q")
    commit(store)
    assert error_of(checkpoint(store)) is None
    for number in range(2, 6):
        put(log, b"%d" % number, destination="q")
        commit(store)
    fs.fail("fdatasync", under=Q)
    assert error_of(checkpoint(store)) is not None and log.failed is not None
    return store, log


def forget_journal(fs: FaultyFileSystem, store: Store) -> None:
    """Nothing that it has can be read, now or after a power cut."""
    for number in range(1, store.journal.file_number + 1):
        node = fs.nodes.get(store.journal.path(number))
        if node is not None:
            node.cache[FILE_HEADER_BYTES:] = bytes(len(node.cache) - FILE_HEADER_BYTES)
            node.disk, node.pending = bytes(node.cache), []


TOLD = {number: b"%d" % number for number in range(6)}


def test_after_a_failed_sync_messages_are_taken_again_without_a_restart() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"kept", destination="q")
    commit(store)
    put(log, b"refused", destination="q")
    fs.fail("fdatasync")
    assert error_of(commit(store)) is not None and log.failed is not None
    now, jobs = later(store, NOW)
    assert error_of(jobs) is None and log.failed is None
    assert put(log, b"goes on", destination="q") == [1], "its offset was never told to anybody"
    assert error_of(commit(store, now)) is None
    expected = {0: b"kept", 1: b"goes on"}
    assert read_all(log) == read_all(log, memory=False) == outside(fs) == expected
    now, _ = later(store, now)
    assert read_all(log, memory=False) == outside(fs) == expected
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == expected


def test_a_file_that_failed_is_never_written_or_synced_again() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs)
    touched = []
    pwritev, fdatasync = fs.pwritev, fs.fdatasync
    fs.pwritev = lambda fd, *rest: (touched.append(fs.descriptors[fd][0]), pwritev(fd, *rest))[1]  # type: ignore
    fs.fdatasync = lambda fd: (touched.append(fs.descriptors[fd][0]), fdatasync(fd))[1]  # type: ignore
    now = NOW
    while log.failed is not None:
        now, _ = later(store, now)
    put(log, b"x", destination="q")
    commit(store, now)
    later(store, now, 1)
    assert layout.segment_path(Q, 0) not in touched


@pytest.mark.parametrize("options", [INTERVAL, ALWAYS])
def test_receipted_batches_that_were_not_synced_are_written_again(options: Settings) -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs, options)
    _now, jobs = later(store, NOW)
    assert log.failed is None and not [job for job in jobs if job.lost]
    assert read_all(log) == read_all(log, memory=False) == outside(fs) == TOLD
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == TOLD


def test_what_the_cache_has_forgotten_is_taken_from_memory() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs)
    fs.evict(layout.segment_path(Q, 0))
    read_all(log)  # small batches in memory are merged, across the last sync
    later(store, NOW)
    assert log.failed is None and read_all(log, memory=False) == TOLD == outside(fs)
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == TOLD


def test_what_memory_has_forgotten_is_read_back() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs, tail_bytes_max=1)
    assert log.read(2) is None
    later(store, NOW)
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == TOLD


def test_what_file_and_memory_have_forgotten_is_taken_from_the_journal() -> None:
    for evicted in (False, True):  # or damaged
        fs = FaultyFileSystem()
        store, log = doubtful(fs, tail_bytes_max=1)
        segment = fs.nodes[layout.segment_path(Q, 0)]
        if evicted:
            fs.evict(layout.segment_path(Q, 0))
        else:
            at = segment.cache.index(b"\x89RDB", len(segment.cache) // 2 & ~7)
            segment.cache[at + 20] ^= 1
        now, jobs = later(store, NOW)
        assert log.failed is None and not [job for job in jobs if job.lost]
        assert read_all(log) == read_all(log, memory=False) == outside(fs) == TOLD
        assert error_of(checkpoint(store, now)) is None
        fs.power_cut()
        store, notes = opened(fs)
        assert not notes and read_all(store.partitions["q"]) == TOLD


def test_no_checkpoint_releases_the_journal_while_a_log_has_not_gone_on() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs, tail_bytes_max=1)
    fs.evict(layout.segment_path(Q, 0))
    other = store.partition("other", ALWAYS)
    now = NOW
    for number in range(5):
        put(other, b"%d" % number, destination="other")
        commit(store, now)
        now += 1  # log is asked again only after a while
        checkpoint(store, now)
    now, jobs = later(store, now)
    assert not [job for job in jobs if job.lost]
    assert read_all(log, memory=False) == TOLD
    before = store.journal.bytes
    for _ in range(2):  # the first began while the log had not gone on
        checkpoint(store, now)
        now += 3_000_000_000
    assert store.journal.bytes < before and len(fs.listdir("/data/journal")) <= 2


def test_what_is_gone_from_everywhere_is_declared_lost_and_its_offsets_are_not_given_again() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs, tail_bytes_max=1)
    fs.evict(layout.segment_path(Q, 0))
    forget_journal(fs, store)
    now, jobs = later(store, NOW)
    assert [job.lost for job in jobs if job.lost] == [[(2, 5)]]
    assert log.failed is None
    assert put(log, b"next", destination="q") == [6]
    commit(store, now)
    now, _ = later(store, now)
    expected = {0: b"0", 1: b"1", 6: b"next"}
    assert read_all(log) == read_all(log, memory=False) == outside(fs) == expected
    for _ in range(3):
        now, _ = later(store, now)
    assert read_all(log, memory=False) == outside(fs) == expected
    fs.power_cut()
    store, _ = opened(fs)
    assert read_all(store.partitions["q"]) == expected and store.partitions["q"].next_offset == 7


def test_a_file_that_cannot_be_read_is_asked_again_before_what_only_it_has_is_given_up() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs, tail_bytes_max=1)
    now, attempts = NOW, 0
    while log.failed is not None and attempts < 4:
        forget_journal(fs, store)
        fs.fail("pread", under=Q)
        now, _ = later(store, now)
        attempts += 1
    assert log.failed is not None
    now, jobs = later(store, now)
    assert log.failed is None and not [job for job in jobs if job.lost]
    assert read_all(log, memory=False) == TOLD
    fs = FaultyFileSystem()
    store, log = doubtful(fs, tail_bytes_max=1)
    forget_journal(fs, store)
    now, attempts, lost = NOW, 0, []
    while log.failed is not None:
        fs.fail("pread", under=Q)
        now, jobs = later(store, now)
        lost += [each for job in jobs for each in job.lost]
        attempts += 1
    assert attempts > 5 and lost == [(2, 5)]


def test_missing_offsets_in_a_failed_file_are_filled_from_memory_or_reported() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs)
    node = fs.nodes[layout.segment_path(Q, 0)]
    at = node.cache.index(b"\x89RDB", len(node.cache) // 2 & ~7)
    node.cache[at + 20] ^= 1
    later(store, NOW)
    assert read_all(log, memory=False) == TOLD, "memory had it"
    fs = FaultyFileSystem()
    store, log = doubtful(fs, tail_bytes_max=1)
    forget_journal(fs, store)
    node = fs.nodes[layout.segment_path(Q, 0)]
    at = node.cache.index(b"\x89RDB", len(node.cache) // 2 & ~7)
    node.cache[at + 20] ^= 1
    _, jobs = later(store, NOW)
    ((first, last),) = [lost for job in jobs for lost in job.lost]
    assert first == last and 2 <= first < 5
    assert read_all(log, memory=False) == outside(fs) == {k: v for k, v in TOLD.items() if k != first}


def test_a_disk_that_failed_under_all_of_them_is_not_asked_about_all_at_once() -> None:
    """Other partitions have to go on: their receipts wait for the group that reopens these."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    logs = [store.partition(f"q{number}", ALWAYS) for number in range(150)]
    for log in logs:
        put(log, b"kept", destination=log.name)
    while store.dirty:
        commit(store)
    pwritev = fs.pwritev

    def fails(fd: int, pieces: Any, position: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    fs.pwritev = fails  # type: ignore[method-assign]
    for log in logs:
        put(log, b"refused", destination=log.name)
    commit(store)
    assert all(log.failed is not None for log in logs)
    fs.pwritev = pwritev  # type: ignore[method-assign]
    now, groups = NOW + 3 * SECOND, 0
    store.tick(both(now))
    while store.dirty:
        asked = [job for job in commit(store, now) if isinstance(job, RetryJob)]
        assert len(asked) <= 64
        groups += 1
    assert groups >= 3 and all(log.failed is None for log in logs)


def test_reopening_is_tried_again_for_ever() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs)
    now = NOW
    for verb in ["open", "pwritev", "fdatasync", "rename", "sync_dir"] * 3:
        fs.fail(verb, under=Q)
        jobs: list[Any] = []
        while not [job for job in jobs if isinstance(job, RetryJob)]:  # before, the interval is over
            now = deadline(store, now) or 0
            store.tick(both(now))
            jobs = commit(store, now)
        assert error_of(jobs) is not None and log.failed is not None
        fs.heal()
    later(store, now)
    assert log.failed is None and read_all(log, memory=False) == TOLD == outside(fs)
    assert not [path for path in fs.nodes if path.endswith(".new")]


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.EBADF])
def test_a_write_that_fails_for_another_reason_than_room_takes_the_same_way(error: int) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    put(log, b"kept", destination="q")
    commit(store)
    checkpoint(store)
    put(log, b"in the journal", destination="q")
    fs.fail("pwritev", 1, error, under=Q)
    (job,) = [job for job in commit(store) if job.error is not None]
    assert job.postponed and not job.refused_count and log.failed is not None
    assert read_all(log) == {0: b"kept", 1: b"in the journal"}
    assert outside(fs) == {0: b"kept"}, "not yet"
    now, _ = later(store, NOW)
    commit(store, now)
    assert log.failed is None and [each.base_offset for each in log.segments] == [0, 1]
    assert put(log, b"next", destination="q") == [2]
    commit(store, now)
    expected = {0: b"kept", 1: b"in the journal", 2: b"next"}
    assert read_all(log) == read_all(log, memory=False) == outside(fs) == expected
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == expected


def test_under_never_receipted_batches_are_written_again_after_a_failed_write() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", NEVER)
    for number in range(4):
        if number == 3:
            fs.fail("pwritev", under=Q)
        put(log, b"%d" % number, destination="q")
        commit(store)
    assert log.failed is not None
    now, jobs = later(store, NOW)
    assert log.failed is None and not [job for job in jobs if job.lost]
    commit(store, now)
    expected = {number: b"%d" % number for number in range(4)}
    assert read_all(log) == read_all(log, memory=False) == outside(fs) == expected
    fs.kill()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == expected


def test_a_first_message_whose_sync_failed_leaves_nothing() -> None:
    """The new file takes the very name of the failed one."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", ALWAYS)
    fs.fail("fdatasync")
    put(log, b"refused", destination="q")
    assert error_of(commit(store)) is not None
    now, _ = later(store, NOW)
    assert put(log, b"first", destination="q") == [0]
    assert error_of(commit(store, now)) is None
    assert read_all(log, memory=False) == outside(fs) == {0: b"first"}
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"first"}


def test_an_unsynced_batch_behind_one_whose_sync_failed_is_refused_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "RECORDS_MAX", 2)
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("q", INTERVAL)
    put(log, b"A", destination="q")
    log.open_batch.sync_requested = True
    put(log, b"B", b"C", destination="q")
    fs.fail("fdatasync")
    jobs = [job for job in commit(store) if job.batch is not None]
    assert [job.error is not None for job in jobs] == [True, True]
    assert log.high_watermark == log.next_offset == 0


def test_times_and_last_n_are_not_answered_from_what_a_failed_file_still_holds() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs, tail_bytes_max=1)
    log = store.partition("q", ALWAYS)
    put(log, b"kept", destination="a")
    commit(store)
    checkpoint(store)
    put(log, b"moved", b"too", destination="a", at=NOW + 7)
    commit(store)
    fs.fail("fdatasync", under=Q)
    checkpoint(store)
    now, _ = later(store, NOW)
    put(log, b"x", destination="b", at=NOW + 10)
    put(log, b"y", destination="a", at=NOW + 20)
    commit(store, now)
    assert len(fs.nodes[layout.segment_path(Q, 0)].cache) > log.segments[0].size_bytes, "not cut yet"
    assert answer(log.offset_for_time(NOW + 7)) == 1
    assert answer(log.offset_for_time(NOW + 8)) == 3
    assert [answer(LastOf(log, count, lambda name: name == "a")) for count in (3, 4, 9)] == [1, 0, 0]
    now, _ = later(store, now)
    later(store, now)
    assert len(fs.nodes[layout.segment_path(Q, 0)].cache) == log.segments[0].size_bytes, "cut"


def test_a_failed_segment_is_not_rewritten_before_it_is_cut() -> None:
    """The cut knows a position in the file as it was."""
    fs = FaultyFileSystem()
    store, log = doubtful(fs)
    assert not log.is_healthy
    now, _ = later(store, NOW)
    assert not log.is_healthy
    now += 3 * SECOND
    store.tick(both(now))
    jobs = store.take(both(now))
    for job in jobs:
        assert not log.is_healthy, "the disk thread has not come to it yet"
        job.write()
    assert not log.is_healthy
    for job in jobs:
        job.done(both(now))
    assert log.is_healthy and len(fs.nodes[layout.segment_path(Q, 0)].cache) == log.segments[0].size_bytes


def test_a_clean_stop_cuts_at_once() -> None:
    fs = FaultyFileSystem()
    store, log = doubtful(fs)
    later(store, NOW)
    kept = log.segments[0].size_bytes
    assert len(fs.nodes[layout.segment_path(Q, 0)].cache) > kept
    store.close()
    assert len(fs.nodes[layout.segment_path(Q, 0)].cache) == kept


@pytest.mark.parametrize("end", sampled(["power", "kill"], 1))
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("options", sampled([INTERVAL, ALWAYS], 1), ids=["interval", "always"])
def test_a_crash_at_any_step_of_reopening_leaves_every_message_readable_once(
    options: Settings, cut: bool, end: str
) -> None:
    for nth in range(1, 60):
        fs = FaultyFileSystem(Random(nth))
        store, _log = doubtful(fs, options)
        now = NOW
        if cut:
            now, _ = later(store, now)
        fs.crash_at(nth)
        try:
            now, _ = later(store, now)
            finished = True
        except Crash:
            finished = cut
        done = fs.calls.total()
        (fs.kill if end == "kill" else fs.power_cut)()
        store, _ = opened(fs)
        found = read_all(store.partitions["q"])
        assert found == read_all(store.partitions["q"], memory=False) == outside(fs)
        assert not [path for path in fs.nodes if path.endswith(".new")]
        if end == "kill" or finished or options is ALWAYS:
            assert found == TOLD, (nth, done)
        else:
            assert found.items() <= TOLD.items() and found.items() >= {0: b"0", 1: b"1"}.items()


@pytest.mark.parametrize("verb", sampled(["fdatasync", "pwritev", "sync_dir"], 1))
def test_whichever_sync_fails_in_a_long_mixed_run_every_promise_holds(verb: str) -> None:
    policies = {"a": ALWAYS, "i": INTERVAL, "n": NEVER}
    nth, reached = 0, True
    while reached:
        nth += 1
        fs, model, now = FaultyFileSystem(Random(nth)), Model(), NOW
        store, _ = opened(fs, tail_bytes_max=[1, 1 << 20][nth % 2])
        logs = {
            name: store.partition(name, Settings(sync=options.sync, segment_bytes=700))
            for name, options in policies.items()
        }
        before = fs.calls[verb]
        fs.fail(verb, nth)
        for step in range(30):
            for name, log in logs.items():
                if log.failed is None and (step + len(name)) % 3:
                    body = b"%s%d." % (name.encode(), step) + b"x" * (17 * step % 90)
                    model.append(name, put(log, body, destination=f"/t/{step % 3}", at=now)[0], body)
                    if step % 7 == 3:
                        log.open_batch.sync_requested = True
            for job in commit(store, now):
                if job.batch is not None and (job.error is None or job.postponed):
                    batch = job.batch
                    model.promise(job.partition.name, range(batch.base_offset, batch.next_offset), batch.bodies)
                assert not job.lost
            now += SECOND // 2
            store.tick(both(now))
        reached = fs.calls[verb] - before >= nth
        fs.heal()
        for _ in range(3):
            now, _ = later(store, now)
        assert all(log.failed is None for log in logs.values())
        for name, log in logs.items():
            assert read_all(log) == read_all(log, memory=False) == model.promised[name], (nth, name)
            assert list(model.promised[name]) == list(range(log.next_offset))
        fs.power_cut()
        store, _ = opened(fs)
        del model.promised["n"]
        model.check(store)
    assert nth > 15


def test_a_message_that_waits_to_be_written_does_not_count_as_synced_with_the_new_file() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("p", NEVER)
    put(log, b"0")
    commit(store)
    put(log, b"1")
    fs.fail("pwritev", under=".rlog")
    commit(store)
    now = both(NOW + 3_000_000_000)
    store.tick(now)
    commit(store, now)
    assert isinstance(log, FilePartition) and log.failed is None and log.written_to == 1
    assert log.wait_point(0, True) is None and log.wait_point(1, True) is not None
    commit(store, now)
    assert log.wait_point(1, True) is None
    fs.power_cut()
    store, _ = opened(fs)
    assert read_all(store.partitions["p"]) == {0: b"0", 1: b"1"}


@pytest.mark.parametrize("seed", range(12))
def test_a_new_file_is_not_found_without_the_failed_one_before_it(seed: int) -> None:
    """The name of a segment could not be synced, and the power fails when the log continues in the next one."""
    fs = FaultyFileSystem(Random(seed))
    store, _ = opened(fs)
    log = store.partition("p", ALWAYS)
    put(log, b"0")
    checkpoint(store)
    for body in (b"1", None):
        log.request_file()
        if body is None:
            fs.fail("sync_dir", under=log.directory)
        else:
            put(log, body)
        commit(store)
    assert log.failed is not None
    now = both(NOW + 3_000_000_000)
    store.tick(now)
    fs.fail("sync_dir", under=log.directory, fatal=True)
    with pytest.raises(Crash):
        commit(store, now)
    fs.power_cut()
    store, _ = opened(fs)
    assert read_all(store.partitions["p"]) == {0: b"0", 1: b"1"}
