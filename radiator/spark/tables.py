"""Read archive and live log as one DataFrame and as one SQL view.

    table(spark, "./data", "./archive", destination="/topic/flights.JFK").select("carrier", "dep_delay", "receive_time")

Records below the ends of the archive are read by Spark's own Parquet reader, from exactly the files that the commits
name and that may have matching records. The rest is read by the data source ``radiator``, up to the ends of the log as
of now. Rules with a schema add struct columns, as in the data source.

Uses the boundary (``boundary``) and Spark's readers.
Invariant: a record is in the DataFrame once, whatever broker and archive do during this call or the queries.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from radiator.archive import DataFile, Files, load, open_files
from radiator.archive.times import time_ns
from radiator.archive.versions import AsOf
from radiator.clock import now_ns, rfc3339
from radiator.columns.deliveries import RAW, of_deliveries
from radiator.columns.delivery_records import ACKED, DESTINATION
from radiator.columns.evolution import evolve
from radiator.columns.files import open_store
from radiator.columns.heads import Holdings, ends, stored
from radiator.columns.options import ReadOptions
from radiator.columns.scan import LostRecords
from radiator.columns.selection import HIGH, LOW, Selection
from radiator.columns.typed import read_schema, typed_columns
from radiator.columns.warn import warn
from radiator.errors import ConfigError, StorageError
from radiator.routing.pattern import ANY, ONE, ONE_OR_MORE, Pattern, parse_list, segments
from radiator.spark import options as read_options
from radiator.spark.boundary import Boundary, find_boundary, names_in, report_gaps, whole
from radiator.spark.deliveries import deliveries
from radiator.spark.json_schema import spark_field, struct_of
from radiator.spark.options import MESSAGES
from radiator.spark.positions import parse_time
from radiator.spark.schema import BY_NAME, DELIVERIES, SCHEMA, listed, select, unknown
from radiator.spark.session import read
from radiator.spark.spelling import plain
from radiator.spark.struct_columns import filled
from radiator.spark.typed import CORRUPT, names_of, with_fields
from radiator.spark.uris import arrow_uri, hadoop_uri

TRIES_MAX: Final = 10  # each failed attempt means that a whole archive run happened meanwhile

KEY: Final = ("partition", "offset")  # of a message
_BY_MESSAGE: Final = {"table", "destination", "partition", "subscribe", "subscribepattern"}
_OF_CURSOR: Final = {"asofcursor", "asof"}
_BY_TIME: Final = {"starttime", "endtime", "startingtimestamp", "endingtimestamp"}

_SEGMENT: Final = r"[./][^./]*"  # a segment of a name, after a separator was put before the name
_WILD: Final = {ONE: _SEGMENT, ONE_OR_MORE: f"(?:{_SEGMENT})+", ANY: f"(?:{_SEGMENT})*"}

Path = str | os.PathLike[str]
Time = int | str | date

_ENDS: Final = "it sets the start and the end of the log itself"
_TAKEN: Final = {
    "path": _ENDS,
    "startingoffsets": _ENDS,
    "endingoffsets": _ENDS,
    "startingoffsetsbytimestamp": f"{_ENDS}; use start= and end= for times",
    "endingoffsetsbytimestamp": f"{_ENDS}; use start= and end= for times",
    "archive": "use the argument archive=",
    "failondataloss": "use the argument fail_on_data_loss=",
    "pushdown": "its DataFrame may be used in many queries, and the option is safe in one query only",
}


class _NotThere(Exception):
    """Spark does not find a file that the commits name."""


def table(
    spark: SparkSession,
    data: Path | None,
    archive: Path | None = None,
    *,
    destination: str | None = None,
    partition: str | None = None,
    columns: Iterable[str] | None = None,
    start: Time | None = None,
    end: Time | None = None,
    schema: Path | Mapping[str, Any] | StructType | None = None,
    typed: bool = True,
    view: str | None = None,
    table: str = MESSAGES,
    as_of_cursor: str | None = None,
    as_of: Time | None = None,
    fail_on_data_loss: bool = True,
    report: Callable[[str], None] = warn,
    **options: Any,
) -> DataFrame:
    """Return every record in the archive and the log as of now, each once.

    Args:
        spark: A session with the format registered.
        data: The data directory of the broker, or the URI of a copy; None reads the archive alone.
        archive: The path or the URI of the archive; None reads the log alone.
        destination: The destinations to read: names and patterns, separated by commas.
        partition: The partitions to read: names, separated by commas.
        columns: The columns to return; None returns all.
        start: The first ``receive_time``: RFC 3339, a date or datetime, 19 digits of nanoseconds or 13 of milliseconds.
        end: The ``receive_time`` after the last one, in the same forms.
        schema: Fields of JSON bodies that are columns of their own, for the whole history: the path of a JSON Schema,
            a JSON Schema as a dictionary, a StructType, or DDL such as ``"carrier STRING, dep_delay INT"``.
        typed: Whether the struct columns of rules with a schema are columns, if ``columns`` names none.
        view: The name of a temporary view for ``spark.sql``.
        table: ``messages``, or ``deliveries``: the table of ``radiator.columns.deliveries``.
        as_of_cursor: Only the messages that this queue, durable subscription or group had acknowledged.
        as_of: With ``as_of_cursor``, its moment, in the forms of ``start``; None is now. Without, an earlier version of
            the archive alone (``data=None``): its number; a time (RFC 3339, a date or datetime); or
            ``partition@offset``, the first version with that record.
        fail_on_data_loss: Raise if records are missing; else pass them to ``report``.
        report: Called with a line of text for missing records and for names that do not exist. The default prints on
            stderr.
        **options: More options of the data source, with underscores.

    Returns:
        The DataFrame, with the columns of the log (``radiator.columns.schema``), the struct columns and ``rejected``;
        with ``schema``, the fields of the bodies and ``_corrupt_record``.

    Raises:
        NoArchive: There is no archive at ``archive``, and ``data`` is None.
        NoStore: There is no store at ``data``.
        LostRecords: Records are missing, and ``fail_on_data_loss`` is set.
        ConfigError: An argument or an option has a wrong value.
        StorageError: Archive or store cannot be read, or they belong to different logs.

    Example:
        With a store in ``./data`` and an archive in ``./archive``::

            df = table(spark, "./data", "./archive", destination="/topic/flights.>", view="flights")
            spark.sql("SELECT destination, count(*) FROM flights GROUP BY destination").show(truncate=False)
    """
    if data is None and archive is None:
        raise ConfigError("table: expected the broker's data directory, or an archive, or both; got neither")
    version = None if as_of_cursor is not None else _version(as_of)
    if version is not None and (data is not None or archive is None):
        raise ConfigError("table: as_of is a version of the archive: expected an archive and data=None")
    root = None if data is None else os.fspath(data)
    given = _options(
        options,
        destination=destination,
        partition=partition,
        start_time=_moment("start", start),
        end_time=_moment("end", end),
        table=table,
        as_of_cursor=as_of_cursor,
        as_of=None if as_of_cursor is None else _moment("as_of", as_of),
        fail_on_data_loss=str(fail_on_data_loss).lower(),
    )
    asked = read_options.parse({"path": root or ".", **given})
    if asked.deliveries is not None and schema is not None:
        raise ConfigError("table: deliveries have no bodies: drop schema=")
    fields = None if schema is None else _given(schema)
    files = None if archive is None else open_files(arrow_uri(os.fspath(archive)))
    both = _ArchiveAndLog(spark, root, files, asked, given, version, report)
    df = both.messages(columns, fields, typed) if asked.deliveries is None else both.deliveries(columns)
    if view is not None:
        df.createOrReplaceTempView(view)
    return df


# --- options ----------------------------------------------------------------------------------------------------------


def _version(as_of: Time | None) -> AsOf | None:
    return as_of if as_of is None or isinstance(as_of, int | str | datetime) else f"{as_of}T00:00:00Z"


def _options(others: Mapping[str, Any], **chosen: str | None) -> dict[str, str]:
    """Return the options of the data source: ``chosen`` by the arguments of ``table``, and the others."""
    for name in others:
        if plain(name) in _TAKEN:
            raise ConfigError(f"table has no option {name}: {_TAKEN[plain(name)]}")
    return {
        **{name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in others.items()},
        **{name: value for name, value in chosen.items() if value is not None},
    }


def _without(given: Mapping[str, str], names: Set[str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if plain(name) not in names}


def _moment(argument: str, time: Time | None) -> str | None:
    """Return a time as a text that the options parse without ambiguity."""
    if time is None:
        return None
    if isinstance(time, str) or not isinstance(time, int | datetime):
        return rfc3339(parse_time(str(time), argument, now_ns()))  # archive and log get the same moment
    try:
        return rfc3339(time_ns(time))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"table: {argument}: {error}") from None


# --- columns ----------------------------------------------------------------------------------------------------------


def _given(schema: Any) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, Mapping):
        return struct_of(schema)
    text = os.fspath(schema)
    if isinstance(schema, os.PathLike) or text.endswith(".json") or "://" in text:
        folder, _, name = (text if "://" in text else os.path.abspath(text)).rpartition("/")
        place = open_store(folder or "/")
        return struct_of(read_schema(place, f"{place.root.rstrip('/')}/{name}"))
    try:
        parsed = StructType.fromDDL(text)
    except Exception as error:
        raise ConfigError(
            f'schema: expected the path of a JSON Schema (*.json), or DDL such as "carrier STRING", got {text!r}: '
            f"{next(filter(None, str(error).splitlines()), 'it is neither')}; for a file of another name give a Path"
        ) from None
    return parsed


def _columns(columns: Iterable[str] | None, known: list[str], fields: StructType | None) -> tuple[list[str], list[str]]:
    """Return the columns that the caller gets, and the columns to read for them."""
    own = [] if fields is None else [*names_of(fields, known).values(), CORRUPT]
    if columns is None:
        return [*known, *own], known
    wanted = listed(columns)
    for name in wanted:
        if name not in known and name not in own:
            raise ConfigError(unknown(name, "this table", [*known, *own]))
    needed = [name for name in known if name in wanted or (name == "body" and set(wanted) & set(own))]
    return wanted, needed or ["offset"]


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ArchiveAndLog:
    """The archive and the log of a call of ``table``, and what the call asks of them.

    Attributes:
        spark: The session.
        root: The path or the URI of the store; None reads the archive alone.
        files: The archive; None reads the log alone.
        asked: The options of the data source, parsed.
        given: The same, as texts.
        version: The version of the archive; None is the latest.
        report: Called with a line of text for missing records and for names that do not exist.
    """

    spark: SparkSession
    root: str | None
    files: Files | None
    asked: ReadOptions
    given: Mapping[str, str]
    version: AsOf | None
    report: Callable[[str], None]

    def messages(self, columns: Iterable[str] | None, fields: StructType | None, typed: bool) -> DataFrame:
        """Return the messages; ``fields``: of their bodies, which are columns of their own."""
        acknowledged = None
        if self.files is not None and self.asked.as_of_cursor is not None:
            acknowledged = self._acknowledged()  # before the messages, which are stored before they are acknowledged
        found = self._boundary()
        of_log: Sequence[pa.Field] = ()
        structs: Sequence[pa.Field] = ()
        if typed or columns is not None:
            of_log = () if self.root is None else typed_columns(open_store(self.root, self.asked.storage)).fields()
            structs = evolve(found.structs, of_log)
        known = StructType([*SCHEMA.fields, *map(spark_field, structs)])
        wanted, needed = _columns(columns, known.names, fields)
        keys = [name for name in KEY if acknowledged is not None and name not in needed]
        df = self._rows(found, StructType([known[name] for name in (*needed, *keys)]), of_log)
        if acknowledged is not None:
            df = df.join(acknowledged, [*KEY], "left_semi")
        if fields is not None:
            df = with_fields(df, fields)
        return df.select(*(f"`{name.replace('`', '``')}`" for name in wanted)) if wanted != df.columns else df

    def deliveries(self, columns: Iterable[str] | None) -> DataFrame:
        """Return the deliveries."""
        names = select(DELIVERIES.names if columns is None else columns, table=DELIVERIES).names
        given = {**_without(self.given, _BY_MESSAGE), "destination": DESTINATION}
        raw = StructType([BY_NAME[name] for name in RAW])
        df = deliveries(replace(self, given=given)._rows(self._boundary(), raw))
        for column, condition in () if self.asked.deliveries is None else self.asked.deliveries.conditions:
            if condition.kind == "pattern":
                patterns = [each for text in condition.values for each in parse_list(text)]
                df = df.where(reduce(or_, map(_matches, patterns)))
            else:
                df = df.where(F.col(column).isin(list(condition.values)))
        return df.select(*names)

    def _acknowledged(self) -> DataFrame:
        """Return partition and offset of each message that the cursor of the options had acknowledged."""
        self._check_beginning()
        asked = replace(self.asked, selection=of_deliveries(Selection()), deliveries=None)
        given = _without(self.given, _BY_MESSAGE | _BY_TIME | _OF_CURSOR)
        df = replace(self, asked=asked, given=given).deliveries(None)
        df = df.where((F.col("subscription") == asked.as_of_cursor) & (F.col("outcome") == ACKED))
        if asked.as_of_ns is not None:
            df = df.where(F.col("settled_at") <= F.timestamp_micros(F.lit(asked.as_of_ns // 1000)))
        return df.select(*KEY)

    def _check_beginning(self) -> None:
        """Report deliveries that were removed before the first run of the archiver."""
        assert self.files is not None
        state = load(self.files)
        starts = {
            span.partition: 0
            for each in state.files.values()
            for span in each.spans
            if DESTINATION in (each.destinations_of(span) or ())
        }
        if self.root is not None:
            place = open_store(self.root, self.asked.storage)
            holdings = Holdings(place.fs)
            for name, end in ends(place).items():
                if holdings.may_hold(name, end, DESTINATION.__eq__):
                    starts[name] = stored(place.fs, name, end).log_start_offset
        for name, first in starts.items():
            first = state.starts.get(name, 0) if name in state.ends else first
            if first and self.asked.fail_on_data_loss:
                raise LostRecords(
                    f"as_of_cursor: partition {name!r}: the deliveries 0 to {first - 1} were removed before they were "
                    "archived. To do without them: fail_on_data_loss=False"
                )
            if first:
                self.report(f"skipped: partition {name!r}: the deliveries 0 to {first - 1}")

    def _boundary(self) -> Boundary:
        try:
            return find_boundary(self.root, self.files, self.asked.selection, self.asked.storage, self.version)
        except ValueError as error:
            raise ConfigError(f"table: as_of: {error}") from None

    def _rows(self, found: Boundary, needed: StructType, of_log: Sequence[pa.Field] = ()) -> DataFrame:
        """Return the records on both sides of a boundary; ``of_log``: the struct columns that the log has."""
        for _ in range(TRIES_MAX):
            report_gaps(found, self.asked.fail_on_data_loss, self.report)
            try:
                sides = self._archived(found.files, needed)
                break
            except _NotThere as error:  # removed since its commit was read
                before, found = found, self._boundary()
                if before.files == found.files:
                    raise StorageError(
                        f"{self.files and self.files.uri}: Spark does not find all files that the commits name: "
                        f"{error}; restore them, or let Spark reach the archive"
                    ) from None
        else:
            raise StorageError(f"{self.files and self.files.uri}: its files change faster than they can be listed")
        if self.root is not None and (found.log or not sides):
            sides.append(self._live(self.root, found, needed, of_log))
        if not sides:
            return self.spark.createDataFrame([], needed)
        return reduce(DataFrame.unionByName, sides)

    def _live(self, root: str, found: Boundary, needed: StructType, of_log: Sequence[pa.Field]) -> DataFrame:
        given = dict(self.given)  # without an archive, the source itself selects the acknowledged messages
        if self.files is not None:
            given = {**_without(given, _OF_CURSOR), "archive": self.files.given}
        given["starting_offsets"] = json.dumps({name: low for name, (low, _) in found.log.items()})
        given["ending_offsets"] = json.dumps({name: high for name, (_, high) in found.log.items()})
        own = {each.name for each in of_log}
        names = [name for name in needed.names if name in BY_NAME or name in own]
        return filled(read(self.spark, root, columns=names or ["offset"], **given), needed)

    def _archived(self, wanted: Sequence[DataFile], needed: StructType) -> list[DataFrame]:
        """Return at most two DataFrames: of the files whose rows all match, and of the files that need a filter."""
        selection = self.asked.selection
        all_of = [each for each in wanted if whole(each, selection)]
        some_of = [each for each in wanted if not whole(each, selection)]
        sides = []
        if all_of:
            sides.append(self._parquet(all_of, needed))
        if some_of:
            more = [BY_NAME[name] for name in ("destination", "receive_ns", "partition") if name not in needed.names]
            df = self._parquet(some_of, StructType([*needed.fields, *more]))
            for condition in _conditions(some_of, selection):
                df = df.where(condition)
            sides.append(df.select(*needed.names))
        return sides

    def _parquet(self, wanted: Sequence[DataFile], needed: StructType) -> DataFrame:
        """Return a DataFrame of exactly these files, without silently skipped rows.

        A column that a file lacks is null.
        """
        assert self.files is not None
        reader = self.spark.read.schema(needed).options(
            recursiveFileLookup="true",  # else Spark converts directories like date=... to columns
            __globPaths__="false",  # brackets in a path are no pattern
            ignoreMissingFiles="false",
            ignoreCorruptFiles="false",
            datetimeRebaseMode="CORRECTED",
            **{"parquet.page.verify-checksum.enabled": "true"},
        )
        try:
            df = reader.parquet(*(hadoop_uri(self.files.address(each.path)) for each in wanted))
        except AnalysisException as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise
            raise _NotThere(str(error).splitlines()[0]) from None
        listed = len(df.inputFiles())
        if listed != len(wanted):  # Spark silently skips a file that is deleted while it lists
            raise _NotThere(f"it lists {listed} of {len(wanted)}")
        return df


def _conditions(wanted: Sequence[DataFile], selection: Selection) -> Iterable[Column]:
    yield from _partitions(wanted, selection)
    if selection.receive_low_ns > LOW:
        yield F.col("receive_ns") >= selection.receive_low_ns
    if selection.receive_high_ns < HIGH:
        yield F.col("receive_ns") < selection.receive_high_ns
    if selection.destinations:
        names = names_in(wanted, selection)
        if names is not None:
            yield F.col("destination").isin(names)
        else:
            for condition in selection.destinations:
                patterns = [each for text in condition.values for each in parse_list(text)]
                yield reduce(or_, map(_matches, patterns))


def _partitions(wanted: Sequence[DataFile], selection: Selection) -> Iterable[Column]:
    """Yield the conditions on the partition, if a file has records of others too."""
    names = set[str]().union(*(each.partitions for each in wanted))
    chosen = set(filter(selection.wants_partition, names))
    if chosen != names:
        yield F.col("partition").isin(sorted(chosen))


def _matches(pattern: Pattern) -> Column:
    if pattern.is_literal:
        return F.col("destination") == pattern.text
    parts = (_WILD.get(part) or f"[./]{re.escape(part)}" for part in segments(pattern.text))
    return F.concat(F.lit("."), F.col("destination")).rlike(rf"\A{''.join(parts)}\z")
