"""What one task of a sink does, without a JVM: how much it holds at a time, and what it has to know of its query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from radiator.errors import ConfigError
from radiator.limits import MIB
from radiator.spark import sink
from radiator.spark.sink import BatchSink, pieces, stream_sink
from radiator.spark.sink_options import parse
from radiator.spark.sink_rows import Rows

pytestmark = pytest.mark.spark

SCHEMA = StructType().add("body", StringType()).add("key", StringType())


def test_a_large_batch_is_taken_in_pieces_with_the_same_rows_in_their_order() -> None:
    bodies = [b"%06d" % number + bytes(100_000) for number in range(300)]
    small = pa.record_batch({"body": [b"%d" % number for number in range(10_000)]})
    empty = small.slice(0, 0)
    found = list(pieces([pa.record_batch({"body": bodies}), empty, small]))
    rows = [row for piece in found for row in piece.column("body").to_pylist()]
    assert rows == [*bodies, *small.column("body").to_pylist()]
    assert max(piece.nbytes for piece in found) <= 4 * MIB
    assert len(found) < 20
    (alone,) = pieces([pa.record_batch({"body": [bytes(10 * MIB)]})])
    assert alone.num_rows == 1


def reported(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], batch: bool = False, **options: str
) -> tuple[str, str]:
    """Query and epoch with which a task writes, in a Spark that has told it these properties."""
    written: list[Any] = []
    monkeypatch.setattr(sink, "_property", properties.get)
    monkeypatch.setattr(sink, "_write", lambda *given: written.append(given[3:]))
    given = {"url": "stomp://localhost", "destination": "/topic/a", **options}
    made = BatchSink(parse(given), Rows(SCHEMA, parse(given))) if batch else stream_sink(given, SCHEMA, False)
    rows: Iterator[pa.RecordBatch] = iter(())
    made.write(rows)
    (found,) = written
    return found


def test_a_task_without_an_epoch_writes_if_its_ids_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {sink.QUERY_PROPERTY: "q", sink.EPOCH_PROPERTY: "7"}
    assert reported(monkeypatch, both) == ("q", "7")
    assert reported(monkeypatch, both, query="mine") == ("mine", "7")
    reported(monkeypatch, {}, dedup="none")
    assert reported(monkeypatch, {}, dedup_by="key", query="mine")[0] == "mine"
    for options in ({}, {"query": "mine"}, {"dedup_by": "key"}, {"dedup": "number", "query": "mine"}):
        with pytest.raises(ConfigError, match="expected dedup_by with query, or dedup=none"):
            reported(monkeypatch, {}, **options)


def test_a_batch_of_foreach_batch_has_the_epoch_of_spark_or_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = {sink.EPOCH_PROPERTY: "7"}
    assert reported(monkeypatch, epoch, True, query="mine") == ("mine", "7")
    assert reported(monkeypatch, epoch, True)[1] == "batch"  # two writes of one epoch: only a name tells them apart
    assert reported(monkeypatch, {}, True, query="mine") == ("mine", "batch")
    assert reported(monkeypatch, {}, True, query="mine", epoch="8") == ("mine", "8")
    with pytest.raises(ConfigError, match="option epoch is for batches that foreachBatch writes"):
        reported(monkeypatch, epoch, query="mine", epoch="8")


def test_through_spark_connect_ids_with_an_epoch_need_one_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {sink.TAGS_PROPERTY: "SparkConnect_OperationTag_User__Session_1_Operation_2,spark-session-3"}
    for dedup in ("row", "number"):
        with pytest.raises(ConfigError, match=r"expected option\(\"epoch\", epoch\) beside query"):
            reported(monkeypatch, tags, True, query="mine", dedup=dedup)
    assert reported(monkeypatch, tags, True, query="mine", epoch="3") == ("mine", "3")
    assert reported(monkeypatch, tags, True, query="mine", epoch="Batch") == ("mine", "batch")
    assert reported(monkeypatch, tags, True)[1] == "batch"
    reported(monkeypatch, tags, True, query="mine", dedup_by="key")
    reported(monkeypatch, tags, True, query="mine", dedup="none")
