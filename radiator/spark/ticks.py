"""Choose the ticks of an axis and their texts.

    linear(0.0, 5_400_000.0, "duration", 5)     # 0, 30 min, 60 min, 90 min
    logarithmic(2.0, 3_900_000.0, "duration", 6)  # 10 ms, 100 ms, 1 s, 10 s, 1 min, 10 min, 1 h

matplotlib chooses the ticks of numbers and of times. Durations have steps of their own, which are round in the unit
that people use: 30 minutes and 6 hours, never 25 minutes or 7.5 hours. On a linear axis all durations have one unit, on
a logarithmic axis each has its own. Counts have no ticks between whole numbers.

Invariants: ticks are sorted, inside the range, and at most one more than the requested number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axis import Axis
from matplotlib.dates import DAILY, AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, MultipleLocator

from radiator.spark import units


class Tick(NamedTuple):
    """A tick of an axis.

    Attributes:
        value: The position.
        text: The text.
    """

    value: float
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
    (YEAR_MS, "y", (*_ONE_TWO_FIVE, 1000, 2000, 5000)),
)
_SMALL = (1e-6, 0.001, 1.0)  # units of which the next one has a thousand


def _ladder(small: Sequence[int], clock: Sequence[int], hours: Sequence[int], days: Sequence[int]) -> list[float]:
    """Return durations in ms; ``clock`` are the counts for seconds and for minutes."""
    counts = dict.fromkeys(_SMALL, small) | {1_000.0: clock, 60_000.0: clock, 3_600_000.0: hours, DAY_MS: days}
    return [unit * count for unit, _, _ in _DURATIONS for count in counts.get(unit, small)]


_LADDERS = (  # from fine to coarse, with steps at readable distances
    _ladder(
        (1, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 200, 300, 500, 700),
        (1, 2, 3, 5, 7, 10, 20, 30),
        (1, 2, 3, 6, 12),
        (1, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100),
    ),
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
    least = (high - low) / at_most
    if unit == "duration":
        step, name, one = next(
            (one * count, name, one)
            for one, name, counts in _DURATIONS
            for count in counts
            if one * count >= least and (one * LARGEST >= high or name == "y")
        )
        values = _inside(MultipleLocator(step), low, high)
        return [Tick(value, f"{value / one:,.0f} {name}" if value else "0") for value in values]
    if unit == "size":
        return _with_texts(_inside(MultipleLocator(2.0 ** math.ceil(math.log2(max(least, 1.0)))), low, high), unit)
    whole = unit in ("count", "short") and high >= 1
    return _with_texts(_inside(MaxNLocator(at_most, steps=[1, 2, 5, 10], integer=whole), low, high), unit)


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
    if unit == "duration":
        ladders = [[each for each in ladder if low <= each <= high] for ladder in _LADDERS]
    else:
        ladders = [
            _inside(LogLocator(subs=subs, numticks=1000), low, high)
            for subs in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
        ]
    apart = (high / low) ** (0.5 / at_most)  # closer texts would overlap
    several = [found for found in ladders if len(found) > 1]
    if not several:
        return linear(low, high, unit, at_most)
    for found in several:
        if len(found) <= at_most and min(after / before for before, after in pairwise(found)) >= apart:
            return _with_texts(found, unit)
    return _with_texts(several[-1][:: -(-len(several[-1]) // at_most)], unit)


def calendar(axis: Axis, at_most: int) -> None:
    """Give an axis ticks at round times in UTC, and below its end the date or the year of the last one.

    Args:
        axis: The axis.
        at_most: The approximate maximum number of ticks.
    """
    locator = AutoDateLocator(UTC, minticks=2, maxticks=at_most + 2)
    locator.intervald[DAILY], locator.maxticks[DAILY] = [1, 7, 14], 14  # other steps make ticks of two months touch
    clock, day = "%H:%M", "%Y-%m-%d"
    axis.set_major_locator(locator)
    axis.set_major_formatter(
        ConciseDateFormatter(
            locator,
            tz=UTC,
            formats=["%Y", "%Y-%m", "%m-%d", clock, clock, f"{clock}:%S.%f"],
            zero_formats=["", "%Y-%m", "%m-%d", "%m-%d", clock, f"{clock}:%S"],
            offset_formats=["", "", "%Y", day, day, day],
        )
    )


def _inside(locator: Locator, low: float, high: float) -> list[float]:
    return [float(value) for value in locator.tick_values(low, high) if low <= value <= high]


def _with_texts(values: Sequence[float], unit: str) -> list[Tick]:
    return [Tick(value, units.FORMATS[unit](value)) for value in values]
