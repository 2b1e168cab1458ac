"""One ordered log, as the hub sees it: offsets, the open batch, the tail in memory, jobs for everything else.

This is what a log on disk (``file_partition``) and one in memory (``memory``) have in common.

    append -> open batch -> take() -> AppendJob ...disk thread... -> committed(): high watermark, tail

    log_start_offset <= cold (files) <= tail (memory) <= high_watermark <= in jobs, open batch <= next_offset

Invariants: offsets are dense and never reused while anything of them may be on disk; readers stop at the high
watermark, which moves only in ``committed``; a failed write or sync fails the partition: the high watermark stays,
everything queued behind fails too, appends are refused. What was whole before it in the same group is committed.
``retain_from`` (set by the broker: the lowest offset that some cursor needs; None = nothing) holds retention back. In
memory what lies below it goes at once, unless the broker says (``history``, before that) that others want to read it.

No I/O here. Owned by the hub.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from radiator import limits
from radiator.clock import MonoNs, Now, WallNs
from radiator.config import Settings
from radiator.errors import StorageError
from radiator.storage.batch import RecordBatch, Run
from radiator.storage.dedup import Dedup
from radiator.storage.files import FileSystem
from radiator.storage.format import MISSING, TIME_MAX
from radiator.storage.jobs import Job
from radiator.storage.reads import PositionJob, ReadJob, last_in_memory, time_in_memory
from radiator.storage.segment import SegmentInfo
from radiator.storage.tail import Tail
from radiator.storage.turn import Place, Turn
from radiator.timers import NEVER_NS, Timers

RECORDS_MAX = limits.BATCH_RECORDS_MAX
BYTES_MAX = limits.BATCH_BYTES_MAX
NAMES_MAX = limits.BATCH_NAMES_MAX


ONE_DESTINATION = [(0,) * count for count in range(64)]  # ``destination_ids`` of small batches that have one


class BatchBuilder:
    """The open batch of a partition: columns that appends fill. It is full when the partition says so.

    Columns are lists, because appending to a list is the cheapest thing Python does. Columns that say nothing do not
    exist: times that no record has, and numbers of destinations while there is one. ``waiters`` are released when the
    promise of the batch holds, and receipts wait for its ``turn``."""

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

    def __init__(self, base_offset: int, turn: Turn | None = None, waiters: Any = None) -> None:
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
        self.waiters: list[Any] = [] if waiters is None else waiters
        self.atomic = False  # holds a part of a transaction over several files
        self.sync_requested = False  # some record asked for an fsync whatever the rule says

    def __len__(self) -> int:
        return len(self.blocks)

    def request_sync(self) -> None:
        """Have the batch synced, whatever the rule says."""
        self.sync_requested = True

    def make_atomic(self) -> None:
        """Note that a part of a transaction over several logs is in it."""
        self.atomic = True

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


IDLE = BatchBuilder(-1, waiters=())  # stands in open_batch while nothing is open: nothing may wait here


class Agenda:
    """What the partitions of one store tell it: take() must come by, tick() must come by at a time. Hub only.

    Of each partition one deadline counts on each clock: the earliest that it has asked for since it was last met.
    """

    __slots__ = (
        "_mono",
        "_wall",
        "dirty",
        "failed",
        "end_offsets",
        "sweep_candidates",
        "postponed_partitions",
        "removals",
        "turn_synced",
        "turn_unsynced",
    )

    def __init__(self) -> None:
        self.postponed_partitions: dict[Partition, None] = {}  # those that hold decided batches back
        self.failed: dict[Partition, None] = {}  # those that refuse messages
        self.sweep_candidates: dict[
            Partition, None
        ] = {}  # those of which something may go that could not when they were last swept
        self.dirty: list[Partition] = []
        self.end_offsets: dict[EndOffsets, None] = {}  # somebody asks where logs ended then
        self.removals: list[Job] = []  # which come after everything else of a turn, and after its syncs
        self.turn_synced = Turn()
        self.turn_unsynced = Turn()  # of batches whose rules need no sync: they are told before it
        self._mono: Timers[MonoNs, Partition] = Timers()
        self._wall: Timers[WallNs, Partition] = Timers()

    def begin_turn(self) -> None:
        """Begin the next turn: batches that are begun from now on are not written with those before."""
        if self.turn_synced.begun:
            self.turn_synced = Turn()
        if self.turn_unsynced.begun:
            self.turn_unsynced = Turn()

    def take_sweep_candidates(self) -> dict[Partition, None]:
        """Return the partitions that were noted in ``moved``, once."""
        moved, self.sweep_candidates = self.sweep_candidates, {}
        return moved

    def wake(self, partition: Partition, deadline_ns: MonoNs) -> None:
        """tick() must come by then, or before."""
        self._mono.at(deadline_ns, partition)

    def wake_at_wall(self, partition: Partition, deadline_ns: WallNs) -> None:
        """tick() must come when the wall clock shows ``deadline_ns``, or before."""
        self._wall.at(deadline_ns, partition)

    def due(self, now: Now) -> list[Partition]:
        """Those whose time has come. Whoever wants more time to be told of asks for it again."""
        return list(dict.fromkeys([*self._mono.due(now.mono), *self._wall.due(now.wall)]))

    def next_ns(self, now: Now) -> MonoNs:
        """When the next one's time comes, if no clock steps; NEVER_NS: nothing is planned."""
        wall_ns, next_ns = self._wall.next_ns, self._mono.next_ns
        return next_ns if wall_ns == NEVER_NS else min(next_ns, MonoNs(wall_ns - now.wall + now.mono))

    def forget(self, partition: Partition) -> None:
        self._mono.forget(partition)
        self._wall.forget(partition)
        self.failed.pop(partition, None)
        self.sweep_candidates.pop(partition, None)


class Partition(ABC):
    """Offsets, the open batch and the tail; no idea how records are kept. Hub only."""

    __slots__ = (
        "_agenda",
        "_closed",
        "_dirty",
        "begun",
        "dedup",
        "destinations",
        "directory",
        "failed",
        "fs",
        "high_watermark",
        "history",
        "last_receive_ns",
        "log_start_offset",
        "name",
        "next_offset",
        "on_forced",
        "open_batch",
        "settings",
        "pins",
        "queued",
        "retain_from",
        "segments",
        "settled_in",
        "tail",
        "whole",
    )

    def __init__(
        self, name: str, settings: Settings, fs: FileSystem, directory: str, tail: Tail, agenda: Agenda
    ) -> None:
        self._agenda = agenda
        self._dirty = agenda.dirty
        self.name = name
        self.settings = settings
        self.fs = fs
        self.directory = directory
        self.tail = tail
        self.log_start_offset = 0
        self.next_offset = 0  # to be assigned next
        self.high_watermark = 0  # readers stop here
        self.last_receive_ns = WallNs(0)
        self.segments: list[SegmentInfo] = []  # the last one is active; empty in memory and before the first batch
        self.destinations: dict[str, None] = {}  # everything stored here, as far as it is known, in order
        self.whole = True  # ``destinations`` is: nobody else's messages can be here
        self.failed: StorageError | None = None
        self.history = False
        self.retain_from: int | None = None
        self.pins = 1  # how many cursors that is the lowest offset of: to ask them all takes so much longer
        self.on_forced: Callable[[int], None] | None = None  # told where the log begins when a cursor was no obstacle
        self.settled_in: Callable[[int, int], list[tuple[int, int]]] | None = (
            None  # what all cursors have settled there
        )
        self.open_batch: BatchBuilder = IDLE
        self.begun = False  # there is, or will be, a file, whether or not anything is appended
        self.queued = False  # stands in the agenda: take() must visit
        self.dedup: Dedup | None = None  # ids of messages, once there was one
        self._closed: list[BatchBuilder] = []  # full, not yet taken

    def report_to(
        self, on_forced: Callable[[int], None], settled_in: Callable[[int, int], list[tuple[int, int]]]
    ) -> None:
        """Set what the readers of the log are asked and told.

        Args:
            on_forced: Called with where the log begins, when a cursor was no obstacle to retention.
            settled_in: Returns the intervals between two offsets that all cursors have settled.
        """
        self.on_forced = on_forced
        self.settled_in = settled_in

    def pin(self, lowest: int | None, pins: int, history: bool) -> None:
        """Set what retention has to keep for cursors.

        Args:
            lowest: The lowest offset that a cursor needs; None: no cursor needs anything.
            pins: How many cursors that is the lowest offset of.
            history: True if topics are stored here, which may be replayed.
        """
        self.history = history
        self.pins = pins
        self.retain_from = lowest

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(
        self,
        destination: str,
        block: bytes,
        body: bytes,
        receive_ns: WallNs,
        event_ns: int | None = None,
        transmit_ns: int | None = None,
    ) -> int:
        """Adds a record to the open batch and returns its offset. Raises StorageError if the partition has failed,
        ValueError if a time does not fit. The hot path: BatchBuilder.add, inlined."""
        if event_ns is not None and not MISSING < event_ns <= TIME_MAX:
            raise ValueError(f"event time {event_ns} does not fit 64 bits")
        if transmit_ns is not None and not MISSING < transmit_ns <= TIME_MAX:
            raise ValueError(f"transmit time {transmit_ns} does not fit 64 bits")
        builder = self.open_batch
        size = len(block) + len(body)
        if builder is IDLE or builder.size_bytes + size > BYTES_MAX or len(builder.blocks) >= RECORDS_MAX:
            builder = self._begin()
        number = builder.ids.get(destination)
        if number is None:
            size += len(destination)
            if builder.blocks and (len(builder.ids) >= NAMES_MAX or builder.size_bytes + size > BYTES_MAX):
                builder = self._begin()
            number = builder.name(destination)
            size -= len(destination)
        if receive_ns < self.last_receive_ns:
            receive_ns = self.last_receive_ns  # a clock that steps back must not reorder the log
        else:
            self.last_receive_ns = receive_ns
        builder.receive_ns.append(receive_ns)
        if not builder.plain or event_ns is not None or transmit_ns is not None:
            builder.add_columns(number, event_ns, transmit_ns)
        builder.blocks.append(block)
        builder.bodies.append(body)
        builder.size_bytes += size
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def append_many(
        self,
        destination: str,
        block: bytes,
        bodies: list[bytes],
        bodies_bytes: int,
        receive_ns: WallNs,
        event_ns: int | None,
        transmit_ns: int | None,
    ) -> int | None:
        """Add records that differ in their bodies only to the open batch, as ``append`` does for each.

        Args:
            destination: the destination of all, which the open batch has a record of.
            block: the header block of all.
            bodies: a body for each record.
            bodies_bytes: the length of the bodies together.
            receive_ns: when they came.
            event_ns: their event time; that of a record which ``append`` has taken.
            transmit_ns: their transmit time; of such a record too.

        Returns:
            The first offset. None, and nothing is added, if not all fit into the open batch.
        """
        builder, count = self.open_batch, len(bodies)
        number = builder.ids.get(destination)
        size = bodies_bytes + count * len(block)
        if number is None or builder.size_bytes + size > BYTES_MAX or len(builder.blocks) + count > RECORDS_MAX:
            return None
        if receive_ns < self.last_receive_ns:
            receive_ns = self.last_receive_ns
        else:
            self.last_receive_ns = receive_ns
        builder.receive_ns += [receive_ns] * count
        if not builder.plain or event_ns is not None or transmit_ns is not None:
            builder.add_columns(number, event_ns, transmit_ns, count)
        builder.blocks += [block] * count
        builder.bodies += bodies
        builder.size_bytes += size
        first = self.next_offset
        self.next_offset = first + count
        return first

    def extend(self, run: Run, receive_ns: WallNs) -> int:
        """Adds the records of a run, as ``append`` does for each. Returns the first offset. Raises StorageError if the
        partition has failed."""
        first, count = self.next_offset, len(run)
        names = dict.fromkeys(run.names)
        size = run.size_bytes + sum(map(len, names))
        builder = self.open_batch
        if (
            builder is IDLE
            or builder.size_bytes + size > BYTES_MAX
            or len(builder.blocks) + count > RECORDS_MAX
            or len(builder.ids) + len(names) > NAMES_MAX
        ):
            builder = self._begin()
            first = self.next_offset
        if size > BYTES_MAX or count > RECORDS_MAX or len(names) > NAMES_MAX:
            identities = dict(zip(run.ids.numbers, run.ids.places, strict=True))
            for name, block, body, event_ns, transmit_ns in zip(
                run.names, run.blocks, run.bodies, run.event_ns, run.transmit_ns, strict=True
            ):
                event = None if event_ns == MISSING else event_ns
                self.append(name, block, body, receive_ns, event, None if transmit_ns == MISSING else transmit_ns)
                if identities and (identity := identities.get(self.next_offset - 1 - first)) is not None:
                    self.remember(identity, self.next_offset - 1)
            self.open_batch.sync_requested |= run.sync
            return first
        for name in names:
            if name not in builder.ids:
                builder.name(name)
        self.last_receive_ns = max(receive_ns, self.last_receive_ns)
        builder.receive_ns.extend([self.last_receive_ns] * count)
        builder.extend_columns(run)
        builder.blocks.extend(run.blocks)
        builder.bodies.extend(run.bodies)
        builder.size_bytes += run.size_bytes
        builder.sync_requested |= run.sync
        self.next_offset += count
        if run.ids:
            dedup = self._remembering()
            dedup.extend(run.ids, first, self.last_receive_ns)
            dedup.appended(builder.base_offset, builder, self.high_watermark)
        return first

    def make_room(self, records: int, size_bytes: int) -> None:
        """The next ``records`` of together ``size_bytes`` go into one batch, which is all or nothing on disk."""
        builder = self.open_batch
        if builder is not IDLE and (
            builder.size_bytes + size_bytes + records * limits.DESTINATION_BYTES_MAX > BYTES_MAX  # each a new name
            or len(builder.blocks) + records > RECORDS_MAX
            or len(builder.ids) + records > NAMES_MAX
        ):
            self._closed.append(builder)
            self.open_batch = IDLE  # none is begun yet: an empty one must not be left if nothing follows

    def check(self) -> None:
        """Raises StorageError if appends are refused now."""
        if self.failed is not None:
            raise StorageError(str(self.failed))

    def _begin(self) -> BatchBuilder:
        """A new open batch; the one before it, if any, is full."""
        self.check()
        if self.open_batch is not IDLE:
            self._closed.append(self.open_batch)
        for moment in self._agenda.end_offsets:
            moment.begins(self)
        self.open_batch = BatchBuilder(self.next_offset, self._turn())
        self.queue()
        return self.open_batch

    def _turn(self) -> Turn:
        """Return the turn of a batch that begins now. Here each batch has its own."""
        return Turn()

    def queue(self) -> None:
        """take() must come by."""
        if not self.queued:
            self.queued = True
            self._dirty.append(self)

    def fail(self, error: StorageError, now_ns: MonoNs) -> None:
        """Appends are refused from now on, until the disk has been asked again: for room, or for another file. What is
        queued comes back from take() as jobs, to fail as well."""
        if self.failed is None:
            self.failed = error
            self._agenda.failed[self] = None
        if self.open_batch is not IDLE:
            self._closed.append(self.open_batch)
            self.open_batch = IDLE
            self.queue()
        self.next_offset = self.rollback_to
        if self.dedup is not None:
            self.dedup.forget(self.next_offset)

    def find_duplicate(self, identity: bytes, now_ns: WallNs) -> int | None:
        """The offset of a message of that identity, if one came within the window."""
        dedup = self.dedup
        return None if dedup is None else dedup.find(identity, max(now_ns, self.last_receive_ns))

    def wait_point(self, offset: int, synced: bool) -> Place | None:
        """Return where a receipt for a message that ``first_of`` has found waits, None if it need not wait.

        Args:
            offset: the message's.
            synced: whether the message must be synced, and not only written, even if the rule says less.

        Returns:
            A place that ends when the message is written, or synced if the rule or ``synced`` says so, or when it is
            known that it cannot be.
        """
        if offset < self.high_watermark or self.dedup is None:
            return None
        batch_in_flight = self.dedup.in_flight_at(offset)
        return None if batch_in_flight is None else batch_in_flight.place

    def new_dedup(self) -> Dedup:
        settings, salt = self.settings, int.from_bytes(self.fs.entropy(8), "little") | 1
        return Dedup(settings.dedup_window_ns or 0, settings.dedup_count, salt)

    def remember(self, identity: bytes, offset: int) -> None:
        """The message just appended, at ``offset``, is the one of that identity."""
        dedup = self._remembering()
        dedup.add(identity, offset, self.last_receive_ns)
        dedup.appended(self.open_batch.base_offset, self.open_batch, self.high_watermark)

    def _remembering(self) -> Dedup:
        if self.dedup is None:
            self.dedup = self.new_dedup()
        return self.dedup

    @property
    def untaken(self) -> int:
        """How many messages were appended that take() has not had yet."""
        return sum(len(each.blocks) for each in (*self._closed, self.open_batch))

    @property
    def rollback_to(self) -> int:
        """Offsets from here on are taken back if a write fails."""
        return self.high_watermark

    @property
    def untouched(self) -> bool:
        """Nothing was ever appended, by this run or by another, and no file was begun by this one."""
        return not (self.next_offset or self.last_receive_ns or self.queued or self.begun)

    @property
    def size_bytes(self) -> int:
        """What the committed records take."""
        return sum(segment.size_bytes for segment in self.segments)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> RecordBatch | None:
        """The batch in memory that holds ``offset``; None if it is not in memory (or not there at all)."""
        return self.tail.find(offset)

    def offset_for_time(self, receive_ns: WallNs) -> PositionJob:
        """Where the first record with a receive time of ``receive_ns`` or later stands; the high watermark if none."""
        job = PositionJob(self, receive_ns=receive_ns)
        time_in_memory(job, self)
        return job

    def offset_of_last(self, count: int) -> PositionJob:
        """Where the last ``count`` records begin, whatever their destinations."""
        job = PositionJob(self, count=count)
        last_in_memory(job, self)
        return job

    @property
    def dense_from(self) -> int:
        """From here on no record was removed: as many offsets, as many records."""
        sparse = [place for place, segment in enumerate(self.segments, 1) if segment.sparse]
        if not sparse:
            return self.log_start_offset
        dense = self.segments[sparse[-1] :]
        return dense[0].base_offset if dense else self.high_watermark

    def forget_readers(self) -> None:
        """Nobody reads here any more."""
        self.on_forced = self.settled_in = None

    def drop_before(self, offset: int) -> None:
        """Readers no longer find anything below ``offset``."""
        self.log_start_offset = max(self.log_start_offset, offset)
        self.tail.drop_below(offset)

    @abstractmethod
    def configure(self, settings: Settings) -> None:
        """What the rule says from now on."""

    @abstractmethod
    def want_retention(self) -> None:
        """Have the next take() look at what may go."""

    def sweep(self) -> None:
        """Now and then: cursors move without telling."""
        if len(self.segments) > 1:
            self.want_retention()

    makes_files = False  # whether the next take() brings a job that begins a file

    @abstractmethod
    def take(self, now: Now, may_roll: bool = True) -> list[Job]:
        """Everything there is to write, as jobs."""

    @abstractmethod
    def tick(self, now: Now) -> None:
        """Mark what is due."""

    @abstractmethod
    def fetch(self, offset: int, bytes_max: int = limits.READ_CHUNK_BYTES) -> ReadJob:
        """A cold read from ``offset`` on."""

    @abstractmethod
    def fetched(self, job: ReadJob) -> None:
        """A cold read came back."""


class EndOffsets:
    """One moment of a store: where each log ended, noted without a look at each log. It lasts until ``close``.

    Only logs that had an open batch at the moment, or begin one later, have to be remembered: all others end where they
    ended then. So a moment costs as much as what is appended while it is needed, however many logs there are. What was
    appended before the moment is below ``end_of``, and what is appended later is not.

    Args:
        kept: Where the moments of a store are; each batch that is begun is reported to all of them.
        active: The partitions that may have an open batch now.
    """

    __slots__ = ("_ends", "_kept")

    def __init__(self, kept: dict[EndOffsets, None], active: Iterable[Partition]) -> None:
        self._kept = kept
        self._ends = {partition: partition.next_offset for partition in active}
        kept[self] = None

    def begins(self, partition: Partition) -> None:
        """A batch is begun at ``partition.next_offset``."""
        self._ends.setdefault(partition, partition.next_offset)

    def end_of(self, partition: Partition) -> int:
        """The offset that was to be given out next at the moment; less if a write has failed since."""
        return min(self._ends.get(partition, partition.next_offset), partition.next_offset)

    def close(self) -> None:
        """Nobody asks any more."""
        self._kept.pop(self, None)
        self._ends.clear()
