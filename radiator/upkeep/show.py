"""Read every file of a data directory except the segments, as lines for people and programs: what ``dump`` prints.

``FILES`` is the table of file names and their readers. A reader yields one line for each thing in the file, in order,
with its place. Damage is a line too, and the reader goes on behind it where that is possible.

Knows bytes and what they mean, but not where the file lies or how lines are shown. Pure: any thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct, error
from typing import Any, NamedTuple

from radiator.checksum import crc32
from radiator.storage import (
    archived,
    cursor_records,
    dedup_file,
    definitions,
    index,
    last_rules,
    layout,
    names,
    removal,
    salt,
    transaction_log,
)
from radiator.storage.delivered_ranges import MARKS_BYTES, PAIRS_END_BYTES, U64_BYTES, range_of
from radiator.storage.delivery_counts import WORDS, counts_in
from radiator.storage.header import HEADER_BYTES, DamagedBatch, decode_header
from radiator.storage.journal import format as journal_format
from radiator.storage.journal.format import Entry

_NAME = Struct("<II")
_U64 = Struct("<Q")


class Line(NamedTuple):
    """One thing in a file.

    Attributes:
        start: Its first byte.
        end: The byte behind its last one.
        what: What it is, in a word.
        values: Its values by name.
        damage: What is wrong with it; "" if nothing is.
    """

    start: int
    end: int
    what: str
    values: dict[str, Any]
    damage: str = ""


def _damage(start: int, end: int, damage: str) -> Line:
    return Line(start, end, "damage", {}, damage)


def read_head(data: bytes) -> Iterator[Line]:
    """Yield where the committed part of a log ends."""
    head = layout.decode_head(data)
    if head is not None:
        listed = layout.decode_listed(data)
        whole = {} if listed is None else {"names_bytes": listed.size_bytes}
        yield Line(0, len(data), "head", head._asdict() | whole)
    elif any(data):
        yield _damage(0, len(data), "wrong magic or crc")
    else:
        yield Line(0, len(data), "head", {"committed": "nothing yet"})


def read_index(data: bytes) -> Iterator[Line]:
    """Yield each entry of the index of a segment."""
    size = index.ENTRY_BYTES
    base = int.from_bytes(data[8:16], "little")
    if data[:size] != index.encode_head(base):
        yield _damage(0, len(data), "the header is damaged")
        return
    yield Line(0, size, "index", {"segment_base": base})
    entries = index.decode(data, base)
    for number, entry in enumerate(entries, 1):
        yield Line(number * size, (number + 1) * size, "entry", entry._asdict())
    behind = (1 + len(entries)) * size
    if behind < len(data):
        yield _damage(behind, len(data), "a damaged entry, and everything after it")


def read_names(data: bytes) -> Iterator[Line]:
    """Yield each destination that stores in a partition."""
    found, behind = names.decode(data)
    at = 0
    for name in found:
        end = at + len(names.encode_entry(name))
        yield Line(at, end, "name", {"destination": name})
        at = end
    if behind < len(data):
        yield _damage(behind, len(data), "a name with a wrong crc, and everything after it")


def read_salt(data: bytes) -> Iterator[Line]:
    """Yield the key of the salts."""
    key = salt.decode_key(data)
    if key is None:
        yield _damage(0, len(data), "wrong magic or crc")
    else:
        yield Line(0, len(data), "key", {"key": key.hex()})


def read_lock(data: bytes) -> Iterator[Line]:
    """Yield the process that has the lock."""
    yield Line(0, len(data), "lock", {"pid": data.decode("ascii", "replace").strip()})


def read_words(data: bytes) -> Iterator[Line]:
    """Yield the text of a file."""
    yield Line(0, len(data), "words", {"text": data.decode("utf-8", "replace").strip()})


def read_delivered(data: bytes) -> Iterator[Line]:
    """Yield each delivery hint: delivered offsets, delivered ranges, and delivery counts."""
    for slot, (offset,) in enumerate(_U64.iter_unpack(data[: min(len(data), MARKS_BYTES) & ~7])):
        if offset:
            yield Line(8 * slot, 8 * slot + 8, "delivered", {"slot": slot, "offset": offset})
    for slot in range(max(0, min(len(data), PAIRS_END_BYTES) - MARKS_BYTES) // (2 * U64_BYTES)):
        start, stop = range_of(data, slot)
        if stop:
            at = MARKS_BYTES + 2 * U64_BYTES * slot
            yield Line(at, at + 2 * U64_BYTES, "handed", {"slot": slot, "start": start, "stop": stop})
    for slot, offset, count, at in counts_in(data, 0):
        yield Line(at, at + WORDS * U64_BYTES, "count", {"slot": slot, "offset": offset, "deliveries": count})


def read_snapshot(data: bytes) -> Iterator[Line]:
    """Yield each record of a snapshot of the cursors."""
    start = cursor_records.SNAPSHOT.size
    records = cursor_records.read_block(data, start)
    if not data.startswith(cursor_records.SNAPSHOT_MAGIC) or records is None:
        yield _damage(0, len(data), "wrong magic or crc")
        return
    _, generation = cursor_records.SNAPSHOT.unpack_from(data)
    yield Line(0, start, "snapshot", {"generation": generation})
    yield from _block(records, start)


def read_old_journal(data: bytes) -> Iterator[Line]:
    """Yield each record of the journal of the cursors of an earlier version."""
    at = end = 0
    while at < len(data):
        records = cursor_records.read_block(data, at)
        if records is None:
            at = _aligned(data, cursor_records.BLOCK_MAGIC, at + 1)
            continue
        if at > end:
            yield _damage(end, at, "an entry with a wrong crc")
        yield from _block(records, at)
        at = end = at + cursor_records.BLOCK.size + ((len(records) + 7) & ~7)
    if data[end:].strip(b"\0"):
        yield _damage(end, len(data), "a torn entry")


def _block(records: bytes, at: int) -> Iterator[Line]:
    end = at + cursor_records.BLOCK.size + ((len(records) + 7) & ~7)
    yield Line(at, end, "block", {"bytes": len(records)})
    yield from _records(records, at, end)


def _records(records: bytes, at: int, end: int) -> Iterator[Line]:
    try:
        for record in cursor_records.decode_records(records):
            values: dict[str, Any] = {"cursor": record.number}
            if record.kind == cursor_records.CREATE:
                values |= {"name": record.name, "partition": record.partition, "slot": record.slot}
            if record.kind in (cursor_records.CREATE, cursor_records.SEEK):
                values["floor"] = record.floor
            if record.kind == cursor_records.COVERS:
                values = {"cursors_to": record.number, "entries_to": record.floor}
            if record.kind == cursor_records.ACKED:
                values["intervals"] = [list(each) for each in record.values]
            if record.kind == cursor_records.COUNTS:
                values["deliveries"] = [list(each) for each in record.values]
            yield Line(at, end, cursor_records.KINDS[record.kind], values)
    except error:
        yield _damage(at, end, "records that cannot be decoded, though the crc is correct")


def read_journal_file(data: bytes) -> Iterator[Line]:
    """Yield the head of a journal file, and each valid entry.

    What stands behind the last entry is left over from an earlier use of the file, or is its torn end: nothing
    distinguishes the two.
    """
    header = journal_format.decode_file_header(data)
    if header is None:
        yield _damage(0, min(len(data), journal_format.FILE_HEADER_BYTES), "not a journal file")
        return
    at, expected = journal_format.FILE_HEADER_BYTES, header.first_entry
    yield Line(0, at, "journal", {**header._asdict(), "salt": f"{header.salt:016x}"})
    view = memoryview(data)
    while at < len(data):
        entry = journal_format.decode_entry(view, at, header.salt)
        if entry is None or entry.number != expected:
            entry = journal_format.find_entry(view, at, expected, header.salt)
        if entry is None:
            if data[at:].strip(b"\0"):
                yield Line(at, len(data), "left over", {})
            return
        if entry.start > at:
            yield _damage(at, entry.start, "a damaged entry")
        yield from _parts(entry, "number")
        at, expected = entry.end, entry.number + 1


def read_transactions(data: bytes) -> Iterator[Line]:
    """Yield each valid entry of the redo log; those behind the last one of this run are marked as left over."""
    at, expected = 0, None
    while at < len(data):
        entry = transaction_log.decode_entry(data, at)
        if entry is None:
            following = _aligned(data, transaction_log.MAGIC, at + 1)
            if data[at:following].strip(b"\0"):
                yield _damage(at, following, "a damaged entry")
            at = following
            continue
        if expected in (None, entry.number):
            expected = entry.number + 1
            yield from _parts(entry, "serial")
        else:
            yield Line(at, entry.end, "left over", {"serial": entry.number})
        at = entry.end


def _parts(entry: Entry, number: str) -> Iterator[Line]:
    yield Line(entry.start, entry.end, "entry", {number: entry.number})
    for part in entry.parts:
        yield Line(entry.start, entry.end, "batch", {"partition": part.partition, **_batch(part.data)})
    yield from _records(entry.cursors, entry.start, entry.end)
    if entry.names:
        yield from _names(entry)
    for name in entry.removed:
        yield Line(entry.start, entry.end, "removed", {"partition": name})


def _names(entry: Entry) -> Iterator[Line]:
    try:
        changes = definitions.decode_changes(entry.names)
    except ValueError:
        yield _damage(entry.start, entry.end, "names that cannot be decoded, though the crc is correct")
        return
    for key, about in changes.items():
        yield Line(entry.start, entry.end, "subscription", {"cursor": key, **(about or {"deleted": True})})


def read_last_rules(data: bytes) -> Iterator[Line]:
    """Yield each rule of the last run."""
    return _definitions(data, last_rules.HEAD, "rule", "rule")


def read_removals(data: bytes) -> Iterator[Line]:
    """Yield the partitions that are being removed."""
    return _definitions(data, removal.HEAD, "removal", "of")


def read_subscriptions(data: bytes) -> Iterator[Line]:
    """Yield each durable subscription."""
    return _definitions(data, definitions.HEAD, "subscription", "cursor")


def _definitions(data: bytes, head: bytes, what: str, key_name: str) -> Iterator[Line]:
    try:
        entries = definitions.decode(data, head)
    except ValueError as error:
        yield _damage(0, len(data), str(error))
        return
    for key, entry in entries.items():
        yield Line(0, len(data), what, {key_name: key, **entry})


def _batch(batch: memoryview) -> dict[str, Any]:
    try:
        header = decode_header(bytes(batch[:HEADER_BYTES]))
    except DamagedBatch as damage:
        return {"damage": str(damage)}
    return {"base_offset": header.base_offset, "records": header.records, "bytes": header.total_len}


def _aligned(data: bytes, magic: bytes, at: int) -> int:
    """Return where the next ``magic`` stands at a multiple of 8; the end if there is none."""
    at = data.find(magic, at)
    while at >= 0 and at & 7:
        at = data.find(magic, at + 1)
    return at if at >= 0 else len(data)


def read_ids(data: bytes) -> Iterator[Line]:
    """Yield each block of the remembered ids, and each id in it."""
    header, at = dedup_file.HEADER, 0
    while at + header.size <= len(data):
        end = at + header.size + dedup_file.ENTRY_BYTES * int.from_bytes(data[at + 12 : at + 16], "little")
        block = dedup_file.decode(data[at:end])
        if block.covered is None:
            break
        before = header.unpack_from(data, at)[3]
        yield Line(at, end, "block", {"before": before, "covered": block.covered})
        _, _, offsets, times = dedup_file.columns_of(block.rows)
        for number, (offset, time) in enumerate(zip(offsets, times, strict=True)):
            place = at + header.size + number * dedup_file.ENTRY_BYTES
            values = {"id": data[place : place + 16].hex(), "offset": offset, "receive_time": time}
            yield Line(place, place + dedup_file.ENTRY_BYTES, "id", values)
        at = end
    if at < len(data):
        yield _damage(at, len(data), "a damaged block, and everything after it")


def read_archived(data: bytes) -> Iterator[Line]:
    """Yield up to which offset an archive has the log."""
    below = int.from_bytes(data[8:16], "little")
    if data == archived.encode(below):
        yield Line(0, len(data), "archived", {"next_offset": below})
    else:
        yield _damage(0, len(data), "wrong magic or crc")


def read_bytes(data: bytes) -> Iterator[Line]:
    """Yield damaged bytes from the quarantine."""
    yield Line(0, len(data), "bytes", {"bytes": len(data), "crc32": f"{crc32(data):08x}", "hex": data.hex()})


Reader = Callable[[bytes], Iterator[Line]]
FILES: list[tuple[str, str, Reader]] = [
    (r"\d{20}\.idx", "index of a segment", read_index),
    (r"head", "head", read_head),
    (r"names", "names", read_names),
    (r"dedup", "message ids", read_ids),
    (r"archived", "how far the log is archived", read_archived),
    (r"salt", "key of the salts", read_salt),
    (r"LOCK", "lock", read_lock),
    (r"\d{10}\.rjl", "file of the journal", read_journal_file),
    (r"transactions", "redo log of transactions, of an earlier version", read_transactions),
    (r"subscriptions(\.damaged)?", "durable subscriptions", read_subscriptions),
    (r"mirror", "a mirror writes here", read_words),
    (r"removals", "partitions that are being removed", read_removals),
    (r"last_rules", "fan_out rules of the last run", read_last_rules),
    (r"snapshot(\.copy|\.damaged)?", "snapshot of the cursors", read_snapshot),
    (r"journal-\d+", "journal of the cursors, of an earlier version", read_old_journal),
    (r"delivered", "hints about deliveries", read_delivered),
    (r"\d{20}@\d+\.bin", "copied damaged bytes", read_bytes),
]


def reader_of(name: str) -> Reader | None:
    """Return the reader for a file of that name; None if no file of a store has such a name."""
    return next((reader for pattern, _, reader in FILES if re.fullmatch(pattern, name)), None)
