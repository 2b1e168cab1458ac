"""Three versions of a schema in one history: every reader has null where a file or a schema lacks a field."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import pytest
from pyspark.errors import PySparkException

from radiator.archive import iceberg
from radiator.archive.manifest import load
from radiator.archive.opening import open_files
from radiator.archive.run import run
from radiator.errors import ConfigError
from radiator.spark import read, read_stream, table
from tests.archive.killing import EAGER
from tests.archive.stores import SEGMENT_BYTES, sealed_ends
from tests.spark.stores import START_NS, Message, Writer, register_rules

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

RULES = "destinations: [{{match: /topic/flights.>, schema: {root}/flight.json, schema_changes: any}}]"
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
VERSIONS: list[dict[str, Any]] = [
    {"n": WHOLE, "route": {"properties": {"from": TEXT}}, "gate": TEXT},
    {"n": WHOLE, "route": {"properties": {"from": TEXT}}, "gate": TEXT, "carrier": TEXT},  # a field added
    {"n": WHOLE, "route": {"properties": {"from": TEXT, "to": TEXT}}, "carrier": TEXT},  # nested added, gate removed
]
CHANGED = {**VERSIONS[-1], "n": {"type": "number"}}
EACH = 300  # messages of a version
ARCHIVED = {  # fields with values, by the version that was in force when a record was archived
    0: lambda i: {"n": i, "route": {"from": "EWR", "to": None}, "gate": "B7", "carrier": None},
    1: lambda i: {"n": i, "route": {"from": "EWR", "to": None}, "gate": "B7", "carrier": "UA"},
    2: lambda i: {"n": i, "route": {"from": "EWR", "to": "JFK"}, "gate": None, "carrier": "UA"},
}  # fmt: skip
LIVE = {"n", "route", "carrier"}  # the fields of the newest version, which the live log has for all records


def register(root: Path, data: str, fields: dict[str, Any]) -> None:
    register_rules(root, data, RULES, flight={"title": "Flight", "properties": fields})


class Made(NamedTuple):
    """A store, its archive, and the version of the schema that each record was archived with; None: only in the log."""

    root: Path
    data: str
    archive: str
    version: dict[int, int | None]

    def expected(self, of_log: Callable[[int], Any]) -> dict[int, Any]:
        """The struct of each offset; None if the body does not fit."""
        found = {}
        for offset, version in self.version.items():
            struct = of_log(offset) if version is None else ARCHIVED[version](offset)
            found[offset] = None if offset % 10 == 0 else struct
        return found

    def archived(self) -> dict[int, Any]:
        found = self.expected(lambda offset: ...)
        return {offset: struct for offset, struct in found.items() if self.version[offset] is not None}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("evolution")
    writer = Writer(root / "data", SEGMENT_BYTES)
    version: dict[int, int | None] = {}
    records = typed = rejected = 0
    for number, fields in enumerate(VERSIONS):
        register(root, writer.root, fields)
        body = {"route": {"from": "EWR", "to": "JFK"}, "gate": "B7", "carrier": "UA", "pad": "x" * 300}
        numbers = range(number * EACH, (number + 1) * EACH)
        bodies = [json.dumps({"n": i if i % 10 else "many", **body}).encode() for i in numbers]
        messages = [
            Message("/topic/flights.JFK", body, b"", START_NS + i) for i, body in zip(numbers, bodies, strict=True)
        ]
        writer.write("p", messages, per_batch=20)
        out = run(writer.root, open_files(root / "archive"), replace(EAGER, merge=False))
        records, typed, rejected = records + out.records, typed + out.typed, rejected + out.rejected
        end = sealed_ends(writer.root)["p"]
        version |= {offset: number for offset in range(end) if version.get(offset) is None}
        version |= dict.fromkeys(range(end, (number + 1) * EACH))
        iceberg.register(open_files(root / "archive"), f"sqlite:///{root}/catalog.db")
    writer.close()
    assert set(version.values()) == {0, 1, 2, None} and len(version) == 3 * EACH
    assert records == typed + rejected == sum(each is not None for each in version.values())
    assert rejected == sum(offset % 10 == 0 for offset, each in version.items() if each is not None)
    return Made(root, writer.root, os.fspath(root / "archive"), version)


def newest(offset: int) -> dict[str, Any]:
    return {name: value for name, value in ARCHIVED[2](offset).items() if name in LIVE}


def rows_of(df: Any) -> dict[int, Any]:
    rows = df.select("offset", "flight", "rejected").collect()
    assert all((row.flight is None) == (row.rejected is not None) for row in rows)
    found = {row.offset: row.flight and row.flight.asDict(recursive=True) for row in rows}
    assert len(found) == len(rows)
    return found


def test_table_has_the_fields_of_all_versions(spark: Any, made: Made) -> None:
    df = table(spark, made.data, made.archive)
    assert rows_of(df) == made.expected(ARCHIVED[2])
    assert rows_of(table(spark, None, made.archive)) == made.archived()
    assert df.where("flight.route.to = 'JFK'").count() == sum(
        struct is not None and struct["route"]["to"] == "JFK" for struct in made.expected(ARCHIVED[2]).values()
    )


def test_the_live_log_has_the_newest_version_for_all_records_in_batches_and_streams(
    spark: Any, made: Made, tmp_path: Path
) -> None:
    live = {offset: newest(offset) if offset % 10 else None for offset in made.version}
    assert rows_of(read(spark, made.data)) == live
    stream = read_stream(spark, made.data, starting_offsets="earliest")
    query = stream.writeStream.format("memory").queryName("evolved").trigger(availableNow=True)
    query.option("checkpointLocation", os.fspath(tmp_path)).start().awaitTermination(60)
    assert rows_of(spark.table("evolved")) == live


def test_other_programs_read_null_in_the_fields_that_older_files_lack(made: Made) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    catalogs = pytest.importorskip("pyiceberg.catalog")
    wanted = made.archived()

    def of(rows: list[dict[str, Any]]) -> dict[int, Any]:
        return {row["offset"]: row["flight"] for row in rows}

    delta = deltalake.DeltaTable(made.archive)
    assert of(delta.to_pyarrow_table(columns=["offset", "flight"]).to_pylist()) == wanted
    assert of(polars.read_delta(made.archive).select("offset", "flight").to_dicts()) == wanted
    dataset = delta.to_pyarrow_dataset()  # which DuckDB finds by its name
    sums = duckdb.sql("SELECT count(*), count(flight.n), count(flight.route.to), count(flight.gate) FROM dataset")
    structs = [each for each in wanted.values() if each is not None]
    assert sums.fetchall() == [
        (len(wanted), len(structs), sum(each["route"]["to"] is not None for each in structs),
         sum(each["gate"] is not None for each in structs)),
    ] and dataset is not None  # fmt: skip
    catalog = catalogs.load_catalog("radiator", uri=f"sqlite:///{made.root}/catalog.db")
    scan = catalog.load_table("radiator.archive").scan(selected_fields=("offset", "flight"))
    assert of(scan.to_arrow().to_pylist()) == wanted


def test_a_changed_type_is_refused_by_the_archive_and_its_table_and_read_in_the_log(
    spark: Any, made: Made, tmp_path: Path
) -> None:
    data, archive = os.fspath(tmp_path / "data"), os.fspath(tmp_path / "archive")
    shutil.copytree(made.data, data)
    shutil.copytree(made.archive, archive)
    before = load(open_files(archive))
    old = read(spark, data)
    register(tmp_path, data, CHANGED)
    live = {offset: {**newest(offset), "n": float(offset)} if offset % 10 else None for offset in made.version}
    assert rows_of(read(spark, data)) == live
    with pytest.raises(ConfigError, match=r"flight.n: .*int64.*double.*schema_column"):
        table(spark, data, archive)
    with pytest.raises(PySparkException, match=r"column flight.n: expected type double, got bigint"):
        old.collect()  # of a query that was made before
    assert rows_of(table(spark, None, archive)) == made.archived()
    writer = Writer(tmp_path / "data", SEGMENT_BYTES)
    body = json.dumps({"n": 0.5, "pad": "x" * 300}).encode()
    writer.write("p", [Message("/topic/flights.JFK", body, b"", START_NS + 3 * EACH)] * EACH, per_batch=20)
    writer.close()
    out = run(data, open_files(archive), replace(EAGER, merge=False))
    assert "flight.n" in out.problems["p"] and out.records == 0
    assert load(open_files(archive)).ends == before.ends
