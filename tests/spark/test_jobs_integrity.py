"""What is not there, and why; what is there more often than it should."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from radiator.spark import collect, read, snapshot
from radiator.spark.jobs import absent, gaps, integrity, repeats
from radiator.storage import layout
from tests.columns.segments import contradict
from tests.spark.stores import Writer, numbered
from tests.spark.test_source import damage
from tests.storage.rewriting import rewritten

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

COUNT = 300


def test_each_missing_offset_has_its_reason(spark: Any, tmp_path: Path) -> None:
    """Three partitions: one whole, one damaged, one whose first segment is gone and whose second is compacted."""
    writer = Writer(tmp_path / "data", segment_bytes=4 << 10)
    for name in ("compacted", "damaged", "whole"):
        writer.write(name, numbered(f"/topic/{name}", COUNT), per_batch=10)
    writer.close()
    damage(writer.root, "damaged")
    segments = sorted(Path(layout.partition_path(writer.root, "compacted")).glob("*.rlog"))
    bases = [int(segment.stem) for segment in segments]
    assert len(segments) > 3
    segments[0].unlink()
    kept = range(bases[1], bases[2], 2)
    segments[1].write_bytes(rewritten(segments[1].read_bytes(), bases[1], lambda offset: offset in kept))
    found = collect(absent(spark, writer.root))
    assert [(row["partition"], row["why"]) for row in found] == [
        ("compacted", "removed"), ("compacted", "left out"), ("damaged", "lost"),
    ]  # fmt: skip
    removed, left_out, lost = found
    assert (removed["first_missing"], removed["last_missing"], removed["records"]) == (0, bases[1] - 1, bases[1])
    gone = [offset for offset in range(bases[1], bases[2] - 1) if offset not in kept]
    assert (left_out["first_missing"], left_out["last_missing"], left_out["records"]) == (gone[0], gone[-1], len(gone))
    assert lost["records"] == 10
    assert lost["reason"].startswith(f"batch at offset {lost['first_missing']}: crc expected")
    assert lost["path"].endswith(".rlog")
    assert lost["position"] > 0

    # Together with what is there it is everything that was ever given out.
    whole = integrity(read(spark, writer.root, columns=["partition", "offset"], fail_on_data_loss=False))
    for row in collect(whole):
        missing = sum(each["records"] for each in found if each["partition"] == row["partition"])
        assert row["messages"] + missing == COUNT
    between = collect(gaps(read(spark, writer.root, columns=["partition", "offset"], fail_on_data_loss=False)))
    assert sum(row["records"] for row in between) == left_out["records"] + lost["records"]

    # Only what was asked for.
    options = {"partition": "damaged", "ending_offsets": str(lost["first_missing"] + 3)}
    (part,) = collect(absent(spark, writer.root, **options))
    assert (part["first_missing"], part["last_missing"]) == (lost["first_missing"], lost["first_missing"] + 2)
    ends = {name: end for name, end in snapshot(writer.root).items() if name == "whole"}
    assert collect(absent(spark, writer.root, partition="whole", ending_offsets=str(ends["whole"]))) == []


def test_a_batch_that_contradicts_itself_is_lost_with_its_place(spark: Any, writer: Writer) -> None:
    writer.write("p", numbered("/topic/p", COUNT), per_batch=10)
    writer.close()
    (segment,) = Path(layout.partition_path(writer.root, "p")).glob("*.rlog")
    batch = contradict(segment, 3)
    (lost,) = collect(absent(spark, writer.root))
    assert (lost["why"], lost["first_missing"], lost["last_missing"]) == ("lost", 30, 39)
    assert "names" in lost["reason"]
    assert lost["position"] == segment.read_bytes().index(batch.base_offset.to_bytes(8, "little")) - 16


def test_a_store_without_anything_lacks_nothing(spark: Any, writer: Writer) -> None:
    assert collect(absent(spark, writer.root)) == []


def test_repeats_are_what_says_that_it_is_the_same(spark: Any) -> None:
    start = datetime(2023, 11, 14, 22, tzinfo=UTC)
    headers = [
        {"dedup-id": "a"}, {"dedup-id": "a"}, {"dedup-id": "b"}, {"producer-id": "p", "sequence": "7"},
        {"producer-id": "p", "sequence": "007"}, {"producer-id": "p", "sequence": "8"}, {"producer-id": "p"},
        {"sequence": "7"},
        {"producer-id": "p", "sequence": "x"}, {"producer-id": "p", "sequence": "x"}, {}, {},
        {"producer-id": "q", "sequence": "0"}, {"producer-id": "q", "sequence": "00"}, {"dedup-id": "a"},
    ]  # fmt: skip
    rows = [("/queue/a", each, offset, start + timedelta(seconds=offset)) for offset, each in enumerate(headers)]
    rows.append(("/queue/other", {"dedup-id": "b"}, 0, start))
    df = spark.createDataFrame(
        rows, "destination STRING, headers MAP<STRING, STRING>, offset BIGINT, receive_time TIMESTAMP"
    )
    found = collect(repeats(df))
    assert [(row["kind"], row["identity"], row["messages"]) for row in found] == [
        ("dedup-id", "a", 3), ("producer-id", "p 7", 2), ("producer-id", "q 0", 2),
    ]  # fmt: skip
    assert (found[0]["first_offset"], found[0]["last_offset"]) == (0, 14)
    assert found[0]["last_received"] == start + timedelta(seconds=14)
