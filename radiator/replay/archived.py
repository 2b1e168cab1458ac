"""Read the rows of an archive, file by file, each as a stream in the order of receive times and offsets.

Files are opened when their first row may be next, and stay open while they are read: at most FILES_MAX at once, or an
error explains how to choose less. A file of one destination is read in its order, ROWS at a time. A file of several
destinations or partitions is sorted by them: a ``shelf`` reads it once, and brings the chosen rows into order.

A file may be merged with others before it is read: then the commits are read again, and its records are found in the
new file, from the reached offset on. Records that the log has lost meanwhile are found in the same way (``again``).

This module knows the archive's manifest and Parquet. It does not know the log or what is done with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from radiator.archive.gaps import GapFinder
from radiator.archive.lineage import check
from radiator.archive.listing import load_existing, names
from radiator.archive.lookup import OnMissing, Ranges, inside, may_hold, may_hold_span, missing, overlaps
from radiator.archive.manifest import DataFile, State, check_source, load
from radiator.archive.opening import open_files
from radiator.archive.parquet import reader
from radiator.archive.planning import source_of
from radiator.archive.retention_marks import marks
from radiator.columns.files import open_store
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.export.rows import Row
from radiator.limits import KIB, MIB
from radiator.replay.merging import Stream, merge
from radiator.replay.shelf import COLUMNS, Shelf, in_rows
from radiator.storage.reader import StoredPartition

FILES_MAX = 500  # open at the same time: a descriptor and some 100 KiB each
BUFFER_BYTES = 64 * KIB  # of each column of an open file
ROWS, ROWS_BYTES = 256, MIB  # that are decoded at a time, about; or one row
TRIES_MAX = 20  # without a row; each time the archive has changed in between


class Archived:
    """The chosen rows of an archive: ``streams``, and the missing ones (``lost``). Raises StorageError."""

    def __init__(
        self, archive: str, selection: Selection, data: str | None, logs: Sequence[StoredPartition] = ()
    ) -> None:
        self._files = open_files(archive)
        self._selection = selection
        place = None if data is None else open_store(data)
        chosen = [each for each in logs if selection.wants_partition(each.name)]
        self._store = place, logs, {} if place is None else marks(place.fs, chosen)
        self._open = 0
        self._take(load_existing(self._files))
        if data is not None and place is not None:
            check_source(self._files, self._state, source_of(data))
            check(place, self._files, self._state, chosen)
        self.ends = self._state.ends
        self.lost: list[tuple[str, int, int, str]] = []  # partition, first and last offset, why
        self.settled: list[tuple[str, int, int, str]] = []  # of these, messages that the queues of the log had settled
        for gap in self._around.gaps(selection):
            low, high = selection.offsets(gap.first, gap.following).offsets_of(gap.partition)
            (self.settled if gap.settled else self.lost).append((gap.partition, low, high - 1, gap.why))
        self.streams = self._streams({name: (self._low(name), end) for name, end in self.ends.items()})

    @property
    def names(self) -> set[str] | None:
        """Its destinations; None: not all of them are listed."""
        return names(self._state)

    def again(self, partition: str, first: int, following: int, on_missing: OnMissing) -> Iterator[Row]:
        """Yield the rows from ``first`` up to, not including, ``following``, which the log has no more.

        ``on_missing`` is called first for those that the archive does not have either.
        """
        if following > self._state.ends.get(partition, 0):
            self._take(load(self._files))
        for low, high, why in self._missing(partition, first, following):
            on_missing(low, high, why)
        yield from merge(self._streams({partition: (first, following)}))

    # --- contents -----------------------------------------------------------------------------------------------------

    def _take(self, state: State) -> None:
        self._state = state
        self._around = GapFinder(state, *self._store)

    def _low(self, partition: str) -> int:
        return max(self._selection.offsets_of(partition)[0], self._state.starts.get(partition, 0))

    def _missing(self, partition: str, first: int, following: int) -> Iterator[tuple[int, int, str]]:
        """Yield the missing ranges that may have chosen rows."""
        for low, high, why in missing(self._state, partition, first, min(following, self._selection.offset_high)):
            if self._around.may_hold(partition, low, high, self._selection):
                yield low, high, why

    def _streams(self, wanted: Mapping[str, tuple[int, int]]) -> list[Stream]:
        """Return a stream for each file that may have chosen rows of ranges of offsets."""
        ranges = {name: [each] for name, each in wanted.items()}
        return self._streams_of(ranges, self._state.files.values(), 0)

    def _streams_of(self, wanted: Ranges, files: Iterable[DataFile], tries: int) -> list[Stream]:
        found = []
        for each in files:
            if not wanted.keys().isdisjoint(each.partitions) and may_hold(each, self._selection):
                own = self._own(each, wanted)
                if own:
                    earliest_ns = max(each.min_receive_ns, self._selection.receive_low_ns)
                    found.append(Stream(earliest_ns, partial(self._rows, each, own, tries)))
        return found

    def _own(self, file: DataFile, wanted: Ranges) -> Ranges:
        """Return the parts of ranges that a file has, and that may have chosen rows."""
        found: Ranges = {}
        for name in file.partitions & wanted.keys():
            low, high = self._selection.offsets_of(name)
            for span in file.spans_of(name):
                if may_hold_span(file, span, self._selection):
                    for first, following in wanted[name]:
                        part = max(first, low, span.first), min(following, high, span.next_offset)
                        if part[0] < part[1]:
                            found.setdefault(name, []).append(part)
        return found

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _rows(self, file: DataFile, wanted: Ranges, tries: int) -> Iterator[Row]:
        reached: dict[str, int] = {}
        try:
            for row in self._read(file, wanted):
                reached[row.partition], tries = row.offset + 1, 0
                yield row
            return
        except FileNotFoundError as error:
            before = self._state.version
            if file.path in self._state.files:  # else the commits were read again for another file
                self._take(load(self._files))
            if tries >= TRIES_MAX or (file.path in self._state.files and self._state.version == before):
                raise StorageError(
                    f"{self._files.uri}: a commit names a file that does not exist: {error}; restore it"
                ) from None
        left = {
            name: [(max(first, reached.get(name, 0)), following) for first, following in ranges]
            for name, ranges in wanted.items()
        }
        yield from merge(self._streams_of(left, self._state.files.values(), tries + 1))

    def _read(self, file: DataFile, wanted: Ranges) -> Iterator[Row]:
        found = self._batches(file, wanted)
        listed = {file.destinations_of(span) for span in file.spans}
        if len(file.partitions) == 1 and len(listed) == 1 and len(listed.pop() or ()) == 1:
            for batch in found:
                yield from in_rows(batch)
        else:
            yield from Shelf(found).rows()

    def _batches(self, file: DataFile, wanted: Ranges) -> Iterator[pa.RecordBatch]:
        """Yield the chosen rows of a file."""
        if self._open >= FILES_MAX:
            raise StorageError(
                f"{self._files.uri}: more than {FILES_MAX} files have records of the same time: choose fewer "
                f"destinations or partitions at once, or a shorter time"
            )
        self._open += 1
        try:
            with self._files.open(file.path) as opened:
                parquet = reader(opened, buffer_size=BUFFER_BYTES, pre_buffer=False)
                for number in range(parquet.num_row_groups):
                    if len(wanted) == 1 and not any(
                        overlaps(parquet, number, name, first, following)
                        for name, ranges in wanted.items()
                        for first, following in ranges
                    ):
                        continue
                    group = parquet.metadata.row_group(number)
                    rows = max(1, min(ROWS, group.num_rows * ROWS_BYTES // max(group.total_byte_size, 1)))
                    for batch in parquet.iter_batches(rows, [number], columns=COLUMNS, use_threads=False):
                        if (chosen := self._chosen(batch, wanted)).num_rows:
                            yield chosen
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            if self._files.size(file.path) is None:  # merged while it was read, where an open file keeps no object
                raise FileNotFoundError(str(error)) from None
            raise StorageError(f"{self._files.named(file.path)} cannot be read: {error}") from None
        finally:
            self._open -= 1

    def _chosen(self, batch: pa.RecordBatch, wanted: Ranges) -> pa.RecordBatch:
        selection = self._selection
        times, given = batch.column("receive_ns"), batch.column("destination")
        tests = [pa.array(inside(batch, wanted))]
        if selection.by_time:
            tests.append(pc.greater_equal(times, selection.receive_low_ns))
            tests.append(pc.less(times, selection.receive_high_ns))
        if selection.destinations:
            wanted = pa.array(filter(selection.wants_destination, given.unique().to_pylist()), given.type)
            tests.append(pc.is_in(given, wanted))
        chosen = reduce(pc.and_, tests)
        return batch if pc.all(chosen).as_py() else batch.filter(chosen)
