"""The formats. Each writer takes rows as they come, buffers a bounded part of them, and writes to an open file.

    jsonl     an object per line; ``body`` is text, or ``body_base64`` if it is not UTF-8
    csv       a line of names, then a line per record; ``tags`` and ``headers`` as JSON, and both kinds of body
    parquet   the columns of the Spark source with their types; row groups of bounded size, zstd

A ``Table`` has the columns and their order in all of them. pyarrow is imported for Parquet only (the extra
``radiator-broker[parquet]``).

This module knows formats. It does not know the source of the rows, or the name of the file.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import io
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple

import msgspec

from radiator.clock import rfc3339
from radiator.columns.delivery_records import HEADERS
from radiator.export.rows import DeliveryRow, Row
from radiator.limits import MIB

COLUMNS = (
    "destination",
    "partition",
    "offset",
    "message_id",
    "receive_time",
    "event_time",
    "transmit_time",
    "receive_ns",
    "event_ns",
    "transmit_ns",
    "tags",
    "headers",
    "body",
    "size",
)
GROUP_ROWS = 65_536
GROUP_BYTES = 32 * MIB  # of bodies and headers in memory; about three times as much while encoding
ROW_BYTES = 200  # memory of a row besides its body
_ENCODER = msgspec.json.Encoder()


class Table(NamedTuple):
    """A table that can be exported.

    Attributes:
        columns: The names, in the order of the fields; CSV has those of ``more`` after them.
        more: Fields that a row may have instead of one of the columns.
        fields: Returns the values of a row as JSON has them.
        schema: Returns the Arrow schema.
        values: Functions from a row to the Arrow value, for columns that are not attributes of the row.
    """

    columns: tuple[str, ...]
    more: tuple[str, ...]
    fields: Callable[[Any], dict[str, Any]]
    schema: Callable[[], Any]
    values: Mapping[str, Callable[[Any], Any]]


class Writer:
    """Writes rows in one format."""

    def __init__(self, file: BinaryIO, table: Table | None = None) -> None:
        self._file, self._table = file, table or MESSAGES

    def write(self, rows: Iterable[Any]) -> None:
        """Write rows."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is buffered; the caller closes the file."""

    def abandon(self) -> None:
        """Drop what is buffered, silently, because the file is dropped."""


def _time(ns: int | None) -> str | None:
    return None if ns is None else rfc3339(ns)


def _fields(row: Row) -> dict[str, Any]:
    """Return the fields in the order of COLUMNS, the body as text or as base64."""
    fields: dict[str, Any] = {
        "destination": row.destination,
        "partition": row.partition,
        "offset": row.offset,
        "message_id": row.message_id,
        "receive_time": _time(row.receive_ns),
        "event_time": _time(row.event_ns),
        "transmit_time": _time(row.transmit_ns),
        "receive_ns": row.receive_ns,
        "event_ns": row.event_ns,
        "transmit_ns": row.transmit_ns,
        "tags": row.tags,
        "headers": row.headers,
    }
    try:
        fields["body"] = row.body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(row.body).decode()
    fields["size"] = row.size
    return fields


class JsonLines(Writer):
    """JSON lines."""

    def write(self, rows: Iterable[Any]) -> None:
        """Write rows."""
        self._file.write(_ENCODER.encode_lines(list(map(self._table.fields, rows))))


class Csv(Writer):
    """CSV."""

    def __init__(self, file: BinaryIO, table: Table | None = None) -> None:
        super().__init__(file, table)
        self._names = (*self._table.columns, *self._table.more)
        self._text([*self._names])

    def _text(self, *lines: list[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        self._file.write(text.getvalue().encode())

    def write(self, rows: Iterable[Any]) -> None:
        """Write rows."""
        lines = []
        for fields in map(self._table.fields, rows):
            values = [fields.get(name) for name in self._names]
            lines.append([_ENCODER.encode(each).decode() if isinstance(each, dict) else each for each in values])
        self._text(*lines)


class Parquet(Writer):
    """Parquet."""

    def __init__(self, file: BinaryIO, table: Table | None = None) -> None:
        import pyarrow.parquet as pq

        super().__init__(file, table)
        self._schema = self._table.schema()
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[Any] = []
        self._bytes = 0
        self._headers: dict[str, str] | None = None  # of the last row, and their size
        self._headers_bytes = 0

    def write(self, rows: Iterable[Any]) -> None:
        """Write rows, a row group at a time."""
        for row in rows:
            self._rows.append(row)
            self._bytes += ROW_BYTES + (self._size(row) if isinstance(row, Row) else 0)
            if len(self._rows) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._flush()

    def _size(self, row: Row) -> int:
        if row.headers is not self._headers:  # publishers repeat theirs, and ``rows`` gives the same ones again
            self._headers = row.headers
            self._headers_bytes = sum(len(name) + len(value) for name, value in row.headers.items())
        return row.size + self._headers_bytes

    def _flush(self) -> None:
        import pyarrow as pa

        rows, self._rows, self._bytes = self._rows, [], 0
        if rows:
            values = {field: self._table.values.get(field.name, attrgetter(field.name)) for field in self._schema}
            arrays = [pa.array(map(value, rows), field.type, size=len(rows)) for field, value in values.items()]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Close the writer silently."""
        with contextlib.suppress(Exception):
            self._writer.close()
        self._writer.is_open = False  # else it closes itself when it goes, and prints that its file is closed


def _micros(ns: int | None) -> int | None:
    return None if ns is None else ns // 1000


_ARROW: Mapping[str, Callable[[Row], Any]] = {  # values of columns that are not those of a row
    "receive_time": lambda row: _micros(row.receive_ns),
    "event_time": lambda row: _micros(row.event_ns),
    "transmit_time": lambda row: _micros(row.transmit_ns),
    "tags": lambda row: list(row.tags.items()),
    "headers": lambda row: list(row.headers.items()),
}


def _message_schema() -> Any:
    from radiator.columns.schema import arrow_schema

    return arrow_schema()


def _delivery_schema() -> Any:
    from radiator.columns.deliveries import arrow_schema

    return arrow_schema()


def _delivery_fields(row: DeliveryRow) -> dict[str, Any]:
    fields = {name: getattr(row, name, None) for name in DELIVERIES.columns}
    return {**fields, "delivered_at": _time(row.delivered_ns), "settled_at": _time(row.settled_ns)}


MESSAGES = Table(COLUMNS, ("body_base64",), _fields, _message_schema, _ARROW)
DELIVERIES = Table(
    (*HEADERS, "record_offset"),
    (),
    _delivery_fields,
    _delivery_schema,
    {"delivered_at": lambda row: _micros(row.delivered_ns), "settled_at": lambda row: _micros(row.settled_ns)},
)
WRITERS: Mapping[str, Callable[[BinaryIO, Table], Writer]] = {"jsonl": JsonLines, "csv": Csv, "parquet": Parquet}
