"""Finished batches in memory, which readers share, and runs of records that are appended together.

A ``RecordBatch`` does not change, with two exceptions: the broker sets ``memo`` and ``marks``, and ``densify`` replaces
a list column by an equal array.

This module knows columns. It does not know files, partitions or the meaning of a header block.

Invariants: all columns have one length; offsets rise; a dense batch has a ``range`` of offsets. A batch covers the
offsets from ``base_offset`` up to, not including, ``next_offset``; records that it does not have there were removed.

The event loop owns batches. The disk thread reads a batch while it writes it, and the read thread makes batches; no
other thread changes a batch during that time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from radiator.storage.dedup import Ids
from radiator.storage.format import encode_batch
from radiator.storage.header import MISSING, TIME_MAX

# What CPython spends beside the bytes themselves (measured with sys.getsizeof): for the budgets of caches.
BATCH_OVERHEAD_BYTES = 1_200
RECORD_OVERHEAD_BYTES = 160
NAME_BYTES = 100  # of the usual length


class RecordBatch:
    """Finished records as columns, in the order of their offsets.

    Record i was sent to the destination ``names[destination_ids[i]]``.
    """

    __slots__ = (
        "base_offset",
        "blocks",
        "bodies",
        "cost_bytes",
        "destination_ids",
        "event_ns",
        "marks",
        "memo",
        "names",
        "next_offset",
        "offsets",
        "receive_ns",
        "size_bytes",
        "transmit_ns",
    )

    def __init__(
        self,
        offsets: Sequence[int],
        receive_ns: Sequence[int],
        event_ns: Sequence[int] | None,
        transmit_ns: Sequence[int] | None,
        destination_ids: Sequence[int],
        names: list[str],
        blocks: list[bytes],
        bodies: list[bytes],
        size_bytes: int,
        base_offset: int | None = None,
    ) -> None:
        self.offsets = offsets
        self.base_offset = offsets[0] if base_offset is None else base_offset  # below the first if some were removed
        self.next_offset = offsets[-1] + 1
        self.receive_ns = receive_ns
        self.event_ns = event_ns  # a record without one has MISSING; None if no record has one
        self.transmit_ns = transmit_ns
        self.destination_ids = destination_ids
        self.names = names
        self.blocks = blocks
        self.bodies = bodies
        self.size_bytes = size_bytes  # of blocks and bodies
        # Memory that keeping this batch costs, roughly; twice the records, since ``memo`` is about as large.
        records = 2 * (size_bytes + len(blocks) * RECORD_OVERHEAD_BYTES)
        self.cost_bytes = records + len(names) * NAME_BYTES + BATCH_OVERHEAD_BYTES
        self.memo: Any = None
        self.marks = -1  # which headers the broker has found somewhere in the blocks; -1: it has not looked

    def __len__(self) -> int:
        return len(self.blocks)

    def set_marks(self, marks: int) -> None:
        """Note which headers the broker has found somewhere in the blocks."""
        self.marks = marks

    def memos(self) -> dict[Any, Any]:
        """Return what was derived from the batch; it lives as long as the batch."""
        if self.memo is None:
            self.memo = {}
        found: dict[Any, Any] = self.memo
        return found

    def index_at(self, offset: int) -> int:
        """Return the first index whose offset is ``offset`` or higher; ``len(self)`` if there is none."""
        offsets = self.offsets
        if type(offsets) is range:
            return min(max(offset - offsets.start, 0), len(offsets))
        return bisect_left(offsets, offset)

    def part(self, start: int, stop: int, base_offset: int) -> RecordBatch:
        """Return the records with these indexes as a batch that covers from ``base_offset`` on."""
        blocks, bodies = self.blocks[start:stop], self.bodies[start:stop]
        return RecordBatch(
            self.offsets[start:stop],
            self.receive_ns[start:stop],
            None if self.event_ns is None else self.event_ns[start:stop],
            None if self.transmit_ns is None else self.transmit_ns[start:stop],
            self.destination_ids[start:stop],
            self.names,
            blocks,
            bodies,
            sum(map(len, blocks)) + sum(map(len, bodies)),
            base_offset,
        )

    def encode(self, salt: int, offset_deltas: Sequence[int] | None = None, level: int = 0) -> list[bytes]:
        """Return the bytes of the batch in a segment, in pieces (``encode_batch``)."""
        return encode_batch(
            self.base_offset,
            self.receive_ns,
            self.event_ns,
            self.transmit_ns,
            self.destination_ids,
            self.names,
            self.blocks,
            self.bodies,
            0,
            offset_deltas,
            salt,
            level,
        )

    def __repr__(self) -> str:
        return f"<RecordBatch {self.base_offset}..{self.next_offset - 1} {len(self)} records {self.size_bytes} B>"


class Run:
    """Records for one partition that are appended together.

    The costs of an append are paid while the run is built.
    """

    __slots__ = (
        "bodies",
        "blocks",
        "event_ns",
        "has_event",
        "has_transmit",
        "ids",
        "names",
        "size_bytes",
        "sync",
        "transmit_ns",
        "body_bytes",
    )

    def __init__(self) -> None:
        self.names: list[str] = []  # of the destinations, one for each record
        self.blocks: list[bytes] = []
        self.bodies: list[bytes] = []
        self.event_ns: list[int] = []
        self.transmit_ns: list[int] = []
        self.has_event = False
        self.has_transmit = False
        self.size_bytes = 0  # of blocks and bodies
        self.body_bytes = 0
        self.sync = False  # some record asks for an fsync whatever the rule says
        self.ids = Ids()  # message ids of the records that have one

    @classmethod
    def of_blocks(cls, destination: str, blocks: list[bytes]) -> Run:
        """Return a run of records of one destination that have header blocks and no bodies."""
        run, count = cls(), len(blocks)
        run.names = [destination] * count
        run.blocks = blocks
        run.bodies = [b""] * count
        run.event_ns = [MISSING] * count
        run.transmit_ns = [MISSING] * count
        run.size_bytes = sum(map(len, blocks))
        return run

    def __len__(self) -> int:
        return len(self.blocks)

    def request_sync(self, wanted: bool) -> None:
        """Have the run synced, whatever the rule says, if ``wanted``."""
        self.sync |= wanted

    def add(self, destination: str, block: bytes, body: bytes, event_ns: int | None, transmit_ns: int | None) -> None:
        """Add one record. Raises ValueError if a time does not fit 64 bits."""
        for time_ns in (event_ns, transmit_ns):
            if time_ns is not None and not MISSING < time_ns <= TIME_MAX:
                raise ValueError(f"time {time_ns} does not fit 64 bits")
        self.names.append(destination)
        self.blocks.append(block)
        self.bodies.append(body)
        self.event_ns.append(MISSING if event_ns is None else event_ns)
        self.transmit_ns.append(MISSING if transmit_ns is None else transmit_ns)
        self.has_event |= event_ns is not None
        self.has_transmit |= transmit_ns is not None
        self.size_bytes += len(block) + len(body)
        self.body_bytes += len(body)

    def select(self, numbers: Sequence[int]) -> Run:
        """Return a run of the records with these numbers, which must rise."""
        selected = Run()
        identities = dict(zip(self.ids.numbers, self.ids.places, strict=True))
        for number in numbers:
            identity = identities.get(number)
            if identity is not None:
                selected.ids.add(identity, len(selected))
            event_ns, transmit_ns = self.event_ns[number], self.transmit_ns[number]
            selected.add(
                self.names[number],
                self.blocks[number],
                self.bodies[number],
                None if event_ns == MISSING else event_ns,
                None if transmit_ns == MISSING else transmit_ns,
            )
        selected.sync = self.sync
        return selected


def densify(batch: RecordBatch) -> None:
    """Replace lists of ints by arrays, which take 8 bytes a value instead of 40. Worth it for cached batches."""
    if type(batch.receive_ns) is list:
        batch.receive_ns = array("q", batch.receive_ns)
        batch.destination_ids = array("I", batch.destination_ids)
        if batch.event_ns is not None:
            batch.event_ns = array("q", batch.event_ns)
        if batch.transmit_ns is not None:
            batch.transmit_ns = array("q", batch.transmit_ns)
