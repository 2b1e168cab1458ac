"""The format ``radiator`` through Spark itself."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from radiator.spark import collect, read, register, snapshot
from radiator.spark.report import reason
from radiator.spark.schema import SCHEMA, select
from radiator.storage import layout
from radiator.storage.header import HEADER_BYTES
from tests.spark.stores import MS, START_NS, Message, Writer, numbered
from tests.tiers import sampled

pytestmark = pytest.mark.spark

TELLING = Message(
    "/topic/flights.JFK",
    b'{"carrier": "UA"}\xff',
    "event-time:1\ntag-carrier:UA\ntag-dest:IAH\nnote:a\\cb\\nä".encode(),
    START_NS + 123_456_789,
    -1,
    None,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """1,001 records of four destinations in two partitions."""
    writer = Writer(tmp_path_factory.mktemp("store") / "data")
    for i in range(10):
        for name in ("a", "b", "c"):
            writer.append("abc", numbered(f"/topic/{name}", 30, 30 * i))
        writer.commit()
    writer.write("p/1", [*numbered("/queue/q", 100), TELLING], per_batch=7)
    writer.close()
    return writer.root


def test_the_format_is_known_by_its_name_and_has_its_schema(spark: Any, store: str) -> None:
    register(spark)  # again: no harm
    df = spark.read.format("radiator").option("path", store).load()
    assert df.schema == SCHEMA
    assert df.count() == 1001
    assert spark.read.format("radiator").load(store).count() == 1001


def test_a_record_comes_out_as_it_went_in(spark: Any, store: str) -> None:
    (row,) = collect(read(spark, store, destination="/topic/flights.*"))
    assert row == {
        "destination": "/topic/flights.JFK",
        "partition": "p/1",
        "offset": 100,
        "message_id": "p%2F1@100",
        "receive_time": datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC),
        "event_time": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        "transmit_time": None,
        "receive_ns": START_NS + 123_456_789,
        "event_ns": -1,
        "transmit_ns": None,
        "tags": {"carrier": "UA", "dest": "IAH"},
        "headers": {"event-time": "1", "tag-carrier": "UA", "tag-dest": "IAH", "note": "a:b\nä"},
        "body": b'{"carrier": "UA"}\xff',
        "size": 18,
    }


def test_times_are_utc_wherever_this_runs(spark: Any, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        (row,) = collect(read(spark, store, columns=["receive_time", "transmit_time"], destination="/topic/flights.*"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert row == {"receive_time": datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC), "transmit_time": None}


def test_only_the_named_columns_are_read_in_their_order(spark: Any, store: str) -> None:
    df = spark.read.format("radiator").schema("size BIGINT, destination STRING").load(store)
    assert df.columns == ["size", "destination"]
    assert df.groupBy("destination").count().count() == 5
    assert read(spark, store, columns=["tags", "offset"]).where("tags['dest'] = 'IAH'").collect()[0].offset == 100


def test_options_select(spark: Any, store: str) -> None:
    def count(**options: Any) -> int:
        return read(spark, store, columns=["offset"], **options).count()

    assert count(destination="/topic/a,/topic/b") == 600
    assert count(partition="p/1") == 101
    assert count(partition="abc", starting_offsets=890) == 10
    assert count(startTime="2023-11-14T22:13:20.05Z", endTime=str(START_NS + 60 * MS), partition="p/1") == 10
    assert count(ending_offsets='{"abc": 5}') == 5
    assert count(destination="/nothing/>") == 0


COLUMNS = ["destination", "partition", "offset", "message_id", "receive_time", "receive_ns", "event_time", "size"]
FILTERS = [
    "destination = '/topic/a'",
    "destination IN ('/topic/a', '/queue/q') AND size > 6",
    "destination LIKE '/topic/%' AND offset BETWEEN 100 AND 200",
    "NOT destination = '/topic/a' AND partition = 'abc'",
    "receive_time >= timestamp'2023-11-14 22:13:20.050' AND receive_time < timestamp'2023-11-14 22:13:20.060'",
    "receive_ns > 1700000000050000000 OR offset = 3",
    "message_id = 'p%2F1@100'",
    "event_time IS NULL AND destination = '/topic/c'",
    "destination IS NULL",
]


@pytest.fixture(scope="module")
def everything(spark: Any, store: str) -> Iterator[Any]:
    """The table in Spark's own memory: filtered by Spark alone."""
    df = spark.createDataFrame(read(spark, store, columns=COLUMNS).collect(), select(COLUMNS)).persist()
    yield df
    df.unpersist()


@pytest.mark.parametrize("condition", sampled(FILTERS, 4))
def test_pushed_filters_give_what_spark_itself_would(spark: Any, store: str, everything: Any, condition: str) -> None:
    pushed = read(spark, store, columns=COLUMNS, pushdown=True).where(condition).select("partition", "offset")
    assert sorted(pushed.collect()) == sorted(everything.where(condition).select("partition", "offset").collect())


def test_a_time_without_zone_in_a_filter_is_the_sessions(spark: Any, store: str) -> None:
    moment = datetime(2023, 11, 14, 22, 13, 20, 60_000, UTC)
    df = read(spark, store, columns=["receive_time"], pushdown=True, partition="p/1")
    assert df.where(F.col("receive_time") < F.lit(moment)).count() == 60


def test_one_dataframe_can_be_filtered_differently_in_one_query_and_the_next(spark: Any, store: str) -> None:
    """Spark 4.3 would give the rows of one pushed filter to the other: why push-down is not the default."""
    df = read(spark, store, columns=["destination", "offset"])
    a, b = df.where("destination = '/topic/a'"), df.where("destination = '/topic/b' AND offset < 450")
    assert a.count() == 300
    assert df.count() == 1001
    assert a.union(df).union(b).count() == 300 + 1001 + 150
    assert b.count() == 150


def test_tasks_follow_the_size_of_the_log(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("p", [Message("/topic/a", bytes(1000))] * 2000, per_batch=50)
    writer.close()
    assert read(spark, writer.root).rdd.getNumPartitions() == 1
    df = read(spark, writer.root, columns=["offset"], split_bytes=200_000)
    assert df.rdd.getNumPartitions() >= 8
    assert df.agg(F.count_distinct("offset")).collect()[0][0] == 2000


@pytest.mark.thorough
def test_a_store_that_is_being_written_is_read_up_to_its_head(spark: Any, writer: Writer) -> None:
    writer.write("p", numbered("/topic/a", 10))
    enough = threading.Event()

    def go_on() -> None:
        number = 10
        while not enough.is_set() and number < 1_000_000:
            writer.append("p", numbered("/topic/a", 5, number))
            writer.commit()
            number += 5

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        seen = []
        for _ in range(3):
            before = snapshot(writer.root)["p"]
            df = read(spark, writer.root, columns=["offset", "body"])
            told = F.concat(F.lit("body "), F.col("offset")) == F.col("body").cast("string")
            row = df.agg(F.count("*"), F.count_distinct("offset"), F.max("offset"), F.count_if(~told)).collect()[0]
            after = snapshot(writer.root)["p"]
            assert row[0] == row[1] == row[2] + 1
            assert row[3] == 0
            assert before <= row[0] <= after
            seen.append(row[0])
            assert df.count() == row[0]  # a DataFrame is a snapshot as of its first action
    finally:
        enough.set()
        thread.join()
    assert seen == sorted(seen)
    assert read(spark, writer.root, columns=["offset"]).count() == snapshot(writer.root)["p"]


def damage(root: str, partition: str) -> None:
    """Harms one batch in the middle of a partition's last segment."""
    segment = max(Path(layout.partition_path(root, partition)).glob("*.rlog"))
    data = bytearray(segment.read_bytes())
    total = int.from_bytes(data[8:12], "little")  # of the first batch: the second follows
    data[total + HEADER_BYTES + 8] ^= 0xFF
    segment.write_bytes(data)


def test_a_damaged_range_is_an_error_that_names_it_and_the_way_on(spark: Any, writer: Writer) -> None:
    writer.write("p/ä", numbered("/topic/a", 50), per_batch=10)
    writer.close()
    damage(writer.root, "p/ä")
    with pytest.raises(Exception, match="cannot be read") as told:
        read(spark, writer.root, columns=["offset"]).count()
    text = reason(told.value)
    assert text is not None
    assert "partition 'p/ä': offsets 10 to 19 (10 records) cannot be read: batch at offset 10: crc expected" in text
    assert 'option("failOnDataLoss", "false")' in text
    df = read(spark, writer.root, columns=["offset"], fail_on_data_loss=False)
    assert [row.offset for row in df.sort("offset").collect()] == [*range(10), *range(20, 50)]


def test_an_empty_store_has_the_schema_and_no_rows(spark: Any, writer: Writer) -> None:
    df = read(spark, writer.root)
    assert df.schema == SCHEMA
    assert df.collect() == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "no radiator store at {path}/none: there is no such directory"),
        ({"destnation": "x"}, "option 'destnation' is not known (did you mean destination?)"),
        ({"column": "offset"}, "expected columns=[...] of radiator.spark.read, or .schema("),
        ({"colums": "offset"}, "option 'colums' is not known; for columns expected columns=[...]"),
        ({"start_time": "soon"}, "option start_time: expected RFC 3339"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp: expected RFC 3339"),
        ({"startingOfsets": "5"}, "(did you mean startingOffsets?): expected path, subscribe, subscribePattern, "),
    ],
)
def test_an_unreadable_source_is_an_error_when_the_dataframe_is_created(
    spark: Any, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=re.escape(told.format(path=tmp_path))) as error:
        read(spark, f"{tmp_path}/none", **options)
    assert reason(error.value) is not None


def test_a_column_that_does_not_exist_is_reported(spark: Any, store: str) -> None:
    with pytest.raises(Exception, match=re.escape("column 'bdy' is not one of a radiator store (did you mean body?)")):
        spark.read.format("radiator").schema("bdy BINARY").load(store).count()


def test_sql_alone_makes_a_view_of_a_store_and_no_table(spark: Any, store: str) -> None:
    of = f"USING radiator OPTIONS (path '{store}', subscribe '/topic/a')"
    with pytest.raises(Exception, match=re.escape("expected a view of the session, CREATE TEMPORARY VIEW")):
        spark.sql(f"CREATE TABLE kept {of}")
    spark.sql(f"CREATE TEMPORARY VIEW kept {of}")
    try:
        assert spark.sql("SELECT count(*) AS n FROM kept").first().n == 300
    finally:
        spark.sql("DROP VIEW kept")


def test_sql_over_a_view(spark: Any, store: str) -> None:
    read(spark, store).createOrReplaceTempView("log")
    query = "SELECT destination, sum(size) AS bytes FROM log WHERE partition = 'abc' GROUP BY 1 ORDER BY 1"
    assert [row.destination for row in spark.sql(query).collect()] == ["/topic/a", "/topic/b", "/topic/c"]
    assert spark.sql("SELECT count(*) FROM log").collect()[0][0] == 1001
