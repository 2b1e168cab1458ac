"""What ``.option(...)`` accepts: one table, parsed strictly.

Names are compared without case and underscores, so ``start_time`` and ``startTime`` are one option, and the options
of Spark's Kafka source that mean the same here (``startingOffsets``, ``endingOffsets``, ``failOnDataLoss``) can be
used under the names people know. An unknown option or a value that does not fit is an error that names the nearest
one and shows what was expected: an ignored option would be a wrong result.

Knows: text. Must not know: pyspark, files. ``OPTIONS`` is what documents and tests iterate over.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from radiator.clock import NS_PER_SECOND
from radiator.columns.options import ROWS_PER_BATCH, ReadOptions
from radiator.columns.selection import HIGH, LOW, Selection
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.pattern import parse_list

STORAGE = "storage."  # options that begin so are arguments of the file system


class Option(NamedTuple):
    name: str
    default: str
    meaning: str


OPTIONS: tuple[Option, ...] = (
    Option("path", "required", "the broker's data directory (data_dir), or the URI of a copy of it: s3://bucket/data"),
    Option("destination", "all", "names or patterns, a comma list: /topic/flights.>, /queue/delays"),
    Option("partition", "all", "names of partitions, a comma list"),
    Option("start_time", "none", "receive_time from here: RFC 3339 (UTC where it says no zone) or epoch nanoseconds"),
    Option("end_time", "none", "receive_time before here"),
    Option("starting_offsets", "earliest", 'earliest, a number, or JSON by partition: {"flights": 1000}'),
    Option("ending_offsets", "latest", "latest, a number, or JSON by partition (then only these); exclusive"),
    Option("fail_on_data_loss", "true", "damaged or vanished records: true is an error, false skips and warns"),
    Option("pushdown", "false", "true: filters of the DataFrame skip data too; see the warning in docs/spark.md"),
    Option("rows_per_batch", str(ROWS_PER_BATCH), "rows of one Arrow batch"),
    Option("split_bytes", "by size and CPUs", "log bytes that one task reads, about"),
)


def plain(name: str) -> str:
    return name.replace("_", "").lower()


_BY_PLAIN = {plain(option.name): option.name for option in OPTIONS}


def parse(given: Mapping[str, str]) -> ReadOptions:
    """Raises ConfigError."""
    values: dict[str, str] = {}
    storage: dict[str, str] = {}
    for key, value in given.items():
        if key.lower().startswith(STORAGE):
            storage[key[len(STORAGE) :]] = str(value)
            continue
        name = _BY_PLAIN.get(plain(key))
        if name is None:
            near = difflib.get_close_matches(plain(key), _BY_PLAIN, n=1)
            hint = f" (did you mean {_BY_PLAIN[near[0]]}?)" if near else ""
            raise ConfigError(f"option {key!r} is not known{hint}: expected {', '.join(_BY_PLAIN.values())}")
        values[name] = str(value)
    if not values.get("path"):
        raise ConfigError(
            "option 'path' is missing: expected the broker's data directory, "
            'as in spark.read.format("radiator").load("./data")'
        )
    return ReadOptions(
        path=values["path"],
        selection=_selection(values),
        fail_on_data_loss=_flag(values, "fail_on_data_loss", True),
        pushdown=_flag(values, "pushdown", False),
        rows_per_batch=_number(values, "rows_per_batch", ROWS_PER_BATCH),
        split_bytes=_number(values, "split_bytes", 0) or None,
        storage=storage,
    )


def parse_time(text: str, option: str) -> int:
    """Nanoseconds since 1970 from epoch nanoseconds or RFC 3339; without a zone it is UTC. Raises ConfigError."""
    text = text.strip()
    if re.fullmatch(r"-?\d{1,19}", text) and len(text) > 8:  # 20130101 is a date, not 20 ms after the epoch
        return int(text)
    try:
        fraction = re.search(r"[.,](\d{1,9})\d*", text)
        whole = datetime.fromisoformat(text[: fraction.start()] + text[fraction.end() :] if fraction else text)
    except ValueError:
        raise ConfigError(
            f"option {option}: expected RFC 3339 such as 2013-01-31T12:00:00Z, or epoch nanoseconds, got {text!r}"
        ) from None
    if whole.tzinfo is None:
        whole = whole.replace(tzinfo=UTC)
    nanoseconds = int(fraction.group(1).ljust(9, "0")) if fraction else 0
    return int(whole.timestamp()) * NS_PER_SECOND + nanoseconds


def _selection(values: Mapping[str, str]) -> Selection:
    selection = Selection()
    if "destination" in values:
        try:
            parse_list(values["destination"])
        except ProtocolError as error:
            raise ConfigError(f"option destination: {error.message}") from None
        selection = selection.destination("pattern", values["destination"])
    if "partition" in values:
        selection = selection.partition("in", *[name.strip() for name in values["partition"].split(",")])
    selection = selection.received(
        parse_time(values["start_time"], "start_time") if "start_time" in values else LOW,
        parse_time(values["end_time"], "end_time") if "end_time" in values else HIGH,
    )
    low, starts = _offsets(values, "starting_offsets", "earliest", LOW)
    high, ends = _offsets(values, "ending_offsets", "latest", HIGH)
    selection = selection.offsets(low, high)
    return Selection(**{**vars(selection), "starts": starts or {}, "ends": ends})


def _offsets(values: Mapping[str, str], option: str, word: str, unbounded: int) -> tuple[int, dict[str, int] | None]:
    text = values.get(option, word).strip()
    if text == word:
        return unbounded, None
    if text.isascii() and text.isdigit():
        return int(text), None
    try:
        parsed = json.loads(text)
        assert isinstance(parsed, dict) and all(type(value) is int and value >= 0 for value in parsed.values())
    except (ValueError, AssertionError):
        raise ConfigError(
            f"option {option}: expected {word}, a number, or JSON such as "
            f'{{"partition name": 1000}} with offsets of 0 or more, got {text!r}'
        ) from None
    return unbounded, parsed


def _flag(values: Mapping[str, str], option: str, default: bool) -> bool:
    text = values.get(option, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {option}: expected true or false, got {text!r}")
    return text == "true"


def _number(values: Mapping[str, str], option: str, default: int) -> int:
    text = values.get(option)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"option {option}: expected a whole number above 0, got {text!r}")
    return int(text)
