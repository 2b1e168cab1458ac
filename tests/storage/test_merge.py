"""Many small batches as one."""

from __future__ import annotations

from array import array
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.storage.batch import RecordBatch
from radiator.storage.format import decode, encode_batch
from radiator.storage.header import MISSING, DamagedBatch
from radiator.storage.merge import Merger, merge, merge_single_records
from radiator.storage.partition import BatchBuilder
from tests.storage.driving import add_record

RECORD = st.tuples(
    st.sampled_from(["/q/a", "/q/b"]),
    st.binary(max_size=9),
    st.integers(0, 99) | st.none(),
    st.integers(0, 99) | st.none(),
)
BATCHES = st.lists(st.lists(RECORD, min_size=1, max_size=3), min_size=1, max_size=8)
Records = list[list[tuple[str, bytes, int | None, int | None]]]


def finished(batches: Records) -> list[RecordBatch]:
    offset, result = 5, []
    for records in batches:
        builder = BatchBuilder(offset)
        for name, body, event, transmit in records:
            add_record(builder, name, b"h", body, offset, event, transmit)
        offset += len(records)
        result.append(builder.finish())
    return result


def facts(batch: RecordBatch) -> list[tuple[int, str, bytes, bytes, int, int, int]]:
    return [
        (
            offset,
            batch.names[batch.destination_ids[at]],
            batch.blocks[at],
            batch.bodies[at],
            batch.receive_ns[at],
            MISSING if batch.event_ns is None else batch.event_ns[at],
            MISSING if batch.transmit_ns is None else batch.transmit_ns[at],
        )
        for at, offset in enumerate(batch.offsets)
    ]


def on_disk(batch: RecordBatch) -> bytes:
    return b"".join(
        encode_batch(
            batch.base_offset,
            batch.receive_ns,
            batch.event_ns,
            batch.transmit_ns,
            batch.destination_ids,
            batch.names,
            batch.blocks,
            batch.bodies,
        )
    )


@given(BATCHES)
def test_merged_batches_hold_the_same_records(batches: Records) -> None:
    parts = finished(batches)
    merged = merge(parts)
    assert facts(merged) == [fact for part in parts for fact in facts(part)]
    assert merged.size_bytes == sum(part.size_bytes for part in parts)
    assert type(merged.offsets) is range


@given(BATCHES, st.integers(0, 30))
def test_the_short_cut_takes_single_records_and_stops_at_everything_else(batches: Records, end: int) -> None:
    parts = finished(batches)
    raw = [on_disk(part) for part in parts]
    data = b"".join(raw)
    merger = Merger()
    header, columns = decode(data)
    merger.add(columns)
    at = merge_single_records(merger, data, header.total_len, end)
    taken = 1
    while taken < len(parts) and len(parts[taken]) == 1 and parts[taken].base_offset < end:
        taken += 1
    assert at == sum(map(len, raw[:taken]))
    assert facts(merger.finish()) == [fact for part in parts[:taken] for fact in facts(part)]


@given(st.integers(0, 199), st.integers(0, 7))
def test_the_short_cut_stops_before_a_flipped_bit(place: int, bit: int) -> None:
    parts = finished([[("/q", b"1", None, None)], [("/q", b"2", 3, None)]])
    first, second = map(on_disk, parts)
    damaged = bytearray(second)
    damaged[place % len(second)] ^= 1 << bit
    merger = Merger()
    merger.add(decode(first)[1])
    assert merge_single_records(merger, first + bytes(damaged), len(first), 99) == len(first)
    assert len(merger.finish()) == 1


@pytest.mark.parametrize("place", [40, 46, 48, 52, 56, 72, 76, 80, 84, 88, 96])
def test_the_short_cut_leaves_batches_that_contradict_themselves_to_the_general_decoder(place: int) -> None:
    first, second = map(on_disk, finished([[("/q", b"1", None, None)], [("/q", b"2", None, None)]]))
    contradicting = bytearray(second)
    contradicting[place] += 1
    contradicting[12:16] = crc32(contradicting[16:]).to_bytes(4, "little")
    merger = Merger()
    merger.add(decode(first)[1])
    assert merge_single_records(merger, first + bytes(contradicting), len(first), 99) == len(first)
    with pytest.raises(DamagedBatch):
        decode(bytes(contradicting))


def test_merging_keeps_offset_gaps() -> None:
    first, _, third = finished([[("/q", b"1", None, None)], [("/q", b"2", None, None)], [("/q", b"3", None, None)]])
    assert list(merge([first, third]).offsets) == [5, 7]


def sparse(base: int, *offsets: int) -> RecordBatch:
    n = len(offsets)
    bodies = [b"%d" % offset for offset in offsets]
    return RecordBatch(array("Q", offsets), [base] * n, None, None, [0] * n, ["/q"], [b"h"] * n, bodies, n, base)


def test_sparse_and_dense_neighbours_become_one_that_covers_what_both_did() -> None:
    (dense,) = finished([[("/q", b"5", None, None), ("/q", b"6", None, None)]])
    merged = merge([sparse(2, 4), dense, sparse(7, 9, 12)])
    assert list(merged.offsets) == [4, 5, 6, 9, 12] and (merged.base_offset, merged.next_offset) == (2, 13)
    assert [merged.index_at(offset) for offset in (2, 4, 5, 7, 9, 10, 12, 13)] == [0, 0, 1, 3, 3, 4, 4, 5]
    merged = merge([dense, sparse(7, 8)])
    assert list(merged.offsets) == [5, 6, 8] and (merged.base_offset, merged.next_offset) == (5, 9)


def test_the_short_cut_leaves_sparse_neighbours_to_the_general_decoder() -> None:
    one, two = finished([[("/q", b"5", None, None)], [("/q", b"6", None, None)]])
    merger = Merger()
    merger.add(decode(on_disk(one))[1])
    sparse = b"".join(encode_batch(6, [6], None, None, [0], ["/q"], [b"h"], [b"8"], 0, [2]))
    packed = b"".join(encode_batch(6, [6], None, None, [0], ["/q"], [b"h"], [b"6" * 99], level=3))
    assert merge_single_records(merger, sparse, 0, 99) == 0 and merge_single_records(merger, packed, 0, 99) == 0
    merger.add(decode(sparse)[1])
    assert merge_single_records(merger, on_disk(two), 0, 99) == 0, "a list of offsets is not what it fills"
    assert list(merger.finish().offsets) == [5, 8]
