"""How far every partition is committed, for whoever asks again and again: a small read a partition, no segment opened.

``ends`` reads the ``head`` of each partition; ``Holdings`` says by what stands there, and by the list of names, whether
a partition can hold a wanted destination at all; ``stretch`` lists the segments of one partition that overlap a range
of offsets, without opening them. A head that is missing or damaged costs the walk that ``storage.reader`` makes.

Knows: directories, ``head``, ``names``. Must not know: records, plans, pyspark.
Invariant: whatever lies below ``End.next_offset`` is committed, and was when ``ends`` returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from radiator.columns.files import Place, remedy, together
from radiator.columns.log import exists
from radiator.storage import layout, names
from radiator.storage.files import FileSystem, read_file, storage_error
from radiator.storage.reader import StoredPartition, StoredSegment, read_head, stored_partition

_name_of = lru_cache(maxsize=1 << 17)(layout.decode_name)  # asked for the same ones again and again


class End(NamedTuple):
    """The first offset that is not committed, where that stands, and what head says of the list of names."""

    directory: str
    next_offset: int
    segment_base: int
    position: int
    listed: layout.Listed | None


def ends(place: Place) -> dict[str, End]:
    """Of all partitions in which something was committed, by name. Raises NoStore, StorageError."""
    fs, root = place
    exists(place)
    top = layout.partitions_path(root)

    def end(encoded: str) -> tuple[str, End] | None:
        directory = f"{top}/{encoded}"
        try:
            name = _name_of(encoded)
            return name, _end(fs, name, directory)
        except ValueError:
            return None  # not ours: lost+found and the like
        except (NotADirectoryError, FileNotFoundError):
            return None  # somebody's notes; or just removed
        except OSError as error:
            raise storage_error(directory, "read", error, remedy(fs)) from error

    return dict(each for each in together(fs, end, sorted(fs.listdir(top))) if each is not None)


def _end(fs: FileSystem, name: str, directory: str) -> End:
    head, raw = read_head(fs, directory)
    if head is None or raw is None:
        log = stored_partition(fs, name, directory)
        last = log.segments[-1] if log.segments else None
        base, position = (last.base_offset, last.size_bytes) if last else (log.next_offset, 0)
        return End(directory, log.next_offset, base, position, None)
    return End(directory, head.next_offset, head.segment_base, head.position, layout.decode_listed(raw))


class Holdings:
    """Which partitions can hold a wanted destination; remembers the lists of names that it has read."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._lists: dict[str, tuple[layout.Listed, tuple[str, ...]]] = {}

    def only_itself(self, end: End) -> bool:
        """Whether the partition holds nothing but the destination after which it is named."""
        return end.listed is not None and end.listed.size_bytes == 0

    def may_hold(self, name: str, end: End, wants: Callable[[str], bool]) -> bool:
        """Whether a wanted record may lie below the end. False is certain."""
        if end.listed is None:
            return True
        if end.listed.size_bytes == 0:
            return wants(name)
        known = self._names(name, end.directory, end.listed)
        return known is None or any(map(wants, known))

    def destinations(self, found: Mapping[str, End]) -> set[str] | None:
        """All that the store holds; None if a list is not whole."""
        names: set[str] = set()
        for name, end in found.items():
            if end.listed is None:
                return None
            known = self._names(name, end.directory, end.listed) if end.listed.size_bytes else (name,)
            if known is None:
                return None
            names.update(known)
        return names

    def _names(self, name: str, directory: str, listed: layout.Listed) -> tuple[str, ...] | None:
        known = self._lists.get(name)
        if known is None or known[0] != listed:
            read = self._read(directory, listed)
            if read is None:
                return None
            known = self._lists[name] = (listed, read)
        return known[1]

    def _read(self, directory: str, listed: layout.Listed) -> tuple[str, ...] | None:
        data = read_file(self._fs, layout.names_path(directory)) or b""
        if not names.vouched(data, listed):
            return None
        found, used = names.decode(data[: listed.size_bytes])
        return tuple(found) if used == listed.size_bytes else None


def stored(fs: FileSystem, name: str, end: End) -> StoredPartition:
    """The partition with all of its segments, as of now. Raises StorageError."""
    try:
        return stored_partition(fs, name, end.directory)
    except OSError as error:
        raise storage_error(end.directory, "read", error, remedy(fs)) from error


def stretch(fs: FileSystem, name: str, end: End, low: int, high: int) -> StoredPartition:
    """The partition with those of its segments that can hold offsets from ``low`` up to, not including, ``high``, which
    is at most ``end.next_offset``. One that is gone since it was listed has no bytes: who reads it tells. What was
    listed is not all that was asked for: see ``absent``. Raises StorageError."""
    try:
        bases = sorted(base for base in map(layout.segment_base, fs.listdir(end.directory)) if base is not None)
        if end.segment_base not in bases:  # a segment was begun and the log emptied meanwhile, or head is not to be had
            return stored_partition(fs, name, end.directory)
        segments = []
        for base, following in zip(bases, [*bases[1:], end.next_offset], strict=True):
            if base >= high or base > end.segment_base:
                break
            following = min(following, end.next_offset) if base == end.segment_base else following
            if following <= low:
                continue
            path = layout.segment_path(end.directory, base)
            if base == end.segment_base:
                size = end.position
            else:
                facts = fs.facts(path)
                size = 0 if facts is None else facts.size
            segments.append(StoredSegment(path, base, following, size, None))
    except OSError as error:
        raise storage_error(end.directory, "read", error, remedy(fs)) from error
    return StoredPartition(name, end.directory, tuple(segments), bases[0], end.next_offset)


def absent(log: StoredPartition, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Of the offsets from ``low`` up to, not including, ``high`` those that lie in no segment that was listed."""
    expected = low
    for segment in log.segments:
        if expected < min(segment.base_offset, high):
            yield expected, min(segment.base_offset, high)
        expected = max(expected, segment.end_offset)
    if expected < high:
        yield expected, high
