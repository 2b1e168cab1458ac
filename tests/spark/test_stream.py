"""``readStream`` through Spark itself: what a query does with our reader, and what the user sees of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from radiator.spark import read_stream
from radiator.spark.report import reason
from tests.running import BrokerProcess
from tests.spark.stores import Writer, numbered
from tests.spark.streams import Rows, joined

pytestmark = pytest.mark.spark


def run(spark: Any, root: str, checkpoint: Path, now: bool = True, sink: Any = None, **options: Any) -> list[Rows]:
    """The rows of each batch of a query that ends by itself."""
    batches: list[Rows] = []

    def take(df: Any, number: int) -> None:
        rows = [{row.partition: [row.offset]} for row in df.sort("partition", "offset").collect()]
        batches.append(joined(rows))

    stream = read_stream(spark, root, columns=["partition", "offset"], **options).writeStream
    stream = stream.foreachBatch(sink or take).option("checkpointLocation", str(checkpoint))
    query = stream.trigger(availableNow=True).start() if now else stream.start()
    try:
        if now:
            query.awaitTermination()
    finally:
        query.stop()
    return batches


@pytest.mark.thorough
def test_available_now_ends_and_a_restart_goes_on_where_the_checkpoint_is(
    spark: Any, writer: Writer, tmp_path: Path
) -> None:
    root, checkpoint = writer.root, tmp_path / "checkpoint"
    assert run(spark, root, checkpoint, startingOffsets="earliest") == [{}]  # the store is empty
    writer.write("a ä/{}", numbered("/topic/a", 40))
    writer.write("/topic/b", numbered("/topic/b", 10))
    batches = run(spark, root, checkpoint, startingOffsets="latest", maxOffsetsPerTrigger=20)
    assert joined(batches) == {"a ä/{}": list(range(40)), "/topic/b": list(range(10))}
    assert len(batches) == 3
    told = (checkpoint / "offsets" / "1").read_text("utf-8").splitlines()[-1]
    assert json.loads(told) == {"/topic/b": {"from": 0, "next": 4}, "a ä/{}": {"from": 0, "next": 16}}
    assert run(spark, root, checkpoint) == []
    writer.write("new", numbered("new", 3))
    assert run(spark, root, checkpoint) == [{"new": [0, 1, 2]}]


@pytest.mark.thorough
def test_a_batch_that_failed_is_the_same_batch_again(spark: Any, writer: Writer, tmp_path: Path) -> None:
    seen: list[Rows] = []

    def sink(df: Any, number: int) -> None:
        seen.append(joined([{row.partition: [row.offset]} for row in df.sort("offset").collect()]))
        if len(seen) in (1, 3):
            raise RuntimeError("the end of this attempt")

    writer.write("a", numbered("a", 10))  # the query begins behind these
    for fresh in (numbered("a", 5, 10), numbered("b", 1)):
        with pytest.raises(Exception, match="the end of this attempt"):
            run(spark, writer.root, tmp_path / "c", sink=sink)
        writer.write(fresh[0].destination, fresh)
    run(spark, writer.root, tmp_path / "c", sink=sink)
    one = {"a": list(range(10, 15))}
    assert seen == [{}, {}, one, one, {"b": [0]}]


def test_a_query_that_goes_on_sees_what_a_broker_stores(
    spark: Any, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    from radiator.client import connect

    broker = start_broker()
    with connect(f"stomp://{broker.address}") as client:
        client.send("/topic/flights.JFK", b"before", receipt=True)
        stream = read_stream(
            spark, str(broker.data), columns=["destination", "body"], subscribePattern="/topic/flights.>"
        )
        query = stream.writeStream.format("memory").queryName("flights").start()
        try:
            query.processAllAvailable()
            for number in range(20):
                client.send(f"/topic/flights.{number % 3}", b"%d" % number, receipt=True)
                client.send("/topic/other", b"x", receipt=True)
                if number == 10:
                    query.processAllAvailable()
            query.processAllAvailable()
            assert query.lastProgress is not None
            latest = json.loads(query.lastProgress["sources"][0]["latestOffset"])
        finally:
            query.stop()
    found = sorted((row.destination, bytes(row.body)) for row in spark.sql("SELECT * FROM flights").collect())
    assert found == sorted((f"/topic/flights.{number % 3}", b"%d" % number) for number in range(20))
    assert latest["/topic/flights.0"] == 7
    assert "/topic/other" not in latest


def test_what_a_stream_cannot_do_is_reported(spark: Any, writer: Writer, tmp_path: Path) -> None:
    with pytest.raises(Exception) as error:
        run(spark, writer.root, tmp_path / "c", endingOffsets="latest")
    assert "option endingOffsets is for batch queries (spark.read)" in (reason(error.value) or "")
    assert "UnboundLocalError" not in str(error.value)  # which Spark adds to an error of streamReader()


@pytest.mark.thorough
def test_a_log_that_is_behind_the_checkpoint_ends_the_query_with_the_reason(
    spark: Any, writer: Writer, tmp_path: Path
) -> None:
    writer.write("a", numbered("a", 10))
    run(spark, writer.root, tmp_path / "c", startingOffsets="earliest")
    other = Writer(tmp_path / "other")
    other.write("a", numbered("a", 3))
    other.close()
    with pytest.raises(Exception) as error:
        run(spark, other.root, tmp_path / "c")
    assert "partition 'a' ends at offset 3, and the checkpoint is at 10" in (reason(error.value) or "")
