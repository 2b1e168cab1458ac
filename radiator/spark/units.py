"""Format numbers, sizes, durations and times for people, in tables, charts and pages.

None is always a dash.
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
    """Return a number with separators.

    Args:
        value: The number, or None.

    Example:
        >>> count(1234567)
        '1,234,567'
    """
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """Return a number with a unit prefix, for axes and labels.

    Args:
        value: The number, or None.

    Example:
        >>> short(1_234_567)
        '1.23 M'
    """
    if value is None:
        return NOTHING
    return _in_units(value, _COUNTS) or _three(value)


def size(value: float | None) -> str:
    """Return a size with a binary unit.

    Args:
        value: The size in bytes, or None.

    Example:
        >>> size(12_900_000)
        '12.3 MiB'
    """
    if value is None:
        return NOTHING
    return _in_units(value, _BYTES) or f"{value:.0f} B"


def duration(ms: float | None) -> str:
    """Return a duration with its unit.

    Args:
        ms: The duration in milliseconds, or None.

    Example:
        >>> duration(0.25), duration(90_000)
        ('250 µs', '1.5 min')
    """
    if ms is None:
        return NOTHING
    return "0" if ms == 0 else _in_units(ms, _MS) or f"{_three(ms * 1e6)} ns"


def moment(value: datetime | None) -> str:
    """Return a time as ``2013-01-31 12:00:00``, in the time zone of the value.

    Args:
        value: The time, or None.
    """
    return NOTHING if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def utc(ns: int | None) -> datetime | None:
    """Return a datetime in UTC, truncated to microseconds.

    Args:
        ns: The time in nanoseconds since the epoch, or None.
    """
    return None if ns is None else EPOCH + timedelta(microseconds=ns // 1000)


def share(value: float | None) -> str:
    """Return a share as a percentage. Only exactly 0 and 1 become ``0`` and ``100%``.

    Args:
        value: The share from 0 to 1, or None.

    Example:
        >>> share(0.123), share(0.0001), share(0.9999)
        ('12.3%', '< 0.1%', '> 99.9%')
    """
    if value is None or value == 0:
        return NOTHING if value is None else "0"
    if value == 1:
        return "100%"
    return "< 0.1%" if 0 < value < 0.0005 else "> 99.9%" if 0.9995 <= value < 1 else f"{value:.1%}"


def percent(value: float) -> str:
    """Return a share as a whole percentage for a sentence.

    Args:
        value: The share from 0 to 1.

    Example:
        >>> percent(0.123), percent(0.001)
        ('12%', 'less than 1%')
    """
    return "less than 1%" if 0 < value < 0.005 else "more than 99%" if 0.995 <= value < 1 else f"{value:.0%}"


def many(number: int, word: str) -> str:
    """Return a number with a noun in singular or plural.

    Args:
        number: The number.
        word: The noun in singular.

    Example:
        >>> many(1, "message"), many(1234, "message")
        ('1 message', '1,234 messages')
    """
    return f"{number:,} {word}{'s' * (number != 1)}"


def first(lines: Sequence[str], most: int, rest: str) -> list[str]:
    """Return the first lines, and if there are more, a last one that counts them.

    Args:
        lines: The lines.
        most: The maximum number of lines to return, beside the last one.
        rest: The last line, with ``{:,}`` for the number.

    Example:
        >>> first(["a", "b", "c"], 1, "and {:,} more")
        ['a', 'and 2 more']
    """
    return [*lines[:most], *([rest.format(len(lines) - most)] if len(lines) > most else [])]


def names(values: Sequence[str], most: int) -> str:
    """Return names for a sentence: the first ones, and the number of the others.

    Args:
        values: The names.
        most: The maximum number of names to return.

    Example:
        >>> names(["a", "b", "c"], 2)
        'a, b and 1 more'
    """
    return ", ".join(values[:most]) + (f" and {len(values) - most:,} more" if len(values) > most else "")


def text(value: object) -> str:
    """Return a value as text.

    Args:
        value: The value, or None.
    """
    return NOTHING if value is None else str(value)


def rate(per_second: float | None) -> str:
    """Return a rate per second, minute, hour or day: the unit in which the number is at least one.

    Args:
        per_second: The rate per second, or None.

    Example:
        >>> rate(12), rate(0.001)
        ('12/s', '3.6/h')
    """
    if per_second is None:
        return NOTHING
    for unit, factor in _RATES:
        if abs(per_second) * factor >= 1:
            return f"{short(per_second * factor)}/{unit}"
    return f"{short(per_second * 86_400)}/d"


def change(value: float | None) -> str:
    """Return the change of a rate with its sign.

    Args:
        value: The change per second, or None.

    Example:
        >>> change(12), change(-12)
        ('+12/s', '−12/s')
    """
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
    """Return the narrowest round width that cuts a time span into a limited number of buckets.

    Args:
        span: The time span.
        buckets_max: The maximum number of buckets.

    Returns:
        The width in seconds, and as Spark writes it.

    Example:
        >>> bucket(timedelta(hours=2))
        (60, '1 minute')
    """
    for seconds, words in _WIDTHS:
        if span.total_seconds() / seconds <= buckets_max:
            return seconds, words
    days = int(span.total_seconds() / 86_400 / buckets_max) + 1
    return 86_400 * days, f"{days} days"


def common_width(span: timedelta, *others: int) -> int:
    """Return the largest width that divides each width that ``bucket`` may return for this time span or a longer one.

    Args:
        span: The time span.
        *others: More widths to divide, in seconds.

    Returns:
        The width in seconds.

    Example:
        >>> common_width(timedelta(hours=2)), common_width(timedelta(hours=2), 90)
        (60, 30)
    """
    least, _ = bucket(span)
    return math.gcd(86_400, *(seconds for seconds, _ in _WIDTHS if seconds >= least), *others)


def _in_units(value: float, units: Sequence[tuple[float, str]]) -> str:
    """Return a value in the largest unit that it reaches after rounding; empty if it is below all units.

    999,999 is 1 M.
    """
    for place, (unit, name) in enumerate(units):
        if abs(value) >= unit:
            larger, text = units[max(place - 1, 0)], _three(value / unit)
            reached = place > 0 and abs(float(text.replace(",", ""))) * unit >= larger[0]
            return f"{_three(value / larger[0])} {larger[1]}" if reached else f"{text} {name}"
    return ""


def _three(value: float) -> str:
    """Return a number with about three digits."""
    if abs(value) >= 100 or math.isclose(value, round(value)):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")
