"""Stores elsewhere, through Spark: its workers are other processes, and find the same files by URI."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from radiator.spark import collect, read, snapshot
from radiator.spark.jobs import JOBS, integrity
from radiator.spark.report import reason
from tests.columns.s3 import S3, running
from tests.spark.stores import Writer, numbered

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running() as s3:
        yield s3


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    writer = Writer(tmp_path_factory.mktemp("here") / "data", 64 << 10)
    for name in ("/topic/a b", "/queue/ä%41"):
        writer.write(name, numbered(name, 2000, city="Oslo"), per_batch=9)
    writer.close()
    return writer.root


def options_of(where: str, local: str, s3: S3) -> tuple[str, dict[str, str]]:
    if where == "s3":
        s3.upload(local, "data")
        return "s3a://logs/data", {f"storage.{name}": text for name, text in s3.storage.items()}
    return {"file": f"file://{local}", "fsspec": f"local://{local}"}[where], {}


def digest(df: Any) -> str:
    """Of all rows and all columns."""
    rows = [sorted((name, str(value)) for name, value in row.items()) for row in collect(df)]
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()


@pytest.mark.parametrize("where", ["file", "fsspec", "s3"])
def test_all_rows_are_those_of_the_local_files(spark: Any, local: str, s3: S3, where: str) -> None:
    path, options = options_of(where, local, s3)
    df = read(spark, path, split_bytes=40_000, **options)
    assert df.rdd.getNumPartitions() > 4
    assert digest(df) == digest(read(spark, local))
    some = read(spark, path, columns=["offset"], partition="/queue/ä%41", starting_offsets=700, **options)
    assert some.count() == 1300
    rows = collect(integrity(read(spark, path, columns=JOBS["integrity"].columns, **options)))
    assert [(row["messages"], row["missing"], row["duplicates"]) for row in rows] == [(2000, 0, 0)] * 2


def test_what_is_not_there_is_reported_with_its_uri_and_no_secret(spark: Any, s3: S3) -> None:
    storage = {f"storage.{name}": text for name, text in s3.storage.items()}
    with pytest.raises(Exception) as caught:
        read(spark, "s3://logs/none", **storage).count()
    assert "no radiator store at s3://logs/none: there is no such directory" in reason(caught.value)
    assert s3.storage["secret_key"] not in str(caught.value)


def test_several_reads_of_an_object_store_see_the_same_end(local: str, s3: S3) -> None:
    s3.upload(local, "again")
    assert snapshot("s3://logs/again", s3.storage) == snapshot(local)
