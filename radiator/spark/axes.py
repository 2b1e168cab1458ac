"""What pictures share: panels side by side, axes whose numbers people read, names that leave room for the picture.
Where marks stand is decided in ``marks``, how names are cut in ``labels``.

Knows: matplotlib's axes. Must not know: which kinds of picture there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import matplotlib.dates as mdates
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from radiator.spark import labels, marks

if TYPE_CHECKING:
    from radiator.spark.pictures import Theme

AROUND_DAYS = 0.5 / 24
NARROW = 4.0  # times as large as the smallest is the largest value of a logarithmic axis, at least
VALUES_MAX, MAGNITUDES_MAX, MOMENTS_MAX = 5, 8, 8  # marks of an axis of values, of a logarithmic one, of one of time
BREAK_TIMES = 3  # times the usual between two points of a line over time: it is interrupted
ROW_LETTERS, PANEL_LETTERS, LEGEND_LETTERS = 34, 22, 30  # of names: of rows, of rows in one of several panels
ABOVE_LETTERS, PATCH_LETTERS = 72, 3  # beside the title; a patch of colour is as wide as
WIDTH_INCHES = 9.6  # of a picture
LETTER_INCHES, HEADING_INCHES, HEADING_MIN = 0.076, 0.092, 8  # of a letter beside and above a panel, on average
ROWS_MIN = 3  # so many rows there is always room for: fewer bars would be blocks
Rows = Sequence[Mapping[str, Any]]
Panels = list[tuple[str, Rows]]


def panelled(rows: Rows, panel: str | None, limit: int) -> Panels:
    if panel is None:
        return [("", rows[:limit])]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row[panel]), []).append(row)
    return [(heading, group[:limit]) for heading, group in groups.items()] or [("", [])]


def panel_columns(groups: Panels) -> int:
    return 1 if len(groups) == 1 else min(len(groups), 3)


def panel_axes(figure: Figure, groups: Panels) -> Sequence[Axes]:
    across = panel_columns(groups)
    down = -(-len(groups) // across)
    heights = [_places(groups[i * across : (i + 1) * across]) + 1.6 for i in range(down)]
    grid = figure.subplots(down, across, squeeze=False, height_ratios=heights)
    every: list[Axes] = [axes for line in grid for axes in line]
    for unused in every[len(groups) :]:
        unused.set_visible(False)
    return every


def _places(beside: Panels) -> int:
    return max(ROWS_MIN, *(len(group) for _, group in beside))


def panel_height(groups: Panels, per_row: float) -> float:
    across = panel_columns(groups)
    tallest = [_places(groups[i : i + across]) for i in range(0, len(groups), across)]
    return min(max(sum(1.0 + per_row * rows for rows in tallest) + 0.75, 2.4), 14.0)


def rows_axis(
    axes: Axes, group: Rows, label: str, length: int = ROW_LETTERS, shown: bool = True, places: int | None = None
) -> None:
    """``places``: for so many rows there is room, so that bars are as thick as those beside them."""
    axes.set_yticks(
        range(len(group)), labels.cut([row[label] for row in group], length) if shown else [""] * len(group)
    )
    axes.set_ylim(max(places or 0, len(group), ROWS_MIN) - 0.4, -0.6)


def drawable(value: float | None, log: bool) -> bool:
    return value is not None and (value > 0 or not log)


def range_axis(axes: Axes, unit: str, log: bool, ticks_max: int) -> None:
    low, high = axes.get_xlim()
    if log and high < NARROW * low:  # all about the same: a range around them in which round numbers lie
        middle = (low * high) ** 0.5
        low, high = axes.set_xlim(middle / NARROW, middle * NARROW)
    _mark(axes.xaxis, (marks.logarithmic if log else marks.linear)(low, high, unit, ticks_max))


def _mark(axis: Axis, found: Sequence[marks.Mark]) -> None:
    axis.set_major_locator(FixedLocator([mark.value for mark in found]))
    axis.set_major_formatter(FixedFormatter([mark.text for mark in found]))
    axis.set_minor_locator(NullLocator())


def heading(axes: Axes, text: str, theme: Theme, across: int, beside: float) -> None:
    """Of one of so many panels ``across``. ``beside``: how wide the names on its left are."""
    if text:
        width = WIDTH_INCHES / across - beside * LETTER_INCHES
        (shown,) = labels.cut([text], max(HEADING_MIN, int(width / HEADING_INCHES) - 2))
        axes.set_title(shown, loc="left", fontsize=10.5, fontweight="bold", color=theme.ink, pad=7)


def value_axis(axes: Axes, unit: str, label: str, top: float | None = None, log: bool = False) -> None:
    axes.grid(axis="y")
    low, high = axes.get_ylim() if top is None else (0.0, top)
    if not log:
        axes.set_ylim(min(0.0, low), high if high > 0 else 1.0)
    find, at_most = (marks.logarithmic, MAGNITUDES_MAX) if log else (marks.linear, VALUES_MAX)
    _mark(axes.yaxis, find(*axes.get_ylim(), unit, at_most))
    axes.set_ylabel(label)


def broken(moments: Sequence[datetime], values: Sequence[float]) -> tuple[list[datetime], list[float]]:
    """The same, with a value that is none where much more time than usual lies between two: nothing is known of it, so
    no line leads through it."""
    found: tuple[list[datetime], list[float]] = ([], [])
    steps = [later - earlier for earlier, later in pairwise(moments)]
    usual = sorted(steps)[len(steps) // 2] if steps else timedelta(0)
    for place, (moment, value) in enumerate(zip(moments, values, strict=True)):
        if place and steps[place - 1] > BREAK_TIMES * usual:
            found[0].append(moment - steps[place - 1] / 2)
            found[1].append(math.nan)
        found[0].append(moment)
        found[1].append(value)
    return found


def lonely(values: Sequence[float]) -> bool:
    """Whether one of them has none beside it, so that no line would show it."""
    beside = [math.nan, *values, math.nan]
    pairs = zip(beside, beside[1:], beside[2:], strict=False)
    return any(math.isnan(one) and not math.isnan(it) and math.isnan(other) for one, it, other in pairs)


def bars_cut(axes: Axes, sides: Sequence[tuple[float, float]], theme: Theme) -> None:
    """A slanting line of paper through each of these bars, which go on above the axis."""
    low, high = axes.get_ylim()
    for left, right in sides:
        up = [low + share * (high - low) for share in (0.87, 0.9, 0.92, 0.89)]
        axes.fill([left, right, right, left], up, color=theme.paper, linewidth=0, zorder=3)


def figure_above(axes: Axes, place: float, text: str) -> None:
    left, right = axes.get_xlim()
    share = (place - left) / (right - left)
    side = "left" if share < 0.05 else "right" if share > 0.95 else "center"
    across = axes.get_xaxis_transform()
    axes.text(place, 1.02, text, transform=across, ha=side, va="bottom", fontsize=9, fontweight="bold", clip_on=False)


def time_axis(axes: Axes, least_days: float = 0.0) -> None:
    """Of a span of ``least_days`` at least, so that what is there a moment only is no block."""
    axes.margins(x=0.01)
    low, high = axes.dataLim.intervalx
    if low == high:  # one moment: matplotlib would show the years around it
        axes.set_xlim(low - AROUND_DAYS, high + AROUND_DAYS)
    low, high = axes.get_xlim()
    if high - low < least_days:
        axes.set_xlim((low + high - least_days) / 2, (low + high + least_days) / 2)
    start, until = (mdates.num2date(number, UTC) for number in axes.get_xlim())
    found = marks.calendar(start, until, MOMENTS_MAX)
    below = any("\n" in mark.text for mark in found)  # then all have two lines: else they stand at two heights
    texts = [mark.text if not below or "\n" in mark.text else f"{mark.text}\n" for mark in found]
    places = [float(mdates.date2num(mark.value)) for mark in found]
    _mark(axes.xaxis, list(map(marks.Mark, places, texts)))


def above(names: Sequence[str]) -> list[str]:
    """As they have room there, beside the title."""
    whole = labels.cut(names, LEGEND_LETTERS)
    fits = sum(len(name) + PATCH_LETTERS for name in whole) <= ABOVE_LETTERS
    return whole if fits else labels.cut(names, max(HEADING_MIN, ABOVE_LETTERS // len(names) - PATCH_LETTERS))


def legend_above(figure: Figure, theme: Theme, handles: Sequence[Patch]) -> None:
    """On the right of the title."""
    figure.legend(
        handles=handles, loc="upper right", bbox_to_anchor=(0.99, 1 - 0.1 / figure.get_figheight()),
        ncols=len(handles), labelcolor=theme.quiet, handlelength=0.9, handleheight=0.9, columnspacing=0.9, fontsize=9.5,
    )  # fmt: skip


def legend_beside(axes: Axes, theme: Theme, keys: Sequence[str]) -> None:
    axes.legend(
        labels.cut(keys, LEGEND_LETTERS), loc="upper left", bbox_to_anchor=(1.005, 1.02), labelcolor=theme.ink,
        handlelength=0.9, handleheight=0.9, fontsize=9, borderaxespad=0.2,
    )  # fmt: skip


def fit(figure: Figure, line: Text, text: str, letters: int) -> None:
    """``text`` as long as the picture is wide: ``letters`` are what mostly has room, and letters differ in width."""
    line.set_text(labels.shortened(text, letters))
    while line.get_window_extent().x1 > figure.bbox.x1 and letters > 1:
        letters -= 1
        line.set_text(labels.shortened(text, letters))
