"""Draw the parts that charts share: panels side by side, axes with readable numbers, shortened names.

``ticks`` chooses the ticks, ``labels`` shortens names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from radiator.spark import labels, ticks
from radiator.spark.chart_style import WIDTH_INCHES, Theme

AROUND_DAYS = 0.5 / 24
NARROW = 4.0  # the minimum ratio of the ends of a logarithmic axis
VALUES_MAX, MAGNITUDES_MAX, MOMENTS_MAX = 5, 8, 8  # ticks of a linear, a logarithmic and a time axis
BREAK_TIMES = 3  # a line over time is interrupted at a step above this multiple of the usual one
ROW_LETTERS, PANEL_LETTERS, LEGEND_LETTERS = 34, 22, 30  # name lengths: of rows, of rows in panels, in the legend
ABOVE_LETTERS, PATCH_LETTERS = 72, 3  # the width beside the title, and of a colour patch, in letters
LETTER_INCHES, HEADING_INCHES, HEADING_MIN = 0.076, 0.092, 8  # average letter widths beside and above a panel
ROWS_MIN = 3  # the minimum number of rows to make room for: fewer bars would be very thick
Rows = Sequence[Mapping[str, Any]]
Panels = list[tuple[str, Rows]]


def panelled(rows: Rows, panel: str | None, limit: int) -> Panels:
    """Return the rows of each panel, with its heading.

    Args:
        rows: The rows.
        panel: The field whose values are the panels; None makes one panel without a heading.
        limit: The maximum number of rows per panel.
    """
    if panel is None:
        return [("", rows[:limit])]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row[panel]), []).append(row)
    return [(heading, group[:limit]) for heading, group in groups.items()] or [("", [])]


def panel_columns(groups: Panels) -> int:
    """Return the number of panels side by side.

    Args:
        groups: The panels.
    """
    return 1 if len(groups) == 1 else min(len(groups), 3)


def panel_axes(figure: Figure, groups: Panels) -> Sequence[Axes]:
    """Create the axes of all panels.

    Args:
        figure: The figure.
        groups: The panels.

    Returns:
        The axes; those after the last panel are hidden.
    """
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
    """Return the height of a figure with panels, in inches.

    Args:
        groups: The panels.
        per_row: The height of one row, in inches.
    """
    across = panel_columns(groups)
    tallest = [_places(groups[i : i + across]) for i in range(0, len(groups), across)]
    return min(max(sum(1.0 + per_row * rows for rows in tallest) + 0.75, 2.4), 14.0)


def rows_axis(
    axes: Axes, group: Rows, label: str, length: int = ROW_LETTERS, shown: bool = True, places: int | None = None
) -> None:
    """Label the rows of a panel.

    Args:
        axes: The axes.
        group: The rows.
        label: The field with the names.
        length: The maximum length of a name, in letters.
        shown: False to leave the names out.
        places: The number of rows to make room for, so that bars are as thick as in the panels beside.
    """
    axes.set_yticks(
        range(len(group)), labels.cut([row[label] for row in group], length) if shown else [""] * len(group)
    )
    axes.set_ylim(max(places or 0, len(group), ROWS_MIN) - 0.4, -0.6)


def drawable(value: float | None, log: bool) -> bool:
    """Return True if a value can be shown.

    Args:
        value: The value, or None.
        log: True for a logarithmic axis, which has no place for 0 and less.
    """
    return value is not None and (value > 0 or not log)


def range_axis(axes: Axes, unit: str, log: bool, ticks_max: int) -> None:
    """Set the ticks of a horizontal axis of values.

    Args:
        axes: The axes.
        unit: A key of ``units.FORMATS``.
        log: True for a logarithmic axis.
        ticks_max: The approximate maximum number of ticks.
    """
    low, high = axes.get_xlim()
    if log and high < NARROW * low:  # all values are similar: widen the axis so that it contains round numbers
        middle = (low * high) ** 0.5
        low, high = axes.set_xlim(middle / NARROW, middle * NARROW)
    _set_ticks(axes.xaxis, (ticks.logarithmic if log else ticks.linear)(low, high, unit, ticks_max))


def _set_ticks(axis: Axis, found: Sequence[ticks.Tick]) -> None:
    axis.set_ticks([tick.value for tick in found], [tick.text for tick in found])
    axis.set_minor_locator(NullLocator())


def heading(axes: Axes, text: str, theme: Theme, across: int, beside: float) -> None:
    """Write the heading of a panel.

    Args:
        axes: The axes.
        text: The heading.
        theme: The colours.
        across: The number of panels side by side.
        beside: The width of the names at the left, in letters.
    """
    if text:
        width = WIDTH_INCHES / across - beside * LETTER_INCHES
        (shown,) = labels.cut([text], max(HEADING_MIN, int(width / HEADING_INCHES) - 2))
        axes.set_title(shown, loc="left", fontsize=10.5, fontweight="bold", color=theme.ink, pad=7)


def value_axis(axes: Axes, unit: str, label: str, top: float | None = None, log: bool = False) -> None:
    """Set up a vertical axis of values.

    Args:
        axes: The axes.
        unit: A key of ``units.FORMATS``.
        label: The label.
        top: The end of the axis; None is the largest value.
        log: True for a logarithmic axis.
    """
    axes.grid(axis="y")
    low, high = axes.get_ylim() if top is None else (0.0, top)
    if not log:
        axes.set_ylim(min(0.0, low), high if high > 0 else 1.0)
    find, at_most = (ticks.logarithmic, MAGNITUDES_MAX) if log else (ticks.linear, VALUES_MAX)
    _set_ticks(axes.yaxis, find(*axes.get_ylim(), unit, at_most))
    axes.set_ylabel(label)


def broken(moments: Sequence[datetime], values: Sequence[float]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return points of a line with NaN where the line must be interrupted: where the time step is far above the usual.

    Args:
        moments: The times, sorted.
        values: The values.

    Returns:
        The positions on a time axis, and the values.
    """
    at, up = mdates.date2num(moments), np.asarray(values, float)
    steps = np.diff(at)
    gaps = np.flatnonzero(steps > BREAK_TIMES * np.median(steps)) if len(steps) else np.array([], int)
    return np.insert(at, gaps + 1, at[gaps] + steps[gaps] / 2), np.insert(up, gaps + 1, np.nan)


def lonely(values: NDArray[Any]) -> bool:
    """Return True if a value has no neighbour, so that no line would show it.

    Args:
        values: The values, with NaN for gaps.
    """
    known = np.pad(~np.isnan(values), 1)
    return bool((known[1:-1] & ~known[:-2] & ~known[2:]).any())


def bars_cut(axes: Axes, sides: Sequence[tuple[float, float]], theme: Theme) -> None:
    """Draw a slanting cut through bars that continue above the axis.

    Args:
        axes: The axes.
        sides: The left and the right side of each bar.
        theme: The colours.
    """
    low, high = axes.get_ylim()
    for left, right in sides:
        up = [low + share * (high - low) for share in (0.87, 0.9, 0.92, 0.89)]
        axes.fill([left, right, right, left], up, color=theme.paper, linewidth=0, zorder=3)


def figure_above(axes: Axes, place: float, text: str) -> None:
    """Write a text above the axes.

    Args:
        axes: The axes.
        place: The horizontal position.
        text: The text.
    """
    left, right = axes.get_xlim()
    share = (place - left) / (right - left)
    side = "left" if share < 0.05 else "right" if share > 0.95 else "center"
    across = axes.get_xaxis_transform()
    axes.text(place, 1.02, text, transform=across, ha=side, va="bottom", fontsize=9, fontweight="bold", clip_on=False)


def time_axis(axes: Axes, least_days: float = 0.0) -> None:
    """Set up a horizontal axis of times.

    Args:
        axes: The axes.
        least_days: The minimum width of the axis, so that a single bar does not fill it.
    """
    axes.margins(x=0.01)
    low, high = axes.dataLim.intervalx
    if low == high:  # a single time: matplotlib would show the years around it
        axes.set_xlim(low - AROUND_DAYS, high + AROUND_DAYS)
    low, high = axes.get_xlim()
    if high - low < least_days:
        axes.set_xlim((low + high - least_days) / 2, (low + high + least_days) / 2)
    ticks.calendar(axes.xaxis, MOMENTS_MAX)


def above(names: Sequence[str]) -> list[str]:
    """Return names for the legend beside the title, shortened if necessary.

    Args:
        names: The names.
    """
    whole = labels.cut(names, LEGEND_LETTERS)
    fits = sum(len(name) + PATCH_LETTERS for name in whole) <= ABOVE_LETTERS
    return whole if fits else labels.cut(names, max(HEADING_MIN, ABOVE_LETTERS // len(names) - PATCH_LETTERS))


def legend_above(figure: Figure, theme: Theme, handles: Sequence[Patch | Line2D], spacing: float = 0.8) -> None:
    """Draw a legend at the right of the title.

    Args:
        figure: The figure.
        theme: The colours.
        handles: The entries.
        spacing: The space between the mark of an entry and its text, in letters.
    """
    figure.legend(
        handles=handles, loc="upper right", bbox_to_anchor=(0.99, 1 - 0.1 / figure.get_figheight()), fontsize=9.5,
        ncols=len(handles), labelcolor=theme.quiet, handlelength=0.9, handleheight=0.9, columnspacing=0.9,
        handletextpad=spacing,
    )  # fmt: skip


def legend_beside(axes: Axes, theme: Theme, keys: Sequence[str]) -> None:
    """Draw a legend at the right of the axes.

    Args:
        axes: The axes.
        theme: The colours.
        keys: The names of the entries.
    """
    axes.legend(
        labels.cut(keys, LEGEND_LETTERS), loc="upper left", bbox_to_anchor=(1.005, 1.02), labelcolor=theme.ink,
        handlelength=0.9, handleheight=0.9, fontsize=9, borderaxespad=0.2,
    )  # fmt: skip
