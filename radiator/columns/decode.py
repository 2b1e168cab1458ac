"""Decode batches of a segment into Arrow RecordBatches: only the requested columns and the selected records.

A ``Decoder`` belongs to one task and one partition of the log. Its input is chunks of batches that have been checked.
It drops the batches that the selection excludes by their headers and dictionaries, builds the columns of the schema,
filters rows where a batch is only partly selected, and slices the result into RecordBatches of at most
``rows_per_batch`` rows. Many small batches become one large RecordBatch.

``_MAKERS`` has a function for each column. Must not import files or pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from radiator.columns.batches import Batches, Bytes, Ints, Mask, Offsets
from radiator.columns.headermap import HeaderMaps
from radiator.columns.names import NameTable
from radiator.columns.rows import Rows
from radiator.columns.selection import HIGH, LOW, Selection
from radiator.limits import MIB
from radiator.storage.header import MISSING, DamagedBatch
from radiator.storage.layout import encode_name

Made = TypeVar("Made")
UNPACKED_BYTES = 32 * MIB  # of compressed regions that are unpacked at a time
HEADER_BLOCK = "header_block"  # a column that is in no table: the headers as the log stores them, one value a record


class Counters:
    """The cost of a read.

    Attributes:
        bytes_read: The number of bytes that were read from files.
        batches_checked: The number of batches whose crc was checked, or whose header was confirmed.
        batches_decoded: The number of batches of which columns were built.
        rows: The number of rows that were returned.
    """

    def __init__(self) -> None:
        self.bytes_read = 0
        self.batches_checked = 0
        self.batches_decoded = 0
        self.rows = 0

    def count_read(self, bytes_read: int = 0, batches_checked: int = 0) -> None:
        """Add what a scan has read and checked.

        Args:
            bytes_read: The number of bytes.
            batches_checked: The number of batches.
        """
        self.bytes_read += bytes_read
        self.batches_checked += batches_checked


class Contradiction(NamedTuple):
    """A batch with a correct crc whose parts contradict one another, so that its records cannot be read.

    Attributes:
        position: The position of the batch in the file, in bytes.
        first: The first offset that is lost.
        following: The offset after the last one that is lost.
        reason: The contradiction.
    """

    position: int
    first: int
    following: int
    reason: str


def _refuse(found: Contradiction) -> None:
    raise DamagedBatch(f"offsets {found.first} to {found.following - 1}: {found.reason}")


class Decoder:
    """Decode the batches of one partition for one task.

    Args:
        partition: The name of the partition.
        schema: The columns to build, a subset of ``radiator.columns.schema.arrow_schema()``, and ``HEADER_BLOCK``. If
            the type of ``destination`` is an integer, it is the index into ``names``.
        selection: The records to return.
        rows_per_batch: The maximum number of rows of a RecordBatch.
        counters: Counts the decoded batches and the rows.
        only_keys: The only key of a map column that the caller needs, by column. The maps may omit the others.
    """

    def __init__(
        self,
        partition: str,
        schema: pa.Schema,
        selection: Selection,
        rows_per_batch: int,
        counters: Counters,
        only_keys: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.schema, self.selection, self.counters = schema, selection, counters
        self._partition = partition
        self._rows_per_batch = rows_per_batch
        self._low, self._high = selection.offsets_of(partition)
        self._names = NameTable()
        self._only_keys = only_keys
        self._make = [(_MAKERS[field.name], field.type) for field in schema]
        self._unpacks = not _UNPACKED.isdisjoint(schema.names)

    @property
    def names(self) -> list[str]:
        """The destinations that were decoded so far; more are added."""
        return self._names.names

    def decode(
        self,
        batches: Batches,
        low: int = LOW,
        high: int = HIGH,
        place_of: Callable[[int], int] = int,
        on_damage: Callable[[Contradiction], None] = _refuse,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected records.

        Args:
            batches: The batches of a chunk.
            low: The first offset to return.
            high: The offset after the last one to return.
            place_of: Converts a position in the chunk to a position in the file.
            on_damage: Called for each batch whose parts contradict one another, before the records after it are
                yielded. If it returns, the batch is left out. The default raises.

        Raises:
            DamagedBatch: A batch contradicts itself, and ``on_damage`` is the default.
        """

        def tried(rows: Rows, step: Callable[[Rows], Made]) -> Iterator[Made]:
            """Yield the result of ``step`` for all batches, or else for each batch that can be decoded."""
            try:
                made = step(rows)
            except DamagedBatch as error:
                reason = str(error)
            else:
                yield made
                return
            if len(rows.at) > 1:
                for each in rows.singly():
                    yield from tried(each, step)
                return
            first, following = int(rows.base_offset[0]), int(rows.base_offset[0] + rows.span[0])
            on_damage(Contradiction(place_of(int(rows.at[0])), max(first, low), min(following, high), reason))

        self._names.forget()
        wanted = max(low, self._low), min(high, self._high)
        for parts in tried(Rows(batches, self._names), lambda rows: self._parts(rows, *wanted)):
            for part in parts:
                for batch in tried(part, lambda rows: self._columns(rows, *wanted)):
                    self.counters.rows += batch.num_rows
                    for start in range(0, batch.num_rows, self._rows_per_batch):
                        yield batch.slice(start, self._rows_per_batch)

    def _parts(self, rows: Rows, low: int, high: int) -> list[Rows]:
        """Return the batches that may have selected records, in parts of limited unpacked size."""
        selection = self.selection
        chosen = (rows.base_offset < high) & (rows.base_offset + rows.span > low)
        if selection.by_time:
            chosen &= rows.batches.max_receive_ns >= selection.receive_low_ns
            chosen &= rows.batches.min_receive_ns < selection.receive_high_ns
        if not chosen.all():
            rows = rows.only(chosen)
        if selection.destinations and len(rows.at):
            rows = rows.only(rows.batches_with(selection.wants_destination))
        if not len(rows.at):
            return []
        return list(rows.parts(UNPACKED_BYTES)) if self._unpacks else [rows]

    def _columns(self, rows: Rows, low: int, high: int) -> pa.RecordBatch:
        self.counters.batches_decoded += len(rows.at)
        made = _Made(rows, self._partition, self._names, self._only_keys)
        batch = pa.RecordBatch.from_arrays([make(made, kind) for make, kind in self._make], schema=self.schema)
        mask = self._mask(rows, low, high)
        return batch if mask.all() else batch.filter(pa.array(mask))

    def _mask(self, rows: Rows, low: int, high: int) -> Mask:
        selection, mask = self.selection, np.ones(rows.total, np.bool_)
        first, last = rows.base_offset[0], rows.base_offset[-1] + rows.span[-1]
        if first < low or last > high:
            mask &= (rows.offsets >= low) & (rows.offsets < high)
        low, high = selection.receive_low_ns, selection.receive_high_ns
        if selection.by_time and (rows.batches.min_receive_ns.min() < low or rows.batches.max_receive_ns.max() >= high):
            mask &= (rows.receive_ns >= low) & (rows.receive_ns < high)
        if selection.destinations:
            mask &= rows.records_with(selection.wants_destination)
        return mask


class _Made:
    """The rows of a RecordBatch, and the values that several columns share."""

    def __init__(self, rows: Rows, partition: str, names: NameTable, only_keys: Mapping[str, str]) -> None:
        self.rows, self.partition, self.names, self.only_keys = rows, partition, names, only_keys
        self._maps: HeaderMaps | None = None

    @property
    def maps(self) -> HeaderMaps:
        if self._maps is None:
            self._maps = HeaderMaps(*self.rows.headers())
        return self._maps


def _longs(values: Ints) -> pa.Array:
    return pa.array(values, pa.int64())


def _optional(values: Ints) -> pa.Array:
    missing = values == MISSING
    return pa.array(values, pa.int64(), mask=missing if missing.any() else None)


def _times(values: Ints, kind: pa.DataType) -> pa.Array:
    return _longs(values // 1000).view(kind)


def _optional_times(values: Ints, kind: pa.DataType) -> pa.Array:
    missing = values == MISSING
    return pa.array(values // 1000, pa.int64(), mask=missing if missing.any() else None).view(kind)


def _destination(made: _Made, kind: pa.DataType) -> pa.Array:
    rows, names = made.rows, made.names.names
    if pa.types.is_integer(kind):
        return pa.array(rows.destination_ids.astype(np.int32))
    if rows.only_destination is not None:
        return pa.repeat(pa.scalar(names[rows.only_destination]), rows.total)
    ids = pa.array(rows.destination_ids)  # may append to ``names``
    return pa.array(names, pa.string()).take(ids)


def _message_id(made: _Made, kind: pa.DataType) -> pa.Array:
    prefix = pa.scalar(encode_name(made.partition) + "@")
    return pc.binary_join_element_wise(prefix, _longs(made.rows.offsets).cast(pa.string()), "")


def _binary(data: Bytes, offsets: Offsets) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


_MAKERS: dict[str, Callable[[_Made, Any], pa.Array]] = {
    "destination": _destination,
    "partition": lambda made, kind: pa.repeat(pa.scalar(made.partition), made.rows.total),
    "offset": lambda made, kind: _longs(made.rows.offsets),
    "message_id": _message_id,
    "receive_time": lambda made, kind: _times(made.rows.receive_ns, kind),
    "event_time": lambda made, kind: _optional_times(made.rows.event_ns, kind),
    "transmit_time": lambda made, kind: _optional_times(made.rows.transmit_ns, kind),
    "receive_ns": lambda made, kind: _longs(made.rows.receive_ns),
    "event_ns": lambda made, kind: _optional(made.rows.event_ns),
    "transmit_ns": lambda made, kind: _optional(made.rows.transmit_ns),
    "tags": lambda made, kind: made.maps.tags(made.only_keys.get("tags")),
    "headers": lambda made, kind: made.maps.headers(made.only_keys.get("headers")),
    "body": lambda made, kind: _binary(*made.rows.bodies()),
    "size": lambda made, kind: _longs(made.rows.sizes),
    HEADER_BLOCK: lambda made, kind: _binary(*made.rows.headers()),
}
_UNPACKED = frozenset({"tags", "headers", "body", HEADER_BLOCK})  # columns of regions that may be compressed
