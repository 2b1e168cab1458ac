"""What the log has lost, from the archive: the option ``archive`` of the source.

Between planning and reading, the archive may take a segment and retention remove it. Then the offsets of that range are
in the archive, and so are those of a range that was damaged after it was archived. Nothing is read from an archive that
has another log under that name.

Knows: losses, the archive. Must not know: Spark, plans.
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
    """None: the options name no archive."""
    if options.archive is None:
        return None
    from radiator.archive import load, open_files  # who needs no archive needs none of this
    from radiator.archive.border import check
    from radiator.archive.lookup import records

    files = open_files(options.archive)
    place = open_store(options.path, options.storage)
    known: set[str] = set()  # partitions of which the archive has the beginning

    def instead(loss: Loss, lose: Lose) -> Iterator[pa.RecordBatch]:
        if loss.partition not in known:
            directory = layout.partition_path(place.root, loss.partition)
            try:
                logs = [stored_partition(place.fs, loss.partition, directory)]
            except FileNotFoundError:
                logs = []  # all of it has gone
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
    """How far the archive has each partition; nothing if the options name none. Raises StorageError."""
    if options.archive is None:
        return {}
    from radiator.archive import load, open_files

    return load(open_files(options.archive)).ends
