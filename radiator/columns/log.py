"""List the committed partitions of a store for planning, and load the index of a segment.

Nothing is locked and nothing is written, so the broker is not affected.

Uses indexes and single batch headers.
"""

from __future__ import annotations

import os

from radiator.columns.files import Place, RemoteFiles, is_remote, remedy
from radiator.columns.listing import listed
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem, opened, storage_error
from radiator.storage.header import HEADER_BYTES, DamagedBatch, UnknownVersion, decode_header
from radiator.storage.index import IndexEntry
from radiator.storage.reader import StoredPartition, StoredSegment, list_partitions
from radiator.storage.segment import load_index

_COMMITS = "_delta_log"  # the directory of commits in an archive


class NoStore(StorageError):
    """There is no store at the given place."""


def partitions(place: Place) -> list[StoredPartition]:
    """Return all partitions of a store, by name; none if nothing has been committed yet.

    Args:
        place: The store.

    Raises:
        NoStore: There is no store at this place.
        StorageError: The store cannot be read.
    """
    return list_partitions(place.root, look(place))


def look(place: Place) -> FileSystem:
    """Return the file system for planning: one snapshot of the store.

    Args:
        place: The store.

    Raises:
        NoStore: There is no store at this place.
        StorageError: The store cannot be read.
    """
    exists(place)
    try:
        return listed(place)
    except OSError as error:
        raise storage_error(place.root, "read", error, remedy(place.fs)) from error


def exists(place: Place) -> None:
    """Raise if there is no store.

    Args:
        place: The place to check.

    Raises:
        NoStore: There is no store at this place.
        StorageError: The directory cannot be read.
    """
    fs, root = place
    try:
        if layout.PARTITIONS not in fs.listdir(root):
            raise NoStore(_missing(fs, root))
    except NotADirectoryError:
        raise NoStore(_missing(fs, root)) from None
    except OSError as error:
        raise storage_error(root, "read", error, remedy(fs)) from error


def _missing(fs: FileSystem, root: str) -> str:
    """Return the reason why ``root`` is not a store, and what to give instead."""
    found = fs.stat(root)
    if found is None:
        return f"no radiator store at {root}: there is no such directory; expected a broker's data_dir"
    here = root if is_remote(root) else os.path.abspath(root)
    above, name = os.path.split(here)
    if layout.PARTITIONS in (name, os.path.basename(above)):
        store = above if name == layout.PARTITIONS else os.path.dirname(above)
        return f"no radiator store at {root}: it is a part of a store; use the path {store} and the option partition"
    missing = f"no radiator store at {root}: it has no directory {layout.PARTITIONS}/; expected a broker's data_dir"
    if found.is_dir and fs.stat(os.path.join(root, _COMMITS)) is not None:
        missing += "; it looks like an archive, which radiator.spark.table(spark, None, archive) reads"
    return missing


def index_of(fs: FileSystem, segment: StoredSegment) -> list[IndexEntry]:
    """Return the index entries of a segment that are committed; none without an index.

    The index is a cache. Check an entry with ``confirms`` before using it.

    Args:
        fs: The file system of the store.
        segment: The segment.
    """
    try:
        entries = load_index(fs, os.path.dirname(segment.path), segment.base_offset)
    except OSError:
        return []
    return [
        entry for entry in entries if entry.position < segment.size_bytes and entry.base_offset < segment.end_offset
    ]


def entry_matches(fs: FileSystem, segment: StoredSegment, entry: IndexEntry) -> bool:
    """Return True if the batch at the position of an index entry is the one that the entry names.

    On a remote file system the check would cost a round trip, so the result is True there. The scan detects a wrong
    entry and reads the segment again by offsets.

    Args:
        fs: The file system of the store.
        segment: The segment.
        entry: The index entry.
    """
    if isinstance(fs, RemoteFiles):
        return True
    try:
        with opened(fs, fs.open_read(segment.path)) as fd:
            header = decode_header(fs.pread(fd, HEADER_BYTES, entry.position))
    except (DamagedBatch, UnknownVersion, OSError):
        return False
    return (header.base_offset, header.min_receive_ns) == (entry.base_offset, entry.min_receive_ns)
