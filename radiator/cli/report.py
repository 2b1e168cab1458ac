"""``radiator report``: a report on a data directory, made by Spark.

Tables go to the terminal (or JSON to stdout), pictures and one HTML page into a folder. The broker may be running: the
report reads its files up to what is committed when it begins. pyspark and Java are looked for only here, and if one is
missing the command says how to get it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from radiator.cli.common import DAMAGED, NOT_FOUND, OK, USAGE, CommandFailed, json_option, out, progress, put_json, say

if TYPE_CHECKING:
    from radiator.spark.report import Report

TERMINAL_ROWS, TERMINAL_ROWS_FOLDED = 20, 6
REMEDY = "`report` needs pyspark and {name} is not installed: pip install 'radiator[spark]'"


@click.command("report", short_help="Make a report on a data directory with Spark.")
@click.option(
    "--data", metavar="DIR", default="./data", show_default=True, type=click.Path(), help="The broker's data directory."
)
@click.option(
    "--out", "folder", metavar="DIR", default="./report", show_default=True, type=click.Path(file_okay=False),
    help="Where the page (report.html), the pictures and report.json go.",
)  # fmt: skip
@click.option("--skip-damaged", is_flag=True, help="Leave out what cannot be read, and report it, instead of failing.")
@json_option
def report(data: str, folder: str, skip_damaged: bool, as_json: bool) -> int:
    """Make a report on a data directory with Spark: traffic, latency, tags, integrity.

    The broker may be running; the report covers what is committed when it begins. Needs the extra radiator[spark].
    Exit codes: 2 without pyspark or Java, 5 if there is no store, 6 if damage was found.
    """
    try:
        from radiator.spark.report import LostRecords, NoStore, make_report
    except ImportError as error:
        raise CommandFailed(USAGE, REMEDY.format(name=error.name or "a part of it")) from error
    with progress() as shown:
        task = shown.add_task("start Spark", total=None, note="")

        def step(what: str, place: int, of: int) -> None:
            shown.update(task, description=what, completed=place, total=of)

        try:
            found = make_report(data, folder, fail_on_data_loss=not skip_damaged, progress=step)
        except NoStore as error:
            raise CommandFailed(NOT_FOUND, str(error)) from error
        except LostRecords as error:
            raise CommandFailed(DAMAGED, f"{error}; for this command: --skip-damaged") from error
    if as_json:
        put_json(found.summary())
    else:
        _print(found)
    if found.missing:
        say(f"damage found: {found.missing:,} records are missing; see the missing ranges in {folder}/report.html")
        return DAMAGED
    return OK


def _print(found: Report) -> None:
    console = out()
    for section in found.page.sections:
        console.print()
        console.rule(f"[bold]{section.title}", align="left")
        if section.text:
            console.print(section.text, style="dim", markup=False)
        for tile in section.tiles:
            console.print(f"  [bold]{tile.value:>12}[/]  {tile.meaning}")
        for table in section.tables:
            console.print()
            console.print(table.rich(TERMINAL_ROWS_FOLDED if table.folded else TERMINAL_ROWS))
    console.print()
    console.print(f"The report with pictures: [bold]{found.files[0]}[/]")
