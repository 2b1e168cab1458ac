"""``table`` over logs with holes made on purpose, over files that go under a query, and with the schema of a rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from radiator.archive import load, open_files
from radiator.cli.main import run as run_command
from radiator.client import connect
from radiator.errors import StorageError
from radiator.spark import read, table
from tests.running import BrokerProcess
from tests.spark.archives import archive
from tests.spark.stores import Writer, numbered
from tests.spark.test_table import offsets
from tests.storage.rewriting import Keep, everything, rewritten

pytestmark = pytest.mark.spark


def rewrite(path: Path, keep: Keep) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(rewritten(path.read_bytes(), int(path.stem), keep, 3, 20))
    new.rename(path)


def test_what_was_removed_on_purpose_is_no_loss_on_either_side(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", segment_bytes=4096)
    writer.write("p", numbered("/topic/a", 400), per_batch=10)
    writer.close()
    segments = sorted(Path(writer.root, "partitions", "p").glob("*.rlog"))
    for path in segments[:2]:
        rewrite(path, lambda offset: offset % 3 == 0)
    left = offsets(read(spark, writer.root))["p"]
    assert len(left) < 400
    archive(tmp_path / "archive", writer.root, {"p": int(segments[1].stem)})
    assert offsets(table(spark, writer.root, tmp_path / "archive"))["p"] == left
    for path in segments[2:-1]:  # not archived yet
        rewrite(path, everything)
    assert offsets(table(spark, writer.root, tmp_path / "archive"))["p"] == left
    archive(tmp_path / "archive", writer.root, {"p": int(segments[-1].stem)})
    rewrite(segments[2], lambda offset: offset % 5 == 0)  # the archive has them, for ever
    assert offsets(table(spark, writer.root, tmp_path / "archive"))["p"] == left
    assert len(offsets(read(spark, writer.root))["p"]) < len(left)


def test_a_query_goes_on_while_files_are_merged_and_ends_when_they_are_removed_whatever_the_session_says(
    spark: Any, tmp_path: Path, writer: Writer
) -> None:
    writer.write("p", numbered("/topic/a", 100))
    for end in (20, 40):
        archive(tmp_path / "archive", writer.root, {"p": end})
    df = table(spark, writer.root, tmp_path / "archive")
    assert df.count() == 100
    command = ["archive", "--data", str(writer.root), "--to", str(tmp_path / "archive"), "--compact-only"]
    assert run_command(command) == 0
    assert len(load(open_files(tmp_path / "archive")).removed) == 2
    assert df.count() == 100
    assert offsets(table(spark, None, tmp_path / "archive", as_of="p@19"))["p"] == list(range(20))
    assert run_command([*command, "--keep-merged", "0s"]) == 0
    names = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    try:
        for name in names:
            spark.conf.set(name, "true")
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            df.select("offset").collect()
    finally:
        for name in names:
            spark.conf.unset(name)
    assert offsets(table(spark, writer.root, tmp_path / "archive"))["p"] == list(range(100))
    with pytest.raises(StorageError, match="version 0 (was|were) merged and removed"):
        table(spark, None, tmp_path / "archive", as_of=0)


def test_the_schema_of_a_rule_gives_the_columns_of_its_destinations(
    spark: Any, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    pytest.importorskip("jsonschema_rs")
    delay = {"type": ["integer", "null"], "minimum": -1440, "maximum": 14_400}
    schema = {"type": "object", "properties": {"carrier": {"type": "string"}, "dep_delay": delay}}
    (tmp_path / "flight.json").write_text(json.dumps(schema))
    broker = start_broker(f"destinations: [{{match: /topic/flights.>, schema: '{tmp_path}/flight.json'}}]")
    with connect(broker.address) as connection:
        for delay_told in ("3", "4.0", "null"):
            connection.send("/topic/flights.JFK", f'{{"carrier": "UA", "dep_delay": {delay_told}}}')
    df = table(spark, broker.data, tmp_path / "archive", destination="/topic/flights.JFK")
    assert df.schema["flight"].dataType.simpleString() == "struct<carrier:string,dep_delay:bigint>"
    rows = df.orderBy("offset").select("flight.carrier", "flight.dep_delay", "rejected").collect()
    assert [tuple(row) for row in rows] == [("UA", 3, None), ("UA", 4, None), ("UA", None, None)]
