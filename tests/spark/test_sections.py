"""Every section, on stores that are not as one thinks of them: nothing, one record, names that bite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from radiator.spark.report import make_report
from radiator.spark.sections import SECTIONS, part, traffic, work
from tests.spark.stores import MS, START_NS, Message, Writer

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

NAMES = (
    "/topic/<script>alert(1)</script>",
    "/queue/$x^2_{i}$ & 'q' \"d\"",
    "/topic/über.日本語",
    "/topic/" + "n" * 200,
    "/topic/a`b",
)


def test_every_section_has_a_text_for_an_empty_store(spark: Any, writer: Writer, tmp_path: Path) -> None:
    for name in SECTIONS:
        report = make_report(writer.root, tmp_path, spark=spark, sections=[name])
        (section,) = report.page.sections
        assert section.summary.endswith("."), name
        assert json.loads((tmp_path / f"{name}.json").read_text("utf-8"))["sections"] == [name]
        assert (tmp_path / f"{name}.html").exists()


def test_a_page_of_one_record_is_made(spark: Any, writer: Writer, tmp_path: Path) -> None:
    writer.write("p", [Message("/topic/a", b"x", b"tag-a:b\nuser:u", START_NS, START_NS - MS, START_NS - MS)])
    report = make_report(writer.root, tmp_path, spark=spark)
    assert report.summary()["messages"] == 1
    assert report.page.sections[0].summary == "No findings."
    assert any("too short for two windows" in note for note in report.page.sections[0].notes)
    assert "1 message, in /topic/a." in [section.summary for section in report.page.sections]


def test_names_that_bite_are_text_on_the_page_and_in_the_charts(spark: Any, writer: Writer, tmp_path: Path) -> None:
    for i, name in enumerate(NAMES):
        block = f"tag-{i}$_{{:{'v' * 90}<b>\nuser:<u>".encode()
        writer.write("p", [Message(name, b"", block, START_NS + (100 * n + i) * MS, START_NS) for n in range(30)])
    report = make_report(writer.root, tmp_path, spark=spark)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<script>" not in page and "<b>v" not in page and "<u>" not in page
    assert {row["destination"] for row in report.answers["totals"]} == set(NAMES)


def test_what_clients_say_of_themselves_fails_no_report(spark: Any, writer: Writer, tmp_path: Path) -> None:
    """Event times of other centuries, dead letters that nobody has buried, and much in a header."""
    usual = [Message("/topic/a", b"", b"", START_NS + n * 1000 * MS, START_NS + n * 1000 * MS) for n in range(40)]
    odd = [usual[-1]._replace(event_ns=0), usual[-1]._replace(event_ns=-9 * 10**18, transmit_ns=9 * 10**18)]
    writer.write("p", [*usual, *odd])
    blocks = (b"dlq-reason:a\ndlq-time:0\nerror:" + b"<e>" * 5000, b"dlq-reason:\ndlq-time:9223372036854775807")
    writer.write("dead", [Message("/queue/dead", b"", block, START_NS) for block in blocks])
    report = make_report(writer.root, tmp_path, spark=spark, every="10s")
    assert len({row["start"] for row in report.answers["traffic"]}) == 4  # by the broker's clock as it was asked for
    found = {section.title: section.summary for section in report.page.sections}
    assert "is from an unknown origin: no reason given" in found["Dead letters"] and len(found["Dead letters"]) < 600
    assert max(row["start"].year for row in report.answers["dead_letters_over_time"]) > 2200
    assert sum(row["messages"] for row in report.answers["event_traffic"]) == 40
    (strays,) = report.answers["event_strays"]
    assert (strays["earlier"], strays["later"], strays["first"].year, strays["last"].year) == (2, 0, 2023, 2023)
    (events,) = [each for section in report.page.sections for each in section.charts if each.name == "traffic-events"]
    assert events.note == "Messages per 10 seconds and destination, UTC; not shown: 2 earlier"
    assert "<e>" not in (tmp_path / "report.html").read_text("utf-8")


def test_findings_beyond_the_summary_are_in_their_section(
    spark: Any, writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [Message(f"/topic/{n}", b"", b"", START_NS + at * 1000 * MS) for at in range(10) for n in range(9)]
    writer.write("p", sent)
    for module in (part, work, traffic):
        monkeypatch.setattr(module, "ROWS_MAX", 60)
    report = make_report(writer.root, spark=spark, sections=["traffic", "integrity"])
    assert report.notes == [] and report.summary()["messages"] == 90
    rows = report.answers["traffic"]
    assert sum(row["messages"] for row in rows) == 90  # fewer by name, so that the end of the time is there
    assert {row["destination"] for row in rows} == {*(f"/topic/{n}" for n in range(4)), "other"}
    monkeypatch.setattr(part, "ROWS_MAX", 5)
    monkeypatch.setattr(work, "ROWS_MAX", 5)
    cut = make_report(writer.root, spark=spark, sections=["traffic", "integrity"])
    assert cut.summary()["notes"] == cut.notes != [] and cut.page.sections[0].notes[: len(cut.notes)] == cut.notes
    assert cut.notes[0] == "totals has more than 5 rows: the others are left out of all numbers and charts."


def test_the_overview_says_no_destination_to_be_in_partitions_that_were_looked_at_whole(
    spark: Any, writer: Writer
) -> None:
    for name in "ab":
        writer.write(name, [Message(f"/topic/{name}", b"x", b"", START_NS)])
    head = make_report(
        writer.root, spark=spark, sections=["traffic", "integrity"], destination="/topic/a"
    ).page.sections[0]
    meanings = [tile.meaning for tile in head.tiles]
    assert "destination" in meanings and "on disk in 2 partitions, with headers" in meanings
