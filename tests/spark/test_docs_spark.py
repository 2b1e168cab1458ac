"""docs/spark.md: its programs run, and its tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from radiator.spark.jobs import JOBS
from radiator.spark.options import OPTIONS
from radiator.spark.schema import SCHEMA
from radiator.spark.sheets import SHEETS
from radiator.spark.sheets.options import FLAGS
from tests.spark.stores import START_NS, Message, Writer

pytestmark = pytest.mark.spark

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")
NAMES = set(re.findall(r"^\| `(\w+)[`(]", TEXT, re.MULTILINE))


def test_every_option_column_and_job_is_documented_and_nothing_else() -> None:
    helpers = {"json_column", "absent"}
    sheets = {name for name in SHEETS if "-" not in name}
    assert {each.name for each in OPTIONS} | {each.name for each in SCHEMA} | set(JOBS) | helpers | sheets == NAMES


def test_the_table_of_sheets_is_the_one_that_the_code_goes_by() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+\?) \|(.*)\|$", TEXT, re.MULTILINE)
    told = [
        (name, entry.question, ", ".join(f"`{FLAGS[each]}`" for each in entry.takes)) for name, entry in SHEETS.items()
    ]
    assert [(name, question, takes.strip()) for name, question, takes in rows] == told


def test_documented_types_are_the_types() -> None:
    for column in SCHEMA:
        told = re.findall(rf"^\| `{column.name}` \| ([\w ]+)", TEXT, re.MULTILINE)[0]  # options come later
        named = {"bigint": "long", "map<string,string>": "map of string to string"}
        assert told.strip() == named.get(column.dataType.simpleString(), column.dataType.simpleString())
        assert (f"`{column.name}` | {told}, may be null" in TEXT) == column.nullable


def test_the_programs_run_one_after_the_other(
    spark: Any, writer: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"carrier": "UA", "dep_delay": 12.5}'
    flights = [Message("/topic/flights.JFK", body, b"tag-a:b", START_NS + i, START_NS, START_NS) for i in range(1, 30)]
    writer.write("/topic/flights.JFK", flights)
    names: dict[str, Any] = {}
    programs = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(programs) >= 5
    for program in programs:
        for ours, there in (("./data", writer.root), ("./flights", f"{tmp_path}/f"), ("./checkpoint", f"{tmp_path}/c")):
            program = program.replace(ours, there)
        exec(program, names)  # get_session() finds the session of the tests
    shown = capsys.readouterr().out
    assert "%2Ftopic%2Fflig" in shown  # the look-up by message-id
    assert "12.5" in shown
    assert spark.read.parquet(f"{tmp_path}/f").count() == 29  # what the stream has written
    assert names["hours"][0]["messages"] == 29
    assert "How long it took" in names["html"]
