"""Parse the options of reading (``.option(...)``): one table for batches and streams.

Names are compared without case and underscores, so ``start_time`` and ``startTime`` are one option. Options of Spark's
Kafka source with the same meaning (``subscribe``, ``startingOffsets``, ``failOnDataLoss``) have Kafka's names. An
unknown option or a wrong value is an error that shows what was expected and the closest name, because an ignored option
would give a wrong result.

Must not import pyspark or files. Documentation and tests iterate over ``OPTIONS``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from itertools import product
from typing import NamedTuple

from radiator.clock import now_ns
from radiator.columns.deliveries import of_deliveries
from radiator.columns.options import EARLIEST, ROWS_PER_BATCH, Positions, ReadOptions
from radiator.columns.selection import HIGH, LOW, DeliveryFilter, Selection
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.pattern import is_pattern, parse_list
from radiator.spark import kafka
from radiator.spark.positions import parse_offsets, parse_time, parse_times
from radiator.spark.spelling import LONG_MAX, Values, expected, named, number, plain, short


class Use(Enum):
    """The kind of query that options are for. EITHER allows the options of both kinds."""

    BATCH = "batch"
    STREAM = "stream"
    EITHER = "either"


MESSAGES, DELIVERIES = "messages", "deliveries"  # the tables
STORAGE = "storage."  # options that begin so are arguments of the file system


class Option(NamedTuple):
    """An option.

    Attributes:
        name: The name, with underscores.
        default: The default, for the documentation.
        meaning: The description, for the documentation.
        only: The kind of query that has this option.
    """

    name: str
    default: str
    meaning: str
    only: Use = Use.EITHER


OPTIONS: tuple[Option, ...] = (
    Option("path", "required", "the broker's data directory (data_dir), or the URI of a copy of it: s3://bucket/data"),
    Option("subscribe", "all", "names of destinations, a comma list: /topic/flights.JFK,/queue/delays"),
    Option("subscribe_pattern", "all", "patterns of destinations, a comma list: /topic/flights.>"),
    Option("destination", "all", "names or patterns, a comma list: /topic/flights.>, /queue/delays"),
    Option("partition", "all", "names of partitions, a comma list"),
    Option("starting_offsets", "earliest", 'earliest, latest (streams), a number, or JSON: {"flights": 1000}'),
    Option("ending_offsets", "latest", "latest, a number, or JSON (then only these partitions); exclusive", Use.BATCH),
    Option("start_time", "none", "receive_time from here: RFC 3339, 13 digits of milliseconds, or 19 of nanoseconds"),
    Option("end_time", "none", "receive_time before here", Use.BATCH),
    Option("starting_timestamp", "none", "start_time under Kafka's name"),
    Option("ending_timestamp", "none", "end_time under Kafka's name", Use.BATCH),
    Option("starting_offsets_by_timestamp", "none", 'JSON by partition: {"flights": 1700000000000}'),
    Option("ending_offsets_by_timestamp", "none", "the same, exclusive; only these partitions", Use.BATCH),
    Option("max_offsets_per_trigger", "none", "offsets of one micro-batch, about", Use.STREAM),
    Option("min_partitions", "1", "tasks, at least, as far as the index can cut"),
    Option("fail_on_data_loss", "true", "damaged or vanished records: true is an error, false skips and warns"),
    Option("warn_once", "none", "a directory that reads of one machine share: each warning is printed once by all"),
    Option("archive", "none", "an archive of this store: what the log has lost by now is read from there"),
    Option("typed", "true", "struct columns of rules with a schema, if no columns are named; see docs/spark.md"),
    Option("table", MESSAGES, "messages, or deliveries: who received what, and how it ended"),
    Option("as_of_cursor", "none", "messages that this queue or durable subscription had acknowledged", Use.BATCH),
    Option("as_of", "now", "the moment of as_of_cursor", Use.BATCH),
    Option("pushdown", "false", "filters of the DataFrame skip data too; see docs/spark.md", Use.BATCH),
    Option("rows_per_batch", str(ROWS_PER_BATCH), "rows of one Arrow batch"),
    Option("split_bytes", "by size and CPUs", "log bytes that one task reads, about"),
)
_WORDS_OF = {Use.BATCH: "spark.read", Use.STREAM: "spark.readStream"}
_COLUMNS = ("columns",)  # an argument of ``read``, and no option
_OF_A_CATALOGUE = (
    "owner",
    "location",
    "provider",
    "external",
    "ismanagedlocation",
    "tabletype",
)  # CREATE TABLE has them
_ONE_OF = (
    ("subscribe", "subscribe_pattern", "destination"),
    ("start_time", "starting_timestamp"),
    ("end_time", "ending_timestamp"),
)


def _is_storage(key: str) -> bool:
    return key.lower().startswith(STORAGE)


_BY_NAME = {option.name: option for option in OPTIONS}
_NAMES = {plain(name): name for name in _BY_NAME}


def is_deliveries(given: Mapping[str, object]) -> bool:
    """Return True if options select the table of deliveries.

    Args:
        given: The options as the user wrote them.
    """
    return any(plain(key) == "table" and str(value).strip().lower() == DELIVERIES for key, value in given.items())


def parse(given: Mapping[str, str], use: Use = Use.BATCH) -> ReadOptions:
    """Parse the options of a read.

    Args:
        given: The options as Spark passes them.
        use: The kind of query.

    Returns:
        The options as values.

    Raises:
        ConfigError: An option is unknown, missing, of the other kind of query, or has a wrong value.

    Example:
        >>> parse({"path": "./data", "startingOffsets": "17"}).selection.offset_low
        17
    """
    values = _known({key: value for key, value in given.items() if not _is_storage(key)}, use)
    if not values.get("path"):
        raise ConfigError(
            "option 'path' is missing: expected the broker's data directory, "
            'as in spark.read.format("radiator").load("./data")'
        )
    for names in _ONE_OF:
        both = [name for name in names if name in values]
        if len(both) > 1:
            said = " and ".join(map(values.called, both))
            raise ConfigError(f"options {said}: expected one of them only, because both mean the same")
    # A stream is planned again when it restarts from its checkpoint, so a relative start would move and skip records.
    now = now_ns() if use is Use.BATCH else None
    start = _time(values, now, "start_time", "starting_timestamp")
    end = _time(values, now, "end_time", "ending_timestamp")
    start_times = _times(values, "starting_offsets_by_timestamp")
    end_times = _times(values, "ending_offsets_by_timestamp")
    deliveries = _of_deliveries(values)
    selection = _names(values) if deliveries is None else of_deliveries(Selection())
    begins = _begins(values, use)
    if use is Use.STREAM:
        begins = Positions(begins.offset, begins.offsets, start, start_times)
        start_times = {}
    else:
        selection = selection.received(LOW if start is None else start, HIGH if end is None else end)
        selection = _offsets(values, selection, begins)
        _check_order(values, selection, start_times, end_times)
    return ReadOptions(
        path=values["path"],
        selection=selection,
        fail_on_data_loss=_flag(values, "fail_on_data_loss", True),
        pushdown=_flag(values, "pushdown", False),
        typed=_flag(values, "typed", True),
        rows_per_batch=number(values, "rows_per_batch", ROWS_PER_BATCH),
        split_bytes=number(values, "split_bytes", 0, LONG_MAX) or None,
        tasks_min=number(values, "min_partitions", 1),
        begins=begins,
        start_times_ns=start_times,
        end_times_ns=end_times,
        offsets_per_trigger_max=number(values, "max_offsets_per_trigger", 0, LONG_MAX) or None,
        archive=values.get("archive"),
        warn_once=values.get("warn_once"),
        deliveries=deliveries,
        as_of_cursor=values.get("as_of_cursor"),
        as_of_ns=_time(values, now, "as_of"),
        storage={key[len(STORAGE) :]: str(value) for key, value in given.items() if _is_storage(key)},
    )


def _known(given: Mapping[str, str], use: Use) -> Values:
    """Return the values by the names of ``OPTIONS``."""
    values = named(given, _NAMES, _unknown)
    for name in values:
        only = _BY_NAME[name].only
        if Use.EITHER not in (use, only) and only is not use:
            wanted, got = _WORDS_OF[only], _WORDS_OF[use]
            said = values.called(name)
            raise ConfigError(f"option {said} is for {only.value} queries ({wanted}), and this is {got}: drop it")
    return values


def _unknown(key: str) -> str:
    if plain(key) == "paths":
        return "load: expected one data directory, got several; read each one, and join them with unionByName"
    if plain(key) in _OF_A_CATALOGUE:
        return (
            "a log is not a table of Spark's catalogue: expected a view of the session, "
            "CREATE TEMPORARY VIEW log USING radiator OPTIONS (path './data', subscribe '/topic/a')"
        )
    if plain(key) in _COLUMNS or difflib.get_close_matches(plain(key), _COLUMNS, n=1, cutoff=0.8):
        return (
            f"option {key!r} is not known; for columns expected columns=[...] of radiator.spark.read, "
            'or .schema("destination STRING, size BIGINT") of spark.read'
        )
    if plain(key) == "url":
        return "option 'url' is for writing only: the source reads files and connects to no broker; drop it"
    instead = kafka.instead(plain(key))
    if instead is not None:
        return f"option {kafka.called(key)!r} of Spark's Kafka source has no meaning here: {instead}"
    return f"option {key!r} is not known{expected(key, _NAMES)}"


def _names(values: Values) -> Selection:
    selection = Selection()
    if "subscribe" in values:
        names = [name.strip() for name in values["subscribe"].split(",")]
        wild = next((name for name in names if not name or is_pattern(name)), None)
        if wild is not None:
            raise ConfigError(
                f"option subscribe: expected names of destinations, got {wild!r}; patterns go into subscribePattern"
            )
        selection = selection.destination("in", *names)
    for option in ("subscribe_pattern", "destination"):
        if option in values:
            selection = selection.destination("pattern", _pattern(values, option))
    if "partition" in values:
        names = [name.strip() for name in values["partition"].split(",")]
        if not all(names):
            raise ConfigError(
                f"option partition: expected names of partitions, a comma list, got {values['partition']!r}"
            )
        selection = selection.partition("in", *names)
    return selection


def _of_deliveries(values: Values) -> DeliveryFilter | None:
    """Return the deliveries to read, or None for messages. Destinations and partitions are those of the messages."""
    table = values.get("table", MESSAGES).strip().lower()
    if table not in (MESSAGES, DELIVERIES):
        raise ConfigError(f"option {values.called('table')}: expected {MESSAGES} or {DELIVERIES}, got {table!r}")
    if "as_of" in values and "as_of_cursor" not in values:
        raise ConfigError(
            f"option {values.called('as_of')}: expected {values.called('as_of_cursor')} too, the name of a queue or "
            "of a durable subscription"
        )
    if table == MESSAGES:
        return None
    if "as_of_cursor" in values:
        raise ConfigError(
            f"option {values.called('as_of_cursor')} selects messages, and table is {DELIVERIES}: drop one of them"
        )
    about, found = _names(values), DeliveryFilter()
    for column, conditions in (("destination", about.destinations), ("partition", about.partitions)):
        for each in conditions:
            found = found.where(column, each.kind, *each.values)
    return found


def _pattern(values: Values, option: str) -> str:
    text, said = values[option], values.called(option)
    if option == "subscribe_pattern" and kafka.looks_like_a_regular_expression(text):
        raise ConfigError(
            f"option {said}: expected a pattern such as /topic/flights.>, got what looks like a regular expression: "
            f"{text!r} (* is one segment of a name, > one or more at the end, # any number)"
        )
    try:
        parse_list(text)
    except ProtocolError as error:
        raise ConfigError(f"option {said}: {error.message}") from None
    return text


def _begins(values: Values, use: Use) -> Positions:
    text, said = values.get("starting_offsets"), values.called("starting_offsets")
    if text is None:
        return Positions()
    if use is Use.BATCH and text.strip() == "latest":
        raise ConfigError(
            f"option {said}: expected earliest, a number, or JSON, got 'latest': "
            "a batch that begins at the end reads nothing; latest is for spark.readStream"
        )
    words = ("earliest",) if use is Use.BATCH else ("earliest", "latest")
    given = parse_offsets(text, said, *words)
    if isinstance(given, dict):
        return Positions(EARLIEST, given)
    if use is Use.STREAM and given >= 0:
        raise ConfigError(f"option {said}: expected earliest, latest or JSON for a stream, got {text}")
    return Positions(given)


def _offsets(values: Values, selection: Selection, begins: Positions) -> Selection:
    """Return the selection limited by starting_offsets and ending_offsets, for a batch."""
    low = EARLIEST if begins.offset is None else begins.offset
    selection = selection.offsets(LOW if low < 0 else low)
    starts = {name: offset for name, offset in begins.offsets.items() if offset >= 0}
    end = parse_offsets(values.get("ending_offsets", "latest"), values.called("ending_offsets"), "latest")
    if isinstance(end, dict):
        return replace(selection, starts=starts, ends={name: HIGH if each < 0 else each for name, each in end.items()})
    return replace(selection.offsets(high=HIGH if end < 0 else end), starts=starts)


def _check_order(
    values: Values, selection: Selection, start_times: Mapping[str, int], end_times: Mapping[str, int]
) -> None:
    """Raise if a start is after its end.

    Bounds for all partitions are compared with each other, and bounds of one partition with each other. A number for
    all may be after the end of a single partition.
    """

    def check(begin: str, until: str, low: int, high: int, of: str = "") -> None:
        if begin in values and until in values and low > high:
            said = " and ".join(map(values.called, (begin, until)))
            got = " and ".join(short(values[name]) for name in (begin, until))
            raise ConfigError(f"options {said}{of}: expected a start before the end, got {got}")

    def check_each(begin: str, until: str, lows: Mapping[str, int], highs: Mapping[str, int]) -> None:
        for name in lows.keys() & highs.keys():
            check(begin, until, lows[name], highs[name], f", partition {name!r}")

    check("starting_offsets", "ending_offsets", selection.offset_low, selection.offset_high)
    check_each("starting_offsets", "ending_offsets", selection.starts, selection.ends or {})
    check_each("starting_offsets_by_timestamp", "ending_offsets_by_timestamp", start_times, end_times)
    for begin, until in product(("start_time", "starting_timestamp"), ("end_time", "ending_timestamp")):
        check(begin, until, selection.receive_low_ns, selection.receive_high_ns)


def _time(values: Values, now: int | None, *options: str) -> int | None:
    return next((parse_time(values[name], values.called(name), now) for name in options if name in values), None)


def _times(values: Values, option: str) -> dict[str, int]:
    return parse_times(values[option], values.called(option)) if option in values else {}


def _flag(values: Values, option: str, default: bool) -> bool:
    text = values.get(option, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {values.called(option)}: expected true or false, got {text!r}")
    return text == "true"
