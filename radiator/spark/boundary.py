"""Find and return the boundary between archive and log as of one moment, so that every record is on one side of it.

The log is listed first, with its marks of the archive, then the commits are read. Retention removes only archived
records. So the commits, which are read later, contain everything that was removed before the listing, or are not
complete, which the marks show. Records that were archived after the listing are on both sides; that is no gap. Below
``ends`` every record is read from the archive, and from there to the end of the listing from the log. Later changes of
the log are handled by its reader, see the option ``archive`` of the source.

Uses the listing of a store and the state of an archive. Must not import Spark.
Invariant: in each partition the offsets on both sides are consecutive, or the gap between them is in ``gaps`` or
``settled``, or cannot contain a matching record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from radiator.archive import DataFile, Files, State, load
from radiator.archive.gaps import GapFinder
from radiator.archive.lineage import check
from radiator.archive.listing import in_order, load_existing
from radiator.archive.lookup import may_hold
from radiator.archive.manifest import Span
from radiator.archive.retention_marks import ahead, marks
from radiator.archive.typed import struct_columns
from radiator.archive.versions import AsOf
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.columns.scan import LostRecords
from radiator.columns.selection import Selection
from radiator.spark.unknown import unknown

LOSSES_SHOWN: Final = 5


@dataclass(frozen=True)
class Boundary:
    """The boundary between archive and log.

    Attributes:
        log: The half-open range of offsets to read from the log, by partition.
        files: The archive files that may contain matching records.
        gaps: Descriptions of gaps that may contain matching records.
        settled: Descriptions of gaps whose messages were settled by their queues.
        hints: Descriptions of requested names that do not exist.
        structs: The struct columns of the archive.
    """

    log: Mapping[str, tuple[int, int]]
    files: tuple[DataFile, ...]
    gaps: tuple[str, ...]
    settled: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    structs: tuple[pa.Field, ...] = ()


def find_boundary(
    data: str | None, archive: Files | None, selection: Selection, storage: Mapping[str, str] | None = None,
    as_of: AsOf | None = None,
) -> Boundary:  # fmt: skip
    """Find and return the boundary between archive and log.

    Args:
        data: The path or the URI of the store, or None.
        archive: The archive, or None.
        selection: The records to read.
        storage: The arguments of the file system of the store.
        as_of: The version of the archive; only without a store.

    Raises:
        NoStore: There is no store at ``data``.
        StorageError: Store or archive cannot be read, or they belong to different logs.
    """
    place = None if data is None else open_store(data, storage)
    logs = [] if place is None else partitions(place)
    wanted_logs = [each for each in logs if selection.wants_partition(each.name)]
    found = {} if place is None or archive is None else marks(place.fs, wanted_logs)
    state = State() if archive is None else load(archive) if place is not None else load_existing(archive, as_of)
    if place is not None and archive is not None:
        check(place, archive, state, wanted_logs)
    around = GapFinder(state, place, logs, found)
    gaps = list(around.gaps(selection))
    log: dict[str, tuple[int, int]] = {}
    for each in wanted_logs:
        first = max(each.log_start_offset, state.ends.get(each.name, 0))
        if first < each.next_offset:
            log[each.name] = first, each.next_offset
    wanted = (each for each in state.files.values() if may_hold(each, selection))
    lost, settled = (tuple(str(each) for each in gaps if each.settled is which) for which in (False, True))
    hints = () if archive is None else tuple(_hints(archive, state, found, around, selection))
    structs = tuple(struct_columns(state.table))
    return Boundary(log, tuple(in_order(wanted)), lost, settled, hints, structs)


def report_gaps(found: Boundary, strict: bool, report: Callable[[str], None]) -> None:
    """Report the gaps of a boundary and the names that do not exist.

    Args:
        found: The boundary.
        strict: Raise if there are gaps that may contain matching records.
        report: Called with a line of text for each gap and each name.

    Raises:
        LostRecords: There are such gaps, and ``strict`` is set.
    """
    gaps = found.gaps
    if gaps and strict:
        more = f"; and {len(gaps) - LOSSES_SHOWN} more" if len(gaps) > LOSSES_SHOWN else ""
        raise LostRecords(
            f"neither the archive nor the log has all records: {'; '.join(gaps[:LOSSES_SHOWN])}{more}. "
            "To read all other records: fail_on_data_loss=False"
        )
    for gap in gaps:
        report(f"skipped: {gap}")
    for gap in found.settled:
        report(f"not in the table: {gap}")
    for hint in found.hints:
        report(hint)


def _hints(
    archive: Files, state: State, found: Mapping[str, int], around: GapFinder, selection: Selection
) -> Iterator[str]:
    behind = ahead(found, archive.uri, state)
    if behind is not None:
        yield behind
    if state.version < 0:
        yield (
            f"{archive.uri}: the archive does not exist or is empty, so only the log is read; `radiator archive "
            "--data DIR --to URI` archives its sealed segments"
        )
    known = around.destinations() if selection.destinations else None
    for text in () if known is None else unknown(selection, known):
        yield f"neither archive nor log has a {text}"


def whole(each: DataFile, selection: Selection) -> bool:
    """Return True if the selection matches every record of an archive file, so that its rows need no filter.

    Args:
        each: The archive file.
        selection: The records to read.
    """
    names = each.destinations
    return (
        all(_whole_span(span, selection) for span in each.spans)
        and each.min_receive_ns >= selection.receive_low_ns
        and each.max_receive_ns < selection.receive_high_ns
        and (not selection.destinations or (names is not None and all(map(selection.wants_destination, names))))
    )


def _whole_span(span: Span, selection: Selection) -> bool:
    low, high = selection.offsets_of(span.partition)
    return low <= span.first and span.next_offset <= high and selection.wants_partition(span.partition)


def names_in(files: Iterable[DataFile], selection: Selection) -> list[str] | None:
    """Return the matching destinations of archive files, or None if a file does not list its destinations.

    Args:
        files: The archive files.
        selection: The records to read.
    """
    found: set[str] = set()
    for each in files:
        if each.destinations is None:
            return None
        found.update(filter(selection.wants_destination, each.destinations))
    return sorted(found)
