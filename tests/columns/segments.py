"""Segment files made of single batches, for tests of what reads them; the encoder is the storage's own."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from radiator.columns.decode import Counters, Decoder
from radiator.columns.partial import Reach
from radiator.columns.scan import Loss, SegmentRange, scan
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.storage.format import encode_batch
from radiator.storage.header import BatchHeader, decode_header
from tests.spark.stores import Message

SALT = 77


class Placed(NamedTuple):
    """A batch and where it stands in the file."""

    position: int
    base_offset: int
    messages: list[Message]
    deltas: list[int] | None = None

    @property
    def next_offset(self) -> int:
        return self.base_offset + (self.deltas[-1] + 1 if self.deltas else len(self.messages))


def encode(base_offset: int, messages: list[Message], deltas: list[int] | None = None, level: int = 0) -> bytes:
    names = list(dict.fromkeys(each.destination for each in messages))
    missing = -(1 << 63)
    events = [missing if each.event_ns is None else each.event_ns for each in messages]
    transmits = [missing if each.transmit_ns is None else each.transmit_ns for each in messages]
    return b"".join(
        encode_batch(
            base_offset,
            [each.receive_ns for each in messages],
            events if any(each.event_ns is not None for each in messages) else None,
            transmits if any(each.transmit_ns is not None for each in messages) else None,
            [names.index(each.destination) for each in messages],
            names,
            [each.block for each in messages],
            [each.body for each in messages],
            offset_deltas=deltas,
            salt=SALT,
            level=level,
        )
    )


def write_segment(
    path: Path, batches: list[list[Message]], deltas: list[list[int] | None] | None = None, level: int = 0
) -> list[Placed]:
    placed, data, offset = [], b"", 0
    for i, messages in enumerate(batches):
        made = Placed(len(data), offset, messages, deltas[i] if deltas else None)
        placed.append(made)
        data += encode(offset, messages, made.deltas, level)
        offset = made.next_offset
    path.write_bytes(data)
    return placed


def whole(path: Path, placed: list[Placed]) -> SegmentRange:
    return SegmentRange("p", str(path), 0, path.stat().st_size, 0, placed[-1].next_offset)


def read_rows(
    wanted: SegmentRange,
    selection: Selection | None = None,
    columns: list[str] | None = None,
    rows_per_batch: int = 16_384,
    losses: list[Loss] | None = None,
    counters: Counters | None = None,
    reach: Reach = Reach.WHOLE,
) -> list[dict[str, Any]]:
    """All rows of a range, as Python values. Without ``losses`` a loss is an assertion."""
    full = arrow_schema()
    schema = full if columns is None else pa.schema([full.field(name) for name in columns])
    counters = counters or Counters()
    decoder = Decoder(wanted.partition, schema, selection or Selection(), rows_per_batch, counters)
    rows: list[dict[str, Any]] = []

    def lose(loss: Loss) -> None:
        assert losses is not None, loss
        losses.append(loss)

    for chunk in scan(wanted, lose, counters, reach=reach):
        for batch in decoder.decode(*chunk):
            batch.validate(full=True)
            assert batch.num_rows <= rows_per_batch
            rows += batch.to_pylist()
    return rows


def contradict(segment: Path, place: int) -> BatchHeader:
    """Batch number ``place`` of this file, and of no compaction: its names have other lengths than they say, its crc
    holds."""
    data, at, found = bytearray(segment.read_bytes()), 0, []
    while at < len(data):
        found.append((at, decode_header(bytes(data), at)))
        at += found[-1][1].total_len
    at, header = found[place]
    batch = data[at : at + header.total_len]
    struct.pack_into("<I", batch, batch.index(b"/topic/") - 4, 3)
    struct.pack_into("<I", batch, 12, crc32(batch[16:]))
    data[at : at + header.total_len] = batch
    segment.write_bytes(data)
    return header
