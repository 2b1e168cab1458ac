"""`radiator report consumers`: the numbers are those of the deliveries, and the section says what is remarkable."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from radiator.spark.chart_style import LIGHT
from radiator.spark.report import Report, make_report
from radiator.spark.sections.consumers import NOT_RECORDED, section
from radiator.spark.sections.options import Options
from tests.spark.deliveries import PARTITION, Delivery, records
from tests.spark.stores import MS, START_NS, Message, Writer, numbered

pytestmark = pytest.mark.spark

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
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, list[Delivery]]:
    folder = tmp_path_factory.mktemp("consumers")
    writer = Writer(folder / "data")
    sent, rows = history()
    writer.write("work", sent)
    writer.write(PARTITION, records(rows))
    writer.close()
    return make_report(writer.root, folder / "report", spark=spark, sections=["consumers"]), rows


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_log_without_deliveries_says_how_to_record_them(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("a", numbered("/topic/a", 3))
    writer.close()
    report = make_report(writer.root, None, spark=spark, sections=["consumers"])
    assert report.page.sections[0].summary == NOT_RECORDED
