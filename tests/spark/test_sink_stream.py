"""Streams into a real broker: each row once, whatever is run again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from radiator.client import connect
from radiator.spark.report import reason
from tests.running import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Path]:
    """A directory of two text files, 600 lines together."""
    source = tmp_path / "lines"
    source.mkdir()
    for name in range(2):
        (source / f"{name}.txt").write_text("".join(f"{name}.{line}\n" for line in range(300)))
    yield source


def everything() -> list[str]:
    return sorted(f"{name}.{line}" for name in range(2) for line in range(300))


def held(broker: BrokerProcess, destination: str) -> list[str]:
    with connect(broker.address) as connection:
        history = connection.subscribe(destination, start_position="first", stop_position="end")
        return sorted(message.text for message in history)


def start(df: Any, broker: BrokerProcess, checkpoint: Path, destination: str, **options: Any) -> Any:
    writer = df.writeStream.format("radiator").option("url", f"stomp://{broker.address}")
    options = {"destination": destination, "messages_per_receipt": 20, **options}
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer.option("checkpointLocation", str(checkpoint)).queryName("a name").trigger(availableNow=True).start()


def breaking(flag: Path, broker: BrokerProcess, destination: str) -> Callable[[Any], Any]:
    """For mapInArrow: rows one by one, and an end in the middle of the task as long as the flag is not there: but not
    before the other task of the epoch has stored something."""
    path, address = str(flag), broker.address

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from radiator.client import connect

        for batch in batches:
            for row in range(batch.num_rows):
                if row == 250 and batch.column(0)[0].as_py().startswith("0.") and not os.path.exists(path):
                    with connect(address) as connection:
                        assert connection.subscribe(destination, start_position="first").fetch(60) is not None
                    open(path, "w").close()
                    raise RuntimeError("the end of this attempt")
                yield batch.slice(row, 1)

    return rows


def test_an_epoch_that_ends_in_the_middle_and_runs_again_stores_each_row_once(
    spark: Any, shared_broker: BrokerProcess, lines: Path, tmp_path: Path
) -> None:
    rows = breaking(tmp_path / "flag", shared_broker, "/topic/epoch")
    df = spark.readStream.text(str(lines)).mapInArrow(rows, "value string")
    query = start(df, shared_broker, tmp_path / "checkpoint", "/topic/epoch")
    with pytest.raises(Exception, match="the end of this attempt"):
        query.awaitTermination()
    assert 0 < len(held(shared_broker, "/topic/epoch")) < 600
    start(df, shared_broker, tmp_path / "checkpoint", "/topic/epoch").awaitTermination()
    assert held(shared_broker, "/topic/epoch") == everything()


def test_a_stage_behind_a_shuffle_that_runs_again_in_another_order_stores_each_row_once(
    spark: Any, shared_broker: BrokerProcess, lines: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"

    def upside_down(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The second attempt has the rows of each task from the last to the first."""
        import os

        rows = [batch.slice(row, 1) for batch in batches for row in range(batch.num_rows)]
        if os.path.exists(str(flag)):
            yield from reversed(rows)
            return
        yield from rows[: len(rows) // 2]
        if rows:
            open(str(flag), "w").close()
            raise RuntimeError("the end of this attempt")

    # two lines each, so rows that are alike have to be told apart as well
    df = spark.readStream.text(str(lines)).selectExpr("substr(value, 3) AS value").repartition(2, "value")
    df = df.mapInArrow(upside_down, "value string")
    query = start(df, shared_broker, tmp_path / "checkpoint", "/topic/order")
    with pytest.raises(Exception, match="the end of this attempt"):
        query.awaitTermination()
    start(df, shared_broker, tmp_path / "checkpoint", "/topic/order").awaitTermination()
    assert held(shared_broker, "/topic/order") == sorted(2 * [str(line) for line in range(300)])


@pytest.mark.slow
def test_another_query_over_the_same_rows_is_not_taken_for_a_repeat(
    spark: Any, shared_broker: BrokerProcess, lines: Path, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        df = spark.readStream.text(str(lines))
        start(df, shared_broker, tmp_path / name, "/topic/two").awaitTermination()
    assert held(shared_broker, "/topic/two") == sorted(2 * everything())


def test_a_broker_that_is_killed_under_the_query_holds_each_row_once(
    spark: Any, start_broker: Callable[..., BrokerProcess], lines: Path, tmp_path: Path
) -> None:
    """The tasks wait in the middle until the broker is gone, and go on; it comes back on the same port."""
    broker = start_broker()
    waiting, gone = tmp_path / "waiting", tmp_path / "gone"

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        done = 0
        for batch in batches:
            for row in range(batch.num_rows):
                if done == 150:
                    open(str(waiting), "w").close()
                    while not os.path.exists(str(gone)):
                        time.sleep(0.01)
                yield batch.slice(row, 1)
                done += 1

    query = start(
        spark.readStream.text(str(lines)).mapInArrow(rows, "value string"), broker, tmp_path / "checkpoint", "/topic/k"
    )
    pause = threading.Event()
    while not waiting.exists():
        assert query.isActive, query.exception()
        pause.wait(0.01)
    broker.kill()
    gone.touch()
    broker.start()
    query.awaitTermination()
    assert held(broker, "/topic/k") == everything()


def test_a_complete_table_is_refused(spark: Any, shared_broker: BrokerProcess, lines: Path, tmp_path: Path) -> None:
    df = spark.readStream.text(str(lines)).groupBy("value").count().selectExpr("value")
    writer = df.writeStream.format("radiator").outputMode("complete").option("url", shared_broker.address)
    query = writer.option("destination", "/topic/c").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception) as caught:
        query.awaitTermination()
    assert (reason(caught.value) or "").startswith('outputMode "complete" is refused')


def test_batches_of_foreach_batch_with_a_name_know_their_epoch(
    spark: Any, shared_broker: BrokerProcess, lines: Path, tmp_path: Path
) -> None:
    """A batch that was written, and whose epoch did not end, is written again: nothing is doubled."""
    flag = tmp_path / "flag"

    def write(df: Any, epoch: int) -> None:
        out = df.write.format("radiator").mode("append").option("url", shared_broker.address)
        out.option("destination", "/topic/foreach").option("query", "each").save()
        if not flag.exists():
            flag.touch()
            raise RuntimeError("the end of this attempt")

    for attempt in range(2):
        writer = spark.readStream.text(str(lines)).writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        if attempt:
            query.awaitTermination()
        else:
            with pytest.raises(Exception, match="the end of this attempt"):
                query.awaitTermination()
    assert held(shared_broker, "/topic/foreach") == everything()
