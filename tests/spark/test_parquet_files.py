"""Spark's own reader of Parquet, with the list of files of an archive, sees the records of each version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from radiator.archive import files, open_files
from radiator.archive.run import run
from radiator.columns.schema import arrow_schema
from radiator.spark.tables import hadoop_uri
from tests.archive.stores import archive_rows, fill, more
from tests.archive.test_iceberg import MERGED, UNMERGED

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_spark_reads_the_listed_files_of_the_latest_and_of_an_earlier_version(spark: Any, tmp_path: Path) -> None:
    writer, archive = fill(tmp_path / "data", count=600), open_files(tmp_path / "archive")
    run(writer.root, archive, UNMERGED)
    first = archive_rows(archive)
    more(writer, count=600, first=600)
    run(writer.root, archive, MERGED)
    writer.close()
    for as_of, rows in ((0, first), (None, archive_rows(archive))):
        df = spark.read.parquet(*map(hadoop_uri, files(archive, as_of=as_of)))
        assert df.columns == arrow_schema().names
        found = {(row.partition, row.offset): row for row in df.collect()}
        assert len(found) == df.count() == len(rows)
        for key, row in rows.items():
            for name in ("destination", "message_id", "receive_ns", "event_ns", "size"):
                assert found[key][name] == row[name]
            assert (bytes(found[key].body), found[key].headers) == (row["body"], dict(row["headers"]))
