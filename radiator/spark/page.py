"""Render a report: tables for a terminal, and one HTML page.

A ``Page`` is a title and sections. A section has text, tiles (a number and its meaning), tables and charts. The page is
one file: charts are embedded, in a light and a dark version that the browser chooses from. It has no script and loads
nothing. ``templates/report.html`` is the page; Jinja2 escapes every value in it, because clients choose names and tags.

Uses Jinja2 and rich tables. ``units`` formats the cells of a table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from radiator.spark import units
from radiator.spark.chart_style import DARK, LIGHT, Chart

UNBROKEN_MAX = 44  # characters of a cell without a line break
FOLDED_MIN, BETWEEN = 20, 3  # characters on a terminal: minimum width of a text column, and between two columns
NUMBERS = frozenset(units.FORMATS) - {"text", "moment"}  # right-aligned

TEMPLATES = Environment(loader=PackageLoader("radiator.spark"), autoescape=True, undefined=StrictUndefined)
TEMPLATES.filters["many"] = units.many


class Field(NamedTuple):
    """A column of a table.

    Attributes:
        key: The key in the rows.
        heading: The heading of the column.
        unit: A key of ``units.FORMATS``.
        page_only: True to leave the column out on a terminal.
    """

    key: str
    heading: str
    unit: str = "text"
    page_only: bool = False

    def kind(self, text: str) -> str:
        """Return the CSS class of a cell: ``n`` for a number, ``t`` for a text without line breaks, or nothing.

        Args:
            text: The text of the cell.
        """
        if self.unit in NUMBERS:
            return "n"
        return "t" if self.unit == "moment" or len(text) <= UNBROKEN_MAX else ""


class Tile(NamedTuple):
    """A number and its meaning.

    Attributes:
        value: The number as text.
        meaning: What it counts.
        mood: ``good``, ``bad`` or empty.
    """

    value: str
    meaning: str
    mood: str = ""


@dataclass
class Table:
    """A table.

    Attributes:
        title: The title.
        fields: The columns.
        rows: The rows.
        rows_max: The maximum number of rows on the page.
        folded: True to fold the table on the page.
        brief: The rows for a terminal; None uses the first ones.
    """

    title: str
    fields: Sequence[Field]
    rows: Sequence[Mapping[str, Any]]
    rows_max: int = 200
    folded: bool = False
    brief: Sequence[Mapping[str, Any]] | None = None

    def cells(self, row: Mapping[str, Any]) -> list[str]:
        """Return the formatted cells of a row.

        Args:
            row: The row.
        """
        return [units.FORMATS[each.unit](row[each.key]) for each in self.fields]

    def rich(self, rows_max: int = 20, plain: Callable[[str], str] = str, width: int | None = None) -> RichTable:
        """Return the table for a terminal.

        Args:
            rows_max: The maximum number of rows.
            plain: Removes characters that the terminal would interpret.
            width: The width of the terminal. Columns that do not fit are left out, from the right, and named in the
                caption, because rich would truncate numbers. None shows all columns.
        """
        brief = self.rows if self.brief is None else self.brief
        left_out = len(self.rows) - min(rows_max, len(brief))
        every = [each for each in self.fields if not each.page_only]
        cells = [[plain(units.FORMATS[each.unit](row[each.key])) for each in every] for row in brief[:rows_max]]
        fields = every[: _room(every, cells, width)]
        more = [units.many(left_out, "more row")] if left_out > 0 else []
        more += [plain(each.heading) for each in every[len(fields) :]]
        caption = Text(f"{', '.join(more)} in the report") if more else None
        table = RichTable(
            title=Text(plain(self.title), style="bold"), title_justify="left", caption=caption, caption_justify="left",
            box=SIMPLE_HEAD, pad_edge=False,
        )  # fmt: skip
        for each in fields:
            side: JustifyMethod = "right" if each.unit in NUMBERS else "left"
            table.add_column(Text(plain(each.heading)), justify=side, overflow="fold", no_wrap=each.unit != "text")
        for row in cells:
            table.add_row(*map(Text, row[: len(fields)]))
        return table


def _room(fields: Sequence[Field], cells: Sequence[Sequence[str]], width: int | None) -> int:
    """Return the number of columns that fit into the terminal; only text columns may fold."""
    if width is None:
        return len(fields)
    needed = 2 - BETWEEN
    for place, each in enumerate(fields):
        longest = max(len(text) for text in (each.heading, *(row[place] for row in cells)))
        needed += BETWEEN + (min(longest, FOLDED_MIN) if each.unit == "text" else longest)
        if needed > width:
            return max(place, 1)
    return len(fields)


@dataclass
class Section:
    """A section of the page.

    Attributes:
        title: The title.
        text: How to read the section.
        tiles: The tiles.
        charts: The charts.
        tables: The tables.
        summary: The result, in one or two sentences.
        findings: What is unusual, one line each; a page with many sections repeats them at its top.
        notes: Remarks at the end.
        empty: True if there is nothing to show; a page with many sections then has only ``summary`` of it.
    """

    title: str
    text: str = ""
    tiles: list[Tile] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    summary: str = ""
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    empty: bool = False


@dataclass
class Page:
    """A page.

    Attributes:
        title: The title.
        subtitle: The line below the title.
        sections: The sections.
        foot: The line at the end.
    """

    title: str
    subtitle: str
    sections: list[Section] = field(default_factory=list)
    foot: str = ""

    def html(self) -> str:
        """Return the page as HTML."""
        return TEMPLATES.get_template("report.html").render(page=self, light=LIGHT, dark=DARK)

    def save(self, folder: str | os.PathLike[str], name: str = "report.html") -> Path:
        """Write the page and return its path.

        Args:
            folder: The directory; it is created if necessary.
            name: The name of the file.

        Raises:
            OSError: The file cannot be written.
        """
        target = Path(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def save_charts(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the charts of all sections as PNG files, and return their paths.

        Args:
            folder: The directory; it is created if necessary.

        Raises:
            OSError: A file cannot be written.
        """
        return [chart.save(folder) for section in self.sections for chart in section.charts]
