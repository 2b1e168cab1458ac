"""Read the cursors of a store for a copy of it: beside a running broker, merged into one snapshot.

A copy of the logs made afterwards may end before what a cursor has settled, if an interval's sync was not due yet. So
``limit`` sets cursors back to where the copied logs end: the offsets above will be given to other messages.

Knows the bytes of the cursors, but not what else is copied. One thread, any process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from radiator.errors import StorageError
from radiator.storage import cursor_files, definitions, layout
from radiator.storage import cursor_records as records
from radiator.storage.cursor_files import DELIVERED, StoredCursors
from radiator.storage.cursor_snapshot import SNAPSHOT
from radiator.storage.definitions import Entry
from radiator.storage.delivered_ranges import MARKS_BYTES, U64_BYTES, range_of
from radiator.storage.delivery_counts import counts_in
from radiator.storage.files import FileSystem, read_file
from radiator.upkeep.manifest import CopiedCursor


def read_cursors(fs: FileSystem, root: str, redone: Sequence[bytes] = ()) -> CursorCopy:
    """Return the cursors at one moment.

    Args:
        fs: The file system.
        root: The data directory.
        redone: Acks of transactions that an earlier version has decided.

    Raises:
        OSError: A file cannot be read.
        StorageError: The snapshot or the file of durable subscriptions is damaged.
    """
    directory = layout.cursors_path(root)
    delivered = read_file(fs, f"{directory}/{DELIVERED}") or b""
    found = cursor_files.read_metadata(fs, root, redone)
    if found.cursors.snapshot.damaged:
        raise StorageError(
            f"{directory}/{SNAPSHOT}: damaged; a backup would lose cursors. Restart the broker, which keeps all "
            f"readable cursors, and then back up"
        )
    names = _names(layout.subscriptions_path(root), found.names, found.names_changes)
    return CursorCopy(found.cursors, delivered, names, found.last)


def _names(path: str, data: bytes | None, changes: list[bytes]) -> dict[str, Entry] | None:
    """Return the definitions of durable subscriptions; None if there never was one.

    Raises:
        StorageError: The file is damaged.
    """
    try:
        entries = {} if data is None else definitions.decode(data)
        for each in changes:
            definitions.apply(each, entries)
    except ValueError as error:
        raise StorageError(
            f"{path}: damaged ({error}); a backup would lose durable subscriptions. Restart the broker, which renames "
            f"the file, and then back up"
        ) from error
    return None if data is None and not changes else entries


class CursorCopy:
    """The cursors of a store at one moment, to be written to a copy of it.

    Args:
        stored: The cursors as they were read.
        delivered: The file of delivery hints.
        names: The definitions of durable subscriptions; None if there never was one.
        last: The number of the last journal entry that was read, and of its file.
    """

    def __init__(
        self, stored: StoredCursors, delivered: bytes, names: dict[str, Entry] | None, last: tuple[int, int] | None
    ) -> None:
        self._stored = stored
        self.last = last  # numbers of the last entry of the journal that was read for it, and of its file
        self.names = names  # of subscriptions, at that moment
        latest = {(state.name, state.partition): state for state in stored.states.values()}
        for state in latest.values():
            start, stop = range_of(delivered, state.slot)
            state.forget_zeros(start, stop)
        states_by_slot = {state.slot: state for state in latest.values()}
        for slot, offset, count, _ in counts_in(delivered, stored.generation):
            if slot in states_by_slot:
                counts = states_by_slot[slot].counts
                counts[offset] = max(count, counts.get(offset, 0))
        self._cursors = [(state, state.cursor(1 << 63)) for state in latest.values()]
        self._delivered = bytearray(delivered[:MARKS_BYTES])

    def covers(self, number: int) -> bool:
        """Return whether the changes of that journal entry to cursors and names are included."""
        return number < self._stored.entries_to

    def limit(self, logs: Mapping[str, tuple[int, int]]) -> None:
        """Limit each cursor to its copied log.

        Nothing is settled at or above the end of the log. What lies below its first offset was removed since the
        cursors were read, because it was settled or by force, and counts as settled.

        Args:
            logs: First and next offset of each copied log; one that is missing ends at 0.
        """
        for place, (state, _) in enumerate(self._cursors):
            first, end = logs.get(state.partition, (0, 0))
            self._cursors[place] = state, (cursor := state.cursor(end))
            cursor.ack_range(cursor.floor, first)
            at = state.slot * U64_BYTES
            hint = min(int.from_bytes(self._delivered[at : at + U64_BYTES], "little"), end)
            if at + U64_BYTES <= len(self._delivered):
                self._delivered[at : at + U64_BYTES] = hint.to_bytes(U64_BYTES, "little")

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the names and bytes of the files: a snapshot of all cursors, and the delivery hints."""
        changes = []
        for state, cursor in self._cursors:
            changes.append(records.create(state.number, state.slot, cursor.floor, state.name, state.partition))
            if cursor.intervals:
                changes.append(records.acked(state.number, cursor.intervals))
            if cursor.counts:
                changes.append(records.counts(state.number, cursor.counts))
        changes.append(records.covers(self._stored.highest_number, 1))  # later changes are in the journal of the copy
        yield SNAPSHOT, records.snapshot(self._stored.generation, changes)
        used = (len(self._delivered.rstrip(b"\0")) + U64_BYTES - 1) & -U64_BYTES  # the store makes it whole again
        if used:
            yield DELIVERED, bytes(self._delivered[:used])

    @property
    def size_bytes(self) -> int:
        """Return how many bytes the files have."""
        return sum(len(data) for _, data in self.files())

    def facts(self) -> list[CopiedCursor]:
        """Return what the manifest says of each cursor."""
        return [CopiedCursor(state.name, state.partition, cursor.floor) for state, cursor in self._cursors]
