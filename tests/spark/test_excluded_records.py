"""Samples, live windows, replayed messages, dead letters and what Spark wrote are no traffic, and are told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from radiator.broker.outcomes.dead_letters import HEADERS
from radiator.replay.messages import REPLAYED_FROM
from radiator.spark.jobs.left_out import AGAIN, DEAD_LETTER, OPERATIONS, REPLAYED, WRITTEN
from radiator.spark.report import make_report
from radiator.spark.sections.options import Options
from radiator.spark.sections.work import Work
from radiator.spark.sink_ids import SHAPE, Ids
from radiator.spark.sink_rows import DIGEST_BYTES
from tests.spark.stores import MS, START_NS, Message, Writer

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
YEAR_NS = 365 * 86_400_000 * MS
CURSORS, WINDOWS = "/topic/ops.cursors", "/topic/ops.traffic"
LEFT_OUT = [
    {"destination": "/queue/dead", "why": DEAD_LETTER, "messages": 5},
    {"destination": CURSORS, "why": OPERATIONS, "messages": 20},
    {"destination": WINDOWS, "why": OPERATIONS, "messages": 3},
    {"destination": "/topic/a", "why": REPLAYED, "messages": 10},
    {"destination": "/topic/b", "why": WRITTEN, "messages": 7},
]
NOTE = (
    "Left out: 10 replayed messages, 5 dead letters and 7 messages written by Spark, "
    "because they have the times of the original message."
)
QUERY = "7a2bd0a1-8a10-4c35-b5de-0f1ccf7b9b1f"


def _sent(destination: str, number: int, late_ns: int, block: str = "") -> Message:
    at = START_NS + number * 1000 * MS
    return Message(destination, b"x", block.encode(), at, at - late_ns, at - late_ns)


@pytest.fixture
def store(writer: Writer) -> Writer:
    writer.write("p", [_sent("/topic/a", number, 5 * MS, "partition-key:k") for number in range(60)])
    writer.write(
        "p", [_sent("/topic/a", 60 + n, YEAR_NS, f"replayed-from:p@1-{n}\npartition-key:k") for n in range(10)]
    )
    of = Ids(QUERY, "3", 0, "row", False).of
    ids = [of(b"%012d" % (n % 4)) for n in range(7)]
    writer.write("b", [_sent("/topic/b", n, 2 * YEAR_NS, f"dedup-id:{each}") for n, each in enumerate(ids)])
    writer.write("dead", [_sent("/queue/dead", n, 60_000 * MS, "dlq-reason:rejected") for n in range(5)])
    writer.write("ops", [_sent(CURSORS, number, 0) for number in range(20)])
    writer.write("ops", [_sent(WINDOWS, 20 + number, 40_000 * MS) for number in range(3)])
    return writer


def test_the_headers_are_those_that_are_written() -> None:
    assert {REPLAYED: REPLAYED_FROM, DEAD_LETTER: HEADERS[0], WRITTEN: "dedup-id"} == AGAIN


def test_ids_of_the_sink_are_known_and_those_of_publishers_are_not() -> None:
    named, unnamed, hexadecimal = "nightly 2013/01", QUERY, QUERY.replace("-", "")
    digest = bytes(range(DIGEST_BYTES))
    made = [
        Ids(query, epoch, 12, "row", False).of(digest, placed)
        for query in (named, unnamed, hexadecimal)
        for epoch in ("batch", "17")
        for placed in (False, True)
    ]
    again = Ids(unnamed, "17", 12, "row", False)
    made += [again.of(digest) for _ in range(3)][-1:]
    made += [Ids(query, "batch", 12, "number", False).of(digest) for query in (unnamed, hexadecimal)]
    made += [Ids(query, "17", 12, "row", True).of(digest) for query in (unnamed, hexadecimal)]
    assert len(set(made)) == 17
    for each in made:
        assert each is not None and re.search(SHAPE, each), each
    for other in (
        "order-17", "1/2/3", "a/17", QUERY, f"order/{QUERY}", f"{QUERY}/9", f"orders/{digest.hex()}", f"{QUERY}/1/2",
        "2013/01/31/12", f"a/1/{digest.hex()}0", "", digest.hex(),
    ):  # fmt: skip
        assert not re.search(SHAPE, other), other


def test_times_of_the_first_sending_are_in_no_latency_lateness_or_disorder(
    spark: Any, store: Writer, tmp_path: Path
) -> None:
    sections = ["traffic", "latency", "lateness", "sessions"]
    report = make_report(store.root, tmp_path / "out", spark=spark, sections=sections)
    assert report.summary()["left_out"] == LEFT_OUT
    assert {row["max_ms"] for row in report.answers["latency_all"]} == {0.0, 5.0}
    (late,), (order,) = report.answers["lateness_all"], report.answers["disorder_all"]
    assert (late["messages"], late["max_ms"], late["without"]) == (60, 5.0, 0)
    assert (order["messages"], order["disordered"]) == (60, 0)
    for title in ("Latency", "Lateness"):
        (section,) = [each for each in report.page.sections if each.title == title]
        assert section.notes == [NOTE]
    assert NOTE in (tmp_path / "out" / "report.html").read_text("utf-8")
    (sessions,) = report.answers["sessions"]
    assert sessions["messages"] == 60
    (totals,) = [row for row in report.answers["totals"] if row["destination"] == "/topic/a"]
    assert (totals["messages"], totals["with_event_time"]) == (70, 60)


def test_operational_topics_are_excluded_and_reported_unless_they_are_given(spark: Any, store: Writer) -> None:
    report = make_report(store.root, spark=spark, sections=["traffic", "top"])
    names = {row["destination"] for row in report.answers["totals"]}
    assert names == {"/topic/a", "/topic/b", "/queue/dead"} == {row["destination"] for row in report.answers["traffic"]}
    (note,) = [note for note in report.page.sections[0].notes if note.startswith("Left out as operations")]
    assert f"20 messages of {CURSORS} and 3 messages of {WINDOWS}" in note and "--destination" in note
    asked = make_report(store.root, spark=spark, sections=["traffic", "latency"], destination="/topic/ops.>")
    assert {row["destination"]: row["messages"] for row in asked.answers["totals"]} == {CURSORS: 20, WINDOWS: 3}
    assert asked.answers["left_out"] == [] and asked.page.sections[0].notes == []
    assert max(row["max_ms"] for row in asked.answers["latency_all"]) == 40_000.0


def test_by_a_header_the_same_are_left_out(spark: Any, store: Writer) -> None:
    report = make_report(store.root, spark=spark, sections=["traffic"], by="partition")
    assert {row["destination"] for row in report.answers["totals"]} == {"p", "b", "dead"}
    assert report.answers["left_out"] == LEFT_OUT
    by_key = make_report(store.root, spark=spark, sections=["traffic"], by="partition-key").answers["totals"]
    assert {row["destination"]: row["messages"] for row in by_key} == {"k": 70, "(none)": 12}


def test_of_two_windows_the_way_is_compared_without_what_was_replayed(spark: Any, store: Writer) -> None:
    report = make_report(
        store.root, spark=spark, sections=["compare"], start=START_NS + 30_000 * MS, until=START_NS + 80_000 * MS
    )
    (row,) = [row for row in report.answers["compare"] if row["destination"] == "/topic/a"]
    assert (row["messages"], row["messages_before"], row["p99_ms"]) == (40, 30, 5.0)


def test_only_operations_in_a_log_are_no_empty_store(spark: Any, writer: Writer) -> None:
    writer.write("ops", [_sent(CURSORS, number, 0) for number in range(20)])
    report = make_report(writer.root, spark=spark, sections=["traffic", "integrity"])
    assert report.page.sections[0].summary == "No message is left for the report."
    assert any(CURSORS in note for note in report.page.sections[0].notes)


def test_headers_are_read_only_where_something_was_stored_again(spark: Any) -> None:
    read: list[set[str]] = []

    def reader(columns: Any, **selection: Any) -> Any:
        read.append({*columns})
        row = {"destination": "/topic/a", "event_ns": 1, "transmit_ns": 2, "receive_ns": 3}
        headers = "map('k', 'v') AS headers"
        texts = [f"'{value}' AS {key}" if key == "destination" else f"{value} AS {key}" for key, value in row.items()]
        return spark.sql(f"SELECT {', '.join([*texts, headers])}").select(*columns)

    work = Work(spark, reader, Options())
    assert [row["messages"] for row in work.job("latency", by=())] == [1, 1, 1]
    assert read == [{"destination", "headers"}, {"destination", "event_ns", "transmit_ns", "receive_ns"}]
