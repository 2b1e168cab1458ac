"""The rows of an archive, file by file, each as a stream.

Files are opened when their first row may be next, and stay open while they are read: FILES_MAX at once, else it is an
error that says how to ask for less. A file of one destination is read as it lies, ROWS at a time. One of several is
sorted by destination, so what is chosen of it is held and brought into the order of offsets.

Knows: the archive's manifest, Parquet. Must not know: the log, what becomes of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from radiator.archive.files import NoArchive, open_files
from radiator.archive.manifest import DataFile, Lost, check_source, load
from radiator.archive.parquet import reader
from radiator.archive.planning import source_of
from radiator.errors import StorageError
from radiator.export.rows import Row
from radiator.limits import KIB
from radiator.replay.choice import Choice
from radiator.replay.merging import Stream

FILES_MAX = 500  # at once: descriptors, and some 100 KiB each
BUFFER_BYTES = 64 * KIB  # of each column of an open file
ROWS = 256
COLUMNS = list(Row._fields)


class Archived:
    """What an archive has of a choice: ``streams``, and what it does not have of it (``lost``). Raises StorageError."""

    def __init__(self, archive: str, choice: Choice, data: str | None) -> None:
        self._files = open_files(archive)
        self._choice = choice
        self._wants = choice.patterns
        self._open = 0
        state = load(self._files)
        if state.version < 0:
            raise NoArchive(f"{self._files.uri}: no archive here; expected what `radiator archive` has written")
        if data is not None:
            check_source(self._files, state, source_of(data))
        self.ends = state.ends
        self.lost = [
            (lost.partition, first, stop - 1, lost.why)
            for lost in state.lost
            if choice.has(lost.partition)
            and (first := max(lost.first, choice.start_of(lost.partition))) < (stop := self._stop(lost.next_offset))
            and self._may_be_chosen(lost, [each for each in state.files.values() if each.partition == lost.partition])
        ]
        self.streams = [self._stream(each) for each in state.files.values() if self._may_have(each)]

    def _may_be_chosen(self, lost: Lost, files: list[DataFile]) -> bool:
        """By what lies around it: receive times never fall within a partition, and its files say which destinations
        there are."""
        bounds = self._choice.bounds
        after = min((each.min_receive_ns for each in files if each.first_offset >= lost.next_offset), default=None)
        before = max((each.max_receive_ns for each in files if each.next_offset <= lost.first), default=None)
        if bounds.start_ns is not None and after is not None and after < bounds.start_ns:
            return False
        if bounds.stop_ns is not None and before is not None and before >= bounds.stop_ns:
            return False
        names = [name for each in files for name in each.destinations or ()]
        untold = not files or any(each.destinations is None for each in files)
        return self._wants is None or untold or any(map(self._wants.matches, names))

    def _stop(self, offset: int) -> int:
        stop = self._choice.bounds.stop_offset
        return offset if stop is None else min(offset, stop)

    def _may_have(self, file: DataFile) -> bool:
        bounds, names = self._choice.bounds, file.destinations
        return (
            self._choice.has(file.partition)
            and self._choice.start_of(file.partition) < self._stop(file.next_offset)
            and file.first_offset < self._stop(file.next_offset)
            and (bounds.start_ns is None or file.max_receive_ns >= bounds.start_ns)
            and (bounds.stop_ns is None or file.min_receive_ns < bounds.stop_ns)
            and (self._wants is None or names is None or any(map(self._wants.matches, names)))
        )

    def _stream(self, file: DataFile) -> Stream:
        start_ns = self._choice.bounds.start_ns
        earliest_ns = file.min_receive_ns if start_ns is None else max(file.min_receive_ns, start_ns)
        return Stream(earliest_ns, lambda: self._read(file))

    def _read(self, file: DataFile) -> Iterator[Row]:
        if file.destinations is None or len(file.destinations) > 1:
            yield from sorted(self._rows(file), key=lambda row: row.offset)
        else:
            yield from self._rows(file)

    def _rows(self, file: DataFile) -> Iterator[Row]:
        if self._open >= FILES_MAX:
            raise StorageError(
                f"{self._files.uri}: more than {FILES_MAX} files have records of the same time: ask for fewer "
                "destinations or partitions at once, or for a shorter time"
            )
        self._open += 1
        try:
            with self._files.open(file.path) as opened:
                parquet = reader(opened, buffer_size=BUFFER_BYTES, pre_buffer=False)
                for batch in parquet.iter_batches(ROWS, columns=COLUMNS, use_threads=False):
                    yield from self._chosen(batch)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{self._files.address(file.path)} cannot be read: {error}") from None
        finally:
            self._open -= 1

    def _chosen(self, batch: pa.RecordBatch) -> Iterator[Row]:
        start = self._choice.start_of(batch.column("partition")[0].as_py()) if batch.num_rows else 0
        bounds, wants = self._choice.bounds, self._wants
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in COLUMNS]
        for values in zip(*columns, strict=True):
            row = Row._make(values)._replace(tags=dict(values[7]), headers=dict(values[8]))
            if (
                row.offset >= start
                and (bounds.stop_offset is None or row.offset < bounds.stop_offset)
                and (bounds.start_ns is None or row.receive_ns >= bounds.start_ns)
                and (bounds.stop_ns is None or row.receive_ns < bounds.stop_ns)
                and (wants is None or wants.matches(row.destination))
            ):
                yield row
