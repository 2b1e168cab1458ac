"""What is done apart from the group commits, one log at a time, so that nobody's receipt waits for many of them.

    take() -> units ...disk thread, between two group commits... -> the jobs of a unit are done, ``UnitDone`` the last

A unit is all that one log has to do: its file is begun and what waits for that is written and synced; or it is
synced, as the group that wrote to it has left that for later (``transaction_job``). At most AT_ONCE_MAX units are
under way: so the thread has something to do while one comes back, and a group commit that needs one of these logs waits
for no more than that. What is new meanwhile in their logs stays where it is.

Knows: which logs wait for their turn. Must not know: what is in their jobs. Hub only.
Invariants: a log has one unit under way at a time, and is in no group commit meanwhile; each has its turn, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from radiator import limits
from radiator.storage.file_partition import FilePartition
from radiator.storage.jobs import DirectoriesJob, Job, SyncJob

if TYPE_CHECKING:
    from radiator.storage.log import Log
    from radiator.storage.partition import Agenda, Partition

AT_ONCE_MAX = 2


class UnitDone(Job):
    """The last of its unit."""

    __slots__ = ("_apart", "_partition")

    def __init__(self, apart: Apart, partition: Partition) -> None:
        super().__init__()
        self._apart = apart
        self._partition = partition

    def done(self, now_ns: int) -> None:
        del self._apart.under_way[self._partition]


class Apart:
    """See the top of the file."""

    __slots__ = ("_named", "_owing", "makers", "under_way")

    def __init__(self, agenda: Agenda) -> None:
        self._owing = agenda.owing
        self.makers: dict[Partition, None] = {}  # they wait for their turn to begin a file, in order
        self.under_way: dict[Partition, None] = {}
        self._named: set[Partition] = set()  # new ones whose directories are there, or have been asked for

    def __bool__(self) -> bool:
        return bool(self.makers or self.under_way)

    def take(self, now_ns: int) -> list[list[Job]]:
        """The units that may be under way beside those that are."""
        units: list[list[Job]] = []
        while len(self.under_way) < AT_ONCE_MAX:
            owing = next(self.owing(), None)
            maker = next((each for each in self.makers if each not in self.under_way), None)
            if owing is not None and not (maker is not None and units):  # in turns
                self.under_way[owing] = None
                units.append([SyncJob(owing, needs_sync=True), UnitDone(self, owing)])
            elif maker is not None:
                units.append(self._begun(maker, now_ns))
            else:
                break
        return units

    def owing(self) -> Iterator[Partition]:
        """Those that can be synced now."""
        return (each for each in self._owing if each.failed is None and each not in self.under_way)

    def syncs(self) -> list[Job]:
        """All of them at once, for a group."""
        return [SyncJob(each, needs_sync=True) for each in self.owing()]

    def _begun(self, partition: Partition, now_ns: int) -> list[Job]:
        jobs: list[Job] = []
        if not partition.segments and partition not in self._named:
            self._named = {each for each in islice(self.makers, limits.NEW_FILES_MAX) if not each.segments}
            if len(self._named) > 1:
                jobs.append(DirectoriesJob(logs_of(self._named)))
        self.leave(partition)
        self.under_way[partition] = None
        return [*jobs, *partition.take(now_ns), UnitDone(self, partition)]

    def leave(self, partition: Partition) -> None:
        """Its turn has come, here or in a group commit."""
        del self.makers[partition]
        self._named.discard(partition)


def logs_of(partitions: Iterable[Partition]) -> list[Log]:
    """The logs that have nothing on disk yet."""
    return [each.log for each in partitions if isinstance(each, FilePartition) and not each.segments]
