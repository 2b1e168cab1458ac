"""The optimizer rule gives each query the columns and records that it uses, and never changes its result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from radiator.spark import read, register
from radiator.spark.pruned import value_of
from radiator.spark.scan_rule import install
from radiator.storage import format as codec
from tests.spark.stores import Message, Writer, numbered
from tests.tiers import sampled

pytestmark = pytest.mark.spark

HEADERS = b"number:%d\ntag-k:%b\ntag-k:again\ntag-other:x"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two partitions, of which one has several destinations, and headers that differ from record to record."""
    writer = Writer(tmp_path_factory.mktemp("rule") / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "PARTIAL_CRC_BYTES_MIN", 0)  # as long batches: they are read in part
        writer.write("/topic/a", numbered("/topic/a", 60, k="v"), per_batch=7)
    mixed = [
        Message(
            f"/topic/{'bcd'[n % 3]}",
            b"x" * n,
            HEADERS % (n, b"odd" if n % 2 else b"a\\cb"),
            1_700_000_000_000_000_000 + n,
        )
        if n % 5
        else Message("/topic/b", b"", b"number:%d" % n, 1_700_000_000_000_000_000 + n)
        for n in range(50)
    ]
    writer.write("mixed", mixed, per_batch=8)
    writer.close()
    return writer.root


@pytest.fixture(scope="module")
def rows(spark: Any, store: str) -> Any:
    """The table in Spark's own memory, so that no query over it uses the rule."""
    return read(spark, store).localCheckpoint()


def scan_of(query: Any) -> str:
    plan = query._jdf.queryExecution().executedPlan().toString()
    return "\n".join(line for line in plan.splitlines() if "radiator" in line)


QUERIES = {
    "count": "SELECT count(*) FROM log",
    "counts": "SELECT count(*), count(1) + 1, count(*) FILTER (WHERE true), count(NULL), count(DISTINCT 1) FROM log",
    "two counts": "SELECT count(*) AS a, count('x') AS b FROM log WHERE offset < 20",
    "no rows": "SELECT count(*) FROM log WHERE destination = '/topic/none'",
    "a count of a union": "SELECT count(*) FROM (SELECT * FROM log UNION ALL SELECT * FROM log)",
    "nothing": "SELECT 1 FROM log",
    "lengths": "SELECT sum(length(body)), max(octet_length(body)) FROM log",
    "length and body": "SELECT length(body), body FROM log",
    "length of a filter": "SELECT offset FROM log WHERE length(body) > 10 AND size < 40",
    "a tag": "SELECT tags.k, count(*) FROM log GROUP BY tags.k",
    "a tag in an aggregate": "SELECT max(tags.k), min(tags['other']), max(headers['number']) FROM log",
    "a tag and all tags": "SELECT tags.k, tags FROM log WHERE tags.k IS NOT NULL",
    "a tag of a filter": "SELECT partition, offset FROM log WHERE tags.k = 'odd'",
    "a tag that no record has": "SELECT count(tags.none), count(*) FROM log",
    "destination": "SELECT body FROM log WHERE destination = '/topic/b'",
    "not a destination": "SELECT offset FROM log WHERE destination <> '/topic/b' AND destination IS NOT NULL",
    "some destinations": "SELECT offset FROM log WHERE destination IN ('/topic/b', '/topic/a') AND size > 3",
    "like": "SELECT offset FROM log WHERE destination LIKE '/t%' AND partition LIKE '%xe%' AND destination LIKE '%c'",
    "offsets": "SELECT offset, partition FROM log WHERE offset BETWEEN 3 AND 20 AND offset <> 7",
    "times": "SELECT count(*) FROM log WHERE receive_time > timestamp'2023-11-14 22:13:20' AND receive_ns >= 7",
    "a record": "SELECT body FROM log WHERE message_id = 'mixed@17'",
    "no record": "SELECT body FROM log WHERE message_id = 'mixed@017'",
    "or": "SELECT offset FROM log WHERE destination = '/topic/b' OR offset = 3",
    "null": "SELECT offset FROM log WHERE destination = NULL OR event_time IS NULL",
    "odd names": r"SELECT offset FROM log WHERE destination = 'a\"b\\c\nd\u00e9'",
    "a join": "SELECT a.offset, b.body FROM log a JOIN log b ON a.offset = b.offset AND a.partition < b.partition",
    "a union": "SELECT offset FROM log WHERE offset < 3 UNION ALL SELECT size FROM log WHERE destination = '/topic/c'",
    "a subquery": "SELECT max(offset) FROM log WHERE size = (SELECT max(size) FROM log)",
    "distinct": "SELECT count(DISTINCT tags.k), count(DISTINCT destination), sum(length(body)) FROM log",
    "all": "SELECT * FROM log WHERE offset >= 40",
    "random": "SELECT count(*) FROM log WHERE rand(7) >= 0 AND offset < 10",
    "window": "SELECT offset, row_number() OVER (PARTITION BY tags.k ORDER BY partition, offset) FROM log",
    "limit": "SELECT offset FROM log WHERE destination = '/topic/c' ORDER BY offset LIMIT 3",
    "groups": "SELECT destination, partition, 2 * count(*) + 1 AS n FROM log GROUP BY ALL HAVING n > 25",
    "groups of expressions": "SELECT upper(tags.k), length(body) > 9, count(1) FROM log WHERE offset > 2 GROUP BY ALL",
    "groups of bodies": "SELECT count(*) AS n FROM log GROUP BY body",
    "groups of maps": "SELECT map_keys(tags), count(*) FROM log GROUP BY map_keys(tags)",
    "random groups": "SELECT rand(7) >= 0, count(*) FROM log GROUP BY 1",
    "groups by nothing": "SELECT DISTINCT 1 FROM log WHERE destination = '/topic/none'",
    "counts of a filter": "SELECT count(*), count(1) FROM log WHERE tags.k = 'odd'",
    "counts of no rows of a filter": "SELECT count(*) FROM log WHERE tags.k = 'none'",
    "distinct rows": "SELECT DISTINCT tags.k, length(body) FROM log WHERE size < 9",
    "distinct rows of a union": "SELECT destination FROM log UNION SELECT tags.other FROM log",
    "having": "SELECT tags.k, sum(size) AS n FROM log GROUP BY ALL HAVING n > 10",
}


@pytest.mark.parametrize("name", sampled(list(QUERIES), 4))
def test_a_query_over_the_log_has_the_result_that_it_has_over_memory(
    spark: Any, store: str, rows: Any, name: str
) -> None:
    def result(source: Any) -> list[str]:
        source.createOrReplaceTempView("log")
        return sorted(map(str, spark.sql(QUERIES[name]).collect()))

    assert result(spark.read.format("radiator").load(store)) == result(rows)


def test_a_query_reads_only_the_columns_and_records_that_it_uses(spark: Any, store: str) -> None:
    df = spark.read.format("radiator").load(store)
    assert "columns=[size] filters=[]" in scan_of(df.agg(F.sum("size")))
    assert "columns=[length[body]]" in scan_of(df.selectExpr("sum(length(body))"))
    assert "columns=[tags[k], rows]" in scan_of(df.groupBy("tags.k").count())
    assert "columns=[offset, tags[k]]" in scan_of(df.groupBy("tags.k").agg(F.count("*"), F.max("offset")))
    assert "columns=[rows]" in scan_of(df.groupBy().count())
    assert "columns=[count]" in scan_of(df.selectExpr("1"))
    where = scan_of(df.where("destination = '/topic/a' AND offset < 5").groupBy().count())
    assert "columns=[rows]" in where
    assert '["EqualTo","destination",false,"/topic/a"]' in where
    assert '["LessThan","offset",false,5]' in where


def test_a_scan_passes_batches_and_counts_what_python_has_sent(spark: Any, store: str, rows: Any) -> None:
    query = spark.read.format("radiator").load(store).select("offset", "tags").where("size >= 0")
    plan = query._jdf.queryExecution().executedPlan()
    assert "ColumnarToRow" in plan.toString()
    assert sorted(map(str, query.collect())) == sorted(map(str, rows.select("offset", "tags").collect()))
    scans = plan.collectLeaves()
    metrics = {each.name().get(): each.value() for each in _values(scans.apply(0).metrics()) if each.name().isDefined()}
    assert metrics["data returned from Python workers"] > 1000
    assert metrics["number of output rows"] == 110


@pytest.mark.parametrize("generated", ["true", "false"])
def test_a_scan_passes_batches_to_generated_code_and_to_other(
    spark: Any, store: str, rows: Any, generated: str
) -> None:
    before = spark.conf.get("spark.sql.codegen.wholeStage")
    spark.conf.set("spark.sql.codegen.wholeStage", generated)
    try:
        found = spark.read.format("radiator").load(store).orderBy("partition", "offset").collect()
    finally:
        spark.conf.set("spark.sql.codegen.wholeStage", before)
    assert found == rows.orderBy("partition", "offset").collect()


SECOND = """
import sys
from radiator.spark import get_session, read
for _ in range(2):
    spark = get_session("again")
    rows = read(spark, sys.argv[1]).select("offset").where("size >= 0")
    print("ColumnarToRow" in rows._jdf.queryExecution().executedPlan().toString(), len(rows.collect()), flush=True)
    spark.stop()
"""


@pytest.mark.thorough
def test_the_second_session_of_a_process_passes_batches_too(store: str) -> None:
    command = [sys.executable, "-c", SECOND, store]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout.splitlines() == ["True 110", "True 110"], ended.stderr


def _values(found: Any) -> list[Any]:
    each, values = found.values().iterator(), []
    while each.hasNext():
        values.append(each.next())
    return values


def test_all_queries_of_a_dataframe_end_where_the_first_one_did(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("p", numbered("/topic/a", 10))
    df = spark.read.format("radiator").load(writer.root)
    writer.write("p", numbered("/topic/a", 10, first=10))
    assert df.count() == 20
    writer.write("p", numbered("/topic/a", 10, first=20))
    writer.write("q", numbered("/topic/b", 10))
    assert df.where("offset >= 5").count() == 15
    assert df.selectExpr("max(offset)").first()[0] == 19
    assert len(df.collect()) == 20
    assert df.join(df.select("offset"), "offset").count() == 20
    assert spark.read.format("radiator").load(writer.root).count() == 40
    writer.close()


def test_other_options_still_apply(spark: Any, store: str) -> None:
    df = read(spark, store, starting_offsets='{"mixed": 10}', ending_offsets='{"mixed": 30}', destination="/topic/*")
    assert df.where("offset < 20").count() == 10
    assert df.count() == 20
    assert df.where("destination = '/topic/a'").count() == 0


def test_a_session_gets_the_rule_once(spark: Any) -> None:
    register(spark)
    assert install(spark) is None
    rules = spark._jsparkSession.experimental().extraOptimizations()
    assert [rules.apply(at).getClass().getName() for at in range(rules.size())].count("radiator.ScanRule") == 1


@pytest.mark.parametrize("key", ["k", "other", "", "none", "ä"])
@pytest.mark.parametrize(
    "rows",
    [
        [[("k", "1")], [("k", "2")], [("k", "3")], [("k", "4")]],
        [[("k", "1"), ("other", "2")], [("k", "3"), ("other", "4")], [("k", "5"), ("other", "6")]],
        [[("k", "1")], [], [("k", "2"), ("k", "3")], [("", "4"), ("k", "5")]],
        [[("kk", "1"), ("ä", "2")], [("x", "3")], [("ä", "4"), ("k", "5")]],
        [[("k", "1")], [("x", "2")], [("k", "3")]],
        [[], [], []],
    ],
)
def test_the_value_of_a_key_is_the_first_one_in_each_map_also_in_slices(
    rows: list[list[tuple[str, str]]], key: str
) -> None:
    maps = pa.array(rows, pa.map_(pa.string(), pa.string()))
    for start in range(len(rows)):
        for count in range(1, len(rows) - start + 1):
            expected = [next((v for k, v in row if k == key), None) for row in rows[start : start + count]]
            assert value_of(maps.slice(start, count), key).to_pylist() == expected
