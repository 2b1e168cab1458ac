"""What docs/pipeline.md says of DuckDB, pandas, Polars and pyarrow over an archive is so; and an export is alike."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from radiator.archive import NoArchive, files
from radiator.archive.iceberg import register
from radiator.archive.opening import open_files
from radiator.archive.run import Options, run
from radiator.columns.schema import arrow_schema
from tests.archive.stores import fill
from tests.spark.stores import START_NS, Message, Writer

duckdb = pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

EXACT = START_NS + 123_456_789  # no double and no microsecond has it
TEXT = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text("utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """900 sealed records of 90 destinations, which share files, and two that are not sealed."""
    root = tmp_path_factory.mktemp("plain")
    writer = Writer(root / "data", segment_bytes=4096)
    messages = [
        Message(
            f"/topic/flights.{i % 90}",
            b'{"dep_delay": 1}',
            b"tag-carrier:UA\nnote:x",
            EXACT + i,
            EXACT if i % 2 else None,
        )
        for i in range(900)
    ]
    writer.write("_flights", [*messages, *[Message("/topic/end", b"\xff" * 5000, b"", EXACT + 900)] * 2], per_batch=10)
    writer.close()
    there = root / "archive [1] {x}"
    run(writer.root, open_files(there), Options(merge=False))
    return writer.root, str(there)


def duck(query: str, **params: Any) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = duckdb.sql(query, params=params or None).fetchall()
    return rows


def test_every_reader_sees_the_same_rows_by_the_files_of_the_commits(made: tuple[str, str]) -> None:
    found = files(made[1])
    figures = 'count(*), count(DISTINCT "offset"), max(receive_ns), count(event_ns), max(event_ns)'
    expected = (900, 900, EXACT + 899, 450, EXACT)
    assert duck(f"SELECT {figures} FROM read_parquet($f)", f=found) == [expected]
    df = pd.read_parquet(found, dtype_backend="pyarrow", partitioning=None)
    assert (
        len(df),
        df["offset"].nunique(),
        df["receive_ns"].max(),
        df["event_ns"].count(),
        df["event_ns"].max(),
    ) == expected
    lazy = pl.scan_parquet(found, glob=False)
    assert lazy.select(
        pl.len(), pl.col("offset").n_unique(), pl.col("receive_ns").max(), pl.col("event_ns").count(),
        pl.col("event_ns").max().alias("last"),
    ).collect().row(0) == expected  # fmt: skip


def test_maps_bodies_and_times_can_be_used(made: tuple[str, str]) -> None:
    found = files(made[1], destination="/topic/flights.7")
    (row,) = duck(
        "SELECT tags['carrier'], headers['note'], decode(body), epoch_us(receive_time) "
        "FROM read_parquet($f) WHERE destination = '/topic/flights.7' ORDER BY \"offset\" LIMIT 1",
        f=found,
    )
    assert row == ("UA", "x", '{"dep_delay": 1}', (EXACT + 7) // 1000)
    first = pd.read_parquet(found, partitioning=None, filters=[("destination", "==", "/topic/flights.7")]).iloc[0]
    assert dict(first["tags"]) == {"carrier": "UA"} and first["body"] == b'{"dep_delay": 1}'
    frame = pl.scan_parquet(found, glob=False).filter(destination="/topic/flights.7").collect()
    assert dict(pairs_of(frame["tags"][0])) == {"carrier": "UA"} and frame["body"][0] == b'{"dep_delay": 1}'
    assert str(frame["receive_time"].dtype) == "Datetime(time_unit='us', time_zone='UTC')"


def pairs_of(value: Any) -> Any:
    """Of a map, as Polars of several versions show it."""
    return value.items() if isinstance(value, dict) else [tuple(each.values()) for each in value]


def test_directories_have_the_same_records_without_merging(made: tuple[str, str], tmp_path: Path) -> None:
    plain = tmp_path / "archive"
    plain.symlink_to(made[1])
    glob = f"{plain}/date=*/*.parquet"
    assert duck(f"SELECT count(*) FROM read_parquet('{glob}')") == [(900,)]
    assert pl.scan_parquet(glob).select(pl.len()).collect().item() == 900
    assert len(pd.read_parquet(plain, columns=["offset"])) == 900  # what begins with _ is left out: _log, _new


def test_a_file_is_read_by_any_reader_of_parquet(made: tuple[str, str]) -> None:
    for path in files(made[1]):
        assert pq.read_schema(path).remove_metadata().equals(arrow_schema())


def test_an_export_has_the_schema_of_the_archive(made: tuple[str, str], tmp_path: Path) -> None:
    to = tmp_path / "export.parquet"
    command = [sys.executable, "-m", "radiator", "export", "--data", made[0], "--format", "parquet", "--to", str(to)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert pq.read_schema(to).remove_metadata().equals(arrow_schema())
    exported = pq.read_table(to).sort_by("offset")
    archived = pq.read_table(files(made[1])[0]).schema
    assert exported.schema.equals(archived) and exported.num_rows == 902
    rest = "SELECT * FROM read_parquet($e) EXCEPT ALL SELECT * FROM read_parquet($f, hive_partitioning = false)"
    (row,) = duck(f'SELECT min("offset"), count(*) FROM ({rest})', e=str(to), f=files(made[1]))
    assert row == (900, 2)  # what is not sealed yet


def test_the_documented_lines_run(made: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made[1], "archive")
    section = TEXT[TEXT.index("## Reading it without Spark") :].split("\n## ")[0]
    of_delta, of_iceberg = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(of_delta, names)
    assert names["delays"].height == len(names["frame"]) == 10 and names["first"].height == 900
    assert len(names["counts"].fetchall()) == 90 and names["listed"].height >= 10
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    register(open_files("archive"), catalog)
    assert "sqlite:////srv/iceberg/catalog.db" in of_iceberg
    exec(of_iceberg.replace("sqlite:////srv/iceberg/catalog.db", catalog), names)
    assert names["table"].scan().count() == 900


def test_an_archive_that_is_not_there_is_an_error_and_nothing_chosen_an_empty_list(tmp_path: Path) -> None:
    with pytest.raises(NoArchive, match="nowhere: the archive does not exist or is empty: `radiator archive"):
        files(tmp_path / "nowhere")
    fill(tmp_path / "data").close()
    run(str(tmp_path / "data"), open_files(tmp_path / "archive"))
    assert files(tmp_path / "archive") and files(tmp_path / "archive", destination="/topic/none") == []
    assert files(tmp_path / "archive", start=START_NS // 10**6) == files(tmp_path / "archive", start=START_NS)
    with pytest.raises(ValueError, match="19 digits"):
        files(tmp_path / "archive", start=START_NS // 10**9)
