"""One report: its sections share a scan of a small store, and tell what is damaged once."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from radiator.columns.options import ReadOptions
from radiator.columns.warn import warn
from radiator.spark import report_session
from radiator.spark.cached_scan import CACHED_MAX_BYTES, COLUMNS, CachedScan
from radiator.spark.report import make_report
from radiator.spark.session import read
from tests.spark.stores import MS, START_NS, Writer, numbered
from tests.spark.test_source import damage

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


class Reader:
    def __init__(self, spark: Any, path: str) -> None:
        self.spark, self.path, self.columns = spark, path, list[tuple[str, ...]]()
        self.asked: list[dict[str, Any]] = []

    def __call__(self, columns: Any, **asked: Any) -> Any:
        self.columns.append(tuple(columns))
        self.asked.append(asked)
        return read(self.spark, self.path, columns=columns, **asked)


def cached_now(spark: Any) -> set[int]:
    """What Spark keeps, of whatever test."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def test_a_small_store_is_read_once_and_a_window_is_cut_from_it(spark: Any, writer: Writer) -> None:
    writer.write("p", numbered("/topic/a", 100))
    reader, before = Reader(spark, writer.root), cached_now(spark)
    cached = CachedScan(reader, 1000)
    assert cached(["offset"]).count() == 100
    assert cached_now(spark) - before
    window = cached(["offset"], start_time=START_NS + 10 * MS, end_time=START_NS + 20 * MS)
    assert sorted(row.offset for row in window.collect()) == list(range(10, 20))
    assert window.columns == ["offset"] and reader.columns == [COLUMNS]
    assert cached(["body"]).count() == 100 and reader.columns == [COLUMNS, ("body",)]  # bodies are not cached
    cached.clear()
    assert not cached_now(spark) - before


def test_a_window_that_is_asked_for_first_is_all_that_is_read(spark: Any, writer: Writer) -> None:
    """What lies outside of it may be damaged, and is nothing to the report."""
    writer.write("p", numbered("/topic/a", 100), per_batch=10)
    reader = Reader(spark, writer.root)
    cached, window = CachedScan(reader, 1000), {"start_time": START_NS + 30 * MS}
    assert [cached([column], **window).count() for column in ("offset", "size")] == [70, 70]
    assert reader.asked == [window]
    assert cached(["offset"]).count() == 100
    assert cached(["offset"], end_time=START_NS + 30 * MS).count() == 30 and reader.asked == [window, {}]
    cached.clear()


def test_a_large_store_is_read_for_each_question_by_its_columns(spark: Any, writer: Writer) -> None:
    writer.write("p", numbered("/topic/a", 10))
    reader = Reader(spark, writer.root)
    cached = CachedScan(reader, CACHED_MAX_BYTES + 1)
    for columns in (["offset"], ["size"], ["offset"]):
        assert cached(columns).count() == 10
    assert reader.columns == [("offset",), ("size",), ("offset",)]


def test_each_damaged_range_is_reported_once_in_a_report(
    spark: Any, writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks print on the stderr of the JVM, so it is asked what they leave in the directory that they share."""
    writer.write("p", numbered("/topic/a", 50), per_batch=10)
    damage(writer.root, "p")
    shared = tmp_path / "told"
    shared.mkdir()
    for _ in range(2):
        df = read(spark, writer.root, columns=["offset"], fail_on_data_loss=False, warn_once=shared)
        assert df.count() == 40
        assert len(list(shared.iterdir())) == 1
    asked: list[str] = []

    def reads(*args: Any, warn_once: str, **options: Any) -> Any:
        asked.append(warn_once)
        return read(*args, warn_once=warn_once, **options)

    monkeypatch.setattr(report_session, "read", reads)
    monkeypatch.setitem(CachedScan.__init__.__globals__, "CACHED_MAX_BYTES", 0)  # a scan for each question
    make_report(writer.root, spark=spark, sections=["traffic"], fail_on_data_loss=False)
    assert len(asked) > 2 and len(set(asked)) == 1 and not Path(asked[0]).exists()


def test_a_warning_is_reported_by_the_first_of_those_that_share_a_directory(
    tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ReadOptions.warn_once is None
    for text, once in itertools.product(("one", "two"), (str(tmp_path), str(tmp_path), None, str(tmp_path / "gone"))):
        warn(text, once)
    assert capfd.readouterr().err == "radiator: one\n" * 3 + "radiator: two\n" * 3
