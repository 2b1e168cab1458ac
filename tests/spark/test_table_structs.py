"""``table`` over an archive and a log whose struct columns differ, since the schema has changed in between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from radiator.errors import ConfigError
from radiator.spark import read, table
from tests.archive.stores import SEGMENT_BYTES
from tests.archive.test_typed import FLIGHT, GATE, RULES, bodies, go
from tests.spark.stores import Writer, register_rules

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_archive_and_log_are_one_table_with_all_fields_of_both(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", SEGMENT_BYTES)
    archive = os.fspath(tmp_path / "archive")
    writer.write("p", bodies(0, 300), per_batch=20)
    register_rules(tmp_path, writer.root, RULES, flight=FLIGHT, gate=GATE)
    end = go(tmp_path).records
    live = read(spark, writer.root, columns=["offset", "flight", "gate", "rejected"])
    both = table(spark, writer.root, archive, columns=["offset", "flight", "gate", "rejected"])
    assert both.schema["flight"].dataType.simpleString() == live.schema["flight"].dataType.simpleString()
    assert sorted(both.collect()) == sorted(live.collect())
    leg = {"properties": {"via": {"type": "integer"}}}
    grown = {**FLIGHT, "properties": {"n": {"type": "integer"}, "leg": {"type": "array", "items": leg}}}
    only_flights = RULES.partition("  - {{match: /topic/gates")[0]
    register_rules(tmp_path, writer.root, only_flights, flight=grown)
    df = table(spark, writer.root, archive)
    assert df.schema["flight"].dataType.simpleString() == (
        "struct<n:bigint,leg:array<struct<to:string,via:bigint>>,at:timestamp>"
    )
    rows = {row.offset: row for row in df.select("offset", "flight", "gate", "rejected").collect()}
    assert len(rows) == 300 and end < 290
    old, new = rows[1].flight, rows[291].flight
    assert old.leg[0].asDict() == {"to": "JFK", "via": None} and old.at is not None
    assert new.leg[0].asDict() == {"to": None, "via": 291} and new.at is None
    assert rows[6].gate.door == "B6" and rows[296].gate is None and rows[296].rejected is None
    rejects = {offset for offset, row in rows.items() if row.rejected is not None}
    assert rejects == {i for i in range(300) if i % 10 == 0 or (i % 10 == 5 and i < end)}
    log = table(spark, writer.root, columns=["flight"])
    assert log.schema["flight"].dataType.simpleString() == "struct<n:bigint,leg:array<struct<via:bigint>>>"
    assert table(spark, None, archive, columns=["gate"]).where("gate.door = 'B6'").count() == 1
    changed = {**FLIGHT, "properties": {"n": {"type": "string"}}}
    register_rules(tmp_path, writer.root, only_flights, flight=changed)
    with pytest.raises(ConfigError, match=r"flight.n: .*int64.*string.*schema_column"):
        table(spark, writer.root, archive)
    assert table(spark, writer.root, archive, typed=False).count() == 300
    writer.close()
