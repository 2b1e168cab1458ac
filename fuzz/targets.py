"""Fuzz targets for files (``wire`` has those for the wire). A target takes bytes, and raises if a property is violated.

    batch      the decoder raises only DamagedBatch and UnknownVersion, and returns only batches of a legal size
    log        a directory with these bytes as segment, index, head and names recovers, twice, to the same state
    cursors    these bytes as the journal, or as a snapshot: no unacknowledged message becomes acknowledged
    index      the decoder returns increasing entries, or none

``seal`` repairs magics and crcs first, because a mutation hardly ever keeps them. So mutations also reach the code
behind the checks.

Uses the internals of storage. Must not import atheris and Hypothesis, which call the targets (``run``, and tests of
storage).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from itertools import pairwise
from struct import Struct
from zlib import crc32

from radiator import limits
from radiator.clock import MonoNs
from radiator.config import Settings
from radiator.storage import cursor_files, index, layout, salt
from radiator.storage import cursor_records as journal
from radiator.storage.cursor_store import CursorStore
from radiator.storage.files import FileSystem
from radiator.storage.format import decode, encode_batch
from radiator.storage.header import CRC_FROM, MAGIC, DamagedBatch, UnknownVersion
from radiator.storage.journal.journal import Journal
from radiator.storage.journal.reading import JournalFiles
from radiator.storage.log import Log
from radiator.storage.names_recovery import Allowance
from radiator.storage.open_logs import OpenLogs
from radiator.storage.recovery import RecoveryNote, recover
from radiator.storage.segment import Window, whole_batches

KEY = bytes(16)
U32 = Struct("<I")
MEMORY_FACTOR_MAX = 64  # decoded columns are Python objects; a compressed region states its length
EXPANDED_BYTES_MAX = 64 * 1024 * 1024


def seal(data: bytes) -> bytes:
    """Give every batch header in ``data`` a valid magic, and the crc of the bytes that it covers."""
    sealed, at = bytearray(data), 0
    while at + 64 <= len(sealed):
        (total,) = U32.unpack_from(sealed, at + 8)
        end = at + total
        if not 64 <= total <= len(sealed) - at:
            break
        sealed[at : at + 8] = MAGIC
        U32.pack_into(sealed, at + 12, crc32(sealed[at + CRC_FROM : end]))
        at = end
    return bytes(sealed)


def batch(data: bytes) -> None:
    for each in (data, MAGIC + data, seal(data)):
        try:
            _, columns = decode(each)
        except (DamagedBatch, UnknownVersion):
            continue
        kept = sum(map(len, columns.bodies)) + sum(map(len, columns.blocks))
        assert kept <= max(MEMORY_FACTOR_MAX * len(each), EXPANDED_BYTES_MAX)
        assert len(columns.bodies) == len(columns.blocks) == len(columns.offsets) == len(columns.receive_ns)
        assert all(one < other for one, other in pairwise(columns.offsets))


def log(data: bytes) -> None:
    """Recover a log. The first byte selects the file that the others replace, and whether ``seal`` repairs them."""
    choice, data = data[:1] or b"\0", data[1:]
    which, data = choice[0] & 3, seal(data) if choice[0] & 4 else data
    with tempfile.TemporaryDirectory(dir=_memory()) as root:
        directory = layout.partition_path(root, "q")
        os.makedirs(directory)
        whole = [_batch(0), _batch(1), _batch(2)]
        files = {
            layout.segment_path(directory, 0): b"".join(whole),
            layout.index_path(directory, 0): index.encode_head(0),
            layout.head_path(directory): b"",
            layout.names_path(directory): b"",
        }
        path = list(files)[which]
        files[path] = whole[0] + data + whole[2] if which == 0 and choice[0] & 8 else data
        for each, content in files.items():
            with open(each, "wb") as file:
                file.write(content)
        try:
            first = _recovered(directory)
            size = os.path.getsize(layout.segment_path(directory, 0))
            assert _recovered(directory) == first, "what one start has found, the next one finds"
            assert os.path.getsize(layout.segment_path(directory, 0)) == size
        except UnknownVersion:
            assert choice[0] & 4 or b"\x89RDB" in data
            return
        if which:
            assert first[1] == [0, 1, 2], "no cache costs a message"


def cursors(data: bytes) -> None:
    choice, data = data[:1] or b"\0", data[1:]
    with tempfile.TemporaryDirectory(dir=_memory()) as root:
        fs = FileSystem()
        store = _cursors(fs, root, [])
        store.open("queue:q", "q", 0).ack([0, 1])
        told = [(1, job.records) for job in store.take(MonoNs(0))]
        store.close()
        block = journal.BLOCK.pack(journal.BLOCK_MAGIC, len(data), crc32(data)) + data + b"\0" * (-len(data) & 7)
        content = block if choice[0] & 1 else data
        name = f"{journal.JOURNAL}{0:010d}"
        if choice[0] & 2:
            name = "snapshot"
            content = journal.SNAPSHOT.pack(journal.SNAPSHOT_MAGIC, 0) + content
        with open(f"{root}/{name}", "wb") as file:
            file.write(content)
        if choice[0] & 4:
            told.append((2, data))
        again = _cursors(fs, root, told)
        for cursor_name, partition in again.names():
            cursor = again.get(cursor_name, partition)
            assert cursor is not None and cursor.ceiling <= 10, "nobody is ahead of the log"
        again.close()


def _cursors(fs: FileSystem, root: str, told: list[tuple[int, bytes]]) -> CursorStore:
    store = CursorStore(fs, root, Journal(fs, root))
    store.load(cursor_files.read(fs, root, told), {"q": 10})
    return store


def indexed(data: bytes) -> None:
    for each in (data, index.encode_head(0) + data):
        entries = index.decode(each, 0)
        assert len(entries) <= len(each) // index.ENTRY_BYTES
        assert all(one.position < other.position for one, other in pairwise(entries))


TARGETS: dict[str, Callable[[bytes], None]] = {"batch": batch, "log": log, "cursors": cursors, "index": indexed}


def seeds() -> dict[str, list[bytes]]:
    """Return the inputs with which mutation begins."""
    plain = _batch(0)
    many = b"".join(
        encode_batch(
            1, [1, 2, 3], [1, 2, 3], None, [0, 1, 0], ["a", "b"], [b"h:1"] * 3, [b"x", b"", b"yy"], 0, [0, 2, 5]
        )
    )
    records = [journal.create(1, 0, 2, "queue:q", "q"), journal.acked(1, [(3, 5), (7, 9)]), journal.counts(1, {6: 2})]
    seek = bytes([journal.SEEK]) + (1).to_bytes(4, "little") + (4).to_bytes(8, "little")
    entries = index.encode_entries([index.IndexEntry(0, 0, 1), index.IndexEntry(3, 1 << 16, 2)])
    return {
        "batch": [plain, many],
        "log": [bytes([choice]) + data for choice in (0, 4, 8, 12) for data in (plain, many, plain + many)]
        + [b"\1" + index.encode_head(0) + entries, b"\2" + layout.encode_head(0, 240, 2), b"\3\1\0\0\0abcdq"],
        "cursors": [bytes([choice]) + b"".join([*records, seek, journal.delete(1)]) for choice in range(8)],
        "index": [entries],
    }


def _batch(offset: int) -> bytes:
    known = salt.of_partition(KEY, "/partitions/q")
    return b"".join(encode_batch(offset, [offset], None, None, [0], ["q"], [b"h:1"], [b"body %d" % offset], salt=known))


def _recovered(directory: str) -> tuple[int, list[int]]:
    fs, notes = FileSystem(), list[RecoveryNote]()
    made = Log(fs, directory, "q", Settings(), OpenLogs(), salt.of_partition(KEY, directory))
    found = recover(made, notes, Allowance(), JournalFiles(fs, directory))  # which has no journal
    assert all(one.first_receive_ns <= one.last_receive_ns for one in found.segments)
    path = layout.segment_path(directory, 0)
    fd = fs.open_read(path)
    try:
        window = Window(fs, fd, limits.READ_CHUNK_BYTES, path)
        offsets = [header.base_offset for _, header in whole_batches(window, 0, made.position, 0)]
    finally:
        fs.close(fd)
    assert offsets == sorted(set(offsets)) and all(offset < found.next_offset for offset in offsets)
    return found.next_offset, offsets


def _memory() -> str | None:
    """Return a directory in memory, if there is one."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None
