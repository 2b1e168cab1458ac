"""Numbers, sizes, durations and times as people read them; the one place, so that tables, pictures and page agree.

Knows: values and text. Must not know: where they come from. None is always the same dash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

NOTHING = "–"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_RATES = (("s", 1), ("min", 60), ("h", 3600), ("d", 86_400))
_MS = (
    *((31_557_600_000.0, "y"), (86_400_000.0, "d"), (3_600_000.0, "h"), (60_000.0, "min")),
    *((1_000.0, "s"), (1.0, "ms"), (0.001, "µs"), (1e-6, "ns")),
)


def count(value: float | None) -> str:
    """1,234,567"""
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """1.2 M: for axes and labels."""
    if value is None:
        return NOTHING
    return _in_units(value, _COUNTS) or _three(value)


def size(value: float | None) -> str:
    """12.3 MiB"""
    if value is None:
        return NOTHING
    return _in_units(value, _BYTES) or f"{value:.0f} B"


def duration(ms: float | None) -> str:
    """1.5 ms, 250 µs, 1 ns, 12.7 y"""
    if ms is None:
        return NOTHING
    return "0" if ms == 0 else _in_units(ms, _MS) or f"{_three(ms * 1e6)} ns"


def moment(value: datetime | None) -> str:
    """2013-01-31 12:00:00, in the zone that the value has."""
    return NOTHING if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def utc(ns: int | None) -> datetime | None:
    """Nanoseconds since 1970 as a datetime of UTC, to the microsecond."""
    return None if ns is None else EPOCH + timedelta(microseconds=ns // 1000)


def share(value: float | None) -> str:
    """12.3%; what is not nothing is not shown as 0, and what is not all not as 100."""
    if value is None or value == 0:
        return NOTHING if value is None else "0"
    if value == 1:
        return "100%"
    return "< 0.1%" if 0 < value < 0.0005 else "> 99.9%" if 0.9995 <= value < 1 else f"{value:.1%}"


def percent(value: float) -> str:
    """12%, in a sentence."""
    return "less than 1%" if 0 < value < 0.005 else "more than 99%" if 0.995 <= value < 1 else f"{value:.0%}"


def many(number: int, word: str) -> str:
    """1 message, 1,234 messages"""
    return f"{number:,} {word}{'s' * (number != 1)}"


def text(value: object) -> str:
    return NOTHING if value is None else str(value)


def rate(per_second: float | None) -> str:
    """12/s, 3.5/min, 2/h: in the unit in which it is a number above one."""
    if per_second is None:
        return NOTHING
    for unit, factor in _RATES:
        if abs(per_second) * factor >= 1:
            return f"{short(per_second * factor)}/{unit}"
    return f"{short(per_second * 86_400)}/d"


def change(value: float | None) -> str:
    """Of a rate: +1.2 k/s, −3/h, 0"""
    if value is None or value == 0:
        return NOTHING if value is None else "0"
    return f"{'+' if value > 0 else '−'}{rate(abs(value))}"


FORMATS: dict[str, Callable[..., str]] = {
    "count": count,
    "short": short,
    "size": size,
    "duration": duration,
    "moment": moment,
    "share": share,
    "rate": rate,
    "change": change,
    "text": text,
}

_WIDTHS = (
    *((seconds, f"{seconds} second{'s' * (seconds > 1)}") for seconds in (1, 5, 10, 30)),
    *((60 * minutes, f"{minutes} minute{'s' * (minutes > 1)}") for minutes in (1, 5, 10, 30)),
    *((3600 * hours, f"{hours} hour{'s' * (hours > 1)}") for hours in (1, 3, 6, 12)),
    *((86_400 * days, f"{days} day{'s' * (days > 1)}") for days in (1, 7, 28)),
)


def bucket(span: timedelta, buckets_max: int = 120) -> tuple[int, str]:
    """The narrowest round width that cuts ``span`` into at most so many buckets: seconds, and in Spark's words."""
    for seconds, words in _WIDTHS:
        if span.total_seconds() / seconds <= buckets_max:
            return seconds, words
    days = int(span.total_seconds() / 86_400 / buckets_max) + 1
    return 86_400 * days, f"{days} days"


def _in_units(value: float, units: Sequence[tuple[float, str]]) -> str:
    """In the largest of these that it reaches as it is written: 999,999 is 1 M. Empty below all of them."""
    for place, (unit, name) in enumerate(units):
        if abs(value) >= unit:
            larger, text = units[max(place - 1, 0)], _three(value / unit)
            reached = place > 0 and abs(float(text.replace(",", ""))) * unit >= larger[0]
            return f"{_three(value / larger[0])} {larger[1]}" if reached else f"{text} {name}"
    return ""


def _three(value: float) -> str:
    """About three digits."""
    if abs(value) >= 100 or math.isclose(value, round(value)):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")
