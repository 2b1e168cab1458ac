"""Writes the sample store of the present format version: ``python -m tests.formats.make_sample``.

Run once per format version, before its first release; what is committed then never changes again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from radiator.config import Settings
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.header import FORMAT_VERSION
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import commit

START = 1_700_000_000_000_000_000


def main() -> None:
    root = Path(__file__).parent / f"v{FORMAT_VERSION}"
    shutil.rmtree(root, ignore_errors=True)
    store = Store(str(root), FileSystem())
    store.open(both(START))
    expected = []

    def add(
        partition: str, destination: str, block: bytes, body: bytes, event: int | None, transmit: int | None
    ) -> None:
        at = START + 1_000 * len(expected)
        offset = store.partitions[partition].append(destination, block, body, at, event, transmit)
        expected.append([partition, offset, destination, block.decode(), body.hex(), at, event, transmit])

    store.partition("/queue/orders", Settings(segment_bytes=700))
    store.partition("weather-ä", Settings())
    for number in range(12):  # batches of one, over several segments
        add("/queue/orders", "/queue/orders", b"content-type:text/plain", b"order %d" % number, None, START)
        commit(store)
    for number in range(9):  # batches of three, several destinations, times here and there, an escaped header
        event = START - number if number % 2 else None
        block = b"tag-city:K\\cln\nid:%d" % number if number % 4 else b""
        add("weather-ä", f"/topic/weather.{'ABC'[number % 3]}", block, bytes(range(number)), event, None)
        if number % 3 == 2:
            commit(store)
    cursor = store.cursors.open("queue:/queue/orders", "/queue/orders", 0)
    cursor.ack([0, 1, 2, 5])
    cursor.set_count(3, 2)
    commit(store)
    store.close()
    store = Store(str(root), FileSystem())  # folds the journal into a snapshot, and begins another
    store.open(both(START))
    store.cursors.open("queue:/queue/orders", "/queue/orders", 0).ack([3])
    store.cursors.open("durable", "weather-ä", 4)
    commit(store)
    store.close()
    (root / layout.LOCK).unlink()
    (root / layout.CURSORS / "delivered").unlink()  # a megabyte of hints
    (root / "expected.json").write_text(json.dumps(expected, indent=0, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
