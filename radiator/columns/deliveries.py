"""Read the deliveries of a log as a table: who received which message, when, and how it ended.

A rule with ``record: deliveries`` appends a record for every delivery that has ended, and for every message that was
settled without one (``delivery_records``). ``COLUMNS`` is the table that readers see. A header that is missing, or is
not what the column needs, is null, because clients may send to the destination too.

``read_deliveries`` is the reader for Python. ``Settled`` has the offsets that a subscription has acknowledged, which is
what ``as_of_cursor`` of the Spark source reads.

Uses the reader of records. Must not import pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from radiator.columns import schema as records
from radiator.columns.batches import Ints, Mask
from radiator.columns.decode import Counters
from radiator.columns.delivery_records import ACKED, DESTINATION, HEADERS, INT, LONG
from radiator.columns.files import open_store
from radiator.columns.heads import Holdings, ends
from radiator.columns.near import did_you_mean
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan, plan_until
from radiator.columns.read import Instead, read
from radiator.columns.scan import SegmentRange
from radiator.columns.schema import Column
from radiator.columns.selection import DeliveryFilter, NameCondition, Selection
from radiator.columns.warn import warn

_TIME = pa.timestamp("us", tz="UTC")
COLUMNS: tuple[Column, ...] = (
    Column("destination", pa.string(), True, "the destination of the message"),
    Column("partition", pa.string(), True, "the log that has the message"),
    Column("offset", pa.int64(), True, "the number of the message in that log"),
    Column("subscription", pa.string(), True, "the name of the queue, the durable subscription or the group"),
    Column("consumer", pa.string(), True, "client-id or session id, a slash, and the subscription id; null if none"),
    Column("delivery", pa.int32(), True, "1 for the first delivery of the message; 0 if it was never delivered"),
    Column("delivered_at", _TIME, True, "when it was sent to the consumer; null if it was never delivered"),
    Column("outcome", pa.string(), True, "how the delivery ended"),
    Column("settled_at", _TIME, True, "when the delivery ended"),
    Column("transaction", pa.string(), True, "the transaction of the acknowledgement; null outside of one"),
    Column("record_offset", pa.int64(), False, "the number of this row in the log of deliveries"),
)
BY_NAME = {column.name: column for column in COLUMNS}
RAW: Final = ("headers", "offset")  # the columns of a record that these are made of
TEXTS: Final = frozenset(name for name, column in BY_NAME.items() if column.type == pa.string())
_PENDING_MAX = 1 << 20  # offsets, before they are joined to runs


def arrow_schema(names: Iterable[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of the given columns, in their order.

    Args:
        names: Names of columns; None returns all columns.

    Raises:
        KeyError: A column does not exist.

    Example:
        >>> arrow_schema(["outcome", "record_offset"]).names
        ['outcome', 'record_offset']
    """
    chosen = BY_NAME if names is None else names
    return pa.schema([pa.field(name, BY_NAME[name].type, BY_NAME[name].nullable) for name in chosen])


def as_deliveries(batch: pa.RecordBatch, schema: pa.Schema, only: DeliveryFilter | None = None) -> pa.RecordBatch:
    """Return records of the deliveries log as rows of the table.

    Args:
        batch: Records with the columns ``RAW``.
        schema: The columns to return, as ``arrow_schema`` returns them.
        only: The rows to return; None returns all.
    """
    headers = _Headers(batch.column("headers"))
    if only is not None and only.conditions:
        mask = np.ones(batch.num_rows, np.bool_)
        for name, condition in only.conditions:
            mask &= _matching(headers.values(HEADERS[name]), condition)
        if not mask.all():
            batch = batch.filter(pa.array(mask))
            headers = _Headers(batch.column("headers"))
    made = [
        batch.column("offset")
        if each.name == "record_offset"
        else _typed(headers.values(HEADERS[each.name]), each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(made, schema=schema)


class _Headers:
    """The headers of records, to look up several of them: ``pc.map_lookup`` takes five times as long."""

    def __init__(self, maps: pa.MapArray) -> None:
        ends = maps.offsets.to_numpy()
        self._count, part = len(maps), slice(int(ends[0]), int(ends[-1]))
        coded = maps.keys[part].dictionary_encode()
        self._items = maps.items[part]
        self._codes = coded.indices.to_numpy()
        self._code_of = {name: code for code, name in enumerate(coded.dictionary.to_pylist())}
        self._rows = np.repeat(np.arange(self._count), np.diff(ends))

    def values(self, name: str) -> pa.Array:
        """Return the first value of a header in each record, or null."""
        code = self._code_of.get(name)
        if code is None:
            return pa.nulls(self._count, pa.string())
        at = np.flatnonzero(self._codes == code)
        rows = self._rows[at]
        if len(at) == self._count and (rows[1:] > rows[:-1]).all():
            return self._items.take(pa.array(at))
        found = np.full(self._count, -1, np.int64)
        found[rows[::-1]] = at[::-1]  # the first one of a record is assigned last
        return self._items.take(pa.array(found, mask=found < 0))


def _matching(values: pa.Array, condition: NameCondition) -> Mask:
    coded = values.dictionary_encode()
    found = [*map(condition.matches, coded.dictionary.to_pylist()), False]  # the last is for null
    mask: Mask = np.array(found, np.bool_)[coded.indices.fill_null(len(found) - 1).to_numpy(zero_copy_only=False)]
    return mask


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == pa.string():
        return values
    if pa.types.is_timestamp(kind):
        return pc.divide(_whole(values, pa.int64()), 1000).view(kind)
    return _whole(values, kind)


def _whole(values: pa.Array, kind: pa.DataType) -> pa.Array:
    valid = pc.match_substring_regex(values, INT if kind == pa.int32() else LONG)
    if not pc.all(valid, min_count=0).as_py():
        values = pc.if_else(valid, values, pa.scalar(None, pa.string()))
    return values.cast(kind)


def read_deliveries(
    path: str,
    columns: Iterable[str] | None = None,
    *,
    subscription: str | None = None,
    outcome: str | None = None,
    storage: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the deliveries that a store has recorded, as of now.

    Args:
        path: The path or the URI of the store.
        columns: The columns to return; None returns all.
        subscription: Only the deliveries of this queue, durable subscription or group.
        outcome: Only the deliveries with this outcome.
        storage: The arguments of the file system of a URI.
        fail_on_data_loss: Raise if records cannot be read; else leave them out and warn.

    Raises:
        NoStore: There is no store at ``path``.
        KeyError: A column does not exist.
        LostRecords: Records cannot be read, and ``fail_on_data_loss`` is set.
        StorageError: The store cannot be read.

    Example:
        With a store in ``data``::

            table = pa.Table.from_batches(read_deliveries("data", outcome="acked"), arrow_schema())
    """
    schema, only = arrow_schema(columns), DeliveryFilter()
    for name, value in (("subscription", subscription), ("outcome", outcome)):
        if value is not None:
            only = only.where(name, "in", value)
    options = ReadOptions(path, of_deliveries(Selection()), fail_on_data_loss, storage=storage or {})
    for ranges in plan(options):
        for batch in read(ranges, options, records.arrow_schema(RAW), Counters()):
            yield as_deliveries(batch, schema, only)


def of_deliveries(selection: Selection) -> Selection:
    """Return the selection limited to the records of deliveries.

    Args:
        selection: The selection of offsets and times.
    """
    return selection.destination("in", DESTINATION)


# --- the messages that a subscription has acknowledged ----------------------------------------------------------------


@dataclass(frozen=True)
class Settled:
    """The offsets that a subscription has acknowledged, as runs of consecutive ones.

    Attributes:
        runs: By partition of the messages: the first offset of each run, and the offset after its last one. Both
            arrays increase.
        ends: The end of each log of deliveries, as it was read.
    """

    runs: Mapping[str, tuple[Ints, Ints]] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)

    def within(self, ranges: Iterable[SegmentRange]) -> Settled:
        """Return the part that some ranges may need.

        Args:
            ranges: The ranges of one task.
        """
        found: dict[str, tuple[Ints, Ints]] = {}
        spans: dict[str, tuple[int, int]] = {}
        for each in ranges:
            low, high = spans.get(each.partition, (each.first_offset, each.next_offset))
            spans[each.partition] = min(low, each.first_offset), max(high, each.next_offset)
        for name, (low, high) in spans.items():
            if name in self.runs:
                starts, stops = self.runs[name]
                part = slice(int(np.searchsorted(stops, low, "right")), int(np.searchsorted(starts, high)))
                if part.start < part.stop:
                    found[name] = starts[part].copy(), stops[part].copy()
        return Settled(found)

    def mask(self, partition: str, offsets: Ints) -> Mask:
        """Return True for each offset that is in a run.

        Args:
            partition: The partition of the messages.
            offsets: Offsets of that partition.
        """
        if partition not in self.runs:
            return np.zeros(len(offsets), np.bool_)
        starts, stops = self.runs[partition]
        at = np.searchsorted(starts, offsets, "right") - 1
        return (at >= 0) & (offsets < stops[np.maximum(at, 0)])

    def only(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of a batch that are in a run.

        Args:
            batch: Messages of one partition, with the columns ``partition`` and ``offset``.
        """
        if not batch.num_rows:
            return batch
        name = batch.column("partition")[0].as_py()
        return batch.filter(pa.array(self.mask(name, batch.column("offset").to_numpy())))


class _Runs:
    """Offsets of one partition, which come in any order, as runs."""

    def __init__(self) -> None:
        self._starts = self._stops = np.empty(0, np.int64)
        self._pending: list[Ints] = []
        self._count = 0

    def add(self, offsets: Ints) -> None:
        self._pending.append(offsets)
        self._count += len(offsets)
        if self._count >= _PENDING_MAX:
            self.join()

    def join(self) -> tuple[Ints, Ints]:
        """Join what is pending, and return the first offset of each run and the offset after its last one."""
        starts = np.concatenate([self._starts, *self._pending])
        stops = np.concatenate([self._stops, *(each + 1 for each in self._pending)])
        self._pending, self._count = [], 0
        order = np.argsort(starts, kind="stable")
        starts, stops = starts[order], np.maximum.accumulate(stops[order])
        first = np.ones(len(starts), np.bool_)
        first[1:] = starts[1:] > stops[:-1]
        last = np.append(first[1:], True)[: len(starts)]
        self._starts, self._stops = starts[first], stops[last]
        return self._starts, self._stops


@dataclass(frozen=True)
class _Oldest:
    """The first message that a log has: rows about it and later ones that are older belong to a log before it.

    A queue that is removed as unused and created again begins at offset 0. A row is not settled before its message was
    received, and receive times do not decrease in a log, so every row of this log is at least as late as this.
    """

    offset: int = 1 << 63
    receive_us: int = 0

    def counts(self, offsets: Ints, settled_us: Ints) -> Mask:
        """Return True for each row that is not older than the log."""
        mask: Mask = (offsets < self.offset) | (settled_us >= self.receive_us)
        return mask


class _Present:
    """The first message of each log, read when a row about the log is met. The store is listed once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = ReadOptions(options.path, Selection(), False, storage=options.storage, rows_per_batch=1)
        self._ranges: dict[str, list[SegmentRange]] | None = None
        self._found: dict[str, _Oldest] = {}

    def oldest(self, partition: str) -> _Oldest:
        """Return the first message of a log."""
        if self._ranges is None:
            self._ranges = {}
            for each in chain.from_iterable(plan(self._options)):
                self._ranges.setdefault(each.partition, []).append(each)
        if partition not in self._found:
            self._found[partition] = self._read(self._ranges.get(partition, []))
        return self._found[partition]

    def _read(self, ranges: list[SegmentRange]) -> _Oldest:
        schema = records.arrow_schema(["offset", "receive_ns"])
        for each in sorted(ranges, key=lambda each: each.first_offset):
            for batch in read([each], self._options, schema, Counters()):
                if batch.num_rows:
                    return _Oldest(batch.column("offset")[0].as_py(), batch.column("receive_ns")[0].as_py() // 1000)
        return _Oldest()


def settled(
    options: ReadOptions,
    cursor: str,
    as_of_ns: int | None = None,
    instead: Callable[[ReadOptions, pa.Schema], Instead | None] | None = None,
    until: Mapping[str, int] | None = None,
) -> Settled:
    """Return the messages that a subscription had acknowledged at a moment.

    Args:
        options: The options of the read of the messages: path, storage, archive and what to do about losses.
        cursor: The name of the queue, the durable subscription or the group.
        as_of_ns: The moment, in nanoseconds since the epoch; a message that was acknowledged in this microsecond
            counts. None is now.
        instead: Returns a function that reads lost records from elsewhere, as ``radiator.columns.read.read`` takes it.
        until: The first offset that is not read, by partition. None reads the deliveries that are there now.

    Raises:
        NoStore: There is no store at the path.
        LostRecords: Deliveries have been removed or cannot be read, and ``fail_on_data_loss`` is set.
        StorageError: The store cannot be read.
    """
    place = open_store(options.path, options.storage)
    found, holdings = ends(place), Holdings(place.fs)
    # All deliveries since the first are needed, so their start is named: what is missing there is a loss.
    starts = {name: 0 for name, end in found.items() if holdings.may_hold(name, end, DESTINATION.__eq__)}
    of_log = ReadOptions(
        options.path, of_deliveries(Selection(starts=starts)), options.fail_on_data_loss, storage=options.storage,
        archive=options.archive, warn_once=options.warn_once,
    )  # fmt: skip
    raw = records.arrow_schema(RAW)
    schema = arrow_schema(["partition", "offset", "outcome", "subscription", "settled_at"])
    other = None if instead is None else instead(of_log, raw)
    runs: dict[str, _Runs] = {}
    heard: set[str] = set()
    present = _Present(options)
    tasks, known = plan_until(of_log, until)
    of_log = replace(of_log, selection=of_log.selection.until(known))
    for ranges in tasks:
        for batch in read(ranges, of_log, raw, Counters(), other):
            rows = as_deliveries(batch, schema)
            heard.update(filter(None, rows.column("subscription").unique().to_pylist()))
            mask = pc.and_(pc.equal(rows.column("subscription"), cursor), pc.equal(rows.column("outcome"), ACKED))
            if as_of_ns is not None:
                mask = pc.and_(mask, pc.less_equal(rows.column("settled_at"), pa.scalar(as_of_ns // 1000, _TIME)))
            rows = rows.filter(mask).drop_null()
            coded = rows.column("partition").dictionary_encode()
            numbers, codes = rows.column("offset").to_numpy(), coded.indices.to_numpy()
            times = rows.column("settled_at").cast(pa.int64()).to_numpy()
            for code, name in enumerate(coded.dictionary.to_pylist()):
                own = (codes == code) & present.oldest(name).counts(numbers, times)
                if own.any():
                    runs.setdefault(name, _Runs()).add(numbers[own])
    if cursor not in heard and until is None:
        hint = did_you_mean(cursor, heard)
        warn(
            f"no delivery of {cursor!r} is recorded{hint}: its rule needs record: deliveries, and as_of_cursor the "
            "name of a queue or of a durable subscription",
            options.warn_once,
        )
    return Settled(
        {name: each.join() for name, each in runs.items()}, {name: known[name] for name in starts if name in known}
    )
