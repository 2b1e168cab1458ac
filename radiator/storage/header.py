"""The 64-byte header of a batch, and the places of the other parts, which follow from the header.

``column_places`` and ``region_places`` are the only description of the order and the sizes of the parts. The codec
(``format``), the numpy columns (``columns``) and fsck (``upkeep.check_segment``) all use them. ``format`` exports the
names of this module as well.

This module knows the header's bytes. It does not know the values in columns and regions, or files. All functions are
pure: any thread may call them. Invariants: the functions raise only DamagedBatch or UnknownVersion, whatever the bytes;
the lengths in a BatchHeader add up.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from radiator import limits
from radiator.checksum import crc32
from radiator.errors import StorageError

MAGIC_PREFIX = b"\x89RDB"
MAGIC_SUFFIX = b"\r\n\x1a"
MAGIC = MAGIC_PREFIX + b"1" + MAGIC_SUFFIX  # the digit is the format version
FORMAT_VERSION = 1
VERSIONS_KNOWN = b"01"  # a batch of another digit is of a newer radiator, if its crc says so as well
HEADER_BYTES = 64
ALIGN = 8
CRC_FROM = 16  # the crc covers the bytes from here to total_len
MISSING = -(1 << 63)  # INT64_MIN: this record has no event or transmit time
TIME_MAX = (1 << 63) - 1
RECORDS_MAX = 4 * limits.BATCH_RECORDS_MAX  # more records in a batch are damage

# flags
CRC_MASK = 0b11  # which crc; 0 = zlib.crc32
HEADERS_ZSTD = 1 << 2  # bits 2-3 are the compression of the header blocks: 0 = none, 1 = zstd, others unknown
BODIES_ZSTD = 1 << 4  # bits 4-5 that of the bodies
COMPRESSED = HEADERS_ZSTD | BODIES_ZSTD
EVENT_ABSENT = 1 << 6  # no record has an event time: the column is not stored
TRANSMIT_ABSENT = 1 << 7
TRANSACTION = 1 << 8  # the records of one transaction in this partition
SPARSE = 1 << 9  # offset_delta u32[n] follows destination_id: records have been removed here
PARTIAL_CRCS = 1 << 10  # the last 8 bytes say what the crc was behind the names, and behind the header blocks
PLAIN = (
    EVENT_ABSENT | TRANSMIT_ABSENT | TRANSACTION
)  # flags of every batch that the broker appends; long ones also have PARTIAL_CRCS
KNOWN_FLAGS = PLAIN | SPARSE | COMPRESSED | PARTIAL_CRCS

#        magic  total_len crc | base min_ns max_ns count flags destinations names headers bodies salt
HEADER = Struct("<8sIIQqqIHHIIII")
TIMES_AND_SALT = Struct("<24xqq20xI")  # of a header: min and max receive time, salt
PREFIX = Struct("<8sII")
REST = Struct("<QqqIHHIIII")
U32 = Struct("<I")
TRAILER = Struct("<II")  # with PARTIAL_CRCS
NAMES_WRONG = "the dictionary of names does not fit the count and the length in the header"
IDS_WRONG = "a record has a destination id that its dictionary of names does not have"
OFFSETS_WRONG = "the offsets of its records do not increase"
VALUES_WRONG = "its value offsets do not fit the region: they must increase from 0 to its length"
TIMES_WRONG = "its receive times do not increase from min_receive_ns to max_receive_ns"
PAD = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")  # by length & 7


class DamagedBatch(StorageError):
    """These bytes are not a whole, correct batch. ``str()`` says what was expected and what came."""


class UnknownVersion(StorageError):
    """A whole batch that a newer radiator wrote. ``salt`` is the one in its header."""

    salt = 0


class ColumnPlaces(NamedTuple):
    """Where the columns of a batch and its names begin, in bytes from the start of the batch, in their order.

    A column ends where the next one begins, padding included. A column that the batch does not have takes no bytes.
    ``receive_ns`` is always at HEADER_BYTES. Each field is an int, or a numpy array with a value for each of many
    batches.
    """

    event_ns: Any
    transmit_ns: Any
    header_off: Any
    body_off: Any
    destination_id: Any
    offset_delta: Any
    names: Any
    trailer_bytes: Any  # how many bytes the batch has behind its bodies


def column_places(count: Any, flags: Any) -> ColumnPlaces:
    """Return the places of the columns in a batch, or in many if the arguments are numpy arrays."""
    times, value_offsets, ids = 8 * count, (4 * count + 11) & ~7, (4 * count + 7) & ~7
    event_ns = HEADER_BYTES + times
    transmit_ns = event_ns + times * ((flags & EVENT_ABSENT) == 0)
    header_off = transmit_ns + times * ((flags & TRANSMIT_ABSENT) == 0)
    body_off = header_off + value_offsets
    destination_id = body_off + value_offsets
    offset_delta = destination_id + ids
    names = offset_delta + ids * ((flags & SPARSE) != 0)
    trailer_bytes = TRAILER.size * ((flags & PARTIAL_CRCS) != 0)
    return ColumnPlaces(event_ns, transmit_ns, header_off, body_off, destination_id, offset_delta, names, trailer_bytes)


places_of = lru_cache(maxsize=4096)(column_places)  # of one batch: those of a log have few counts and flags


def region_places(
    columns: ColumnPlaces, total_len: Any, count: Any, names_len: Any, headers_len: Any, bodies_len: Any
) -> tuple[Any, Any, Any]:
    """Return where the header blocks and the bodies of a batch begin, and whether its header is possible.

    It is possible if the batch ends where its last part does, and is not larger than a batch may be. As with
    ``column_places``, the arguments are of one batch or of many.
    """
    headers = columns.names + ((names_len + 7) & ~7)
    bodies = headers + ((headers_len + 7) & ~7)
    good = total_len == bodies + ((bodies_len + 7) & ~7) + columns.trailer_bytes
    good &= (count > 0) & (count <= RECORDS_MAX) & (total_len <= limits.BATCH_TOTAL_BYTES_MAX)
    return headers, bodies, good


class BatchHeader(NamedTuple):
    """The fields of a header, and the places of the parts, in bytes from the start of the batch."""

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
    columns: ColumnPlaces
    headers: int  # place of the header blocks
    bodies: int  # place of the bodies


def next_offset(data: bytes | memoryview, at: int, header: BatchHeader) -> int:
    """Return the offset behind those that the batch at ``at`` covers; ``data`` has its columns."""
    if not header.flags & SPARSE:
        return header.base_offset + header.records
    (delta,) = U32.unpack_from(data, at + header.columns.offset_delta + 4 * (header.records - 1))
    return header.base_offset + int(delta) + 1


def decode_header(data: bytes | memoryview, at: int = 0) -> BatchHeader:
    """Return the header at ``at``. Its lengths are checked, the crc is not.

    Raises:
        DamagedBatch: There is no header.
        UnknownVersion: A newer radiator wrote the batch.
    """
    if len(data) - at < HEADER_BYTES:
        raise DamagedBatch(f"batch header: expected {HEADER_BYTES} bytes, got {max(len(data) - at, 0)}")
    # fmt: off
    (magic, total, crc, base, low, high, count, flags, destinations, names_len, headers_len, bodies_len,
     salt) = HEADER.unpack_from(data, at)
    if magic != MAGIC:
        _wrong_magic(data, at, magic, total, crc, salt)
    columns = places_of(count, flags)
    headers, bodies, good = region_places(columns, total, count, names_len, headers_len, bodies_len)
    if not good:
        rest = memoryview(data)[at + CRC_FROM : at + total]
        if newer_len(data[at : at + HEADER_BYTES]) == CRC_FROM + len(rest) and crc32(rest) == crc:
            raise _unknown_flags(base, flags, salt)  # a flag of a newer version adds a part that is unknown here
        raise DamagedBatch(f"batch header: total_len {total} does not fit its parts, or {count} is no count of records")
    return BatchHeader(total, crc, base, low, high, count, flags, destinations, names_len, headers_len, bodies_len,
                       salt, columns, headers, bodies)
    # fmt: on


def _wrong_magic(data: bytes | memoryview, at: int, magic: bytes, total: int, crc: int, salt: int) -> None:
    """Raise UnknownVersion if another version wrote the batch, else DamagedBatch.

    One flipped bit makes another digit. A crc that begins with the magic, as those of later versions do, proves the
    version. So does a crc without it, if more than one bit differs or the next batch has the same digit.
    """
    rest = memoryview(data)[at + CRC_FROM : at + total]
    whole = newer_len(data[at : at + HEADER_BYTES]) == CRC_FROM + len(rest)
    chance = (magic[4] ^ MAGIC[4]).bit_count() == 1 and data[at + total : at + total + ALIGN] != magic
    if whole and (crc32(rest, crc32(magic)) == crc or (crc32(rest) == crc and not chance)):
        error = UnknownVersion(
            f"batch of format version {magic[4:5].decode()}, this program reads up to {FORMAT_VERSION}: "
            "use the radiator release that wrote it, or a newer one"
        )
        error.salt = salt
        raise error
    raise DamagedBatch(f"batch magic: expected {MAGIC.hex()}, got {bytes(magic).hex()}")


def newer_len(header: bytes | memoryview) -> int:
    """Return the length of a batch that a newer radiator may have written; 0 if it cannot be one.

    Args:
        header: Its first HEADER_BYTES: they have another version, or an unknown flag.
    """
    magic, total, *_, flags, _, _, _, _, _ = HEADER.unpack(header)
    if magic == MAGIC:
        newer = bool(flags & ~KNOWN_FLAGS)
    else:
        ours = magic[:4] == MAGIC_PREFIX and magic[5:] == MAGIC_SUFFIX
        newer = ours and magic[4:5] not in VERSIONS_KNOWN and magic[4:5].isdigit()
    return total if newer and HEADER_BYTES <= total <= limits.BATCH_TOTAL_BYTES_MAX else 0


def _unknown_flags(base_offset: int, flags: int, salt: int) -> UnknownVersion:
    error = UnknownVersion(f"batch at offset {base_offset}: flags {flags:#06x} of a newer radiator: use that release")
    error.salt = salt
    return error


def check(data: bytes | memoryview, at: int, header: BatchHeader) -> None:
    """Check that the whole batch is in ``data`` and that its crc is right.

    Raises:
        DamagedBatch: It is not.
        UnknownVersion: A newer radiator wrote the batch.
    """
    end = at + header.total_len
    if end > len(data):
        raise DamagedBatch(
            f"batch at offset {header.base_offset}: {header.total_len} bytes expected, {len(data) - at} there"
        )
    crc = crc32(memoryview(data)[at + CRC_FROM : end])
    if crc != header.crc:
        raise DamagedBatch(f"batch at offset {header.base_offset}: crc expected {header.crc:08x}, got {crc:08x}")
    if header.flags & ~KNOWN_FLAGS:
        raise _unknown_flags(header.base_offset, header.flags, header.salt)


def find_magic(data: bytes, at: int) -> int:
    """Return the first place at or after ``at`` where a batch of any version might begin, or -1.

    The place is a multiple of 8; ``data`` itself begins aligned.
    """
    while True:
        at = data.find(MAGIC_PREFIX, at)
        if at < 0 or (not at & (ALIGN - 1) and data[at + 5 : at + 8] == MAGIC_SUFFIX):
            return at
        at += 1
