"""Read the schema of a pruned scan: the columns, filters and ends of the log that ``ScanRule.java`` puts into it.

The optimizer rule gives each query a reader of its own, whose schema has only the columns that the query uses. The
metadata of the first column says which filters apply, and where the log ended at the first query over the DataFrame. A
column may be a part of a column of the table: one key of ``tags`` or ``headers``, one field of a struct, or the length
of ``body``. A scan for a count has the different rows, and how often each is there.

Uses filters and selections. Must not import files.
Invariant: a filter that begins with ``!`` is applied exactly here, because Spark does not test it again.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pickle import loads
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructField, StructType

from radiator.columns.options import ReadOptions
from radiator.spark.pushdown import narrow_options
from radiator.spark.schema import arrow_schema, is_plain

_MAPS = frozenset({"tags", "headers"})
FILTERS, PIN, PART = "radiator.filters", "radiator.pin", "radiator.part"  # keys of the metadata of columns
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Part(NamedTuple):
    """A column of a scan that is made from a column of the table.

    Attributes:
        kind: ``key`` of a map, ``field`` of a struct, ``length``, ``count`` or ``rows``.
        key: The key or the field.
        source: The column of the table.
    """

    kind: str
    key: str
    source: str


ROWS = "rows"  # the kind of a part that says how many rows are equal; the last column of a scan for a count


@dataclass(frozen=True)
class Request:
    """What a pruned scan reads.

    Attributes:
        columns: The columns of the table to decode.
        filters: The filters that the reader applies, and whether Spark relies on each.
        ends: The first offset that is not read, by partition; None is the first query over a DataFrame.
        parts: The part of each column of the result; None is the column itself.
        names: The name of each column of the result.
    """

    columns: StructType
    filters: tuple[tuple[Filter, bool], ...]
    ends: Mapping[str, int] | None
    parts: tuple[Part | None, ...]
    names: tuple[str, ...]

    def only_keys(self) -> dict[str, str]:
        """Return the only key that the scan uses of a map column, by column. Other columns are not in the result.

        With struct columns the result is empty, because their decoders may need other headers.
        """
        if not is_plain(self.columns.names):
            return {}
        used: dict[str, set[str | None]] = {}
        for part, column in zip(self.parts, self.names, strict=True):
            name, key = (part.source, part.key) if part else (column, None)
            used.setdefault(name, set()).add(key)
        return {name: key for name, (key, *more) in used.items() if name in _MAPS and key is not None and not more}

    def narrowed(self, options: ReadOptions) -> ReadOptions:
        """Return the options combined with the filters.

        Args:
            options: The options of the read.

        Raises:
            AssertionError: A filter that Spark does not test again cannot be applied.
        """
        for condition, exact in self.filters:
            narrower = narrow_options(options, condition)
            if exact and narrower is None:
                raise AssertionError(f"a filter that Spark does not test again cannot be applied: {condition}")
            options = narrower or options
        return options


def request_of(schema: StructType, table: StructType) -> Request | None:
    """Return the request in a schema, or None if it is the schema of an ordinary read.

    Args:
        schema: The schema that Spark passes to the reader.
        table: The columns of the table, SCHEMA or DELIVERIES.
    """
    first = next(iter(schema.fields), None)
    if first is None or FILTERS not in first.metadata:
        return None
    pin = first.metadata.get(PIN)
    parts = tuple(_part(field) for field in schema.fields)
    columns = {field.name: field for field in table.fields}
    used: dict[str, StructField] = {}  # struct columns of schemas are in no table of columns
    fields: dict[str, list[StructField]] = {}  # of a struct column: those that the scan uses
    for part, field in zip(parts, schema.fields, strict=True):
        if part and part.kind == ROWS and len(parts) > 1:
            continue
        name = part.source if part else field.name
        if part and part.kind == "field":
            fields.setdefault(name, []).append(StructField(part.key, field.dataType))
            field = StructField(name, StructType(fields[name]))
        used[name] = columns.get(name, field)
    return Request(
        columns=StructType([used[name] for name in sorted(used)]),
        filters=tuple(_filters(first.metadata[FILTERS])),
        ends=None if pin is None else loads(b64decode(pin)).ends,
        parts=parts,
        names=tuple(schema.names),
    )


def _part(field: StructField) -> Part | None:
    found = field.metadata.get(PART)
    return None if found is None else Part(*found)


def _filters(texts: Iterable[str]) -> Iterator[tuple[Filter, bool]]:
    """Yield the filters, and whether Spark relies on each.

    A text is a mark (``!`` if Spark relies on the filter, else ``?``) and JSON: kind, column, negated, values.
    """
    for text in texts:
        kind, column, negated, *values = json.loads(text[1:])
        if column == "receive_time":
            values = [_EPOCH + timedelta(microseconds=value) for value in values]
        made: Any = getattr(datasource, kind)
        if kind == "In":
            found = made((column,), tuple(values))
        else:
            found = made((column,), *values)
        yield datasource.Not(found) if negated else found, text.startswith("!")


class Shape:
    """Make the columns of a pruned scan from columns of the table.

    Args:
        schema: The schema of the scan.
        request: The request in that schema.
    """

    def __init__(self, schema: StructType, request: Request) -> None:
        self._parts = request.parts
        self._names = schema.names
        self.schema = arrow_schema(schema)
        self.wanted = arrow_schema(request.columns)

    def shaped(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch with the columns of the scan.

        Args:
            batches: Batches with the columns ``wanted``.
        """
        if self.wanted.equals(self.schema):
            yield from batches
            return
        if (last := self._parts[-1]) and last.kind == ROWS:
            yield from self._counted(batches)
            return
        for batch in batches:
            arrays = [self._column(batch, at) for at in range(len(self._parts))]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the different rows of each batch, and how often each row is there; without columns only how many."""
        keys = self._names[:-1]
        if not keys:
            total = sum(batch.num_rows for batch in batches)
            yield pa.RecordBatch.from_arrays([pa.array([total] if total else [], pa.int64())], schema=self.schema)
            return
        for batch in batches:
            columns = [self._column(batch, at) for at in range(len(keys))]
            groups = pa.Table.from_arrays(columns, keys).group_by(keys, use_threads=False)
            arrays = groups.aggregate([([], "count_all")]).select([*keys, "count_all"]).columns
            yield from pa.Table.from_arrays(arrays, schema=self.schema).to_batches()

    def _column(self, batch: pa.RecordBatch, at: int) -> pa.Array:
        part = self._parts[at]
        if part is None:
            return batch.column(self._names[at])
        return _PARTS[part.kind](batch.column(part.source), part.key)


def value_of(maps: pa.MapArray, key: str) -> pa.StringArray:
    """Return the value of one key of each map, the first one if the key is repeated, and null where it is missing.

    Args:
        maps: Maps of text to text.
        key: The key.
    """
    offsets = np.asarray(maps.offsets)
    begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = maps.keys.slice(begin, count), maps.items.slice(begin, count)  # those of a slice of maps
    offsets = offsets - begin
    if count == len(maps) and np.array_equal(offsets, np.arange(count + 1)) and _all_are(keys, key):
        return items
    found = np.flatnonzero(pc.equal(keys, key)).astype(np.int64)  # positions in the keys of all maps
    place = np.searchsorted(found, offsets[:-1])
    hit = place < len(found)
    at = found[np.minimum(place, len(found) - 1)] if len(found) else np.zeros(len(maps), np.int64)
    hit &= at < offsets[1:]
    return items.take(pa.array(at, mask=~hit))


def field_of(structs: pa.StructArray, name: str) -> pa.Array:
    """Return one field of each struct, and null for a null struct.

    Args:
        structs: Structs.
        name: The name of the field.
    """
    return pc.struct_field(structs, [structs.type.get_field_index(name)])


def _all_are(keys: pa.StringArray, key: str) -> bool:
    """Return True if all keys are ``key``; False may be wrong. It compares bytes, which is faster than ``pc.equal``."""
    word, (_, offsets, data) = key.encode(), keys.buffers()
    size = len(word)
    if not size or data is None:
        return False
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    if (np.diff(bounds) != size).any():
        return False
    text = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return text[:size].tobytes() == word and np.array_equal(text[size:], text[:-size])


_PARTS: dict[str, Callable[[pa.Array, str], pa.Array]] = {
    "key": value_of,
    "field": field_of,
    "length": lambda sizes, key: sizes.cast(pa.int32()),
    "count": lambda offsets, key: pa.nulls(len(offsets)),
}
