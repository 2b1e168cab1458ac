"""A batch that is planned again has the same tasks with the same rows: the ids of what they write stay."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from radiator.spark.schema import select
from radiator.spark.stream import StreamReader
from radiator.storage import layout
from tests.spark.archives import archive
from tests.spark.stores import Writer, numbered
from tests.spark.streams import Query
from tests.storage.rewriting import rewritten

pytestmark = pytest.mark.spark
Tasks = list[list[tuple[str, int]]]


def large(name: str, count: int, first: int = 0) -> list[Any]:
    return [each._replace(body=bytes(1000)) for each in numbered(name, count, first)]


def segments(root: str, name: str) -> list[Path]:
    return sorted(Path(layout.partition_path(root, name)).glob("*.rlog"))


def tasks_of(query: Query, start: Any, end: Any) -> Tasks:
    copy = StreamReader(query._parsed, select(["partition", "offset"]))
    splits = pickle.loads(pickle.dumps(list(query.reader.partitions(start, end))))
    return [
        [(row["partition"], row["offset"]) for batch in copy.read(split) for row in batch.to_pylist()]
        for split in splits
    ]


def store(tmp_path: Path, **options: object) -> tuple[Writer, Query, Any, Any]:
    """A query that has read a part and planned the next batch."""
    writer = Writer(tmp_path / "data", 64 << 10)
    for number in range(12):
        writer.write(f"p{number}", large(f"p{number}", 20), per_batch=7)
    query = Query(writer.root, startingOffsets="earliest", split_bytes=40 * 256, **options)
    query.trigger()
    for number in range(12):
        writer.write(f"p{number}", large(f"p{number}", 5 + 30 * number, 20), per_batch=7)
    assert query.plan()
    start, end = map(json.loads, query.checkpoint[-2:])
    return writer, query, start, end


def grown(writer: Writer) -> None:
    for number in range(12):
        writer.write(f"p{number}", large(f"p{number}", 500, 25 + 30 * number), per_batch=50)
    writer.write("new", large("new", 500))


def without_indexes(writer: Writer) -> None:
    for path in Path(writer.root).rglob("*.idx"):
        path.unlink()


def with_rewritten_segments(writer: Writer) -> None:
    for number in range(12):
        for segment in segments(writer.root, f"p{number}")[:-1]:
            segment.write_bytes(rewritten(segment.read_bytes(), int(segment.stem), lambda each: True, 3, 7))


@pytest.mark.parametrize("change", [grown, without_indexes, with_rewritten_segments])
def test_a_batch_planned_again_by_another_process_has_the_same_tasks(
    tmp_path: Path, change: Callable[[Writer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, query, start, end = store(tmp_path)
    one = tasks_of(query, start, end)
    assert len(one) > 20
    change(writer)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert tasks_of(query.again(), start, end) == one
    change(writer)
    assert tasks_of(query, start, end) == one


def test_what_comes_from_the_archive_instead_is_in_the_same_tasks(tmp_path: Path) -> None:
    writer, query, start, end = store(tmp_path)
    one = tasks_of(query, start, end)
    last = segments(writer.root, "p11")[-1]
    archive(tmp_path / "archive", writer.root, {"p11": int(last.stem)})
    for segment in segments(writer.root, "p11")[:-1]:
        segment.unlink()
    assert tasks_of(query.again(archive=tmp_path / "archive"), start, end) == one


def test_what_is_lost_moves_no_row_into_another_task(tmp_path: Path) -> None:
    writer, query, start, end = store(tmp_path)
    one = tasks_of(query, start, end)
    for segment in segments(writer.root, "p11")[:-1]:
        segment.unlink()
    two = tasks_of(query.again(failOnDataLoss="false"), start, end)
    kept = {row for task in two for row in task}
    assert 0 < len(kept) < sum(map(len, one))
    assert two == [[row for row in task if row in kept] for task in one][: len(two)]
