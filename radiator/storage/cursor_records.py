"""Records about cursors, in entries of the journal and in the snapshot.

    record: kind u8 | cursor number u32 | the rest by kind
      1 create   slot u32, floor u64, name and partition name (u16 length, UTF-8)
      2 delete
      3 acked    count u32, count x (start u64, stop u64)
      4 counts   count u32, count x (offset u64, deliveries u32)
      5 seek     floor u64 (read, and not written)
      6 covers   entry u64: of a snapshot, whose cursors have all numbers up to ``cursor number`` that are not deleted,
                 and what all entries of the journal below ``entry`` say
    block:  magic 89 'RDJ1' 0D 0A 1A | length u32 | crc u32 of the records | records | zeros up to a multiple of 8

The snapshot is a block behind a header of its own: magic 89 'RDC1' 0D 0A 1A, generation u64. Earlier versions had a
journal of blocks beside it (``replay``), and acks of transactions in another file (``redo``). Every record may be
applied twice without harm.

This module knows bytes and cursors. It does not know files or when to write. All functions are pure: any thread may
call them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from struct import Struct, error
from typing import NamedTuple

from radiator.checksum import crc32
from radiator.storage.cursor import Cursor

BLOCK_MAGIC = b"\x89RDJ1\r\n\x1a"
SNAPSHOT_MAGIC = b"\x89RDC1\r\n\x1a"
BLOCK = Struct("<8sII")
SNAPSHOT = Struct("<8sQ")
JOURNAL = "journal-"  # of an earlier version; and a generation, 10 digits
CREATE, DELETE, ACKED, COUNTS, SEEK, COVERS = range(1, 7)
KINDS = {CREATE: "create", DELETE: "delete", ACKED: "acked", COUNTS: "counts", SEEK: "seek", COVERS: "covers"}

_RECORD = Struct("<BI")
_CREATE = Struct("<BIIQH")
_MANY = Struct("<BII")
_RANGE = Struct("<QQ")
_COUNT = Struct("<QI")
_SEEK = Struct("<BIQ")
_U64 = Struct("<Q")
_U32 = Struct("<I")
_U16 = Struct("<H")


def create(number: int, slot: int, floor: int, name: str, partition: str) -> bytes:
    """Return the record that creates a cursor."""
    first, second = name.encode(), partition.encode()
    return _CREATE.pack(CREATE, number, slot, floor, len(first)) + first + _U16.pack(len(second)) + second


def delete(number: int) -> bytes:
    """Return the record that deletes a cursor."""
    return _RECORD.pack(DELETE, number)


def acked(number: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    """Return the record of settled offset ranges, each (start, stop)."""
    packed = [_RANGE.pack(start, stop) for start, stop in ranges]
    return _MANY.pack(ACKED, number, len(packed)) + b"".join(packed)


def counts(number: int, deliveries: Mapping[int, int]) -> bytes:
    """Return the record of delivery counts by offset."""
    packed = [_COUNT.pack(offset, count) for offset, count in deliveries.items()]
    return _MANY.pack(COUNTS, number, len(packed)) + b"".join(packed)


def covers(number: int, entry: int) -> bytes:
    """Return the record with the highest cursor number and the first entry that the snapshot does not cover."""
    return _SEEK.pack(COVERS, number, entry)


def block(records: Iterable[bytes]) -> bytes:
    """Return records as a block."""
    body = b"".join(records)
    return BLOCK.pack(BLOCK_MAGIC, len(body), crc32(body)) + body + b"\0" * (-len(body) & 7)


def snapshot(generation: int, records: Iterable[bytes]) -> bytes:
    """Return the bytes of a snapshot."""
    return SNAPSHOT.pack(SNAPSHOT_MAGIC, generation) + block(records)


def generations(names: Iterable[str]) -> list[int]:
    """Return the generations of the journals among these file names, rising."""
    digits = [name[len(JOURNAL) :] for name in names if name.startswith(JOURNAL)]
    return sorted(int(each) for each in digits if len(each) == 10 and each.isascii() and each.isdigit())


class CursorState:
    """One cursor, as stored in the files."""

    __slots__ = ("changes", "counts", "floor", "name", "number", "partition", "slot")

    def __init__(self, number: int, slot: int, floor: int, name: str, partition: str) -> None:
        self.number = number
        self.slot = slot
        self.floor = floor
        self.name = name
        self.partition = partition
        self.changes: list[tuple[int, int]] = []  # acked ranges in the order they came
        self.counts: dict[int, int] = {}

    def forget_zeros(self, start: int, stop: int) -> None:
        """Forget counts of 0 from ``start`` to ``stop``: these messages may have been delivered."""
        self.counts = {each: count for each, count in self.counts.items() if count or not start <= each < stop}

    def move_to(self, slot: int) -> None:
        """Move the cursor's hint to another slot."""
        self.slot = slot

    def cursor(self, end: int) -> Cursor:
        """Return a cursor in this state, with nothing settled at or above ``end``."""
        cursor = Cursor(min(self.floor, end))
        for start, stop in self.changes:
            cursor.ack_range(start, min(stop, end))
        for offset, count in self.counts.items():
            if offset < end and not cursor.is_acked(offset):
                cursor.counts[offset] = count
        return cursor

    @property
    def is_sorted(self) -> bool:
        """Whether the intervals are above the floor, in order, and not adjacent."""
        return all(first[1] < second[0] for first, second in pairwise([(0, self.floor), *self.changes]))


class Record(NamedTuple):
    """One record. ``values``: settled intervals, or offsets with their delivery counts."""

    kind: int
    number: int
    slot: int = 0
    floor: int = 0
    name: str = ""
    partition: str = ""
    values: Sequence[tuple[int, int]] = ()


def decode_records(records: bytes) -> Iterator[Record]:
    """Yield the records of a block or entry whose crc is right.

    A record of a newer version ends the iteration: the records behind it cannot be separated.

    Raises:
        struct.error: The bytes are no records.
    """
    at = 0
    while at < len(records):
        kind, number = _RECORD.unpack_from(records, at)
        if kind == CREATE:
            _, _, slot, floor, length = _CREATE.unpack_from(records, at)
            at += _CREATE.size
            name = records[at : at + length].decode("utf-8", "replace")
            at += length
            (length,) = _U16.unpack_from(records, at)
            at += _U16.size
            partition = records[at : at + length].decode("utf-8", "replace")
            at += length
            yield Record(kind, number, slot, floor, name, partition)
        elif kind == DELETE:
            at += _RECORD.size
            yield Record(kind, number)
        elif kind in (ACKED, COUNTS):
            _, _, count = _MANY.unpack_from(records, at)
            at += _MANY.size
            shape = _RANGE if kind == ACKED else _COUNT
            values = list(shape.iter_unpack(records[at : at + count * shape.size]))
            at += count * shape.size
            yield Record(kind, number, values=values)
        elif kind in (SEEK, COVERS):
            at += _SEEK.size
            yield Record(kind, number, floor=_U64.unpack_from(records, at - 8)[0])
        else:
            return


def apply(records: bytes, states: dict[int, CursorState], deleted: set[int] | None = None) -> None:
    """Apply the records of a block or entry whose crc is right. Records of unknown cursors are skipped.

    Args:
        records: The records.
        states: The cursors by number, which this changes.
        deleted: Receives the numbers of deleted cursors.

    Raises:
        struct.error: The bytes are no records.
    """
    for record in decode_records(records):
        state = states.get(record.number)
        if record.kind == COVERS:
            continue
        if record.kind == CREATE:
            if state is None or (state.name, state.partition) != (record.name, record.partition):
                states[record.number] = CursorState(
                    record.number, record.slot, record.floor, record.name, record.partition
                )  # a repeated creation keeps the acks
        elif record.kind == DELETE:
            states.pop(record.number, None)
            if deleted is not None:
                deleted.add(record.number)
        elif state is None:
            continue
        elif record.kind == ACKED:
            state.changes += record.values
        elif record.kind == COUNTS:
            state.counts.update(record.values)
        else:
            state.floor = record.floor
            state.changes.clear()
            state.counts.clear()


def read_block(data: bytes, at: int) -> bytes | None:
    """Return the records of the block at ``at``; None if the block is damaged."""
    if at + BLOCK.size > len(data):
        return None
    magic, length, crc = BLOCK.unpack_from(data, at)
    records = data[at + BLOCK.size : at + BLOCK.size + length]
    if magic != BLOCK_MAGIC or len(records) != length or crc32(records) != crc:
        return None
    return records


def replay(data: bytes, states: dict[int, CursorState], deleted: set[int] | None = None) -> tuple[int, int]:
    """Apply a whole journal of an earlier version.

    Returns:
        Where the journal ends, and the number of damaged bytes before that.
    """
    at = end = lost = 0
    while at < len(data):
        records = read_block(data, at)
        if records is not None:
            try:
                apply(records, states, deleted)
            except error:  # correct crc, wrong contents: not written by radiator
                pass
            lost += at - end
            at += BLOCK.size + ((len(records) + 7) & ~7)
            end = at
            continue
        at = data.find(BLOCK_MAGIC, at + 1)
        while at >= 0 and at & 7:
            at = data.find(BLOCK_MAGIC, at + 1)
        if at < 0:
            break
    return end, lost


def redo(records: bytes, states: dict[int, CursorState], deleted: Container[int] = (), highest_number: int = 0) -> None:
    """Apply the acks of a transaction of an earlier version.

    The transaction was decided, and may be missing in the journal of cursors of that version. Each cursor comes with
    its creation, in case that is lost. A cursor that was deleted since, or that a later cursor of the same name or
    number replaced, is skipped: the acks may be much older than the end of the journal.

    Args:
        records: Records of the transaction.
        states: The cursors, by number.
        deleted: Numbers of cursors that the journal says are deleted.
        highest_number: The highest number that had been given when the snapshot was written.
    """
    found: dict[int, CursorState] = {}
    apply(records, found)
    latest = {(state.name, state.partition): number for number, state in states.items()}
    for number, state in found.items():
        known, called = states.get(number), (state.name, state.partition)
        if known is None:
            if number > highest_number and number not in deleted and latest.get(called, 0) < number:
                states[number] = state
        elif (known.name, known.partition) == called:
            known.changes += state.changes


class Snapshot(NamedTuple):
    """The facts of a snapshot besides the cursors."""

    generation: int  # rises with each
    highest_number: int  # a cursor with a number up to this, and not in the snapshot, was deleted
    entries_to: int  # journal entries below this number are included


def load_snapshot(data: bytes | None, states: dict[int, CursorState]) -> Snapshot | None:
    """Read the cursors of a snapshot into ``states``. Return None if it is missing or damaged."""
    if data is None or len(data) < SNAPSHOT.size:
        return None
    magic, generation = SNAPSHOT.unpack_from(data)
    records = read_block(data, SNAPSHOT.size)
    if magic != SNAPSHOT_MAGIC or records is None:
        return None
    highest_number = entries_to = 0
    try:
        apply(records, states)
        for record in decode_records(records):
            if record.kind == COVERS:
                highest_number, entries_to = record.number, record.floor
    except error:
        states.clear()
        return None
    return Snapshot(int(generation), highest_number, entries_to)
