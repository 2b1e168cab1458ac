"""The demo's output while it runs: headlines, progress bars, claims; plain lines without a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.checks import Claim

PIPE_WIDTH = 160


class Show:
    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, width=PIPE_WIDTH)
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def say(self, text: str) -> None:
        self.console.print(f"  {text}")

    @contextmanager
    def act(self, title: str) -> Iterator[None]:
        """Print a headline, and below it a bar for each name that ``bar`` and ``step`` get."""
        self.console.print()
        self.console.print(f"[bold cyan]{title}")
        columns = (
            TextColumn("  {task.description:<18}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.fields[note]}"),
        )
        if not self.console.is_terminal:
            yield
            return
        with Progress(*columns, TimeElapsedColumn(), console=self.console) as self._progress:
            yield
        self._progress = None
        self._tasks = {}

    def bar(self, name: str, done: int, of: int, note: str = "") -> None:
        if self._progress is None:
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=of, note="")
        self._progress.update(self._tasks[name], completed=done, total=max(of, done), note=note)

    def claim(self, claim: Claim) -> None:
        self.console.print(f"  {mark(claim)} {escape(claim.text)} [dim]({escape(claim.figures)})")

    def summary(self, claims: Sequence[Claim]) -> None:
        table = Table(box=None, padding=(0, 1), show_header=False)
        for claim in claims:
            table.add_row(mark(claim), escape(claim.text), f"[dim]{escape(claim.figures)}")
        broken = [claim for claim in claims if not claim.holds]
        title = f"{len(broken)} of {len(claims)} claims do not hold" if broken else f"all {len(claims)} claims hold"
        self.console.print()
        self.console.print(
            Panel(table, title=title, title_align="left", border_style="bold red" if broken else "green")
        )


def mark(claim: Claim) -> str:
    return "[bold green]✓[/]" if claim.holds else "[bold red]✗[/]"
