"""The batch: the one unit that is written, checked and read. ``docs/storage-format.md`` is the law, this its codec.

A batch is a 64-byte header, fixed-width columns, the dictionary of destination names, the region of header blocks and
the region of bodies; all little-endian, every part padded to 8 bytes, so numpy and Arrow use the parts as they lie.

    header 64 | receive i64[n] | event i64[n]? | transmit i64[n]? | header_off i32[n+1] | body_off i32[n+1]
              | destination_id u32[n] | offset_delta u32[n]? | names | header blocks | bodies | partial crcs?

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
from operator import ge, gt
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from radiator.limits import PARTIAL_CRC_BYTES_MIN
from radiator.speed import accelerated
from radiator.storage.compression import compress, decompress
from radiator.storage.header import (
    ALIGN,
    BODIES_ZSTD,
    COMPRESSED,
    CRC_FROM,
    EVENT_ABSENT,
    FORMAT_VERSION,
    HEADER,
    HEADER_BYTES,
    HEADERS_ZSTD,
    KNOWN_FLAGS,
    MAGIC,
    MISSING,
    PAD,
    PARTIAL_CRCS,
    PLAIN,
    PREFIX,
    REST,
    SPARSE,
    TIME_MAX,
    TRAILER,
    TRANSACTION,
    TRANSMIT_ABSENT,
    U32,
    BatchHeader,
    DamagedBatch,
    UnknownVersion,
    check,
    columns_len,
    decode_header,
    find_magic,
    trailer_len,
)

__all__ = [
    "ALIGN",
    "BODIES_ZSTD",
    "COMPRESSED",
    "CRC_FROM",
    "EVENT_ABSENT",
    "FORMAT_VERSION",
    "HEADER",
    "HEADERS_ZSTD",
    "HEADER_BYTES",
    "KNOWN_FLAGS",
    "MAGIC",
    "MISSING",
    "PARTIAL_CRCS",
    "PLAIN",
    "PREFIX",
    "SPARSE",
    "TIME_MAX",
    "TRAILER",
    "TRANSACTION",
    "TRANSMIT_ABSENT",
    "BatchHeader",
    "Columns",
    "DamagedBatch",
    "UnknownVersion",
    "check",
    "columns_len",
    "decode",
    "decode_columns",
    "decode_destinations",
    "decode_header",
    "decode_times",
    "encode_batch",
    "find_magic",
    "lower_times",
    "split_names",
    "trailer_len",
]

# A batch of one record, the shape of a lone synchronous producer: everything up to the names in one go.
_ONE_COLUMNS = {0: "qqq", EVENT_ABSENT: "qq", TRANSMIT_ABSENT: "qq", EVENT_ABSENT | TRANSMIT_ABSENT: "q"}
_ONE_READ = {flags: Struct("<" + columns + "iiiiI4xI") for flags, columns in _ONE_COLUMNS.items()}
FEW_RECORDS_MAX = 16  # of one destination: what a log has of a group that has something of many


def _few_struct(count: int, times: int) -> Struct:
    """Everything from the header's base offset up to the names, of a batch with ``count`` records of one destination
    and so many columns of times."""
    starts = f"{count + 1}i" + "4x" * (1 - (count & 1))
    return Struct(f"<QqqIHHIIII{times * count}q{starts}{starts}{4 * count + 4 * (count & 1)}xI")


_FEW = [[_few_struct(count, times) for count in range(FEW_RECORDS_MAX + 1)] for times in range(4)]

OFFSET_MAX = (1 << 64) - 1
_SWAP = sys.byteorder == "big"
assert array("i").itemsize == 4 and array("I").itemsize == 4 and array("q").itemsize == 8


class Columns(NamedTuple):
    """A decoded batch, in the order in which RecordBatch and Merger take it. ``offsets`` is a range when dense, and
    ``base_offset`` is below the first of them if records before it have been removed; ``names[destination_ids[i]]`` is
    record i's destination; ``size_bytes`` is of blocks and bodies, whatever they took on disk."""

    offsets: Sequence[int]
    receive_ns: Sequence[int]
    event_ns: Sequence[int] | None
    transmit_ns: Sequence[int] | None
    destination_ids: Sequence[int]
    names: list[str]
    blocks: list[bytes]
    bodies: list[bytes]
    size_bytes: int
    base_offset: int


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
    level: int = 0,
) -> list[bytes]:
    """The pieces of one batch, to be written one after the other. ``flags``: TRANSACTION or nothing; the rest is set
    here from what is given. Times must fit an i64, ``receive_ns`` must not fall.

    ``offset_deltas`` makes the batch sparse: record i has the offset ``base_offset + offset_deltas[i]``. The deltas
    rise, fit a u32, and need not begin with 0: ``base_offset`` is where the coverage begins, which is one behind the
    last offset of the batch before it, and every offset in between was removed on purpose.

    ``level`` is that of zstd, ``limits.ZSTD_LEVEL`` as a rule; 0 stores the regions as they are, as does a region that
    would not get smaller or that is larger than ``limits.BATCH_BYTES_MAX``, which no reader would unpack. Raises
    StorageError if there is a level but no zstandard.

    Where readers save much by leaving out header blocks or bodies, the batch has PARTIAL_CRCS: the running crc behind
    the names and behind the header blocks, so that what stands before is checked without the rest."""
    count = len(blocks)
    assert count == len(bodies) == len(receive_ns) and count > 0
    if event_ns is None:
        flags |= EVENT_ABSENT
    if transmit_ns is None:
        flags |= TRANSMIT_ABSENT
    if count <= FEW_RECORDS_MAX and len(names) == 1 and offset_deltas is None and not level:
        pieces = encode_few(
            base_offset, receive_ns, event_ns, transmit_ns, names[0], blocks, bodies, flags, salt, PARTIAL_CRC_BYTES_MIN
        )
        if pieces is not None:
            return pieces
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
    if level:
        blocks, packed = _packed(blocks, level)
        flags |= HEADERS_ZSTD if packed else 0
        bodies, packed = _packed(bodies, level)
        flags |= BODIES_ZSTD if packed else 0
    headers_len = sum(map(len, blocks)) if flags & HEADERS_ZSTD else header_off[-1]
    bodies_len = sum(map(len, bodies)) if flags & BODIES_ZSTD else body_off[-1]
    names_len = len(dictionary)
    partial = headers_len + bodies_len >= PARTIAL_CRC_BYTES_MIN
    if partial:
        flags |= PARTIAL_CRCS
    numbers = (count, flags, len(names), names_len, headers_len, bodies_len, salt)
    fixed = REST.pack(base_offset, receive_ns[0], receive_ns[-1], *numbers)
    front = [fixed, *columns, dictionary, PAD[names_len & 7]]
    if partial:
        parts = [b"".join(front), b"".join([*blocks, PAD[headers_len & 7]]), b"".join([*bodies, PAD[bodies_len & 7]])]
        behind_names = crc32(parts[0])
        behind_headers = crc32(parts[1], behind_names)
        parts.append(TRAILER.pack(behind_names, behind_headers))
        total = CRC_FROM + sum(map(len, parts))
        return [PREFIX.pack(MAGIC, total, crc32(parts[3], crc32(parts[2], behind_headers))), *parts]
    rest = b"".join([*front, *blocks, PAD[headers_len & 7], *bodies, PAD[bodies_len & 7]])
    return [PREFIX.pack(MAGIC, len(rest) + CRC_FROM, crc32(rest)), rest]


def _packed(values: Sequence[bytes], level: int) -> tuple[Sequence[bytes], bool]:
    """A region as it is stored, in pieces, and whether it is compressed."""
    frame = compress(b"".join(values), level)
    return (values, False) if frame is None else ([frame], True)


@accelerated
def encode_few(
    base_offset: int,
    receive_ns: Sequence[int],
    event_ns: Sequence[int] | None,
    transmit_ns: Sequence[int] | None,
    name: str,
    blocks: Sequence[bytes],
    bodies: Sequence[bytes],
    flags: int,
    salt: int,
    bytes_max: int,
) -> list[bytes] | None:
    """Encode a batch of a few records of one destination, as ``encode_batch`` would.

    It has a compiled twin (``speed.py``), which also returns None for values that are not of the types bytes and int.

    Args:
        base_offset: The offset of the first record; the others follow without a gap.
        receive_ns: A time for each record, in nanoseconds since 1970.
        event_ns: The same, or None if no record has one; ``flags`` must say so.
        transmit_ns: As ``event_ns``.
        name: The destination of all records.
        blocks: The header block of each record, 1 to FEW_RECORDS_MAX of them.
        bodies: The body of each record.
        flags: All flags of the batch.
        salt: The salt of the segment's header.
        bytes_max: Blocks and bodies that have so many bytes together are not encoded.

    Returns:
        The two pieces of the batch, the first of which is PREFIX; None if blocks and bodies have ``bytes_max`` bytes or
        more, as those of a batch with PARTIAL_CRCS.

    Raises:
        struct.error: A number does not fit its field, or a column has more or fewer values than ``blocks``.
        UnicodeEncodeError: The name has lone surrogates.
    """
    count, encoded = len(blocks), name.encode()
    header_off = (0, *accumulate(map(len, blocks)))
    body_off = (0, *accumulate(map(len, bodies)))
    names_len, headers_len, bodies_len = len(encoded) + 4, header_off[-1], body_off[-1]
    if headers_len + bodies_len >= bytes_max:
        return None
    times = 1
    if event_ns is not None:
        receive_ns, times = (*receive_ns, *event_ns), 2
    if transmit_ns is not None:
        receive_ns, times = (*receive_ns, *transmit_ns), times + 1
    head = _FEW[times][count].pack(
        base_offset,
        receive_ns[0],
        receive_ns[count - 1],
        count,
        flags,
        1,
        names_len,
        headers_len,
        bodies_len,
        salt,
        *receive_ns,
        *header_off,
        *body_off,
        names_len - 4,
    )
    rest = b"".join((head, encoded, PAD[names_len & 7], *blocks, PAD[headers_len & 7], *bodies, PAD[bodies_len & 7]))
    return [PREFIX.pack(MAGIC, len(rest) + CRC_FROM, crc32(rest)), rest]


def _i64(values: Sequence[int]) -> bytes:
    return _bytes(values if isinstance(values, array) else array("q", values))


def _bytes(column: array[int]) -> bytes:
    if _SWAP:
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


# --- reading ----------------------------------------------------------------------------------------------------------


def decode(data: bytes, at: int = 0) -> tuple[BatchHeader, Columns]:
    """Header and columns of the batch at ``at``, crc checked. Raises DamagedBatch."""
    header = decode_header(data, at)
    check(data, at, header)
    return header, decode_columns(data, at, header)


def decode_columns(data: bytes, at: int, header: BatchHeader) -> Columns:
    """The columns of a batch whose crc has been checked."""
    flags, count, base = header.flags, header.records, header.base_offset
    if count == 1 and not flags & ~PLAIN and header.destination_count == 1:
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
        offsets = _sparse_offsets(data, pos, header)
        pos += ids
    names = _names(data, pos, header)
    pos += (header.names_len + 7) & ~7
    blocks = _region(data, pos, header.headers_len, header_off, flags & HEADERS_ZSTD)
    pos += (header.headers_len + 7) & ~7
    bodies = _region(data, pos, header.bodies_len, body_off, flags & BODIES_ZSTD)
    if max(destination_ids) >= len(names):
        raise DamagedBatch(f"batch at offset {base}: destination id {max(destination_ids)} of {len(names)} names")
    size_bytes = header_off[-1] + body_off[-1]
    return Columns(offsets, receive_ns, event_ns, transmit_ns, destination_ids, names, blocks, bodies, size_bytes, base)


def decode_times(data: bytes, at: int, header: BatchHeader) -> tuple[Sequence[int], Sequence[int]]:
    """Only (offsets, receive_ns) of a batch whose crc has been checked."""
    receive_ns = _column("q", data, at + HEADER_BYTES, 8 * header.records)
    return decode_destinations(data, at, header)[0], receive_ns


def decode_destinations(data: bytes, at: int, header: BatchHeader) -> tuple[Sequence[int], Sequence[int], list[str]]:
    """Only (offsets, destination_ids, names) of a batch whose crc has been checked."""
    count, base = header.records, header.base_offset
    names_at = at + HEADER_BYTES + columns_len(count, header.flags)
    ids_at = names_at - ((4 * count + 7) & ~7)
    offsets: Sequence[int] = range(base, base + count)
    if header.flags & SPARSE:
        offsets = _sparse_offsets(data, ids_at, header)
        ids_at -= (4 * count + 7) & ~7
    return offsets, _column("I", data, ids_at, 4 * count), _names(data, names_at, header)


def _sparse_offsets(data: bytes, at: int, header: BatchHeader) -> array[int]:
    deltas, base = _column("I", data, at, 4 * header.records), header.base_offset
    if base + deltas[-1] > OFFSET_MAX or any(map(ge, deltas, deltas[1:])):
        raise DamagedBatch(f"batch at offset {base}: its offsets do not rise")
    return array("Q", [base + delta for delta in deltas])


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
        header.headers_len + header.bodies_len,
        header.base_offset,
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


def _region(data: bytes, at: int, stored: int, offsets: array[int], packed: int) -> list[bytes]:
    """The values of the region at ``at``, which takes ``stored`` bytes."""
    length = offsets[-1] if packed else stored
    if offsets[0] or offsets[-1] != length:
        raise DamagedBatch(f"value offsets: expected 0 to {length}, got {offsets[0]} to {offsets[-1]}")
    region = data[at : at + stored]
    if packed:
        region = decompress(region, length)
        if any(map(gt, offsets, offsets[1:])):  # a few bytes on disk could else be any number in memory
            raise DamagedBatch("value offsets: expected to rise, they fall")
    starts = iter(offsets)
    next(starts)
    return [region[start:stop] for start, stop in zip(offsets, starts, strict=False)]


def lower_times(data: bytes, header: BatchHeader, latest_ns: int) -> tuple[bytes, int]:
    """Lower the receive times of a whole batch that are later than a moment.

    Args:
        data: The bytes of the batch, its crc checked.
        header: Its header.
        latest_ns: The latest receive time that stays, in nanoseconds since 1970.

    Returns: The batch with these times, of the same length and with new crcs, and the number of records that changed.
    """
    times = _column("q", data, HEADER_BYTES, 8 * header.records)
    lowered = array("q", [min(time, latest_ns) for time in times])
    low, high = min(header.min_receive_ns, latest_ns), min(header.max_receive_ns, latest_ns)
    rest = bytearray(memoryview(data)[CRC_FROM:])
    fixed = (header.records, header.flags, header.destination_count, header.names_len)
    lengths = (header.headers_len, header.bodies_len, header.salt)
    REST.pack_into(rest, 0, header.base_offset, low, high, *fixed, *lengths)
    column = _bytes(lowered)
    rest[HEADER_BYTES - CRC_FROM : HEADER_BYTES - CRC_FROM + len(column)] = column
    if header.flags & PARTIAL_CRCS:
        names_end = HEADER_BYTES - CRC_FROM + columns_len(header.records, header.flags) + ((header.names_len + 7) & ~7)
        view = memoryview(rest)
        behind_names = crc32(view[:names_end])
        behind_headers = crc32(view[names_end : names_end + ((header.headers_len + 7) & ~7)], behind_names)
        view.release()
        TRAILER.pack_into(rest, len(rest) - TRAILER.size, behind_names, behind_headers)
    prefix = PREFIX.pack(MAGIC, header.total_len, crc32(rest))
    return prefix + bytes(rest), sum(time > latest_ns for time in times)
