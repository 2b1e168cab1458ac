"""Batches in memory: the open one that appends fill, and the finished one that readers share.

BatchBuilder is columns under construction (lists, because appending to a list is the cheapest thing Python does); the
broker hangs on ``waiters`` who waits for it, and receipts on its ``turn``. ``RecordBatch`` is finished and never
changes, except that the broker may leave what it derived in ``memo`` and ``marks``, and a list column may be swapped
for an equal, denser array.

Knows: columns. Must not know: files, partitions, what a header block means.
Invariants: all columns have one length; offsets rise; a dense batch has a ``range`` for its offsets. A batch covers
``base_offset`` up to, not including, ``next_offset``: what it does not hold in between was removed on purpose.
Owned by the hub, but a RecordBatch that is being written is read by the disk thread, and one that a cold read returns
was made on the read thread; nobody changes it then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from radiator.storage.dedup import Ids
from radiator.storage.format import MISSING, TIME_MAX, encode_batch
from radiator.storage.turn import Turn

# What CPython spends beside the bytes themselves (measured with sys.getsizeof): for the budgets of caches.
BATCH_OVERHEAD_BYTES = 1_200
RECORD_OVERHEAD_BYTES = 160
NAME_BYTES = 100  # of the usual length
ONE_DESTINATION = [(0,) * count for count in range(64)]  # ``destination_ids`` of small batches that have one


class RecordBatch:
    """Finished records, offsets rising, as columns. ``names[destination_ids[i]]`` is the destination of record i."""

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

    def index_at(self, offset: int) -> int:
        """The first index whose offset is ``offset`` or higher; ``len(self)`` if there is none."""
        offsets = self.offsets
        if type(offsets) is range:
            return min(max(offset - offsets.start, 0), len(offsets))
        return bisect_left(offsets, offset)

    def part(self, start: int, stop: int, base_offset: int) -> RecordBatch:
        """The records with these indexes, as a batch that covers from ``base_offset`` on."""
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
        """The pieces of it as it stands in a segment (``encode_batch``)."""
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


class BatchBuilder:
    """The open batch of a partition. Hub only. Full when the partition says so (``limits.BATCH_*_MAX``).

    Columns that say nothing are not there: times that no record has, and ids while there is one destination."""

    __slots__ = (
        "atomic",
        "base_offset",
        "blocks",
        "bodies",
        "destination_ids",
        "event_ns",
        "ids",
        "names_bytes",
        "plain",
        "receive_ns",
        "size_bytes",
        "sync_requested",
        "transmit_ns",
        "turn",
        "waiters",
    )

    def __init__(self, base_offset: int, turn: Turn | None = None) -> None:
        self.base_offset = base_offset
        self.turn = turn or Turn()
        self.turn.begins()
        self.receive_ns: list[int] = []
        self.event_ns: list[int] | None = None
        self.transmit_ns: list[int] | None = None
        self.destination_ids: list[int] | None = None
        self.plain = True  # none of these three is there
        self.ids: dict[str, int] = {}
        self.blocks: list[bytes] = []
        self.bodies: list[bytes] = []
        self.names_bytes = 0
        self.size_bytes = 0  # of blocks, bodies and names
        self.waiters: list[Any] = []  # what the broker releases when the batch's promise holds
        self.atomic = False  # holds a part of a transaction over several files
        self.sync_requested = False  # some record asked for an fsync whatever the rule says

    def __len__(self) -> int:
        return len(self.blocks)

    def name(self, destination: str) -> int:
        """Return the number of a destination that the batch has no record of yet."""
        number = self.ids[destination] = len(self.ids)
        self.names_bytes += len(destination)
        self.size_bytes += len(destination)
        if number == 1:
            self.destination_ids = [0] * len(self.blocks)
            self.plain = False
        return number

    def add_columns(self, number: int, event_ns: int | None, transmit_ns: int | None, count: int = 1) -> None:
        """Add to the columns that are there, or have to be from now on, what ``count`` records have in common. Their
        blocks are added after this; the times must fit an i64."""
        if self.destination_ids is not None:
            self.destination_ids += [number] * count
        self.event_ns = self._column(self.event_ns, event_ns, count)
        self.transmit_ns = self._column(self.transmit_ns, transmit_ns, count)

    def extend_columns(self, run: Run) -> None:
        """Add to the columns what the records of a run have; their destinations are named already, and their blocks
        are added after this."""
        before = len(self.blocks)
        if self.destination_ids is not None:
            self.destination_ids.extend(map(self.ids.__getitem__, run.names))
        if run.has_event or self.event_ns is not None:
            self.event_ns = (self.event_ns or [MISSING] * before) + run.event_ns
            self.plain = False
        if run.has_transmit or self.transmit_ns is not None:
            self.transmit_ns = (self.transmit_ns or [MISSING] * before) + run.transmit_ns
            self.plain = False

    def _column(self, column: list[int] | None, time_ns: int | None, count: int) -> list[int] | None:
        if column is None and time_ns is not None:
            column = [MISSING] * len(self.blocks)
            self.plain = False
        if column is not None:
            column += [MISSING if time_ns is None else time_ns] * count
        return column

    def add(
        self,
        destination: str,
        block: bytes,
        body: bytes,
        receive_ns: int,
        event_ns: int | None,
        transmit_ns: int | None,
    ) -> None:
        """Add one record. ``Partition.append`` has this inlined. The times must fit 64 bits."""
        number = self.ids.get(destination)
        if number is None:
            number = self.name(destination)
        self.add_columns(number, event_ns, transmit_ns)
        self.receive_ns.append(receive_ns)
        self.blocks.append(block)
        self.bodies.append(body)
        self.size_bytes += len(block) + len(body)

    def finish(self) -> RecordBatch:
        """The finished batch; it takes over the lists, so the builder must not be used again."""
        base, count = self.base_offset, len(self.blocks)
        ids: Sequence[int] | None = self.destination_ids
        if ids is None:
            ids = ONE_DESTINATION[count] if count < len(ONE_DESTINATION) else [0] * count
        return RecordBatch(
            range(base, base + count),
            self.receive_ns,
            self.event_ns,
            self.transmit_ns,
            ids,
            list(self.ids),
            self.blocks,
            self.bodies,
            self.size_bytes - self.names_bytes,
        )


class Run:
    """Records for one partition that are appended together. What an append costs for each is paid while it is built."""

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
        self.ids = Ids()  # of those records that have one

    def __len__(self) -> int:
        return len(self.blocks)

    def add(self, destination: str, block: bytes, body: bytes, event_ns: int | None, transmit_ns: int | None) -> None:
        """One record. Raises ValueError if a time does not fit 64 bits."""
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
        """A run of these records only; ``numbers`` rise."""
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
    """Swaps lists of ints for arrays: 8 bytes a value instead of 40. Worth it for a batch that is going to be kept."""
    if type(batch.receive_ns) is list:
        batch.receive_ns = array("q", batch.receive_ns)
        batch.destination_ids = array("I", batch.destination_ids)
        if batch.event_ns is not None:
            batch.event_ns = array("q", batch.event_ns)
        if batch.transmit_ns is not None:
            batch.transmit_ns = array("q", batch.transmit_ns)
