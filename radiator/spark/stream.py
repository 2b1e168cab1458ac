"""``spark.readStream.format("radiator")``: micro-batches between two sets of offsets.

One process beside the driver holds a ``StreamReader`` for as long as the query runs: it is asked where the log ends and
what to read for a batch; the tasks' processes have copies of it that only read what a ``Split`` says. For every trigger
it reads one ``head`` a partition, and opens nothing of a partition in which nothing is new. Where a head said at which
byte an offset stands, the next batch begins there without a look at the index.

Knows: pyspark's classes of a stream. What a batch is stands in ``stream_offsets``, what is lost in ``stream_losses``,
the files in ``radiator.columns``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, SupportsIndex

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from radiator.columns.decode import Counters
from radiator.columns.files import Place, open_store
from radiator.columns.heads import End, Holdings, ends, stored, stretch
from radiator.columns.moments import offset_at
from radiator.columns.near import instead
from radiator.columns.options import EARLIEST, LATEST, ReadOptions
from radiator.columns.planning import plan_logs, removed
from radiator.columns.read import read
from radiator.errors import StorageError
from radiator.spark.archived import archived
from radiator.spark.bringing import bring
from radiator.spark.schema import arrow_schema, checked
from radiator.spark.split import Split
from radiator.spark.stream_losses import Losses
from radiator.spark.stream_offsets import Mark, Offsets, between, first, following, marks
from radiator.spark.unknown import tell_unknown
from radiator.spark.worker import settle


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is untyped here
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked(schema)
        self._losses = Losses(options)
        self._ends: dict[str, End] = {}  # as of the last look
        self._spots: dict[tuple[str, int], tuple[int, int]] = {}
        self._first: Offsets | None = None
        self._target: dict[str, int] | None = None  # of a trigger that ends

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return bring(super().__reduce_ex__(protocol))

    @cached_property
    def _place(self) -> Place:  # not before it is needed: a copy of this reader goes to every task
        return open_store(self._options.path, self._options.storage)

    @cached_property
    def _holdings(self) -> Holdings:
        return Holdings(self._place.fs)

    def initialOffset(self) -> Offsets:
        if self._first is None:  # Spark asks more than once
            tell_unknown(self._options, self._look())
            self._first = first(self._begins(self._ends))
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {name: end.next_offset for name, end in self._look().items()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        found = self._look()
        start = self._losses.vanished(start, found)
        known = marks(start)
        for name, mark in known.items():
            if name in found:
                self._losses.past_the_end(name, mark.next, found[name].next_offset)
        self._remember(known)
        reach = {name: end.next_offset for name, end in found.items() if self._wants(name, end)}
        if self._target is not None:
            reach = {name: min(offset, self._target.get(name, 0)) for name, offset in reach.items()}
        born = {
            name: stretch(self._place.fs, name, found[name], 0, 0).log_start_offset
            for name in reach
            if name not in known
        }
        idle = {name for name in reach if not self._may_hold(name, found[name])}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return following(start, reach, born, most, idle)

    def reportLatestOffset(self) -> Offsets | None:
        return {name: end.next_offset for name, end in self._ends.items() if self._wants(name, end)} or None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        wanted = between(start, end)
        if any(name not in self._ends or self._ends[name].next_offset < high for name, (_, high) in wanted.items()):
            self._look()  # after a restart: this batch was planned by the run before
        logs, starts, bounds = [], {}, {}
        for name, (low, high) in wanted.items():
            found = self._ends.get(name)
            if found is None:
                self._losses.gone(name, low, high)
                continue
            self._losses.past_the_end(name, high, found.next_offset)
            if not self._may_hold(name, found):
                continue
            log = stretch(self._place.fs, name, found, low, high)
            left = min(high, log.log_start_offset)
            starts[name] = low if self._options.archive else self._losses.retained(name, low, left)
            bounds[name] = high
            logs.append(log)
        selection = replace(self._options.selection, starts=starts, ends=bounds)
        options = replace(self._options, selection=selection)
        gone = [(piece,) for log in logs for piece in removed(log, options)]
        tasks = [*gone, *plan_logs(self._place.fs, logs, options, self._spots)]
        return [Split(ranges, selection.of({piece.partition for piece in ranges})) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Split)
        settle()
        options = replace(self._options, selection=partition.selection)
        schema = arrow_schema(self._schema)
        return read(partition.ranges, options, schema, Counters(), archived(options, schema))

    def _look(self) -> dict[str, End]:
        self._ends = ends(self._place)
        return self._ends

    def _remember(self, known: dict[str, Mark]) -> None:
        """Where the next batch begins and where it may end: what heads said, and no more than that."""
        kept = {(name, mark.next): self._spots.get((name, mark.next)) for name, mark in known.items()}
        self._spots = {key: spot for key, spot in kept.items() if spot is not None}
        for name, end in self._ends.items():
            self._spots[name, end.next_offset] = (end.segment_base, end.position)

    def _wants(self, name: str, end: End) -> bool:
        selection = self._options.selection
        if not selection.wants_partition(name):
            return False
        return not self._holdings.only_itself(end) or selection.wants_destination(name)

    def _may_hold(self, name: str, end: End) -> bool:
        selection = self._options.selection
        return not selection.destinations or self._holdings.may_hold(name, end, selection.wants_destination)

    def _begins(self, found: dict[str, End]) -> dict[str, int]:
        """By ``startingOffsets`` and ``startingTimestamp``: of both, what comes later."""
        asked = self._options.begins
        for name in (*asked.offsets, *asked.times_ns):
            if name not in found:
                raise StorageError(
                    f"option startingOffsets: {self._options.path} has no partition {name!r}; {instead(name, found)}"
                )
        begins = {}
        for name, end in found.items():
            if not self._wants(name, end):
                continue
            time_ns = asked.times_ns.get(name, asked.time_ns)
            usual = LATEST if time_ns is None else EARLIEST
            offset = asked.offsets.get(name, usual if asked.offset is None else asked.offset)
            if offset == LATEST:
                offset = end.next_offset
            elif offset == EARLIEST:
                offset = stretch(self._place.fs, name, end, 0, 0).log_start_offset
            if time_ns is not None:
                offset = max(offset, offset_at(self._place.fs, stored(self._place.fs, name, end), time_ns))
            self._losses.past_the_end(name, offset, end.next_offset, "option startingOffsets")
            begins[name] = offset
        return begins
