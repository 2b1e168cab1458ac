"""The table of deliveries, and the messages that a cursor had acknowledged at a moment."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from radiator.archive.files import NoVersion
from radiator.columns.deliveries import COLUMNS, arrow_schema, read_deliveries, settled
from radiator.columns.delivery_records import DESTINATION
from radiator.columns.scan import LostRecords
from radiator.errors import ConfigError
from radiator.spark import collect, read, read_stream, table
from radiator.spark.options import parse
from radiator.spark.schema import DELIVERIES
from tests.spark.archives import archive
from tests.spark.deliveries import PARTITION, Delivery, acked, records
from tests.spark.stores import MS, START_NS, Message, Writer, numbered

pytestmark = pytest.mark.spark

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
ROWS = [
    Delivery("/topic/a", "a", 0, "billing", "ann/0", 1, START_NS + 1_999, "nacked", START_NS + 2_000),
    Delivery("/topic/a", "a", 0, "billing", "bob/s:1", 2, START_NS + 3_000, "acked", START_NS + 5_000, "tx-1"),
    Delivery("/topic/a", "a", 1, "billing", None, 0, None, "expired", START_NS + 6_000),
    Delivery("/queue/b", "b", 0, "/queue/b", "ann/0", 1, START_NS + 6_000, "dead_lettered", START_NS + 7_000),
]


def row(each: Delivery, number: int) -> dict[str, Any]:
    def time(ns: int | None) -> datetime | None:
        return None if ns is None else START + timedelta(microseconds=(ns - START_NS) // 1000)

    times = {"delivered_at": time(each.delivered_at), "settled_at": time(each.settled_at)}
    return {**each._asdict(), **times, "record_offset": number}


EXPECTED = [row(each, number) for number, each in enumerate(ROWS)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = Writer(tmp_path_factory.mktemp("deliveries") / "data")
    made.write("a", numbered("/topic/a", 300), per_batch=50)
    made.write("b", numbered("/queue/b", 10))
    made.write(PARTITION, records(ROWS), per_batch=2)
    made.close()
    return made.root


def test_deliveries_are_a_table_with_and_without_spark(spark: Any, store: str) -> None:
    df = spark.read.format("radiator").option("table", "deliveries").load(store)
    assert df.schema == DELIVERIES
    assert collect(df.orderBy("record_offset")) == EXPECTED
    assert pa.Table.from_batches(read_deliveries(store), arrow_schema()).to_pylist() == EXPECTED
    acked_by_billing = read_deliveries(store, ["record_offset"], subscription="billing", outcome="acked")
    assert pa.Table.from_batches(acked_by_billing).to_pylist() == [{"record_offset": 1}]


def test_as_of_cursor_reads_what_was_acknowledged_at_that_moment(spark: Any, tmp_path: Path) -> None:
    made = Writer(tmp_path / "data")
    made.write("a", numbered("/topic/a", 300), per_batch=50)
    made.write("x", numbered("/topic/a", 20))
    order = random.Random(7).sample(range(0, 300, 3), 100)
    made.write(PARTITION, records(acked("a", offset, at=(place + 1) * MS) for place, offset in enumerate(order)))
    made.write(PARTITION, records([acked("a", 1, "other"), acked("x", 4, at=200 * MS)]))
    made.close()
    moment = (START + timedelta(milliseconds=40)).isoformat()
    df = read(spark, made.root, columns=["body"], as_of_cursor="billing", as_of=moment)
    assert sorted(each.body for each in df.collect()) == sorted(b"body %d" % offset for offset in order[:40])
    whole = read(spark, made.root, columns=["partition", "offset"], as_of_cursor="billing")
    assert {tuple(each) for each in whole.collect()} == {("a", offset) for offset in order} | {("x", 4)}


def test_all_queries_with_a_cursor_see_what_the_first_one_did(spark: Any, tmp_path: Path) -> None:
    made = Writer(tmp_path / "data")
    made.write("a", numbered("/topic/a", 30), per_batch=5)
    made.write(PARTITION, records(acked("a", offset, at=MS) for offset in range(0, 20, 2)), per_batch=50)
    df = spark.read.format("radiator").option("asOfCursor", "billing").load(made.root)
    bodies = df.where("offset >= 6").select("body")
    scan = bodies._jdf.queryExecution().executedPlan().toString()
    assert 'radiator columns=[body] filters=[!["GreaterThanOrEqual","offset",false,6]]' in scan
    assert df.count() == 10
    made.write("a", numbered("/topic/a", 30, first=30), per_batch=5)
    made.write(PARTITION, records(acked("a", offset, at=MS) for offset in range(1, 60, 2)), per_batch=50)
    made.write("later", records([acked("a", 0, at=MS)]))
    made.close()
    assert sorted(each.body for each in bodies.collect()) == sorted(b"body %d" % n for n in range(6, 20, 2))
    assert df.groupBy("destination").count().collect() == [("/topic/a", 10)]
    assert df.selectExpr("sum(offset)").first()[0] == sum(range(0, 20, 2))
    again = spark.read.format("radiator").option("asOfCursor", "billing").load(made.root)
    assert again.count() == 40


def test_rows_of_a_queue_that_was_removed_and_created_again_select_no_later_message(tmp_path: Path) -> None:
    made = Writer(tmp_path / "data")
    made.write("a", numbered("/topic/a", 100, first=50))  # received from 50 ms on, with offsets from 0
    before = [acked("a", offset, at=offset * MS) for offset in range(50)]
    made.write(PARTITION, records([*before, *(acked("a", offset, at=(200 + offset) * MS) for offset in range(3, 9))]))
    made.close()
    found = settled(parse({"path": made.root}), "billing").runs["a"]
    assert [each.tolist() for each in found] == [[3], [9]]
    assert not settled(parse({"path": made.root}), "billing", START_NS + 199 * MS).runs


@pytest.mark.thorough
def test_a_stream_of_deliveries_has_the_same_rows(spark: Any, store: str, tmp_path: Path) -> None:
    df = read_stream(spark, store, table="deliveries", starting_offsets="earliest", max_offsets_per_trigger=3)
    query = (
        df.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start(str(tmp_path / "out"))
    )  # fmt: skip
    query.awaitTermination()
    assert collect(spark.read.parquet(str(tmp_path / "out")).orderBy("record_offset")) == EXPECTED


@pytest.mark.parametrize(
    ("query", "scan"),
    [
        ("count(*) FROM log", "columns=[rows] filters=[]"),
        ("1 FROM log", "columns=[count] filters=[]"),
        ("outcome, count(*) FROM log GROUP BY outcome", "columns=[outcome, rows]"),
        (
            "max(settled_at - delivered_at) FROM log WHERE subscription = 'billing'",
            '!["EqualTo","subscription",false,"billing"]',
        ),
        (
            "record_offset FROM log WHERE consumer LIKE '%/0' AND offset < 1",
            'filters=[!["IsNotNull","consumer",false], !["StringEndsWith","consumer",false,"/0"]]',
        ),
        (
            "record_offset FROM log WHERE outcome <> 'acked' AND destination LIKE '%pic%'",
            '!["EqualTo","outcome",true,"acked"]',
        ),
        (
            "offset FROM log WHERE partition IN ('b', 'c') OR delivery = 0",
            "columns=[partition, offset, delivery] filters=[]",
        ),
        ("* FROM log", "columns=[destination, partition, offset, subscription,"),
    ],
)
def test_a_query_of_deliveries_gets_only_what_it_uses(spark: Any, store: str, query: str, scan: str) -> None:
    def found(rows: Any) -> Any:
        rows.createOrReplaceTempView("log")
        return spark.sql(f"SELECT {query}")

    df = spark.read.format("radiator").option("table", "deliveries").load(store)
    pruned = found(df)
    assert scan in pruned._jdf.queryExecution().executedPlan().toString()
    expected = found(spark.createDataFrame(EXPECTED, DELIVERIES))
    assert sorted(map(str, collect(pruned))) == sorted(map(str, collect(expected)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "condition",
    [
        "outcome = 'acked'", "outcome <> 'acked'", "outcome IN ('nacked', 'expired')", "consumer IS NOT NULL",
        "consumer <> 'ann/0'", "subscription LIKE 'bill%'", "partition = 'b' AND outcome = 'dead_lettered'",
        "settled_at >= '2023-11-14T22:13:20.000005Z'", "consumer IS NULL", "delivery > 1",
        "NOT (consumer LIKE 'ann%')", "outcome = 'none'",
    ],
)  # fmt: skip
def test_filters_that_are_pushed_down_select_the_same_rows(spark: Any, store: str, condition: str) -> None:
    df = read(spark, store, table="deliveries", pushdown=True)
    plain = read(spark, store, table="deliveries")
    found = [each["record_offset"] for each in collect(df.where(condition).orderBy("record_offset"))]
    assert found == [each["record_offset"] for each in collect(plain.where(condition).orderBy("record_offset"))]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"destination": "/topic/*"}, [0, 1, 2]),
        ({"subscribe": "/queue/b"}, [3]),
        ({"partition": "b"}, [3]),
        ({"starting_offsets": 2}, [2, 3]),
        ({"end_time": "2023-11-14T22:13:20.000006Z"}, [0, 1]),
    ],
)
def test_options_select_deliveries_by_their_message(
    spark: Any, store: str, options: dict[str, Any], wanted: list[int]
) -> None:
    df = read(spark, store, table="deliveries", columns=["record_offset"], **options)
    assert sorted(each.record_offset for each in df.collect()) == wanted


@pytest.mark.thorough
def test_every_delivery_joins_with_exactly_one_message(spark: Any, tmp_path: Path) -> None:
    made, chance = Writer(tmp_path / "data"), random.Random(3)
    wanted = {}
    for partition in ("a", "b"):
        made.write(partition, numbered(f"/topic/{partition}", 500), per_batch=70)
        for offset in chance.sample(range(500), 250):
            wanted[partition, offset] = b"body %d" % offset
    rows = [acked(partition, offset)._replace(destination=f"/topic/{partition}") for partition, offset in wanted]
    made.write(PARTITION, records(rows))
    made.close()
    messages = read(spark, made.root, columns=["destination", "partition", "offset", "body"])
    joined = read(spark, made.root, table="deliveries").join(messages, ["destination", "partition", "offset"])
    found = [((each.partition, each.offset), each.body) for each in joined.collect()]
    assert len(found) == len(wanted)
    assert dict(found) == {key: bytearray(body) for key, body in wanted.items()}
    cursor = read(spark, made.root, columns=["partition", "offset"], as_of_cursor="billing")
    assert {tuple(each) for each in cursor.collect()} == set(wanted)


@pytest.mark.thorough
def test_a_record_of_a_client_is_a_row_with_nulls(spark: Any, tmp_path: Path) -> None:
    made = Writer(tmp_path / "data")
    lines = b"message-partition:a\nmessage-offset:twelve\ndelivery:99999999999\nsettled-at:-1\noutcome:"
    made.write(PARTITION, [Message(DESTINATION, b"hello", lines), Message(DESTINATION)])
    made.close()
    nothing = dict.fromkeys(column.name for column in COLUMNS)
    wanted = [{**nothing, "partition": "a", "outcome": "", "record_offset": 0}, {**nothing, "record_offset": 1}]
    assert collect(read(spark, made.root, table="deliveries").orderBy("record_offset")) == wanted
    assert pa.Table.from_batches(read_deliveries(made.root), arrow_schema()).to_pylist() == wanted
    assert read(spark, made.root, columns=["offset"], as_of_cursor="billing").count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "cursors"}, "option table: expected messages or deliveries, got 'cursors'"),
        ({"as_of": "2023-01-01"}, "option as_of: expected asOfCursor too"),
        ({"as_of_cursor": "a", "table": "deliveries"}, "option as_of_cursor selects messages, and table is deliveries"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse({"path": "/data", **options})


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """120 messages, every second one acknowledged; the archive has half of both logs, and the log of messages the rest
    only."""
    root = tmp_path_factory.mktemp("archived")
    made = Writer(root / "data")
    made.write("a", numbered("/topic/a", 120), per_batch=10)
    made.write(PARTITION, records(acked("a", offset, at=(offset + 1) * MS) for offset in range(0, 120, 2)), per_batch=5)
    made.close()
    archive(root / "archive", made.root, {"a": 60, PARTITION: 30})
    return made.root, str(root / "archive")


@pytest.mark.thorough
def test_archive_and_log_are_one_table_of_deliveries(spark: Any, archived: tuple[str, str]) -> None:
    df = table(spark, *archived, table="deliveries", view="tries")
    assert [(each.name, each.dataType) for each in df.schema] == [(each.name, each.dataType) for each in DELIVERIES]
    assert [each["offset"] for each in collect(df.orderBy("record_offset"))] == list(range(0, 120, 2))
    assert spark.sql("SELECT count(*) AS n FROM tries WHERE outcome = 'acked'").first().n == 60
    alone = table(spark, None, archived[1], table="deliveries", columns=["record_offset", "settled_at"])
    assert [each["record_offset"] for each in collect(alone.orderBy("record_offset"))] == list(range(30))
    with pytest.raises(NoVersion, match="there is no version 99"):
        table(spark, None, archived[1], table="deliveries", as_of=99)
    part = table(spark, *archived, table="deliveries", destination="/topic/*", partition="a", start=START_NS + 90 * MS)
    assert sorted(each["offset"] for each in collect(part)) == list(range(90, 120, 2))
    assert table(spark, *archived, table="deliveries", destination="/queue/>").count() == 0


@pytest.mark.thorough
@pytest.mark.parametrize("moment", [0, 1, 59, 61, 100, None])
def test_as_of_cursor_over_archive_and_log_is_exact(spark: Any, archived: tuple[str, str], moment: int | None) -> None:
    as_of = None if moment is None else START_NS + moment * MS
    wanted = [offset for offset in range(0, 120, 2) if moment is None or offset + 1 <= moment]
    for data, of in (archived, (archived[0], None)):
        df = table(spark, data, of, columns=["offset"], as_of_cursor="billing", as_of=as_of)
        assert df.columns == ["offset"]
        assert sorted(each.offset for each in df.collect()) == wanted


@pytest.mark.thorough
def test_deliveries_that_were_removed_are_a_loss_for_as_of_cursor(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = Writer(data, segment_bytes=4096)
    made.write("a", numbered("/topic/a", 120), per_batch=10)
    made.write(PARTITION, records(acked("a", offset) for offset in range(120)), per_batch=5)
    made.close()
    archive(tmp_path / "archive", str(data), {PARTITION: 60})
    first, second, *_ = sorted((data / "partitions" / PARTITION).glob("*.rlog"))
    lost = int(second.stem)
    for each in (data / "partitions" / PARTITION).glob(f"{first.stem}.*"):
        each.unlink()
    with pytest.raises(Exception, match=rf"partition 'deliveries': offsets 0 to {lost - 1} have been removed"):
        read(spark, str(data), columns=["offset"], as_of_cursor="billing").count()
    partly = read(spark, str(data), columns=["offset"], as_of_cursor="billing", fail_on_data_loss=False)
    assert sorted(each.offset for each in partly.collect()) == list(range(lost, 120))
    whole = read(spark, str(data), columns=["offset"], as_of_cursor="billing", archive=str(tmp_path / "archive"))
    assert whole.count() == 120
    assert table(spark, str(data), tmp_path / "archive", as_of_cursor="billing").count() == 120
    (tmp_path / "empty").mkdir()
    with pytest.raises(LostRecords, match=f"partition 'deliveries': the deliveries 0 to {lost - 1} were"):
        table(spark, str(data), tmp_path / "empty", as_of_cursor="billing")
