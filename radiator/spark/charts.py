"""Draw charts: a few kinds, in one style, each in a light and a dark version.

A chart is made from rows (mappings, as Spark's ``Row.asDict()`` returns them) and the names of the fields to show:

    bars("volume", "Messages per destination", rows, label="destination", value="messages").save(folder)

The title is at the left, and a line below it says how to read the chart. Every axis has a unit. The palette can be
distinguished by colour-blind people. Beyond ``limit`` the rest is one grey "other".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.collections import PolyCollection
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from radiator.spark import axis_cut, labels, units
from radiator.spark.chart_axes import (
    LEGEND_LETTERS,
    PANEL_LETTERS,
    ROW_LETTERS,
    Panels,
    Rows,
    above,
    bars_cut,
    broken,
    drawable,
    figure_above,
    heading,
    legend_above,
    legend_beside,
    lonely,
    panel_axes,
    panel_columns,
    panel_height,
    panelled,
    range_axis,
    rows_axis,
    time_axis,
    value_axis,
)
from radiator.spark.chart_style import DARK, LIGHT, Chart, Theme

__all__ = ["DARK", "LIGHT", "OTHER", "Chart", "Theme", "bars", "lines", "pairs", "ranges", "stacked"]

OTHER = "other"
PANEL, PARTS = "panel of a bar", "parts of a bar"  # fields
NAMED_MAX = 7  # series with a name and a colour
DAY_SECONDS = 86_400  # matplotlib counts in days
OVER_CUT = 1.3  # the height of a cut axis, as a multiple of the highest bar that is not cut
STEEP_MIN = 50.0  # a value above this multiple of the median is a peak that flattens the rest
GAPS_MAX, PIECES_MIN = 60, 16  # bars over time: the maximum number with gaps, and the minimum width of the axis


# --- kinds ------------------------------------------------------------------------------------------------------------


def bars(
    name: str, title: str, rows: Rows, *, label: str, value: str, unit: str = "count", note: str = "",
    panel: str | None = None, series: str | None = None, limit: int = 12,
) -> Chart:  # fmt: skip
    """Return a chart of horizontal bars, in the order of the rows, with their values.

    Rows with one name are one bar, and its value is their sum.

    Args:
        name: The file name, without .png.
        title: The title.
        rows: The rows.
        label: The field with the names of the bars.
        value: The field with the values.
        unit: A key of ``units.FORMATS``.
        note: How to read the chart.
        panel: A field; each of its values gets a small chart, all with one scale.
        series: A field; each of its values gets a colour, in the order of their first rows, and a part of each bar.
        limit: The maximum number of bars per panel.
    """
    totals: dict[str, float] = {}
    parts: dict[tuple[str, Any], dict[str, float]] = {}  # by panel and name: the part of each series
    for row in rows:
        kind, size = "" if series is None else str(row[series]), float(row[value] or 0)
        of = parts.setdefault(("" if panel is None else str(row[panel]), row[label]), {})
        of[kind] = of.get(kind, 0.0) + size
        totals[kind] = totals.get(kind, 0.0) + size
    kinds = [kind for kind, total in totals.items() if total] or [""]
    each_bar = [
        {PANEL: of_panel, label: key, PARTS: [of.get(kind, 0.0) for kind in kinds]}
        for (of_panel, key), of in parts.items()
    ]
    groups = panelled(each_bar, None if panel is None else PANEL, limit)
    drawn = [row for _, group in groups for row in group]
    widest = max((sum(row[PARTS]) for row in drawn), default=0.0) or 1.0
    letters = ROW_LETTERS if len(groups) == 1 else PANEL_LETTERS
    names = [*(each for each, _ in groups if each), *(row[label] for row in drawn)]

    def draw(figure: Figure, theme: Theme) -> None:
        for place, (axes, (panel_title, group)) in enumerate(zip(panel_axes(figure, groups), groups, strict=False)):
            ends = np.zeros(len(group))
            for i in range(len(kinds)):
                values = np.array([row[PARTS][i] for row in group])
                colour = theme.colour(place if series is None else i)
                drawn_bars = axes.barh(range(len(group)), values, left=ends, height=0.68, color=colour)
                ends = ends + values
            axes.bar_label(drawn_bars, list(map(units.FORMATS[unit], ends.tolist())), padding=4, fontsize=9)
            axes.set_xlim(0, widest * 1.16)
            axes.xaxis.set_major_locator(NullLocator())
            axes.spines["bottom"].set_visible(False)
            across = panel_columns(groups)
            beside = groups[place // across * across :][:across]
            places = max(len(each) for _, each in beside)
            rows_axis(axes, group, label, letters, places=places)
            longest = max((len(str(row[label])) for row in group), default=0)
            heading(axes, panel_title, theme, across, min(letters, longest))
        if series is not None:
            patches = [Patch(color=theme.colour(i), label=kind) for i, kind in enumerate(above(kinds))]
            legend_above(figure, theme, patches)

    return Chart(name, title, note, draw, panel_height(groups, 0.27), labels.in_full(names, letters))


def ranges(
    name: str, title: str, rows: Rows, *, label: str, points: Sequence[str], unit: str = "duration", note: str = "",
    panel: str | None = None, log: bool = True, limit: int = 15,
) -> Chart:  # fmt: skip
    """Return a chart of ranges: one line per row from the first to the last point, with a dot for each point.

    Panels have the same rows at the same height, in the order of their first rows.

    Args:
        name: The file name, without .png.
        title: The title.
        rows: The rows.
        label: The field with the names of the lines.
        points: The fields with the points, such as p50, p95, p99.
        unit: A key of ``units.FORMATS``.
        note: How to read the chart.
        panel: A field; each of its values gets a small chart.
        log: Use a logarithmic axis, without values of 0 and less.
        limit: The maximum number of lines.
    """
    order = list(dict.fromkeys(row[label] for row in rows))[:limit]
    absent = dict.fromkeys(points)
    if log and any(row[point] is not None and not drawable(row[point], log) for row in rows for point in points):
        note += "; " * bool(note) + "0 and less cannot be drawn there"
    groups: Panels = [
        (value, [{label: key, **absent, **found.get(key, {})} for key in order])
        for value, group in panelled(rows, panel, len(rows))
        for found in [{row[label]: row for row in group}]
    ]

    def draw(figure: Figure, theme: Theme) -> None:
        for place, (axes, (panel_title, group)) in enumerate(zip(panel_axes(figure, groups), groups, strict=False)):
            colour = theme.colour(place if panel else 0)
            if log:
                axes.set_xscale("log")
            for y, row in enumerate(group):
                values = [float(row[point]) for point in points if drawable(row[point], log)]
                if values:
                    axes.hlines(y, min(values), max(values), color=colour, linewidth=4.5, alpha=0.28, capstyle="round")
            for i, point in enumerate(points):
                shown = [(float(row[point]), y) for y, row in enumerate(group) if drawable(row[point], log)]
                axes.scatter(
                    [x for x, _ in shown], [y for _, y in shown], s=44 - 9 * i, color=colour, alpha=1 - 0.26 * i,
                    zorder=3, linewidths=0,
                )  # fmt: skip
            axes.grid(axis="x")
            axes.margins(x=0.06)
            range_axis(axes, unit, log, 4 if len(groups) > 1 else 8)
            rows_axis(axes, group, label, shown=place % panel_columns(groups) == 0)
            heading(axes, panel_title, theme, panel_columns(groups), ROW_LETTERS / panel_columns(groups))
        handles = [
            Line2D([], [], marker="o", linestyle="", color=theme.quiet, alpha=1 - 0.26 * i, markersize=7 - i,
                   label=point.removesuffix("_ms"))
            for i, point in enumerate(points)
        ]  # fmt: skip
        legend_above(figure, theme, handles, spacing=0.3)

    return Chart(name, title, note, draw, panel_height(groups, 0.33), labels.in_full(order, ROW_LETTERS))


def stacked(
    name: str, title: str, rows: Rows, *, x: str, series: str, value: str, width_seconds: float, label: str = "",
    note: str = "", order: Sequence[str] = (),
) -> Chart:  # fmt: skip
    """Return a chart of bars over time, with the series stacked.

    The largest series have names, the rest is "other". If a burst would flatten the rest, the axis ends above the rest,
    and the value of the cut bars is written there.

    Args:
        name: The file name, without .png.
        title: The title.
        rows: The rows.
        x: The field with the start of the time bucket.
        series: The field with the name of the series.
        value: The field with the values.
        width_seconds: The width of a time bucket.
        label: The label of the value axis.
        note: How to read the chart.
        order: The names that come first, so that two charts of the same series have the same colours.
    """
    frame = pd.DataFrame([(row[series], float(row[value])) for row in rows], columns=["key", "value"])
    frame["day"] = date2num([row[x] for row in rows])
    totals = frame.groupby("key")["value"].sum().to_dict()
    place = {key: i for i, key in enumerate(order)}
    ranked = sorted(totals.keys() - {OTHER}, key=lambda key: (place.get(key, len(place)), -totals[key], key))
    named = ranked[: NAMED_MAX if len(totals) > NAMED_MAX + 1 else NAMED_MAX + 1]
    free = iter([i for i in range(NAMED_MAX + 1) if i not in {place.get(key) for key in named}])
    colours = {key: place[key] if place.get(key, NAMED_MAX + 1) <= NAMED_MAX else next(free) for key in named}
    columns = [*named, *([OTHER] if len(totals) > len(named) else [])]
    frame["key"] = frame["key"].where(frame["key"].isin(named), OTHER)
    heights = frame.pivot_table(index="day", columns="key", values="value", aggfunc="sum", fill_value=0.0)[columns]
    whole = heights.sum(axis=1).tolist()
    places = [round((day - heights.index[0]) * DAY_SECONDS / width_seconds) for day in heights.index]
    cut = axis_cut.find(list(zip(places, whole, strict=True)))
    if cut is not None:
        note += "; " * bool(note) + f"bars over {units.count(cut.top)} are cut, "
        several = any(len(group) > 1 for group in cut.groups)
        note += "and the highest number of a group is shown above" if several else "and their number is shown above"

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        gaps = not places or places[-1] <= GAPS_MAX
        lefts, tops = heights.index.to_numpy(float), heights.cumsum(axis=1)
        width = width_seconds / DAY_SECONDS * (0.92 if gaps else 1.0)  # a narrow gap between bars
        rights = lefts + width
        for key in columns:
            high, height = tops[key].to_numpy(), heights[key].to_numpy()
            low = high - height
            corners = np.array([[lefts, low], [lefts, high], [rights, high], [rights, low]]).transpose(2, 0, 1)
            colour = theme.colours[-1] if key == OTHER else theme.colour(colours[key])
            # one collection, because drawing single bars takes seconds
            drawn = PolyCollection(corners[height > 0], color=colour, label=key, linewidth=0, aa=gaps)
            drawn.sticky_edges.y.append(0)  # no margin below the bars
            axes.add_collection(drawn)
        axes.autoscale_view()
        value_axis(axes, "short", label, None if cut is None else cut.top * OVER_CUT)
        time_axis(axes, PIECES_MIN * width_seconds / DAY_SECONDS)
        for group in [] if cut is None else cut.groups:
            highest = max(group, key=lambda i: whole[i])
            bars_cut(axes, [(lefts[i], rights[i]) for i in group], theme)
            figure_above(axes, lefts[highest] + width / 2, units.count(whole[highest]))
        legend_beside(axes, theme, columns)

    return Chart(name, title, note, draw, 4.1, labels.in_full(columns, LEGEND_LETTERS))


def lines(
    name: str, title: str, rows: Rows, *, x: str, y: str, series: str | None = None, unit: str = "short",
    label: str = "", x_label: str = "", note: str = "", limit: int = 7, log: bool = False,
) -> Chart:  # fmt: skip
    """Return a line chart over time or over a number.

    Where two lines coincide, the line of the first series is on top.

    Args:
        name: The file name, without .png.
        title: The title.
        rows: The rows.
        x: The field with datetimes or numbers.
        y: The field with the values.
        series: A field; each of its values gets a line.
        unit: A key of ``units.FORMATS``.
        label: The label of the value axis.
        x_label: The label of the other axis.
        note: How to read the chart.
        limit: The maximum number of lines.
        log: Use a logarithmic axis if a linear one would show only a peak, and all values are above 0.
    """
    groups: dict[str, list[tuple[Any, float]]] = {}
    for row in rows:
        if row[y] is not None and row[x] is not None:
            groups.setdefault(str(row[series]) if series else label, []).append((row[x], float(row[y])))
    shown = sorted(groups, key=lambda key: -len(groups[key]))[:limit]
    values = [value for key in shown for _, value in groups[key]]
    log = log and bool(values) and min(values) > 0 and max(values) >= STEEP_MIN * median(values)

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        across: Any
        up: Any
        for i, key in enumerate(shown):
            points = sorted(groups[key])
            dots = "o" if len(points) <= 40 else ""
            across, up = zip(*points, strict=True)
            if isinstance(across[0], datetime):
                across, up = broken(across, up)
                dots = dots or "o" * lonely(up)
            axes.plot(
                across, up, color=theme.colour(i), linewidth=1.9, label=key, marker=dots, markersize=4, zorder=3 - i / 9
            )
        if log:
            axes.set_yscale("log")
        value_axis(axes, unit, label + ", logarithmic" * log, log=log)
        if rows and isinstance(rows[0][x], datetime):
            time_axis(axes)
        axes.set_xlabel(x_label)
        if series:
            legend_beside(axes, theme, shown)

    return Chart(name, title, note, draw, 4.1, labels.in_full(shown if series else [], LEGEND_LETTERS))


def pairs(
    name: str, title: str, rows: Rows, *, label: str, before: str, now: str, remark: str, unit: str = "short",
    words: tuple[str, str] = ("before", "now"), note: str = "", limit: int = 12,
) -> Chart:  # fmt: skip
    """Return a chart of two bars per row, with a remark beside them.

    Args:
        name: The file name, without .png.
        title: The title.
        rows: The rows.
        label: The field with the names of the pairs.
        before: The field with the first value.
        now: The field with the second value.
        remark: The field with the remark.
        unit: A key of ``units.FORMATS``.
        words: The names of the two values, for the legend.
        note: How to read the chart.
        limit: The maximum number of pairs.
    """
    shown = rows[:limit]
    values = [[float(row[side] or 0) for row in shown] for side in (before, now)]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        colours = (theme.colours[-1], theme.colour(0))
        places, old, new = (np.array(each) for each in (range(len(shown)), *values))
        grown = new >= old  # the remark is beside the longer bar
        for side, shift, colour, longer in ((old, -0.19, colours[0], ~grown), (new, 0.19, colours[1], grown)):
            drawn = axes.barh(places + shift, side, height=0.34, color=colour)
            texts = [str(row[remark]) if here else "" for row, here in zip(shown, longer, strict=True)]
            axes.bar_label(drawn, texts, padding=4, fontsize=9)
        axes.set_xlim(0, 1.2 * (max((*old, *new), default=0.0) or 1.0))
        axes.grid(axis="x")
        range_axis(axes, unit, False, 7)
        rows_axis(axes, shown, label)
        handles = [Patch(color=colour, label=word) for colour, word in zip(colours, words, strict=True)]
        legend_above(figure, theme, handles)

    names = labels.in_full([row[label] for row in shown], ROW_LETTERS)
    return Chart(name, title, note, draw, panel_height([("", shown)], 0.44), names)
