"""Tables for people, in which no name is cut or folded.

A table that is wider than the terminal first breaks lists at their commas, then leaves out columns, and reports on
stderr which. If the columns that remain are still too wide, the terminal wraps the lines. A table that goes into a pipe
or a file always has every column.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from radiator.cli.formats import visible

GAP = "  "
SEPARATOR = ", "
Cell = str | Sequence[str]  # a list may be broken at its commas


class Column(NamedTuple):
    """A heading, and how much the column matters."""

    heading: str
    number: bool = False  # aligned to the right
    drop: int = 0  # 0: always shown; otherwise the highest value is left out first


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Write a table to stdout, as wide as its terminal permits."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines, left_out = layout(columns, rows, width)
    click.echo(click.style(lines[0], bold=True))
    for line in lines[1:]:
        click.echo(line)
    if left_out:
        click.echo(f"left out at {width} columns: {', '.join(left_out)}; --json has all", err=True)


def layout(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> tuple[list[str], list[str]]:
    """Return the lines of a table and the headings that were left out. ``width`` None: any width will do."""
    cells = [[[SEPARATOR.join(_texts(cell))] for cell in row] for row in rows]
    if width is not None and _width(columns, cells, range(len(columns))) > width:
        cells = [[_broken(cell) for cell in row] for row in rows]
    shown = list(range(len(columns)))
    while width is not None and _width(columns, cells, shown) > width:
        least = max(shown, key=lambda index: columns[index].drop)
        if not columns[least].drop:
            break
        shown.remove(least)
    widths = {index: _column_width(columns, cells, index) for index in shown}
    lines = [_line([(columns[index], columns[index].heading, widths[index]) for index in shown])]
    for row in cells:
        for number in range(max(len(row[index]) for index in shown)):
            texts = [row[index][number] if number < len(row[index]) else "" for index in shown]
            lines.append(
                _line([(columns[index], text, widths[index]) for index, text in zip(shown, texts, strict=True)])
            )
    return lines, [column.heading for index, column in enumerate(columns) if index not in shown]


def _texts(cell: Cell) -> list[str]:
    return [visible(text) for text in ((cell,) if isinstance(cell, str) else cell)]


def _broken(cell: Cell) -> list[str]:
    """One line for each entry; the comma stays at the end of its line."""
    *before, last = _texts(cell) or [""]
    return [*(f"{text}{SEPARATOR.rstrip()}" for text in before), last]


def _length(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _column_width(columns: Sequence[Column], cells: list[list[list[str]]], index: int) -> int:
    texts = (text for row in cells for text in row[index])
    return max(_length(columns[index].heading), max(map(_length, texts), default=0))


def _width(columns: Sequence[Column], cells: list[list[list[str]]], shown: Sequence[int]) -> int:
    return sum(_column_width(columns, cells, index) for index in shown) + len(GAP) * (len(shown) - 1)


def _line(parts: Sequence[tuple[Column, str, int]]) -> str:
    padded = []
    for column, text, width in parts:
        blanks = " " * (width - _length(text))
        padded.append(blanks + text if column.number else text + blanks)
    return GAP.join(padded).rstrip()
