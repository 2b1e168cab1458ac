"""Find offset gaps that neither archive nor log has, if they may contain a wanted record.

What is around a gap, and what the broker stores, shows what it may contain:

    offsets        those of the gap itself
    receive time   it never falls within a partition, so it is between the times of the neighbours
    destination    the broker's list of the names that a partition has had, and those in the files of the archive. With
                   an archive alone: the partition's name, if every file has just that destination
    settled        a log of queues alone, all of which are behind the gap: reported, and no loss
    before         the missing beginning of a log that the archive does not have yet: reported too, as it may have been
                   removed before there was an archive
    elsewhere      but not if it was marked as archived for retention: then this archive lacks what another one has had

If that is unknown, the gap may contain a wanted record.

This module knows states of archives, listings, and names and cursors of a store. It does not know records or Spark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from radiator.archive.lookup import reason
from radiator.archive.manifest import DataFile, Span, State
from radiator.columns.files import Place
from radiator.columns.heads import End, Holdings, ends
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.storage.reader import StoredCursor, StoredPartition, list_cursors
from radiator.storage.time_window import first_ns

QUEUE = "queue:"  # cursors of queues begin with it
REMOVED = "retention has removed them, and the archive does not have them; retention.wait_for: archive delays it"
REMOVED_OR_SETTLED = (
    "retention has removed them, or the broker as settled messages of a queue, and the archive does not have them; "
    "retention.wait_for: archive delays both"
)
SETTLED_BEFORE = (
    "their queues had settled them, and they were removed before they were archived; retention.wait_for: archive "
    "delays that"
)
BEFORE_ARCHIVE = (
    "they were removed before the first run archived this partition; retention.wait_for: archive keeps new messages"
)
ELSEWHERE = (
    "they are marked as archived, but this archive does not have them: its last commits are missing (restore "
    "_delta_log/), it is not mounted here, or another archive has them"
)


class OffsetGap(NamedTuple):
    """Missing offsets of a partition, and why."""

    partition: str
    first: int
    following: int
    why: str
    settled: bool  # by all the queues that its log had, which has nothing else; or no archive was ever to have it

    def __str__(self) -> str:
        return f"partition {self.partition!r}: offsets {self.first} to {self.following - 1}: {self.why}"


class GapFinder:
    """Finds gaps.

    Args:
        state: Of the archive.
        place: The store; None: there is only the archive.
        logs: Its partitions, listed before the commits were read.
        marks: How far each is marked as archived for retention, read before the commits were read.
    """

    def __init__(
        self, state: State, place: Place | None = None, logs: Iterable[StoredPartition] = (),
        marks: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._state = state
        self._place = place
        self._logs = {each.name: each for each in logs}
        self._marks = marks

    def gaps(self, selection: Selection) -> Iterator[OffsetGap]:
        """Yield all gaps that may contain a wanted record."""
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
        """Yield the gap, if it may contain a wanted record. ``why``: of the commit; None: the log lacks it."""
        if not self.may_hold(partition, first, following, selection):
            return
        settled = why in (None, "retention") and self.settled(partition, following)
        if why is not None and not settled:
            yield OffsetGap(partition, first, following, reason(why), False)
        else:
            removed = REMOVED_OR_SETTLED if self._queues_of(partition) else REMOVED
            yield OffsetGap(partition, first, following, SETTLED_BEFORE if settled else removed, settled)

    def may_hold(self, partition: str, first: int, following: int, selection: Selection) -> bool:
        """Return whether the range may contain a wanted record. False is certain."""
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
        """Return whether only queues have messages in the log, and all readers have settled everything below."""
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
        """Return all destinations of archive and log; None: unknown."""
        found: set[str] = set()
        for partition in self._spans.keys() | self._ends.keys():
            names = self._names(partition) if partition in self._ends else self._archived(partition)
            if names is None:
                return None
            found |= names
        return found

    # --- surroundings of gaps -----------------------------------------------------------------------------------------

    @cached_property
    def _spans(self) -> Mapping[str, list[tuple[Span, DataFile]]]:
        found: dict[str, list[tuple[Span, DataFile]]] = {}
        for each in self._state.files.values():
            for span in each.spans:
                found.setdefault(span.partition, []).append((span, each))
        return found

    def _times(self, partition: str, first: int, following: int) -> tuple[int | None, int | None]:
        """Return a time that no record of a range is before, and one that none is behind, if known.

        They are the nearest ones by the files. The times of a file with several spans are those of all of them, so only
        its earliest is surely before what follows one of them.
        """
        before, after = [], []
        for span, each in self._spans.get(partition, []):
            alone = len(each.spans) == 1
            if span.next_offset <= first:
                before.append(each.max_receive_ns if alone else each.min_receive_ns)
            if span.first >= following:
                after.append(each.min_receive_ns if alone else each.max_receive_ns)
        log = self._logs.get(partition)
        if log is not None and self._place is not None:
            behind = bisect_left(log.segments, following, key=lambda segment: segment.base_offset)
            first_behind = first_ns(self._place.fs, log.segments[behind:])
            after += [] if first_behind is None else [first_behind]
        return max(before, default=None), min(after, default=None)

    def _names(self, partition: str) -> set[str] | None:
        """Return all destinations that a partition can ever have had; None: unknown."""
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
        for span, each in self._spans.get(partition, []):
            names = each.destinations_of(span)
            if names is None:
                return None
            found.update(names)
        return found

    def _queues_of(self, partition: str) -> bool:
        """Return whether queues read a partition, if known."""
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
