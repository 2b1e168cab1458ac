"""The output of an export: one file, a directory with a file per partition, or standard output.

A file is written under a temporary name and renamed when it is complete and synced, so a visible file is complete. A
loss ends the export without any file, unless losses are to be skipped.

This module knows paths and writers. It does not know which records are exported, or how progress is shown. One thread.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.export.records import Chosen, choose
from radiator.export.rows import rows, rows_of_deliveries
from radiator.export.writers import DELIVERIES, MESSAGES, WRITERS
from radiator.storage.layout import FILE_MODE, encode_name
from radiator.storage.reader import StoredPartition

PARTIAL = ".part"  # a partition's name of 240 bytes has room for 15 more


class Lost(StorageError):
    """Records are missing, and the export does not skip losses."""


@dataclass
class Exported:
    """The result of an export."""

    records: int = 0
    body_bytes: int = 0
    paths: list[str] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=dict)  # records by partition
    losses: list[tuple[str, int, int]] = field(default_factory=list)  # partition, first and last offset


class Export:
    """An export of partitions.

    Args:
        selection: The records.
        kind: The format.
        skip: Skip losses.
        on_loss: Called with a text for every skipped loss.
        progress: Called with the bytes of the log that are done.
        deliveries_of: The messages whose deliveries are written. None writes the records themselves.
    """

    def __init__(
        self,
        selection: Selection,
        kind: str,
        *,
        skip: bool,
        on_loss: Callable[[str], None],
        progress: Callable[[int], None],
        deliveries_of: Selection | None = None,
    ) -> None:
        self.result = Exported()
        self._selection = selection
        self._kind = kind
        self._skip = skip
        self._on_loss = on_loss
        self._progress = progress
        self._table = MESSAGES
        self._rows: Callable[[Chosen], Iterator[Any]] = rows
        if deliveries_of is not None:
            self._table, self._rows = DELIVERIES, partial(rows_of_deliveries, deliveries_of)

    def to_stream(self, partitions: list[StoredPartition], file: BinaryIO) -> None:
        """Write to an open file. Raises Lost, OSError."""
        writer = WRITERS[self._kind](file, self._table)
        try:
            for partition in partitions:
                self.result.partitions[partition.name] = 0
                done = 0
                for chosen in choose(self._selection, partition, self._lost):
                    found: list[Any] = list(self._rows(chosen))
                    writer.write(found)
                    count = len(found)
                    self.result.records += count
                    self.result.body_bytes += sum(len(chosen.batch.bodies[index]) for index in chosen.indexes)
                    self.result.partitions[partition.name] += count
                    self._progress(chosen.batch.size_bytes)
                    done += chosen.batch.size_bytes
                self._progress(max(0, partition.size_bytes - done))
            writer.close()
        except BaseException:
            writer.abandon()
            raise

    def to_file(self, partitions: list[StoredPartition], path: str) -> None:
        """Write to a new file. Raises Lost, OSError."""
        with _new_file(path) as file:
            self.to_stream(partitions, file)
        self.result.paths.append(path)

    def to_directory(self, partitions: list[StoredPartition], directory: str) -> None:
        """Write a file for each partition; if one cannot be written, there is none."""
        paths = [f"{directory}/{encode_name(partition.name)}.{self._kind}" for partition in partitions]
        for path in paths:
            _must_be_new(path)
        written: list[str] = []
        try:
            for partition, path in zip(partitions, paths, strict=True):
                self.to_file([partition], path)
                written.append(path)
        except BaseException:
            for path in written:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise

    def _lost(self, partition: StoredPartition, first: int, last: int, removed: bool) -> None:
        if removed:
            return  # as if the log had been listed a moment later
        text = f"{partition.name}: offsets {first} to {last} cannot be read: damaged or removed ({partition.directory})"
        if not self._skip:
            raise Lost(text)
        self.result.losses.append((partition.name, first, last))
        self._on_loss(text)


def _must_be_new(path: str) -> None:
    if os.path.lexists(path):
        raise StorageError(f"{path}: exists already; remove it, or export to another name")


@contextlib.contextmanager
def _new_file(path: str) -> Iterator[BinaryIO]:
    """Yield a file that is complete if the block ends well, and removed otherwise."""
    _must_be_new(path)
    partial = path + PARTIAL
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        os.rename(partial, path)
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
