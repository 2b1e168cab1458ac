"""Checkpoints that fail, and what their retries cost."""

from __future__ import annotations

import errno
from random import Random

import pytest

from radiator import limits
from radiator.config import Settings
from radiator.storage import layout
from radiator.storage.journal.checkpoint import RETRY_EVERY_NS
from radiator.storage.journal.format import FILE_HEADER_BYTES
from radiator.storage.store import Store
from radiator.timers import NEVER_NS
from tests.clocks import both
from tests.storage.driving import ALWAYS, NEVER, NOW, appends, commit, error_of, opened, put, read_all
from tests.storage.faults import Crash, FaultyFileSystem

FOREVER = 1_000_000
ATTEMPTS = 6
FILE_BYTES = 64 * limits.KIB
PLACES = ["/cursors/snapshot.copy", "/cursors/snapshot", "/data/subscriptions"]


def attempt(store: Store, number: int) -> bool:
    """Let the time of one retry pass. Return whether a checkpoint was made."""
    now, made = both(NOW + number * (RETRY_EVERY_NS + 1)), store.checkpoints.made
    store.tick(now)
    commit(store, now)
    begun = store.checkpoints.take()
    if begun is not None:
        begun.run(threads=1)
        store.checkpoints.done(begun)
        commit(store, now)
    return store.checkpoints.made > made


def refusing(fs: FaultyFileSystem, place: str) -> Store:
    """A store with a message, a cursor and a name, which cannot write its snapshot."""
    store, _ = opened(fs, journal_file_bytes=FILE_BYTES)
    put(store.partition("p", ALWAYS), b"first")
    store.cursors.open("queue:q", "p", 0)
    store.definitions.put("sub:a", {"destination": "/topic/a"})
    commit(store)
    fs.fail("rename", 1, errno.EROFS, under=place, times=FOREVER)
    return store


@pytest.mark.parametrize("place", PLACES)
def test_a_retry_begins_no_file_of_the_journal_and_ready_says_what_is_wrong(place: str) -> None:
    fs = FaultyFileSystem()
    store = refusing(fs, place)
    store.journal.wants_checkpoint = True
    assert not attempt(store, 1) and store.journal.file_number == 2
    for number in range(2, ATTEMPTS):
        put(store.partitions["p"], b"%d" % number)
        assert not attempt(store, number)
        (reason,) = store.failures()
        assert place in reason and "cannot write the snapshot: Read-only file system" in reason
        assert store.journal.file_number == 2
    fs.heal()
    assert attempt(store, ATTEMPTS) and not store.failures()
    assert (store.journal.file_number, len(fs.listdir(store.journal.directory))) == (2, 2), "one is to be used again"
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and store.cursors.names() == [("queue:q", "p")] and store.definitions.entries
    assert list(read_all(store.partitions["p"]).values()) == [b"first", b"2", b"3", b"4", b"5"]


def test_retries_do_not_change_the_bound_of_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOURNAL_FILE_BYTES", FILE_BYTES)
    fs = FaultyFileSystem()
    store = refusing(fs, "/cursors/snapshot")
    store.journal.wants_checkpoint = True
    number = 0
    while not store.checkpoints_behind:
        number += 1
        put(store.partitions["p"], b"x" * 4_000)
        assert error_of(appends(commit(store, NOW + number * (RETRY_EVERY_NS + 1)))) is None
        assert not attempt(store, number)
    bound = limits.JOURNAL_FILES_MAX * FILE_BYTES
    assert bound < store.journal.bytes <= bound + FILE_BYTES
    assert store.journal.file_number <= 2 * limits.JOURNAL_FILES_MAX + 2, "as full files come, and not as retries"
    assert number > 2 * store.journal.file_number
    fs.heal()
    assert attempt(store, number + 1) and not store.checkpoints_behind
    assert store.journal.bytes <= FILE_BYTES
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and len(read_all(store.partitions["p"])) == 1 + number


@pytest.mark.parametrize("last", ["snapshot fails", "checkpoint is made"])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_that_cannot_be_written_is_copied_once_by_all_retries(last: str, seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store = refusing(fs, "/cursors/snapshot")
    log = store.partitions["p"]
    put(log, b"part")
    store.together([log], [], lambda holds: None)
    fs.fail("pwritev", 1, errno.ENOSPC, under="/partitions/", times=FOREVER)
    commit(store)
    assert log.failed is not None
    store.journal.wants_checkpoint = True
    assert not attempt(store, 1)
    position = store.journal.position
    assert position > FILE_HEADER_BYTES
    for number in range(2, ATTEMPTS):
        assert not attempt(store, number)
        assert (store.journal.file_number, store.journal.position) == (2, position)
    if last == "checkpoint is made":
        fs._faults.pop("rename")
        assert attempt(store, ATTEMPTS)
        store.journal.wants_checkpoint = True
        assert attempt(store, ATTEMPTS + 1), "the next one begins a file, to which the batch is copied"
        assert store.journal.file_number == 3
    fs.power_cut()
    store, _ = opened(fs)
    assert list(read_all(store.partitions["p"]).values()) == [b"first", b"part"]


def test_a_retry_that_is_due_during_a_checkpoint_waits_for_its_end() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("p", ALWAYS), b"first")
    cursor = store.cursors.open("queue:q", "p", 0)
    store.journal.wants_checkpoint = True
    commit(store)
    begun = store.checkpoints.take()
    assert begun is not None and store.checkpoints.deadline_ns == NEVER_NS
    cursor.ack([0])
    fs.fail("fdatasync", 1, under="/journal/")
    store.cursors.sync_soon()
    commit(store)
    assert store.cursors.failed is not None
    for number in range(3):
        commit(store, NOW + number * RETRY_EVERY_NS)
        assert store.checkpoints.deadline_ns == NEVER_NS and store.checkpoints.take() is None
    begun.run(threads=1)
    store.checkpoints.done(begun)
    commit(store, NOW + 3 * RETRY_EVERY_NS)
    assert store.cursors.failed is not None, "its snapshot was of a moment before"
    assert store.checkpoints.deadline_ns <= NOW + 4 * RETRY_EVERY_NS
    assert attempt(store, 5) and store.cursors.failed is None
    assert store.checkpoints.deadline_ns == NEVER_NS


@pytest.mark.parametrize(("place", "checkpoints"), [(".rlog", 3), ("/journal/", 0)])
def test_a_start_writes_again_what_the_kernel_may_have_given_up(place: str, checkpoints: int) -> None:
    """A sync fails, and the process is killed before it learns of it: no mark says so, and later syncs succeed."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("p", ALWAYS), b"first")
    commit(store)
    put(store.partitions["p"], b"second")
    store.journal.wants_checkpoint = True
    fs.fail("fdatasync", under=place, fatal=True)
    with pytest.raises(Crash):
        commit(store)
        attempt(store, 1)
    fs.kill()
    store, notes = opened(fs)
    assert not notes and list(read_all(store.partitions["p"]).values()) == [b"first", b"second"]
    for number in range(2, 2 + checkpoints):  # after these, nothing is left of the old journal
        store.journal.wants_checkpoint = True
        assert attempt(store, number)
        put(store.partitions["p"], b"%d" % number)
        commit(store)
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and list(read_all(store.partitions["p"]).values())[:2] == [b"first", b"second"]


@pytest.mark.parametrize("later", [NEVER, ALWAYS])
@pytest.mark.parametrize("checkpoints", [0, 1])
@pytest.mark.parametrize("fatal", ["a repeat", "a checkpoint", "a start"])
def test_a_sync_covers_what_the_kernel_may_have_given_up_under_never(
    later: Settings, checkpoints: int, fatal: str
) -> None:
    """No journal has it any more, and the process was killed before it learned that the segment's sync had failed.

    After the restart, maybe under another rule, a checkpoint syncs the segment, for a later message, before the repeat
    of the first one does.
    """
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("p", NEVER)
    put(log, b"first")
    for number in range(3):
        put(store.partition("other", ALWAYS), b"")
        store.journal.wants_checkpoint = True
        attempt(store, number)
    if fatal == "a start":
        fs.kill()
        head = fs.nodes[layout.head_path("/data/partitions/p")].cache
        head[:] = (layout.encode_head(0, 1, 0) + bytes(len(head)))[: len(head)]
    fs.fail("fdatasync", under="/p/", fatal=True)
    with pytest.raises(Crash):
        if fatal == "a start":
            opened(fs)
        if fatal == "a repeat":
            log.wait_point(0, True)
            commit(store)
        put(log, b"durable")
        log.open_batch.request_sync()
        commit(store)
        store.journal.wants_checkpoint = True
        attempt(store, 3)
    fs.kill()
    store, _ = opened(fs)
    log = store.partition("p", later)
    for number in range(checkpoints):
        put(log, b"later")
        log.open_batch.request_sync()
        commit(store)
        assert attempt(store, 4 + number)
    log.wait_point(0, True)
    assert error_of(commit(store)) is None and log.wait_point(0, True) is None
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["p"])[0] == b"first"
