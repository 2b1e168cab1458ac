"""The store that a mirror writes: the records of another store at their own offsets, with their own times.

Missing offsets are of two kinds. Lost offsets (``gap``) are left out between two batches, so that readers of the copy
get a ``gap`` as well. Records removed on purpose (compaction, settled messages, retention), and destinations that the
mirror does not follow, become a sparse batch, as in a compacted log.

This module knows a Store and batches. It does not know connections or clocks. One thread. It locks its directory.
Invariant: ``ends[partition]`` is one above the last record added; what ``sync`` has covered survives a power cut, and
lost records are fetched again, since a mirror continues at the end of its files.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from radiator import limits
from radiator.checksum import crc32
from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage.batch import RecordBatch
from radiator.storage.copies import begin_mirror
from radiator.storage.file_partition import AppendJob, FilePartition
from radiator.storage.files import FileSystem
from radiator.storage.header import MISSING
from radiator.storage.store import RecoveryNote, Settings, Store, SyncPolicy

PENDING_BYTES_MAX = 4 * limits.MIB  # gathered before it is written
PENDING_RECORDS_MAX = 16_384
TAIL_BYTES_MAX = limits.MIB  # a mirror has no readers
SETTINGS = Settings(sync=SyncPolicy(1_000_000_000))  # syncs are made by ``sync`` only


class Record(NamedTuple):
    """A message as it is stored.

    ``lost``: the source has lost the offsets before it. ``removed``: the source has removed them on purpose, by
    retention or because they were settled.
    """

    offset: int
    destination: str
    receive_ns: int
    event_ns: int | None
    transmit_ns: int | None
    block: bytes
    body: bytes
    lost: bool = False
    removed: bool = False

    @property
    def digest(self) -> tuple[int, int]:
        """The receive time and a crc, to compare records."""
        return self.receive_ns, crc32(self.body, crc32(self.block))


class Copy:
    """The store of a mirror."""

    def __init__(self, root: str, fs: FileSystem | None = None) -> None:
        self._store = Store(root, fs or FileSystem(), tail_bytes_max=TAIL_BYTES_MAX)
        self.ends: dict[str, int] = {}
        self.records = 0  # added by this run
        self.lost = 0  # offsets that the source has lost
        self.removed = 0  # offsets that the source had removed before they were copied
        self._pending: dict[str, list[Record]] = {}
        self._pending_bytes = self._pending_records = 0
        self._last: dict[str, tuple[int, int]] = {}
        self._unsynced: dict[str, FilePartition] = {}

    def open(self, now: Now) -> list[RecoveryNote]:
        """Open the store. Raises StorageError, also if another process has the directory."""
        notes = self._store.open(now)
        begin_mirror(self._store.fs, self._store.root)
        self.ends = {name: partition.next_offset for name, partition in self._store.partitions.items()}
        return notes

    @property
    def full(self) -> bool:
        """Whether it is time to ``flush``."""
        return self._pending_bytes >= PENDING_BYTES_MAX or self._pending_records >= PENDING_RECORDS_MAX

    def add(self, partition: str, record: Record) -> None:
        """Add the next record of a partition, which ``flush`` writes."""
        end = self.ends.get(partition, 0)
        assert record.offset >= end
        if record.lost and end:
            self.lost += record.offset - end
        elif record.removed and end:
            self.removed += record.offset - end
        self._pending.setdefault(partition, []).append(record)
        self._pending_bytes += len(record.block) + len(record.body)
        self._pending_records += 1
        self.ends[partition] = record.offset + 1
        self._last[partition] = record.digest
        self.records += 1

    def last(self, partition: str) -> tuple[int, int] | None:
        """Return the digest of the last record; None if it cannot be read."""
        if partition not in self._last:
            log, offset = self._store.partitions[partition], self.ends[partition] - 1
            job = log.fetch(offset)
            if not job.finished:
                job.run()
            job.done()
            batch = job.result
            index = batch.index_at(offset) if batch is not None else 0
            if batch is None or index >= len(batch) or batch.offsets[index] != offset:
                return None
            found = (batch.blocks[index], batch.bodies[index])
            self._last[partition] = batch.receive_ns[index], crc32(found[1], crc32(found[0]))
        return self._last[partition]

    def flush(self, now: Now) -> None:
        """Write what was added. Raises StorageError."""
        pending, self._pending = self._pending, {}
        self._pending_bytes = self._pending_records = 0
        for name, records in pending.items():
            log = self._store.partition(name, SETTINGS)
            assert isinstance(log, FilePartition)
            self._unsynced[name] = log
            for run in _runs(records):
                self._write(log, run, now)

    def _write(self, log: FilePartition, records: list[Record], now: Now) -> None:
        first = records[0]
        begins = first.lost or not (log.next_offset or log.segments)  # no hole, and no claim, before the first record
        batch = _batch(records, first.offset if begins else log.next_offset)
        job = AppendJob(log, batch, None, False, False)
        if batch.next_offset - batch.base_offset != len(batch):
            job.set_encoded(_sparse(batch, log.log.salt))
        log.adopt_batch(batch)
        job.write()
        job.done(now)
        if job.error is not None:
            raise job.error

    def sync(self) -> None:
        """Sync everything flushed. Raises StorageError."""
        unsynced, self._unsynced = self._unsynced, {}
        for log in unsynced.values():
            log.log.sync()

    def close(self, now: Now) -> None:
        """Write what was added, and close the store cleanly."""
        try:
            self.flush(now)
        finally:
            self._store.close()


def _runs(records: list[Record]) -> list[list[Record]]:
    """Return the records in runs, split at losses and where a batch would be too large."""
    runs: list[list[Record]] = []
    size = 0
    for record in records:
        cost = len(record.block) + len(record.body) + len(record.destination)
        if not runs or record.lost or size + cost > limits.BATCH_BYTES_MAX:
            runs.append([])
            size = 0
        runs[-1].append(record)
        size += cost
    return runs


def _batch(records: list[Record], base: int) -> RecordBatch:
    """Return the batch that covers the offsets from ``base`` on."""
    ids: dict[str, int] = {}
    offsets = array("Q", [record.offset for record in records])
    dense = records[-1].offset - base + 1 == len(records)
    return RecordBatch(
        range(base, base + len(records)) if dense else offsets,
        [record.receive_ns for record in records],
        _times([record.event_ns for record in records]),
        _times([record.transmit_ns for record in records]),
        [ids.setdefault(record.destination, len(ids)) for record in records],
        list(ids),
        [record.block for record in records],
        [record.body for record in records],
        sum(len(record.block) + len(record.body) for record in records),
        base,
    )


def _times(values: list[int | None]) -> list[int] | None:
    if all(value is None for value in values):
        return None
    return [MISSING if value is None else value for value in values]


def _sparse(batch: RecordBatch, salt: int) -> list[bytes]:
    deltas = [offset - batch.base_offset for offset in batch.offsets]
    if deltas[-1] >= 1 << 32:
        raise StorageError(f"offsets {batch.base_offset} to {batch.offsets[-1]}: a gap larger than a batch can encode")
    return batch.encode(salt, deltas)
