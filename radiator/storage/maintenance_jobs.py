"""Jobs of the maintenance thread: rewrite one segment, or scan a log for replaced records.

    event loop           job.begin()      is there still something to do?
    maintenance thread   job.run(may_continue)   called between short steps; False: give up, the broker stops
    event loop           job.finish()     the result becomes visible

A job belongs to one thread at a time. Errors stay in the job; an unfinished file is removed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from radiator import limits
from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.compaction import KeyOf, Keys, Replaced
from radiator.storage.files import FileSystem, opened, read_file, storage_error
from radiator.storage.header import DamagedBatch
from radiator.storage.jobs import AfterAcksJob
from radiator.storage.rewrite import Rewrite, compressed, keep_outside, runs, small_commits, split, worth_rewriting
from radiator.storage.segment import SegmentInfo
from radiator.storage.segment_states import Event
from radiator.storage.settled_scan import Settled

if TYPE_CHECKING:
    from radiator.storage.file_partition import FilePartition

MayContinue = Callable[[], bool]


class SettledJob(AfterAcksJob):
    """Wait for the acks of a turn, before anything relies on them."""

    __slots__ = ("on_done",)

    def __init__(self, partition: FilePartition, on_done: Callable[[SettledJob], None]) -> None:
        super().__init__(partition)
        self.on_done = on_done

    def done(self, now: Now) -> None:
        """Report the result."""
        self.on_done(self)


class MaintenanceJob(ABC):
    """The base of jobs of the maintenance thread."""

    def __init__(self, partition: FilePartition) -> None:
        self.partition = partition
        self.fs: FileSystem = partition.fs
        self.error: StorageError | None = None
        self.damage = ""
        self.stopped = False

    def begin(self) -> bool:
        """Return whether there is still something to do. The event loop calls it."""
        return True

    def run(self, may_continue: MayContinue) -> None:
        """Do all steps, on the maintenance thread."""
        steps = self.steps()
        try:
            for _ in steps:
                if not may_continue():
                    self.stopped = True
                    break
        except DamagedBatch as damage:
            self.damage = str(damage)
        except OSError as error:
            self.error = storage_error(self.partition.directory, "rewrite a segment", error)
        except StorageError as error:
            self.error = error
        finally:
            steps.close()  # type: ignore[attr-defined]

    @abstractmethod
    def steps(self) -> Iterator[None]:
        """Do the work in short steps, and yield after each."""

    def finish(self) -> None:  # noqa: B027 - of a search there is nothing to tell
        """Make the result visible. The event loop calls it."""


class Compaction:
    """One compaction of a log, from the scan to the last rewritten segment, maybe in several passes."""

    def __init__(self, key_of: KeyOf, keys_max: int) -> None:
        self.key_of = key_of
        self.keys = Keys(keys_max)
        self.replaced: Replaced | None = None
        self.tombstones_before_ns = 0
        self.tombstones_go = True
        self.end_offset = 0

    def begin(self, end_offset: int, tombstones_before_ns: int, tombstones_go: bool) -> None:
        """Begin a pass over the log up to ``end_offset``."""
        self.keys.clear()
        self.end_offset = end_offset
        self.tombstones_before_ns = tombstones_before_ns
        self.tombstones_go = tombstones_go

    def keep_tombstones(self) -> None:
        """Keep tombstones: the records that they replace may still be stored."""
        self.tombstones_go = False

    def next_class(self) -> bool:
        """Go on with the next class of keys. Return False after the last one."""
        return self.keys.next_class()


class ScanJob(MaintenanceJob):
    """Find the records of a log that a later record replaces, which must be on disk to count."""

    def __init__(self, partition: FilePartition, compaction: Compaction, sealed: list[tuple[SegmentInfo, int]]) -> None:
        super().__init__(partition)
        self.compaction = compaction
        self.sealed = sealed
        self.damaged = False
        last = sealed[-1][1]
        self._rest = [segment.base_offset for segment in partition.segments if segment.base_offset >= last]

    def steps(self) -> Iterator[None]:
        """Scan the log."""
        never = self.partition.settings.sync.never
        spans = [(segment.base_offset, end) for segment, end in self.sealed]
        compaction = self.compaction
        compaction.replaced = replaced = Replaced(
            spans, compaction.key_of, compaction.keys, compaction.tombstones_before_ns
        )
        for base, end in spans:
            if never:
                self._sync(base)
            yield from self._scan(replaced, base, end)
        head = layout.decode_head(read_file(self.fs, layout.head_path(self.partition.directory)) or b"")
        for base, following in zip(self._rest, [*self._rest[1:], None], strict=True):
            end = following if following is not None else self._safe_end(head, base, never)
            if following is not None and never:
                self._sync(base)
            if end > base:
                yield from self._scan(replaced, base, end)

    def _safe_end(self, head: layout.Head | None, base: int, never: bool) -> int:
        """Return up to where the active segment is on disk."""
        if head is None or never or head.segment_base < base:
            return base
        return head.next_offset if head.segment_base == base else head.segment_base

    def _sync(self, base: int) -> None:
        path = layout.segment_path(self.partition.directory, base)
        with suppress(FileNotFoundError), opened(self.fs, self.fs.open(path)) as fd:  # retention may have deleted it
            self.fs.fdatasync(fd)

    def _scan(self, replaced: Replaced, base: int, end: int) -> Iterator[None]:
        expected = base
        try:
            for batch in runs(self.fs, self.partition.directory, base, end):
                self.damaged |= batch.base_offset != expected
                expected = batch.next_offset
                yield
                for few in split(batch):
                    yield from replaced.scan(few)
                    yield
        except FileNotFoundError:
            return  # deleted by retention
        self.damaged |= expected < end

    def affected(self) -> list[tuple[SegmentInfo, int]]:
        """Return the segments that have replaced records."""
        replaced = self.compaction.replaced
        assert replaced is not None
        old = replaced.old_tombstones if self.compaction.tombstones_go else [0] * len(self.sealed)
        return [each for each, *counts in zip(self.sealed, replaced.counts, old, strict=True) if any(counts)]


class SegmentJob(MaintenanceJob):
    """Rewrite one segment: without ``settled`` intervals, or without replaced records of ``compaction``.

    With neither, all records are compressed or merged.
    """

    def __init__(
        self,
        partition: FilePartition,
        info: SegmentInfo,
        end_offset: int,
        settled: Settled | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        super().__init__(partition)
        self.info = info
        self.end_offset = end_offset
        self.settled = settled
        self.compaction = compaction
        self.level = limits.ZSTD_LEVEL if partition.settings.compress else 0
        self.merges = not self.level and settled is None and compaction is None
        self.path = layout.segment_path(partition.directory, info.base_offset)
        self.rewrite: Rewrite | None = None

    def begin(self) -> bool:
        """Lock the segment against retention. Return whether it still exists."""
        if not (self.partition.is_healthy and self.info.can(Event.REWRITE)):
            return False
        self.info.on(Event.REWRITE)
        return True

    def steps(self) -> Iterator[None]:
        """Write the new segment, and replace the old one if that is worth it."""
        fs, directory, base = self.fs, self.partition.directory, self.info.base_offset
        keep = None
        if self.settled is not None:
            keep = keep_outside(self.settled.intervals)
            if not (yield from worth_rewriting(fs, directory, base, self.end_offset, keep)):
                return
        elif self.compaction is not None:
            assert self.compaction.replaced is not None
            keep = self.compaction.replaced.keep(self.compaction.tombstones_go)
        elif not small_commits(fs, self.path, self.end_offset) if self.merges else compressed(fs, self.path):
            return
        self.rewrite = rewrite = Rewrite(fs, directory, base, self.end_offset, keep, self.level)
        try:
            yield from rewrite.steps()
            if rewrite.worth_it:
                rewrite.swap()
        finally:
            if not rewrite.swapped:
                rewrite.discard()

    def finish(self) -> None:
        """Report the new size and the removed records to the partition."""
        partition, rewrite = self.partition, self.rewrite
        self.info.on(self._ended())
        if self.settled is not None and not (self.stopped or self.error):
            self.info.leave(self.settled.unsettled + 1)
        if rewrite is not None and rewrite.swapped:
            self.info.rewritten(rewrite.size_bytes, rewrite.sparse)
            if rewrite.removed:
                partition.removed(self.info.base_offset, self.end_offset)
            partition.set_deadlines()
        partition.want_retention()

    def _ended(self) -> Event:
        """Return what the job was for the segment."""
        if self.damage:
            return Event.DAMAGE
        if self.stopped or self.error or (self.rewrite is None and self.settled is not None):
            return Event.ABANDON
        return Event.COMPRESS if self.level else Event.MERGE
