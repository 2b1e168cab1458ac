"""The batch codec: what goes in comes out, and damage is never mistaken for a batch."""

from __future__ import annotations

import struct
import zlib
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.limits import PARTIAL_CRC_BYTES_MIN
from radiator.storage import format as codec
from radiator.storage.format import StoredBatch, decode, encode_batch
from radiator.storage.header import (
    HEADER,
    MISSING,
    PARTIAL_CRCS,
    TIME_MAX,
    DamagedBatch,
    UnknownVersion,
    decode_header,
    find_magic,
    next_offset,
)
from tests.formats.newer import flagged, newer

pytestmark = pytest.mark.usefixtures("both_speeds")
TIMES = st.integers(MISSING + 1, TIME_MAX)
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["/queue/a", "/topic/ä", "x" * 300]),
        st.binary(max_size=20),
        st.binary(max_size=20),
        TIMES | st.none(),
        TIMES | st.none(),
    ),
    min_size=1,
    max_size=20,
)


def encoded(records: list[tuple[str, bytes, bytes, int | None, int | None]], base: int = 7, flags: int = 0) -> bytes:
    names = list(dict.fromkeys(record[0] for record in records))
    events = [MISSING if record[3] is None else record[3] for record in records]
    transmits = [MISSING if record[4] is None else record[4] for record in records]
    return b"".join(
        encode_batch(
            base,
            list(range(100, 100 + len(records))),
            events if any(record[3] is not None for record in records) else None,
            transmits if any(record[4] is not None for record in records) else None,
            [names.index(record[0]) for record in records],
            names,
            [record[1] for record in records],
            [record[2] for record in records],
            flags,
        )
    )


@given(RECORDS, st.integers(0, 2**63))
def test_a_few_records_of_one_destination_are_encoded_like_any(
    records: list[tuple[str, bytes, bytes, int | None, int | None]], base: int
) -> None:
    alike = [(records[0][0], *record[1:]) for record in records][: codec.FEW_RECORDS_MAX]
    with pytest.MonkeyPatch.context() as patch:
        few = encoded(alike, base, codec.TRANSACTION)
        patch.setattr(codec, "FEW_RECORDS_MAX", 0)
        assert encoded(alike, base, codec.TRANSACTION) == few


@given(RECORDS, st.integers(0, 2**63), st.sampled_from([0, codec.TRANSACTION]))
def test_decode_is_the_inverse_of_encode(
    records: list[tuple[str, bytes, bytes, int | None, int | None]], base: int, flags: int
) -> None:
    data = encoded(records, base, flags)
    assert len(data) % 8 == 0
    header, columns = decode(b"junkjunk" + data + b"more", 8)
    assert header.total_len == len(data)
    assert header.flags & codec.TRANSACTION == flags
    assert list(columns.offsets) == list(range(base, base + len(records)))
    assert list(columns.receive_ns) == list(range(100, 100 + len(records)))
    assert (header.min_receive_ns, header.max_receive_ns) == (100, 99 + len(records))
    for at, (name, block, body, event, transmit) in enumerate(records):
        assert columns.names[columns.destination_ids[at]] == name
        assert (columns.blocks[at], columns.bodies[at]) == (block, body)
        for column, value in ((columns.event_ns, event), (columns.transmit_ns, transmit)):
            assert (MISSING if column is None else column[at]) == (MISSING if value is None else value)
    batch = StoredBatch(data, 0, header)
    assert list(batch.offsets()) == list(columns.offsets) and list(batch.receive_ns()) == list(columns.receive_ns)
    assert list(batch.destination_ids()) == list(columns.destination_ids) and batch.names() == columns.names
    batch.verify()


@pytest.mark.parametrize(("count", "event", "transmit"), [*product((1, 2, 3), (False, True), (False, True))])
def test_columns_stand_where_the_document_says(count: int, event: bool, transmit: bool) -> None:
    records = [("/q", b"h" * at, b"b" * at, 5 if event else None, 6 if transmit else None) for at in range(count)]
    data = encoded(records)
    header = decode_header(data)
    assert header.columns.names == data.index(struct.pack("<I", 2) + b"/q")
    assert bool(header.flags & codec.EVENT_ABSENT) is not event
    assert bool(header.flags & codec.TRANSMIT_ABSENT) is not transmit


def test_a_sparse_batch_keeps_its_offsets() -> None:
    data = b"".join(encode_batch(10, [1, 2, 3], None, None, [0, 0, 0], ["q"], [b""] * 3, [b"x"] * 3, 0, [0, 4, 9]))
    header, columns = decode(data)
    assert list(columns.offsets) == [10, 14, 19]
    assert list(StoredBatch(data, 0, header).offsets()) == [10, 14, 19]
    assert next_offset(data, 0, header) == 20


@given(RECORDS, st.data())
def test_any_flipped_bit_is_noticed(
    records: list[tuple[str, bytes, bytes, int | None, int | None]], data: st.DataObject
) -> None:
    whole = bytearray(encoded(records))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((DamagedBatch, UnknownVersion)):
        decode(bytes(whole))


@given(RECORDS)
def test_a_batch_cut_anywhere_is_damage(records: list[tuple[str, bytes, bytes, int | None, int | None]]) -> None:
    whole = encoded(records)
    for cut in range(0, len(whole), max(1, len(whole) // 50)):
        with pytest.raises(DamagedBatch):
            decode(whole[:cut])


@given(st.binary(max_size=400))
def test_garbage_raises_nothing_else(junk: bytes) -> None:
    for data in (junk, codec.MAGIC + junk, reseal(encoded([("q", b"h", b"b", None, None)] * 3), junk)):
        try:
            decode(data)
        except (DamagedBatch, UnknownVersion):
            pass


def reseal(whole: bytes, junk: bytes) -> bytes:
    """A batch with nonsense in it and a crc that holds: only we can make it, and we do not; still no other error."""
    data = bytearray(whole)
    data[codec.HEADER_BYTES : codec.HEADER_BYTES + len(junk)] = junk[: len(whole) - codec.HEADER_BYTES]
    data[12:16] = struct.pack("<I", zlib.crc32(data[16:]))
    return bytes(data)


def test_a_newer_version_is_refused_with_the_reason() -> None:
    with pytest.raises(UnknownVersion, match="version 2.*reads up to 1"):
        decode(newer(encoded([("q", b"", b"", None, None)]), 2, bytes(8)))
    unknown_flag = bytearray(encoded([("q", b"", b"", None, None)]))
    unknown_flag[44:46] = struct.pack("<H", 1 << 12 | codec.EVENT_ABSENT | codec.TRANSMIT_ABSENT)
    unknown_flag[12:16] = struct.pack("<I", zlib.crc32(unknown_flag[16:]))
    with pytest.raises(UnknownVersion, match="newer"):
        decode(bytes(unknown_flag))


@pytest.mark.parametrize("part", [b"", bytes(8), bytes(80_000)])
def test_a_flag_that_is_not_known_is_refused_with_the_reason_whatever_part_it_brings(part: bytes) -> None:
    whole = flagged(encoded([("q", b"h", b"b", None, None)]), part)
    with pytest.raises(UnknownVersion, match="flags .* of a newer radiator"):
        decode(whole)
    with pytest.raises(DamagedBatch):
        decode(whole[:-1])
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    with pytest.raises(DamagedBatch):
        decode(bytes(damaged))


@pytest.mark.parametrize("digit", b"23456789")
def test_a_digit_that_no_single_flip_makes_or_that_more_batches_have_is_of_a_newer_version(digit: int) -> None:
    whole = bytearray(encoded([("q", b"h", b"b", None, None)]))
    whole[4] = digit
    with pytest.raises(UnknownVersion, match=f"version {chr(digit)}"):
        decode(bytes(whole + whole))
    alone = DamagedBatch if digit in b"359" else UnknownVersion
    with pytest.raises(alone):
        decode(bytes(whole))


def test_one_flipped_bit_is_no_newer_version() -> None:
    whole = encoded([("q", b"h", b"b", None, None)])
    for bit in range(8):
        flipped = bytearray(whole)
        flipped[4] ^= 1 << bit
        with pytest.raises(DamagedBatch):
            decode(bytes(flipped))
        again = bytearray(newer(whole))
        again[4] ^= 1 << bit
        with pytest.raises(DamagedBatch):
            decode(bytes(again))


def test_a_header_with_larger_sizes_than_allowed_is_damage() -> None:
    header = HEADER.pack(codec.MAGIC, 1 << 31, 0, 0, 0, 0, 1, 0, 1, 0, 0, (1 << 31) - 112, 1)
    with pytest.raises(DamagedBatch):
        decode_header(header)


def test_find_magic_looks_at_aligned_places_only() -> None:
    data = b"abc" + codec.MAGIC + b"abcde" + codec.MAGIC
    assert find_magic(data, 0) == 16
    assert find_magic(data, 17) == -1


@pytest.mark.parametrize("block", [0, 1, PARTIAL_CRC_BYTES_MIN // 2, PARTIAL_CRC_BYTES_MIN])
@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("records", [1, 2])
def test_a_batch_has_partial_crcs_by_the_bytes_of_blocks_and_bodies(block: int, missing: int, records: int) -> None:
    blocks = [b"b" * block, *[b""] * (records - 1)]
    bodies = [b"z" * max(PARTIAL_CRC_BYTES_MIN - block - missing, 0), *[b""] * (records - 1)]
    data = b"".join(encode_batch(0, [1] * records, None, None, [0] * records, ["/topic/a"], blocks, bodies))
    long = sum(map(len, [*blocks, *bodies])) >= PARTIAL_CRC_BYTES_MIN
    header, columns = decode(data)
    assert bool(header.flags & PARTIAL_CRCS) is long
    assert (columns.blocks, columns.bodies) == (blocks, bodies)
