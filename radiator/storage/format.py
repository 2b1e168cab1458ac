"""The batch: the one unit that is written, checked and read. ``docs/storage-format.md`` is the law, this its codec.

A batch is a 64-byte header, fixed-width columns, the dictionary of destination names, the region of header blocks and
the region of bodies; all little-endian, every part padded to 8 bytes, so numpy and Arrow use the parts as they lie.

    header 64 | receive i64[n] | event i64[n]? | transmit i64[n]? | header_off i32[n+1] | body_off i32[n+1]
              | destination_id u32[n] | offset_delta u32[n]? | names | header blocks | bodies

Knows: bytes in, columns out. Must not know: files, positions in a segment, threads, what a header block means.
Invariants: ``decode`` of ``encode`` is the identity; nothing but DamagedBatch (or UnknownVersion) leaves ``decode``,
whatever the bytes; a crc covers everything from byte 16 on, magic and total_len are checked by being used.
All functions are pure, so any thread may call them.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from radiator import limits
from radiator.errors import StorageError

MAGIC_PREFIX = b"\x89RDB"
MAGIC = MAGIC_PREFIX + b"1\r\n\x1a"  # the digit is the format version
FORMAT_VERSION = 1
HEADER_BYTES = 64
ALIGN = 8
CRC_FROM = 16  # the crc covers the bytes from here to total_len
MISSING = -(1 << 63)  # INT64_MIN: this record has no event or transmit time
TIME_MAX = (1 << 63) - 1

# flags
CRC_MASK = 0b11  # which crc; 0 = zlib.crc32
HEADERS_COMPRESSION_SHIFT, BODIES_COMPRESSION_SHIFT, COMPRESSION_MASK = 2, 4, 0b11  # 0 = none
EVENT_ABSENT = 1 << 6  # no record has an event time: the column is not stored
TRANSMIT_ABSENT = 1 << 7
TRANSACTION = 1 << 8  # the records of one transaction in this partition
SPARSE = 1 << 9  # offset_delta u32[n] follows destination_id: compaction left holes
KNOWN_FLAGS = EVENT_ABSENT | TRANSMIT_ABSENT | TRANSACTION | SPARSE

#        magic  total_len crc | base min_ns max_ns count flags destinations names headers bodies salt
HEADER = Struct("<8sIIQqqIHHIIII")
PREFIX = Struct("<8sII")
REST = Struct("<QqqIHHIIII")
U32 = Struct("<I")
PAD = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")  # by length & 7

# A batch of one record, the shape of a lone synchronous producer: everything up to the names in one go.
_ONE_COLUMNS = {0: "qqq", EVENT_ABSENT: "qq", TRANSMIT_ABSENT: "qq", EVENT_ABSENT | TRANSMIT_ABSENT: "q"}
_ONE_WRITE = {flags: Struct("<QqqIHHIIII" + columns + "iiiiI4xI") for flags, columns in _ONE_COLUMNS.items()}
_ONE_READ = {flags: Struct("<" + columns + "iiiiI4xI") for flags, columns in _ONE_COLUMNS.items()}

_SWAP = sys.byteorder == "big"
assert array("i").itemsize == 4 and array("I").itemsize == 4 and array("q").itemsize == 8


class DamagedBatch(StorageError):
    """These bytes are not a whole, correct batch. ``str()`` says what was expected and what came."""


class UnknownVersion(StorageError):
    """A batch written by a newer radiator."""


class BatchHeader(NamedTuple):
    total_len: int
    crc: int
    base_offset: int
    min_receive_ns: int
    max_receive_ns: int
    records: int
    flags: int
    destination_count: int
    names_len: int
    headers_len: int
    bodies_len: int
    salt: int


class Columns(NamedTuple):
    """A decoded batch. ``offsets`` is a range when dense; ``names[destination_ids[i]]`` is record i's destination."""

    offsets: Sequence[int]
    receive_ns: Sequence[int]
    event_ns: Sequence[int] | None
    transmit_ns: Sequence[int] | None
    destination_ids: Sequence[int]
    names: list[str]
    blocks: list[bytes]
    bodies: list[bytes]


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_batch(
    base_offset: int,
    receive_ns: Sequence[int],
    event_ns: Sequence[int] | None,
    transmit_ns: Sequence[int] | None,
    destination_ids: Sequence[int],
    names: Sequence[str],
    blocks: Sequence[bytes],
    bodies: Sequence[bytes],
    flags: int = 0,
    offset_deltas: Sequence[int] | None = None,
    salt: int = 0,
) -> list[bytes]:
    """The pieces of one batch, to be written one after the other. ``flags``: TRANSACTION or nothing; the rest is set
    here from what is given. Times must fit an i64, ``receive_ns`` must not fall."""
    count = len(blocks)
    assert count == len(bodies) == len(receive_ns) and count > 0
    if event_ns is None:
        flags |= EVENT_ABSENT
    if transmit_ns is None:
        flags |= TRANSMIT_ABSENT
    if count == 1 and len(names) == 1 and offset_deltas is None:
        record = (names[0], blocks[0], bodies[0])
        return _encode_one(base_offset, receive_ns[0], event_ns, transmit_ns, *record, flags, salt)
    header_off = array("i", accumulate(map(len, blocks), initial=0))
    body_off = array("i", accumulate(map(len, bodies), initial=0))
    dictionary = b"".join([part for name in map(str.encode, names) for part in (U32.pack(len(name)), name)])
    columns = [_i64(receive_ns)]
    if event_ns is not None:
        columns.append(_i64(event_ns))
    if transmit_ns is not None:
        columns.append(_i64(transmit_ns))
    odd = b"" if count & 1 else b"\0\0\0\0"  # of an (n+1)-column of 4-byte values; of an n-column the opposite
    even = b"\0\0\0\0" if count & 1 else b""
    columns += [_bytes(header_off), odd, _bytes(body_off), odd, _bytes(array("I", destination_ids)), even]
    if offset_deltas is not None:
        flags |= SPARSE
        columns += [_bytes(array("I", offset_deltas)), even]
    names_len, headers_len, bodies_len = len(dictionary), header_off[-1], body_off[-1]
    rest = b"".join(
        [
            REST.pack(
                base_offset,
                receive_ns[0],
                receive_ns[-1],
                count,
                flags,
                len(names),
                names_len,
                headers_len,
                bodies_len,
                salt,
            ),
            *columns,
            dictionary,
            PAD[names_len & 7],
            *blocks,
            PAD[headers_len & 7],
            *bodies,
            PAD[bodies_len & 7],
        ]
    )
    return [PREFIX.pack(MAGIC, len(rest) + CRC_FROM, crc32(rest)), rest]


def _encode_one(
    base_offset: int,
    receive_ns: int,
    event_ns: Sequence[int] | None,
    transmit_ns: Sequence[int] | None,
    name: str,
    block: bytes,
    body: bytes,
    flags: int,
    salt: int,
) -> list[bytes]:
    encoded = name.encode()
    names_len, headers_len, bodies_len = len(encoded) + 4, len(block), len(body)
    times = (receive_ns,)
    if event_ns is not None:
        times += (event_ns[0],)  # type: ignore[assignment]
    if transmit_ns is not None:
        times += (transmit_ns[0],)  # type: ignore[assignment]
    head = _ONE_WRITE[flags & (EVENT_ABSENT | TRANSMIT_ABSENT)].pack(
        base_offset,
        receive_ns,
        receive_ns,
        1,
        flags,
        1,
        names_len,
        headers_len,
        bodies_len,
        salt,
        *times,
        0,
        headers_len,
        0,
        bodies_len,
        0,
        names_len - 4,
    )
    rest = b"".join((head, encoded, PAD[names_len & 7], block, PAD[headers_len & 7], body, PAD[bodies_len & 7]))
    return [PREFIX.pack(MAGIC, len(rest) + CRC_FROM, crc32(rest)), rest]


def _i64(values: Sequence[int]) -> bytes:
    return _bytes(values if isinstance(values, array) else array("q", values))


def _bytes(column: array[int]) -> bytes:
    if _SWAP:
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


# --- reading ----------------------------------------------------------------------------------------------------------


def columns_len(count: int, flags: int) -> int:
    """Bytes between the header and the names."""
    times = 3 - bool(flags & EVENT_ABSENT) - bool(flags & TRANSMIT_ABSENT)
    ids = (4 * count + 7) & ~7
    return 8 * count * times + 2 * ((4 * (count + 1) + 7) & ~7) + ids * (2 if flags & SPARSE else 1)


def decode_header(data: bytes | memoryview, at: int = 0) -> BatchHeader:
    """The header at ``at``, its lengths checked against one another; the crc is not looked at. Raises DamagedBatch."""
    if len(data) - at < HEADER_BYTES:
        raise DamagedBatch(f"batch header: expected {HEADER_BYTES} bytes, got {max(len(data) - at, 0)}")
    magic, total, crc, base, low, high, count, flags, destinations, names, headers, bodies, salt = HEADER.unpack_from(
        data, at
    )
    if magic != MAGIC:
        _wrong_magic(magic)
    expected = (
        HEADER_BYTES + columns_len(count, flags) + ((names + 7) & ~7) + ((headers + 7) & ~7) + ((bodies + 7) & ~7)
    )
    if total != expected or not count or count > 4 * limits.BATCH_RECORDS_MAX:
        raise DamagedBatch(
            f"batch header: total_len {total} does not fit its parts ({expected} bytes, {count} records)"
        )
    return BatchHeader(total, crc, base, low, high, count, flags, destinations, names, headers, bodies, salt)


def _wrong_magic(magic: bytes) -> None:
    if magic[:4] == MAGIC_PREFIX and magic[5:] == MAGIC[5:] and magic[4:5].isdigit():
        raise UnknownVersion(
            f"batch of format version {magic[4:5].decode()}, this program reads up to {FORMAT_VERSION}: "
            "use the radiator release that wrote it, or a newer one"
        )
    raise DamagedBatch(f"batch magic: expected {MAGIC.hex()}, got {magic.hex()}")


def check(data: bytes | memoryview, at: int, header: BatchHeader) -> None:
    """Raises DamagedBatch unless the whole batch is there and its crc holds."""
    end = at + header.total_len
    if end > len(data):
        raise DamagedBatch(
            f"batch at offset {header.base_offset}: {header.total_len} bytes expected, {len(data) - at} there"
        )
    crc = crc32(memoryview(data)[at + CRC_FROM : end])
    if crc != header.crc:
        raise DamagedBatch(f"batch at offset {header.base_offset}: crc expected {header.crc:08x}, got {crc:08x}")
    if header.flags & ~KNOWN_FLAGS:
        raise UnknownVersion(
            f"batch at offset {header.base_offset}: flags {header.flags:#06x} of a newer radiator: use that release"
        )


def decode(data: bytes, at: int = 0) -> tuple[BatchHeader, Columns]:
    """Header and columns of the batch at ``at``, crc checked. Raises DamagedBatch."""
    header = decode_header(data, at)
    check(data, at, header)
    return header, decode_columns(data, at, header)


def decode_columns(data: bytes, at: int, header: BatchHeader) -> Columns:
    """The columns of a batch whose crc has been checked."""
    flags, count, base = header.flags, header.records, header.base_offset
    if count == 1 and not flags & SPARSE and header.destination_count == 1:
        return _decode_one(data, at, header)
    pos = at + HEADER_BYTES
    wide, offs, ids = 8 * count, (4 * (count + 1) + 7) & ~7, (4 * count + 7) & ~7
    receive_ns = _column("q", data, pos, wide)
    pos += wide
    event_ns = transmit_ns = None
    if not flags & EVENT_ABSENT:
        event_ns = _column("q", data, pos, wide)
        pos += wide
    if not flags & TRANSMIT_ABSENT:
        transmit_ns = _column("q", data, pos, wide)
        pos += wide
    header_off = _column("i", data, pos, 4 * (count + 1))
    body_off = _column("i", data, pos + offs, 4 * (count + 1))
    pos += 2 * offs
    destination_ids = _column("I", data, pos, 4 * count)
    pos += ids
    offsets: Sequence[int] = range(base, base + count)
    if flags & SPARSE:
        offsets = array("Q", (base + delta for delta in _column("I", data, pos, 4 * count)))
        pos += ids
    names = _names(data, pos, header)
    pos += (header.names_len + 7) & ~7
    blocks = _slices(data, pos, header_off, header.headers_len)
    pos += (header.headers_len + 7) & ~7
    bodies = _slices(data, pos, body_off, header.bodies_len)
    if max(destination_ids) >= len(names):
        raise DamagedBatch(f"batch at offset {base}: destination id {max(destination_ids)} of {len(names)} names")
    return Columns(offsets, receive_ns, event_ns, transmit_ns, destination_ids, names, blocks, bodies)


def decode_destinations(data: bytes, at: int, header: BatchHeader) -> tuple[Sequence[int], Sequence[int], list[str]]:
    """Only (offsets, destination_ids, names) of a batch whose crc has been checked."""
    count, base = header.records, header.base_offset
    names_at = at + HEADER_BYTES + columns_len(count, header.flags)
    ids_at = names_at - ((4 * count + 7) & ~7)
    offsets: Sequence[int] = range(base, base + count)
    if header.flags & SPARSE:
        offsets = array("Q", (base + delta for delta in _column("I", data, ids_at, 4 * count)))
        ids_at -= (4 * count + 7) & ~7
    return offsets, _column("I", data, ids_at, 4 * count), _names(data, names_at, header)


def _decode_one(data: bytes, at: int, header: BatchHeader) -> Columns:
    flags = header.flags & (EVENT_ABSENT | TRANSMIT_ABSENT)
    shape = _ONE_READ[flags]
    values = shape.unpack_from(data, at + HEADER_BYTES)
    name_at = at + HEADER_BYTES + shape.size
    block_at = name_at - 4 + ((header.names_len + 7) & ~7)
    body_at = block_at + ((header.headers_len + 7) & ~7)
    if values[-6:] != (0, header.headers_len, 0, header.bodies_len, 0, header.names_len - 4):
        raise DamagedBatch(f"batch at offset {header.base_offset}: its parts contradict its header")
    return Columns(
        range(header.base_offset, header.base_offset + 1),
        values[:1],
        None if flags & EVENT_ABSENT else values[1:2],
        None if flags & TRANSMIT_ABSENT else values[-7:-6],
        (0,),
        [data[name_at : name_at + header.names_len - 4].decode("utf-8", "replace")],
        [data[block_at : block_at + header.headers_len]],
        [data[body_at : body_at + header.bodies_len]],
    )


def _column(typecode: str, data: bytes, at: int, length: int) -> array[int]:
    column = array(typecode)
    column.frombytes(memoryview(data)[at : at + length])
    if _SWAP:
        column.byteswap()
    return column


def split_names(region: bytes) -> list[str]:
    """The names of a dictionary that lies in a batch whose crc has been checked."""
    found, at = [], 0
    while at + 4 <= len(region):
        start = at + 4
        at = start + int(U32.unpack_from(region, at)[0])
        found.append(region[start:at].decode("utf-8", "replace"))
    return found


def _names(data: bytes, at: int, header: BatchHeader) -> list[str]:
    names: list[str] = []
    end = at + header.names_len
    while at + 4 <= end and len(names) < header.destination_count:
        start = at + 4
        at = start + int(U32.unpack_from(data, at)[0])
        names.append(data[start:at].decode("utf-8", "replace"))
    if at != end or len(names) != header.destination_count:
        raise DamagedBatch(f"batch at offset {header.base_offset}: the dictionary of names does not fit its length")
    return names


def _slices(data: bytes, at: int, offsets: array[int], length: int) -> list[bytes]:
    if offsets[0] or offsets[-1] != length:
        raise DamagedBatch(f"value offsets: expected 0 to {length}, got {offsets[0]} to {offsets[-1]}")
    region = data[at : at + length]
    starts = iter(offsets)
    next(starts)
    return [region[start:stop] for start, stop in zip(offsets, starts, strict=False)]


def find_magic(data: bytes, at: int) -> int:
    """The first 8-aligned place at or after ``at`` where a batch might begin, or -1. ``data`` itself begins aligned."""
    while True:
        at = data.find(MAGIC, at)
        if at < 0 or not at & (ALIGN - 1):
            return at
        at += 1
