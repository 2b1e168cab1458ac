"""The store that reading is measured with is what the broker's own storage would have left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from radiator.columns.decode import Counters
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.config import Settings
from radiator.spark.options import parse
from radiator.storage.files import FileSystem
from radiator.storage.store import Store
from tests.bench import records
from tests.bench.records import LOGS, START_NS, compress_sealed, merge_sealed, write_store
from tests.clocks import both

pytestmark = pytest.mark.spark


def rows_of(root: str) -> list[dict[str, Any]]:
    options = parse({"path": root, "split_bytes": "70000"})
    batches = [batch for ranges in plan(options) for batch in read(ranges, options, arrow_schema(), Counters())]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("per_commit", [1, 7])
def test_the_store_is_whole_and_the_storage_opens_it(
    tmp_path: Path, per_commit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SEGMENT_BYTES", 128 << 10)
    root = str(tmp_path / "data")
    write_store(root, 2_001, per_commit)
    rows = rows_of(root)
    assert len({row["message_id"] for row in rows}) == len(rows) == 2_001
    assert {row["size"] for row in rows} == {200}
    assert {len(row["headers"]) for row in rows} == {4} and {len(row["tags"]) for row in rows} == {2}
    found = Counter(row["partition"] for row in rows)
    store = Store(root, FileSystem())
    store.open(both(START_NS))
    assert {name: store.partition(name, Settings()).high_watermark for name in LOGS} == found
    store.close()


def test_compressed_it_is_smaller_and_has_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SEGMENT_BYTES", 64 << 10)
    root = tmp_path / "data"
    write_store(str(root), 2_001, 1)
    before, rows = [path.stat().st_size for path in sorted(root.rglob("*.rlog"))], rows_of(str(root))
    compress_sealed(str(root))
    after = [path.stat().st_size for path in sorted(root.rglob("*.rlog"))]
    smaller = sum(new < old / 2 for new, old in zip(after, before, strict=True))
    assert smaller == len(before) - len(LOGS)  # all but the last one of each log
    by_id = {row["message_id"]: row for row in rows}
    assert {row["message_id"]: row for row in rows_of(str(root))} == by_id


def test_rolled_and_merged_every_record_is_in_a_large_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SEGMENT_BYTES", 64 << 10)
    root = tmp_path / "data"
    write_store(str(root), 2_001, 1, rolled=True)
    before, rows = sum(path.stat().st_size for path in root.rglob("*.rlog")), rows_of(str(root))
    assert sum(path.stat().st_size == 0 for path in root.rglob("*.rlog")) == len(LOGS)
    merge_sealed(str(root))
    assert sum(path.stat().st_size for path in root.rglob("*.rlog")) < 0.8 * before
    counters = Counters()
    options = parse({"path": str(root)})
    found = [batch for ranges in plan(options) for batch in read(ranges, options, arrow_schema(), counters)]
    assert counters.batches_checked < 40 and counters.rows == 2_001
    by_id = {row["message_id"]: row for row in rows}
    assert {row["message_id"]: row for batch in found for row in batch.to_pylist()} == by_id
