"""Find the committed end of every partition, with one small read per partition and without opening a segment.

``ends`` reads the ``head`` file of each partition. ``Holdings`` uses it, and the list of destination names, to decide
whether a partition can contain a destination. ``stretch`` lists the segments of one partition that overlap a range of
offsets, without opening them. If a ``head`` is missing or damaged, the segments are walked as in ``storage.reader``.

Uses directories, ``head`` and ``names``. Must not import records, plans or pyspark.
Invariant: every offset below ``End.next_offset`` is committed, and was when ``ends`` returned.
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

_name_of = lru_cache(maxsize=1 << 17)(layout.decode_name)  # every batch of a stream decodes the same names


class End(NamedTuple):
    """The committed end of a partition.

    Attributes:
        directory: The directory of the partition.
        next_offset: The first offset that is not committed.
        segment_base: The base offset of the segment that contains the end.
        position: The position of the end in that segment, in bytes.
        listed: What ``head`` says about the list of destination names, or None without a valid ``head``.
    """

    directory: str
    next_offset: int
    segment_base: int
    position: int
    listed: layout.Listed | None


def ends(place: Place) -> dict[str, End]:
    """Return the committed end of each partition in which a batch was committed, by name.

    Args:
        place: The store.

    Raises:
        NoStore: There is no store at this place.
        StorageError: The store cannot be read.
    """
    fs, root = place
    exists(place)
    top = layout.partitions_path(root)

    def end(encoded: str) -> tuple[str, End] | None:
        directory = f"{top}/{encoded}"
        try:
            name = _name_of(encoded)
            return name, _end(fs, name, directory)
        except ValueError:
            return None  # not a partition, such as lost+found
        except (NotADirectoryError, FileNotFoundError):
            return None  # a file, or a partition that was removed meanwhile
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
    """Decide which partitions can contain a destination. Caches the lists of names that it has read.

    Args:
        fs: The file system of the store.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._lists: dict[str, tuple[layout.Listed, tuple[str, ...]]] = {}

    def only_itself(self, end: End) -> bool:
        """Return True if the partition contains only the destination that it is named after.

        Args:
            end: The end of the partition.
        """
        return end.listed is not None and end.listed.size_bytes == 0

    def may_hold(self, name: str, end: End, wants: Callable[[str], bool]) -> bool:
        """Return True if a matching record can be below the end. False is certain.

        Args:
            name: The name of the partition.
            end: The end of the partition.
            wants: Returns True for a matching destination.
        """
        known = self._names(name, end)
        return known is None or any(map(wants, known))

    def destinations(self, found: Mapping[str, End]) -> set[str] | None:
        """Return all destinations of the store, or None if a list of names is not complete.

        Args:
            found: The end of each partition, by name.
        """
        names: set[str] = set()
        for name, end in found.items():
            known = self._names(name, end)
            if known is None:
                return None
            names.update(known)
        return names

    def _names(self, name: str, end: End) -> tuple[str, ...] | None:
        """Return the destinations of a partition; None if its list is not complete."""
        listed, known = end.listed, self._lists.get(name)
        if listed is None:
            return None
        if listed.size_bytes == 0:
            return (name,)
        if known is None or known[0] != listed:
            read = self._read(end.directory, listed)
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
    """Return a partition with all of its segments, as of now.

    Args:
        fs: The file system of the store.
        name: The name of the partition.
        end: The end of the partition.

    Raises:
        StorageError: The directory cannot be read.
    """
    try:
        return stored_partition(fs, name, end.directory)
    except OSError as error:
        raise storage_error(end.directory, "read", error, remedy(fs)) from error


def stretch(fs: FileSystem, name: str, end: End, low: int, high: int) -> StoredPartition:
    """Return a partition with the segments that can contain a range of offsets.

    A segment that was removed after the listing has a size of 0; the reader of the range reports it. Use ``absent`` to
    find offsets that no listed segment covers.

    Args:
        fs: The file system of the store.
        name: The name of the partition.
        end: The end of the partition.
        low: The first offset.
        high: The offset after the last one, at most ``end.next_offset``.

    Raises:
        StorageError: The directory cannot be read.
    """
    try:
        bases = sorted(base for base in map(layout.segment_base, fs.listdir(end.directory)) if base is not None)
        if end.segment_base not in bases:  # the log was emptied and continued in a new segment, or head is missing
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
                facts = fs.stat(path)
                size = 0 if facts is None else facts.size
            segments.append(StoredSegment(path, base, following, size, None))
    except OSError as error:
        raise storage_error(end.directory, "read", error, remedy(fs)) from error
    return StoredPartition(name, end.directory, tuple(segments), bases[0], end.next_offset)


def absent(log: StoredPartition, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range of offsets that no listed segment covers, as half-open ranges.

    Args:
        log: A partition with its segments.
        low: The first offset.
        high: The offset after the last one.
    """
    expected = low
    for segment in log.segments:
        if expected < min(segment.base_offset, high):
            yield expected, min(segment.base_offset, high)
        expected = max(expected, segment.end_offset)
    if expected < high:
        yield expected, high
