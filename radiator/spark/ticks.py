"""Choose the ticks of an axis and their texts.

    linear(0.0, 5_400_000.0, "duration", 5)     # 0, 30 min, 60 min, 90 min
    logarithmic(2.0, 3_900_000.0, "duration", 6)  # 10 ms, 100 ms, 1 s, 10 s, 1 min, 10 min, 1 h
    calendar(start, until, 8)                   # 06:00 with the day below it, 12:00, 18:00, ...

Ticks are round in the unit that people use: 30 minutes and 6 hours, never 25 minutes or 7.5 hours. On a linear axis all
ticks have one unit, on a logarithmic axis each has its own. Counts have no ticks between whole numbers.

Uses numbers and times, not matplotlib.
Invariants: ticks are sorted, inside the range, and at most one more than the requested number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from radiator.spark import units


class Tick(NamedTuple):
    """A tick of an axis of numbers.

    Attributes:
        value: The position.
        text: The text.
    """

    value: float
    text: str


class TimeTick(NamedTuple):
    """A tick of a time axis.

    Attributes:
        value: The position.
        text: The text.
    """

    value: datetime
    text: str


LARGEST = 2000  # the largest number of a unit in a text: a minute in nanoseconds is not readable
DAY_MS, YEAR_MS = 86_400_000.0, 31_557_600_000.0
_ONE_TWO_FIVE = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_DURATIONS: tuple[tuple[float, str, Sequence[int]], ...] = (  # the unit in ms, its name, the counts of a step
    (1e-6, "ns", _ONE_TWO_FIVE),
    (0.001, "µs", _ONE_TWO_FIVE),
    (1.0, "ms", _ONE_TWO_FIVE),
    (1_000.0, "s", (1, 2, 5, 10, 20, 30)),
    (60_000.0, "min", (1, 2, 5, 10, 20, 30)),
    (3_600_000.0, "h", (1, 2, 3, 6, 12)),
    (DAY_MS, "d", (1, 2, 5, 10, 20, 50, 100, 200)),
    (YEAR_MS, "y", _ONE_TWO_FIVE),
)
_SMALL = (1e-6, 0.001, 1.0)  # units of which the next one has a thousand


def _ladder(small: Sequence[int], clock: Sequence[int], hours: Sequence[int], days: Sequence[int]) -> list[float]:
    """Return durations in ms; ``clock`` are the counts for seconds and for minutes."""
    counts = dict.fromkeys(_SMALL, small) | {1_000.0: clock, 60_000.0: clock, 3_600_000.0: hours, DAY_MS: days}
    return [unit * count for unit, _, _ in _DURATIONS for count in counts.get(unit, small)]


_LADDERS = (  # from fine to coarse, with steps at readable distances
    _ladder(_ONE_TWO_FIVE, (1, 2, 5, 10, 20, 30), (1, 2, 3, 6, 12), (1, 2, 5, 10, 20, 50, 100)),
    _ladder((1, 3, 10, 30, 100, 300), (1, 3, 10, 30), (1, 3, 12), (1, 3, 10, 30, 100)),
    _ladder((1, 10, 100), (1, 10), (1, 6), (1, 7, 30)),
    _ladder((1, 100), (1, 10), (1,), (1, 30)),
    _ladder((1,), (1,), (1,), (1,)),
)


def linear(low: float, high: float, unit: str, at_most: int) -> list[Tick]:
    """Return the ticks of a linear axis.

    Args:
        low: The start of the axis.
        high: The end of the axis.
        unit: A key of ``units.FORMATS``.
        at_most: The approximate maximum number of ticks.
    """
    if unit == "duration":
        step, name, one = _step_of_durations((high - low) / at_most, high)
        return [Tick(value, f"{value / one:,.0f} {name}" if value else "0") for value in _multiples(low, high, step)]
    step = _binary((high - low) / at_most) if unit == "size" else _round((high - low) / at_most)
    if unit in ("count", "short") and high >= 1:
        step = max(step, 1.0)
    return _with_texts(_multiples(low, high, step), unit)


def logarithmic(low: float, high: float, unit: str, at_most: int) -> list[Tick]:
    """Return the ticks of a logarithmic axis.

    If fewer than two round numbers are inside the range, the ticks are those of a linear axis. A very narrow range may
    have none.

    Args:
        low: The start of the axis, above 0.
        high: The end of the axis.
        unit: A key of ``units.FORMATS``.
        at_most: The maximum number of ticks.
    """
    ladders = _LADDERS if unit == "duration" else [_decades(low, high, digits) for digits in ((1, 2, 5), (1, 3), (1,))]
    apart = (high / low) ** (0.5 / at_most)  # closer texts would overlap
    several = [found for ladder in ladders if len(found := [each for each in ladder if low <= each <= high]) > 1]
    if not several:
        return linear(low, high, unit, at_most)
    for found in several:
        if len(found) <= at_most and min(after / before for before, after in pairwise(found)) >= apart:
            return _with_texts(found, unit)
    return _with_texts(several[-1][:: -(-len(several[-1]) // at_most)], unit)


def _with_texts(values: Sequence[float], unit: str) -> list[Tick]:
    return [Tick(value, units.FORMATS[unit](value)) for value in values]


def _step_of_durations(least_ms: float, high_ms: float) -> tuple[float, str, float]:
    """Return the narrowest round step that is at least ``least_ms``: in ms, its unit, and the unit in ms."""
    for one, name, counts in _DURATIONS:
        for count in counts:
            if one * count >= least_ms and one * LARGEST >= high_ms:
                return one * count, name, one
    return YEAR_MS * _round(least_ms / YEAR_MS), "y", YEAR_MS


def _round(least: float) -> float:
    """Return the smallest number 1, 2 or 5 times a power of ten that is at least ``least``."""
    if least <= 0:
        return 1.0
    ten = 10.0 ** math.floor(math.log10(least))
    return next(ten * digit for digit in (1, 2, 5, 10) if ten * digit >= least * (1 - 1e-9))


def _binary(least: float) -> float:
    return 2.0 ** max(0, math.ceil(math.log2(max(least, 1.0))))


def _decades(low: float, high: float, digits: Sequence[int]) -> list[float]:
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [digit * 10.0**ten for ten in tens for digit in digits]


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [min(max(number * step, low), high) for number in range(first, last + 1)]


# --- times ------------------------------------------------------------------------------------------------------------

_SECONDS = (
    *(1, 2, 5, 10, 20, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 20, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * days for days in (1, 2, 7, 14)),
)
_DAY_SECONDS = 86_400
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200)
_MONTH_SECONDS = 2_629_800
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)


def calendar(start: datetime, until: datetime, at_most: int) -> list[TimeTick]:
    """Return round times in UTC. The first tick of each day has the date below it.

    Args:
        start: The start of the axis.
        until: The end of the axis.
        at_most: The approximate maximum number of ticks.
    """
    least = (until - start).total_seconds() / at_most
    step = next((seconds for seconds in _SECONDS if seconds >= least), None)
    if step is None or step * at_most > 4 * _MONTH_SECONDS:
        months = next((each for each in _MONTHS if each * _MONTH_SECONDS >= least), _MONTHS[-1])
        moments = [at for at in _firsts(start, until, months) if start <= at <= until]
        return [TimeTick(at, f"{at:%Y}" if months >= 12 else f"{at:%Y-%m}") for at in moments]
    zero = _MONDAY if step >= _DAY_SECONDS else units.EPOCH
    first = zero + math.ceil((start - zero) / timedelta(seconds=step)) * timedelta(seconds=step)
    count = int((until - first).total_seconds() // step) + 1
    moments = [first + number * timedelta(seconds=step) for number in range(count)]
    if step >= _DAY_SECONDS:
        return [TimeTick(at, f"{at:%Y-%m-%d}") for at in moments]
    days = [None, *(at.date() for at in moments)]
    clock = "%H:%M" if step >= 60 else "%H:%M:%S"
    return [
        TimeTick(at, f"{at:{clock}}" + (f"\n{at:%Y-%m-%d}" if at.date() != before else ""))
        for at, before in zip(moments, days, strict=False)
    ]


def _firsts(start: datetime, until: datetime, months: int) -> Iterator[datetime]:
    """Yield the first day of every n-th calendar month."""
    month = (start.year * 12 + start.month - 1) // months * months
    while month <= until.year * 12 + until.month - 1:
        if month >= 12:
            yield datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
        month += months
