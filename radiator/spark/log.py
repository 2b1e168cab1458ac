"""The store as a reader of another process sees it: partitions, their segments, and where what is committed ends.

``head`` is read first and the directory afterwards, so everything below the end is there; what the broker writes
meanwhile lies behind it. A head that is missing or damaged beside segments costs a walk over the last segment by its
crcs, never data. Nothing is locked and nothing is written: the broker does not notice.

Knows: directories, ``head``, segment files. Must not know: what is wanted of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

from radiator.errors import StorageError
from radiator.spark.decode import Counters
from radiator.spark.scan import SegmentRange, scan
from radiator.spark.selection import HIGH
from radiator.storage import index as segment_index
from radiator.storage import layout
from radiator.storage.format import HEADER_BYTES, BatchHeader, DamagedBatch, UnknownVersion, decode_header

HEAD_TRIES = 16  # a torn head is a race with the writer of 40 bytes; losing it this often is damage


@dataclass(frozen=True)
class Segment:
    partition: str
    path: str
    base_offset: int
    next_offset: int  # of what is committed
    end: int  # bytes of it

    def _header_at(self, position: int) -> BatchHeader | None:
        try:
            with open(self.path, "rb", buffering=0) as file:
                return decode_header(os.pread(file.fileno(), HEADER_BYTES, position))
        except (DamagedBatch, UnknownVersion, OSError):
            return None

    def first_receive_ns(self) -> int | None:
        header = self._header_at(0)
        return header.min_receive_ns if header is not None and header.base_offset == self.base_offset else None

    def index(self) -> list[segment_index.IndexEntry]:
        """Entries within what is committed; a cache, so ``confirms`` before use."""
        directory = os.path.dirname(self.path)
        try:
            with open(layout.index_path(directory, self.base_offset), "rb") as file:
                entries = segment_index.decode(file.read(), self.base_offset)
        except OSError:
            return []
        return [entry for entry in entries if entry.position < self.end and entry.base_offset < self.next_offset]

    def confirms(self, entry: segment_index.IndexEntry) -> bool:
        header = self._header_at(entry.position)
        return header is not None and header.base_offset == entry.base_offset


@dataclass(frozen=True)
class PartitionLog:
    name: str
    directory: str
    segments: tuple[Segment, ...]
    next_offset: int

    @cached_property
    def start_offset(self) -> int:
        return self.segments[0].base_offset if self.segments else self.next_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.end for segment in self.segments)


def partitions(root: str) -> list[PartitionLog]:
    """All partitions, by name. Raises StorageError if there is no store at ``root``; one without records is empty."""
    top = layout.partitions_path(root)
    try:
        names = sorted(os.listdir(top))
    except FileNotFoundError:
        _refuse_unless_store(root)
        return []
    except OSError as error:
        raise StorageError(f"{top} cannot be read: {error.strerror}; run this as the broker's user") from error
    logs = []
    for encoded in names:
        try:
            name = layout.decode_name(encoded)
        except ValueError:
            continue  # not ours: lost+found and the like
        logs.append(_partition(name, f"{top}/{encoded}"))
    return logs


def _refuse_unless_store(root: str) -> None:
    if not os.path.isdir(root):
        raise StorageError(f"no radiator store at {root}: there is no such directory; expected a broker's data_dir")
    here = os.path.basename(os.path.abspath(root))
    above = os.path.dirname(os.path.abspath(root))
    if here == layout.PARTITIONS or os.path.basename(above) == layout.PARTITIONS:
        store = above if here == layout.PARTITIONS else os.path.dirname(above)
        raise StorageError(f"{root} is a part of the store at {store}: give that directory (and option partition)")
    if not os.path.exists(layout.lock_path(root)):
        raise StorageError(
            f"no radiator store at {root}: neither {layout.LOCK} nor {layout.PARTITIONS}/ is there; "
            "expected a broker's data_dir"
        )


def _partition(name: str, directory: str) -> PartitionLog:
    head, written = _head(directory)
    try:
        bases = sorted(base for base in map(layout.segment_base, os.listdir(directory)) if base is not None)
    except OSError as error:
        raise StorageError(f"{directory} cannot be read: {error.strerror}; run this as the broker's user") from error
    if not bases or not written:
        return PartitionLog(name, directory, (), 0)
    if head is None:
        head = _walk(name, directory, bases[-1])
    elif head.segment_base not in bases:
        raise StorageError(
            f"partition {name!r}: its head names the segment {head.segment_base}, which is not there: "
            "restart the broker on this store, it recovers the head from the log"
        )
    kept = [base for base in bases if base <= head.segment_base]
    segments = []
    for base, following in zip(kept, [*kept[1:], head.next_offset], strict=True):
        path = layout.segment_path(directory, base)
        last = base == head.segment_base
        end = head.position if last else _size(path)
        segments.append(Segment(name, path, base, following, end))
    return PartitionLog(name, directory, tuple(segments), head.next_offset)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0  # retention, just now; the scan says so


def _head(directory: str) -> tuple[layout.Head | None, bool]:
    """The head (None: missing or damaged), and whether anything can have been committed."""
    data = b""
    for _ in range(HEAD_TRIES):
        try:
            with open(layout.head_path(directory), "rb", buffering=0) as file:
                data = file.read(layout.HEAD_FILE_BYTES)
        except FileNotFoundError:
            return None, True
        head = layout.decode_head(data)
        if head is not None:
            return head, True
    return None, any(data)


def _walk(name: str, directory: str, base: int) -> layout.Head:
    """The end of the last segment by its crcs, for want of a head."""
    path = layout.segment_path(directory, base)
    position, following = 0, base
    for chunk in scan(SegmentRange(name, path, 0, _size(path), base, HIGH), lambda loss: None, Counters()):
        position, following = chunk.end, chunk.next_offset
    return layout.Head(base, position, following)
