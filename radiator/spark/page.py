"""Render a report: tables for a terminal, and one HTML page.

A ``Page`` is a title and sections. A section has text, tiles (a number and its meaning), tables and charts. The page is
one file: charts are embedded, in a light and a dark version that the browser chooses from. It has no script and loads
nothing. All text is escaped here, because clients choose names and tags.

Uses HTML and rich tables. ``units`` formats the cells of a table.
"""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from radiator.spark import units
from radiator.spark.chart_axes import WIDTH_INCHES
from radiator.spark.charts import DARK, LIGHT, Chart

if TYPE_CHECKING:
    from rich.table import Table as RichTable

UNBROKEN_MAX = 44  # characters of a cell without a line break
FOLDED_MIN, BETWEEN = 20, 3  # characters on a terminal: minimum width of a text column, and between two columns
NUMBERS = frozenset(units.FORMATS) - {"text", "moment"}  # right-aligned


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
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        brief = self.rows if self.brief is None else self.brief
        left_out = len(self.rows) - min(rows_max, len(brief))
        every = [each for each in self.fields if not each.page_only]
        cells = [[plain(units.FORMATS[each.unit](row[each.key])) for each in every] for row in brief[:rows_max]]
        fields = every[: _room(every, cells, width)]
        more = [units.many(left_out, "more row")] if left_out > 0 else []
        more += [plain(each.heading) for each in every[len(fields) :]]
        caption = Text(f"{', '.join(more)} in the report") if more else None
        table = RichTable(
            title=Text(plain(self.title), style="bold"),
            title_justify="left",
            caption=caption,
            caption_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        for each in fields:
            number, text = each.unit in NUMBERS, each.unit == "text"
            table.add_column(
                Text(plain(each.heading)), justify="right" if number else "left", overflow="fold", no_wrap=not text
            )
        for row in cells:
            table.add_row(*map(Text, row[: len(fields)]))
        return table

    def html(self) -> str:
        """Return the table as HTML."""

        def cell(tag: str, text: str, each: Field) -> str:
            whole = each.unit == "moment" or len(text) <= UNBROKEN_MAX
            kind = ' class="n"' if each.unit in NUMBERS else ' class="t"' if whole else ""
            return f"<{tag}{kind}>{html.escape(text)}</{tag}>"

        head = "".join(cell("th", each.heading, each) for each in self.fields)
        body = "\n".join(
            "<tr>"
            + "".join(cell("td", text, each) for text, each in zip(self.cells(row), self.fields, strict=True))
            + "</tr>"
            for row in self.rows[: self.rows_max]
        )
        left_out = len(self.rows) - self.rows_max
        more = f'<p class="quiet">{units.many(left_out, "more row")} left out here.</p>' if left_out > 0 else ""
        table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>{more}'
        title = html.escape(self.title)
        if self.folded:
            return f"<details><summary>{title} ({units.many(len(self.rows), 'row')})</summary>{table}</details>"
        return f"<h3>{title}</h3>{table}"


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
        found: The findings, in one or two sentences.
        stands_out: Unusual findings, one line each; a page with many sections repeats them at its top.
        notes: Remarks at the end.
        nothing: True if there is nothing to show, so that a page with many sections shows ``found`` only.
    """

    title: str
    text: str = ""
    tiles: list[Tile] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    found: str = ""
    stands_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nothing: bool = False

    def html(self) -> str:
        """Return the section as HTML."""
        parts = [f"<section><h2>{html.escape(self.title)}</h2>"]
        if self.found:
            parts.append(f'<p class="found">{html.escape(self.found)}</p>')
        if self.stands_out:
            parts.append('<ul class="out">' + _items(self.stands_out) + "</ul>")
        if self.text:
            parts.append(f"<p>{html.escape(self.text)}</p>")
        if self.tiles:
            parts.append('<div class="tiles">' + "".join(map(_tile, self.tiles)) + "</div>")
        parts += [_picture(picture) for picture in self.charts]
        parts += [table.html() for table in self.tables]
        if self.notes:
            parts.append("<ul>" + _items(self.notes) + "</ul>")
        return "\n".join([*parts, "</section>"])


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
        title = html.escape(self.title)
        body = "\n".join(section.html() for section in self.sections)
        return _PAGE.format(
            title=title, subtitle=html.escape(self.subtitle), style=_STYLE, body=body, foot=html.escape(self.foot)
        )

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
        return [picture.save(folder) for section in self.sections for picture in section.charts]


def _items(lines: Sequence[str]) -> str:
    return "".join(f"<li>{html.escape(line)}</li>" for line in lines)


def _tile(tile: Tile) -> str:
    mood = f" {tile.mood}" if tile.mood else ""
    return f'<div class="tile{mood}"><b>{html.escape(tile.value)}</b><span>{html.escape(tile.meaning)}</span></div>'


def _picture(picture: Chart) -> str:
    light, dark = (base64.b64encode(picture.png(theme)).decode() for theme in (LIGHT, DARK))
    text = html.escape(f"{picture.title}. {picture.note}", quote=True)
    names = f' title="{html.escape("In full: " + ", ".join(picture.cut), quote=True)}"' if picture.cut else ""
    ratio = f"{WIDTH_INCHES:g} / {picture.height:g}"
    return (
        f'<picture><source srcset="data:image/png;base64,{dark}" media="(prefers-color-scheme: dark)">'
        f'<img src="data:image/png;base64,{light}" alt="{text}"{names} style="aspect-ratio: {ratio}"></picture>'
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><p>{subtitle}</p></header>
<main>
{body}
</main>
<footer>{foot}</footer>
</body>
</html>
"""

_STYLE = """
:root { --paper: #f4f6f9; --card: #ffffff; --ink: #1d2733; --quiet: #66717f; --line: #e2e6ec; --accent: #2f6fde;
  --good: #1a8a63; --bad: #c93a4b; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --card: #161b22; --ink: #e6eaf0; --quiet: #96a1b0; --line: #2b333d; --accent: #6ea6ff;
    --good: #4bcfa3; --bad: #ff7b86; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
header, main, footer { max-width: 1240px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 40px; }
h1 { margin: 0; font-size: 30px; line-height: 1.2; letter-spacing: -.01em; }
header p { margin: 6px 0 0; color: var(--quiet); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 22px 24px 24px;
  margin: 22px 0; }
h2 { margin: 0 0 6px; font-size: 20px; }
h3 { margin: 26px 0 8px; font-size: 15px; }
section > p { margin: 0 0 14px; color: var(--quiet); max-width: 72ch; }
section > p.found { color: var(--ink); font-size: 17px; }
ul { margin: 18px 0 0; padding-left: 20px; color: var(--quiet); }
ul.out { margin: 0 0 14px; color: var(--ink); }
ul.out li::marker { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(148px, 1fr)); gap: 12px; margin: 16px 0 4px; }
.tile { border: 1px solid var(--line); border-left: 4px solid var(--accent); border-radius: 8px; padding: 10px 14px; }
.tile b { display: block; font-size: 22px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: 13px; }
.tile.good { border-left-color: var(--good); }
.tile.bad { border-left-color: var(--bad); }
.tile.bad b { color: var(--bad); }
picture img { display: block; width: 100%; height: auto; margin: 18px 0 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 8px; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: break-word; max-width: 420px; }
th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
.n { text-align: right; }
.n, .t { white-space: nowrap; }
tbody tr:hover { background: color-mix(in srgb, var(--accent) 7%, transparent); }
details { margin-top: 22px; }
summary { cursor: pointer; font-weight: 600; font-size: 15px; }
details .scroll { margin-top: 8px; max-height: 480px; overflow-y: auto; }
.quiet { color: var(--quiet); font-size: 13px; }
footer { color: var(--quiet); font-size: 13px; padding-top: 4px; padding-bottom: 40px; }
@media print { body { background: none; } section { break-inside: avoid; } }
"""
