"""Writes ``v1-rewritten``: the sample store of version 1 with one log more, compressed, and with records removed:
``python -m tests.formats.make_rewritten``.

Run once, as ``make_sample``; what is committed then never changes again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from radiator.config import Settings
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.store import Store
from tests.clocks import both
from tests.formats.make_sample import START
from tests.storage.driving import commit
from tests.storage.rewriting import rewritten

HERE = Path(__file__).parent
ORDERS, LOG = "/queue/orders", "/topic/log"
REMOVED = {ORDERS: {0, 2, 5}, LOG: {0, 1, 2, 6, 7}}  # orders: acknowledged in the sample


def main() -> None:
    root = HERE / "v1-rewritten"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(HERE / "v1", root)
    expected: list[list[Any]] = json.loads((root / "expected.json").read_text("utf-8"))
    store = Store(str(root), FileSystem())
    store.open(both(START))
    log = store.partition(LOG, Settings(segment_bytes=1_600))
    for number in range(20):
        at, block, body = START + 1_000 * number, b"tag-level:info", b"line %d " % number * 20
        event = START - number if number % 2 else None
        offset = log.append(LOG, block, body, at, event, None)
        expected.append([LOG, offset, LOG, block.decode(), body.hex(), at, event, None])
        commit(store)
    store.close()
    (root / layout.LOCK).unlink()
    (root / layout.CURSORS / "delivered").unlink()
    for name, removed in REMOVED.items():
        segments = sorted(Path(layout.partition_path(str(root), name)).glob("*" + layout.SEGMENT_SUFFIX))
        for segment in segments[:-1]:
            base = int(segment.stem)
            data = rewritten(segment.read_bytes(), base, lambda offset, gone=removed: offset not in gone, per_batch=3)  # type: ignore[misc]
            segment.write_bytes(data)
            segment.with_suffix(layout.INDEX_SUFFIX).unlink()
    left = [each for each in expected if each[1] not in REMOVED.get(each[0], ())]
    (root / "expected.json").write_text(json.dumps(left, indent=0, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
