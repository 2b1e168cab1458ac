"""A store to be damaged: built once by the real one, then opened over and over with other bytes in its files."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from radiator.config import Settings
from radiator.storage import layout, salt
from radiator.storage.log import Log, OpenLogs
from radiator.storage.names_recovery import Allowance
from radiator.storage.recovery import Recovered, RecoveryNote, recover
from radiator.storage.store import Store
from tests.storage.driving import BLOCK, NOW, commit, opened, read_all
from tests.storage.faults import FaultyFileSystem, Node

NAME = "q"
DIRECTORY = layout.partition_path("/data", NAME)
SEGMENT = layout.segment_path(DIRECTORY, 0)
INDEX = layout.index_path(DIRECTORY, 0)
HEAD = layout.head_path(DIRECTORY)
NAMES = layout.names_path(DIRECTORY)
SALT = layout.salt_path("/data")


class NoJournal:
    """An empty journal."""

    def next_batch(self, partition: str, start: int, end: int) -> bytes | None:
        return None

    def has(self, partition: str, offset: int, end: int) -> bool:
        return offset >= end

    def batches(self, partition: str, start: int, end: int) -> Iterator[bytes]:
        return iter(())


class MemoryFileSystem(FaultyFileSystem):
    """The twin without its second truth: for tests that open a store tens of thousands of times."""

    def _call(self, verb: str, path: str) -> None:
        pass

    def pwritev(self, fd: int, pieces: Any, position: int) -> int:
        data = b"".join(pieces)
        cache = self.descriptors[fd][1].cache
        if position > len(cache):
            cache += bytes(position - len(cache))
        cache[position : position + len(data)] = data
        return len(data)

    def truncate(self, fd: int, size: int) -> None:
        cache = self.descriptors[fd][1].cache
        del cache[size:]
        cache += bytes(size - len(cache))


class Built:
    """What was stored: the files, every body by offset, and the batches' ends and offsets."""

    def __init__(
        self, size_bytes: int, sizes: list[int], counts: list[int], seed: int = 1, segment_bytes: int = 128 << 20
    ) -> None:
        random = Random(seed)
        fs = FaultyFileSystem()
        store, _ = opened(fs)
        partition = store.partition(NAME, Settings(segment_bytes=segment_bytes))
        self.bodies: dict[int, bytes] = {}
        self.ends: list[tuple[int, int]] = []  # (position behind a batch, offset behind it), of the last segment
        at = NOW
        while not self.ends or len(self.bodies) < 4 or sum(map(len, self.bodies.values())) < size_bytes:
            for _ in range(random.choice(counts)):
                at += 1_000_000
                body = b"%d:" % len(self.bodies) + random.randbytes(random.choice(sizes))
                offset = partition.append(f"/topic/{random.randrange(4)}", BLOCK, body, at)
                self.bodies[offset] = body
            commit(store)
            log: Log = partition.log  # type: ignore[attr-defined]
            if self.ends and log.position < self.ends[-1][0]:
                self.ends.clear()
            self.ends.append((log.position, log.next_offset))
        store.close()
        self.files = {path: bytes(node.cache) for path, node in fs.nodes.items()}
        self.dirs = set(fs.dirs)
        self.key = self.files[SALT][8:24]

    def fs(self, quick: bool = False) -> FaultyFileSystem:
        """A file system with all of it, everything synced."""
        fs = MemoryFileSystem() if quick else FaultyFileSystem()
        fs.dirs, fs.disk_dirs = set(self.dirs), set(self.dirs)
        for path, data in self.files.items():
            node = fs.nodes[path] = fs.disk_names[path] = Node()
            node.cache[:] = node.disk = bytes(data)
        return fs

    def recover(self, fs: FaultyFileSystem) -> tuple[Log, Recovered, list[RecoveryNote]]:
        """Only the partition, as a start does it."""
        notes: list[RecoveryNote] = []
        log = Log(fs, DIRECTORY, NAME, Settings(), OpenLogs(), salt.of_partition(self.key, DIRECTORY))  # type: ignore[arg-type]
        return log, recover(log, notes, Allowance(), NoJournal()), notes


def whole_of(store: Store) -> dict[int, bytes]:
    """Every body that a reader of the files gets."""
    return read_all(store.partitions[NAME], memory=False)


def without_journal(fs: FaultyFileSystem) -> None:
    """Nothing can be made up for any more."""
    for path in [each for each in fs.nodes if each.startswith("/data/journal/")]:
        del fs.nodes[path]
