"""The logs that the next checkpoint has to sync, and the batches that are in the journal and in no segment.

Every write to a segment is noted here. A checkpoint takes what was noted since the one before. Belongs to the disk
thread.
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
    """The log of a batch that could not be written, and the file of the journal to which a checkpoint has copied it."""

    log: Log
    file: int  # 0: to none


class DirtyLogs:
    """Those of one store.

    Args:
        fs: the file system.
        root: the data directory.
        journal: has everything that is not synced in a segment.
    """

    __slots__ = ("_fs", "_root", "_unwritten", "_written", "journal")

    def __init__(self, fs: FileSystem, root: str, journal: Journal) -> None:
        self.journal = journal
        self._fs = fs
        self._root = root
        self._written: dict[Log, None] = {}
        self._unwritten: dict[RecordBatch, Unwritten] = {}

    def written(self, log: Log, again: RecordBatch | None = None) -> None:
        """Note that the segment of a log has something that is not synced.

        Args:
            log: the log.
            again: the batch that was written, if that had failed before.
        """
        self._written[log] = None
        if again is not None:
            self._unwritten.pop(again, None)

    def not_written(self, log: Log, batch: RecordBatch) -> None:
        """Note that a batch is in the journal, and could not be written to its segment."""
        self._unwritten.setdefault(batch, Unwritten(log, 0))

    def take(self) -> dict[Log, None]:
        """Return the logs that were noted since the last call."""
        written, self._written = self._written, {}
        return written

    def written_logs(self) -> list[Log]:
        """Return the logs that were noted since ``take``. Any thread."""
        return list(self._written)

    def batches(self, partition: str, start: int, end: int) -> Iterator[bytes]:
        """Yield the batches that the journal has of a partition, from one offset up to another. Raises OSError."""
        yield from JournalFiles(self._fs, self._root).batches(partition, start, end)

    def copy_unwritten(self, first_needed: int) -> None:
        """Write batches that are in no segment to the present file of the journal.

        Args:
            first_needed: the first file of the journal that stays; a batch that has a copy from there on is not copied.

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
