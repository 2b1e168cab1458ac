"""Lags over time: from samples in the log to who stands still."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.cursors import FIELDS
from radiator.cli.cursors import SAMPLES as PUBLISHED
from radiator.spark import report_session, units
from radiator.spark.jobs.lag import SAMPLE
from radiator.spark.report import make_report
from radiator.spark.sections.options import SAMPLES
from radiator.spark.session import read
from tests.spark.stores import MS, START_NS, Message, Writer

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

S = 1000 * MS
LOG = "/topic/orders"


def sample(cursor: str, second: int, position: int, end: int, members: int = 1, **more: Any) -> Message:
    row = {
        "time_ns": START_NS + second * S, "cursor": cursor, "destination": LOG, "partition": LOG, "position": position,
        "end": end, "lag": end - position, "in_flight": 0, "members": members, **more,
    }  # fmt: skip
    return Message(SAMPLES, json.dumps(row).encode(), b"", START_NS + second * S)


def at(second: int) -> datetime | None:
    return units.utc(START_NS + second * S)


@pytest.fixture
def store(writer: Writer) -> str:
    """One order a second; ``works`` is always one behind, ``stops`` settles nothing after 20 s."""
    writer.write(LOG, [Message(LOG, b"", b"", START_NS + i * S) for i in range(101)])
    for second in range(0, 101, 10):
        stopped = min(second, 20)
        writer.write(SAMPLES, [sample("sub:works", second, second - 1 if second else 0, second)])
        writer.write(SAMPLES, [sample("group:stops<b>", second, stopped, second, 0 if second > 20 else 2)])
    writer.write(SAMPLES, [Message(SAMPLES, b"no sample", b"", START_NS + 101 * S)])
    return writer.root


def test_a_cursor_without_progress_is_reported_with_its_time_and_age(spark: Any, store: str, tmp_path: Path) -> None:
    report = make_report(store, tmp_path, spark=spark, sections=["lag"])
    stops, works = report.answers["lag"]
    assert (stops["cursor"], stops["lag"], stops["lag_max"], stops["max_at"]) == ("group:stops<b>", 80, 80, at(100))
    assert (stops["samples"], stops["first"], stops["last"]) == (11, at(0), at(100))
    assert stops["lag_avg"] == pytest.approx(sum(range(10, 90, 10)) / 11)
    assert 0.5 < stops["slope"] < 1
    assert (stops["took"], stops["still_since"], stops["members"]) == (pytest.approx(0.2), at(20), 0)
    assert stops["age_ms"] == 80_000.0  # the order that it did not settle was received at 20 s
    assert (works["lag"], works["still_since"], works["age_ms"]) == (1, at(100), 1_000.0)
    assert works["slope"] == pytest.approx(0, abs=0.01)
    (section,) = report.page.sections
    (line,) = section.findings
    assert line == (
        "group:stops<b> has a lag of 80 messages and has settled nothing since 2023-11-14 22:13:40, "
        "it has no consumers, the oldest message is 1.33 min old"
    )
    assert "2 cursors of 2 with a lag at the last sample" in section.summary
    assert [row["cursor"] for row in report.answers["lag_over_time"]].count("sub:works") == 11
    page = (tmp_path / "lag.html").read_text("utf-8")
    assert "group:stops&lt;b&gt;" in page and "<b>:" not in page


def test_a_name_with_many_partitions_and_a_queue_of_dead_letters_are_reported_once(spark: Any, writer: Writer) -> None:
    for second in range(0, 101, 10):
        for number in range(3):
            writer.write(SAMPLES, [sample("group:stops", second, 0, second, 0, partition=f"p{number}")])
            dead = sample("queue:/queue/dead", second, 0, 40, 0, partition=f"d{number}", destination="/queue/dead")
            writer.write(SAMPLES, [dead])
    writer.write("d0", [Message("/queue/dead", b"", b"dlq-reason:rejected", START_NS + 50 * S)])
    (section,) = make_report(writer.root, spark=spark, sections=["lag"]).page.sections
    stops, dead_letters = section.findings
    assert stops.startswith("group:stops has a lag of 300 messages in 3 partitions and has settled nothing since")
    assert dead_letters == "120 dead letters in /queue/dead in 3 partitions are not settled, the oldest for 50 s"


def test_the_width_and_the_topic_of_samples_can_be_chosen(spark: Any, store: str) -> None:
    answers = make_report(store, spark=spark, sections=["lag"], every="50s").answers
    assert [row["lag"] for row in answers["lag_over_time"] if row["cursor"] != "sub:works"] == [20, 70, 80]
    assert make_report(store, spark=spark, sections=["lag"], samples="/topic/other").answers["lag"] == []


def test_without_samples_the_section_says_how_to_get_them(
    spark: Any, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write(LOG, [Message(LOG)])
    asked: list[Any] = []

    def reads(*args: Any, **options: Any) -> Any:
        asked.append(options.get("destination"))
        return read(*args, **options)

    monkeypatch.setattr(report_session, "read", reads)
    (section,) = make_report(writer.root, spark=spark, sections=["lag"]).page.sections
    assert asked == []  # else stderr would name the topic as if it were somebody's slip
    make_report(writer.root, spark=spark, sections=["lag"], samples="/topic/mine")
    assert "/topic/mine" in asked
    assert "radiator cursors sample --to /topic/ops.cursors --every 30s" in section.summary


def test_what_anybody_may_write_into_the_topic_of_samples_is_left_out(spark: Any, writer: Writer) -> None:
    writer.write(SAMPLES, [sample("sub:a", 0, 0, 5), sample("sub:a", 10, 3, 5)])
    good = json.loads(sample("sub:a", 10, 0, 5, partition="q").body)
    huge = 9 * 10**18
    for name, value in (
        ("lag", huge),
        ("lag", -5),
        ("time_ns", -huge),
        ("position", -huge),
        ("lag", "x"),
        ("cursor", None),
    ):
        odd = Message(SAMPLES, json.dumps({**good, name: value}).encode(), b"", START_NS)
        writer.write(SAMPLES, [odd, odd])
    answers = make_report(writer.root, spark=spark, sections=["lag"]).answers
    assert [(row["partition"], row["samples"], row["lag_max"]) for row in answers["lag"]] == [(LOG, 2, 5)]
    assert [row["lag"] for row in answers["lag_over_time"]] == [5, 2]


def test_a_sample_that_says_little_fails_no_section(spark: Any, writer: Writer) -> None:
    bodies = [
        b'{"time_ns": %d, "cursor": "c", "partition": "p", "lag": %d}' % (START_NS + n * 1_000_000_000, 100 * n)
        for n in range(5)
    ]
    writer.write(SAMPLES, [Message(SAMPLES, body, b"", START_NS) for body in bodies])
    (section,) = make_report(writer.root, spark=spark, sections=["lag"]).page.sections
    assert section.findings == ["c has a lag of 400 messages and it grows by 100/s"]


def test_one_sample_has_no_slope_and_is_drawn_all_the_same(spark: Any, writer: Writer, tmp_path: Path) -> None:
    writer.write(SAMPLES, [sample("sub:new", 0, 0, 5)])
    report = make_report(writer.root, tmp_path, spark=spark, sections=["lag"])
    (row,) = report.answers["lag"]
    assert (row["lag"], row["slope"], row["took"], row["age_ms"]) == (5, None, None, None)
    assert report.page.sections[0].findings == []


def test_a_cursor_that_was_moved_back_does_not_stand_still(spark: Any, writer: Writer) -> None:
    for second, position in ((0, 10), (10, 50), (20, 5), (30, 5)):
        writer.write(SAMPLES, [sample("sub:back", second, position, 60)])
    (row,) = make_report(writer.root, spark=spark, sections=["lag"]).answers["lag"]
    assert row["still_since"] is None


def test_what_is_sampled_is_what_is_read() -> None:
    assert PUBLISHED == SAMPLES
    assert [field.split()[0] for field in SAMPLE.split(", ")] == ["time_ns", *FIELDS]
