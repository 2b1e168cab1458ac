"""Batches whose contradictions only decoding sees, under a crc that holds: they are losses like others."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.columns.batches import Batches
from radiator.columns.decode import Counters, Decoder
from radiator.columns.options import ReadOptions
from radiator.columns.read import Lose, read
from radiator.columns.scan import Loss, LostRecords
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.limits import BATCH_RECORDS_MAX
from radiator.storage.format import StoredBatch, decode
from radiator.storage.header import BODIES_ZSTD, HEADER, HEADER_BYTES, KNOWN_FLAGS, MAGIC, DamagedBatch, decode_header
from tests.columns.segments import Placed, encode, whole, write_segment
from tests.spark.stores import START_NS, Message, numbered

SIZES = [3, 2, 4, 1, 5]
BAD = [1, 3]  # batches: offsets 3 and 4, and 9


def frame(batch: bytearray) -> None:
    assert int.from_bytes(batch[44:46], "little") & BODIES_ZSTD
    at = batch.rindex(b"\x28\xb5\x2f\xfd")  # of the bodies
    batch[at + 8 : at + 14] = b"\xff" * 6


def offsets_of_bodies(batch: bytearray) -> None:
    count = int.from_bytes(batch[40:44], "little")
    padded = 4 * (count + 1) + 7 & ~7
    struct.pack_into("<I", batch, 64 + 8 * count + padded, 1 << 20)


def names(batch: bytearray) -> None:
    at = batch.index(b"/topic/a")
    struct.pack_into("<I", batch, at - 4, 3)


HARMS = {"frame": (frame, 3), "offsets": (offsets_of_bodies, 0), "names": (names, 0)}


def harmed(tmp_path: Path, harm: Callable[[bytearray], None], level: int) -> tuple[Path, list[Placed]]:
    path = tmp_path / "00000000000000000000.rlog"
    messages = [numbered("/topic/a", size, sum(SIZES[:i])) for i, size in enumerate(SIZES)]
    messages = [
        [each._replace(body=each.body * 50, event_ns=None, transmit_ns=None) for each in one] for one in messages
    ]
    placed = write_segment(path, messages, level=level)
    data = path.read_bytes()
    ends = [*(each.position for each in placed[1:]), len(data)]
    pieces = [bytearray(data[each.position : end]) for each, end in zip(placed, ends, strict=True)]
    for bad in BAD:
        harm(pieces[bad])
        struct.pack_into("<I", pieces[bad], 12, crc32(pieces[bad][16:]))
    path.write_bytes(b"".join(pieces))
    return path, placed


@pytest.mark.parametrize("kind", HARMS)
def test_what_only_decoding_finds_is_reported_with_its_place_or_left_out(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path, placed = harmed(tmp_path, *HARMS[kind])
    schema, ranges = arrow_schema(["destination", "offset", "body"]), [whole(path, placed)]
    told = f"partition 'p': offsets 3 to 4 .2 records. cannot be read: .*{path} at byte {placed[1].position}"
    with pytest.raises(LostRecords, match=told):
        list(read(ranges, ReadOptions(str(tmp_path), Selection()), schema, Counters()))
    some = ReadOptions(str(tmp_path), Selection(), fail_on_data_loss=False)
    found = pa.Table.from_batches(read(ranges, some, schema, Counters()), schema).column("offset").to_pylist()
    assert found == [0, 1, 2, *range(5, 9), *range(10, 15)]
    said = capfd.readouterr().err
    assert re.findall(r"offsets (\d+) to (\d+)", said) == [("3", "4"), ("9", "9")]
    unasked = ReadOptions(str(tmp_path), Selection().offsets(10))
    assert sum(batch.num_rows for batch in read(ranges, unasked, schema, Counters())) == 5


def test_sizes_are_compared_with_the_region_of_the_bodies(tmp_path: Path) -> None:
    path, placed = harmed(tmp_path, *HARMS["offsets"])
    schema = arrow_schema(["size"])
    with pytest.raises(LostRecords, match=r"offsets 3 to 4 .*do not fit"):
        list(read([whole(path, placed)], ReadOptions(str(tmp_path), Selection()), schema, Counters()))


def test_what_is_found_elsewhere_comes_in_its_place(tmp_path: Path) -> None:
    path, placed = harmed(tmp_path, *HARMS["offsets"])
    schema = arrow_schema(["offset", "body"])

    def instead(loss: Loss, lose: Lose) -> Iterator[pa.RecordBatch]:
        offsets = list(range(loss.first, loss.following))
        yield pa.RecordBatch.from_pydict({"offset": offsets, "body": [b""] * len(offsets)}, schema)

    options = ReadOptions(str(tmp_path), Selection())
    batches = read([whole(path, placed)], options, schema, Counters(), instead)
    assert pa.Table.from_batches(batches, schema).column("offset").to_pylist() == list(range(15))


NUMBERS = st.integers(0, 40) | st.integers(0, 2**32 - 1)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from(["/topic/a", "/topic/bb"]),
        st.binary(max_size=20),
        st.sampled_from([b"", b"a:b"]),
        st.just(START_NS),
        st.sampled_from([None, START_NS]),
        st.none(),
    ),
    min_size=1,
    max_size=5,
)


@given(
    NUMBERS | st.integers(0, 5 * BATCH_RECORDS_MAX),
    st.integers(0, 2**11 - 1),
    st.tuples(NUMBERS, NUMBERS, NUMBERS),
    st.data(),
)
def test_columns_and_codec_agree_which_headers_are_possible(
    count: int, flags: int, lengths: tuple[int, int, int], data: st.DataObject
) -> None:
    flags &= KNOWN_FLAGS
    places = Batches(header_of(0, count, flags, lengths), np.zeros(1, np.int64))
    headers, bodies, _ = places.regions
    end = int(bodies[0]) + (lengths[2] + 7 & ~7) + int(places.columns.trailer_bytes)
    total = data.draw(st.sampled_from([end, end + 8, lengths[0]])) & (1 << 32) - 1
    header = header_of(total, count, flags, lengths)
    try:
        found = decode_header(header.tobytes())
    except DamagedBatch:
        assert not Batches(header, np.zeros(1, np.int64)).regions[2][0]
    else:
        assert Batches(header, np.zeros(1, np.int64)).regions[2][0]
        assert (found.columns, found.headers, found.bodies) == (places.columns, headers[0], bodies[0])


def header_of(total: int, count: int, flags: int, lengths: tuple[int, int, int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(HEADER.pack(MAGIC, total, 0, 0, 0, 0, count, flags, 1, *lengths, 7), np.uint8)


@given(MESSAGES, st.integers(0, 2), st.sampled_from([0, 3]), st.data())
def test_columns_refuse_what_delivery_refuses_and_read_the_same_from_what_fsck_passes(
    messages: list[Message], step: int, level: int, data: st.DataObject
) -> None:
    deltas = [step * place for place in range(len(messages))] if step else None
    batch = bytearray(encode(5, messages, deltas, level))
    for _ in range(data.draw(st.integers(0, 2))):
        junk = data.draw(st.binary(min_size=1, max_size=4) | st.sampled_from([bytes(4), b"\xff" * 4]))
        place = data.draw(st.integers(HEADER_BYTES, len(batch) - len(junk)))
        batch[place : place + len(junk)] = junk
    struct.pack_into("<I", batch, 12, crc32(batch[16:]))
    decoder = Decoder("p", arrow_schema(), Selection(), 100, Counters())

    def rows() -> list[dict[str, Any]]:
        chunk = Batches(np.frombuffer(batch, np.uint8), np.zeros(1, np.int64))
        return [row for made in decoder.decode(chunk) for row in made.to_pylist()]

    try:
        header, columns = decode(bytes(batch))
    except DamagedBatch:
        with pytest.raises(DamagedBatch):
            rows()
        return
    try:
        StoredBatch(bytes(batch), 0, header).verify()
    except DamagedBatch:
        return
    assert [(row["offset"], row["receive_ns"], row["destination"], row["body"]) for row in rows()] == [
        (offset, time, columns.names[number], body)
        for offset, time, number, body in zip(
            columns.offsets, columns.receive_ns, columns.destination_ids, columns.bodies, strict=True
        )
    ]
