"""Parse option values that name a position in the log: offsets and times, for all partitions or by name.

Offsets are written as in Spark's Kafka source: a word, or JSON in which -2 is the earliest and -1 the latest. A
partition here has a name and no number, so the JSON has one level. Times are RFC 3339, or a number whose length gives
its unit: 13 digits are milliseconds since the epoch, as in Kafka, 19 are nanoseconds. Other texts are ambiguous and
refused.

Must not import pyspark or files. Every function raises ConfigError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from radiator.clock import NS_PER_SECOND, RELATIVE, relative_time
from radiator.columns.options import EARLIEST, LATEST
from radiator.errors import ConfigError
from radiator.spark.spelling import LONG_MAX, short, whole

MILLISECONDS_DIGITS, NANOSECONDS_DIGITS = 13, 19  # of the years 2001 to 2286, and 2001 to 2262
NS_PER_MS = 1_000_000
WORDS = {"earliest": EARLIEST, "latest": LATEST}
_FRACTION = r"(?:(?<=[^+-]\d\d:\d\d:\d\d)|(?<=T\d{6}))[.,](\d{1,9})\d*"  # of seconds; ISO 8601 has others too
_UNITS_BY_LENGTH = {10: "seconds", 11: "seconds", 12: "milliseconds", 16: "microseconds"}


def parse_time(text: str, option: str, now_ns: int | None = None) -> int:
    """Return a time in nanoseconds since the epoch.

    Args:
        text: RFC 3339 (UTC without a zone), 13 digits of milliseconds, or 19 digits of nanoseconds.
        option: The name of the option, for error messages.
        now_ns: The current time, in nanoseconds since the epoch. The forms of ``relative_time`` are times too then.

    Raises:
        ConfigError: The text is not a time.

    Example:
        >>> parse_time("1970-01-01T00:00:01.5Z", "startTime")
        1500000000
    """
    text = text.strip()
    found = None if now_ns is None else relative_time(text, now_ns)
    if found is not None:
        return found
    if re.fullmatch(r"-?\d+", text) and len(text) != len("20130101"):  # eight digits are a date
        return _bare(text, option)
    try:
        fraction = re.search(_FRACTION, text)
        cut = text[: fraction.start()] + text[fraction.end() :] if fraction else text
        if "." in cut or "," in cut:
            raise ValueError("fromisoformat would read a fraction of a minute or an hour as one of a second")
        whole = datetime.fromisoformat(cut)
    except ValueError:
        raise ConfigError(
            f"option {option}: expected RFC 3339 such as 2013-01-31T12:00:00Z, "
            f"or {MILLISECONDS_DIGITS} digits of milliseconds since 1970"
            f"{'' if now_ns is None else f', or {RELATIVE}'}, got {text!r}"
        ) from None
    if whole.tzinfo is None:
        whole = whole.replace(tzinfo=UTC)
    nanoseconds = int(fraction.group(1).ljust(9, "0")) if fraction else 0
    return int(whole.timestamp()) * NS_PER_SECOND + nanoseconds


def _bare(text: str, option: str) -> int:
    if len(text) == MILLISECONDS_DIGITS and text.isdigit():
        return int(text) * NS_PER_MS
    if len(text) == NANOSECONDS_DIGITS and text.isdigit():
        return int(text)
    unit = f" ({_UNITS_BY_LENGTH[len(text)]}?)" if len(text) in _UNITS_BY_LENGTH else ""
    raise ConfigError(
        f"option {option}: expected RFC 3339 such as 2013-01-31T12:00:00Z, or a number of {MILLISECONDS_DIGITS} digits "
        f"(milliseconds since 1970) or of {NANOSECONDS_DIGITS} (nanoseconds), got {len(text)} characters{unit}: {text}"
    )


def parse_offsets(text: str, option: str, *words: str) -> int | dict[str, int]:
    """Return the offset for all partitions, or a dictionary of offsets by partition.

    Args:
        text: A word, a number, or JSON.
        option: The name of the option, for error messages.
        *words: The keys of ``WORDS`` that this option allows.

    Raises:
        ConfigError: The text is none of these.
    """
    text = text.strip()
    if text in words:
        return WORDS[text]
    expected = f"option {option}: expected {', '.join(words)}, a number, or JSON"
    number = whole(text)
    if number is not None:
        if number > LONG_MAX:
            raise ConfigError(f"{expected}; expected an offset of {LONG_MAX} at most, got {short(text)!r}")
        return number
    parsed = _json(text, option)
    if not isinstance(parsed, dict):
        raise ConfigError(f'{expected} such as {{"partition name": 1000}}, got {short(text)!r}')
    _one_level(parsed, option, "1000")
    allowed = {WORDS[word]: word for word in words}
    for name, value in parsed.items():
        if type(value) is not int or (value < 0 and value not in allowed):
            special = ", or ".join(f"{number} for {word}" for number, word in allowed.items())
            raise ConfigError(
                f"{expected}; of partition {name!r}: expected an offset of 0 or more, or {special}, "
                f"got {short(json.dumps(value))}"
            )
        if value > LONG_MAX:
            raise ConfigError(
                f"{expected}; of partition {name!r}: expected an offset of {LONG_MAX} at most, got {short(str(value))}"
            )
    return parsed


def parse_times(text: str, option: str) -> dict[str, int]:
    """Return times by partition, in nanoseconds since the epoch.

    Args:
        text: A JSON object of times by partition name.
        option: The name of the option, for error messages.

    Raises:
        ConfigError: The text is not such an object.
    """
    parsed = _json(text, option)
    if not isinstance(parsed, dict):
        raise ConfigError(
            f'option {option}: expected JSON such as {{"partition name": 1700000000000}}, got {short(text)!r}'
        )
    _one_level(parsed, option, "1700000000000")
    return {name: parse_time(str(value), f"{option}, partition {name!r}") for name, value in parsed.items()}


def _json(text: str, option: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise ConfigError(f"option {option}: expected each name once, got {name!r} twice")
            found[name] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None


def _one_level(parsed: Mapping[str, Any], option: str, example: str) -> None:
    nested = next((name for name, value in parsed.items() if isinstance(value, dict)), None)
    if nested is not None:
        raise ConfigError(
            f"option {option}: a partition has a name and no number here: expected "
            f"{{{json.dumps(nested)}: {example}}}, got {json.dumps({nested: parsed[nested]})}"
        )
