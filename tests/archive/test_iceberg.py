"""An archive in an Iceberg table: the same rows in every version, after merges and crashes, read by other programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from radiator.archive import NoArchive, iceberg, load, open_files
from radiator.archive.files import LocalFiles
from radiator.archive.iceberg import METADATA, VERSION_KEY, Registered, register
from radiator.archive.run import run
from radiator.errors import StorageError
from tests.archive.killing import EAGER
from tests.archive.stores import SEGMENT_BYTES, Rows, archive_rows, fill, more
from tests.archive.test_typed import FLIGHT, GATE, RULES, bodies
from tests.archive.test_typed import rows_of as typed_rows
from tests.columns.s3 import running
from tests.spark.stores import Writer, register_rules

pyiceberg_catalog = pytest.importorskip("pyiceberg.catalog")
UNMERGED, MERGED = replace(EAGER, merge=False), replace(EAGER, merge=True)


class Made:
    """A store, its archive and a catalogue."""

    def __init__(self, root: Path) -> None:
        self.writer: Writer = fill(root / "data", count=600)
        self.files, self.catalog = open_files(root / "archive"), f"sqlite:///{root}/catalog.db"
        self.archive()

    def archive(self, merge: bool = False) -> None:
        run(self.writer.root, self.files, MERGED if merge else UNMERGED)

    def register(self) -> Registered:
        return register(self.files, self.catalog)

    def table(self) -> Any:
        return pyiceberg_catalog.load_catalog("radiator", uri=self.catalog).load_table("radiator.archive")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def rows_of(table: pa.Table) -> Rows:
    rows = {(row["partition"], row["offset"]): row for row in table.to_pylist()}
    assert len(rows) == table.num_rows
    return rows


def test_a_table_has_the_rows_of_the_archive_after_each_registration_and_merge(made: Made) -> None:
    before = archive_rows(made.files)
    count = len(load(made.files).files)
    assert made.register() == Registered(0, count, 0)
    assert rows_of(made.table().scan().to_arrow()) == before
    more(made.writer, count=600, first=600)
    made.archive()
    small = len(load(made.files).files)
    assert made.register() == Registered(1, small - count, 0)
    made.archive(merge=True)
    done = made.register()
    assert done.version == load(made.files).version and done.removed > done.added > 0
    assert made.register() == Registered(done.version, 0, 0)
    table = made.table()
    assert rows_of(table.scan().to_arrow()) == archive_rows(made.files)
    versions = [int(each.summary[VERSION_KEY]) for each in table.snapshots()]
    assert versions == [0, 1, done.version]
    assert rows_of(table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow()) == before


@pytest.mark.thorough
def test_other_programs_read_the_table_and_skip_files(made: Made) -> None:
    duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    made.register()
    table, rows = made.table(), archive_rows(made.files)
    name = next(row["destination"] for row in rows.values())
    chosen = {key for key, row in rows.items() if row["destination"] == name}
    frame = pl.scan_iceberg(table).filter(pl.col("destination") == name).select("partition", "offset").collect()
    assert set(frame.rows()) == chosen
    scan = table.scan(row_filter=f"destination = '{name}'")
    assert not list(table.scan(row_filter="destination = '/topic/none'").plan_files())  # skipped by their bounds
    assert set(rows_of(scan.to_arrow())) == chosen
    day = table.scan(row_filter="receive_time < '2023-11-15T00:00:00+00:00'")
    assert 0 < len(list(day.plan_files())) < len(load(made.files).files)  # by the partition
    connection = table.scan().to_duckdb("messages", duckdb.connect())
    (count,) = connection.execute("SELECT count(*) FROM messages WHERE destination = $1", [name]).fetchone()
    assert count == len(chosen)
    assert len(table.scan().to_pandas()) == len(rows)


@pytest.mark.thorough
def test_a_registration_that_dies_or_loses_a_race_is_made_up_for(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*given: Any) -> None:
        snapshot(*given)
        raise KeyboardInterrupt

    snapshot = iceberg._add_snapshot
    monkeypatch.setattr(iceberg, "_add_snapshot", dies)
    with pytest.raises(KeyboardInterrupt):
        made.register()
    monkeypatch.undo()
    assert made.register().added == len(load(made.files).files)
    more(made.writer, count=600, first=600)
    made.archive()

    def overtaken(*given: Any) -> None:
        monkeypatch.undo()
        made.archive(merge=True)
        assert made.register().added  # by another run, which has seen more commits
        snapshot(*given)

    monkeypatch.setattr(iceberg, "_add_snapshot", overtaken)
    assert made.register() == Registered(load(made.files).version, 0, 0)
    assert rows_of(made.table().scan().to_arrow()) == archive_rows(made.files)
    assert len(made.table().snapshots()) == 2


@pytest.mark.thorough
def test_a_table_that_is_not_the_archives_is_refused(made: Made, tmp_path: Path) -> None:
    with pytest.raises(NoArchive):
        register(open_files(tmp_path / "none"), made.catalog)
    made.register()
    other = Path(tmp_path / "other")
    other.mkdir()
    with pytest.raises(StorageError, match=r"Iceberg table radiator.archive: it is not the table of .*other"):
        register(Made(other).files, made.catalog)
    more(made.writer, count=600, first=600)
    made.archive()
    made.register()
    assert isinstance(made.files, LocalFiles)
    last = max(Path(made.files.address("_delta_log")).glob("*.json"))
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(StorageError, match="it has version 1 of the archive, and .* ends at version 0: commits of"):
        made.register()
    last.write_bytes(kept)
    made.table().delete("offset >= 0")
    with pytest.raises(StorageError, match="another program has changed it"):
        made.register()
    with pytest.raises(StorageError, match="Iceberg catalogue none:"):
        register(made.files, "none")
    with pytest.raises(StorageError, match=r"Iceberg catalogue nowhere/x: .*") as error:
        register(made.files, "postgresql+psycopg2://user:secret@nowhere/x")
    assert "secret" not in str(error.value)


def test_a_copy_of_the_archive_is_refused_until_the_table_is_dropped(made: Made, tmp_path: Path) -> None:
    made.register()
    shutil.copytree(tmp_path / "archive", tmp_path / "copy")
    copy = open_files(tmp_path / "copy")
    refusal = f"the files of file://{tmp_path}/archive/, and this archive is at file://{tmp_path}/copy/: choose another"
    for _ in range(2):
        with pytest.raises(StorageError, match=re.escape(refusal)):
            register(copy, made.catalog)
        more(made.writer, count=600, first=600)
        run(made.writer.root, copy, UNMERGED)  # a later version is refused as well
    assert register(copy, made.catalog, "radiator.copy").version == load(copy).version
    assert made.register() == Registered(0, 0, 0)
    pyiceberg_catalog.load_catalog("radiator", uri=made.catalog).drop_table("radiator.archive")
    register(copy, made.catalog)
    assert rows_of(made.table().scan().to_arrow()) == archive_rows(copy)


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["*.metadata.json", "snap-*.avro", "*-m0.avro"])
def test_a_table_that_lost_its_metadata_is_registered_again_after_it_was_dropped(made: Made, lost: str) -> None:
    made.register()
    more(made.writer, count=600, first=600)
    made.archive()
    assert isinstance(made.files, LocalFiles)
    found = list(Path(made.files.address(METADATA)).rglob(lost))
    assert found
    for each in found:
        each.unlink()
    with pytest.raises(StorageError, match="its metadata is missing .*: restore .*/_iceberg/; or drop the table"):
        made.register()
    pyiceberg_catalog.load_catalog("radiator", uri=made.catalog).drop_table("radiator.archive")
    assert made.register().added == len(load(made.files).files)
    assert rows_of(made.table().scan().to_arrow()) == archive_rows(made.files)


def test_a_catalogue_that_is_lost_is_made_again(made: Made) -> None:
    made.register()
    Path(made.catalog.removeprefix("sqlite:///")).unlink()
    assert made.register() == Registered(0, len(load(made.files).files), 0)
    assert rows_of(made.table().scan().to_arrow()) == archive_rows(made.files)


@pytest.mark.thorough
def test_metadata_has_no_secrets_and_files_are_never_deleted_with_the_table(made: Made) -> None:
    made.register()
    metadata = json.loads(Path(made.table().metadata_location.removeprefix("file://")).read_text())
    assert metadata["properties"]["gc.enabled"] == "false"
    assert metadata["location"] == f"file://{made.files.uri}/{METADATA}"
    with pytest.raises(StorageError, match="cannot have files whose location has #"):
        iceberg.location(LocalFiles("/srv/a#b"), "date=2023-11-14/x.parquet")


@pytest.mark.thorough
def test_the_command_registers_after_each_run(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=600)
    to, catalog = str(tmp_path / "archive"), f"sqlite:///{tmp_path}/catalog.db"

    def archive(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "radiator", "archive", "--data", writer.root, "--to", to, *more]
        return subprocess.run(command, text=True, capture_output=True, env=dict(os.environ), check=False)

    first = archive("--iceberg", catalog, "--iceberg-table", "logs.flights")
    assert first.returncode == 0, first.stderr
    count = len(load(open_files(to)).files)
    assert f"Iceberg table logs.flights: version 0, {count} files added" in first.stderr
    again = archive("--iceberg", catalog, "--iceberg-table", "logs.flights")
    assert (again.returncode, "Iceberg" in again.stderr) == (0, False)
    table = pyiceberg_catalog.load_catalog("radiator", uri=catalog).load_table("logs.flights")
    assert table.scan().count() == load(open_files(to)).records
    wrong = archive("--iceberg-table", "flights")
    assert wrong.returncode == 2 and "--iceberg-table needs --iceberg" in wrong.stderr


@pytest.mark.thorough
def test_an_archive_on_s3_is_registered_without_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = fill(tmp_path / "data", count=600)
    with running() as s3:
        files = open_files(s3.uri("logs/archive"))
        for name, value in (
            ("ENDPOINT", f"http://{s3.endpoint}"), ("ACCESS_KEY_ID", "who"), ("SECRET_ACCESS_KEY", "knows"),
            ("REGION", "us-east-1"),
        ):  # fmt: skip
            monkeypatch.setenv(f"PYICEBERG_CATALOG__RADIATOR__S3__{name}", value)
        config = pytest.importorskip("pyiceberg.utils.config").Config()
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", config)  # it reads the environment when it is imported
        run(writer.root, files, UNMERGED)
        catalog = f"sqlite:///{tmp_path}/catalog.db"
        assert register(files, catalog).added == len(load(files).files)
        more(writer, count=600, first=600)
        run(writer.root, files, MERGED)
        assert register(files, catalog).added
        table = pyiceberg_catalog.load_catalog("radiator", uri=catalog).load_table("radiator.archive")
        assert table.location() == "s3://logs/archive/_iceberg"
        assert rows_of(table.scan().to_arrow()) == archive_rows(files)
        assert not any("knows" in path for path in table.inspect.files()["file_path"].to_pylist())


@pytest.mark.thorough
def test_struct_columns_of_rules_with_a_schema_are_in_the_table_as_they_grow(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", SEGMENT_BYTES)
    catalog, files = f"sqlite:///{tmp_path}/catalog.db", open_files(tmp_path / "archive")
    leg = {"properties": {"via": {"type": "integer"}}}
    grown = {**FLIGHT, "properties": {"n": {"type": "integer"}, "leg": {"type": "array", "items": leg}}}
    for number, schemas in enumerate(({}, {"flight": FLIGHT, "gate": GATE}, {"flight": grown})):
        if schemas:
            register_rules(tmp_path, writer.root, RULES, **schemas)
        writer.write("p", bodies(600 * number, 600), per_batch=20)
        run(writer.root, files, UNMERGED)
        register(files, catalog)
    run(writer.root, files, MERGED)
    assert register(files, catalog).removed
    writer.close()
    table = pyiceberg_catalog.load_catalog("radiator", uri=catalog).load_table("radiator.archive")
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["offset"])
    assert sum(row["flight"] is not None for row in rows) > 0 and sum(row["rejected"] is not None for row in rows) > 0
    assert rows == [{name: row[name] for name in row if name != "date"} for row in typed_rows(tmp_path)]
