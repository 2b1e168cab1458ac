"""The sources of a replay: a data directory, an archive, or both.

With both, the archive has the records below its ``ends``, the log those at and above them: a record in both is read
once. The log is listed first, so records that move from there to the archive meanwhile are not missed. The end is fixed
when the streams are made, so a replay into the store that it reads ends. Records that the log has lost when it is read
are searched in the archive, as it is then; only those that neither has are lost.

No file stays open longer than a read of REFILL_BYTES takes (of the log), and the buffers of all streams together are
bounded by HELD_BYTES, as long as single batches are smaller than their share (see ``archived`` for the archive).

This module knows stored partitions, and files and manifest of an archive. It does not know what is done with the rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from radiator.columns.near import did_you_mean
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.export.records import Chosen, choose
from radiator.export.rows import Row, rows
from radiator.limits import KIB, MIB
from radiator.replay.condition import Condition
from radiator.replay.merging import Stream, merge
from radiator.storage.files import FileSystem
from radiator.storage.reader import StoredPartition, list_partitions
from radiator.storage.time_window import first_ns

if TYPE_CHECKING:
    from radiator.replay.archived import Archived

HELD_BYTES = 64 * MIB  # of all streams of the log together
REFILL_BYTES_MAX, REFILL_BYTES_MIN = MIB, 16 * KIB
LONG_AGO_NS = -(1 << 63)

OnLoss = Callable[[str, int, int, str], None]  # partition, first and last offset, why


class NoPartition(StorageError):
    """Neither the log nor the archive has a partition of that name."""


class Gap(NamedTuple):
    """Offsets that the log does not have."""

    first: int
    following: int
    removed: bool  # by the broker, on purpose


class Sources:
    """The sources of a replay. Reading raises OSError.

    Args:
        selection: Which records.
        data: A data directory, or None.
        archive: The address of an archive, or None.
        on_loss: Called with partition, first and last offset and the reason for lost records.
        on_settled: Called in the same way for records that queues have settled, or that were removed before they were
            archived; None: ``on_loss`` is called for these too.
        selector: A condition on the records, or None.

    Raises:
        StorageError: A source cannot be read.
        ProtocolError: A pattern or the selector is malformed.
    """

    def __init__(
        self,
        selection: Selection,
        data: str | None,
        archive: str | None,
        on_loss: OnLoss,
        on_settled: OnLoss | None = None,
        selector: str | None = None,
    ) -> None:
        self._selection = selection
        self._on_loss = on_loss
        self._on_settled = on_settled or on_loss
        self._condition = Condition(selector) if selector else None
        self._streams: list[Stream] = []
        self._archived: Archived | None = None
        self.archived_names: set[str] | None = set()  # destinations; None: not all of them are listed
        logs = [] if data is None else list_partitions(data)
        ends = {} if archive is None else self._add_archive(archive, data, logs)
        self._add_log(logs, ends)
        known = {*ends, *(each.name for each in logs)}
        named = {name for condition in selection.partitions for name in condition.values}
        for name in sorted(named - known):
            raise NoPartition(f"there is no partition {name}{did_you_mean(name, known)}; `radiator ls` lists them")

    def rows(self) -> Iterator[Row]:
        """Yield all chosen rows, by receive time."""
        condition = self._condition
        for row in merge(self._streams):
            if condition is None or condition.takes(row):
                yield row

    # --- the log -----------------------------------------------------------------------------------------------------

    def _add_log(self, partitions: list[StoredPartition], ends: dict[str, int]) -> None:
        chosen = [each for each in partitions if self._selection.wants_partition(each.name)]
        refill_bytes = min(REFILL_BYTES_MAX, max(REFILL_BYTES_MIN, HELD_BYTES // max(1, len(chosen))))
        for each in chosen:
            archived = ends.get(each.name, 0)
            start = max(self._selection.offsets_of(each.name)[0], archived)
            gone = min(each.log_start_offset, self._selection.offset_high)
            if (
                each.name in self._selection.starts and each.name not in ends and start < gone
            ):  # else the archive has reported it
                self._on_loss(each.name, start, gone - 1, "removed since this replay was interrupted")
            if start < each.next_offset:
                self._streams.append(Stream(_earliest_ns(each, start), self._reading(each, start, refill_bytes)))

    def _reading(self, partition: StoredPartition, start: int, refill_bytes: int) -> Callable[[], Iterator[Row]]:
        return lambda: self._read_log(partition, start, refill_bytes)

    def _read_log(self, partition: StoredPartition, start: int, refill_bytes: int) -> Iterator[Row]:
        held: list[Chosen | Gap] = []

        def lost(_: StoredPartition, first: int, last: int, removed: bool) -> None:
            before = held[-1] if held else None
            if isinstance(before, Gap) and before[1:] == (first, removed):  # one for each segment that is gone
                held[-1] = before._replace(following=last + 1)
            else:
                held.append(Gap(first, last + 1, removed))

        following: int | None = start
        while following is not None:
            held.clear()
            size_bytes = 0
            reading = choose(self._selection.offsets(following), partition, lost)
            following = None
            for chosen in reading:
                held.append(chosen)
                size_bytes += chosen.batch.size_bytes
                if size_bytes >= refill_bytes:
                    following = chosen.batch.next_offset
                    break
            reading.close()  # type: ignore[attr-defined]  # it is a generator, which has a file open
            for each in held:
                yield from self._again(partition.name, each) if isinstance(each, Gap) else rows(each)

    def _again(self, partition: str, gap: Gap) -> Iterator[Row]:
        """Yield the rows of a gap in the log from the archive."""
        what = "removed since this replay began" if gap.removed else "damaged or removed"
        if self._archived is None:
            self._on_loss(partition, gap.first, gap.following - 1, what)
            return

        def missing(first: int, following: int, why: str) -> None:
            self._on_loss(partition, first, following - 1, f"{what}, and {why}")

        yield from self._archived.again(partition, gap.first, gap.following, missing)

    # --- the archive -------------------------------------------------------------------------------------------------

    def _add_archive(self, archive: str, data: str | None, logs: list[StoredPartition]) -> dict[str, int]:
        from radiator.replay.archived import Archived  # imports pyarrow, which reading a log does not need

        found = self._archived = Archived(archive, self._selection, data, logs)
        self.archived_names = found.names
        for partition, first, last, why in found.lost:
            self._on_loss(partition, first, last, why)
        for partition, first, last, why in found.settled:
            self._on_settled(partition, first, last, why)
        self._streams += found.streams
        return dict(found.ends)


def _earliest_ns(partition: StoredPartition, start: int) -> int:
    """Return a time before which no record from ``start`` on was received: the first time of its segment."""
    above = bisect_right(partition.segments, start, key=lambda segment: segment.base_offset)
    found = first_ns(FileSystem(), partition.segments[max(above - 1, 0) : max(above, 1)])
    return LONG_AGO_NS if found is None else found
