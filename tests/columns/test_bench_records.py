"""The store that reading is measured with is what the broker's own storage would have left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from radiator.columns.decode import Counters
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.spark.options import parse
from radiator.storage.files import FileSystem
from radiator.storage.store import PartitionOptions, Store
from tests.bench import records
from tests.bench.records import LOGS, START_NS, write_store

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("per_commit", [1, 7])
def test_the_store_is_whole_and_the_storage_opens_it(
    tmp_path: Path, per_commit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SEGMENT_BYTES", 128 << 10)
    root = str(tmp_path / "data")
    write_store(root, 2_001, per_commit)
    options = parse({"path": root, "split_bytes": "70000"})
    batches = [batch for ranges in plan(options) for batch in read(ranges, options, arrow_schema(), Counters())]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len({row["message_id"] for row in rows}) == len(rows) == 2_001
    assert {row["size"] for row in rows} == {200}
    assert {len(row["headers"]) for row in rows} == {4} and {len(row["tags"]) for row in rows} == {2}
    found = Counter(row["partition"] for row in rows)
    store = Store(root, FileSystem())
    store.open(START_NS)
    assert {name: store.partition(name, PartitionOptions()).high_watermark for name in LOGS} == found
    store.close()
