"""``table`` with the struct columns of rules, and with the fields of the bodies by a schema that is given."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from radiator.columns.files import local_path
from radiator.errors import ConfigError
from radiator.spark import collect, table, tables
from radiator.spark.schema import SCHEMA
from radiator.spark.typed import CORRUPT
from radiator.spark.uris import arrow_uri, hadoop_uri
from tests.spark.archives import archive
from tests.spark.stores import START_NS, Message, Writer, register_rules

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FLIGHT = {
    "type": "object",
    "properties": {
        "carrier": {"type": "string", "description": "two letters"},
        "dep_delay": {"type": ["integer", "null"], "minimum": -1440, "maximum": 10_000},
        "flight": {"type": "integer"},
        "size": {"type": "number"},
        "scheduled": {"type": "string", "format": "date-time"},
    },
}
BODY = {"carrier": "UA", "dep_delay": 2.0, "flight": (1 << 60) + 1, "size": 1.5, "scheduled": "2013-01-01T05:15:00Z"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Twenty flights and one body that is none, ten of them archived; and something else."""
    root = tmp_path_factory.mktemp("typed")
    writer = Writer(root / "data")
    bodies = [json.dumps({**BODY, "flight": BODY["flight"] + i}).encode() for i in range(20)]  # type: ignore[operator]
    for number, body in enumerate([*bodies, b"late"]):
        writer.write("flights", [Message("/topic/flights.JFK", body, b"", START_NS + number)])
    writer.write("other", [Message("/topic/other", b"5")])
    writer.close()
    rules = """destinations:
  - {{match: /topic/flights.>, schema: {root}/trip.json}}
  - {{match: /topic/other, schema: {root}/number.json}}"""
    register_rules(root, writer.root, rules, trip=FLIGHT, number={"type": "number"})
    archive(root / "archive", writer.root, {"flights": 10})
    return writer.root, str(root / "archive")


def test_a_rule_with_a_schema_has_a_struct_column(spark: Any, store: tuple[str, str]) -> None:
    df = table(spark, store[0], destination="/topic/flights.JFK")
    assert df.columns == [*SCHEMA.names, "trip", "rejected"]
    assert df.select("trip.*").agg({"dep_delay": "sum", "flight": "max"}).first().asDict() == {
        "sum(dep_delay)": 40, "max(flight)": (1 << 60) + 20,
    }  # fmt: skip
    (bad,) = collect(df.where("trip IS NULL").select("offset", "rejected"))
    assert bad["offset"] == 20 and "malformed" in bad["rejected"]
    assert table(spark, store[0], columns=["trip", "offset"]).columns == ["trip", "offset"]


def test_fields_of_a_schema_that_is_given_are_columns_of_the_whole_history(spark: Any, store: tuple[str, str]) -> None:
    df = table(spark, *store, destination="/topic/flights.JFK", view="flights", schema=FLIGHT, typed=False)
    assert df.columns == [*SCHEMA.names, "carrier", "dep_delay", "flight", "body_size", "scheduled", CORRUPT]
    told = {each.name: each.dataType.simpleString() for each in df.schema}
    assert (told["carrier"], told["dep_delay"], told["flight"]) == ("string", "int", "bigint")
    assert (told["scheduled"], told["body_size"], told[CORRUPT]) == ("timestamp", "double", "string")
    assert df.schema["carrier"].metadata == {"comment": "two letters"}
    (row,) = spark.sql(
        "SELECT carrier, sum(dep_delay), max(flight), count(*) FROM flights WHERE _corrupt_record IS NULL GROUP BY 1"
    ).collect()
    assert tuple(row) == ("UA", 40, (1 << 60) + 20, 20)
    (bad,) = collect(df.where(f"{CORRUPT} IS NOT NULL"))
    assert (bad[CORRUPT], bad["body"], bad["carrier"], bad["offset"]) == ("late", b"late", None, 20)


def test_columns_of_both_kinds_can_be_named(spark: Any, store: tuple[str, str]) -> None:
    names = ["scheduled", "offset", "dep_delay"]
    df = table(spark, *store, destination="/topic/flights.*", columns=names, schema=FLIGHT)
    assert df.columns == ["scheduled", "offset", "dep_delay"]
    first = min(collect(df), key=lambda row: row["offset"])
    assert first == {"scheduled": datetime(2013, 1, 1, 5, 15, tzinfo=UTC), "offset": 0, "dep_delay": 2}
    plan = df._jdf.queryExecution().executedPlan().toString()
    assert "headers" not in plan and "message_id" not in plan


def test_raw_bodies_have_no_fields(spark: Any, store: tuple[str, str]) -> None:
    assert table(spark, *store, typed=False).columns == SCHEMA.names


def test_a_schema_at_the_root_is_not_looked_for_elsewhere() -> None:
    with pytest.raises(ConfigError, match="^/nowhere-at-all.json: expected a JSON Schema, and there is no such file"):
        tables._given("/nowhere-at-all.json")


def test_a_schema_can_be_given_in_every_way(
    spark: Any, store: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flight.json"
    path.write_text(json.dumps(FLIGHT))
    struct = StructType.fromDDL("carrier STRING, dep_delay INT")
    kept = next(Path(store[0], "schemas").glob("*flights*@1.json"))
    for schema in (path, str(kept), FLIGHT, struct, "carrier STRING, dep_delay INT"):
        df = table(spark, *store, partition="flights", schema=schema)
        assert df.schema["carrier"].dataType.simpleString() == "string"
        assert df.schema["dep_delay"].dataType.simpleString() == "int"
    monkeypatch.chdir(tmp_path)
    for near in ("flight.json", "./flight.json"):
        assert table(spark, *store, schema=near).schema["carrier"].dataType.simpleString() == "string"
    assert table(spark, None, store[1], schema="carrier STRING").where("carrier = 'UA'").count() == 10


@pytest.mark.parametrize(
    "given, told",
    [
        ({"schema": "nothing.json"}, "there is no such file"),
        ({"schema": "carrier ; STRING"}, "expected the path of a JSON Schema"),
        ({"schema": {"type": "array"}}, "expected the JSON Schema of objects"),
        ({"schema": FLIGHT, "columns": ["carier"]}, "did you mean carrier"),
        ({"columns": ["tripp"]}, "did you mean trip"),
    ],
)
def test_contradictory_options_are_refused_with_the_reason(
    spark: Any, store: tuple[str, str], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        table(spark, *store, **given)


def test_places_have_the_names_that_each_side_knows() -> None:
    assert hadoop_uri("/srv/a b") == "file:///srv/a b" and hadoop_uri("file:/srv/a") == "file:///srv/a"
    assert hadoop_uri("file:///a%20b") == f"file://{local_path('file:///a%20b')}" == "file:///a b"
    assert hadoop_uri("s3://key:secret@bucket/a/b?region=x") == "s3a://bucket/a/b"
    assert hadoop_uri("s3://bucket/a") == "s3a://bucket/a" == hadoop_uri("s3a://bucket/a")
    assert arrow_uri("s3a://bucket/a") == "s3://bucket/a" and arrow_uri("/srv/a") == "/srv/a"
    assert hadoop_uri("hdfs://name:8020/a") == "hdfs://name:8020/a" == arrow_uri("hdfs://name:8020/a")
    assert hadoop_uri("gcs://b/a") == "gs://b/a" and hadoop_uri("az://c@d/a") == "abfs://c@d/a"


def test_the_documented_program_runs(
    spark: Any, store: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text("utf-8")
    section = text[text.index("## One table over both") :].split("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(program.replace("./data", store[0]).replace("./archive", store[1]), {})
    assert "|/topic/flights.JFK|21 " in capsys.readouterr().out
