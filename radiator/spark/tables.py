"""Read archive and live log as one DataFrame and as one SQL view.

    table(spark, "./data", "./archive", destination="/topic/flights.JFK").select("carrier", "dep_delay", "receive_time")

Records below the ends of the archive are read by Spark's own Parquet reader, from exactly the files that the commits
name and that may have matching records. The rest is read by the data source ``radiator``, up to the ends of the log as
of now. If the JSON Schema of a destination is known, its fields are columns too.

Uses the boundary (``boundary``) and Spark's readers.
Invariant: a record is in the DataFrame once, whatever broker and archive do during this call or the queries.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from radiator.archive import DataFile, Files, open_files
from radiator.archive.listing import time_ns
from radiator.columns.files import open_store
from radiator.columns.scan import LostRecords
from radiator.columns.selection import HIGH, LOW, Selection
from radiator.columns.warn import warn
from radiator.errors import ConfigError, StorageError
from radiator.routing.pattern import ANY, ONE, ONE_OR_MORE, Pattern, parse_list, segments
from radiator.spark import options as read_options
from radiator.spark.boundary import Boundary, find_boundary, names_in, whole
from radiator.spark.json_schema import struct_of
from radiator.spark.positions import parse_time, spelled
from radiator.spark.schema import BY_NAME, SCHEMA, listed, unknown
from radiator.spark.schemas import read_schema, schema_of
from radiator.spark.session import read
from radiator.spark.spelling import plain
from radiator.spark.typed import CORRUPT, names_of, with_fields
from radiator.spark.uris import arrow_uri, hadoop_uri

TRIES_MAX: Final = 10  # each failed attempt means that a whole archive run happened meanwhile
LOSSES_SHOWN: Final = 5

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
    typed: bool | None = None,
    view: str | None = None,
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
        schema: The fields of JSON bodies: the path of a JSON Schema, a JSON Schema as a dictionary, a StructType, or
            DDL such as ``"carrier STRING, dep_delay INT"``.
        typed: Whether the fields of JSON bodies are columns. None: if ``schema`` is given, or if ``destination`` is
            given and the broker has stored exactly one schema for it.
        view: The name of a temporary view for ``spark.sql``.
        fail_on_data_loss: Raise if records are missing; else pass them to ``report``.
        report: Called with a line of text for missing records and for names that do not exist. The default prints on
            stderr.
        **options: More options of the data source, with underscores.

    Returns:
        The DataFrame, with the columns of the log (``radiator.columns.schema``), the fields of the bodies and
        ``_corrupt_record``.

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
    root = None if data is None else os.fspath(data)
    given = _options(destination, partition, start, end, fail_on_data_loss, options)
    asked = read_options.parse({"path": root or ".", **given})
    fields = _fields(root, asked.storage, destination, schema, typed)
    wanted, needed = _columns(columns, fields)
    files = None if archive is None else open_files(arrow_uri(os.fspath(archive)))
    df = _both(spark, root, files, asked.selection, asked.storage, needed, given, fail_on_data_loss, report)
    if fields is not None:
        df = with_fields(df, fields)
    df = df.select(*(f"`{name.replace('`', '``')}`" for name in wanted)) if wanted != df.columns else df
    if view is not None:
        df.createOrReplaceTempView(view)
    return df


def _options(
    destination: str | None, partition: str | None, start: Time | None, end: Time | None, strict: bool,
    others: Mapping[str, Any],
) -> dict[str, str]:  # fmt: skip
    for name in others:
        if plain(name) in _TAKEN:
            raise ConfigError(f"table has no option {name}: {_TAKEN[plain(name)]}")
    chosen = {
        "destination": destination,
        "partition": partition,
        "start_time": _moment("start", start),
        "end_time": _moment("end", end),
    }
    return {
        **{name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in others.items()},
        **{name: value for name, value in chosen.items() if value is not None},
        "fail_on_data_loss": str(strict).lower(),
    }


def _moment(argument: str, time: Time | None) -> str | None:
    """Return a time as a text that the options parse without ambiguity."""
    if time is None:
        return None
    if isinstance(time, str) or not isinstance(time, int | datetime):
        parse_time(str(time), argument)
        return str(time)
    try:
        return spelled(time_ns(time))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"table: {argument}: {error}") from None


# --- columns ----------------------------------------------------------------------------------------------------------


def _fields(
    root: str | None, storage: Mapping[str, str], destination: str | None, schema: Any, typed: bool | None
) -> StructType | None:
    if typed is False:
        return None
    if schema is not None:
        return _given(schema)
    if destination is None:
        if typed:
            raise ConfigError("typed=True: expected destination= (whose schema is stored) or schema=, got neither")
        return None
    place = None if root is None else open_store(root, storage)
    found = None if place is None else schema_of(place, destination)
    if found is None:
        if typed:
            raise ConfigError(
                f"typed=True: no stored schema matches all of {destination} in {root}; give one with schema="
            )
        return None
    try:
        return struct_of(found[1])
    except ConfigError as error:
        if typed:
            raise ConfigError(f"{found[0].path}: {error}") from None
        return None  # bodies that are not objects have no fields


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


def _columns(columns: Iterable[str] | None, fields: StructType | None) -> tuple[list[str], list[str]]:
    """Return the columns that the caller gets, and the columns to read for them."""
    own = [] if fields is None else [*names_of(fields, SCHEMA.names).values(), CORRUPT]
    if columns is None:
        return [*SCHEMA.names, *own], list(SCHEMA.names)
    wanted = listed(columns)
    for name in wanted:
        if name not in BY_NAME and name not in own:
            raise ConfigError(unknown(name, "this table", [*BY_NAME, *own]))
    needed = [name for name in SCHEMA.names if name in wanted or (name == "body" and set(wanted) & set(own))]
    return wanted, needed or ["offset"]


# --- rows -------------------------------------------------------------------------------------------------------------


def _both(
    spark: SparkSession, root: str | None, files: Files | None, selection: Selection, storage: Mapping[str, str],
    needed: list[str], given: Mapping[str, str], strict: bool, report: Callable[[str], None],
) -> DataFrame:  # fmt: skip
    for _ in range(TRIES_MAX):
        found = find_boundary(root, files, selection, storage)
        _report(found, strict, report)
        try:
            sides = [] if files is None else _archived(spark, files, found.files, selection, needed)
            break
        except _NotThere as error:  # merged since its commit was read
            if find_boundary(root, files, selection, storage).files == found.files:
                raise StorageError(
                    f"{files and files.uri}: Spark does not find all files that the commits name: {error}; "
                    "restore them, or let Spark reach the archive"
                ) from None
    else:
        raise StorageError(f"{files and files.uri}: its files change faster than they can be listed")
    if root is not None and (found.log or not sides):
        sides.append(_live(spark, root, files, found, needed, given))
    if not sides:
        return spark.createDataFrame([], StructType([BY_NAME[name] for name in needed]))
    return reduce(DataFrame.union, sides)


def _report(found: Boundary, strict: bool, report: Callable[[str], None]) -> None:
    gaps = found.gaps
    if gaps and strict:
        more = f"; and {len(gaps) - LOSSES_SHOWN} more" if len(gaps) > LOSSES_SHOWN else ""
        raise LostRecords(
            f"neither the archive nor the log has all records: {'; '.join(gaps[:LOSSES_SHOWN])}{more}. "
            "To read all other records: fail_on_data_loss=False"
        )
    for gap in gaps:
        report(f"skipped: {gap}")
    for gap in found.settled:
        report(f"not in the table: {gap}")
    for hint in found.hints:
        report(hint)


def _live(
    spark: SparkSession, root: str, files: Files | None, found: Boundary, needed: list[str], given: Mapping[str, str]
) -> DataFrame:
    bounds = {
        "starting_offsets": json.dumps({name: low for name, (low, _) in found.log.items()}),
        "ending_offsets": json.dumps({name: high for name, (_, high) in found.log.items()}),
    }
    known = {} if files is None else {"archive": files.given}
    return read(spark, root, columns=needed, **{**given, **bounds, **known})


def _archived(
    spark: SparkSession, files: Files, wanted: Sequence[DataFile], selection: Selection, needed: list[str]
) -> list[DataFrame]:
    """Return at most two DataFrames: of the files whose rows all match, and of the files that need a filter."""
    all_of = [each for each in wanted if whole(each, selection)]
    some_of = [each for each in wanted if not whole(each, selection)]
    sides = []
    if all_of:
        sides.append(_parquet(spark, files, all_of).select(*needed))
    if some_of:
        df = _parquet(spark, files, some_of)
        for condition in _conditions(some_of, selection):
            df = df.where(condition)
        sides.append(df.select(*needed))
    return sides


def _parquet(spark: SparkSession, files: Files, wanted: Sequence[DataFile]) -> DataFrame:
    """Return a DataFrame of exactly these files, with the types of the table, and without silently skipped rows."""
    reader = spark.read.schema(SCHEMA).options(
        recursiveFileLookup="true",  # else Spark converts directories like date=... to columns
        __globPaths__="false",  # brackets in a path are no pattern
        ignoreMissingFiles="false",
        ignoreCorruptFiles="false",
        datetimeRebaseMode="CORRECTED",
        **{"parquet.page.verify-checksum.enabled": "true"},
    )
    try:
        df = reader.parquet(*(hadoop_uri(files.address(each.path)) for each in wanted))
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        raise _NotThere(str(error).splitlines()[0]) from None
    listed = len(df.inputFiles())
    if listed != len(wanted):  # Spark silently skips a file that is deleted while it lists
        raise _NotThere(f"it lists {listed} of {len(wanted)}")
    return df


def _conditions(wanted: Sequence[DataFile], selection: Selection) -> Iterable[Column]:
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


def _matches(pattern: Pattern) -> Column:
    if pattern.is_literal:
        return F.col("destination") == pattern.text
    parts = (_WILD.get(part) or f"[./]{re.escape(part)}" for part in segments(pattern.text))
    return F.concat(F.lit("."), F.col("destination")).rlike(rf"\A{''.join(parts)}\z")
