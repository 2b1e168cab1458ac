"""docs/spark.md: its programs run, and its tables are the code's."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from radiator.client import connect
from radiator.columns.delivery_records import FINAL, RETURNED
from radiator.spark import read, read_stream, register
from radiator.spark.jobs import JOBS
from radiator.spark.options import OPTIONS, parse
from radiator.spark.schema import DELIVERIES, SCHEMA
from radiator.spark.sections import SECTIONS
from radiator.spark.sections.options import FLAGS
from radiator.spark.sink_options import WRITE_OPTIONS
from radiator.spark.sink_rows import ACCEPTED, CARRIED_BY_THE_BROKER
from tests.running import BrokerProcess
from tests.spark.stores import START_NS, Message, Writer, register_rules

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

ROOT = Path(__file__).parents[2]
README, TEXT = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/spark.md"))
WRITING = TEXT.partition("\n## Writing\n")[2].partition("\n## ")[0]
KAFKA = TEXT.partition("\n### If you come from")[2].partition("\n## ")[0]
OF_DELIVERIES = TEXT.partition("\n## Deliveries\n")[2].partition("\n## ")[0]
OTHERS = TEXT.replace(WRITING, "").replace(KAFKA, "").replace(OF_DELIVERIES, "")
NAMES = set(re.findall(r"^\| `(\w+)[`(]", OTHERS, re.MULTILINE))


def test_every_option_column_and_job_is_documented_and_nothing_else() -> None:
    helpers = {"json_column", "absent"}
    sections = {name for name in SECTIONS if "-" not in name}
    assert {each.name for each in OPTIONS} | {each.name for each in SCHEMA} | set(JOBS) | helpers | sections == NAMES


def test_documented_defaults_of_options_are_the_defaults() -> None:
    reading = TEXT.partition("\n## Options\n")[2]
    for part, options in ((reading, OPTIONS), (WRITING, WRITE_OPTIONS)):
        for each in options:
            told = re.findall(rf"^\| `{each.name}` \| ([^|]+) \|", part, re.MULTILINE)[0]
            assert told.replace("`", "").startswith(each.default), each.name
    given = {"path": "x"}
    assert parse({**given, "min_partitions": "1", "rows_per_batch": "16384", "pushdown": "false"}) == parse(given)
    assert parse({**given, "fail_on_data_loss": "true", "ending_offsets": "latest"}) == parse(given)


def test_every_option_and_column_of_writing_is_documented_and_nothing_else() -> None:
    options, columns = (re.findall(r"^\| (`[^|]*) \|", half, re.MULTILINE) for half in WRITING.split("| column |"))
    assert [name.strip("`") for name in options] == [each.name for each in WRITE_OPTIONS]
    named = {name for names in columns for name in re.findall(r"`(\w+)`", names)}
    assert named == {each.name for each in ACCEPTED}
    for each in WRITE_OPTIONS:
        if each.default.isdigit() or each.default[:-1].isdigit():
            assert f"| `{each.name}` | {each.default} |" in WRITING
    assert all(f"`{name}`" in WRITING for name in CARRIED_BY_THE_BROKER)


def test_the_table_of_sections_is_the_one_that_the_code_goes_by() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+\?) \|(.*)\|$", TEXT, re.MULTILINE)
    told = [
        (name, entry.question, ", ".join(f"`{FLAGS[each]}`" for each in entry.takes))
        for name, entry in SECTIONS.items()
    ]
    assert [(name, question, takes.strip()) for name, question, takes in rows] == told


def test_documented_types_are_the_types() -> None:
    for column in SCHEMA:
        told = re.findall(rf"^\| `{column.name}` \| ([\w ]+)", TEXT, re.MULTILINE)[0]  # options come later
        named = {"bigint": "long", "map<string,string>": "map of string to string"}
        assert told.strip() == named.get(column.dataType.simpleString(), column.dataType.simpleString())
        assert (f"`{column.name}` | {told}, may be null" in TEXT) == column.nullable


def test_the_columns_and_outcomes_of_deliveries_are_documented() -> None:
    columns, outcomes = (part.partition("\n\n")[0] for part in OF_DELIVERIES.split("\n|---|---|")[1:])
    told = re.findall(r"^\| `(\w+)` \| (\w+) \|", columns, re.MULTILINE)
    named = {"bigint": "long", "int": "integer"}
    types = [(each.name, each.dataType.simpleString()) for each in DELIVERIES]
    assert told == [(name, named.get(kind, kind)) for name, kind in types]
    assert set(re.findall(r"`(\w+)`", outcomes)) == {*FINAL, *RETURNED}


def test_quoted_errors_of_spark_are_its_errors(spark: Any, writer: Writer, tmp_path: Path) -> None:
    writer.write("/topic/a", [Message("/topic/a", b"x")])
    session, options = spark.newSession(), {"url": "stomp://localhost:1", "checkpointLocation": str(tmp_path / "c")}
    rows = read(spark, writer.root, columns=["destination", "body"])
    stream = read_stream(spark, writer.root, columns=["destination", "body"], startingOffsets="earliest")
    counts = stream.groupBy("destination").agg(F.count("*").cast("string").alias("body"))
    attempts: list[tuple[str, Callable[[], Any]]] = [
        ("[DATA_SOURCE_NOT_FOUND]", lambda: session.read.format("radiator").load(writer.root)),
        ("[DATA_SOURCE_NOT_EXIST]", lambda: session.range(1).write.format("radiator").mode("append").save()),
        ('the "ErrorIfExists" mode', lambda: rows.write.format("radiator").option("url", "stomp://x").save()),
        ("'path' is not specified", lambda: rows.write.save()),
        ("'path' is not specified", lambda: stream.writeStream.start()),
        (
            "checkpointLocation must be",
            lambda: stream.writeStream.format("radiator").option("url", "stomp://x").start(),
        ),
        (
            "does not support Update mode",
            lambda: (
                counts.writeStream.outputMode("update")
                .format("radiator")
                .options(**options)
                .start()
                .processAllAvailable()
            ),
        ),
        ("[UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY]", lambda: spark.sql(f"SELECT * FROM radiator.`{writer.root}`")),
    ]
    table = TEXT.partition("| Spark's error |")[2].partition("\n\n")[0]
    for words, attempt in attempts:
        assert words in table
        with pytest.raises(Exception, match=re.escape(words)):
            attempt()


def test_the_program_of_the_readme_runs(spark: Any, writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    writer.write("rooms", [Message("/topic/rooms.kitchen", b"x"), Message("/topic/hall", b"x")])
    (program,) = re.findall(r"```python\n(from radiator.spark .*?)```", README, re.DOTALL)
    exec(program.replace("./data", writer.root), {})
    assert "|/topic/rooms.kitchen|1    |" in capsys.readouterr().out


def test_the_program_beside_kafkas_has_its_columns_with_their_types(spark: Any, writer: Writer) -> None:
    writer.write("/topic/flights", [Message("/topic/flights", b"x", b"partition-key:k")])
    block = re.findall(r"^    register\(spark\).*?\n\n", TEXT, re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {"spark": spark, "register": register}
    exec(textwrap.dedent(block).replace("/srv/radiator/data", writer.root), names)
    assert names["df"].isStreaming
    assert [each.simpleString() for each in names["df"].schema] == ["key:string", "value:string", "timestamp:timestamp"]
    query = names["df"].writeStream.format("memory").queryName("beside").trigger(availableNow=True).start()
    query.awaitTermination()
    assert [(row.key, row.value) for row in spark.table("beside").collect()] == [("k", "x")]


def test_the_programs_run_one_after_the_other(
    spark: Any, writer: Writer, broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"carrier": "UA", "dep_delay": 12.5}'
    flights = [
        Message("/topic/flights.JFK", body, b"tag-carrier:UA", START_NS + i, START_NS, START_NS) for i in range(1, 30)
    ]
    writer.write("/topic/flights.JFK", flights)
    fields = {"properties": {"carrier": {"type": "string"}, "dep_delay": {"type": "number"}}}
    register_rules(
        tmp_path, writer.root, "destinations: [{{match: /topic/>, schema: {root}/flight.json}}]", flight=fields
    )
    names: dict[str, Any] = {}
    programs = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(programs) >= 5
    here = {"./data": writer.root, "localhost:61613": broker.address, '"./': f'"{tmp_path}/'}
    for program in programs:
        for told, meant in here.items():
            program = program.replace(told, meant)
        exec(program, names)  # get_session() finds the session of the tests
    shown = capsys.readouterr().out
    assert "%2Ftopic%2Fflig" in shown  # the look-up by message-id
    assert "12.5" in shown
    assert spark.read.parquet(f"{tmp_path}/flights").count() == 29  # what the stream has written
    assert names["hours"][0]["messages"] == 29
    assert "How long it took" in names["html"]
    with connect(broker.address) as connection:
        for topic, bodies in (("united", 29 * [body]), ("carriers", 29 * [b"UA"])):
            found = connection.subscribe(f"/topic/{topic}", start_position="first", stop_position="end")
            assert [each.body for each in found] == bodies
        (window,) = connection.subscribe("/topic/ops.traffic", start_position="first", stop_position="end")
        assert window.json()["messages"] == 29
