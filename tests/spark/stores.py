"""Stores for the tests, written by the broker's own storage: never by a second encoder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from radiator.config import Settings
from radiator.config.load import load_text
from radiator.server.hooks import register_schemas
from radiator.storage.files import FileSystem
from radiator.storage.store import Store
from tests.clocks import both

START_NS = 1_700_000_000_000_000_000  # 2023-11-14T22:13:20Z
MS = 1_000_000


class Message(NamedTuple):
    destination: str
    body: bytes = b""
    block: bytes = b""
    receive_ns: int = START_NS
    event_ns: int | None = None
    transmit_ns: int | None = None


class Writer:
    """A store that is being written; ``commit`` is one group commit, as the broker's disk thread makes it."""

    def __init__(self, root: object, segment_bytes: int = 64 << 20) -> None:
        self.root = str(root)
        self.options = Settings(segment_bytes=segment_bytes)
        self.store = Store(self.root, FileSystem())
        self.store.open(both(START_NS))

    def append(self, partition: str, messages: Iterable[Message]) -> None:
        log = self.store.partition(partition, self.options)
        for each in messages:
            log.append(each.destination, each.block, each.body, each.receive_ns, each.event_ns, each.transmit_ns)

    def commit(self, now_ns: int = START_NS) -> None:
        jobs = self.store.take(both(now_ns))
        for job in jobs:
            job.write()
        for job in jobs:
            if job.needs_sync:
                job.sync()
            job.done(both(now_ns))
            assert job.error is None

    def write(self, partition: str, messages: Iterable[Message], per_batch: int = 100) -> None:
        pending = list(messages)
        for start in range(0, len(pending), per_batch):
            self.append(partition, pending[start : start + per_batch])
            self.commit()

    def close(self) -> None:
        self.store.close()


def register_rules(root: Path, data: str, rules: str, **schemas: Any) -> list[str]:
    """What the broker does at a start with these rules: ``{root}/<name>.json`` in them are the schemas."""
    for name, schema in schemas.items():
        (root / f"{name}.json").write_text(json.dumps(schema))
    return register_schemas(load_text(rules.format(root=root), "r.yaml").rules, "r.yaml", FileSystem(), data)


def numbered(destination: str, count: int, first: int = 0, step_ns: int = MS, **tags: str) -> list[Message]:
    """Messages that say their own number in body, header and time."""
    lines = "".join(f"\ntag-{key}:{value}" for key, value in tags.items())
    return [
        Message(
            destination,
            b"body %d" % number,
            f"number:{number}{lines}".encode(),
            START_NS + number * step_ns,
            START_NS + number * step_ns - 2 * MS if number % 3 else None,
            START_NS + number * step_ns - MS if number % 2 else None,
        )
        for number in range(first, first + count)
    ]
