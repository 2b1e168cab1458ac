"""``radiator report``: make report sections about a data directory.

Tables are printed to the terminal (or JSON to stdout); charts and one HTML page are written to a directory. The broker
may be running: the report reads what is committed when it begins. pyspark and Java are loaded only for sections that
need Spark; if one is missing, the error says how to install it. ``radiator.spark.sections`` defines the sections.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from radiator.cli.common import (
    DAMAGED,
    OK,
    CommandFailed,
    check_readable,
    json_option,
    progress,
    put_json,
    say,
    stdout_console,
)
from radiator.spark.sections import ALL, COMMON, SECTIONS, chosen
from radiator.spark.sections.options import FLAGS, LIMIT, SAMPLES
from radiator.words import are, counted

if TYPE_CHECKING:
    from radiator.spark.report import Report

TERMINAL_ROWS, TERMINAL_ROWS_FOLDED = 20, 6
TIME = "@TIME"


LIVE = "live"


class ReportCommand(click.Command):
    """A command whose help lists the sections. ``report live`` is a separate command, which runs until a signal."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of ``report live`` if that is called, else the usual one."""
        if args[:1] == [LIVE]:
            from radiator.cli.live import live

            return live.make_context(f"{info_name} {LIVE}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of sections."""
        with formatter.section("Sections"):
            formatter.write_dl([(name, _about(name)) for name in SECTIONS])
            formatter.write_dl([(LIVE, "Counts of new messages, published to a topic: see `report live --help`.")])


def _about(name: str) -> str:
    entry = SECTIONS[name]
    takes = ", ".join(FLAGS[option] for option in entry.takes)
    return entry.question + (f" Options: {takes}." if takes else "")


@click.command("report", cls=ReportCommand, short_help="Make a report about a data directory.")
@click.argument("sections", metavar="[SECTION]...", nargs=-1, type=click.Choice([*SECTIONS, ALL]))
@click.option("--data", metavar="DIR", default="./data", show_default=True, help="The broker's data directory.")
@click.option("--archive", metavar="URI", help="An archive of `radiator archive`, read together with the log.")
@click.option(
    "--out", "folder", metavar="DIR", default="./report", show_default=True, type=click.Path(file_okay=False),
    help="Directory for report.html, the charts and report.json; for one section SECTION.html and SECTION.json.",
)  # fmt: skip
@click.option("--destination", metavar="PATTERN", help="Only these destinations, as in SUBSCRIBE; a list has commas.")
@click.option(
    "--from", "start", metavar=TIME, help="Messages received from here on: RFC 3339, -1h30m or 'yesterday 14:05'."
)
@click.option("--until", metavar=TIME, help="Messages received before here; the same forms as --from.")
@click.option("--every", metavar="WIDTH", help="Width of a time bucket, such as 5m. Default: to fit.")
@click.option("--by", metavar="WHAT", help="Group by partition or by this header instead of destinations.")
@click.option("--limit", type=int, metavar="N", help=f"Number of values of each kind. Default: {LIMIT}.")
@click.option("--key", metavar="WHAT", help="Key: a header, or a field of JSON bodies such as $.tailnum.")
@click.option("--sender", metavar="WHAT", help="Header that identifies the sender. Default: producer-id.")
@click.option("--gap", metavar="WIDTH", help="Time without a message that ends a session. Default: 30m.")
@click.option("--with", "shift", metavar="SHIFT", help="Compare with the same period, shifted by SHIFT, such as -7d.")
@click.option("--with-from", "with_start", metavar=TIME, help="Compare with messages received from here on; as --from.")
@click.option("--with-until", metavar=TIME, help="Compare with messages received before here; as --from.")
@click.option("--samples", metavar="NAME", help=f"Topic of `radiator cursors sample`. Default: {SAMPLES}.")
@click.option("--skip-damaged", is_flag=True, help="Report and leave out unreadable records instead of failing.")
@json_option
def report(
    sections: tuple[str, ...], data: str | None, archive: str | None, folder: str, skip_damaged: bool, as_json: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Make a report about a data directory: of some SECTIONs, or of all.

    The broker may be running; the report ends with the messages that are stored when it begins. Needs the extra
    radiator-broker[spark], and Java for all sections but consumers. Exit codes: 2 without pyspark or Java, 5 if there
    is no store, 6 if damage was found.
    """
    names = chosen(sections)
    if archive is not None and _nowhere(data):
        data = None
    _check(names, options)
    if data is not None:
        check_readable(data)
    from radiator.spark.report import LostRecords, make_report

    with progress() as shown:
        task = shown.add_task("read the store", total=None, note="")

        def step(what: str, place: int, of: int) -> None:
            shown.update(task, description=what, completed=place, total=of)

        try:
            found = make_report(
                data,
                folder,
                archive=archive,
                sections=names,
                fail_on_data_loss=not skip_damaged,
                progress=step,
                **options,
            )
        except LostRecords as error:
            raise CommandFailed(DAMAGED, f"{error}; for this command: --skip-damaged") from error
    if as_json:
        put_json(found.summary())
    else:
        _print(found)
    if found.missing:
        what = f"{counted(found.missing, 'record')} {are(found.missing)} missing"
        say(f"damage found: {what}; see the missing ranges in {found.files[0]}")
        return DAMAGED
    return OK


def _nowhere(data: str | None) -> bool:
    """Return True if no option names the store, and the default directory does not exist."""
    source = click.get_current_context().get_parameter_source("data")
    return source is ParameterSource.DEFAULT and not os.path.isdir(str(data))


def _check(names: list[str], options: dict[str, Any]) -> None:
    """Check that every given option is used by a chosen section."""
    for option in (name for name, value in options.items() if value is not None and name not in COMMON):
        takers = [name for name, entry in SECTIONS.items() if option in entry.takes]
        if not set(takers) & set(names):
            raise click.UsageError(
                f"{FLAGS[option]} cannot be used with {', '.join(names)}; it belongs to {', '.join(takers)}"
            )


def _print(found: Report) -> None:
    from rich.markup import escape

    from radiator.cli.formats import visible  # text of clients must not control the terminal

    console = stdout_console()
    for section in found.page.sections:
        console.print()
        console.rule(f"[bold]{section.title}", align="left")
        if section.summary:
            console.print(visible(section.summary), markup=False, emoji=False)
        for line in section.findings:
            console.print(f"  • {visible(line)}", markup=False, emoji=False)
        if section.text:
            console.print(visible(section.text), style="dim", markup=False, emoji=False)
        for tile in section.tiles:
            console.print(f"  [bold]{tile.value:>12}[/]  {escape(visible(tile.meaning))}", emoji=False)
        for table in section.tables:
            console.print()
            rows = TERMINAL_ROWS_FOLDED if table.folded else TERMINAL_ROWS
            console.print(table.rich(rows, visible, console.width))
        for note in section.notes:
            console.print(visible(note), markup=False, emoji=False)
    console.print()
    console.print(f"The report with charts: [bold]{escape(str(found.files[0]))}[/]", emoji=False)
