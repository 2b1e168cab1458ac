"""All named cursors of a store: a snapshot, replaced by atomic rename, and one journal that they share.

    hub: cursor.ack() -> dirty -> take() -> CursorJob (one entry) ...disk thread... -> done: waiters may be told

What is written when: the changes of a turn at once, with the batches of the same turn. Synced when: at once if a
receipt waits and its cursor's policy says always; else within SYNC_WITHIN_NS (an ACK without a receipt has been
promised nothing: losing it in a power cut means a redelivery, not a loss).
When the journal has grown beyond CURSOR_JOURNAL_BYTES_MAX a snapshot takes its place. Each ``take()`` encodes some
cursors for it (SLICE_BYTES) and the journal goes on, until all are encoded. Changes of cursors that are encoded already
are added as the records that the journal gets too, so the snapshot has the state of the moment when it is taken.

``CursorStore`` belongs to the hub, its ``log`` (``cursor_log``) to the disk thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from radiator import limits
from radiator.clock import MonoNs, Now
from radiator.errors import StorageError
from radiator.storage import cursor_journal as journal
from radiator.storage import cursor_snapshot
from radiator.storage.counted import HINTS_BYTES
from radiator.storage.cursor import Cursor, later, ranges
from radiator.storage.cursor_journal import CursorState
from radiator.storage.cursor_log import CursorLog
from radiator.storage.cursor_snapshot import SNAPSHOT
from radiator.storage.files import FileSystem, read_file, write_all
from radiator.storage.hints import Hints
from radiator.storage.jobs import SHORT_BYTES_MAX, Job
from radiator.storage.open_logs import Again, once
from radiator.storage.options import SyncPolicy
from radiator.timers import NEVER_NS

SYNC_WITHIN_NS = 50_000_000
RETRY_EVERY_NS = 2_000_000_000  # how soon a failed journal is made up for by a snapshot
ALWAYS = SyncPolicy()
DELIVERED = "delivered"
SLICE_BYTES = 64 * limits.KIB  # of a snapshot, encoded in one turn: about 600 cursors, and one of any size


class CursorJob(Job):
    """The changes of one turn, or a snapshot in their place."""

    __slots__ = ("created", "data", "generation", "lasting", "no_room", "snapshot", "store", "together")

    def __init__(
        self,
        store: CursorStore,
        data: bytes,
        generation: int | None,
        waiters: list[Any],
        needs_sync: bool,
        together: tuple[bytes, bytes] = (b"", b""),
        snapshot: list[bytes] | None = None,
    ) -> None:
        super().__init__(None, needs_sync)
        self.store = store
        self.data = data
        # Records of acks in transactions over several files (``TransactionJob``), and of cursors that still are there.
        self.together, self.lasting = together
        self.generation = generation  # None: an entry; else a snapshot, and the journal that goes on from it
        self.snapshot = snapshot or []  # its records
        self.waiters = waiters
        self.no_room = False  # that is why it failed
        self.created = b""  # records of new cursors: as durable as the messages of their group

    @property
    def short(self) -> bool:
        return self.generation is None and not self.together and len(self.data) <= SHORT_BYTES_MAX

    @property
    def keeper(self) -> CursorStore:
        return self.store

    @property
    def refusals(self) -> int:
        return len(self.waiters)

    def write(self) -> None:
        log = self.store.log
        try:
            if self.generation is not None:
                log.replace(self.generation, journal.snapshot(self.generation, self.snapshot))
            elif self.data:
                log.append(self.data)
            if self.together and self.lasting:  # else it was not decided
                log.append(journal.entry([self.lasting]))
        except StorageError as error:
            self.error, self.no_room = error, log.no_room

    def sync(self) -> None:
        if self.error is None:
            try:
                self.store.log.sync()
            except StorageError as error:
                self.error, self.no_room = error, self.store.log.no_room

    def done(self, now: Now) -> None:
        self.store.written(self, now.mono)


class CursorStore:
    """Hub only, but for ``log``."""

    name = "cursors"  # as the operator's log has it

    def __init__(self, fs: FileSystem, directory: str, again: Again = once) -> None:
        self.fs = fs
        self.directory = directory
        self.log = CursorLog(fs, directory, again)
        self.waiters: list[Any] = []  # who waits for what is dirty now; the next take() takes them along
        self.failed: StorageError | None = None
        self.sync_due_ns: MonoNs | None = None
        self._retry_due_ns: MonoNs | None = None
        self._held = False  # receipts wait for room, until the next attempt
        self._cursors: dict[tuple[str, str], Cursor] = {}
        self._partitions: dict[str, list[str]] = {}  # by cursor name
        self._facts: dict[Cursor, tuple[int, int, str, str]] = {}  # number, slot, name, partition
        self._sync: dict[Cursor, SyncPolicy] = {}
        self._dirty: list[Cursor] = []
        self._records: list[bytes] = []  # creations and deletions, in order
        self._created: list[bytes] = []  # of those: which the journal of the data directory gets, too
        self._next_number = 1
        self._together: list[tuple[Cursor, bytes]] = []  # acks in transactions over several files
        self._free_slots: list[int] = []
        self._next_slot = 0
        self._slots: memoryview = memoryview(b"")
        self._hints = Hints(self._slots)
        self._journal_bytes = 0
        self._ahead: list[bytes] = []  # records of the snapshot that is being encoded
        self._unencoded: dict[Cursor, None] | None = None  # cursors that these lack; None: no snapshot is being encoded
        self._generation = 0  # of the journal
        self.entries_to = 1  # acks in earlier entries of the data directory's journal are here
        self._unsynced = False  # something of an `always` cursor has been written and not synced

    # --- opening ------------------------------------------------------------------------------------------------------

    def load(self, ends: Mapping[str, int], redo: Iterable[tuple[int, bytes]] = (), next_entry: int = 1) -> list[str]:
        """Reads snapshot and journal; what was found wrong, in words. Before any other thread runs. ``redo``: acks of
        transactions that were decided, by the numbers of their entries in the data directory's journal, which goes on
        with ``next_entry``.

        ``ends`` has the next offset of every partition. A cursor beyond the end of its log (which lost it in a power
        cut, as its policy allows) is set back: those offsets will be given to new messages.
        """
        fs, notes = self.fs, []
        fs.mkdir(self.directory)
        found = journal.generations(fs.listdir(self.directory))
        snapshot = cursor_snapshot.read(fs, self.directory, found[-1] if found else 0)
        generation, states, fold = snapshot.generation, snapshot.states, not snapshot.alike
        if snapshot.damaged:
            kept = f"{self.directory}/{SNAPSHOT}.damaged"
            fs.rename(f"{self.directory}/{SNAPSHOT}", kept)
            remedy = "its copy is used" if snapshot.copied else "cursors that only it knew start again"
            notes.append(f"{kept}: could not be read; {remedy}")
        elif snapshot.copied:
            notes.append(f"{self.directory}/{SNAPSHOT}: is gone; its copy is used")
        elif generation is None and found and found[-1]:
            notes.append(f"{self.directory}/{SNAPSHOT}: is gone; cursors that only it knew start again")
        if generation is None:
            fold = snapshot.damaged
            generation = found[-1] if found else 0
        if found and found[0] < generation:
            fs.sync_dir(self.directory)  # the snapshot's name first: an earlier run may have failed to sync it
        for old in found:
            if old < generation:
                fs.remove(self.log.path(old))
        self.log.generation = self._generation = generation
        data = read_file(fs, self.log.path(generation)) or b""
        fold = fold or bool(data)
        deleted: set[int] = set()
        end, lost = journal.replay(data, states, deleted)
        if lost:
            notes.append(f"{self.log.path(generation)}: {lost} bytes damaged; acks in them will be redelivered")
        if data[end:].strip(b"\0"):
            notes.append(f"{self.log.path(generation)}: torn tail of {len(data) - end} bytes passed over")
        known_to, entries_to = (0, 0) if snapshot.snapshot is None else snapshot.snapshot[1:]
        self._next_number = max([known_to, *deleted]) + 1  # none is given twice
        self.entries_to = max(entries_to, next_entry)
        for number, acks in redo:
            if number >= entries_to:  # else what it settled may have been lost since, and its offsets given again
                fold = True
                journal.redo(acks, states, deleted, known_to)
        self._map_slots()
        counted = self._hints.counted.revive(generation)
        latest = {(state.name, state.partition): state for state in states.values()}
        fold = fold or len(latest) < len(states)  # a deletion was lost, and the creation that followed was not
        slots: set[int] = set()
        for state in latest.values():
            if state.slot in slots or state.slot >= limits.CURSORS_MAX:
                fold = True
                state.slot = next(slot for slot in range(limits.CURSORS_MAX) if slot not in slots)
            slots.add(state.slot)
            end = ends.get(state.partition, 0)
            if max([state.floor, *(stop for _, stop in state.changes)]) > end:
                fold = True
                notes.append(f"{state.name}: was ahead of the log {state.partition}, which ends at {end}; set back")
            fold |= self._revive(state, end, counted.pop(state.slot, {}))
        fold = fold or bool(counted)
        if fold:
            # Folded into a snapshot: nothing of it hangs on pages that an earlier run failed to sync.
            self._generation = self._hints.counted.generation = self._generation + 1
            try:
                while not self._encode_slice():
                    pass
                self.log.replace(self._generation, journal.snapshot(self._generation, self._encoded()))
                self._hints.written()
            except StorageError as error:
                if not self.log.no_room:
                    raise
                notes.append(f"{error}; acks are not stored until there is room")
                self.failed, self._held, self._retry_due_ns = error, True, MonoNs(0)
        used = {facts[1] for facts in self._facts.values()}
        self._next_slot = max(used, default=-1) + 1
        self._free_slots = [slot for slot in range(self._next_slot) if slot not in used]
        return notes

    def _map_slots(self) -> None:
        fs, size = self.fs, HINTS_BYTES
        fd = fs.open(f"{self.directory}/{DELIVERED}", create=True)
        try:
            have = fs.size(fd)
            if have < size:  # allocated as a whole: a hole in a mapping on a full disk would be a SIGBUS
                write_all(fs, fd, [bytes(size - have)], have)
            self._slots = fs.map(fd, size).cast("Q")
            self._hints = Hints(self._slots)
        finally:
            fs.close(fd)

    def _revive(self, state: CursorState, end: int, counted: Mapping[int, int]) -> bool:
        """True if counts that are stored are no longer what they say: that is to be stored before anything else is.
        ``counted``: those that were not stored in time."""
        cursor = Cursor(min(state.floor, end))
        for start, stop in state.changes:
            cursor.ack_range(start, min(stop, end))
        for offset, count in state.counts.items():
            if offset < end and not cursor.is_acked(offset):
                cursor.counts[offset] = count
        self._add(cursor, state.number, state.slot, state.name, state.partition)
        self._next_number = max(self._next_number, state.number + 1)
        counts = cursor.counts
        first, stop = self._hints.handed.revive(state.slot)
        stop = min(stop, end)
        zeros = [offset for offset, count in counts.items() if not count]
        had = [offset + 1 for offset, count in counts.items() if count]
        had += [offset + 1 for offset, count in counted.items() if count > 1 and offset < end]
        known = min(zeros, default=end)  # behind a message that nobody has had only counts tell
        cursor.delivered = max(cursor.delivered, min(max([*had, stop]), known))
        fresh = max(cursor.delivered, cursor.ceiling)  # what is above goes out as new, and counts from there
        void = [each for each in zeros if each >= fresh or (each < cursor.delivered and first <= each < stop)]
        for offset in void:
            del counts[offset]
        for offset, count in counted.items():
            if offset < end and not cursor.is_acked(offset):
                counts[offset] = max(count, counts.get(offset, 0), key=later)
        return bool(void or counted)

    def _add(self, cursor: Cursor, number: int, slot: int, name: str, partition: str) -> None:
        cursor.attach(self._dirty.append, self._slots, slot, self._hints)
        self._cursors[name, partition] = cursor
        self._partitions.setdefault(name, []).append(partition)
        self._facts[cursor] = (number, slot, name, partition)
        if self._unencoded is not None:
            self._unencoded[cursor] = None

    # --- the cursors --------------------------------------------------------------------------------------------------

    def open(self, name: str, partition_name: str, start: int, sync: SyncPolicy = ALWAYS) -> Cursor:
        """The cursor of that name over that partition; a new one begins at ``start``. Raises StorageError if there is
        no room for another."""
        cursor = self._cursors.get((name, partition_name))
        if cursor is None:
            if not self._free_slots and self._next_slot >= limits.CURSORS_MAX:
                raise StorageError(f"{self.directory}: {limits.CURSORS_MAX} cursors is the limit; delete some")
            if self._free_slots:
                slot = self._free_slots.pop()
            else:
                slot = self._next_slot
                self._next_slot += 1
            cursor = Cursor(start)
            self._hints.forget(slot)
            self._add(cursor, self._next_number, slot, name, partition_name)
            cursor.delivered = start
            created = journal.create(self._next_number, slot, start, name, partition_name)
            self._records.append(created)
            self._created.append(created)
            self._next_number += 1
        self._sync[cursor] = sync
        return cursor

    def sync_of(self, cursor: Cursor) -> SyncPolicy:
        """What was said of it when it was opened."""
        return self._sync.get(cursor, ALWAYS)

    def hurry(self) -> None:
        """What was made or deleted is synced with the next take(), in the same group as the messages of that turn."""
        self.sync_due_ns = MonoNs(0)

    def get(self, name: str, partition_name: str) -> Cursor | None:
        return self._cursors.get((name, partition_name))

    def delete(self, name: str, partition_name: str | None = None) -> None:
        """Over that partition, or over all. Stored with the next take(), and synced soon."""
        for partition in [partition_name] if partition_name is not None else list(self._partitions.get(name, ())):
            cursor = self._cursors.pop((name, partition), None)
            if cursor is None:
                continue
            self._partitions[name].remove(partition)
            if not self._partitions[name]:
                del self._partitions[name]
            number, slot, _, _ = self._facts.pop(cursor)
            if self._unencoded is not None:
                if cursor in self._unencoded:
                    del self._unencoded[cursor]
                else:
                    self._ahead.append(journal.delete(number))
            self._sync.pop(cursor, None)
            cursor.detach()
            self._records.append(journal.delete(number))
            self._free_slots.append(slot)

    def names(self) -> list[tuple[str, str]]:
        """(name, partition name) of all."""
        return list(self._cursors)

    @property
    def deadline_ns(self) -> MonoNs:
        """When take() has something to do of itself; NEVER_NS if nothing is planned."""
        dues = (self.sync_due_ns, self._retry_due_ns)
        return min((due for due in dues if due is not None), default=MonoNs(NEVER_NS))

    def together(self, cursor: Cursor, offsets: Iterable[int]) -> None:
        """These acks hold together with what else the next take() brings, or not at all. The cursor hears of them when
        that is decided."""
        number, slot, name, partition = self._facts[cursor]
        records = journal.create(number, slot, cursor.floor, name, partition) + journal.acked(number, ranges(offsets))
        self._together.append((cursor, records))

    # --- the turn -----------------------------------------------------------------------------------------------------

    def take(self, now_ns: MonoNs) -> list[Job]:
        """The changes of this turn as a job; none if there is nothing to do."""
        sync_now = self.sync_due_ns is not None and self.sync_due_ns <= now_ns
        retry = self._retry_due_ns is not None and self._retry_due_ns <= now_ns
        if not (self._dirty or self._records or self.waiters or self._together or sync_now or retry):
            return []
        if self._held and not (retry or self._together):
            return []  # it waits for the next attempt
        records, self._records = self._records, []
        dirty, waiters, self.waiters = self._dirty.copy(), self.waiters, []
        self._dirty.clear()
        self._hints.take()
        for cursor in dirty:
            changes = cursor.take_changes()
            facts = self._facts.get(cursor)
            if changes is None or facts is None:
                continue
            number = facts[0]
            if cursor not in self._sync or self._sync[cursor].always:
                self._unsynced = True
            changed = []
            if changes.counts:
                changed.append(journal.counts(number, changes.counts))
            if changes.ranges:
                changed.append(journal.acked(number, changes.ranges))
            records += changed
            if self._unencoded is not None and cursor not in self._unencoded:
                self._ahead += changed
        data = journal.entry(records) if records else b""
        acks, self._together = self._together, []
        together = b"".join(each for _, each in acks), b"".join(each for cursor, each in acks if cursor in self._facts)
        self._journal_bytes += len(data) + len(together[1])
        wanted = retry or self._journal_bytes > limits.CURSOR_JOURNAL_BYTES_MAX
        if wanted and self._encode_slice():
            self._retry_due_ns = None
            self._journal_bytes = 0
            self._unsynced = False
            self._generation = self._hints.counted.generation = self._generation + 1
            return [
                self._with_created(
                    CursorJob(self, b"", self._generation, waiters, bool(acks), together, self._encoded())
                )
            ]
        needs_sync = sync_now or bool(acks) or (self._unsynced and bool(waiters))
        if needs_sync:
            self.sync_due_ns = None
            self._unsynced = False
        return [self._with_created(CursorJob(self, data, None, waiters, needs_sync, together))]

    def _with_created(self, job: CursorJob) -> CursorJob:
        job.created, self._created = b"".join(self._created), []
        return job

    def _encode_slice(self) -> bool:
        """Encode some more cursors for the snapshot, which begins with the first call.

        Returns:
            True once all are encoded.
        """
        if self._unencoded is None:
            self._unencoded = dict.fromkeys(self._facts)
        records, size = [], 0
        while self._unencoded and size < SLICE_BYTES:
            cursor, _ = self._unencoded.popitem()
            number, slot, name, partition = self._facts[cursor]
            record = journal.create(number, slot, cursor.floor, name, partition)
            if cursor.intervals:
                record += journal.acked(number, cursor.intervals)
            if cursor.counts:
                record += journal.counts(number, cursor.counts)
            records.append(record)
            size += len(record)
        self._ahead.append(b"".join(records))
        return not self._unencoded

    def _encoded(self) -> list[bytes]:
        """The records of the snapshot, whose encoding is over."""
        records, self._ahead, self._unencoded = self._ahead, [], None
        records.append(journal.covers(self._next_number - 1, self.entries_to))
        return records

    def written(self, job: CursorJob, now_ns: MonoNs) -> None:
        """A job came back. While the journal is failed, acks work, but are neither stored nor receipted; a snapshot of
        all cursors, tried every RETRY_EVERY_NS, makes up for what it has missed. Where only room is missing, receipts
        wait for the next attempt: then no ack is refused that is stored a moment later."""
        if job.error is not None:
            if job.no_room and (job.generation is None or not self._held):
                self._held = True
                self.waiters, job.waiters = job.waiters + self.waiters, []
            else:
                self._held = False
            self.failed = self.failed or job.error
            self.sync_due_ns = None
            if self._retry_due_ns is None:
                self._retry_due_ns = MonoNs(now_ns + RETRY_EVERY_NS)
        elif job.generation is not None:
            self.failed, self._held = None, False
        elif not job.needs_sync and job.data and self.sync_due_ns is None:
            self.sync_due_ns = MonoNs(now_ns + SYNC_WITHIN_NS)
        if self.failed is None:
            self._hints.written()

    def close(self) -> None:
        """Everything has been taken and written; no other thread runs."""
        try:
            if self.log.failed is None:
                self.log.sync()
        finally:
            self.log.close()
            self._slots.release()
