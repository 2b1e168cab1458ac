"""What neither archive nor log has, and whether it matters to who asks: a hole counts if it may hold a wanted record.

Told from the outside, by what lies around it and by what the broker keeps:

    offsets        those of the hole itself
    receive time   it never falls within a partition, so a hole lies between the times of its neighbours
    destination    the broker's list of the names that a partition has held, and what the files of the archive list. Of
                   an archive alone: a partition in which every file has just the destination after which it is named
    settled        a log of queues alone, all of which are behind the hole: that is told, and is no loss
    never had      what a log that the archive does not know yet lacks at its beginning: told likewise, as it may have
                   gone before there was an archive
    elsewhere      but not where retention was told that it is archived: then this archive has not what one has had

Where it cannot be told, it may hold one.

Knows: states of archives, listings, names and cursors of a store. Must not know: records, Spark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from radiator.archive.lookup import reason
from radiator.archive.manifest import DataFile, State
from radiator.columns.files import Place
from radiator.columns.heads import End, Holdings, ends
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.storage.reader import StoredCursor, StoredPartition, list_cursors
from radiator.storage.time_window import first_ns

QUEUE = "queue:"  # cursors of queues begin with it
REMOVED = "retention has removed them, and the archive does not have them; retention.wait_for: archive makes it wait"
REMOVED_OR_SETTLED = (
    "retention has removed them, or the broker as settled messages of a queue, and the archive does not have them; "
    "retention.wait_for: archive makes both wait"
)
SETTLED_BEFORE = (
    "its queues were through with them, and they were removed before they were archived; retention.wait_for: archive "
    "makes that wait"
)
BEFORE_ARCHIVE = (
    "they were gone before the archive had anything of this partition; retention.wait_for: archive keeps what is "
    "written from then on"
)
ELSEWHERE = (
    "retention was told that they are archived, and they are not in this archive: its last commits are gone (restore "
    "_log/), or it is not mounted here, or they are in another one"
)


class OffsetGap(NamedTuple):
    partition: str
    first: int
    following: int
    why: str
    settled: bool  # by all the queues that its log had, which has nothing else; or no archive was ever to have it

    def __str__(self) -> str:
        return f"partition {self.partition!r}: offsets {self.first} to {self.following - 1}: {self.why}"


class GapFinder:
    """``place``, ``logs`` and ``marks``: the store, and what of it was listed and read before the commits were; None:
    there is only the archive."""

    def __init__(
        self, state: State, place: Place | None = None, logs: Iterable[StoredPartition] = (),
        marks: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._state = state
        self._place = place
        self._logs = {each.name: each for each in logs}
        self._marks = marks

    def gaps(self, selection: Selection) -> Iterator[OffsetGap]:
        """All that may hold what is wanted."""
        for lost in sorted(self._state.lost):
            yield from self._gap(lost.partition, lost.first, lost.next_offset, lost.why, selection)
        for each in self._logs.values():
            end, start = self._state.ends.get(each.name), each.log_start_offset
            if start > (end or 0) and self._marks.get(each.name, 0) > (end or 0):
                if self.may_hold(each.name, end or 0, start, selection):
                    yield OffsetGap(each.name, end or 0, start, ELSEWHERE, False)
            elif end is not None and start > end:
                yield from self._gap(each.name, end, start, None, selection)
            elif end is None and self._state.version >= 0 and self.may_hold(each.name, 0, start, selection):
                yield OffsetGap(
                    each.name, 0, start, SETTLED_BEFORE if self.settled(each.name, start) else BEFORE_ARCHIVE, True
                )

    def _gap(
        self, partition: str, first: int, following: int, why: str | None, selection: Selection
    ) -> Iterator[OffsetGap]:
        """``why``: as a commit says it; None: the log lacks it."""
        if not self.may_hold(partition, first, following, selection):
            return
        settled = why in (None, "retention") and self.settled(partition, following)
        if why is not None and not settled:
            yield OffsetGap(partition, first, following, reason(why), False)
        else:
            removed = REMOVED_OR_SETTLED if self._queues_of(partition) else REMOVED
            yield OffsetGap(partition, first, following, SETTLED_BEFORE if settled else removed, settled)

    def may_hold(self, partition: str, first: int, following: int, selection: Selection) -> bool:
        """A wanted record. False is certain."""
        low, high = selection.offsets_of(partition)
        if not selection.wants_partition(partition) or max(first, low) >= min(following, high):
            return False
        if selection.by_time:
            before, after = self._times(partition, first, following)
            if before is not None and before >= selection.receive_high_ns:
                return False
            if after is not None and after < selection.receive_low_ns:
                return False
        names = self._names(partition) if selection.destinations else None
        return names is None or any(map(selection.wants_destination, names))

    def settled(self, partition: str, following: int) -> bool:
        """Whether only queues have messages in the log, and all who read it have settled everything below."""
        names = self._names(partition)
        readers = self._cursors.get(partition, [])
        queues = {each.name for each in readers if each.name.startswith(QUEUE)}
        return (
            self._place is not None
            and bool(names)
            and all(QUEUE + name in queues for name in names or ())
            and all(each.floor >= following for each in readers)
        )

    def destinations(self) -> set[str] | None:
        """All that archive and log have held; None: that cannot be told."""
        found: set[str] = set()
        for partition in self._files.keys() | self._ends.keys():
            names = self._names(partition) if partition in self._ends else self._archived(partition)
            if names is None:
                return None
            found |= names
        return found

    # --- what lies around ---------------------------------------------------------------------------------------------

    @cached_property
    def _files(self) -> Mapping[str, list[DataFile]]:
        found: dict[str, list[DataFile]] = {}
        for each in self._state.files.values():
            found.setdefault(each.partition, []).append(each)
        return found

    def _times(self, partition: str, first: int, following: int) -> tuple[int | None, int | None]:
        """The last before it and the first behind it, as far as they are known."""
        files = self._files.get(partition, [])
        before = [each.max_receive_ns for each in files if each.next_offset <= first]
        after = [each.min_receive_ns for each in files if each.first_offset >= following]
        log = self._logs.get(partition)
        if log is not None and self._place is not None:
            behind = bisect_left(log.segments, following, key=lambda segment: segment.base_offset)
            first_behind = first_ns(self._place.fs, log.segments[behind:])
            after += [] if first_behind is None else [first_behind]
        return max(before, default=None), min(after, default=None)

    def _names(self, partition: str) -> set[str] | None:
        """All destinations that it can ever have held; None: that cannot be told."""
        archived = self._archived(partition)
        if archived is None:
            return None
        end = self._ends.get(partition)
        if end is None:
            return archived if archived == {partition} else None
        known = self._holdings.destinations({partition: end})
        return None if known is None else known | archived

    def _archived(self, partition: str) -> set[str] | None:
        found: set[str] = set()
        for each in self._files.get(partition, []):
            if each.destinations is None:
                return None
            found.update(each.destinations)
        return found

    def _queues_of(self, partition: str) -> bool:
        """Whether queues read it, as far as that is known."""
        return self._place is None or any(each.name.startswith(QUEUE) for each in self._cursors.get(partition, []))

    @cached_property
    def _holdings(self) -> Holdings:
        assert self._place is not None
        return Holdings(self._place.fs)

    @cached_property
    def _ends(self) -> Mapping[str, End]:
        return {} if self._place is None else ends(self._place)

    @cached_property
    def _cursors(self) -> Mapping[str, list[StoredCursor]]:
        found: dict[str, list[StoredCursor]] = {}
        if self._place is not None:
            try:
                for each in list_cursors(self._place.root, self._place.fs):
                    found.setdefault(each.partition, []).append(each)
            except (OSError, StorageError):
                return {}  # then nothing is known to be settled
        return found
