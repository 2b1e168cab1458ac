"""The jobs, against figures counted by hand or by plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from radiator.errors import ConfigError
from radiator.spark import collect, read
from radiator.spark.jobs import (
    JOBS,
    Job,
    compare,
    gaps,
    integrity,
    json_column,
    json_columns,
    latency,
    top_tags,
    totals,
    traffic,
)
from radiator.spark.report import make_report
from tests.spark.stores import MS, START_NS, Message, Writer, numbered

pytestmark = pytest.mark.spark

HOUR_NS = 3_600_000 * MS
BASE_NS = START_NS - START_NS % HOUR_NS  # 2023-11-14T22:00:00Z


def tagged(carrier: str, i: int) -> Message:
    block = f"tag-carrier:{carrier}\ntag-id:{i}".encode()
    body = json.dumps({"carrier": carrier, "delay": i * 1.5, "late": i > 50}).encode()
    received = BASE_NS + i * 60_000 * MS  # one a minute
    return Message("/topic/flights", body, block, received, received - 10 * MS * (i + 1), received - 2 * MS * (i + 1))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    writer = Writer(tmp_path_factory.mktemp("jobs") / "data")
    writer.write("flights", [tagged("UA" if i % 3 else "DL", i) for i in range(100)], per_batch=9)
    writer.write("other", [Message("/queue/other", b"not json", b"", BASE_NS + 5 * MS)] * 4)
    writer.close()
    return writer.root


def answer(spark: Any, store: str, name: str, **arguments: Any) -> list[dict[str, Any]]:
    job = JOBS[name]
    return collect(job.run(read(spark, store, columns=job.columns), **arguments))


def test_traffic_per_destination_and_hour(spark: Any, store: str) -> None:
    sizes = [len(tagged("UA", i).body) for i in range(100)]
    assert answer(spark, store, "traffic") == [
        {"destination": "/queue/other", "start": datetime(2023, 11, 14, 22, tzinfo=UTC), "messages": 4, "bytes": 32},
        {
            "destination": "/topic/flights",
            "start": datetime(2023, 11, 14, 22, tzinfo=UTC),
            "messages": 60,
            "bytes": sum(sizes[:60]),
        },
        {
            "destination": "/topic/flights",
            "start": datetime(2023, 11, 14, 23, tzinfo=UTC),
            "messages": 40,
            "bytes": sum(sizes[60:]),
        },
    ]


@pytest.mark.thorough
def test_traffic_by_another_clock_and_width(spark: Any, store: str) -> None:
    rows = answer(spark, store, "traffic", time="event_time", every="30 minutes")
    assert {row["destination"] for row in rows} == {"/topic/flights"}  # the others have no event time
    assert [row["messages"] for row in rows] == [1, 30, 30, 30, 9]
    assert rows[0]["start"] == datetime(2023, 11, 14, 21, 30, tzinfo=UTC)


def test_totals_per_destination(spark: Any, store: str) -> None:
    flights, other = answer(spark, store, "totals")
    assert (flights["destination"], flights["messages"], flights["with_event_time"]) == ("/topic/flights", 100, 100)
    assert flights["first_received"] == datetime(2023, 11, 14, 22, tzinfo=UTC)
    assert flights["last_received"] == datetime(2023, 11, 14, 23, 39, tzinfo=UTC)
    assert (other["messages"], other["bytes"], other["with_event_time"], other["first_event"]) == (4, 32, 0, None)


@pytest.mark.thorough
def test_times_that_are_centuries_apart_are_not_measured_and_fail_nothing(spark: Any) -> None:
    """A client may say any of them."""
    row = ("/topic/a", {"a": "b"}, 1, -9_000_000_000_000_000_000, START_NS, START_NS + MS)
    df = spark.createDataFrame(
        [row],
        "destination STRING, headers MAP<STRING, STRING>, size BIGINT, event_ns BIGINT, transmit_ns BIGINT, "
        "receive_ns BIGINT",
    )
    assert [(row["leg"], row["max_ms"]) for row in collect(latency(df))] == [("transmit to receive", 1.0)]
    (compared,) = collect(compare(df, df, now_seconds=1, before_seconds=1))
    assert (compared["messages"], compared["p99_ms"]) == (1, None)


def test_latency_percentiles_per_leg(spark: Any, store: str) -> None:
    rows = answer(spark, store, "latency")
    assert [(row["destination"], row["leg"]) for row in rows] == [
        ("/topic/flights", "event to transmit"),
        ("/topic/flights", "transmit to receive"),
        ("/topic/flights", "event to receive"),
    ]
    whole = rows[2]  # 10 ms, 20 ms ... 1000 ms
    assert (whole["messages"], whole["p50_ms"], whole["p95_ms"], whole["p99_ms"], whole["max_ms"]) == (
        100,
        500.0,
        950.0,
        990.0,
        1000.0,
    )
    assert rows[1]["p50_ms"] == 100.0
    together = answer(spark, store, "latency", by=())
    assert [row["messages"] for row in together] == [100, 100, 100]


def test_clocks_that_disagree_are_counted(spark: Any, tmp_path: Any) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("p", [Message("/topic/a", receive_ns=START_NS, transmit_ns=START_NS + n * MS) for n in (-2, -1, 5)])
    writer.close()
    (row,) = answer(spark, writer.root, "latency")
    assert (row["leg"], row["messages"], row["negative"]) == ("transmit to receive", 3, 1)


@pytest.mark.thorough
def test_a_message_that_is_negative_in_two_legs_is_one_message(spark: Any, writer: Writer) -> None:
    def sent(name: str, event_ms: int, transmit_ms: int) -> Message:
        return Message(name, b"", b"", START_NS, START_NS + event_ms * MS, START_NS + transmit_ms * MS)

    writer.write("p", [*(sent("/topic/ahead", 5, 5) for _ in range(4)), sent("/topic/ahead", -2, -1)])
    writer.write("q", [sent("/topic/event", 5, -1), sent("/topic/fine", -2, -1)])
    everything = answer(spark, writer.root, "latency", by=())
    assert [(row["negative"], row["first_negative"]) for row in everything] == [(1, 1), (4, 4), (5, 0)]
    (section,) = make_report(writer.root, spark=spark, sections=["latency"]).page.sections
    (line,) = [line for line in section.findings if "wrong order" in line]
    assert line.startswith(
        "5 messages have times in the wrong order, of /topic/ahead (4), /topic/event (1): the clocks"
    )


def test_top_tags(spark: Any, store: str) -> None:
    rows = answer(spark, store, "top_tags", limit=3)
    carriers = [row for row in rows if row["key"] == "carrier"]
    assert [(row["value"], row["messages"], row["share"], row["rank"]) for row in carriers] == [
        ("UA", 66, 0.66, 1),
        ("DL", 34, 0.34, 2),
    ]
    ids = [row for row in rows if row["key"] == "id"]
    assert [(row["rank"], row["messages"], row["values"]) for row in ids] == [(1, 1, 100), (2, 1, 100), (3, 1, 100)]


def test_a_whole_log_has_integrity(spark: Any, store: str) -> None:
    assert answer(spark, store, "integrity") == [
        {"partition": name, "messages": n, "first_offset": 0, "last_offset": n - 1, "missing": 0, "duplicates": 0}
        for name, n in (("flights", 100), ("other", 4))
    ]
    assert answer(spark, store, "gaps") == []


def test_gaps_and_duplicates_are_found(spark: Any) -> None:
    offsets = [*range(10), 12, 13, 13, 13, 20]
    df = spark.createDataFrame([("p", offset) for offset in offsets], "partition STRING, offset BIGINT")
    (row,) = integrity(df).collect()
    assert (row.messages, row.first_offset, row.last_offset, row.missing, row.duplicates) == (15, 0, 20, 8, 2)
    assert [tuple(row) for row in gaps(df).collect()] == [("p", 10, 11, 2), ("p", 14, 19, 6)]


def test_json_bodies_become_typed_columns(spark: Any, store: str) -> None:
    schema = "carrier STRING, delay DOUBLE, late BOOLEAN, absent INT"
    df = json_columns(read(spark, store, columns=["offset", "body"], partition="flights"), schema)
    assert df.columns == ["offset", "carrier", "delay", "late", "absent"]
    row = df.where("offset = 60").collect()[0]
    assert row.asDict() == {"offset": 60, "carrier": "DL", "delay": 90.0, "late": True, "absent": None}
    assert df.groupBy("carrier").avg("delay").count() == 2
    nested = json_column(read(spark, store, columns=["body"], partition="other"), schema)
    assert nested.select("json.carrier").collect()[0].carrier is None


def test_a_body_that_is_not_json_can_fail_the_query(spark: Any, store: str) -> None:
    df = json_column(read(spark, store, columns=["body"]), "carrier STRING", strict=True)
    with pytest.raises(Exception, match="(?i)malformed"):
        df.select("json.carrier").collect()


def test_fields_that_are_called_like_columns_need_a_prefix(spark: Any, store: str) -> None:
    df = read(spark, store, columns=["offset", "size", "body"])
    with pytest.raises(ConfigError, match="JSON fields offset, size are also columns"):
        json_columns(df, "size INT, offset INT, carrier STRING")
    assert json_columns(df, "size INT", prefix="json_").columns == ["offset", "size", "json_size"]


@pytest.mark.thorough
def test_every_job_answers_an_empty_store(spark: Any, writer: Writer) -> None:
    def answer(name: str, job: Job) -> DataFrame:
        df = read(spark, writer.root, columns=job.columns)
        return job.run(df, df, now_seconds=1, before_seconds=1) if name == "compare" else job.run(df)

    counts = [answer(name, job).agg(F.lit(name).alias("job"), F.count("*").alias("rows")) for name, job in JOBS.items()]
    assert {row.job: row.rows for row in reduce(DataFrame.union, counts).collect()} == dict.fromkeys(JOBS, 0)


def test_jobs_need_no_more_than_the_columns_they_name(spark: Any, store: str) -> None:
    for job, function in (("traffic", traffic), ("totals", totals), ("latency", latency), ("top_tags", top_tags)):
        assert JOBS[job].run is function
        assert function(read(spark, store, columns=JOBS[job].columns)).columns


def test_numbered_messages_measure_what_they_say(spark: Any, tmp_path: Any) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("p", numbered("/topic/a", 12))
    writer.close()
    rows = {row["leg"]: row for row in answer(spark, writer.root, "latency")}
    assert rows["transmit to receive"]["messages"] == 6
    assert rows["event to receive"]["p99_ms"] == 2.0
    assert rows["event to transmit"]["messages"] == 4
