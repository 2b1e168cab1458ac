"""Many small batches as one: what makes a log of single messages as quick to read as a log of large batches.

Merger puts columns end to end; ``merge_ones`` is its short cut for the batch of one record, straight from the bytes
(about 1.5 us instead of 5). It takes what it understands and stops at everything else; the general decoder judges that.

Knows: bytes and columns. Must not know: files. Pure: any thread, each with its own Merger.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from zlib import crc32

from radiator.storage.batch import RecordBatch
from radiator.storage.format import (
    CRC_FROM,
    EVENT_ABSENT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MISSING,
    PLAIN,
    TRANSMIT_ABSENT,
)

_I64 = Struct("<q")
_FIXED_BYTES = 24  # the columns of one record besides its times: header_off, body_off, destination_id


class Merger:
    """Columns of batches that follow one another; the caller sees to it that they do."""

    __slots__ = (
        "base_offset",
        "blocks",
        "bodies",
        "destination_ids",
        "event_ns",
        "ids",
        "next_offset",
        "offsets",
        "raw_ids",
        "receive_ns",
        "size_bytes",
        "transmit_ns",
    )

    def __init__(self) -> None:
        self.base_offset = self.next_offset = -1
        self.offsets: list[int] | None = None  # None while dense
        self.receive_ns: list[int] = []
        self.event_ns: list[int] | None = None  # None while no record has one
        self.transmit_ns: list[int] | None = None
        self.ids: dict[str, int] = {}
        self.raw_ids: dict[bytes, int] = {}
        self.destination_ids: list[int] = []
        self.blocks: list[bytes] = []
        self.bodies: list[bytes] = []
        self.size_bytes = 0

    def add(
        self,
        offsets: Sequence[int],
        receive_ns: Sequence[int],
        event_ns: Sequence[int] | None,
        transmit_ns: Sequence[int] | None,
        destination_ids: Sequence[int],
        names: Sequence[str],
        blocks: list[bytes],
        bodies: list[bytes],
        size_bytes: int,
        base_offset: int,
    ) -> None:
        had, more = len(self.blocks), len(blocks)
        if not had:
            self.base_offset = self.next_offset = base_offset
        if self.offsets is not None:
            self.offsets += offsets
        elif type(offsets) is not range or offsets.start != self.next_offset:
            self.offsets = [*range(self.base_offset, self.base_offset + had), *offsets]
        self.next_offset = offsets[-1] + 1
        self.receive_ns += receive_ns
        if event_ns is not None or self.event_ns is not None:
            if self.event_ns is None:
                self.event_ns = [MISSING] * had
            self.event_ns += event_ns if event_ns is not None else [MISSING] * more
        if transmit_ns is not None or self.transmit_ns is not None:
            if self.transmit_ns is None:
                self.transmit_ns = [MISSING] * had
            self.transmit_ns += transmit_ns if transmit_ns is not None else [MISSING] * more
        ids = self.ids
        if len(names) == 1:
            self.destination_ids += [ids.setdefault(names[0], len(ids))] * more
        else:
            mapped = [ids.setdefault(name, len(ids)) for name in names]
            self.destination_ids += [mapped[number] for number in destination_ids]
        self.blocks += blocks
        self.bodies += bodies
        self.size_bytes += size_bytes

    def finish(self) -> RecordBatch:
        return RecordBatch(
            range(self.base_offset, self.next_offset) if self.offsets is None else array("Q", self.offsets),
            self.receive_ns,
            self.event_ns,
            self.transmit_ns,
            self.destination_ids,
            list(self.ids),
            self.blocks,
            self.bodies,
            self.size_bytes,
            self.base_offset,
        )


def merge(batches: Sequence[RecordBatch]) -> RecordBatch:
    """One batch out of several that follow one another."""
    merger = Merger()
    for each in batches:
        merger.add(
            each.offsets,
            each.receive_ns,
            each.event_ns,
            each.transmit_ns,
            each.destination_ids,
            each.names,
            each.blocks,
            each.bodies,
            each.size_bytes,
            each.base_offset,
        )
    return merger.finish()


def merge_ones(merger: Merger, data: bytes, at: int, end_offset: int) -> int:
    """Adds the batches of one record that stand in ``data`` from ``at`` on and continue ``merger`` without a gap, below
    ``end_offset``; the place behind the last one taken."""
    if merger.offsets is not None:
        return at
    unpack, size, view = HEADER.unpack_from, len(data), memoryview(data)
    expected, ids, raw_ids = merger.next_offset, merger.ids, merger.raw_ids
    receive_ns, destination_ids, blocks, bodies = (
        merger.receive_ns,
        merger.destination_ids,
        merger.blocks,
        merger.bodies,
    )
    while at + HEADER_BYTES <= size:
        (magic, total, crc, base, receive, _, count, flags, names, names_len, headers_len, bodies_len, _) = unpack(
            data, at
        )
        end = at + total
        if magic != MAGIC or count != 1 or names != 1 or base != expected or flags & ~PLAIN:
            break
        if end > size or base >= end_offset or crc32(view[at + CRC_FROM : end]) != crc:
            break
        place = at + HEADER_BYTES + 8
        event = transmit = MISSING
        if not flags & EVENT_ABSENT:
            event = _I64.unpack_from(data, place)[0]
            place += 8
        if not flags & TRANSMIT_ABSENT:
            transmit = _I64.unpack_from(data, place)[0]
            place += 8
        place += _FIXED_BYTES
        block_at = place + ((names_len + 7) & ~7)
        body_at = block_at + ((headers_len + 7) & ~7)
        if body_at + ((bodies_len + 7) & ~7) != end:
            break
        raw = data[place + 4 : place + names_len]
        number = raw_ids.get(raw)
        if number is None:
            number = raw_ids[raw] = ids.setdefault(raw.decode("utf-8", "replace"), len(ids))
        if not flags & EVENT_ABSENT and merger.event_ns is None:
            merger.event_ns = [MISSING] * len(blocks)
        if merger.event_ns is not None:
            merger.event_ns.append(event)
        if not flags & TRANSMIT_ABSENT and merger.transmit_ns is None:
            merger.transmit_ns = [MISSING] * len(blocks)
        if merger.transmit_ns is not None:
            merger.transmit_ns.append(transmit)
        receive_ns.append(receive)
        destination_ids.append(number)
        blocks.append(data[block_at : block_at + headers_len])
        bodies.append(data[body_at : body_at + bodies_len])
        merger.size_bytes += headers_len + bodies_len
        expected += 1
        at = end
    merger.next_offset = expected
    return at
