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
from radiator.spark.sink import StreamSink, pieces, stream_sink

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


def told(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], **options: str) -> tuple[str, str]:
    """Query and epoch with which a task writes, in a Spark that has told it these properties."""
    written: list[Any] = []
    monkeypatch.setattr(sink, "_property", properties.get)
    monkeypatch.setattr(sink, "_write", lambda *given: written.append(given[3:]))
    made = stream_sink({"url": "stomp://localhost", "destination": "/topic/a", **options}, SCHEMA, False)
    assert isinstance(made, StreamSink)
    rows: Iterator[pa.RecordBatch] = iter(())
    made.write(rows)
    (found,) = written
    return found


def test_a_task_that_is_told_no_epoch_writes_if_its_ids_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {sink.QUERY_PROPERTY: "q", sink.EPOCH_PROPERTY: "7"}
    assert told(monkeypatch, both) == ("q", "7")
    assert told(monkeypatch, both, query="mine") == ("mine", "7")
    told(monkeypatch, {}, dedup="none")
    assert told(monkeypatch, {}, dedup_by="key", query="mine")[0] == "mine"
    for options in ({}, {"query": "mine"}, {"dedup_by": "key"}, {"dedup": "number", "query": "mine"}):
        with pytest.raises(ConfigError, match="expected dedup_by with query, or dedup=none"):
            told(monkeypatch, {}, **options)
