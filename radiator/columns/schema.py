"""Define the columns of the table as Arrow types.

``COLUMNS`` is the whole table. The Spark source, the archive, the documentation and the tests iterate over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        name: The name of the column.
        type: The Arrow type.
        nullable: True if a value may be null.
        meaning: The description for the documentation.
    """

    name: str
    type: pa.DataType
    nullable: bool
    meaning: str


_MAP = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

COLUMNS: tuple[Column, ...] = (
    Column("destination", pa.string(), False, "where it was sent, such as /topic/flights.JFK"),
    Column("partition", pa.string(), False, "the log that stores it"),
    Column("offset", pa.int64(), False, "its number in that log; consecutive and permanent"),
    Column("message_id", pa.string(), False, "its address, as in the message-id header of a delivery"),
    Column("receive_time", _TIME, False, "when the broker received it, in microseconds; never decreases in a log"),
    Column("event_time", _TIME, True, "when the event happened, from the sender (header event-time)"),
    Column("transmit_time", _TIME, True, "when it was sent, from the sender (header transmit-time)"),
    Column("receive_ns", pa.int64(), False, "receive_time in nanoseconds since 1970, exact"),
    Column("event_ns", pa.int64(), True, "event_time in nanoseconds, exact"),
    Column("transmit_ns", pa.int64(), True, "transmit_time in nanoseconds, exact"),
    Column("tags", _MAP, False, "the headers tag-<key>, as key -> value"),
    Column("headers", _MAP, False, "every stored header, decoded, tags included"),
    Column("body", pa.binary(), False, "the body, unchanged"),
    Column("size", pa.int64(), False, "bytes in the body"),
)
BY_NAME = {column.name: column for column in COLUMNS}


def arrow_schema(names: Iterable[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of the given columns, in their order.

    Args:
        names: Names of columns; None returns all columns.

    Raises:
        KeyError: A column does not exist.

    Example:
        >>> arrow_schema(["offset"])
        offset: int64 not null
    """
    chosen = BY_NAME if names is None else names
    return pa.schema([pa.field(name, BY_NAME[name].type, BY_NAME[name].nullable) for name in chosen])
