"""An archive has the struct columns of rules with a schema: records = typed + rejected, whatever the schema becomes."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from radiator.archive import iceberg, split
from radiator.archive.contents import Table
from radiator.archive.failures import partition_failure
from radiator.archive.manifest import State, load
from radiator.archive.opening import open_files
from radiator.archive.run import Options, Outcome, Watch, run
from radiator.archive.typed import struct_columns
from radiator.archive.verify import verify
from radiator.columns.files import open_store
from radiator.columns.typed import Typing, typed_columns
from radiator.errors import ConfigError, StorageError
from tests.archive.killing import EAGER, run_until
from tests.archive.stores import SEGMENT_BYTES, sealed_ends
from tests.spark.stores import START_NS, Message, Writer, register_rules

FLIGHT = {
    "title": "Flight",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 9_999},
        "leg": {"type": "array", "items": {"properties": {"to": {"type": "string"}}}},
        "at": {"type": "string", "format": "date-time"},
    },
}
RULES = """
destinations:
  - {{match: /topic/flights.>, schema: {root}/flight.json, schema_changes: any}}
  - {{match: /topic/gates.>, schema: {root}/gate.json}}
"""
GATE = {"title": "Gate", "properties": {"door": {"type": "string"}}}


def bodies(first: int, count: int) -> list[Message]:
    """Of each ten: five flights, one of which does not fit; three gates, one of which does not fit; two others."""
    flights = [
        {"n": i, "leg": [{"to": "JFK", "via": i}], "at": "2013-01-01T00:00:00Z"} for i in range(first, first + count)
    ]
    made = []
    for i, flight in enumerate(flights, first):
        place = i % 10
        if place < 5:
            topic, document = "/topic/flights.JFK", flight if place else {"n": "many"}
        elif place < 8:
            topic, document = f"/topic/gates.{i % 3}", {"door": f"B{i}"} if place > 5 else {"door": 7}
        else:
            topic, document = "/topic/other", flight
        pad = {"pad": "x" * 300}
        made.append(Message(topic, json.dumps({**document, **pad}).encode(), b"", START_NS + i))
    return made


def go(root: Path, options: Options = EAGER, watch: Watch = Watch()) -> Outcome:  # noqa: B008
    return run(str(root / "data"), open_files(root / "archive"), options, watch)


def state_of(root: Path) -> State:
    return load(open_files(root / "archive"))


def rows_of(root: Path) -> list[dict[str, Any]]:
    table = deltalake.DeltaTable(str(root / "archive")).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: row["offset"])


def added_up(root: Path) -> Counter[str]:
    """The records of each kind, by the rows as deltalake reads them; each is of one kind, and files say how many."""
    found: Counter[str] = Counter()
    for row in rows_of(root):
        structs = [name for name in ("flight", "gate") if row.get(name) is not None]
        kind = "rejected" if row["rejected"] is not None else structs[0] if structs else "other"
        assert len(structs) == (kind in structs), row
        found[kind] += 1
    files = state_of(root).files.values()
    assert sum(each.records for each in files) == found.total()
    assert sum(each.rejected or 0 for each in files) == found["rejected"]
    assert sum(each.typed or 0 for each in files) == found["flight"] + found["gate"]
    return found


@pytest.fixture
def store(tmp_path: Path) -> Writer:
    writer = Writer(tmp_path / "data", SEGMENT_BYTES)
    writer.write("p", bodies(0, 600), per_batch=20)
    return writer


def test_records_are_typed_or_rejected_and_add_up(tmp_path: Path, store: Writer) -> None:
    register_rules(tmp_path, store.root, RULES, flight=FLIGHT, gate=GATE)
    told: list[str] = []
    out = go(tmp_path, watch=Watch(report=told.append))
    end = sealed_ends(store.root)["p"]
    of = Counter(
        "flight" if 0 < i % 10 < 5 else "gate" if i % 10 in (6, 7) else "rejected" if i % 10 in (0, 5) else "other"
        for i in range(end)
    )
    assert added_up(tmp_path) == of
    assert (out.records, out.typed, out.rejected) == (end, of["flight"] + of["gate"], of["rejected"])
    assert f"{of['rejected']} of {end} bodies do not fit" in told[-1]
    first, second, *_, sixth = rows_of(tmp_path)[:6]
    assert first["rejected"] == "Expected `int`, got `str` at `n`" and first["flight"] is None and first["body"]
    assert second["flight"] == {"n": 1, "leg": [{"to": "JFK"}], "at": second["flight"]["at"]} and second["gate"] is None
    assert sixth["rejected"] == "Expected `str`, got `int` at `door`"
    assert not list(verify(open_files(tmp_path / "archive"), state_of(tmp_path), records=True))
    store.close()


def test_few_bodies_are_decoded_at_a_time_and_the_file_is_the_same(
    tmp_path: Path, store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_rules(tmp_path, store.root, RULES, flight=FLIGHT, gate=GATE)
    go(tmp_path)
    rows, counted = rows_of(tmp_path), added_up(tmp_path)
    shutil.rmtree(tmp_path / "archive")
    sizes: list[int] = []
    add = Typing.add

    def counting(typing: Typing, batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return add(typing, batch)

    monkeypatch.setattr(Typing, "add", counting)
    monkeypatch.setattr(split, "DECODED_ROWS", 7)
    go(tmp_path)
    assert rows_of(tmp_path) == rows and added_up(tmp_path) == counted
    assert max(sizes) == 7 and sum(sizes) == len(rows)
    store.close()


@pytest.mark.thorough
def test_a_new_field_is_added_older_files_read_null_and_merges_keep_what_there_is(
    tmp_path: Path, store: Writer
) -> None:
    quiet = replace(EAGER, merge=False)
    go(tmp_path, quiet)  # before any rule had a schema
    before = sealed_ends(store.root)["p"]
    assert struct_columns(state_of(tmp_path).table) == []
    register_rules(tmp_path, store.root, RULES, flight=FLIGHT, gate=GATE)
    store.write("p", bodies(600, 600), per_batch=20)
    go(tmp_path, quiet)
    middle = sealed_ends(store.root)["p"]
    leg = {"properties": {"via": {"type": "integer"}}}
    grown = {**FLIGHT, "properties": {"n": {"type": "integer"}, "leg": {"type": "array", "items": leg}}}
    register_rules(tmp_path, store.root, RULES, flight=grown)
    store.write("p", bodies(1200, 600), per_batch=20)
    go(tmp_path, quiet)
    rows = rows_of(tmp_path)
    flights = [row for row in rows if row["destination"] == "/topic/flights.JFK" and row["offset"] % 10]
    assert {row["flight"] is None for row in flights if row["offset"] < before} == {True}
    for row in flights:
        if before <= row["offset"] < middle:
            assert row["flight"]["leg"] == [{"to": "JFK", "via": None}] and row["flight"]["at"] is not None
        elif row["offset"] >= middle:
            assert row["flight"] == {"n": row["offset"], "leg": [{"to": None, "via": row["offset"]}], "at": None}
    counted = added_up(tmp_path)
    files = len(state_of(tmp_path).files)
    go(tmp_path, replace(EAGER, merge=True, archive=False))
    assert len(state_of(tmp_path).files) < files
    assert rows_of(tmp_path) == rows and added_up(tmp_path) == counted
    version = state_of(tmp_path).version
    assert go(tmp_path).version == version  # nothing is committed for columns alone
    store.close()


def test_a_changed_type_stops_the_partitions_of_its_rule_until_they_have_another_column(
    tmp_path: Path, store: Writer
) -> None:
    register_rules(tmp_path, store.root, RULES, flight=FLIGHT, gate=GATE)
    go(tmp_path)
    before = state_of(tmp_path)
    gates = [Message("/topic/gates.1", b'{"door": "B7"}' + b" " * 300, b"", START_NS) for _ in range(300)]
    store.write("p", bodies(600, 600), per_batch=20)
    store.write("q", gates, per_batch=20)
    changed = {**FLIGHT, "properties": {"n": {"type": "number"}}}
    register_rules(tmp_path, store.root, RULES, flight=changed)
    out = go(tmp_path)
    assert out.problems.keys() == {"p"}
    assert re.search(r"'p': column flight.n: .*int64.*double; .*schema_column .*flight_2", out.problems["p"])
    assert out.records == out.typed == sealed_ends(store.root)["q"] > 0
    assert state_of(tmp_path).ends["p"] == before.ends["p"]
    go(tmp_path, replace(EAGER, merge=True, archive=False))  # merging goes on
    other = RULES.replace("schema_changes: any", "schema_changes: any, schema_column: flight_2")
    register_rules(tmp_path, store.root, other, flight=changed)
    assert not go(tmp_path).problems
    assert state_of(tmp_path).ends == sealed_ends(store.root)
    rows = [row for row in rows_of(tmp_path) if row["partition"] == "p"]
    assert sum(row["flight_2"] is not None for row in rows) and sum(row["flight"] is not None for row in rows)
    assert all(row["flight"] is None or row["flight_2"] is None for row in rows)
    store.close()


@pytest.mark.parametrize(
    "damage", [None, b"{", b'{"properties": {"door": {"type": "integer"}}}'], ids=["gone", "torn", "other"]
)
def test_a_schema_that_cannot_be_read_stops_the_partitions_of_its_rule_only(
    tmp_path: Path, store: Writer, damage: bytes | None
) -> None:
    """Two rules share a column; the third case is another schema in the file of one of them."""
    both = RULES + "  - {{match: /topic/other, schema: {root}/gate.json}}\n"
    register_rules(tmp_path, store.root, both, flight=FLIGHT, gate=GATE)
    flights = [Message("/topic/flights.JFK", b'{"n": 7}' + b" " * 300, b"", START_NS) for _ in range(300)]
    store.write("q", flights, per_batch=20)
    (file,) = Path(store.root, "schemas").glob("*other@1.json")
    whole = file.read_bytes()
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    out = go(tmp_path)
    assert out.problems.keys() == {"p"}
    assert file.name in out.problems["p"] and "restore the file" in out.problems["p"]
    assert out.records == out.typed == sealed_ends(store.root)["q"] > 0
    with pytest.raises(ConfigError, match="restore the file"):  # a read of all columns says so at once
        typed_columns(open_store(store.root))
    file.write_bytes(whole)
    assert not go(tmp_path).problems
    assert added_up(tmp_path)["gate"] > 0 and state_of(tmp_path).ends == sealed_ends(store.root)
    store.close()


def test_records_wait_for_their_schema_though_it_is_the_only_one(tmp_path: Path, store: Writer) -> None:
    register_rules(
        tmp_path, store.root, "destinations: [{{match: /topic/gates.>, schema: {root}/gate.json}}]", gate=GATE
    )
    for file in Path(store.root, "schemas").glob("*@1.json"):
        file.unlink()
    store.write("q", [Message("/topic/other", b"x" * 300, b"", START_NS) for _ in range(300)], per_batch=20)
    out = go(tmp_path)
    assert out.problems.keys() == {"p"}
    assert state_of(tmp_path).ends == {"q": sealed_ends(store.root)["q"]}
    store.close()


@pytest.mark.thorough
def test_a_decoder_that_cannot_be_imported_stops_the_partition_and_says_so(tmp_path: Path, store: Writer) -> None:
    store.write("q", [Message("/topic/gates.1", b'{"door": "B7"}' + b" " * 300) for _ in range(300)], per_batch=20)
    rules = RULES.replace("schema_changes: any", "decoder: 'nowhere:x'")
    register_rules(tmp_path, store.root, rules, flight=FLIGHT, gate=GATE)
    out = go(tmp_path)
    assert out.problems.keys() == {"p"} and "nowhere" in out.problems["p"]
    assert out.records == sealed_ends(store.root)["q"] > 0
    store.close()


@pytest.mark.thorough
def test_columns_of_the_table_are_read_back_as_they_were_written(tmp_path: Path, store: Writer) -> None:
    fields = {
        "i": {"type": "integer"}, "big": {"type": "integer", "maximum": 10**30}, "x": {"type": "number"}, "any": {},
        "b": {"type": "boolean"}, "t": {"type": "string", "format": "date-time"}, "d": {"format": "date"},
        "m": {"type": "object", "additionalProperties": {"type": "array", "items": {"properties": {"y": {}}}}},
    }  # fmt: skip
    rules = "destinations: [{{match: /topic/>, schema: {root}/all.json}}]"
    register_rules(tmp_path, store.root, rules, all={"properties": fields})
    go(tmp_path)
    struct, rejected = struct_columns(state_of(tmp_path).table)
    item = pa.struct([("y", pa.string())])
    wanted = [
        ("i", pa.int64()), ("big", pa.decimal128(31)), ("x", pa.float64()), ("any", pa.string()), ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")), ("d", pa.date32()), ("m", pa.map_(pa.string(), pa.list_(item))),
    ]  # fmt: skip
    assert struct.type == pa.struct(wanted) and rejected == pa.field("rejected", pa.string())
    foreign = Table("x", json.dumps({"fields": [{"name": "z", "type": "short"}]}), {}, 0)
    with pytest.raises(StorageError, match="does not write"):
        struct_columns(foreign)
    store.close()


@pytest.mark.thorough
def test_killed_at_every_step_records_are_still_typed_or_rejected_once(tmp_path: Path, store: Writer) -> None:
    register_rules(tmp_path, store.root, RULES, flight=FLIGHT, gate=GATE)
    go(tmp_path, replace(EAGER, merge=False))
    grown = {**FLIGHT, "properties": {**FLIGHT["properties"], "pad": {"type": "string"}}}  # type: ignore[dict-item]
    register_rules(tmp_path, store.root, RULES, flight=grown)
    store.write("p", bodies(600, 300), per_batch=20)
    store.close()

    def copied(name: str) -> Path:
        for part in ("data", "archive"):
            shutil.copytree(tmp_path / part, tmp_path / name / part)
        return tmp_path / name

    whole = copied("whole")
    _, steps = run_until(None, whole / "data", whole / "archive")
    expected, rows = added_up(whole), rows_of(whole)
    for step in range(0, steps, 5):
        root = copied(str(step))
        run_until(step, root / "data", root / "archive")
        added_up(root)
        go(root)
        assert added_up(root) == expected and rows_of(root) == rows
        shutil.rmtree(root)


@pytest.mark.thorough
def test_other_readers_see_the_structs(tmp_path: Path, store: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    catalogs = pytest.importorskip("pyiceberg.catalog")
    go(tmp_path, replace(EAGER, merge=False))  # files without structs
    archive, catalog = tmp_path / "archive", f"sqlite:///{tmp_path}/catalog.db"
    iceberg.register(open_files(archive), catalog)
    register_rules(tmp_path, store.root, RULES, flight=FLIGHT, gate=GATE)
    store.write("p", bodies(600, 300), per_batch=20)
    go(tmp_path, replace(EAGER, merge=False))
    flights = added_up(tmp_path)["flight"]
    found = polars.scan_delta(str(archive)).filter(polars.col("flight").struct.field("n").is_not_null()).collect()
    assert found.height == flights
    dataset = deltalake.DeltaTable(str(archive)).to_pyarrow_dataset()  # which DuckDB finds by its name
    (row,) = duckdb.sql("SELECT count(flight.n), count(rejected), max(flight.leg[1].to) FROM dataset").fetchall()
    assert row == (flights, added_up(tmp_path)["rejected"], "JFK") and dataset is not None
    iceberg.register(open_files(archive), catalog)
    table = catalogs.load_catalog("radiator", uri=catalog).load_table("radiator.archive")
    of_iceberg = table.scan(selected_fields=("flight", "rejected", "offset")).to_arrow().sort_by("offset").to_pylist()
    assert [row["flight"] for row in of_iceberg] == [row["flight"] for row in rows_of(tmp_path)]
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text("utf-8").partition("### Typed columns")[2]
    exec(text.partition("```python\n")[2].partition("```")[0], {})
    store.close()


def test_a_decoder_that_cannot_be_imported_is_not_called_a_bug() -> None:
    text = partition_failure("flights", ConfigError("decoder bodies:flight: importing it failed"))
    assert text.startswith("partition 'flights': decoder bodies:flight: importing it failed. ")
    assert "bug" not in text
