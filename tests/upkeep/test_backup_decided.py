"""A backup of a store whose last transaction is decided and told: in the journal, and not everywhere else yet."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator import limits
from radiator.config import Settings, SyncPolicy
from radiator.storage import layout
from radiator.storage.file_partition import FilePartition
from radiator.storage.partition import Partition
from radiator.storage.store import Store
from radiator.upkeep import consistent_point
from radiator.upkeep.backup import back_up
from radiator.upkeep.copying import Copier
from radiator.upkeep.fsck import Fsck
from radiator.upkeep.restore import restore
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.storage.test_decided import LOGS, STEPS, begun, checkpoint, decided
from tests.storage.test_redo import out_of_order
from tests.storage.test_transaction_log import left_by_a_kill

NAME = "queue:q"


def restored(fs: FaultyFileSystem) -> Store:
    made = back_up(fs, "/data", "/backup", now_ns=NOW, version="1").manifest
    restore(fs, "/backup", "/other", Copier(fs))
    found = list(Fsck("/other", fs, live=False).run())
    assert {finding.severity for finding in found} <= {"note"}, found
    store, _ = opened(fs, "/other")
    ends = {name: partition.next_offset for name, partition in store.partitions.items()}
    assert made.whole_transactions and ends == {each.name: each.next_offset for each in made.partitions}
    return store


def bodies(partition: Partition) -> list[bytes]:
    return list(read_all(partition, memory=False).values())


@pytest.mark.parametrize("steps", range(STEPS + 1))
@pytest.mark.parametrize("killed", [False, True])
def test_it_has_all_of_it_and_what_was_settled_there_stays_settled(steps: int, killed: bool) -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    decided(store, logs)
    checkpoint(store, steps)
    for log in logs:
        store.cursors.open(NAME, log.name, 0).ack([0, 1])
    store.cursors.sync_soon()
    commit(store)
    if killed:
        fs.kill()
    copy = restored(fs)
    assert len(copy.partitions) == LOGS
    for name, partition in copy.partitions.items():
        cursor = copy.cursors.get(NAME, name)
        assert bodies(partition) == [b"first", b"part"]
        assert cursor is not None and cursor.floor == 2


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_a_part_that_could_not_be_written_is_in_it_whatever_checkpoints_have_released(checkpoints: int) -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    for log in logs:
        put(log, b"part")
    store.together(logs, [], lambda holds: None)
    fs.fail("pwritev", 3, errno.ENOSPC)  # the first one decides
    commit(store)
    assert len([log for log in logs if log.postponed]) == 1
    for _ in range(checkpoints):
        checkpoint(store)
    copy = restored(fs)
    assert all(bodies(partition) == [b"first", b"part"] for partition in copy.partitions.values())


def test_batches_that_the_journal_has_out_of_order_are_in_it() -> None:
    fs = FaultyFileSystem()
    out_of_order(fs)
    assert bodies(restored(fs).partitions["a"]) == [b"0", b"1", b"2"]


def test_messages_that_wait_for_the_sync_of_an_interval_are_in_it() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("p", Settings(sync=SyncPolicy(60_000_000_000)))
    put(log, b"one")
    commit(store)
    copy = restored(fs)
    assert bodies(copy.partitions["p"]) == [b"one"]


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("segment_bytes", [1_000, 1 << 26])
@pytest.mark.parametrize("how", ["a large batch", "checkpoints"])
def test_messages_that_wait_for_the_sync_of_an_interval_and_that_no_journal_has_are_in_it(
    how: str, segment_bytes: int, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("p", Settings(segment_bytes=segment_bytes, sync=SyncPolicy(60_000_000_000)))
    wanted = [b"%d" % number * 600 for number in range(before + 1)]
    for body in wanted:
        monkeypatch.setattr(limits, "JOURNAL_PASSED_BYTES_MIN", 1 if how == "a large batch" else limits.MIB)
        put(log, body)
        commit(store)
    for _ in range(2 if how == "checkpoints" else 0):
        put(store.partition("other", ALWAYS), b"x")
        checkpoint(store)
    assert bodies(restored(fs).partitions["p"]) == wanted


@pytest.mark.parametrize("how", ["end", "middle", "all", "file"])
def test_what_a_power_failure_has_taken_of_a_segment_and_the_journal_has_is_in_it(how: str) -> None:
    """The head is on the disk already. No start has brought the segment in order."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log, wanted = store.partition("p", ALWAYS), [b"%d" % number * 100 for number in range(5)]
    ends = []
    for body in wanted:
        put(log, body)
        commit(store)
        ends.append(log.segments[-1].size_bytes)
    store.cursors.open(NAME, "p", 0).ack([0])
    store.cursors.sync_soon()
    commit(store)
    fs.kill()
    path = layout.segment_path(layout.partition_path("/data", "p"), 0)
    data = fs.nodes[path].cache
    if how == "file":
        del fs.nodes[path]
    elif how == "middle":
        data[ends[0] : ends[2]] = bytes(ends[2] - ends[0])
    else:
        del data[0 if how == "all" else ends[2] + 20 :]
    assert {found.severity for found in Fsck("/data", fs, live=False).run()} == {"note"}
    copy = restored(fs)
    cursor = copy.cursors.get(NAME, "p")
    assert bodies(copy.partitions["p"]) == wanted and cursor is not None and cursor.floor == 1


@pytest.mark.parametrize("damaged", [False, True])
def test_a_log_of_which_a_removal_has_begun_is_not_in_it(damaged: bool) -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    store.cursors.open(NAME, logs[0].name, 0)
    commit(store)
    fs.fail("mkdir", under="/removed", times=100)
    store.remove([logs[0]], lambda _: store.cursors.delete(NAME))
    for _ in range(4):
        commit(store)
    assert logs[0].name in store.removals.names and fs.listdir(logs[0].directory)  # type: ignore[attr-defined]
    fs.heal()
    if damaged:  # a start ignores it, and what was to be removed stays
        fs.nodes[layout.removals_path("/data")].cache[30] ^= 1
    copy = restored(fs)
    assert set(copy.partitions) == {log.name for log in logs[0 if damaged else 1 :]}


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_cursor_that_was_deleted_since_is_not_in_it(snapshot: bool) -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    cursor = store.cursors.open(NAME, logs[0].name, 0)
    commit(store)
    put(logs[1], b"part")
    store.together([logs[1]], [(cursor, [0])], lambda holds: cursor.ack([0]) if holds else None)
    commit(store)
    store.cursors.delete(NAME)
    if snapshot:
        checkpoint(store)
    commit(store)
    put(logs[1], b"late")
    jobs = store.take(both(NOW))
    jobs[0].write()  # in the journal alone: the copy has a journal
    copy = restored(fs)
    assert copy.cursors.names() == []
    assert bodies(copy.partitions[logs[1].name]) == [b"first", b"part", b"late"]


def test_a_cursor_that_was_made_since_the_cursors_were_read_comes_with_its_acks() -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    read = consistent_point.read_cursors

    def late(*args: object) -> object:
        found = read(*args)  # type: ignore[arg-type]
        if not store.cursors.names():
            cursor = store.cursors.open(NAME, logs[0].name, 0)
            put(logs[1], b"part")
            store.together([logs[1]], [(cursor, [0])], lambda holds: None)
            commit(store)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistent_point, "read_cursors", late)
        copy = restored(fs)
    assert bodies(copy.partitions[logs[1].name]) == [b"first", b"part"]
    made = copy.cursors.get(NAME, logs[0].name)
    assert made is not None and made.floor == 1


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_was_refused_while_the_cursors_were_read_is_not_in_it_and_what_followed_is(goes_on: bool) -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    cursors = [store.cursors.open(NAME, log.name, 0) for log in logs[:2]]
    store.cursors.sync_soon()
    commit(store)
    read, fdatasync = consistent_point.read_cursors, fs.fdatasync
    found: list[Any] = []

    def refused(fd: int) -> None:
        """The entry is written, and another process reads it, before the sync fails."""
        fs.fdatasync = fdatasync  # type: ignore[method-assign]
        found.append(read(fs, "/data"))  # type: ignore[arg-type]
        fs.fail("fdatasync")
        fdatasync(fd)

    def early(*args: Any) -> Any:
        if found:
            return read(*args)
        fs.fdatasync = refused  # type: ignore[method-assign]
        put(logs[2], b"refused")
        told: list[bool] = []
        store.together([logs[2]], [(cursors[0], [0])], told.append)
        commit(store)
        assert told == [False]
        if goes_on:
            cursors[1].ack([0])
            store.cursors.sync_soon()
            commit(store)
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistent_point, "read_cursors", early)
        copy = restored(fs)
    floors = [made.floor for log in logs[:2] if (made := copy.cursors.get(NAME, log.name)) is not None]
    assert floors == [0, int(goes_on)]
    assert bodies(copy.partitions[logs[2].name]) == [b"first"]


@pytest.mark.parametrize("deleted", [False, True])
def test_what_a_kill_of_an_earlier_version_left_is_in_it_and_a_cursor_that_was_deleted_since_is_not(
    deleted: bool,
) -> None:
    copy = restored(left_by_a_kill(deleted))
    assert all(bodies(copy.partitions[name]) == [b"first", b"part"] for name in "ab")
    cursor = copy.cursors.get("c", "a")
    assert (cursor is None) == deleted and (cursor is None or cursor.floor == 1)


class Interrupted(FaultyFileSystem):
    """Calls ``act`` before the n-th time that something of the data directory is read or listed."""

    def __init__(self, nth: int) -> None:
        super().__init__(Random(nth))
        self.recheck, self.act = nth, lambda: None

    def _count(self, path: str) -> None:
        if path.startswith("/data"):
            self.recheck -= 1
            if self.recheck == 0:
                self.act()

    def open_read(self, path: str) -> int:
        self._count(path)
        return super().open_read(path)

    def listdir(self, path: str) -> list[str]:
        self._count(path)
        return super().listdir(path)


@pytest.mark.thorough
def test_transactions_and_checkpoints_at_any_time_leave_it_whole() -> None:
    nth, over = 0, False
    while not over:
        nth += 1
        fs = Interrupted(0)
        store, _ = opened(fs, journal_file_bytes=2_000)
        logs = [store.partition(name, ALWAYS) for name in "abc"]
        for log in logs:
            put(log, b"first")
        commit(store)
        decided(store, logs, b"before")
        done: list[int] = []

        def act(store: Store = store, logs: list[Partition] = logs, done: list[int] = done) -> None:
            for number in range(3):  # the file that was oldest is used again
                decided(store, logs, b"%d" % number)
                checkpoint(store)
            done.append(1)

        fs.act, fs.recheck = act, nth
        back_up(fs, "/data", "/backup", now_ns=NOW, version="1")
        over = not done
        restore(fs, "/backup", "/other", Copier(fs))
        copy, _ = opened(fs, "/other")
        found = {tuple(bodies(partition)) for partition in copy.partitions.values()}
        assert len(found) == 1, (nth, found)
        assert found.pop()[:2] == (b"first", b"before")
    assert nth > 20


def test_a_backup_during_which_files_are_always_released_says_that_transactions_may_be_in_it_in_part() -> None:
    class Busy(FaultyFileSystem):
        def listdir(self, path: str) -> list[str]:
            names = super().listdir(path)
            if path == layout.journal_path("/data") and names and self.busy:
                self.looks += 1
                if self.looks % 4 == 1:  # not while the cursors are read
                    self.rename(f"{path}/{names[0]}", layout.journal_file_path(path, int(names[0][:10]) + 1))
            return names

        busy = False
        looks = 0

    fs = Busy()
    store, _ = opened(fs)
    put(store.partition("/queue/a", ALWAYS), b"one")
    commit(store)
    fs.busy = True
    pauses: list[int] = []
    made = back_up(fs, "/data", "/copy", now_ns=NOW, version="1", pause=lambda: pauses.append(1)).manifest
    assert (made.whole_transactions, len(pauses)) == (False, consistent_point.TRIES_MAX)
    fs.busy = False
    assert back_up(fs, "/data", "/calm", now_ns=NOW, version="1").manifest.whole_transactions


@pytest.mark.parametrize("sync", [SyncPolicy(0), SyncPolicy(60_000_000_000)], ids=["always", "interval"])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("segment_bytes", [4_096, 1 << 26])
def test_what_has_passed_the_journal_by_is_in_it_if_something_behind_it_is(
    sync: SyncPolicy, before: int, segment_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOURNAL_PASSED_BYTES_MIN", 1_000)
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    logs = [store.partition(name, Settings(segment_bytes=segment_bytes, sync=sync)) for name in "ab"]
    wanted = [b"small"] * before + [b"large" * 1_000, b"large" * 1_001, b"part"]
    for body in wanted[:-1]:
        put(logs[0], body)
        commit(store)
    heads = consistent_point.read_head

    def early(fs: Any, directory: str) -> Any:
        """Where the log stood before anything of this was synced."""
        head, raw = heads(fs, directory)
        return (None, raw and bytes(len(raw))) if directory.endswith("/a") else (head, raw)

    decided(store, logs)
    monkeypatch.setattr(consistent_point, "read_head", early)
    copy = restored(fs)
    assert bodies(copy.partitions["a"]) == wanted
    assert bodies(copy.partitions["b"]) == [b"part"]


def test_what_the_system_could_not_write_to_a_segment_is_taken_from_the_journal() -> None:
    """No sync has told the broker of it yet, and the pages have been dropped."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    path = layout.segment_path(layout.partition_path("/data", "a"), 0)
    log = store.partition("a", ALWAYS)
    for number in range(10):
        if number == 3:
            checkpoint(store)
        put(log, b"%d" % number)
        commit(store)
        if number == 6:
            fs.nodes[path].pending.clear()
            fs.evict(path)
    assert bodies(restored(fs).partitions["a"]) == [b"%d" % number for number in range(10)]


OLD_HEAD = layout.encode_head(0, 0, 0)


@pytest.mark.parametrize("head", [OLD_HEAD, b"\x89RDH1", b""])
def test_after_a_power_failure_it_has_what_a_start_finds_whatever_head_says(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head on the disk may be old and name a segment that retention has removed, or damaged, or missing."""
    monkeypatch.setattr(limits, "JOURNAL_PASSED_BYTES_MIN", 1000)
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("a", ALWAYS)
    assert isinstance(log, FilePartition)
    for body in (b"0", b"1", b"2", bytes(1000)):
        if body == b"2":
            checkpoint(store)
        put(log, body)
        if body == b"1":
            log.roll_wanted = True
        commit(store)
    fs.kill()
    if head == OLD_HEAD:
        del fs.nodes[layout.segment_path(log.directory, 0)]
    if head:
        fs.nodes[layout.head_path(log.directory)].cache[:] = head.ljust(layout.HEAD_FILE_BYTES, b"\0")
    else:
        del fs.nodes[layout.head_path(log.directory)]
    copy = restored(fs).partitions["a"]
    store, _ = opened(fs)
    found = read_all(store.partitions["a"])
    assert read_all(copy) == found and max(found) == 3


def test_a_segment_that_continues_a_failed_one_is_in_it_before_head_names_it() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("a", ALWAYS)
    assert isinstance(log, FilePartition)
    put(log, b"0")
    commit(store)
    checkpoint(store)
    put(log, b"1")
    commit(store)
    head = fs.nodes[layout.head_path(log.directory)]
    before = bytes(head.cache)
    fs.fail("fdatasync", under=".rlog")
    checkpoint(store)
    later = both(NOW + 3_000_000_000)
    store.tick(later)
    commit(store, later)
    assert fs.has_name(layout.segment_path(log.directory, 1)) and log.failed is None
    fs.kill()
    head.cache[:] = before
    fs.evict(layout.segment_path(log.directory, 0))
    back_up(fs, "/data", "/backup", now_ns=NOW, version="1")
    restore(fs, "/backup", "/other", Copier(fs))
    store, notes = opened(fs, "/other")
    assert not notes and bodies(store.partitions["a"]) == [b"0", b"1"]
