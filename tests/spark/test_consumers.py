"""`radiator report consumers`: the numbers are those of the deliveries, and the section says what is remarkable.

It needs no Java, so no test here has a session of Spark."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from radiator.archive import Lost
from radiator.cli import main as command_line
from radiator.columns.scan import LostRecords
from radiator.errors import StorageError
from radiator.spark.chart_style import LIGHT
from radiator.spark.report import Report, make_report
from radiator.spark.sections.consumers import NOT_RECORDED, section
from radiator.spark.sections.options import Options
from tests.spark.archives import archive, lose
from tests.spark.deliveries import PARTITION, Delivery, acked, records
from tests.spark.stores import MS, START_NS, Message, Writer, numbered
from tests.spark.test_source import damage

MESSAGES, EVERY = 600, 20 * MS  # one message every 20 ms
HAND = {"ann/0": 4 * MS, "bob/0": 5 * MS, "carl/0": 90 * MS}


def history() -> tuple[list[Message], list[Delivery]]:
    """A queue whose consumers are ann, bob and the slow carl, who leaves now and then; message 7 is poison. The durable
    subscription `billing` has one consumer."""
    chance = random.Random(5)
    sent = [Message("/queue/work", b"x", b"", START_NS + number * EVERY) for number in range(MESSAGES)]
    rows: list[Delivery] = []
    for offset, message in enumerate(sent):
        now, tries = message.receive_ns + chance.randrange(1, 9) * MS, 0
        while True:
            tries += 1
            consumer = chance.choices([*HAND], [9, 9, 2])[0]
            end = now + HAND[consumer] + chance.randrange(MS)
            if offset == 7:
                outcome = "nacked" if tries < 6 else "dead_lettered"
            elif consumer == "carl/0" and chance.random() < 0.4:
                outcome = "requeued"
            else:
                outcome = "acked"
            rows.append(Delivery("/queue/work", "work", offset, "/queue/work", consumer, tries, now, outcome, end))
            if outcome in ("acked", "dead_lettered"):
                break
            now = end + MS
        now = message.receive_ns + 700 * MS
        rows.append(Delivery("/queue/work", "work", offset, "billing", "till/s", 1, now, "acked", now + 2 * MS, "t-1"))
    return sent, sorted(rows, key=lambda row: row.settled_at)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, list[Delivery]]:
    folder = tmp_path_factory.mktemp("consumers")
    writer = Writer(folder / "data")
    sent, rows = history()
    writer.write("work", sent)
    writer.write(PARTITION, records(rows))
    writer.close()
    return make_report(writer.root, folder / "report", sections=["consumers"]), rows


def test_the_numbers_are_those_of_the_deliveries(made: tuple[Report, list[Delivery]]) -> None:
    report, rows = made
    work = [row for row in rows if row.subscription == "/queue/work"]
    found = {row["consumer"]: row for row in report.answers["consumers"]}
    for name in HAND:
        of = [row for row in work if row.consumer == name]
        assert found[name]["deliveries"] == len(of)
        assert found[name]["share"] == pytest.approx(len(of) / len(work))
        for outcome in ("acked", "nacked", "timed_out", "requeued"):
            assert found[name][outcome] == sum(row.outcome == outcome for row in of)
        times = sorted(
            (row.settled_at - row.delivered_at) / MS for row in of if row.outcome == "acked" if row.delivered_at
        )
        assert times[0] <= found[name]["hand_p50_ms"] <= times[-1]
        assert found[name]["hand_p50_ms"] == pytest.approx(times[(len(times) - 1) // 2], abs=0.01)
    one, other = report.answers["subscriptions"]
    assert {one["subscription"], other["subscription"]} == {"billing", "/queue/work"}
    queue = one if one["subscription"] == "/queue/work" else other
    counts = [sum(row.consumer == name for row in work) for name in HAND]
    assert queue["evenness"] == pytest.approx(sum(counts) ** 2 / (3 * sum(count**2 for count in counts)))
    assert (queue["messages"], queue["acked"], queue["dead_lettered"]) == (MESSAGES, MESSAGES - 1, 1)
    assert queue["retried"] == len({row.offset for row in work if row.delivery > 1})
    assert queue["timed"] == MESSAGES and 1 <= queue["queue_p50_ms"] <= 8
    rates = report.answers["consumer_rates"]
    assert sum(row["messages"] for row in rates) == sum(row.outcome == "acked" for row in rows)
    (poison,) = [row for row in report.answers["poison_messages"] if row["offset"] == 7]
    assert (poison["returned"], poison["nacked"], poison["outcome"]) == (5, 5, "dead_lettered")


def test_the_section_says_what_is_remarkable(made: tuple[Report, list[Delivery]]) -> None:
    report, _ = made
    page = section(report.answers, Options())
    assert page.summary.startswith("1,200 messages settled by 2 subscriptions with 4 consumers, more than 99% of them")
    said = "\n".join(page.findings)
    assert "message 7 of work came back 5 times to /queue/work and was dead-lettered" in said
    assert "carl/0 is slow: it had half of its messages for " in said
    assert {chart.name for chart in page.charts} == {
        "consumers-queue", "consumers-hand", "consumers-throughput", "consumers-share", "consumers-returned",
        "consumers-retries",
    }  # fmt: skip
    assert report.folder is not None and all(
        (report.folder / f"{chart.name}.png").stat().st_size > 5000 for chart in page.charts
    )


def test_pictures_of_many_consumers_show_the_worst_and_say_of_how_many(made: tuple[Report, list[Delivery]]) -> None:
    report, _ = made
    one = next(row for row in report.answers["consumers"] if row["subscription"] == "/queue/work")
    each = [{**one, "consumer": f"c{i}", "deliveries": 100 + i, "hand_p95_ms": 1.0 + i, "nacked": i} for i in range(40)]
    charts = {chart.name: chart for chart in section({**report.answers, "consumers": each}, Options()).charts}
    for name, place in (("consumers-hand", "the 15 slowest consumers, of 40"), ("consumers-share", "of 40")):
        figure = Figure()
        charts[name].draw(figure, LIGHT)
        shown = [text.get_text() for text in figure.axes[0].get_yticklabels()]
        assert charts[name].note.endswith(place)
        assert shown[:2] == ["c39 of /queue/work", "c38 of /queue/work"] and len(shown) in (12, 15)
    figure = Figure()
    charts["consumers-returned"].draw(figure, LIGHT)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["/queue/work"]


def test_a_log_without_deliveries_says_how_to_record_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("a", numbered("/topic/a", 3))
    writer.close()
    report = make_report(writer.root, None, sections=["consumers"])
    assert report.page.sections[0].summary == NOT_RECORDED


def test_the_command_needs_no_java_and_no_pyspark(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    sent, rows = history()
    writer.write("work", sent)
    writer.write(PARTITION, records(rows))
    writer.close()
    code = (
        "import sys\nsys.modules['pyspark'] = None\nfrom radiator.cli.main import run\n"
        "sys.exit(run(['report', 'consumers', '--data', sys.argv[1], '--out', sys.argv[2], '--json']))"
    )
    program = [sys.executable, "-c", code, writer.root, str(tmp_path / "out")]
    ended = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "RADIATOR_JAVA": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    assert len(json.loads(ended.stdout)["consumers"]) == 4
    assert (tmp_path / "out" / "consumers.html").exists()


def test_damage_ends_the_command_with_6_and_can_be_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("a", numbered("/topic/a", 30))
    writer.write(PARTITION, records(acked("a", offset) for offset in range(30)), per_batch=10)
    writer.close()
    damage(writer.root, PARTITION)
    arguments = ["report", "consumers", "--data", writer.root, "--out", str(tmp_path / "out")]
    assert command_line.run(arguments) == 6
    err = capsys.readouterr().err
    assert "offsets 10 to 19" in err and "--skip-damaged" in err and "Traceback" not in err
    assert command_line.run([*arguments, "--skip-damaged", "--json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["subscriptions"][0]["messages"] == 20
    assert found.err.count("offsets 10 to 19") == 1


@pytest.mark.parametrize("many", [False, True])
def test_archive_and_log_are_read_as_one_and_the_log_may_be_gone(tmp_path: Path, many: bool) -> None:
    writer = Writer(tmp_path / "data")
    sent, rows = history()
    writer.write("work", sent)
    writer.write(PARTITION, records(rows))
    writer.close()
    middle = rows[len(rows) // 2].settled_at
    chosen: list[dict[str, Any]] = [{}, {"start": f"@{middle}"}, {"until": f"@{middle}"}, {"destination": "/queue/*"}]
    plain = [make_report(writer.root, sections=["consumers"], **options).answers for options in chosen]
    assert plain[1] != plain[0] != plain[2] and plain[3] == plain[0]
    archive(tmp_path / "part", writer.root, {"work": 250, PARTITION: 400}, many=many)
    archive(tmp_path / "all", writer.root, many=many)
    for options, answers in zip(chosen, plain, strict=True):
        both = make_report(writer.root, archive=str(tmp_path / "part"), sections=["consumers"], **options)
        alone = make_report(None, archive=str(tmp_path / "all"), sections=["consumers"], **options)
        assert both.answers == alone.answers == answers


def test_a_file_that_is_gone_from_the_archive_is_an_error_that_names_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.write(PARTITION, records(acked("a", offset) for offset in range(3)))
    writer.close()
    (path,) = archive(tmp_path / "archive", writer.root)
    (tmp_path / "archive" / path).unlink()
    with pytest.raises(StorageError, match=f"{path}: the file does not exist any more"):
        make_report(None, archive=str(tmp_path / "archive"), sections=["consumers"])


def test_records_that_neither_archive_nor_log_has_are_an_error(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.write(PARTITION, records(acked("a", offset) for offset in range(9)))
    writer.close()
    archive(tmp_path / "archive", writer.root, {PARTITION: 6})
    lose(tmp_path / "archive", Lost(PARTITION, 2, 4, "damage"))
    asked: dict[str, Any] = {"archive": str(tmp_path / "archive"), "sections": ["consumers"]}
    with pytest.raises(LostRecords, match="neither the archive nor the log has all records"):
        make_report(writer.root, **asked)
    assert make_report(writer.root, fail_on_data_loss=False, **asked).answers["subscriptions"]
