"""Sizes, durations and times of day: text with a unit to a number, and back.

    size         16KiB  4MiB  1.5GiB  512B         binary units only: MB means two things, so it is refused
    duration     50ms  10s  5m  1h30m  30d         combinable, largest unit first, each unit once
    time of day  23:30                             UTC

A number without a unit is refused, also 0, so that files are unambiguous. Every function here raises ValueError with a
text for people (what was expected, and a hint if the mistake is common); the caller adds the place in the file.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

SIZE_UNITS: Final[dict[str, int]] = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
DURATION_UNITS_NS: Final[dict[str, int]] = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
}
# Common mistakes, and the intended value.
SIZE_HINTS: Final[dict[str, str]] = {
    "": "add a unit, one of B KiB MiB GiB TiB",
    **{f"{p}{s}".lower(): f"write {p}iB" for p in "KMGT" for s in ("", "B", "iB", "i")},
    "b": "write B (bytes)",
    "byte": "write B",
    "bytes": "write B",
}
DURATION_HINTS: Final[dict[str, str]] = {
    "": "add a unit, one of ms s m h d",
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "write s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "write m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "write h"),
    **dict.fromkeys(("day", "days"), "write d"),
    **dict.fromkeys(("w", "week", "weeks"), "write 7d"),
    **dict.fromkeys(("msec", "millis", "millisecond", "milliseconds"), "write ms"),
    **dict.fromkeys(("us", "ns", "µs", "microseconds"), "the smallest unit is ms"),
}
CHARS_MAX: Final = 24  # beyond this no text is a size or a duration, and int() of megabytes of digits is slow

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)[ ]?([^0-9\s.]*)")
_DURATION_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Zµ]*)")
_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


def parse_size(text: str) -> int:
    """Return the bytes of a size: ``"4MiB"`` is 4194304."""
    expected = "expected a size such as 64KiB, 4MiB or 1GiB"
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > CHARS_MAX:
        raise ValueError(expected)
    number, unit = match.groups()
    factor = SIZE_UNITS.get(unit)
    if factor is None:
        hint = SIZE_HINTS.get(unit.lower(), "the units are B KiB MiB GiB TiB")
        if unit in ("KB", "kB", "MB", "GB", "TB"):
            hint = f"{unit} is ambiguous (1000 or 1024): {hint}"
        raise ValueError(f"{expected}; {hint}")
    size = Fraction(number) * factor
    if size.denominator != 1:
        raise ValueError(f"{expected}; {text} is not a whole number of bytes")
    return int(size)


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds of a duration: ``"1h30m"`` is 5400000000000."""
    expected = "expected a duration such as 50ms, 10s or 1h30m"
    if not text or len(text) > CHARS_MAX:
        raise ValueError(expected)
    total, position = Fraction(0), 0
    used: list[str] = []
    units = list(DURATION_UNITS_NS)
    while position < len(text):
        match = _DURATION_PARTS.match(text, position)
        if match is None:
            raise ValueError(expected)
        number, unit = match.groups()
        if unit not in DURATION_UNITS_NS:
            raise ValueError(f"{expected}; {DURATION_HINTS.get(unit.lower(), 'the units are ms s m h d')}")
        if used and units.index(unit) <= units.index(used[-1]):
            raise ValueError(f"{expected}; the largest unit comes first, and each only once")
        used.append(unit)
        total += Fraction(number) * DURATION_UNITS_NS[unit]
        position = match.end()
    return int(total)


def parse_time_of_day(text: str) -> int:
    """Return the seconds since midnight of a time: ``"23:30"`` is 84600."""
    match = _TIME_OF_DAY.fullmatch(text)
    if match is None:
        raise ValueError('expected a time of day in UTC, "00:00" to "23:59"')
    return int(match[1]) * 3600 + int(match[2]) * 60


def format_size(size_bytes: int) -> str:
    """Return the shortest exact form: 4194304 is ``"4MiB"``, 1000 is ``"1000B"``."""
    for unit, factor in reversed(SIZE_UNITS.items()):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def format_duration_ns(duration_ns: int) -> str:
    """Return the shortest form: 5400000000000 is ``"1h30m"``; below a millisecond it is rounded down."""
    parts, rest = [], duration_ns
    for unit, factor in DURATION_UNITS_NS.items():
        if rest >= factor:
            parts.append(f"{rest // factor}{unit}")
            rest %= factor
    return "".join(parts) or "0ms"


def format_time_of_day(seconds: int) -> str:
    """Return the time: 84600 is ``"23:30"``."""
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}"
