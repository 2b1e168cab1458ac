"""Stores of many made-up records, for measurements of readers: the bytes that the broker's storage would write, sooner.

The batches are the storage's codec's, segments roll and are indexed as the broker's do, ``salt`` and ``head`` are as it
leaves them; only the syncs between commits are left out, so two million commits of one record take half a minute. A
record has a JSON body of 200 bytes and four headers, two of them tags; six destinations, three of them share a log.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from radiator.limits import INDEX_INTERVAL_BYTES, MIB, SEGMENT_COMMITS, ZSTD_LEVEL
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.format import encode_batch
from radiator.storage.index import IndexEntry, encode_entries, encode_head
from radiator.storage.rewrite import Rewrite, small_commits
from radiator.storage.salt import make_key, of_partition

BODY_BYTES = 200
SEGMENT_BYTES = 128 * MIB
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
LOGS = {
    "/topic/flights.JFK": ["/topic/flights.JFK"],
    "/topic/flights.LGA": ["/topic/flights.LGA"],
    "/topic/flights.EWR": ["/topic/flights.EWR"],
    "others": ["/topic/weather", "/queue/delays", "/topic/gates"],
}
CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN")


class Record(NamedTuple):
    destination: str
    block: bytes
    body: bytes
    receive_ns: int


def records(destinations: list[str], count: int, seed: int) -> Iterator[Record]:
    chance = random.Random(seed)
    bits, pick = chance.getrandbits, chance.random
    for number in range(count):
        at = START_NS + number * STEP_NS
        carrier, noise = CARRIERS[bits(3)], bits(64)
        body = (
            b'{"carrier": "%b", "flight": %d, "tailnum": "N%d", "dep_delay": %.1f, "arr_delay": %.1f, "air_time": %d, '
            b'"distance": %d, "hash": "%016x", "note": "' % (
                carrier.encode(), noise % 6000, noise % 90_000, pick() * 90 - 20, pick() * 90 - 30, noise % 400,
                noise % 2500, noise,
            )
        )  # fmt: skip
        body += b"on time, as planned; all on board"[: BODY_BYTES - 2 - len(body)]
        block = b"event-time:%d\ntransmit-time:%d\ntag-carrier:%b\ntag-origin:%b"
        origin = b"JFK" if noise & 1 else b"LGA"
        yield Record(
            destinations[number % len(destinations)],
            block % (at - 5_000_000, at - 1_000_000, carrier.encode(), origin),
            body.ljust(BODY_BYTES - 2) + b'"}',
            at,
        )


class Log:
    """One partition that is being written; ``commit`` is a group commit. ``merged``: its sealed segments will be."""

    def __init__(self, root: str, name: str, key: bytes, merged: bool) -> None:
        self._merged = merged
        self.directory = layout.partition_path(root, name)
        Path(self.directory).mkdir(parents=True)
        self.salt = of_partition(key, self.directory)
        self.next_offset = 0
        self._begin()

    def _begin(self) -> None:
        self._base, self._position, self._indexed = self.next_offset, 0, -INDEX_INTERVAL_BYTES
        self._commits = 0
        self._entries: list[IndexEntry] = []
        self._file = open(layout.segment_path(self.directory, self._base), "wb", buffering=MIB)  # noqa: SIM115  # closed by _end

    def commit(self, batch: list[Record]) -> None:
        if self._position >= SEGMENT_BYTES or (self._merged and self._commits == SEGMENT_COMMITS):
            self.roll()
        names = list(dict.fromkeys(record.destination for record in batch))
        ids = [names.index(record.destination) for record in batch]
        received = [record.receive_ns for record in batch]
        event = [at - 5_000_000 for at in received]
        sent = [at - 1_000_000 for at in received]
        blocks, bodies = [record.block for record in batch], [record.body for record in batch]
        pieces = encode_batch(self.next_offset, received, event, sent, ids, names, blocks, bodies, salt=self.salt)
        if self._position - self._indexed >= INDEX_INTERVAL_BYTES:
            self._entries.append(IndexEntry(self.next_offset, self._position, received[0]))
            self._indexed = self._position
        self._position += sum(map(self._file.write, pieces))
        self.next_offset += len(batch)
        self._commits += 1

    def roll(self) -> None:
        self._end()
        self._begin()

    def _end(self) -> None:
        self._file.close()
        index = encode_head(self._base) + encode_entries(self._entries)
        Path(layout.index_path(self.directory, self._base)).write_bytes(index)

    def close(self) -> None:
        self._end()
        head = layout.encode_head(self._base, self._position, self.next_offset)
        Path(layout.head_path(self.directory)).write_bytes(head.ljust(layout.HEAD_FILE_BYTES, b"\0"))


def write_store(root: str, count: int, per_commit: int, rolled: bool = False, merged: bool = True) -> None:
    """A data directory with ``count`` records, so many in each commit. ``rolled``: as after the hour of ``roll_at``,
    with an empty segment for what comes next, so that all of them are in sealed ones. ``merged``: segments end where
    they do if small commits are merged, or compressed; which is left to others."""
    Path(root).mkdir(parents=True)
    key = make_key(FileSystem(), root)
    for seed, (name, destinations) in enumerate(LOGS.items()):
        share = count // len(LOGS) + (seed < count % len(LOGS))
        log, batch = Log(root, name, key, merged), []
        for record in records(destinations, share, seed):
            batch.append(record)
            if len(batch) == per_commit:
                log.commit(batch)
                batch = []
        if batch:
            log.commit(batch)
        if rolled:
            log.roll()
        log.close()


def compress_sealed(root: str, logs: Iterable[str] = LOGS) -> None:
    """Rewrites every sealed segment as the broker does by itself for a log with ``compress: zstd``."""
    for rewrite in _sealed(root, logs, ZSTD_LEVEL):
        _done(rewrite)


def merge_sealed(root: str, logs: Iterable[str] = LOGS) -> None:
    """Rewrites those sealed segments that the broker does by itself with ``merge_commits: true``."""
    for rewrite in _sealed(root, logs, 0):
        if small_commits(rewrite.fs, rewrite.path, rewrite.end_offset):
            _done(rewrite)


def _sealed(root: str, logs: Iterable[str], level: int) -> Iterator[Rewrite]:
    fs = FileSystem()
    for name in logs:
        directory = layout.partition_path(root, name)
        bases = [layout.segment_base(path.name) for path in Path(directory).iterdir()]
        for base, end in pairwise(sorted(base for base in bases if base is not None)):
            yield Rewrite(fs, directory, base, end, None, level)


def _done(rewrite: Rewrite) -> None:
    for _ in rewrite.steps():
        pass
    rewrite.swap()
