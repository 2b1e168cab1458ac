"""The logs that the next checkpoint must sync, and the batches that are in the journal and in no segment.

Every write to a segment is noted here. A checkpoint takes the logs that were written since the one before. The disk
thread owns it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from radiator.storage.batch import RecordBatch
from radiator.storage.files import FileSystem
from radiator.storage.journal.format import EntryBuilder
from radiator.storage.journal.journal import Journal
from radiator.storage.journal.reading import JournalFiles
from radiator.storage.log import Log


class Unwritten(NamedTuple):
    """The log of a batch that could not be written, and the file of the journal that has a copy of the batch."""

    log: Log
    file: int  # 0: to none


class DirtyLogs:
    """The written logs and the unwritten batches of a store.

    Args:
        fs: The file system.
        root: The data directory.
        journal: Has everything that is not synced in a segment.
    """

    __slots__ = ("_fs", "_root", "_unwritten", "_written", "journal")

    def __init__(self, fs: FileSystem, root: str, journal: Journal) -> None:
        self.journal = journal
        self._fs = fs
        self._root = root
        self._written: dict[Log, None] = {}
        self._unwritten: dict[RecordBatch, Unwritten] = {}

    def written(self, log: Log, again: RecordBatch | None = None) -> None:
        """Note that the segment of a log has unsynced bytes.

        Args:
            log: The log.
            again: The batch that was written, if that had failed before.
        """
        self._written[log] = None
        if again is not None:
            self._unwritten.pop(again, None)

    def not_written(self, log: Log, batch: RecordBatch) -> None:
        """Note that a batch is in the journal, and could not be written to its segment."""
        self._unwritten.setdefault(batch, Unwritten(log, 0))

    def forget(self, log: Log) -> None:
        """Drop a log that is removed."""
        self._written.pop(log, None)

    def take(self) -> dict[Log, None]:
        """Return the logs that were written since the last call."""
        written, self._written = self._written, {}
        return written

    def written_logs(self) -> list[Log]:
        """Return the logs that were written since ``take``. Any thread may call it."""
        return list(self._written)

    def batches(self, partition: str, start: int, end: int) -> Iterator[bytes]:
        """Yield the batches that the journal has of a partition, from one offset to another. Raises OSError."""
        yield from JournalFiles(self._fs, self._root).batches(partition, start, end)

    def copy_unwritten(self, first_needed: int) -> None:
        """Write batches that are in no segment to the present file of the journal.

        Args:
            first_needed: The first file of the journal that stays; a batch with a copy from there on is not copied.

        Raises:
            StorageError: The journal cannot be written or synced.
        """
        missing = [(batch, each.log) for batch, each in self._unwritten.items() if each.file < first_needed]
        if not missing:
            return
        entry = EntryBuilder()
        for batch, log in missing:
            entry.add_batch(log.name.encode(), log.encode(batch))
        self.journal.write(entry)
        self.journal.sync()
        for batch, log in missing:
            self._unwritten[batch] = Unwritten(log, self.journal.file_number)
