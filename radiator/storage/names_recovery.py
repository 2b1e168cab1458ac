"""Find out which destinations a log contains when it is opened: is the list of them complete?

Messages are removed when all queues that need them have settled them, and an unknown queue has settled nothing. So the
list must be *proven* complete: ``head`` contains the length and the crc of the complete list at the time when the log
ended where ``head`` says. What was stored behind that is read; so is the whole log, if head or list are damaged. If
that would be more than a start may read, the list counts as incomplete, and no settled message is removed until it is
complete (``fsck --repair`` reads everything).

It runs on the event loop before any other thread exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from radiator import limits
from radiator.checksum import crc32
from radiator.storage import layout, names
from radiator.storage.files import FileSystem, opened, read_file, suppress_no_room
from radiator.storage.format import StoredBatch, split_names
from radiator.storage.header import HEADER_BYTES, BatchHeader, DamagedBatch
from radiator.storage.log import Log
from radiator.storage.segment import SegmentInfo, Window, last_offset, scan_plain_batches, whole_batches

SCAN_BYTES = 1024 * 1024


class Allowance:
    """How many bytes may still be read in one start."""

    def __init__(self, bytes_left: int | None = None) -> None:
        self.bytes_left = limits.NAMES_SCAN_BYTES_MAX if bytes_left is None else bytes_left


class StoredNames(NamedTuple):
    """The list of destinations, as found."""

    names: set[str]
    exists: bool  # the file is, with anything in it
    intact: bool  # nothing in it is nonsense
    vouched: bool  # the head says that it is whole, up to where the head says that the log ends


def load(log: Log, head: bytes, exists: bool) -> StoredNames:
    """Read the list of a log.

    Args:
        log: The log.
        head: The contents of its head file.
        exists: Whether the file with the list exists.

    Raises:
        OSError: The file cannot be read.
    """
    raw = (read_file(log.fs, layout.names_path(log.directory)) or b"") if exists else b""
    found, position = names.decode(raw)
    intact = names.torn(raw[position:])
    if intact and position:
        log.names.set_stored(set(found), layout.Listed(position, crc32(raw[:position])))
    log.names.vouch()
    return StoredNames(set(found), bool(raw), intact, names.vouched(raw, layout.decode_listed(head)))


def to_scan(found: StoredNames, segments: list[SegmentInfo], head: layout.Head, start: int) -> list[SegmentInfo]:
    """Return the segments whose destinations must be read from the segments.

    Args:
        found: The list.
        segments: Of the log.
        head: Its head.
        start: Where the walk of the last segment began; that walk has read the destinations behind it.
    """
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
    """Complete ``destinations`` and the list, if possible.

    Returns:
        Why they cannot be completed, as a text; "" if they are complete.
    """
    size = sum(segment.size_bytes for segment in to_scan)
    reason = ""
    if size > allowance.bytes_left:
        reason = f"requires {size} bytes of the log, which is too much for a start"
    else:
        allowance.bytes_left -= size
        try:
            for segment in to_scan:
                _read(
                    log.fs, layout.segment_path(log.directory, segment.base_offset), segment.base_offset, destinations
                )
        except OSError as error:
            reason = f"requires the log, which cannot be read: {error.strerror or error}"
    destinations.update(found.names)
    if not destinations and log.next_offset:  # an empty log has no destination, not even its own name
        destinations.add(log.names.own_name)
    if reason:
        log.names.not_whole()
        return (
            "may be incomplete: other destinations may be stored here, so nothing is reclaimed or compacted; the "
            f"check {reason}; run `radiator fsck --repair`"
        )
    if (found.exists or destinations != {log.names.own_name}) and not (
        found.intact and destinations <= log.names.known
    ):
        _write(log, destinations)
    log.names.complete(destinations)
    return ""


def _write(log: Log, destinations: set[str]) -> None:
    with suppress_no_room():  # a cache: without it the head does not prove the list
        log.names.rewrite(log.fs, layout.names_path(log.directory), destinations)
        log.fs.sync_dir(log.directory)


def _read(fs: FileSystem, path: str, base: int, destinations: set[str]) -> None:
    """Add the names in all batches of one segment."""
    with opened(fs, fs.open_read(path)) as fd:
        window, size, position, dictionaries = Window(fs, fd, SCAN_BYTES, path), fs.size(fd), 0, set[bytes]()
        while position < size:
            place = window.at(position, HEADER_BYTES)
            scanned, base, _ = scan_plain_batches(window.data, place, len(window.data), base, dictionaries)
            position += scanned - place
            found = next(whole_batches(window, position, size, base), None)  # the batch at which the scan stopped
            if found is None:
                break
            position, header = found
            destinations.update(names_of(window, position, header))
            base = last_offset(window, position, header) + 1
            position += header.total_len
        destinations.update(names_in(dictionaries))


def names_of(window: Window, position: int, header: BatchHeader) -> list[str]:
    """Return the destinations of the batch at ``position``; none if its dictionary is damaged, which readers report."""
    try:
        return StoredBatch(window.data, window.at(position, header.total_len), header).names()
    except DamagedBatch:
        return []


def names_in(dictionaries: Iterable[bytes]) -> Iterator[str]:
    """Yield the valid names in dictionaries that ``scan_plain_batches`` has found."""
    for dictionary in dictionaries:
        with suppress(DamagedBatch):
            yield from split_names(dictionary)
