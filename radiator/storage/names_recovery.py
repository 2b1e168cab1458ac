"""Which destinations a log holds, when it is opened: is the list of them whole?

It matters to whatever removes messages because all who need them have settled them: a queue that nobody knows of has
settled nothing. So the list must be *proven* whole: ``head`` says how many bytes of ``names`` were the whole list, with
their crc, when the log ended where ``head`` says. What was stored behind that is read; so is all of the log, if head or
list do not hold. Where that would be more than a start may read, the list counts as not whole, and nothing is removed
for anybody's sake until it is (``fsck --repair`` reads everything).

Runs on the hub before any other thread exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from radiator import limits
from radiator.storage import layout, names
from radiator.storage.files import FileSystem, read_file, suppress_no_room
from radiator.storage.format import HEADER_BYTES, BatchHeader, DamagedBatch, StoredBatch, split_names
from radiator.storage.log import Log
from radiator.storage.segment import SegmentInfo, Window, last_offset, scan_plain_batches, whole_batches

SCAN_BYTES = 1024 * 1024


class Allowance:
    """How much may still be read in one start."""

    def __init__(self, bytes_left: int | None = None) -> None:
        self.bytes_left = limits.NAMES_SCAN_BYTES_MAX if bytes_left is None else bytes_left


class StoredNames(NamedTuple):
    """The list as it was found."""

    names: set[str]
    exists: bool  # the file is, with anything in it
    intact: bool  # nothing in it is nonsense
    vouched: bool  # the head says that it is whole, up to where the head says that the log ends


def load(log: Log, head: bytes, exists: bool) -> StoredNames:
    """Read the list of a log that has such a ``head``, and a file for the list if it is ``there``. Raises OSError."""
    raw = (read_file(log.fs, layout.names_path(log.directory)) or b"") if exists else b""
    found, position = names.decode(raw)
    intact = names.torn(raw[position:])
    if intact and position:
        log.names.set_stored(set(found), layout.Listed(position, crc32(raw[:position])))
    log.names.vouch()
    return StoredNames(set(found), bool(raw), intact, names.vouched(raw, layout.decode_listed(head)))


def to_scan(found: StoredNames, segments: list[SegmentInfo], head: layout.Head, start: int) -> list[SegmentInfo]:
    """The segments whose names neither the list nor the walk of the last one, which began at ``start``, knows for
    certain."""
    *sealed, active = segments
    since = head.segment_base if found.vouched else 0
    if found.vouched and head.segment_base == active.base_offset:
        return [active] if start > head.position else []
    ends = [segment.base_offset for segment in segments[1:]]
    wanted = [
        segment
        for segment, end in zip(sealed, ends, strict=True)
        if segment.base_offset >= since and not (found.vouched and end <= head.next_offset)
    ]
    return [*wanted, active] if start else wanted


def complete(
    log: Log, found: StoredNames, to_scan: list[SegmentInfo], destinations: set[str], allowance: Allowance
) -> str:
    """Completes ``destinations``, and the list, if that can be done; else says why not."""
    size = sum(segment.size_bytes for segment in to_scan)
    reason = ""
    if size > allowance.bytes_left:
        reason = f"would take reading {size} bytes of the log, which is too much for a start"
    else:
        allowance.bytes_left -= size
        try:
            for segment in to_scan:
                _read(
                    log.fs, layout.segment_path(log.directory, segment.base_offset), segment.base_offset, destinations
                )
        except OSError as error:
            reason = f"takes reading the log, which failed: {error.strerror or error}"
    destinations.update(found.names)
    if not destinations and log.next_offset:  # where nothing was ever stored, nobody has: not who has its name either
        destinations.add(log.names.own_name)
    if reason:
        log.names.not_whole()
        return (
            "not known to be whole: others may have stored here, so nothing is reclaimed, rewritten without what is "
            f"settled, or compacted; finding out {reason}; `radiator fsck --repair` does it"
        )
    if (found.exists or destinations != {log.names.own_name}) and not (
        found.intact and destinations <= log.names.known
    ):
        _write(log, destinations)
    log.names.complete(destinations)
    return ""


def _write(log: Log, destinations: set[str]) -> None:
    with suppress_no_room():  # a cache: then the head does not vouch for it
        log.names.write_anew(log.fs, layout.names_path(log.directory), destinations)
        log.fs.sync_dir(log.directory)


def _read(fs: FileSystem, path: str, base: int, destinations: set[str]) -> None:
    """The names in all batches of one segment."""
    fd = fs.open_read(path)
    try:
        window, size, position, dictionaries = Window(fs, fd, SCAN_BYTES, path), fs.size(fd), 0, set[bytes]()
        while position < size:
            place = window.at(position, HEADER_BYTES)
            scanned, base, _ = scan_plain_batches(window.data, place, len(window.data), base, dictionaries)
            position += scanned - place
            found = next(whole_batches(window, position, size, base), None)  # what skim stopped at, or cannot see
            if found is None:
                break
            position, header = found
            destinations.update(names_of(window, position, header))
            base = last_offset(window, position, header) + 1
            position += header.total_len
        destinations.update(names_in(dictionaries))
    finally:
        fs.close(fd)


def names_of(window: Window, position: int, header: BatchHeader) -> list[str]:
    """Return the destinations of the batch at ``position``; none if its dictionary is damaged, which readers report."""
    try:
        return StoredBatch(window.data, window.at(position, header.total_len), header).names()
    except DamagedBatch:
        return []


def names_in(dictionaries: Iterable[bytes]) -> Iterator[str]:
    """Yield the names in the dictionaries that ``skim`` has found, without those that are damaged."""
    for dictionary in dictionaries:
        with suppress(DamagedBatch):
            yield from split_names(dictionary)
