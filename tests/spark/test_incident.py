"""A bad day: what the report says of it to somebody who was not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from radiator.spark.report import Report, make_report
from radiator.spark.sections import SECTIONS
from radiator.spark.sections.options import Options
from radiator.spark.sections.traffic import findings
from tests.spark import incident
from tests.spark.stores import Writer, numbered
from tests.spark.test_source import damage

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
FIRST = datetime(2023, 11, 14, tzinfo=UTC)


@pytest.fixture(scope="module")
def report(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    folder = tmp_path_factory.mktemp("incident")
    writer = incident.write(folder / "data")
    yield make_report(writer.root, folder / "report", spark=spark)
    writer.close()


def test_the_head_of_the_page_has_the_findings(report: Report) -> None:
    head = report.page.sections[0]
    assert head.summary == "Findings:"
    expected = """
        Traffic: a burst at 2023-11-15 10:00:00: 2,136 messages in 30 minutes, 17 times the usual
        Traffic: /topic/sensors.cellar was silent from 2023-11-15 11:00:00 to 2023-11-15 12:30:00
        Traffic: /topic/sensors.attic has been silent since 2023-11-14 23:59:00; before, a message came every 1 min
        Lag: group:billing has a lag of 320 messages and has settled nothing since 2023-11-15 10:30:00
        Consumers: message 100 of /topic/orders came back 4 times to billing and was acked
        Compared: /topic/sensors.cellar is slower: p99 latency 1.3 h, before 100 ms
        Integrity: 10 messages stored again with the same message id: dedup-id order-2070 exists 2 times
        Dead letters: 10 dead letters from /topic/orders (billing): consumer left
        Top: customer-7 has 2
    """
    for line in filter(None, map(str.strip, expected.splitlines())):
        assert any(told.startswith(line) for told in head.findings), line
    (new,) = [line for line in head.findings if line.startswith("Compared: new")]
    assert "/topic/sensors.shed (960)" in new


def test_the_worst_finding_is_first(report: Report) -> None:
    sections = list(dict.fromkeys(line.partition(":")[0] for line in report.page.sections[0].findings))
    order = ("Integrity", "Dead letters", "Lag", "Consumers", "Lateness", "Latency", "Traffic", "Top", "Compared")
    assert sections == list(order)


def test_a_load_that_was_done_long_ago_is_no_silence_and_many_silences_are_one_line() -> None:
    def sent(name: str, seconds: int) -> dict[str, Any]:
        last = FIRST + timedelta(seconds=seconds)
        return {"destination": name, "messages": 1000, "first_received": FIRST, "last_received": last}

    end = sent("/topic/on", 1000)
    assert findings([], [sent("/topic/bulk", 20), end], Options()) == []
    (line,) = findings([], [end, *(sent(f"/topic/{name}", 600) for name in "abc")], Options())
    assert line.startswith("3 destinations have been silent, the first since 2023-11-14 00:10:00: /topic/a, /topic/b")


def test_of_many_dead_letters_the_most_are_reported_and_how_many_more_there_are() -> None:
    from radiator.spark.sections.dead_letters import _findings as told

    rows = [{"messages": 9 - i, "origin": f"/queue/{i}", "subscription": None, "cause": "rejected"} for i in range(6)]
    assert told(rows[:4])[-1] == "6 dead letters from /queue/3: rejected"
    assert told(rows)[2:] == ["7 dead letters from /queue/2: rejected", "and 15 dead letters more"]


def test_dead_letters_of_one_place_were_all_there() -> None:
    from radiator.spark.sections.dead_letters import _summary as found

    row = {"messages": 47, "origin": "/queue/a", "cause": "rejected", "last_moved": FIRST, "repeated": 0}
    assert found([row], []).startswith("47 dead letters; all are from /queue/a: rejected.")
    assert found([{**row, "messages": 1}], []).startswith("1 dead letter; it is from /queue/a: rejected.")
    assert found([row, {**row, "messages": 3}], []).startswith("50 dead letters; most, 94%, are from /queue/a")
    others = [{**row, "origin": f"/queue/{each}", "messages": 40} for each in "bcd"]
    assert found([row, *others], []).startswith("167 dead letters; the largest part, 28%, is from /queue/a: rejected.")


def test_where_all_times_are_in_the_wrong_order_no_duration_is_negative() -> None:
    from radiator.spark.sections.latency import _summary as found

    leg = {"leg": "event to receive", "p50_ms": -7_200_000.0, "p99_ms": -1000.0, "max_ms": -1000.0}
    assert found(leg) == (
        "From event to receive all messages have their times in the wrong order: half of them by 2 h or more."
    )


def test_a_burst_of_many_senders_names_none() -> None:
    def sent(minute: int, name: str, messages: int) -> dict[str, Any]:
        return {"start": FIRST + timedelta(minutes=minute), "destination": name, "messages": messages}

    usual = [sent(minute, "/topic/a", 10) for minute in range(9)]
    total = {"destination": "/topic/a", "messages": 90, "first_received": FIRST}
    totals = [{**total, "last_received": FIRST + timedelta(minutes=10)}]
    (line,) = findings([*usual, *(sent(9, f"/topic/{i}", 10) for i in range(10))], totals, Options())
    assert line.endswith("10 times the usual; from many")
    (line,) = findings([*usual, sent(9, "/topic/b", 99), sent(9, "/topic/c", 1)], totals, Options())
    assert line.endswith("10 times the usual; 99% of them in /topic/b")


def test_a_load_at_the_start_hides_no_later_burst_of_another_destination() -> None:
    def sent(minute: int, name: str, messages: int) -> dict[str, Any]:
        return {"start": FIRST + timedelta(minutes=minute), "destination": name, "messages": messages}

    loads = [sent(0, "/topic/load", 90_000), sent(1, "/topic/load", 70_000)]
    later = [sent(40, "/topic/b", 2500), sent(41, "/topic/c", 900), sent(42, "/topic/d", 600)]
    usual = [sent(minute, "/topic/a", 10) for minute in range(2, 50)]
    total = {"destination": "/topic/a", "messages": 9, "first_received": FIRST, "last_received": FIRST}
    told = findings([*loads, *usual, *later], [total], Options())
    assert [line.rpartition("; ")[2] for line in told] == [
        "all of them in /topic/load",
        "more than 99% of them in /topic/b",
        "99% of them in /topic/c",
    ]
    assert "2023-11-14 00:40:00: 2,510 messages" in told[1]


def test_what_chance_makes_is_no_burst() -> None:
    def sent(minute: int, messages: int) -> dict[str, Any]:
        return {"start": FIRST + timedelta(minutes=minute), "destination": "/topic/a", "messages": messages}

    total = {"destination": "/topic/a", "messages": 9, "first_received": FIRST, "last_received": FIRST}
    few = [sent(minute, 1) for minute in range(30)]
    assert findings([*few, sent(30, 5)], [total], Options()) == []
    (line,) = findings([*few, sent(30, 8)], [total], Options())
    assert line.startswith("a burst at 2023-11-14 00:30:00: 8 messages in 1 second, 8 times the usual")


def test_missing_records_are_reported_as_counted_in_no_figure(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("p", numbered("/topic/a", 50), per_batch=10)
    writer.close()
    damage(writer.root, "p")
    made = make_report(writer.root, spark=spark, sections=["traffic", "integrity"], fail_on_data_loss=False)
    head = made.page.sections[0]
    assert head.findings[0] == "Integrity: 10 offsets missing in p"
    assert head.notes == ["Missing records are not counted: the numbers of p are too low."]
    assert [tile.value for tile in head.tiles if tile.mood == "bad"] == ["10"]


def test_usual_values_are_not_reported(report: Report) -> None:
    lines = report.page.sections[0].findings
    told = " ".join(line for line in lines if line.startswith(("Traffic", "Latency", "Lag", "Compared")))
    for name in ("/topic/orders", "/topic/sensors.kitchen", "sub:dashboard", "/queue/dead has been silent"):
        assert name not in told


def test_every_section_says_something_and_every_answer_is_json(report: Report) -> None:
    titles = [section.title for section in report.page.sections]
    (left_out,) = report.page.sections[0].notes
    assert len(titles) == len(set(titles)) == 1 + len(SECTIONS)
    assert left_out.startswith("Left out as operations: ")
    assert "96 messages of /topic/ops.cursors" in left_out
    assert "2,074 messages of /topic/radiator.deliveries" in left_out
    assert all(section.summary for section in report.page.sections)
    assert set(report.answers) <= set(report.summary())
    assert report.folder is not None
    page = Path(report.folder, "report.html").read_text("utf-8")
    assert page.count("<picture>") == len([path for path in report.files if path.suffix == ".png"])


def test_all_figures_of_the_tables_are_in_the_json(report: Report) -> None:
    """Each row of a table is a row of an answer: with words in place of codes, and never with another number."""
    summary = report.summary()
    answers = [row for name in report.answers for row in summary[name]]
    tables = [table for section in report.page.sections for table in section.tables]
    for table in tables:
        numbers = [each.key for each in table.fields if each.unit != "text"]
        found = {tuple(row.get(key, "-") for key in numbers) for row in answers}
        rows = json.loads(json.dumps(list(map(dict, table.rows)), default=lambda value: value.isoformat()))
        assert rows and {tuple(row[key] for key in numbers) for row in rows} <= found, table.title
    assert len(tables) > 12
