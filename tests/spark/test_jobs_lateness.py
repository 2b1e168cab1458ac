"""Lateness and disorder, against figures counted by hand and by plain Python."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from radiator.spark import collect, read
from radiator.spark.jobs import JOBS, disorder, lateness
from radiator.spark.report import make_report
from tests.spark.stores import MS, START_NS, Message, Writer

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

HOUR_NS = 3_600_000 * MS
BASE_NS = 1_700_000_000_000_000_000 // HOUR_NS * HOUR_NS  # 2023-11-14T22:00:00Z
SCHEMA = "destination STRING, partition STRING, offset BIGINT, receive_ns BIGINT, event_ns BIGINT"
SECOND, MINUTE, DAY = 1000, 60_000, 86_400_000


class Event(NamedTuple):
    destination: str
    partition: str
    offset: int
    receive_ns: int
    event_ns: int | None


def in_order_of_arrival(destination: str, *seconds: float | None, step_ns: int = MS) -> list[Event]:
    """Events of these seconds, received one after the other."""
    return [
        Event(destination, "p", offset, BASE_NS + offset * step_ns, None if at is None else BASE_NS + int(at * 1e9))
        for offset, at in enumerate(seconds)
    ]


def test_lateness_is_counted_against_the_clock(spark: Any, tmp_path: Any) -> None:
    late_ms = [*range(10, 1000, 10), 2 * SECOND, 2 * MINUTE, 2 * 60 * MINUTE, 2 * DAY, -5 * SECOND]
    writer = Writer(tmp_path / "data")
    writer.write("p", [Message("/topic/a", b"", b"", BASE_NS, BASE_NS - late * MS) for late in late_ms])
    writer.write("p", [Message("/topic/none", b"", b"", BASE_NS + 2 * HOUR_NS)] * 3)
    writer.write("p", [Message("/topic/a", b"", b"", BASE_NS + 2 * HOUR_NS, BASE_NS + 2 * HOUR_NS)] * 2)
    writer.close()
    df = read(spark, writer.root, columns=JOBS["lateness"].columns)
    first, second, third = collect(lateness(df, every="1 hour"))
    assert (first["start"], first["destination"]) == (datetime(2023, 11, 14, 22, tzinfo=UTC), "/topic/a")
    assert (first["messages"], first["p50_ms"], first["max_ms"], first["ahead"]) == (104, 510, 2 * DAY, 1)
    assert [first[name] for name in ("late_1s", "late_1min", "late_1h", "late_1d")] == [n / 104 for n in (4, 3, 2, 1)]
    assert (second["destination"], second["messages"], second["max_ms"], second["late_1s"]) == ("/topic/a", 2, 0, 0)
    assert (third["destination"], third["messages"], third["without"]) == ("/topic/none", 0, 3)
    assert (third["p50_ms"], third["max_ms"], third["late_1s"]) == (None, None, None)
    together = collect(lateness(df, by=()))
    assert [(row["messages"], row["without"], row["ahead"]) for row in together] == [(106, 3, 1)]


def test_history_in_order_is_late_and_needs_no_watermark(spark: Any) -> None:
    years_ago = [-400 * 86_400 + at for at in range(50)]
    df = spark.createDataFrame(in_order_of_arrival("/topic/a", *years_ago), SCHEMA)
    (row,) = disorder(df).collect()
    assert (row.messages, row.disordered, row.share, row.back_ms, row.back_records) == (50, 0, 0.0, 0.0, 0)
    assert (row.keep_99_ms, row.keep_999_ms, row.keep_all_ms) == (0.0, 0.0, 0.0)


def test_disorder_is_counted_against_the_events_before(spark: Any) -> None:
    events = [
        *in_order_of_arrival("/topic/ties", 1, 1, 1, 2, 2),
        *in_order_of_arrival("/topic/one", 10, None, 4, 11, 10.5, 20),  # 4 is 6 s and one record behind 10
        *in_order_of_arrival("/topic/slow", 100, 1, 2, 3, step_ns=2 * 60_000 * MS),  # each in a minute of its own
        *in_order_of_arrival("/topic/null", None, None),
    ]
    rows = {row.destination: row for row in disorder(spark.createDataFrame(events, SCHEMA)).collect()}
    assert set(rows) == {"/topic/ties", "/topic/one", "/topic/slow"}
    assert rows["/topic/ties"].disordered == 0
    one = rows["/topic/one"]
    assert (one.messages, one.disordered, one.share, one.back_ms, one.back_records) == (5, 2, 0.4, 6000.0, 1)
    slow = rows["/topic/slow"]
    assert (slow.disordered, slow.back_ms, slow.back_records, slow.keep_all_ms) == (3, 99_000.0, 3, 99_000.0)


class Expected(NamedTuple):
    disordered: int
    back_ns: int
    back_records: int
    keep_99_ns: int


def by_hand(events: Sequence[Event]) -> Expected:
    steps, back_records, latest, reached = [], 0, None, 0
    ordered = sorted(
        (event for event in events if event.event_ns is not None), key=lambda e: (e.receive_ns, e.partition, e.offset)
    )
    for place, event in enumerate(ordered):
        assert event.event_ns is not None
        step = 0 if latest is None else max(latest - event.event_ns, 0)
        steps.append(step)
        if step:
            back_records = max(back_records, place - reached)
        if latest is None or event.event_ns > latest:
            latest, reached = event.event_ns, place
    return Expected(
        sum(map(bool, steps)), max(steps), back_records, sorted(steps)[math.ceil(0.99 * len(steps)) - 1]
    )  # fmt: skip


def test_disorder_is_that_of_plain_python(spark: Any) -> None:
    """Many streams at once, over one and several partitions and minutes, with ties, jumps and missing times."""
    chance = random.Random(5)
    streams: dict[str, list[Event]] = defaultdict(list)
    for number in range(60):
        name, logs, spread = f"/topic/{number}", chance.randint(1, 3), chance.choice((0, 3, 200))
        pace_ns = chance.choice((0, MS, 20_000 * MS))
        for offset in range(chance.randint(1, 120)):
            happened = None if chance.random() < 0.1 else BASE_NS + (offset - chance.randint(0, spread)) * MS
            streams[name].append(Event(name, f"p{offset % logs}", offset, BASE_NS + offset * pace_ns, happened))
    streams = {name: events for name, events in streams.items() if any(e.event_ns is not None for e in events)}
    everything = [event for events in streams.values() for event in events]
    rows = disorder(spark.createDataFrame(everything, SCHEMA)).collect()
    got = {
        row.destination: (row.disordered, round(row.back_ms * MS), row.back_records, round(row.keep_99_ms * MS))
        for row in rows
    }
    assert got == {name: tuple(by_hand(events)) for name, events in streams.items()}
    assert sum(each[0] for each in got.values()) > 100, "there was nothing to find"


def test_a_watermark_of_that_delay_keeps_everything(spark: Any) -> None:
    """What the figure is for: a record is too late if it is older than the latest event before it minus the delay."""
    events = in_order_of_arrival("/topic/a", *[n - (n % 7) * 3 for n in range(200)])
    (row,) = disorder(spark.createDataFrame(events, SCHEMA), by=()).collect()
    latest, dropped = 0, {row.keep_all_ms: 0, row.keep_all_ms - 1: 0}
    for event in events:
        assert event.event_ns is not None
        for delay_ms in dropped:
            dropped[delay_ms] += event.event_ns < latest - delay_ms * MS
        latest = max(latest, event.event_ns)
    assert dropped[row.keep_all_ms] == 0
    assert dropped[row.keep_all_ms - 1] > 0


def test_where_all_events_lie_ahead_none_is_said_to_be_the_latest(spark: Any, writer: Writer) -> None:
    times = [START_NS + n * 1000 * MS for n in range(3)]
    writer.write("p", [Message("/topic/a", b"", b"", at, at + (300_000 + n) * MS) for n, at in enumerate(times)])
    (section,) = make_report(writer.root, spark=spark, sections=["lateness"]).page.sections
    assert section.summary == (
        "No message came late: each came at least 5 min before its event. All events came in order: no watermark delay "
        "is needed. 3 messages came before the event: the clocks differ, or the events are in the future."
    )
