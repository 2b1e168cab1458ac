"""Read records that the log has lost from the archive: the option ``archive`` of the source.

Between planning and reading, the archive may copy a segment and retention may remove it. The offsets of that range are
then in the archive. The same is true for a range that was damaged after it was archived. If the archive has another log
under the same name, nothing is read from it.

Uses losses and the archive. Must not import Spark or plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from radiator.columns.files import open_store
from radiator.columns.options import ReadOptions
from radiator.columns.read import Instead, Lose
from radiator.columns.scan import Loss
from radiator.storage import layout
from radiator.storage.reader import stored_partition


def archived(options: ReadOptions, schema: pa.Schema) -> Instead | None:
    """Return the function that reads lost records from the archive, for ``radiator.columns.read.read``.

    Args:
        options: The options of the read.
        schema: The columns to return.

    Returns:
        The function, or None if the options name no archive.

    Raises:
        StorageError: The archive cannot be opened.
    """
    if options.archive is None:
        return None
    from radiator.archive import load, open_files  # imported only if the options name an archive
    from radiator.archive.lineage import check
    from radiator.archive.lookup import records

    files = open_files(options.archive)
    place = open_store(options.path, options.storage)
    known: set[str] = set()  # partitions whose log is the one that was archived

    def instead(loss: Loss, lose: Lose) -> Iterator[pa.RecordBatch]:
        if loss.partition not in known:
            directory = layout.partition_path(place.root, loss.partition)
            try:
                logs = [stored_partition(place.fs, loss.partition, directory)]
            except FileNotFoundError:
                logs = []  # retention has removed the partition
            check(place, files, load(files), logs)
            known.add(loss.partition)

        def missing(first: int, following: int, why: str) -> None:
            lose(loss._replace(first=first, following=following, reason=f"{loss.reason}, and {why}"))

        return records(
            files,
            loss.partition,
            loss.first,
            loss.following,
            schema,
            missing,
            options.selection,
            options.rows_per_batch,
        )

    return instead


def archived_ends(options: ReadOptions) -> Mapping[str, int]:
    """Return the end of each partition in the archive.

    Args:
        options: The options of the read.

    Returns:
        The first offset that is not archived, by partition. Empty if the options name no archive.

    Raises:
        StorageError: The archive cannot be read.
    """
    if options.archive is None:
        return {}
    from radiator.archive import load, open_files

    return load(open_files(options.archive)).ends
