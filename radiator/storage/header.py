"""What every batch begins with: the constants of the format, the 64-byte header, and the checks that it alone allows.

Walkers, recovery and the search behind damage need no more than this; ``format`` is the rest of the codec, and passes
these names on: whoever reads records imports from there.

Knows: the header's bytes. Must not know: columns, regions, files.
Invariants: nothing but DamagedBatch (or UnknownVersion) leaves these functions, whatever the bytes; lengths that a
header gives fit one another. All functions are pure, so any thread may call them.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from zlib import crc32

from radiator import limits
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
PLAIN = EVENT_ABSENT | TRANSMIT_ABSENT | TRANSACTION  # of all that the broker appends, and PARTIAL_CRCS of what is long
KNOWN_FLAGS = PLAIN | SPARSE | COMPRESSED | PARTIAL_CRCS

#        magic  total_len crc | base min_ns max_ns count flags destinations names headers bodies salt
HEADER = Struct("<8sIIQqqIHHIIII")
PREFIX = Struct("<8sII")
REST = Struct("<QqqIHHIIII")
U32 = Struct("<I")
TRAILER = Struct("<II")  # with PARTIAL_CRCS
PAD = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")  # by length & 7


class DamagedBatch(StorageError):
    """These bytes are not a whole, correct batch. ``str()`` says what was expected and what came."""


class UnknownVersion(StorageError):
    """A whole batch that a newer radiator wrote. ``salt`` is what it carries."""

    salt = 0


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


def columns_len(count: int, flags: int) -> int:
    """Bytes between the header and the names."""
    times = 3 - bool(flags & EVENT_ABSENT) - bool(flags & TRANSMIT_ABSENT)
    ids = (4 * count + 7) & ~7
    return 8 * count * times + 2 * ((4 * (count + 1) + 7) & ~7) + ids * (2 if flags & SPARSE else 1)


def trailer_len(flags: int) -> int:
    """Bytes behind the bodies."""
    return TRAILER.size if flags & PARTIAL_CRCS else 0


def decode_header(data: bytes | memoryview, at: int = 0) -> BatchHeader:
    """The header at ``at``, its lengths checked against one another; the crc is not looked at. Raises DamagedBatch."""
    if len(data) - at < HEADER_BYTES:
        raise DamagedBatch(f"batch header: expected {HEADER_BYTES} bytes, got {max(len(data) - at, 0)}")
    magic, total, crc, base, low, high, count, flags, destinations, names, headers, bodies, salt = HEADER.unpack_from(
        data, at
    )
    if magic != MAGIC:
        _wrong_magic(data, at, magic, total, crc, salt)
    expected = HEADER_BYTES + columns_len(count, flags) + trailer_len(flags)
    expected += ((names + 7) & ~7) + ((headers + 7) & ~7) + ((bodies + 7) & ~7)
    if total != expected or not count or count > 4 * limits.BATCH_RECORDS_MAX or total > limits.BATCH_TOTAL_BYTES_MAX:
        rest = memoryview(data)[at + CRC_FROM : at + total]
        if newer_len(data[at : at + HEADER_BYTES]) == CRC_FROM + len(rest) and crc32(rest) == crc:
            raise _unknown_flags(base, flags, salt)  # it brings a part that is not known here
        raise DamagedBatch(
            f"batch header: total_len {total} does not fit its parts ({expected} bytes, {count} records)"
        )
    return BatchHeader(total, crc, base, low, high, count, flags, destinations, names, headers, bodies, salt)


def _wrong_magic(data: bytes | memoryview, at: int, magic: bytes, total: int, crc: int, salt: int) -> None:
    """One flipped bit makes another digit: a crc that begins with the magic, as those of later versions do, shows that
    it was written; or one without, if more than a bit is another, or the batch behind has the same digit."""
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
    """How many bytes tell whether this, the first HEADER_BYTES of them, is a batch of a newer radiator: of another
    version, or with a flag that is not known; 0: it cannot be one."""
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
        raise _unknown_flags(header.base_offset, header.flags, header.salt)


def find_magic(data: bytes, at: int) -> int:
    """The first 8-aligned place at or after ``at`` where a batch of any version might begin, or -1. ``data`` itself
    begins aligned."""
    while True:
        at = data.find(MAGIC_PREFIX, at)
        if at < 0 or (not at & (ALIGN - 1) and data[at + 5 : at + 8] == MAGIC_SUFFIX):
            return at
        at += 1
