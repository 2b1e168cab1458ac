"""Segments of small commits that the broker merges: who reads their columns finds the same rows, before and after."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from radiator.columns.decode import Counters
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.limits import KIB
from radiator.spark.options import parse
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.rewrite import Rewrite
from tests.spark.stores import MS, START_NS, Writer, numbered

pytestmark = pytest.mark.spark

COUNT = 2_000


def store(tmp_path: Path, body_bytes: int) -> str:
    """Several segments of commits of one record."""
    writer = Writer(tmp_path / "data", (150 + body_bytes) * COUNT // 5)
    messages = [
        each._replace(destination=f"/topic/{number % 3}", body=each.body.ljust(body_bytes, b"."))
        for number, each in enumerate(numbered("", COUNT))
    ]
    writer.write("p", messages, per_batch=1)
    writer.close()
    return writer.root


def merge(root: str) -> None:
    """All sealed segments."""
    directory = layout.partition_path(root, "p")
    bases = sorted(int(path.stem) for path in Path(directory).glob("*.rlog"))
    assert len(bases) > 3
    for base, end in pairwise(bases):
        rewrite = Rewrite(FileSystem(), directory, base, end, None, 0)
        for _ in rewrite.steps():
            pass
        assert rewrite.worth_it and rewrite.size_bytes < rewrite.old_bytes
        rewrite.swap()


COLUMNS = [arrow_schema().names, ["offset", "receive_time", "destination"], ["tags", "body"]]
GIVEN: list[dict[str, Any]] = [
    {},
    {"split_bytes": 64 * KIB},
    {"starting_offsets": 333, "ending_offsets": 1_111},
    {"start_time": START_NS + 333 * MS, "end_time": START_NS + 1_111 * MS},
]


@pytest.mark.thorough
@pytest.mark.parametrize("body_bytes", [10, 1_000])
def test_merged_segments_have_the_rows_that_they_had(body_bytes: int, tmp_path: Path) -> None:
    root = store(tmp_path, body_bytes)
    options = [parse({"path": root, **{key: str(value) for key, value in each.items()}}) for each in GIVEN]

    def rows(plans: list[Any]) -> list[list[dict[str, Any]]]:
        return [
            [
                row
                for task in tasks
                for batch in read(task, each, pa.schema([arrow_schema().field(name) for name in columns]), Counters())
                for row in batch.to_pylist()
            ]
            for tasks, each in zip(plans, options, strict=True)
            for columns in COLUMNS
        ]

    plans = [plan(each) for each in options]
    expected = rows(plans)
    assert [len(each) for each in expected] == [*[COUNT] * 6, *[778] * 6]
    merge(root)
    assert rows(plans) == expected, "as planned before"
    assert rows([plan(each) for each in options]) == expected
