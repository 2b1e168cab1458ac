"""The section ``integrity`` of a window of time, and of archive and log: what was compacted away is no gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from radiator.archive import Lost
from radiator.spark.report import Report, make_report
from radiator.storage import layout
from tests.spark.archives import archive, lose
from tests.spark.stores import MS, START_NS, Writer, numbered
from tests.spark.test_source import damage
from tests.storage.rewriting import rewritten

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
COUNT, SECOND_NS = 300, 1000 * MS
MIDDLE = START_NS + 30 * SECOND_NS  # the first 30 messages came before


@pytest.fixture
def store(tmp_path: Path) -> Writer:
    """``compacted``: of each segment every other record is gone; ``damaged``: a batch of ten does not hold."""
    writer = Writer(tmp_path / "data", segment_bytes=4 << 10)
    for name in ("compacted", "damaged"):
        writer.write(name, numbered(f"/topic/{name}", COUNT, step_ns=SECOND_NS), per_batch=10)
    writer.close()
    for segment in sorted(Path(layout.partition_path(writer.root, "compacted")).glob("*.rlog"))[:-1]:
        kept = range(int(segment.stem), COUNT, 2)
        segment.write_bytes(
            rewritten(segment.read_bytes(), int(segment.stem), lambda offset, kept=kept: offset in kept)
        )
    return writer


def _rows(report: Report) -> dict[str, tuple[int, int]]:
    return {row["partition"]: (row["missing"], row["left_out"]) for row in report.answers["integrity"]}


def test_of_a_window_only_what_is_lost_in_it_is_missing(spark: Any, store: Writer) -> None:
    damage(store.root, "damaged")
    whole = make_report(store.root, spark=spark, sections=["integrity"], fail_on_data_loss=False)
    (lost,) = [row for row in whole.answers["absent"] if row["why"] == "lost"]
    left_out = _rows(whole)["compacted"][1]
    assert _rows(whole) == {"compacted": (0, left_out), "damaged": (10, 0)} and left_out > 100
    with_it = make_report(
        store.root, spark=spark, sections=["integrity"], fail_on_data_loss=False, until=START_NS + 280 * SECOND_NS
    )
    assert with_it.missing == 10 and _rows(with_it)["compacted"][0] == 0 and 100 < _rows(with_it)["compacted"][1] < 150
    before = START_NS + (lost["first_missing"] - 30) * SECOND_NS
    without = make_report(store.root, spark=spark, sections=["integrity"], start=MIDDLE, until=before)
    assert without.missing == 0 and without.page.sections[0].findings == []
    assert without.page.sections[0].summary.startswith("Complete:")


def test_of_archive_and_log_what_the_archive_could_not_take_is_missing(
    spark: Any, store: Writer, tmp_path: Path
) -> None:
    archive(tmp_path / "archive", store.root, {"compacted": 250, "damaged": 100})
    both = make_report(store.root, spark=spark, archive=str(tmp_path / "archive"), sections=["integrity"])
    plain = make_report(store.root, spark=spark, sections=["integrity"])
    assert _rows(both) == _rows(plain) and both.missing == 0 and _rows(both)["compacted"][1] > 100
    lose(tmp_path / "archive", Lost("compacted", 20, 30, "retention"))
    (archived,) = [row for row in both.answers["absent"] if row["partition"] == "compacted"]
    assert archived["why"] == "left out"
    damage(store.root, "damaged")
    found = make_report(
        store.root, spark=spark, archive=str(tmp_path / "archive"), sections=["integrity"], fail_on_data_loss=False
    )
    missing, left_out = _rows(found)["compacted"]
    assert missing == 10 and left_out == _rows(both)["compacted"][1] - 10
    assert _rows(found)["damaged"] == (10, 0)


def test_the_removed_beginning_of_a_log_that_is_not_archived_yet_counts_once(
    spark: Any, store: Writer, tmp_path: Path
) -> None:
    archive(tmp_path / "archive", store.root, {"compacted": 250})
    first, second = sorted(Path(layout.partition_path(store.root, "damaged")).glob("*.rlog"))[:2]
    for file in first.parent.glob(f"{first.stem}*"):
        file.unlink()
    both = make_report(store.root, spark=spark, archive=str(tmp_path / "archive"), sections=["integrity"])
    removed = {row["partition"]: row["removed"] for row in both.answers["integrity"]}
    assert removed == {"compacted": 0, "damaged": int(second.stem)}
