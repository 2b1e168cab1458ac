"""The columns of the table, in one place.

``COLUMNS`` is the whole table as Spark sees it; documents and tests iterate over it. A read may name any subset in any
order (``.schema("destination, offset ...")``): what is not named is not decoded. Spark passes the wanted columns as a
StructType; ``checked`` says in words when a name or a type is not one of ours.

Knows: names and types. Must not know: files.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from radiator.errors import ConfigError


class Column(NamedTuple):
    name: str
    type: DataType
    nullable: bool
    meaning: str


_MAP = MapType(StringType(), StringType(), valueContainsNull=True)

COLUMNS: tuple[Column, ...] = (
    Column("destination", StringType(), False, "where it was sent, such as /topic/flights.JFK"),
    Column("partition", StringType(), False, "the log that holds it"),
    Column("offset", LongType(), False, "its number in that log; dense, for ever"),
    Column("message_id", StringType(), False, "its address, as in the message-id header of a delivery"),
    Column("receive_time", TimestampType(), False, "when the broker took it, in microseconds; never falls in a log"),
    Column("event_time", TimestampType(), True, "when it happened, as the sender says (event-time header)"),
    Column("transmit_time", TimestampType(), True, "when it was sent, as the sender says (transmit-time header)"),
    Column("receive_ns", LongType(), False, "receive_time in nanoseconds since 1970, exact"),
    Column("event_ns", LongType(), True, "event_time in nanoseconds, exact"),
    Column("transmit_ns", LongType(), True, "transmit_time in nanoseconds, exact"),
    Column("tags", _MAP, False, "the headers tag-<key>, as key -> value"),
    Column("headers", _MAP, False, "every stored header, decoded, tags included"),
    Column("body", BinaryType(), False, "the body, byte for byte"),
    Column("size", LongType(), False, "bytes in the body"),
)
BY_NAME = {column.name: column for column in COLUMNS}

SCHEMA = StructType([StructField(column.name, column.type, column.nullable) for column in COLUMNS])


def select(names: Iterable[str]) -> StructType:
    """The schema that names just these columns: what ``.schema()`` of a reader takes. Raises ConfigError."""
    chosen = list(names)
    for name in chosen:
        if name not in BY_NAME:
            raise ConfigError(_unknown(name))
    return StructType([StructField(name, BY_NAME[name].type, BY_NAME[name].nullable) for name in chosen])


def checked(schema: StructType) -> StructType:
    """``schema`` if every column of it is one of ours with its type. Raises ConfigError."""
    seen: set[str] = set()
    for field in schema.fields:
        column = BY_NAME.get(field.name)
        if column is None:
            raise ConfigError(_unknown(field.name))
        if field.dataType != column.type:
            raise ConfigError(
                f"column {field.name}: expected type {column.type.simpleString()}, "
                f"got {field.dataType.simpleString()}; read it as it is and cast afterwards"
            )
        if field.name in seen:
            raise ConfigError(f"column {field.name} is named twice in .schema()")
        seen.add(field.name)
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares our batches with."""
    return to_arrow_schema(schema, timezone="UTC")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, BY_NAME, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"column {name!r} is not one of a radiator store{hint}: expected {', '.join(BY_NAME)}"
