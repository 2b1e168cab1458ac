"""The store as the planner sees it: what ``radiator.storage.reader`` lists, checked, and the index of a segment.

Nothing is locked and nothing is written: the broker does not notice.

Knows: indexes, single headers; the files are an argument. Must not know: what is wanted of them.
"""

from __future__ import annotations

import os

from radiator.columns.files import Place, RemoteFiles, is_remote, remedy
from radiator.columns.listing import listed
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem, storage_error
from radiator.storage.format import HEADER_BYTES, DamagedBatch, UnknownVersion, decode_header
from radiator.storage.index import IndexEntry
from radiator.storage.reader import StoredPartition, StoredSegment, list_partitions
from radiator.storage.segment import load_index

_COMMITS = "_log"  # of an archive


class NoStore(StorageError):
    """There is no store where one was looked for."""


def partitions(place: Place) -> list[StoredPartition]:
    """All partitions, by name; none if nothing has been committed yet. Raises NoStore, or another StorageError."""
    return list_partitions(place.root, look(place))


def look(place: Place) -> FileSystem:
    """The files to plan with, of one look at the store. Raises as ``partitions``."""
    exists(place)
    try:
        return listed(place)
    except OSError as error:
        raise storage_error(place.root, "read", error, remedy(place.fs)) from error


def exists(place: Place) -> None:
    """Raises NoStore if there is no store, or another StorageError."""
    fs, root = place
    try:
        if layout.PARTITIONS not in fs.listdir(root):
            raise NoStore(_missing(fs, root))
    except NotADirectoryError:
        raise NoStore(_missing(fs, root)) from None
    except OSError as error:
        raise storage_error(root, "read", error, remedy(fs)) from error


def _missing(fs: FileSystem, root: str) -> str:
    """Why ``root`` is no store, in words."""
    found = fs.facts(root)
    if found is None:
        return f"no radiator store at {root}: there is no such directory; expected a broker's data_dir"
    here = root if is_remote(root) else os.path.abspath(root)
    above, name = os.path.split(here)
    if layout.PARTITIONS in (name, os.path.basename(above)):
        store = above if name == layout.PARTITIONS else os.path.dirname(above)
        return f"no radiator store at {root}: it is a part of one; give the whole, {store}, and the option partition"
    missing = f"no radiator store at {root}: it has no directory {layout.PARTITIONS}/; expected a broker's data_dir"
    if found.is_dir and fs.facts(os.path.join(root, _COMMITS)) is not None:
        missing += "; it looks like an archive, which radiator.spark.table(spark, None, archive) reads"
    return missing


def index_of(fs: FileSystem, segment: StoredSegment) -> list[IndexEntry]:
    """Its entries within what is committed. The index is a cache: see ``confirms`` before one is used."""
    try:
        entries = load_index(fs, os.path.dirname(segment.path), segment.base_offset)
    except OSError:
        return []
    return [
        entry for entry in entries if entry.position < segment.size_bytes and entry.base_offset < segment.end_offset
    ]


def confirms(fs: FileSystem, segment: StoredSegment, entry: IndexEntry) -> bool:
    """Whether the batch that ``entry`` points to is the one that it names. On another file system that is not asked,
    as each answer is a round trip: whoever reads looks for himself, and a wrong entry costs him time."""
    if isinstance(fs, RemoteFiles):
        return True
    try:
        fd = fs.open_read(segment.path)
        try:
            header = decode_header(fs.pread(fd, HEADER_BYTES, entry.position))
        finally:
            fs.close(fd)
    except (DamagedBatch, UnknownVersion, OSError):
        return False
    return (header.base_offset, header.min_receive_ns) == (entry.base_offset, entry.min_receive_ns)
