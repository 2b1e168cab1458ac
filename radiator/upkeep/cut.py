"""Where a copy of a store ends: one moment for all cursors and logs, found beside a running broker.

A transaction over several files is decided by an entry of the redo log, then written everywhere. So if the redo log is
the same before and after the cursors and all heads were read, every batch it holds had been written before, and every
ACK is in the cursors that were read, then no transaction is in the copy in part. Otherwise: look again. A transaction
that is decided and stays unwritten (the disk is full, the journal of the cursors has failed, the broker was killed) is
copied with its entry: whoever opens the copy completes it.

Knows: heads, cursors, the redo log. Must not know: segments. One thread, any process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file
from radiator.storage.format import HEADER_BYTES, DamagedBatch, decode_header
from radiator.storage.layout import Head
from radiator.storage.reader import read_head
from radiator.storage.transaction_log import Entry, decode_entries
from radiator.upkeep.cursor_copy import CursorCopy, read_cursors

TRIES_MAX = 200  # a try takes as long as reading the heads; with ``pause`` between them this is about a second
UNWRITTEN_TRIES = 100  # of these: after that, a decided transaction is not going to be written soon


@dataclass(frozen=True)
class Cut:
    cursors: CursorCopy
    heads: dict[str, Head | None]  # by partition, if anything is committed there; None: the file is lost or damaged
    redo: bytes  # the redo log, where something in it has not been written; else empty
    decided: dict[str, int]  # the partitions that it names, which must be there for it, and where they end by it
    whole: bool  # each transaction is in it as a whole or not at all


def find_cut(fs: FileSystem, root: str, pause: Callable[[], None]) -> Cut:
    """Raises OSError, StorageError."""
    for number in range(TRIES_MAX):
        redo = read_file(fs, layout.transactions_path(root)) or b""
        entries = decode_entries(redo)
        written = _written(fs, root, entries)
        if written or number >= UNWRITTEN_TRIES:
            cursors, heads = _read(fs, root)
            written = written and all(cursors.holds(entry.acks) for entry in entries)
            if (written or number >= UNWRITTEN_TRIES) and _same(fs, root, redo):
                decided = {} if written else _ends(entries)
                return Cut(cursors, heads, b"" if written else redo, decided, True)
        pause()
    return Cut(*_read(fs, root), b"", {}, False)


def _same(fs: FileSystem, root: str, redo: bytes) -> bool:
    return (read_file(fs, layout.transactions_path(root)) or b"") == redo


def _read(fs: FileSystem, root: str) -> tuple[CursorCopy, dict[str, Head | None]]:
    cursors = read_cursors(fs, layout.cursors_path(root))
    heads: dict[str, Head | None] = {}
    for encoded in fs.listdir(layout.partitions_path(root)):
        directory = f"{layout.partitions_path(root)}/{encoded}"
        try:
            name = layout.decode_name(encoded)
            head, raw = read_head(fs, directory)
            if head or (any(raw) if raw is not None else _has_segments(fs, directory)):
                heads[name] = head
        except (ValueError, NotADirectoryError):
            continue  # not ours
    return cursors, heads


def _has_segments(fs: FileSystem, directory: str) -> bool:
    return any(layout.segment_base(name) is not None for name in fs.listdir(directory))


def _written(fs: FileSystem, root: str, entries: list[Entry]) -> bool:
    """Whether every batch of these is below its partition's head."""
    for name, end in _ends(entries).items():
        head, _ = read_head(fs, layout.partition_path(root, name))
        if end and (head is None or head.next_offset < end):
            return False
    return True


def _ends(entries: list[Entry]) -> dict[str, int]:
    """Where the last batch of these ends in each partition; what is settled up to there stays settled."""
    ends: dict[str, int] = {}
    for entry in entries:
        for name, batch in entry.batches:
            try:
                header = decode_header(bytes(batch[:HEADER_BYTES]))
                ends[name] = header.base_offset + header.records
            except DamagedBatch:
                ends.setdefault(name, 0)
    return ends
