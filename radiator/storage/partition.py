"""One ordered log, for the event loop: offsets, the open batch, the tail in memory, and jobs for everything else.

A log on disk (``file_partition``) and one in memory (``memory``) have this in common.

    append -> open batch -> take() -> AppendJob ...disk thread... -> committed(): high watermark, tail

    log_start_offset <= cold (files) <= tail (memory) <= high_watermark <= in jobs, open batch <= next_offset

Invariants: offsets are dense and never reused while any of them may be on disk; readers stop at the high watermark,
which moves only in ``committed``; a failed write or sync fails the partition: the high watermark stays, everything
queued behind fails too, and appends are refused. Batches that were stored before the failure are committed.
``retain_from`` (set by the broker: the lowest offset that a cursor needs; None = nothing) limits retention. In memory
everything below it is dropped at once, unless ``history`` is set, which the broker sets before that.

This module does no I/O. The event loop owns partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from radiator import limits
from radiator.clock import MonoNs, Now, WallNs
from radiator.config import Settings
from radiator.errors import StorageError
from radiator.storage.batch import RecordBatch, Run
from radiator.storage.dedup import Dedup
from radiator.storage.files import FileSystem
from radiator.storage.header import MISSING, TIME_MAX
from radiator.storage.jobs import Job
from radiator.storage.last_messages import LastJob, Wanted
from radiator.storage.reads import PositionJob, ReadJob, time_in_memory
from radiator.storage.segment import SegmentInfo
from radiator.storage.tail import Tail
from radiator.storage.turn import Place, Turn
from radiator.timers import NEVER_NS, Timers

RECORDS_MAX = limits.BATCH_RECORDS_MAX
BYTES_MAX = limits.BATCH_BYTES_MAX
NAMES_MAX = limits.BATCH_NAMES_MAX


ONE_DESTINATION = [(0,) * count for count in range(64)]  # ``destination_ids`` of small batches that have one


class BatchBuilder:
    """The open batch of a partition: columns that appends fill. The partition decides when it is full.

    Columns are lists, because appending to a list is the cheapest operation. Columns without information do not exist:
    times that no record has, and destination numbers while there is one destination. ``waiters`` are released when the
    batch is stored as promised, and receipts wait for its ``turn``.
    """

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
        self.plain = True  # none of these three exists
        self.ids: dict[str, int] = {}
        self.blocks: list[bytes] = []
        self.bodies: list[bytes] = []
        self.names_bytes = 0
        self.size_bytes = 0  # of blocks, bodies and names
        self.waiters: list[Any] = [] if waiters is None else waiters
        self.atomic = False  # holds a part of a transaction over several files
        self.sync_requested = False  # a record requires an fsync, whatever the rule is

    def __len__(self) -> int:
        return len(self.blocks)

    def request_sync(self) -> None:
        """Have the batch synced, whatever the rule says."""
        self.sync_requested = True

    def make_atomic(self) -> None:
        """Note that the batch has a part of a transaction over several logs."""
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
        """Add to the optional columns what ``count`` records have in common. Their blocks are added after this.

        Args:
            number: The number of their destination.
            event_ns: Their event time, which must fit an i64, or None.
            transmit_ns: Their transmit time, which must fit an i64, or None.
            count: How many records there are.
        """
        if self.destination_ids is not None:
            self.destination_ids += [number] * count
        self.event_ns = self._column(self.event_ns, event_ns, count)
        self.transmit_ns = self._column(self.transmit_ns, transmit_ns, count)

    def extend_columns(self, run: Run) -> None:
        """Add the optional columns of a run. Its blocks are added after this.

        Args:
            run: The records; the batch has numbers of their destinations already.
        """
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

    def finish(self) -> RecordBatch:
        """Return the finished batch. It takes over the lists, so the builder must not be used again."""
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


IDLE = BatchBuilder(-1, waiters=())  # in open_batch while nothing is open: receipts must not wait here


class Agenda:
    """The partitions of a store that need take() or tick(). The event loop owns it.

    Each partition has one deadline on each clock: the earliest that it has asked for since the last one was met.
    """

    def __init__(self) -> None:
        self.postponed_partitions: dict[Partition, None] = {}  # partitions with postponed batches
        self.failed: dict[Partition, None] = {}  # partitions that refuse messages
        # Partitions where more can be removed than at the last sweep.
        self.sweep_candidates: dict[Partition, None] = {}
        self.dirty: list[Partition] = []
        self.end_offsets: dict[EndOffsets, None] = {}  # to which the ends of logs are reported
        self.removals: list[Job] = []  # which come after everything else of a turn, and after its syncs
        self.turn_synced = Turn()
        self.turn_unsynced = Turn()  # batches without a sync by their rules: receipts are sent before it
        self._mono: Timers[MonoNs, Partition] = Timers()
        self._wall: Timers[WallNs, Partition] = Timers()

    def begin_turn(self) -> None:
        """Begin the next turn: batches that begin from now on are written later than those before."""
        if self.turn_synced.begun:
            self.turn_synced = Turn()
        if self.turn_unsynced.begun:
            self.turn_unsynced = Turn()

    def take_sweep_candidates(self) -> dict[Partition, None]:
        """Return the partitions to sweep, once."""
        moved, self.sweep_candidates = self.sweep_candidates, {}
        return moved

    def wake(self, partition: Partition, deadline_ns: MonoNs) -> None:
        """Have tick() called at ``deadline_ns`` at the latest."""
        self._mono.at(deadline_ns, partition)

    def wake_at_wall(self, partition: Partition, deadline_ns: WallNs) -> None:
        """Have tick() called when the wall clock shows ``deadline_ns``, at the latest."""
        self._wall.at(deadline_ns, partition)

    def due(self, now: Now) -> list[Partition]:
        """Return the partitions whose deadline is met. A partition must ask again for its next deadline."""
        return list(dict.fromkeys([*self._mono.due(now.mono), *self._wall.due(now.wall)]))

    def next_ns(self, now: Now) -> MonoNs:
        """Return when the next deadline is met, if no clock steps; NEVER_NS: nothing is planned."""
        wall_ns, next_ns = self._wall.next_ns, self._mono.next_ns
        return next_ns if wall_ns == NEVER_NS else min(next_ns, MonoNs(wall_ns - now.wall + now.mono))

    def forget(self, partition: Partition) -> None:
        """Drop a partition."""
        self._mono.forget(partition)
        self._wall.forget(partition)
        self.failed.pop(partition, None)
        self.sweep_candidates.pop(partition, None)


class Partition(ABC):
    """Offsets, the open batch and the tail, however records are stored. The event loop owns it."""

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
        self.whole = True  # ``destinations`` is complete
        self.failed: StorageError | None = None
        self.history = False
        self.retain_from: int | None = None
        self.pins = 1  # how many cursors that is the lowest offset of: to ask them all takes so much longer
        self.on_forced: Callable[[int], None] | None = (
            None  # called with the start of the log if retention passed a cursor
        )
        self.settled_in: Callable[[int, int], list[tuple[int, int]]] | None = (
            None  # intervals that all cursors have settled
        )
        self.open_batch: BatchBuilder = IDLE
        self.begun = False  # there is, or will be, a file, whether or not anything is appended
        self.queued = False  # is in the agenda: take() must visit it
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
        """Add a record to the open batch. This is the hot path.

        Args:
            destination: Its destination.
            block: Its header block.
            body: Its body.
            receive_ns: When it was received.
            event_ns: Its event time, or None.
            transmit_ns: Its transmit time, or None.

        Returns:
            Its offset.

        Raises:
            StorageError: The partition has failed.
            ValueError: A time does not fit 64 bits.
        """
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
            destination: The destination of all, which the open batch has a record of.
            block: The header block of all.
            bodies: A body for each record.
            bodies_bytes: The length of the bodies together.
            receive_ns: When they came.
            event_ns: Their event time; that of a record which ``append`` has taken.
            transmit_ns: Their transmit time; of such a record too.

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
        """Add the records of a run, as ``append`` does for each.

        Args:
            run: The records.
            receive_ns: When they were received.

        Returns:
            The first offset.

        Raises:
            StorageError: The partition has failed.
        """
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
        """Make sure that the next records go into one batch, which is all or nothing on disk.

        Args:
            records: How many there will be.
            size_bytes: The length of their blocks and bodies.
        """
        builder = self.open_batch
        if builder is not IDLE and (
            builder.size_bytes + size_bytes + records * limits.DESTINATION_BYTES_MAX > BYTES_MAX  # each a new name
            or len(builder.blocks) + records > RECORDS_MAX
            or len(builder.ids) + records > NAMES_MAX
        ):
            self._closed.append(builder)
            self.open_batch = IDLE  # none is begun yet: an empty one must not be left if nothing follows

    def check(self) -> None:
        """Raise StorageError if appends are refused now."""
        if self.failed is not None:
            raise StorageError(str(self.failed))

    def _begin(self) -> BatchBuilder:
        """Begin a new open batch; the one before it, if any, is full."""
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
        """Have take() called."""
        if not self.queued:
            self.queued = True
            self._dirty.append(self)

    def fail(self, error: StorageError, now_ns: MonoNs) -> None:
        """Refuse appends until the disk was tried again: for room, or for another file.

        Queued batches come back from take() as jobs, which fail as well.
        """
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
        """Return the offset of the message with this id, if one came within the window."""
        dedup = self.dedup
        return None if dedup is None else dedup.find(identity, max(now_ns, self.last_receive_ns))

    def wait_point(self, offset: int, synced: bool) -> Place | None:
        """Return where a receipt for a repeated message waits, or None if it need not wait.

        Args:
            offset: The offset of the first message (``find_duplicate``).
            synced: Whether the message must be synced, even if the rule says less.

        Returns:
            A place that ends when the message is written, or synced if the rule or ``synced`` demands that, or when it
            is known that it cannot be.
        """
        if offset < self.high_watermark or self.dedup is None:
            return None
        batch_in_flight = self.dedup.in_flight_at(offset)
        return None if batch_in_flight is None else batch_in_flight.place

    def new_dedup(self) -> Dedup:
        """Return an empty store of message ids with the rule's limits."""
        settings, salt = self.settings, int.from_bytes(self.fs.entropy(8), "little") | 1
        return Dedup(settings.dedup_window_ns or 0, settings.dedup_count, salt)

    def remember(self, identity: bytes, offset: int) -> None:
        """Remember the id of the message just appended, at ``offset``."""
        dedup = self._remembering()
        dedup.add(identity, offset, self.last_receive_ns)
        dedup.appended(self.open_batch.base_offset, self.open_batch, self.high_watermark)

    def _remembering(self) -> Dedup:
        if self.dedup is None:
            self.dedup = self.new_dedup()
        return self.dedup

    @property
    def untaken(self) -> int:
        """How many messages were appended and not taken."""
        return sum(len(each.blocks) for each in (*self._closed, self.open_batch))

    @property
    def rollback_to(self) -> int:
        """The offset from which on offsets are taken back if a write fails."""
        return self.high_watermark

    @property
    def untouched(self) -> bool:
        """Whether nothing was ever appended, by any run, and this run has begun no file."""
        return not (self.next_offset or self.last_receive_ns or self.queued or self.begun)

    @property
    def size_bytes(self) -> int:
        """The bytes of the committed records."""
        return sum(segment.size_bytes for segment in self.segments)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> RecordBatch | None:
        """Return the batch in memory that contains ``offset``, or None."""
        return self.tail.find(offset)

    def newest_first(self) -> list[RecordBatch]:
        """Return the batches in memory that have no older ones behind them in a file."""
        return self.tail.newest_first()

    @property
    def written_to(self) -> int:
        """The offset up to which records are looked for in files, if they are not in memory."""
        return self.high_watermark

    def offset_for_time(self, receive_ns: WallNs) -> PositionJob:
        """Find the first record with a receive time of ``receive_ns`` or later; the high watermark if none."""
        job = PositionJob(self, receive_ns=receive_ns)
        time_in_memory(job, self)
        return job

    def offset_of_last(self, count: int) -> PositionJob | LastJob:
        """Find where the last ``count`` records begin, whatever their destinations."""
        first, end, dense = self.log_start_offset, self.high_watermark, self.dense_from
        if dense <= first or end - count >= dense:
            return PositionJob(self, offset=max(first, end - count))
        return LastJob([Wanted(self, end, dict.fromkeys(self.destinations, ""))], count)

    @property
    def dense_from(self) -> int:
        """The offset from which on no record was removed: there are as many records as offsets."""
        sparse = [place for place, segment in enumerate(self.segments, 1) if segment.sparse]
        if not sparse:
            return self.log_start_offset
        dense = self.segments[sparse[-1] :]
        return dense[0].base_offset if dense else self.high_watermark

    def forget_readers(self) -> None:
        """Drop the callbacks of readers, of which there are none any more."""
        self.on_forced = self.settled_in = None

    def drop_before(self, offset: int) -> None:
        """Move the start of the log to ``offset``."""
        self.log_start_offset = max(self.log_start_offset, offset)
        self.tail.drop_below(offset)

    @abstractmethod
    def configure(self, settings: Settings) -> None:
        """Set the settings of the rule."""

    @abstractmethod
    def want_retention(self) -> None:
        """Check retention with the next take()."""

    def sweep(self) -> None:
        """Check retention now and then: cursors move without a notification."""
        if len(self.segments) > 1:
            self.want_retention()

    makes_files = False  # whether the next take() brings a job that begins a file

    @abstractmethod
    def take(self, now: Now, may_roll: bool = True) -> list[Job]:
        """Return everything that is to be written, as jobs."""

    @abstractmethod
    def tick(self, now: Now) -> None:
        """Note what is due."""

    @abstractmethod
    def fetch(self, offset: int, bytes_max: int = limits.READ_CHUNK_BYTES) -> ReadJob:
        """Return a job that reads from ``offset`` on."""

    def journaled(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the batches between two offsets that the journal has: none without files."""
        return iter(())

    @abstractmethod
    def fetched(self, job: ReadJob) -> None:
        """Take back a cold read."""


class EndOffsets:
    """Where each log of a store ended at one moment, found without a visit to each log. It is valid until ``close``.

    Only logs that had an open batch at the moment, or begin one later, are remembered: all others end where they ended
    then. So the cost is that of what is appended meanwhile, however many logs there are. Records appended before the
    moment are below ``end_of``; records appended later are not.

    Args:
        kept: The instances of a store; each batch that begins is reported to all of them.
        active: The partitions that may have an open batch now.
    """

    __slots__ = ("_ends", "_kept")

    def __init__(self, kept: dict[EndOffsets, None], active: Iterable[Partition]) -> None:
        self._kept = kept
        self._ends = {partition: partition.next_offset for partition in active}
        kept[self] = None

    def begins(self, partition: Partition) -> None:
        """Note that a batch begins at ``partition.next_offset``."""
        self._ends.setdefault(partition, partition.next_offset)

    def end_of(self, partition: Partition) -> int:
        """Return the next offset of a log at the moment; less if a write has failed since."""
        return min(self._ends.get(partition, partition.next_offset), partition.next_offset)

    def close(self) -> None:
        """Stop following the logs."""
        self._kept.pop(self, None)
        self._ends.clear()
