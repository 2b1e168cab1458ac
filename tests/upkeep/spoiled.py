"""A store in real files that a test spoils, and what fsck and repair say of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack_into
from zlib import crc32

from radiator.config import Settings
from radiator.storage import format as codec
from radiator.storage import layout
from radiator.storage.salt import of_partition
from radiator.upkeep.findings import Finding
from radiator.upkeep.fsck import Fsck
from radiator.upkeep.repair import Repair
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all

QUEUE = "/queue/a"
KNOWN = {"quarantined", "kept", "foreign", "contradiction", "times", "salt", "trailing"}  # that no repair changes


class Made:
    """A store in real files: one queue over several segments, one shared log, a cursor; stopped as it should be."""

    def __init__(self, root: Path) -> None:
        self.root = str(root / "data")
        store, _ = opened(root=self.root)
        partition = store.partition(QUEUE, Settings(segment_bytes=100_000))
        shared = store.partition("shared", ALWAYS)
        self.counts = []
        for number in range(60):
            bodies = [b"%d.%d " % (number, each) * 500 for each in range(number % 3 + 1)]
            put(partition, *bodies, destination=QUEUE, at=NOW + number)
            put(shared, b"x", destination=f"/topic/{number % 4}")
            commit(store)
        cursor = store.cursors.open(f"queue:{QUEUE}", QUEUE, 0)
        cursor.ack([0, 1, 2, 7, 8])
        commit(store)
        self.directory = partition.directory
        self.shared = shared.directory
        self.bases = [segment.base_offset for segment in partition.segments]
        assert len(self.bases) > 1
        self.bodies = read_all(partition, memory=False)
        store.close()
        reopened, _ = opened(root=self.root)  # folds the journal into a snapshot
        reopened.cursors.open(f"queue:{QUEUE}", QUEUE, 0).ack([9])
        commit(reopened)
        reopened.close()

    def path(self, name: str) -> Path:
        return Path(self.directory) / name

    def segment(self, number: int) -> Path:
        return Path(layout.segment_path(self.directory, self.bases[number]))

    def index(self, number: int) -> Path:
        return Path(layout.index_path(self.directory, self.bases[number]))

    def batches(self, number: int) -> list[tuple[int, codec.BatchHeader]]:
        data, at, found = self.segment(number).read_bytes(), 0, []
        while at < len(data):
            found.append((at, codec.decode_header(data, at)))
            at += found[-1][1].total_len
        return found

    def flip(self, path: Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0x20
        path.write_bytes(data)

    def rewrite(self, number: int, place: int, change: Callable[[bytearray, codec.BatchHeader], None]) -> None:
        """Changes a batch, and gives it a crc that holds."""
        at, header = self.batches(number)[place]
        path = self.segment(number)
        data = bytearray(path.read_bytes())
        batch = data[at : at + header.total_len]
        change(batch, header)
        pack_into("<I", batch, 12, crc32(batch[16:]))
        data[at : at + header.total_len] = batch
        path.write_bytes(data)


def check(root: str, *only: str) -> list[Finding]:
    return list(Fsck(root).run(set(only) or None))


def kinds(root: str) -> list[str]:
    return [finding.kind for finding in check(root)]


def repair(root: str) -> tuple[list[str], list[Finding]]:
    with Repair(root, both(NOW)) as mending:
        done = list(mending.run(*mending.check()))
        _, left, more = mending.recheck()
    return done + more, left


def mended(root: str) -> None:
    """A second repair has nothing to do, and no damage is left that is not known."""
    done, left = repair(root)
    assert done == []
    assert {finding.kind for finding in left} <= KNOWN


def uncommitted(made: Made, *pieces: bytes) -> None:
    with made.segment(-1).open("ab") as file:
        file.write(b"".join(pieces))


def next_batch(made: Made, offset: int | None = None) -> bytes:
    key = (Path(made.root) / layout.SALT).read_bytes()[8:24]
    mark = of_partition(key, made.directory)
    base = len(made.bodies) if offset is None else offset
    return b"".join(codec.encode_batch(base, [NOW + 99], None, None, [0], [QUEUE], [b""], [b"!"], salt=mark))
