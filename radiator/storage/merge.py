"""Merge small batches into one, so that a log of single messages is read as fast as a log of large batches.

Merger concatenates the columns of batches. ``merge_single_records`` does so for batches of one record, straight from
the bytes. It stops at every batch that is not a good one of this kind; the caller gives that batch to the general
decoder.

This module knows bytes and columns. It does not know files. Any thread may use it, each with its own Merger.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from radiator.storage.batch import RecordBatch
from radiator.storage.format import Columns, decode_single_records
from radiator.storage.header import MISSING


class Merger:
    """The concatenated columns of consecutive batches. The caller checks that they are consecutive."""

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

    def add(self, batch: Columns | RecordBatch) -> None:
        """Add the columns of a batch."""
        offsets, event_ns, transmit_ns, names = batch.offsets, batch.event_ns, batch.transmit_ns, batch.names
        had, more = len(self.blocks), len(batch.blocks)
        if not had:
            self.base_offset = self.next_offset = batch.base_offset
        if self.offsets is not None:
            self.offsets += offsets
        elif type(offsets) is not range or offsets.start != self.next_offset:
            self.offsets = [*range(self.base_offset, self.base_offset + had), *offsets]
        self.next_offset = offsets[-1] + 1
        self.receive_ns += batch.receive_ns
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
            self.destination_ids += [mapped[number] for number in batch.destination_ids]
        self.blocks += batch.blocks
        self.bodies += batch.bodies
        self.size_bytes += batch.size_bytes

    def finish(self) -> RecordBatch:
        """Return the batch. The merger must not be used again."""
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
    """Return several consecutive batches as one."""
    merger = Merger()
    for each in batches:
        merger.add(each)
    return merger.finish()


def merge_single_records(merger: Merger, data: bytes, at: int, end_offset: int) -> int:
    """Add the batches of one record in ``data`` that continue ``merger`` without a gap.

    Args:
        merger: It has one batch or more.
        data: Bytes of a segment.
        at: Where the first of these batches begins.
        end_offset: Batches with this offset or a higher one are not added.

    Returns: The place behind the last batch that was added. The next one is of another kind, or is damaged.
    """
    if merger.offsets is not None:
        return at
    expected, ids, raw_ids, had = merger.next_offset, merger.ids, merger.raw_ids, len(merger.blocks)
    add_time, add_id = merger.receive_ns.append, merger.destination_ids.append
    add_block, add_body = merger.blocks.append, merger.bodies.append
    events, transmits, known, number = merger.event_ns, merger.transmit_ns, None, -1
    for end, offset, receive_ns, event_ns, transmit_ns, name, block, body in decode_single_records(data, at):
        if offset != expected or offset >= end_offset:
            break
        if name is not known:
            known = name
            found = raw_ids.get(name)
            if found is None:
                found = raw_ids[name] = ids.setdefault(name.decode("utf-8", "replace"), len(ids))
            number = found
        if events is not None:
            events.append(MISSING if event_ns is None else event_ns)
        elif event_ns is not None:
            events = merger.event_ns = [MISSING] * len(merger.blocks) + [event_ns]
        if transmits is not None:
            transmits.append(MISSING if transmit_ns is None else transmit_ns)
        elif transmit_ns is not None:
            transmits = merger.transmit_ns = [MISSING] * len(merger.blocks) + [transmit_ns]
        add_time(receive_ns)
        add_id(number)
        add_block(block)
        add_body(body)
        expected += 1
        at = end
    merger.next_offset = expected
    merger.size_bytes += sum(map(len, merger.blocks[had:])) + sum(map(len, merger.bodies[had:]))
    return at
