"""Dead letters by cause: small ones by hand, and those that a real broker has buried."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from radiator.client import Connection, connect
from radiator.spark import collect, read
from radiator.spark.jobs import (
    JOBS,
    dead_letter_words,
    dead_letters,
    dead_letters_over_time,
    deliveries_of_dead_letters,
)
from tests.running import BrokerProcess
from tests.spark.stores import MS, START_NS

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

SCHEMA = (
    "destination STRING, partition STRING, offset BIGINT, headers MAP<STRING, STRING>, event_ns BIGINT, "
    "transmit_ns BIGINT, receive_ns BIGINT, size BIGINT"
)
RULES = """
version: 1
destinations:
  - {match: /queue/dead.>}
  - {match: /queue/tried, redeliver: {max: 3, delay: 0ms}, dead_letter: /queue/dead.tried}
  - {match: /queue/rejected, dead_letter: /queue/dead.all}
  - {match: /queue/old, dead_letter: /queue/dead.all, dead_letter_expired: true}
  - {match: /queue/left, dead_letter: /queue/dead.all, on_unacked: dead_letter}
  - {match: /topic/news, dead_letter: /queue/dead.news}
"""


def letter(
    reason: str | None, origin: str = "/queue/work", *, age_ms: int | None = 1000, **more: str
) -> tuple[Any, ...]:
    headers = {"dlq-" + name: value for name, value in more.items() if name != "error"}
    headers |= {"error": more["error"]} if "error" in more else {}
    if reason is not None:
        headers |= {"dlq-reason": reason, "dlq-destination": origin}
    happened = None if age_ms is None else START_NS - age_ms * MS
    return ("/queue/dead", "dead", 0, headers, happened, None, START_NS, 10)


def test_dead_letters_are_counted_by_cause(spark: Any) -> None:
    day_later = str(START_NS + 86_400_000 * MS)
    rows = [
        *[letter("rejected", deliveries=str(n), error="no such customer") for n in (1, 1, 5)],
        letter("rejected", deliveries="1", subscription="sub:billing", age_ms=None),
        letter("expired", "/queue/old", deliveries="0", time=day_later, hops="2", error="late"),
        letter("odd", deliveries="many", time="soon", hops="", age_ms=5),
        letter("unacked", "/queue/left", age_ms=86_400_000, received=str(START_NS - 7 * MS)),
        letter(None),
        letter(None, error="no letter"),
    ]
    df = spark.createDataFrame(rows, SCHEMA)
    first, *others = collect(dead_letters(df))
    assert (first["cause"], first["origin"], first["subscription"], first["messages"]) == (
        "rejected",
        "/queue/work",
        None,
        3,
    )
    assert (first["bytes"], first["deliveries_p50"], first["deliveries_max"], first["repeated"]) == (30, 1, 5, 0)
    assert (first["age_p50_ms"], first["age_max_ms"]) == (1000.0, 1000.0)
    by_cause = {(row["cause"], row["subscription"]): row for row in others}
    expired = by_cause["expired", None]
    assert (expired["age_max_ms"], expired["repeated"]) == (86_401_000.0, 1)
    assert expired["first_moved"] == datetime(2023, 11, 15, 22, 13, 20, tzinfo=UTC)
    assert by_cause["rejected", "sub:billing"]["age_p50_ms"] is None
    assert (by_cause["odd", None]["deliveries_max"], by_cause["odd", None]["age_max_ms"]) == (None, 5.0)

    assert by_cause["unacked", None]["age_p50_ms"] == 7.0  # from its reception, not from its event

    assert [(row["cause"], row["messages"]) for row in collect(dead_letters(df, by=("cause",)))] == [
        ("rejected", 4), ("expired", 1), ("odd", 1), ("unacked", 1),
    ]  # fmt: skip
    over_time = collect(dead_letters_over_time(df, every="1 day"))
    assert [(row["start"].day, row["cause"], row["messages"]) for row in over_time] == [
        (14, "odd", 1), (14, "rejected", 4), (14, "unacked", 1), (15, "expired", 1),
    ]  # fmt: skip
    deliveries = [(row["cause"], row["deliveries"], row["messages"]) for row in collect(deliveries_of_dead_letters(df))]
    assert deliveries == [
        ("expired", 0, 1),
        ("odd", None, 1),
        ("rejected", 1, 3),
        ("rejected", 5, 1),
        ("unacked", None, 1),
    ]
    words = [(row["cause"], row["value"], row["messages"]) for row in collect(dead_letter_words(df))]
    assert words == [("rejected", "no such customer", 3), ("expired", "late", 1)]


def wait_for(connection: Connection, queue: str, count: int) -> None:
    """Until the dead letters are there: browsed, so they stay."""
    with connection.subscribe(queue, start_position="first") as look:
        for _ in range(count):
            assert look.fetch(timeout=30) is not None, f"a letter is missing in {queue}"


def test_dead_letters_of_a_broker_are_reported_by_cause(spark: Any, start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(RULES)
    begun = time.time_ns()
    with connect(broker.address) as connection:
        event = {"event-time": begun - 60_000 * MS, "error": "bad order"}
        for queue, count in (("tried", 2), ("rejected", 3), ("left", 2)):
            connection.send_many((f"/queue/{queue}", b"12345", event) for _ in range(count))
        connection.send("/queue/old", b"milk", {"expires": begun // MS - 1})
        with connect(broker.address) as worker:
            tried = worker.subscribe("/queue/tried")
            for _ in range(6):
                message = tried.fetch(timeout=30)
                assert message is not None
                message.nack(receipt=True)
            rejected = worker.subscribe("/queue/rejected")
            for _ in range(3):
                message = rejected.fetch(timeout=30)
                assert message is not None
                message.reject(receipt=True)
            left = worker.subscribe("/queue/left", prefetch=2)
            assert left.fetch(timeout=30) is not None
            assert left.fetch(timeout=30) is not None
        durable = {"durable-subscription-name": "billing"}
        news = connection.subscribe("/topic/news", ack="client-individual", headers=durable)
        connection.send("/topic/news", b"n", {"transmit-time": begun})
        message = news.fetch(timeout=30)
        assert message is not None
        message.reject(receipt=True)
        wait_for(connection, "/queue/dead.tried", 2)
        wait_for(connection, "/queue/dead.all", 6)
        wait_for(connection, "/queue/dead.news", 1)
    job = JOBS["dead_letters"]
    df = read(spark, str(broker.data), columns=job.columns)
    rows = {(row["cause"], row["origin"]): row for row in collect(job.run(df))}
    assert {place: row["messages"] for place, row in rows.items()} == {
        ("max-deliveries", "/queue/tried"): 2,
        ("rejected", "/queue/rejected"): 3,
        ("unacked", "/queue/left"): 2,
        ("expired", "/queue/old"): 1,
        ("rejected", "/topic/news"): 1,
    }
    tried = rows["max-deliveries", "/queue/tried"]
    assert (tried["deliveries_p50"], tried["deliveries_max"], tried["destination"]) == (3, 3, "/queue/dead.tried")
    assert rows["expired", "/queue/old"]["deliveries_max"] == 0
    assert rows["unacked", "/queue/left"]["deliveries_max"] == 1
    assert rows["rejected", "/topic/news"]["subscription"] == "sub:billing"
    assert 0 < tried["age_p50_ms"] < 60_000 and 0 <= rows["expired", "/queue/old"]["age_max_ms"] < 60_000
    now = datetime.now(UTC)
    assert all(now - timedelta(minutes=10) < row["first_moved"] <= row["last_moved"] <= now for row in rows.values())
    assert [(row["value"], row["messages"]) for row in collect(dead_letter_words(df))] == [
        ("bad order", 3), ("bad order", 2), ("bad order", 2),
    ]  # fmt: skip
