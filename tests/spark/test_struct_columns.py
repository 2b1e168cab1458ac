"""A rule with a schema gives a struct column beside the raw body, in batches and in streams of the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from radiator.decoder import decoder
from radiator.errors import ConfigError
from radiator.spark import collect, read, read_stream, sink_options
from radiator.spark.schema import SCHEMA
from radiator.spark.sink_rows import Rows
from tests.spark.stores import START_NS, Message, Writer, register_rules

pytestmark = pytest.mark.spark

FLIGHT = {
    "title": "Flight",
    "properties": {
        "carrier": {"type": "string", "description": "two letters"},
        "dep_delay": {"type": "integer", "minimum": -1440, "maximum": 10_000},
        "route": {"properties": {"from": {"type": "string"}, "stops": {"type": "array", "items": {"type": "integer"}}}},
        "scheduled": {"type": "string", "format": "date-time"},
    },
}
GATE = {
    "properties": {
        "gate": {"type": "string"},
        "seats": {"type": "object", "additionalProperties": {"type": ["string", "array"]}},
        "codes": {"type": "array", "items": {"type": "integer"}},
    }
}
RULES = """
destinations:
  - {{match: /topic/flights.raw}}
  - {{match: /topic/flights.>, schema: {root}/flights.json}}
  - {{match: /topic/more-flights, schema: {root}/flights.json}}
  - {{match: /topic/gates, schema: {root}/gate.json, schema_column: door}}
  - {{match: /topic/packed, schema: {root}/gate.json, schema_column: packed,
      decoder: "tests.spark.test_struct_columns:unpacked"}}
"""


@decoder
def unpacked(body: bytes, headers: dict[str, str]) -> Any:
    return {"gate": body.decode("ascii"), "seats": {headers["row"]: len(body)}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("structs")
    writer = Writer(root / "data")
    fits = {"carrier": "UA", "dep_delay": 2.0, "route": {"from": "JFK", "stops": [1, None]}, "more": 1}
    bodies = {
        "/topic/flights.JFK": [fits, {"scheduled": "2013-01-01T05:15:00+01:00"}, {"dep_delay": "late"}, []],
        "/topic/flights.raw": [{"carrier": "XX"}],
        "/topic/more-flights": [{"carrier": "DL"}],
        "/topic/gates": [{"gate": "B7", "seats": {"1": "A", "2": [1, 2]}, "codes": [5, 5]}],
    }
    for number, (destination, documents) in enumerate(bodies.items()):
        messages = [Message(destination, json.dumps(each).encode(), b"", START_NS + number) for each in documents]
        writer.write("flights", messages)
    writer.write("packed", [Message("/topic/packed", b"C3", b"row:9"), Message("/topic/packed", b"\xff", b"row:9")])
    writer.write("packed", [Message("/topic/packed", b"C4")])
    writer.close()
    register_rules(root, writer.root, RULES, flights=FLIGHT, gate=GATE)
    return writer.root


def test_records_are_in_the_column_of_their_rule_or_rejected_with_a_reason(spark: Any, store: str) -> None:
    df = read(spark, store)
    assert df.columns == [*SCHEMA.names, "flight", "door", "packed", "rejected"]
    assert df.schema["flight"].dataType["carrier"].metadata == {"comment": "two letters"}
    assert df.select("flight.*").dtypes[1] == ("dep_delay", "bigint")
    rows = {(row["partition"], row["offset"]): row for row in collect(df)}
    flights = [rows["flights", offset]["flight"] for offset in range(7)]
    assert flights[0].asDict(recursive=True) == {
        "carrier": "UA", "dep_delay": 2, "route": {"from": "JFK", "stops": [1, None]}, "scheduled": None,
    }  # fmt: skip
    assert [each is not None for each in flights] == [True, True, False, False, False, True, False]
    assert flights[5].carrier == "DL"
    reasons = [rows["flights", offset]["rejected"] for offset in range(7)]
    assert reasons[2:4] == ["Expected `int`, got `str` at `dep_delay`", "Expected `object`, got `array`"]
    assert reasons[:2] == [None, None] and reasons[4:] == [None, None, None]
    assert rows["flights", 6]["door"].asDict() == {"gate": "B7", "seats": {"1": "A", "2": "[1, 2]"}, "codes": [5, 5]}
    packed = [rows["packed", offset] for offset in range(3)]
    assert packed[0]["packed"].asDict() == {"gate": "C3", "seats": {"9": "2"}, "codes": None}
    assert "UnicodeDecodeError" in packed[1]["rejected"] and "KeyError" in packed[2]["rejected"]
    assert packed[1]["body"] == b"\xff" and packed[1]["packed"] is None


FIELDS = {
    "no struct": ("offset", "columns=[offset]"),
    "a field": ("flight.carrier", "columns=[flight[carrier]]"),
    "two fields": (
        "flight.dep_delay + 1, flight.carrier, offset",
        "columns=[offset, flight[dep_delay], flight[carrier]]",
    ),
    "a field and its struct": ("flight.carrier, flight", "columns=[flight]"),
    "a field of a field": ("flight.route.stops[0], flight.route.from", "columns=[flight[route]]"),
    "a key of a field": ("door.seats['2'], packed.gate, size", "columns=[size, door[seats], packed[gate]]"),
    "a null struct": ("flight IS NULL, rejected", "columns=[flight, rejected]"),
    "a filter on a field": ("offset FROM log WHERE flight.carrier = 'UA' --", "columns=[offset, flight[carrier]]"),
    "a count by an array": ("size(door.codes), count(*) FROM log GROUP BY 1 --", "columns=[door[codes]]"),
    "different arrays": ("DISTINCT door.codes", "columns=[door[codes]]"),
    "an aggregate": ("max(flight.dep_delay), count(door.gate)", "columns=[flight[dep_delay], door[gate]]"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_query_gets_only_the_fields_that_it_uses(spark: Any, store: str, name: str) -> None:
    query, scan = FIELDS[name]

    def found(rows: Any) -> Any:
        rows.createOrReplaceTempView("log")
        return spark.sql(f"SELECT {query} FROM log")

    pruned = found(spark.read.format("radiator").load(store))
    assert scan in pruned._jdf.queryExecution().executedPlan().toString()
    whole = found(read(spark, store).localCheckpoint())
    assert sorted(map(str, pruned.collect())) == sorted(map(str, whole.collect()))
    assert pruned.count() == whole.count()


def test_structs_come_in_several_batches_with_generated_code(spark: Any, store: str) -> None:
    df = read(spark, store, columns=["partition", "offset", "flight", "tags"], rows_per_batch=2)
    whole = sorted(map(str, df.collect()))
    before = spark.conf.get("spark.sql.codegen.wholeStage")
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    try:
        assert sorted(map(str, df.where("offset + 1 > 0").collect())) == whole
        assert sorted(map(str, df.where("length(partition) > 1").collect())) == whole
    finally:
        spark.conf.set("spark.sql.codegen.wholeStage", before)
    assert len(whole) == 10


def test_equal_fields_pass_once_where_a_query_only_counts(spark: Any, store: str) -> None:
    df = spark.read.format("radiator").load(store)
    counts = df.where("flight.dep_delay IS NULL OR flight.dep_delay < 9").groupBy("flight.carrier").count()
    plan = counts._jdf.queryExecution().executedPlan().toString()
    assert "columns=[flight[dep_delay], flight[carrier], rows]" in plan
    assert sorted(map(tuple, counts.collect()), key=str) == [("DL", 1), ("UA", 1), (None, 8)]


@pytest.mark.thorough
def test_a_stream_reads_the_same_columns_as_a_batch(spark: Any, store: str, tmp_path: Path) -> None:
    names = ["offset", "flight", "rejected"]
    stream = read_stream(spark, store, columns=names, destination="/topic/flights.JFK", starting_offsets="earliest")
    query = stream.writeStream.format("memory").queryName("structs").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)
    batch = read(spark, store, columns=names, destination="/topic/flights.JFK")
    assert stream.schema == batch.schema
    assert sorted(spark.table("structs").collect()) == sorted(batch.collect())


@pytest.mark.thorough
def test_a_read_may_name_some_fields_of_a_struct_and_no_others(spark: Any, store: str) -> None:
    part = spark.read.format("radiator").schema("flight STRUCT<route: STRUCT<stops: ARRAY<BIGINT>>>, offset BIGINT")
    found = part.option("destination", "/topic/flights.JFK").load(store).orderBy("offset").collect()
    assert [row.flight and row.flight.asDict(recursive=True) for row in found] == [
        {"route": {"stops": [1, None]}}, {"route": None}, None, None,
    ]  # fmt: skip
    for schema, wanted in [
        ("flight STRUCT<carier: STRING>", "column flight has no field carier.*did you mean carrier"),
        ("flight STRUCT<dep_delay: INT>", "column flight.dep_delay: expected type bigint, got int"),
        ("flight STRING", "column flight: expected type struct"),
        ("fligth STRING", "column 'fligth' is not one of.*did you mean flight"),
    ]:
        with pytest.raises(PySparkException, match=wanted):
            spark.read.format("radiator").schema(schema).load(store).collect()


def test_what_was_read_can_be_written_without_its_structs(spark: Any) -> None:
    schema = StructType.fromDDL("destination STRING, body BINARY, flight STRUCT<a: INT>, rejected STRING")
    options = sink_options.parse({"url": "stomp://localhost"})
    assert Rows(schema, options)
    with pytest.raises(ConfigError, match="column 'flight' cannot be written"):
        Rows(StructType(schema.fields[:3]), options)


@pytest.mark.thorough
def test_the_documented_lines_run(spark: Any, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8").partition("## Typed columns")[2]
    program = text.partition("```python\n")[2].partition("```")[0]
    exec(program.replace("./data", store).replace("> 60", "> 1"), {"read": read, "spark": spark})
    shown = capsys.readouterr().out
    assert "|     UA|    1|" in shown and "|Expected `object`, got `array`          |1    |" in shown


@pytest.mark.thorough
def test_raw_reads_have_the_columns_of_the_log_alone(spark: Any, store: str) -> None:
    assert read(spark, store, typed=False).columns == SCHEMA.names
