"""Convert rows to messages: the accepted columns, and what each becomes.

``ACCEPTED`` is the whole table. An unknown column is an error that shows the closest name, because an ignored column
would be a loss. The columns of the log itself are accepted: values that the broker sets again
(``CARRIED_BY_THE_BROKER``) are left out, so a DataFrame that was read can be written unchanged.

If two columns set the same header, the specific one counts: ``event_time`` before ``headers``. A text in ``headers``
with the same meaning stays unchanged.

Uses Arrow columns and the headers of SEND. A ``Rows`` can be pickled.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from radiator.client.sending import Outgoing
from radiator.clock import NS_PER_MS, now_ns
from radiator.errors import ConfigError
from radiator.spark.positions import parse_time
from radiator.spark.sink_options import SinkOptions
from radiator.stomp.spec import HOP_BY_HOP, RESERVED
from radiator.storage.typed_rules import REJECTED

DIGEST_BYTES = 12  # the chance of a collision among 2^40 rows is 2^-17
NS_PER_US = 1_000
PRIORITIES = frozenset("0123456789")


class Accepted(NamedTuple):
    """A column that can be written.

    Attributes:
        name: The name of the column.
        types: The accepted kinds, as ``kind_of`` returns them.
        meaning: The description, for the documentation.
        header: The header that the column becomes, if it becomes one header.
    """

    name: str
    types: tuple[str, ...]
    meaning: str
    header: str | None = None


ACCEPTED: tuple[Accepted, ...] = (
    Accepted("destination", ("string",), "the destination, unless the option destination sets it for all rows"),
    Accepted("body", ("string", "binary"), "the body; text as UTF-8. Null is an error"),
    Accepted("value", ("string", "binary"), "the same, by the name that Kafka has for it"),
    Accepted(
        "headers",
        ("map",),
        "headers; a null value is none. Ids among them (dedup-id, producer-id, sequence) are left out",
    ),
    Accepted("tags", ("map",), "headers tag-<key>"),
    Accepted("event_time", ("timestamp",), "event-time", "event-time"),
    Accepted("event_ns", ("number",), "the same in nanoseconds since 1970, exact", "event-time"),
    Accepted("transmit_time", ("timestamp",), "transmit-time; without such a column and header: now", "transmit-time"),
    Accepted("transmit_ns", ("number",), "the same in nanoseconds since 1970, exact", "transmit-time"),
    Accepted("key", ("string",), "partition-key: same value, same partition", "partition-key"),
    Accepted("partition_key", ("string",), "the same", "partition-key"),
    Accepted("content_type", ("string",), "content-type", "content-type"),
    Accepted("correlation_id", ("string",), "correlation-id", "correlation-id"),
    Accepted("reply_to", ("string",), "reply-to", "reply-to"),
    Accepted("priority", ("number",), "priority, 0 to 9", "priority"),
    Accepted("expires", ("number", "timestamp"), "expires; a number is milliseconds since 1970", "expires"),
    Accepted("dedup_id", ("string",), "dedup-id, in place of the one that would be made", "dedup-id"),
)
BY_NAME = {each.name: each for each in ACCEPTED}
CARRIED_BY_THE_BROKER = frozenset({"partition", "offset", "message_id", "receive_time", "receive_ns", "size"})

PLACES = ({"message_id": "string"}, {"partition": "string", "offset": "number"})  # which record of a log a row is: one
# or the other. Kafka's partition is a number, and there is one of it in each topic.
IDS = frozenset({"dedup-id", "producer-id", "sequence"})
_DROPPED = RESERVED - {"partition"}  # of SEND, partition chooses one of several
_PLAIN_HEADERS = ("partition-key", "content-type", "correlation-id", "reply-to", "priority", "dedup-id")


class Row(NamedTuple):
    """A row as a message.

    Attributes:
        message: The message.
        digest: 12 bytes that identify the content; they do not depend on the current time.
        own_id: True if the row has a ``dedup-id`` of its own.
        placed: True if the digest contains the record of a log that the row comes from.
    """

    message: Outgoing
    digest: bytes
    own_id: bool
    placed: bool


def kind_of(type_: DataType) -> str:
    """Return the kind of a Spark type: string, binary, timestamp, number, map, or the name of another type.

    Args:
        type_: The type of a column.
    """
    if isinstance(type_, StringType):
        return "string"
    if isinstance(type_, BinaryType):
        return "binary"
    if isinstance(type_, TimestampType):
        return "timestamp"
    if isinstance(type_, IntegralType):
        return "number"
    if isinstance(type_, MapType) and isinstance(type_.keyType, StringType) and isinstance(type_.valueType, StringType):
        return "map"
    return str(type_.simpleString())


class Rows:
    """The conversion of the rows of one DataFrame.

    Args:
        schema: The columns of the DataFrame.
        options: The options of the sink.

    Raises:
        ConfigError: A column is unknown, missing, repeated, or has a wrong type.
    """

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._destination = options.destination
        self._dedup_by = tuple(name.lower() for name in options.dedup_by)
        self._columns: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        typed = REJECTED in schema.names  # read from a log: structs repeat what bodies have
        for place, field in enumerate(schema.fields):
            name = field.name.lower()
            if typed and (name == REJECTED or isinstance(field.dataType, StructType)):
                continue
            if name in self._columns:
                raise ConfigError(f"column {field.name}: expected each column once, got it twice")
            self._check(field.name, name, field.dataType)
            self._columns[name], self._kinds[name] = place, kind_of(field.dataType)
        for name in self._dedup_by:
            if name not in self._columns:
                raise ConfigError(f"option dedup_by: there is no column {name!r}; expected {', '.join(self._columns)}")
            if "map<" in schema.fields[self._columns[name]].dataType.simpleString():  # equal maps differ in order
                raise ConfigError(f"option dedup_by: column {name!r} has maps, which cannot tell rows apart; drop it")
        kinds = self._kinds
        self._place = next((tuple(each) for each in PLACES if all(kinds.get(name) == each[name] for name in each)), ())
        self._one_of("body", "value", needed=True)
        self._one_of("key", "partition_key", needed=False)
        if self._destination is None and "destination" not in self._columns:
            raise ConfigError(
                'the destination is missing: expected a column destination, or .option("destination", "/topic/results")'
            )

    @property
    def speaks_of_transmit_time(self) -> bool:
        """True if the DataFrame has a column with the transmit time; then the client adds none."""
        return "transmit_time" in self._columns or "transmit_ns" in self._columns

    def _check(self, shown: str, name: str, type_: DataType) -> None:
        accepted = BY_NAME.get(name)
        if accepted is None and (name in self._dedup_by or name in CARRIED_BY_THE_BROKER):
            return
        if accepted is None:
            near = difflib.get_close_matches(name, BY_NAME, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            if name == "topic":
                hint = " (Kafka's topic is destination here)"
            raise ConfigError(
                f"column {shown!r} cannot be written{hint}: expected {', '.join(BY_NAME)}; "
                "to combine columns into a body: to_json(struct(*)) AS body"
            )
        if kind_of(type_) not in accepted.types:
            expected = " or ".join({"map": "map<string,string>"}.get(each, each) for each in accepted.types)
            raise ConfigError(f"column {shown}: expected {expected}, got {type_.simpleString()}; cast it")

    def _one_of(self, name: str, other: str, needed: bool) -> None:
        present = [each for each in (name, other) if each in self._columns]
        if len(present) == 2:
            raise ConfigError(f"columns {name} and {other} mean the same: expected one of them, got both")
        if needed and not present:
            raise ConfigError(
                f"expected a column {name} (or {other}); to combine columns: to_json(struct(*)) AS {name}"
            )

    # --- one batch ----------------------------------------------------------------------------------------------------

    def read(self, batch: pa.RecordBatch, first_row: int) -> Iterator[Row]:
        """Yield the rows of a batch as messages.

        Args:
            batch: The batch.
            first_row: The number of its first row in the task, for error messages.

        Raises:
            ConfigError: A row cannot be sent; the message has the number of the row.
        """
        fixed = [self._destination] * batch.num_rows
        destinations = self._texts(batch, "destination") if self._destination is None else fixed
        bodies = self._texts(batch, "body" if "body" in self._columns else "value")
        headers, tags = self._texts(batch, "headers"), self._texts(batch, "tags")
        columns = self._header_columns(batch)
        identities = [_numbers(batch.column(self._columns[name])) for name in self._dedup_by or self._place]
        time_ns = now_ns()
        for row in range(batch.num_rows):
            try:
                found = _headers(headers[row], tags[row], [(header, values[row]) for header, values in columns])
                made = self._row(destinations[row], bodies[row], found, tuple(column[row] for column in identities))
            except ConfigError as error:
                raise ConfigError(f"row {first_row + row}: {error}") from None
            _no_delay_that_is_over(found, time_ns)  # after the digest, which must not depend on the current time
            yield made

    def _row(self, destination: str | None, body: Any, headers: dict[str, str], which: tuple[Any, ...]) -> Row:
        """Return a row as a message; ``which``: its values of the columns that identify it."""
        if destination is None:
            raise ConfigError("destination is null; expected a name such as /topic/results")
        if body is None:
            raise ConfigError("expected a body, got null; use coalesce(body, '') for an empty one")
        if self._dedup_by and None in which:
            raise ConfigError(
                f"column {self._dedup_by[which.index(None)]} of option dedup_by is null; "
                "expected a value in every row, or another dedup_by"
            )
        identity = repr(which) if which else ""
        if self._dedup_by:
            digest = _digest(identity.encode(), b"")
        else:
            said = (identity, destination, *map("\0".join, sorted(headers.items())))
            digest = _digest("\0".join(said).encode(), body)
        placed = bool(which) and None not in which
        return Row(Outgoing(destination, body, headers), digest, "dedup-id" in headers, placed)

    def _texts(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        """Return the values of a column, or None for each row if there is no such column."""
        place = self._columns.get(name)
        return [None] * batch.num_rows if place is None else list(batch.column(place).to_pylist())

    def _header_columns(self, batch: pa.RecordBatch) -> list[tuple[str, Sequence[Any]]]:
        """Return the columns that become one header each, as texts, or None where there is none."""
        found: list[tuple[str, Sequence[Any]]] = []
        for each in ACCEPTED:
            if each.header in _PLAIN_HEADERS and each.name in self._columns:
                values = self._texts(batch, each.name)
                found.append((each.header, [None if value is None else str(value) for value in values]))
        if "expires" in self._columns:
            moments = _numbers(batch.column(self._columns["expires"]))
            divisor = 1_000 if self._kinds["expires"] == "timestamp" else 1
            found.append(("expires", [None if value is None else str(value // divisor) for value in moments]))
        for what in ("event", "transmit"):
            times = self._times(batch, what)
            if times is not None:
                found.append((f"{what}-time", times))
        return found

    def _times(self, batch: pa.RecordBatch, what: str) -> list[str | None] | None:
        exact, rough = self._columns.get(f"{what}_ns"), self._columns.get(f"{what}_time")
        if exact is None and rough is None:
            return None
        ns = [None] * batch.num_rows if exact is None else _numbers(batch.column(exact))
        us = [None] * batch.num_rows if rough is None else _numbers(batch.column(rough))
        found: list[str | None] = []
        for nanoseconds, microseconds in zip(ns, us, strict=True):
            if nanoseconds is None:
                found.append(None if microseconds is None else str(microseconds * NS_PER_US))
            elif microseconds is None or nanoseconds // NS_PER_US == microseconds:
                found.append(str(nanoseconds))
            else:
                raise ConfigError(
                    f"columns {what}_time and {what}_ns say different times, {microseconds * NS_PER_US} and "
                    f"{nanoseconds} ns since 1970: expected the same, or one of the columns"
                )
        return found


def _headers(
    given: list[tuple[str, str | None]] | None, tags: list[tuple[str, str | None]] | None,
    columns: Sequence[tuple[str, str | None]],
) -> dict[str, str]:  # fmt: skip
    """Return the headers of a row; ``columns``: of its columns that become one header each."""
    found: dict[str, str] = {}
    for name, value in given or ():
        if value is None or name in _DROPPED or name in IDS:
            continue
        if name in HOP_BY_HOP:
            raise ConfigError(f"column headers: {name!r} belongs to the frame: leave it out")
        found[name] = value
    found.update((f"tag-{key}", value) for key, value in tags or () if value is not None)
    for header, value in columns:
        if header == "priority" and value is not None and value not in PRIORITIES:
            raise ConfigError(f"column priority: expected 0 to 9, got {value}")
        if value is not None:
            _set(found, header, value)
    return found


def _no_delay_that_is_over(headers: dict[str, str], time_ns: int) -> None:
    """Remove a delivery time in the past: a topic refuses the header, and a queue does not need it."""
    moment = headers.get("deliver-at")
    if moment is not None and moment.isdigit() and int(moment) * NS_PER_MS <= time_ns:
        del headers["deliver-at"]


def _set(headers: dict[str, str], name: str, value: str) -> None:
    """Set a header from a column, unless the header already has a text with the same meaning."""
    present = headers.get(name)
    if present is not None and present != value and name.endswith("-time"):
        try:
            if parse_time(present, name) == int(value):
                return
        except ConfigError:  # the header is not a time, so the column counts
            pass
    headers[name] = value


def _numbers(column: pa.Array) -> list[Any]:
    """Return numbers unchanged, and timestamps as microseconds since the epoch."""
    found = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return list(found.to_pylist())


def _digest(head: bytes, body: bytes | str) -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    return blake2b(b"%d:%b%b" % (len(head), head, raw), digest_size=DIGEST_BYTES).digest()
