"""The store as the planner sees it: what ``radiator.storage.reader`` lists, checked, and the index of a segment.

Nothing is locked and nothing is written: the broker does not notice.

Knows: paths, indexes, single headers. Must not know: what is wanted of them.
"""

from __future__ import annotations

import os

from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.format import HEADER_BYTES, DamagedBatch, UnknownVersion, decode_header
from radiator.storage.index import IndexEntry
from radiator.storage.index import decode as decode_index
from radiator.storage.reader import StoredPartition, StoredSegment, list_partitions


class NoStore(StorageError):
    """There is no store where one was looked for."""


def partitions(root: str) -> list[StoredPartition]:
    """All partitions, by name; none if nothing has been committed yet. Raises NoStore."""
    if not os.path.isdir(layout.partitions_path(root)):
        raise NoStore(_no_store(root))
    return list_partitions(root)


def _no_store(root: str) -> str:
    if not os.path.isdir(root):
        return f"no radiator store at {root}: there is no such directory; expected a broker's data_dir"
    here = os.path.abspath(root)
    above = os.path.dirname(here)
    if os.path.basename(here) == layout.PARTITIONS or os.path.basename(above) == layout.PARTITIONS:
        store = above if os.path.basename(here) == layout.PARTITIONS else os.path.dirname(above)
        return f"no radiator store at {root}: it is a part of one; give the whole, {store}, and the option partition"
    return f"no radiator store at {root}: it has no directory {layout.PARTITIONS}/; expected a broker's data_dir"


def index_of(segment: StoredSegment) -> list[IndexEntry]:
    """Its entries within what is committed. The index is a cache: see ``confirms`` before one is used."""
    try:
        with open(layout.index_path(os.path.dirname(segment.path), segment.base_offset), "rb") as file:
            entries = decode_index(file.read(), segment.base_offset)
    except OSError:
        return []
    return [
        entry for entry in entries if entry.position < segment.size_bytes and entry.base_offset < segment.end_offset
    ]


def confirms(segment: StoredSegment, entry: IndexEntry) -> bool:
    """Whether the batch that ``entry`` points to is the one that it names."""
    try:
        with open(segment.path, "rb", buffering=0) as file:
            header = decode_header(os.pread(file.fileno(), HEADER_BYTES, entry.position))
    except (DamagedBatch, UnknownVersion, OSError):
        return False
    return (header.base_offset, header.min_receive_ns) == (entry.base_offset, entry.min_receive_ns)
