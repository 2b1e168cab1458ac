"""Programs that read Delta see the records that radiator sees: in each version, before and after a merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from radiator.archive import files, load, open_files
from radiator.archive.run import run
from radiator.columns.schema import arrow_schema
from tests.archive.stores import DAY_NS, archive_rows, fill, more
from tests.archive.test_iceberg import MERGED, UNMERGED, rows_of

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

pytestmark = pytest.mark.thorough  # test_plain_readers.py runs the documented lines

NAMES = arrow_schema().names
Rows = dict[tuple[str, int], Any]
NAME = "/topic/flights.0"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Rows]]:
    """An archive, and its rows in each version: the last one has merged files, which stay stored."""
    root = tmp_path_factory.mktemp("delta")
    writer, where = fill(root / "data", count=600), open_files(root / "archive")
    versions = []
    for options in (UNMERGED, UNMERGED, MERGED):
        if versions:
            more(writer, count=600, first=600 * len(versions))
        run(writer.root, where, options)
        while len(versions) <= load(where).version:
            versions.append(archive_rows(where))
    writer.close()
    assert load(where).removed and len(versions[-1]) > len(versions[0])
    return str(root / "archive"), versions


def polars_rows(archive: str, version: int | None) -> pa.Table:
    return pl.scan_delta(archive, version=version).select(NAMES).collect().to_arrow()


def pandas_rows(archive: str, version: int | None) -> pa.Table:
    frame = deltalake.DeltaTable(archive, version=version).to_pandas(types_mapper=pd.ArrowDtype)
    return pa.Table.from_pandas(frame[NAMES], preserve_index=False)


def duckdb_rows(archive: str, version: int | None) -> pa.Table:
    messages = deltalake.DeltaTable(archive, version=version).to_pyarrow_dataset()  # noqa: F841 - in the query
    return duckdb.sql(f"SELECT {', '.join(map(_quoted, NAMES))} FROM messages").to_arrow_table()


def _quoted(name: str) -> str:
    return f'"{name}"'


def deltalake_rows(archive: str, version: int | None) -> pa.Table:
    return deltalake.DeltaTable(archive, version=version).to_pyarrow_table(columns=NAMES)


def parquet_rows(archive: str, version: int | None) -> pa.Table:
    return pa.concat_tables(pa.parquet.read_table(path, partitioning=None) for path in files(archive, as_of=version))


READERS = [polars_rows, pandas_rows, duckdb_rows, deltalake_rows, parquet_rows]


def plain(rows: Rows) -> Iterable[tuple[Any, ...]]:
    """Rows without the types of a reader: maps are lists of pairs, times are UTC."""

    def value(each: Any) -> Any:
        if isinstance(each, datetime):
            return each.astimezone(UTC)
        if isinstance(each, list):
            return [tuple(pair.values()) if isinstance(pair, dict) else tuple(pair) for pair in each]
        return each

    return [tuple(value(rows[key][name]) for name in NAMES) for key in sorted(rows)]


@pytest.mark.parametrize("read", READERS, ids=[each.__name__.removesuffix("_rows") for each in READERS])
def test_each_reader_sees_the_rows_of_each_version(
    made: tuple[str, list[Rows]], read: Callable[[str, int | None], pa.Table]
) -> None:
    archive, versions = made
    for version, rows in [*enumerate(versions), (None, versions[-1])]:
        assert plain(rows_of(read(archive, version))) == plain(rows), version


def test_readers_skip_files_by_the_statistics_of_the_log(made: tuple[str, list[Rows]]) -> None:
    archive, versions = made
    rows = versions[-1].values()
    chosen = sum(row["destination"] == NAME for row in rows)
    assert pl.scan_delta(archive).filter(destination=NAME).select(pl.len()).collect().item() == chosen
    messages = deltalake.DeltaTable(archive).to_pyarrow_dataset()
    (count,) = duckdb.sql(f"SELECT count(*) FROM messages WHERE destination = '{NAME}'").fetchall()[0]
    assert count == chosen
    middle = sorted(row["receive_ns"] for row in rows)[len(versions[-1]) // 2] // DAY_NS * DAY_NS
    later = pa.compute.field("receive_ns") >= middle
    assert 0 < len(list(messages.get_fragments(later))) < len(list(messages.get_fragments()))
    assert messages.count_rows(filter=later) == sum(row["receive_ns"] >= middle for row in rows)


@pytest.mark.parametrize(
    "where",
    [
        "size > 10", "message_id <> ''", "event_ns >= 0", "event_time IS NOT NULL", "event_ns IS NULL",
        "transmit_time < receive_time", '"offset" >= 0', "destination >= '/topic/flights.1'",
    ],
)  # fmt: skip
def test_a_filter_of_any_column_has_the_rows_of_a_scan(made: tuple[str, list[Rows]], where: str) -> None:
    archive, versions = made
    messages = deltalake.DeltaTable(archive).to_pyarrow_dataset()
    scanned = messages.to_table()  # noqa: F841 - in the query
    count = f"SELECT count(*) FROM {{}} WHERE {where}"
    ((expected,),) = duckdb.sql(count.format("scanned")).fetchall()
    assert 0 < expected <= len(versions[-1])
    assert duckdb.sql(count.format("messages")).fetchall() == [(expected,)]


def test_a_version_is_found_by_its_time(made: tuple[str, list[Rows]]) -> None:
    archive, versions = made
    first = min(each["timestamp"] for each in deltalake.DeltaTable(archive).history())
    table = deltalake.DeltaTable(archive)
    table.load_as_version(datetime.fromtimestamp(first / 1000, UTC))
    assert table.version() == 0
    assert files(archive, as_of=datetime.fromtimestamp(first / 1000, UTC)) == files(archive, as_of=0)
    assert table.to_pyarrow_dataset().count_rows() == len(versions[0])


def test_a_listing_of_directories_has_merged_records_more_than_once(made: tuple[str, list[Rows]]) -> None:
    archive, versions = made
    found = pl.scan_parquet(f"{archive}/date=*/**/*.parquet").select(pl.len()).collect().item()
    assert found > len(versions[-1])
    assert Path(archive, "_delta_log").is_dir()
