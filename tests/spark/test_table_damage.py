"""A byte that flips in a page of the archive ends the query of `table`; it is never read as another record."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from radiator.archive import load, open_files
from radiator.archive.run import Options, run
from radiator.spark import table
from radiator.spark.report import reason
from radiator.spark.tables import hadoop_uri
from tests.archive.test_damage import body_place, flip
from tests.spark.archives import archive
from tests.spark.stores import START_NS, Message, Writer, numbered

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_a_flipped_byte_in_a_page_is_an_error_of_spark_too(spark, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Bodies that do not compress lie in the pages as they are, so nothing but the pages' checksums can notice."""
    writer = Writer(tmp_path / "data", 64 * 1024)
    noise = random.Random(3)
    writer.write("p", [Message("/topic/t", noise.randbytes(1000), b"", START_NS + i) for i in range(400)])
    writer.close()
    files = open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), files, Options())
    (each,) = load(files).files.values()
    whole = [bytes(row.body) for row in table(spark, None, files.uri).select("body").collect()]
    path = files.address(each.path)
    flip(path, body_place(path))
    plain = spark.read.option("parquet.page.verify-checksum.enabled", "false").parquet(hadoop_uri(path))
    found = [bytes(row.body) for row in plain.select("body").collect()]
    assert sum(one != other for one, other in zip(whole, found, strict=True)) == 1  # unnoticed
    with pytest.raises((PySparkException, Py4JJavaError), match="(?i)crc|checksum") as error:
        table(spark, None, files.uri).select("body").collect()
    assert reason(error.value) == (
        f"{hadoop_uri(path)}: the file cannot be read; radiator archive verify checks the files of an archive"
    )
    assert table(spark, None, files.uri).select("offset").count() == each.records  # that column's pages hold


def test_a_file_that_is_removed_after_the_plan_is_an_error_that_says_so(spark, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    writer = Writer(tmp_path / "data")
    writer.write("p", numbered("/topic/t", 10))
    writer.close()
    (path,) = archive(tmp_path / "archive", writer.root)
    df = table(spark, None, str(tmp_path / "archive")).select("body")
    (tmp_path / "archive" / path).unlink()
    with pytest.raises((PySparkException, Py4JJavaError), match="FAILED_READ_FILE") as error:
        df.collect()
    expected = f"{hadoop_uri(str(tmp_path / 'archive' / path))}: the file does not exist any more: it was removed"
    assert (reason(error.value) or "").startswith(expected)
