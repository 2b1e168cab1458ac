"""All stored cursors: a snapshot, replaced by atomic rename, and the changes since, in entries of the journal.

    event loop: cursor.ack() -> dirty -> take() -> CursorJob, whose records are in the entry of its group
                -> written(): receipts may be sent

The changes of a turn are written at once, in one entry with the batches of that turn. They are synced with that entry
if a receipt waits and the cursor's policy is ``always``, or if a message of the group needs a sync; otherwise within
SYNC_WITHIN_NS (an ACK without a receipt is not promised: losing it in a power cut means a redelivery).

A checkpoint replaces the snapshot. Each call of ``encode`` encodes some cursors (SLICE_BYTES). Changes of cursors that
are encoded already are added as records, so the snapshot has the state at the time of the last call.

If the journal cannot store the changes, or a sync of it fails, the store has *failed*: acks work, but they are neither
stored nor receipted until a checkpoint has written a snapshot with them. Receipts wait for that.

The event loop owns ``CursorStore``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from radiator import limits
from radiator.clock import MonoNs, Now
from radiator.config import SyncPolicy
from radiator.errors import StorageError
from radiator.storage import cursor_records as records
from radiator.storage.cursor import Cursor, later
from radiator.storage.cursor_files import DELIVERED, StoredCursors
from radiator.storage.cursor_records import CursorState
from radiator.storage.cursor_snapshot import SNAPSHOT
from radiator.storage.delivery_counts import HINTS_BYTES
from radiator.storage.delivery_hints import DeliveryHints
from radiator.storage.files import FileSystem, opened, write_all
from radiator.storage.jobs import SHORT_BYTES_MAX, Job
from radiator.storage.journal.journal import Journal
from radiator.timers import NEVER_NS

SYNC_WITHIN_NS = 50_000_000
ALWAYS = SyncPolicy()
SLICE_BYTES = 64 * limits.KIB  # of a snapshot, encoded in one turn: about 600 cursors, and one of any size


class CursorJob(Job):
    """The cursor changes of one turn. The entry of the group stores them (``GroupJob``, which sets ``error``)."""

    __slots__ = ("_store", "creates", "records", "synced", "together")

    def __init__(
        self, store: CursorStore, encoded: bytes, together: bytes, creates: bool, waiters: list[Any], needs_sync: bool
    ) -> None:
        super().__init__(None, needs_sync)
        self._store = store
        self.records = encoded  # these hold whatever becomes of transactions
        self.together = together  # acks of the transactions that the group decides
        self.creates = creates  # has new cursors: as durable as the messages of their group
        self.waiters = waiters
        self.synced = False  # with its entry

    @property
    def short(self) -> bool:
        """Whether the job is a single small write."""
        return not self.together and len(self.records) <= SHORT_BYTES_MAX

    @property
    def component(self) -> CursorStore:
        """The store of the cursors."""
        return self._store

    def stored(self, synced: bool) -> None:
        """Note, on the disk thread, that the journal has the changes, and whether they are synced."""
        self.synced = synced

    def done(self, now: Now) -> None:
        """Report the result to the store."""
        self._store.written(self, now.mono)


class EncodedCursors(NamedTuple):
    """All cursors at one moment, encoded for a snapshot."""

    generation: int
    highest_number: int  # the highest number that has been given
    records: list[bytes]
    failures: int  # of the store, until then

    def encode(self, first_entry: int) -> bytes:
        """Return the bytes of the snapshot, which covers all entries below ``first_entry``."""
        return records.snapshot(self.generation, [*self.records, records.covers(self.highest_number, first_entry)])


class CursorStore:
    """All stored cursors. The event loop owns it."""

    name = "cursors"  # as the operator's log has it

    def __init__(self, fs: FileSystem, directory: str, journal: Journal) -> None:
        self.fs = fs
        self.directory = directory
        self.waiters: list[Any] = []  # waiters for the current changes; the next take() returns them
        self.failed: StorageError | None = None
        self.changed = False  # ``load`` has found changes that no snapshot has
        self.set_back = False  # ``load`` has found facts about lost messages: their offsets will be given again
        self.sync_due_ns: MonoNs | None = None
        self._journal = journal
        self._sync_error: StorageError | None = None  # the latest of the journal that has been noticed
        self._failures = 0
        self._superseded = False  # changes need no entry: the next snapshot will have them
        self._cursors: dict[tuple[str, str], Cursor] = {}
        self._partitions: dict[str, list[str]] = {}  # by cursor name
        self._facts: dict[Cursor, tuple[int, int, str, str]] = {}  # number, slot, name, partition
        self._sync: dict[Cursor, SyncPolicy] = {}
        self._dirty: list[Cursor] = []
        self._records: list[bytes] = []  # creations and deletions, in order
        self._creates = False
        self._next_number = 1
        self._together: list[tuple[Cursor, bytes]] = []  # acks in transactions
        self._free_slots: list[int] = []
        self._next_slot = 0
        self._slots: memoryview = memoryview(b"")
        self._hints = DeliveryHints(self._slots)
        self._snapshot_records: list[bytes] = []  # records of the snapshot that is being encoded
        self._unencoded: dict[Cursor, None] | None = None  # cursors that these lack; None: no snapshot is being encoded
        self._generation = 0  # of the latest snapshot
        self.entries_to = 1  # changes of earlier journal entries were loaded when the store was opened
        self._unsynced = False  # a cursor that was made or deleted, or an ack of an `always` one, has not been synced

    # --- opening ------------------------------------------------------------------------------------------------------

    def load(self, found: StoredCursors, ends: Mapping[str, int]) -> list[str]:
        """Load the cursors from the files, before any other thread runs.

        Afterwards ``changed`` is True if the result must be saved before anything else is stored.

        Args:
            found: The contents of the files.
            ends: The next offset of every partition. A cursor beyond the end of its log (which lost it in a power cut,
                as its policy allows) is set back: those offsets will be given to new messages.

        Returns:
            The problems found, as texts.

        Raises:
            OSError: A file cannot be read or written.
        """
        self._generation = found.generation
        self._next_number = found.highest_number + 1  # none is given twice
        self.entries_to = max(found.entries_to, 1)
        notes, snapshot, states = self._problems(found), found.snapshot, found.states
        changed = found.changed or bool(found.old_journals)
        if snapshot.damaged or (snapshot.snapshot is not None and not snapshot.alike):
            changed = True
        if snapshot.damaged:
            path = f"{self.directory}/{SNAPSHOT}"
            self.fs.rename(path, f"{path}.damaged")
        self._map_slots()
        counted = self._hints.counts.restore(found.generation)
        latest = {(state.name, state.partition): state for state in states.values()}
        changed |= len(latest) < len(states)  # a deletion was lost, and the creation that followed was not
        slots: set[int] = set()
        for state in latest.values():
            if state.slot in slots or state.slot >= limits.CURSORS_MAX:
                changed = True
                state.move_to(next(slot for slot in range(limits.CURSORS_MAX) if slot not in slots))
            slots.add(state.slot)
            end = ends.get(state.partition, 0)
            if max([state.floor, *(stop for _, stop in state.changes)]) > end:
                changed = self.set_back = True
                notes.append(f"{state.name}: was after the end of the log {state.partition} ({end}); set to the end")
            if max(state.counts, default=-1) >= end:
                changed = self.set_back = True
            changed |= self._restore(state, end, counted.pop(state.slot, {}))
        self.changed = changed or bool(counted)
        used = {facts[1] for facts in self._facts.values()}
        self._next_slot = max(used, default=-1) + 1
        self._free_slots = [slot for slot in range(self._next_slot) if slot not in used]
        return notes

    def _problems(self, found: StoredCursors) -> list[str]:
        notes, snapshot, path = [], found.snapshot, f"{self.directory}/{SNAPSHOT}"
        if snapshot.damaged:
            remedy = "its copy is used" if snapshot.copied else "cursors without another copy start again"
            notes.append(f"{path}.damaged: could not be read; {remedy}")
        elif snapshot.copied:
            notes.append(f"{path}: does not exist; its copy is used")
        elif found.misses_snapshot:
            notes.append(f"{path}: does not exist; cursors without another copy start again")
        old = found.old_journal
        if old is not None and old.lost:
            notes.append(
                f"{old.path}: {old.lost} bytes damaged; messages of the lost acknowledgements will be redelivered"
            )
        if old is not None and old.data[old.end :].strip(b"\0"):
            notes.append(f"{old.path}: torn tail of {len(old.data) - old.end} bytes passed over")
        return notes

    def _map_slots(self) -> None:
        fs, size = self.fs, HINTS_BYTES
        with opened(fs, fs.open(f"{self.directory}/{DELIVERED}", create=True)) as fd:
            have = fs.size(fd)
            if have < size:  # allocated as a whole: a hole in a mapping on a full disk would be a SIGBUS
                write_all(fs, fd, [bytes(size - have)], have)
            self._slots = fs.map(fd, size).cast("Q")
            self._hints = DeliveryHints(self._slots)

    def _restore(self, state: CursorState, end: int, counted: Mapping[int, int]) -> bool:
        """Add a cursor from the files.

        Args:
            state: The cursor, as stored.
            end: The next offset of its log.
            counted: Delivery counts that the journal did not store in time.

        Returns:
            True if stored counts are out of date; the new ones must be stored before anything else.
        """
        cursor = state.cursor(end)
        self._add(cursor, state.number, state.slot, state.name, state.partition)
        self._next_number = max(self._next_number, state.number + 1)
        counts = cursor.counts
        first, stop = self._hints.ranges.restore(state.slot)
        stop = min(stop, end)
        zeros = [offset for offset, count in counts.items() if not count]
        had = [offset + 1 for offset, count in counts.items() if count]
        had += [offset + 1 for offset, count in counted.items() if count > 1 and offset < end]
        known = min(zeros, default=end)  # behind a skipped message only counts show deliveries
        cursor.mark_delivered(max(cursor.delivered, min(max([*had, stop]), known)))
        fresh = max(cursor.delivered, cursor.ceiling)  # offsets from here on are delivered for the first time
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
        """Return the cursor of this name over a partition; a new one begins at ``start``.

        Raises:
            StorageError: There are CURSORS_MAX cursors already.
        """
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
            cursor.mark_delivered(start)
            self._records.append(records.create(self._next_number, slot, start, name, partition_name))
            self._creates = True
            self._next_number += 1
        self._sync[cursor] = sync
        return cursor

    def sync_of(self, cursor: Cursor) -> SyncPolicy:
        """Return the sync policy that the cursor was opened with."""
        return self._sync.get(cursor, ALWAYS)

    def sync_soon(self) -> None:
        """Sync creations and deletions with the next take(), in the same group as the messages of that turn."""
        self.sync_due_ns = MonoNs(0)

    def get(self, name: str, partition_name: str) -> Cursor | None:
        """Return a cursor, or None."""
        return self._cursors.get((name, partition_name))

    def delete(self, name: str, partition_name: str | None = None) -> None:
        """Delete a cursor, or all of this name. The next take() stores that, and it is synced soon."""
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
                    self._snapshot_records.append(records.delete(number))
            self._sync.pop(cursor, None)
            cursor.detach()
            self._records.append(records.delete(number))
            self._free_slots.append(slot)

    def names(self) -> list[tuple[str, str]]:
        """Return (name, partition name) of all cursors."""
        return list(self._cursors)

    @property
    def deadline_ns(self) -> MonoNs:
        """When take() has work to do without a change; NEVER_NS if nothing is planned."""
        return MonoNs(NEVER_NS) if self.sync_due_ns is None else self.sync_due_ns

    def together(self, cursor: Cursor, settled: list[tuple[int, int]]) -> None:
        """Add acks of a transaction: they are stored together with the rest of the next take(), or not at all.

        The caller applies them to the cursor when the transaction is decided.

        Args:
            cursor: The cursor.
            settled: The offsets, as (start, stop) of consecutive ones.
        """
        number, slot, name, partition = self._facts[cursor]
        encoded = records.create(number, slot, cursor.floor, name, partition)  # the journal may not have taken that yet
        self._together.append((cursor, encoded + records.acked(number, settled)))

    def decided(self, cursor: Cursor, settled: list[tuple[int, int]]) -> None:
        """Apply acks that the journal has (``together``) to their cursor."""
        for start, stop in settled:
            cursor.ack_range(start, stop, in_journal=True)
        facts = self._facts.get(cursor)
        if facts is not None and self._unencoded is not None and cursor not in self._unencoded:
            self._snapshot_records.append(records.acked(facts[0], settled))

    # --- the turn -----------------------------------------------------------------------------------------------------

    def take(self, now_ns: MonoNs) -> list[CursorJob]:
        """Return the changes of this turn as a job, or an empty list."""
        self._notice_failed_sync()
        sync_now = self.sync_due_ns is not None and self.sync_due_ns <= now_ns
        waiters: list[Any] = []
        if self.failed is None:
            waiters, self.waiters = self.waiters, waiters
        if not (self._dirty or self._records or waiters or self._together or sync_now):
            return []
        encoded, self._records = self._records, []
        self._unsynced |= bool(encoded)
        dirty = self._dirty.copy()
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
                changed.append(records.counts(number, changes.counts))
            if changes.ranges:
                changed.append(records.acked(number, changes.ranges))
            encoded += changed
            if self._unencoded is not None and cursor not in self._unencoded:
                self._snapshot_records += changed
        if self._superseded:
            encoded.clear()
        acks, self._together = self._together, []
        together = b"".join(each for cursor, each in acks if cursor in self._facts)
        creates, self._creates = self._creates, False
        needs_sync = sync_now or bool(acks) or (self._unsynced and bool(waiters))
        if needs_sync:
            self.sync_due_ns = None
        return [CursorJob(self, b"".join(encoded), together, creates, waiters, needs_sync)]

    def written(self, job: CursorJob, now_ns: MonoNs) -> None:
        """Take back a finished job."""
        self._notice_failed_sync()
        if job.error is not None:
            self.fail(job.error)
        if self.failed is not None:
            self.waiters, job.waiters = job.waiters + self.waiters, []
            return
        if job.synced:
            self._unsynced = False
        elif job.records and self.sync_due_ns is None:
            self.sync_due_ns = MonoNs(now_ns + SYNC_WITHIN_NS)
        self._hints.written()

    def _notice_failed_sync(self) -> None:
        """Fail if a sync of the journal has failed: changes that were written before it may be lost."""
        error = self._journal.sync_error
        if error is not self._sync_error:
            self._sync_error = error
            if error is not None and self._unsynced:
                self.fail(error)

    def fail(self, error: StorageError) -> None:
        """Note that a change is not stored: the next snapshot must have it."""
        self.failed = self.failed or error
        self._failures += 1
        self._superseded = True
        self.sync_due_ns = None

    # --- the snapshot -------------------------------------------------------------------------------------------------

    def encode(self) -> EncodedCursors | None:
        """Encode some more cursors for the next snapshot.

        Returns:
            The snapshot once it has all cursors with the changes that ``take`` has returned; None before that.
        """
        if not self._encode_slice():
            return None
        encoded, self._snapshot_records, self._unencoded = self._snapshot_records, [], None
        self._superseded = False
        self._generation += 1
        self._hints.counts.begin_generation(self._generation)
        return EncodedCursors(self._generation, self._next_number - 1, encoded, self._failures)

    def _encode_slice(self) -> bool:
        """Encode some more cursors for the snapshot, which begins with the first call.

        Returns:
            True once all are encoded.
        """
        if self._unencoded is None:
            self._unencoded = dict.fromkeys(self._facts)
        encoded, size = [], 0
        while self._unencoded and size < SLICE_BYTES:
            cursor, _ = self._unencoded.popitem()
            number, slot, name, partition = self._facts[cursor]
            record = records.create(number, slot, cursor.floor, name, partition)
            if cursor.intervals:
                record += records.acked(number, cursor.intervals)
            if cursor.counts:
                record += records.counts(number, cursor.counts)
            encoded.append(record)
            size += len(record)
        self._snapshot_records.append(b"".join(encoded))
        return not self._unencoded

    def saved(self, snapshot: EncodedCursors) -> None:
        """Note that the snapshot is on disk."""
        if snapshot.failures == self._failures:
            self.failed = None
            self._hints.written()

    def not_saved(self) -> list[Any]:
        """Note that the snapshot could not be written. Return the waiters that must be refused."""
        if self.failed is None:
            return []
        waiters, self.waiters = self.waiters, []
        return waiters

    def close(self) -> None:
        """Release the mapping. No other thread may run."""
        self._slots.release()
