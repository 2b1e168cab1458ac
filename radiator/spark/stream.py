"""Read the log as a stream: ``spark.readStream.format("radiator")``, micro-batches between two sets of offsets.

One process beside the driver has a ``StreamReader`` for as long as the query runs. It returns the end of the log, and
the tasks of a batch, which are cut by offsets alone. The processes of the tasks have copies of it that only read a
``Split``. Each trigger reads one ``head`` file per partition, and opens no file of a partition without new records. If
a ``head`` gave the byte position of an offset, the next batch starts there without the index.

Uses pyspark's stream classes. ``stream_offsets`` defines a batch, ``stream_losses`` reports losses, and
``radiator.columns`` reads the files.
Source: PySpark, "Python Data Source API", DataSourceStreamReader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn, SupportsIndex

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from radiator.columns.cutting import Piece, cut
from radiator.columns.files import Place, open_store, shown, together
from radiator.columns.heads import End, Holdings, absent, ends, stored, stretch
from radiator.columns.near import instead
from radiator.columns.options import EARLIEST, LATEST, ReadOptions
from radiator.columns.planning import gone, plan_pieces
from radiator.columns.scan import SegmentRange
from radiator.columns.times import offset_at
from radiator.errors import ConfigError, StorageError
from radiator.spark.archived import archived_ends
from radiator.spark.options import Use, parse
from radiator.spark.shipped_import import with_package
from radiator.spark.split import Split
from radiator.spark.stream_losses import Losses
from radiator.spark.stream_offsets import Offsets, Progress, between, first, following, progress_of
from radiator.spark.struct_columns import table_of
from radiator.spark.unknown import warn_unknown
from radiator.storage import layout
from radiator.storage.reader import StoredPartition


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream. If an option or a column is wrong, its methods raise the ConfigError.

    Spark 4.3 hides an error that is raised while it creates a reader behind an UnboundLocalError of its own.

    Args:
        given: The options as Spark passes them.
        schema: The columns to read.
    """
    try:
        return StreamReader(parse(given, Use.STREAM), schema)
    except ConfigError as error:
        return _Refused(str(error))


class _Refused(DataSourceStreamReader):  # type: ignore[misc]
    """A reader whose first call fails."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return with_package(super().__reduce_ex__(protocol))

    def _fail(self, *given: Any) -> NoReturn:
        raise ConfigError(self._text)

    initialOffset = latestOffset = partitions = read = _fail


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is untyped here
    """The reader of a stream.

    Args:
        options: The options of the read.
        schema: The columns to read.

    Raises:
        ConfigError: A column is unknown or has another type.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._table = table_of(options, schema)
        self._losses = Losses(options)
        self._ends: dict[str, End] = {}  # as of the last trigger
        self._spots: dict[tuple[str, int], tuple[int, int]] = {}
        self._first: Offsets | None = None
        self._warned = False  # about names that do not exist yet
        self._target: dict[str, int] | None = None  # the end of a query with the trigger availableNow

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return with_package(super().__reduce_ex__(protocol))

    @cached_property
    def _place(self) -> Place:  # opened at first use, because a copy of this reader is sent to every task
        return open_store(self._options.path, self._options.storage)

    @cached_property
    def _holdings(self) -> Holdings:
        return Holdings(self._place.fs)

    def initialOffset(self) -> Offsets:
        """Return the offsets at which the query starts.

        Raises:
            NoStore: There is no store at the path.
            StorageError: The store cannot be read, or does not have a partition that the options name.
        """
        if self._first is None:  # Spark asks more than once
            self._first = first(self._begins(self._look()))
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the option ``max_offsets_per_trigger``."""
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query to the end of the log as of now.

        Raises:
            StorageError: The store cannot be read.
        """
        self._target = {name: end.next_offset for name, end in self._look().items()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the offsets at which the next batch ends.

        Args:
            start: The offsets at which the batch starts.
            limit: The limit of offsets in the batch.

        Raises:
            LostRecords: A partition of the query does not exist any more, and ``failOnDataLoss`` is set.
            StorageError: The log ends before the checkpoint, or the store cannot be read.
        """
        found, known = self._look(), progress_of(start)
        for name, progress in known.items():
            if name in found:
                self._losses.past_the_end(name, progress.next, found[name].next_offset)
        self._remember(known)
        reach = {name: end.next_offset for name, end in found.items() if self._moves(name, end, known.get(name))}
        if self._target is not None:
            reach = {name: min(offset, self._target.get(name, 0)) for name, offset in reach.items()}
        added = {name: self._start(name, found[name]) for name in reach if name not in known}
        idle = {name for name in reach if not self._may_hold(name, found[name])}
        left = self._left(known, found)
        lost = self._losses.vanished(start, {*found, *left})
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return following(start, {**reach, **left}, added, most, idle, lost)

    def reportLatestOffset(self) -> Offsets | None:
        """Return the end of the log as of the last trigger, for Spark's progress report."""
        return {name: end.next_offset for name, end in self._ends.items() if self._wants(name, end)} or None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Plan a batch and return one Split per task.

        Args:
            start: The offsets at which the batch starts.
            end: The offsets at which the batch ends.

        Raises:
            LostRecords: Records of the batch were removed, and ``failOnDataLoss`` is set.
            StorageError: The log ends before the checkpoint, or the store cannot be read.
        """
        wanted = between(start, end)
        if any(name not in self._ends or self._ends[name].next_offset < high for name, (_, high) in wanted.items()):
            self._look()  # after a restart: the previous run planned this batch
        fs = self._place.fs
        missing: dict[str, list[tuple[str, int, int]]] = {}
        for name, (low, high) in wanted.items():
            if name in self._ends:
                self._losses.past_the_end(name, high, self._ends[name].next_offset)
            elif self._options.archive is not None:
                missing[name] = [(layout.partition_path(self._place.root, name), low, high)]
            else:
                self._losses.gone(name, low, high)
        there = [name for name in wanted if name in self._ends]
        logs = together(fs, lambda name: stretch(fs, name, self._ends[name], *wanted[name]), there)
        for log in logs:  # also of those without a matching name: the names are of the records that are left
            for low, high in absent(log, *wanted[log.name]):
                if self._options.archive is not None:
                    missing.setdefault(log.name, []).append((log.directory, low, high))
                else:
                    self._losses.retained(log.name, low, high)
        matching = {log.name: log for log in logs if self._may_hold(log.name, self._ends[log.name])}
        return self._splits(cut(wanted, self._options.tasks_min, self._options.split_bytes), matching, missing)

    def _splits(
        self,
        tasks: list[tuple[Piece, ...]],
        matching: dict[str, StoredPartition],
        missing: dict[str, list[tuple[str, int, int]]],
    ) -> list[Split]:
        """Return one Split per task, in order, because the task number is part of the ids of what the task writes.

        A task without anything to read has a Split too, unless it is the last one.
        """
        selections = [
            replace(
                self._options.selection,
                starts={piece.partition: piece.low for piece in pieces},
                ends={piece.partition: piece.high for piece in pieces},
            )
            for pieces in tasks
        ]
        ranges: list[list[SegmentRange]] = [[] for _ in tasks]
        numbered = [(number, piece) for number, pieces in enumerate(tasks) for piece in pieces]
        for number, (name, low, high) in numbered:
            for directory, *pair in missing.get(name, ()):
                lost = max(low, pair[0]), min(high, pair[1])
                if lost[0] < lost[1]:
                    ranges[number].append(gone(name, directory, *lost))
        looked = [(number, matching[piece.partition]) for number, piece in numbered if piece.partition in matching]
        found = plan_pieces(
            self._place.fs, [(log, selections[number].of({log.name})) for number, log in looked], self._spots
        )
        for (number, _), each in zip(looked, found, strict=True):
            ranges[number] += each
        while ranges and not ranges[-1]:
            ranges.pop()
        ordered = (sorted(each, key=lambda piece: (piece.partition, piece.first_offset)) for each in ranges)
        return [Split(tuple(each), selection) for each, selection in zip(ordered, selections, strict=False)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Args:
            partition: A Split of ``partitions``.

        Raises:
            LostRecords: Records cannot be read, and ``failOnDataLoss`` is set.
            StorageError: A segment cannot be read.
        """
        assert isinstance(partition, Split)
        return partition.read(self._options, self._table)

    def _look(self) -> dict[str, End]:
        self._ends = ends(self._place)
        if not self._warned:
            self._warned = True
            warn_unknown(self._options, self._ends)
        return self._ends

    def _start(self, name: str, end: End) -> int:
        return stretch(self._place.fs, name, end, 0, 0).log_start_offset

    def _moves(self, name: str, end: End, progress: Progress | None) -> bool:
        """Return True if the partition is in the offsets of the next batch.

        That is so if it may have matching records. A partition of the checkpoint that had several destinations moves
        without them too, and any partition of the checkpoint if records that were to be read are removed, so that their
        destinations are not known any more.
        """
        if self._wants(name, end):
            return True
        if progress is None or not self._options.selection.wants_partition(name):
            return False
        return not self._holdings.only_itself(end) or progress.next < self._start(name, end)

    def _left(self, known: dict[str, Progress], found: Collection[str]) -> dict[str, int]:
        """Return the ends to which removed partitions can be read from the archive.

        Partitions without new records there are not included.
        """
        missing = {name: progress.next for name, progress in known.items() if name not in found}
        reach = archived_ends(self._options) if missing else {}
        wants = self._options.selection.wants_partition
        return {name: reach[name] for name, offset in missing.items() if wants(name) and reach.get(name, 0) > offset}

    def _remember(self, known: dict[str, Progress]) -> None:
        """Store the positions at which the next batch may start and end, as the head files gave them."""
        spots = {(name, progress.next): self._spots.get((name, progress.next)) for name, progress in known.items()}
        self._spots = {key: spot for key, spot in spots.items() if spot is not None}
        for name, end in self._ends.items():
            self._spots[name, end.next_offset] = (end.segment_base, end.position)

    def _wants(self, name: str, end: End) -> bool:
        """Return True if the partition is in the offsets of the stream.

        A partition gets in with its first matching record. All of its matching records come after the ends that the
        stream has seen before, so it starts at its first offset, like a new partition.
        """
        return self._options.selection.wants_partition(name) and self._may_hold(name, end)

    def _may_hold(self, name: str, end: End) -> bool:
        selection = self._options.selection
        return not selection.destinations or self._holdings.may_hold(name, end, selection.wants_destination)

    def _begins(self, found: dict[str, End]) -> dict[str, int]:
        """Return the start of each partition: the later one of ``startingOffsets`` and ``startingTimestamp``."""
        asked = self._options.begins
        for name in (*asked.offsets, *asked.times_ns):
            if name not in found:
                option = "startingOffsets" if name in asked.offsets else "startingOffsetsByTimestamp"
                raise StorageError(
                    f"option {option}: {shown(self._options.path)} has no partition {name!r}; {instead(name, found)}"
                )
        begins = {}
        for name, end in found.items():
            if not self._wants(name, end):
                continue
            time_ns = asked.times_ns.get(name, asked.time_ns)
            usual = LATEST if time_ns is None and not asked.times_ns else EARLIEST
            offset = asked.offsets.get(name, usual if asked.offset is None else asked.offset)
            if offset == LATEST:
                offset = end.next_offset
            elif offset == EARLIEST:
                offset = self._start(name, end)
            else:
                self._losses.past_the_end(name, offset, end.next_offset, "option startingOffsets")
            if time_ns is not None:  # of the log as it is now: it may have grown meanwhile
                offset = max(offset, offset_at(self._place.fs, stored(self._place.fs, name, end), time_ns))
            begins[name] = offset
        return begins
