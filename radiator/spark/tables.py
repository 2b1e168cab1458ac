"""``table``: the archive and the live log as one DataFrame, and as one view of SQL.

    table(spark, "./data", "./archive", destination="/topic/flights.JFK").select("carrier", "dep_delay", "receive_time")

What lies below the ends of the archive is read by Spark's own Parquet reader, from exactly the files that the commits
name and that can hold what is asked for; the rest by the data source ``radiator``, up to the ends of the log as they
are now. Where the JSON Schema of a destination is known, its fields are columns too.

Knows: the seam, Spark's readers. Must not know: how either side is read.
Invariant: a record is in the DataFrame once, whatever broker and archive do while this runs or its queries do.
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
from radiator.errors import ConfigError, StorageError
from radiator.routing.pattern import ANY, ONE, ONE_OR_MORE, Pattern, parse_list, segments
from radiator.spark import options as read_options
from radiator.spark.json_schema import struct_of
from radiator.spark.positions import parse_time, spelled
from radiator.spark.schema import BY_NAME, SCHEMA, listed, unknown
from radiator.spark.schemas import read_schema, schema_of
from radiator.spark.seam import Seam, names_in, seam, whole
from radiator.spark.session import read
from radiator.spark.spelling import plain
from radiator.spark.typed import CORRUPT, names_of, with_fields
from radiator.spark.unknown import tell
from radiator.spark.uris import arrow_uri, hadoop_uri

TRIES_MAX: Final = 10  # each time a whole run of the archive has come in between
LOSSES_SHOWN: Final = 5

_SEGMENT: Final = r"[./][^./]*"  # of a name with a separator put before it
_WILD: Final = {ONE: _SEGMENT, ONE_OR_MORE: f"(?:{_SEGMENT})+", ANY: f"(?:{_SEGMENT})*"}

Path = str | os.PathLike[str]
Time = int | str | date

_ENDS: Final = "it says itself where the log begins and ends"
_TAKEN: Final = {
    "path": _ENDS,
    "startingoffsets": _ENDS,
    "endingoffsets": _ENDS,
    "startingoffsetsbytimestamp": f"{_ENDS}; start= and end= are moments for both",
    "endingoffsetsbytimestamp": f"{_ENDS}; start= and end= are moments for both",
    "archive": "say it with archive=",
    "failondataloss": "say it with fail_on_data_loss=",
    "pushdown": "its DataFrame may be used in many queries, and this is safe in one only",
}


class _NotThere(Exception):
    """Spark does not find a file that was named."""


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
    tell: Callable[[str], None] = tell,
    **options: Any,
) -> DataFrame:
    """Every record that the archive and the log hold as of now, each once.

    ``destination`` (names, patterns), ``partition``, ``start`` and ``end`` (``receive_time``: RFC 3339, a datetime, 19
    digits of nanoseconds or 13 of milliseconds) choose; ``columns`` names those that are needed. ``typed``: whether the
    fields of the bodies are columns; None: if ``schema`` is given, or ``destination`` is and the broker has kept one
    schema for it. ``schema``: a JSON Schema (its path, or as a dict), a StructType, or DDL such as ``"carrier STRING,
    dep_delay INT"``. ``view``: a name for ``spark.sql``. ``tell`` hears of what is left out and of what looks like a
    slip; by default it prints on stderr. ``options``: further ones of the data source. Raises NoArchive, ConfigError,
    StorageError.
    """
    if data is None and archive is None:
        raise ConfigError("table: expected the broker's data directory, or an archive, or both; got neither")
    root = None if data is None else os.fspath(data)
    given = _options(destination, partition, start, end, fail_on_data_loss, options)
    asked = read_options.parse({"path": root or ".", **given})
    fields = _fields(root, asked.storage, destination, schema, typed)
    wanted, needed = _columns(columns, fields)
    files = None if archive is None else open_files(arrow_uri(os.fspath(archive)))
    df = _both(spark, root, files, asked.selection, asked.storage, needed, given, fail_on_data_loss, tell)
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
    """As text that no option takes for something else than nanoseconds."""
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
            raise ConfigError("typed=True: say which bodies, with destination=, or what is in them, with schema=")
        return None
    place = None if root is None else open_store(root, storage)
    found = None if place is None else schema_of(place, destination)
    if found is None:
        if typed:
            raise ConfigError(
                f"typed=True: no rule has kept a schema for all of {destination} in {root}; give one with schema="
            )
        return None
    try:
        return struct_of(found[1])
    except ConfigError as error:
        if typed:
            raise ConfigError(f"{found[0].path}: {error}") from None
        return None  # bodies that are no objects have no columns


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
    """What the caller sees, and what is read for it."""
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
    needed: list[str], given: Mapping[str, str], strict: bool, tell: Callable[[str], None],
) -> DataFrame:  # fmt: skip
    for _ in range(TRIES_MAX):
        found = seam(root, files, selection, storage)
        _tell(found, strict, tell)
        try:
            sides = [] if files is None else _archived(spark, files, found.files, selection, needed)
            break
        except _NotThere as error:  # merged since its commit was read
            if seam(root, files, selection, storage).files == found.files:
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


def _tell(found: Seam, strict: bool, tell: Callable[[str], None]) -> None:
    holes = found.holes
    if holes and strict:
        more = f"; and {len(holes) - LOSSES_SHOWN} more" if len(holes) > LOSSES_SHOWN else ""
        raise LostRecords(
            f"neither the archive nor the log has all records: {'; '.join(holes[:LOSSES_SHOWN])}{more}. "
            "To read everything else: fail_on_data_loss=False"
        )
    for hole in holes:
        tell(f"skipped: {hole}")
    for hole in found.settled:
        tell(f"not in the table: {hole}")
    for slip in found.slips:
        tell(slip)


def _live(
    spark: SparkSession, root: str, files: Files | None, found: Seam, needed: list[str], given: Mapping[str, str]
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
    """Two at most: files of which every row is wanted, and those of which some are."""
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
    """Of just these files, under their names as they are, with our types, and no rows left out in silence."""
    reader = spark.read.schema(SCHEMA).options(
        recursiveFileLookup="true",  # else directories like date=... are taken for columns
        __globPaths__="false",  # a bracket in a path is a bracket
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
    if listed != len(wanted):  # one that goes while Spark lists is left out by it without a word
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
