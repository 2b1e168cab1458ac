"""Read records of a partition from the archive by offset, for readers of a log that has lost them.

Files that were merged may be removed while they are read: then their records are in another one. So every returned
offset is remembered, and the rest is searched again in the files of the latest commits. Rows of one file come in the
order of offsets, files one after the other; a long range comes in windows, one after the other.

This module knows the manifest, Parquet and selections. It does not know the log or Spark. Invariants: the returned
records and the ranges reported as missing are exactly the wanted records of the range; the memory for remembered
offsets is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from radiator.archive.files import Files
from radiator.archive.listing import in_order, literal_names, may_have
from radiator.archive.manifest import DataFile, Span, State, load
from radiator.archive.parquet import reader
from radiator.columns.options import ROWS_PER_BATCH
from radiator.columns.selection import LOW, Selection
from radiator.errors import StorageError

TRIES_MAX = 20  # each time a whole run of the archive has come in between

WINDOW = 16 * 1024 * 1024  # offsets that are remembered at a time, a byte each

NOT_READ = "the archive could not read them"

OnMissing = Callable[[int, int, str], None]  # first, next, why
Ranges = dict[str, list[tuple[int, int]]]  # by partition: first offset, and that behind the last


def records(
    files: Files,
    partition: str,
    first: int,
    following: int,
    schema: pa.Schema,
    on_missing: OnMissing,
    selection: Selection | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of a range of offsets, as columns of ``schema``.

    Args:
        files: The archive.
        partition: The partition.
        first: The first offset.
        following: The offset behind the last.
        schema: The columns.
        on_missing: Called first, with each range that the archive does not have, and why.
        selection: Which records are wanted; None: all.
        rows_per_batch: The size of the batches.

    Raises:
        StorageError: A file cannot be read.
    """
    selection = (selection or Selection()).partition("in", partition).offsets(first, following)
    first, following = selection.offsets_of(partition)
    if first >= following or not selection.wants_partition(partition):
        return
    state = load(files)
    for low, high, why in missing(state, partition, first, following):
        on_missing(low, high, why)
    first = max(first, state.starts.get(partition, 0))
    following = min(following, state.ends.get(partition, 0))
    for low in range(first, following, WINDOW):
        chosen = selection.offsets(low, min(low + WINDOW, following))
        state = yield from _window(files, state, partition, chosen, schema, rows_per_batch)


def _window(
    files: Files, state: State, partition: str, selection: Selection, schema: pa.Schema, size: int
) -> Generator[pa.RecordBatch, None, State]:
    """Yield the records of a window; return the latest state."""
    first, following = selection.offsets_of(partition)
    given = np.zeros(following - first, np.bool_)
    for _ in range(TRIES_MAX):
        wanted = in_order(each for each in state.files.values() if may_hold(each, selection))
        try:
            for each in wanted:
                for batch in _rows(files, each, partition, first, following, schema, selection, size):
                    yield from _new(batch, given, first, schema)
            return state
        except (pa.ArrowException, OSError) as error:
            state = load(files)
            if each.path in state.files:
                what = (
                    "a commit names it, but it does not exist" if isinstance(error, FileNotFoundError) else str(error)
                )
                raise StorageError(f"{files.named(each.path)} cannot be read: {what}; restore it") from error
    raise StorageError(f"{files.uri}: its files change faster than they can be read, {TRIES_MAX} times over")


def missing(state: State, partition: str, first: int, following: int) -> list[tuple[int, int, str]]:
    """Return ranges of the offsets that an archive does not have, and why."""
    start, end = state.starts.get(partition, 0), state.ends.get(partition, 0)
    found = [(first, min(following, start), "the archive begins after them")] if first < start else []
    for lost in state.lost:
        low, high = max(lost.first, first, start), min(lost.next_offset, following, end)
        if lost.partition == partition and low < high:
            found.append((low, high, reason(lost.why)))
    if following > end:
        found.append((max(first, end), following, "the archive does not have them yet"))
    return found


def reason(why: str) -> str:
    """Return the reason of a lost range as text."""
    if why == "retention":
        return "they were removed before they were archived, by retention or as settled messages of a queue"
    return f"{NOT_READ}: {why}"


def may_hold(each: DataFile, selection: Selection) -> bool:
    """Return whether a file may have a wanted record."""
    return (
        each.max_receive_ns >= selection.receive_low_ns
        and each.min_receive_ns < selection.receive_high_ns
        and any(may_hold_span(each, span, selection) for span in each.spans)
        and (not selection.destinations or may_have(each, selection.wants_destination, _literals(selection)))
    )


def may_hold_span(each: DataFile, span: Span, selection: Selection) -> bool:
    """Return whether a span of a file may have a wanted record, by its partition, offsets and destinations."""
    low, high = selection.offsets_of(span.partition)
    if not (span.next_offset > low and span.first < high and selection.wants_partition(span.partition)):
        return False
    names = each.destinations_of(span) if selection.destinations else None
    return names is None or any(map(selection.wants_destination, names))


def _literals(selection: Selection) -> list[str] | None:
    """Return names, of which a wanted destination must be one; None: it may be another one."""
    for condition in selection.destinations:
        if condition.kind == "in" and not condition.negated:
            return list(condition.values)
        if condition.kind == "pattern" and not condition.negated:
            names = literal_names(condition.values)
            if names is not None:
                return names
    return None


def _rows(
    files: Files, each: DataFile, partition: str, first: int, following: int, schema: pa.Schema, selection: Selection,
    size: int,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Yield rows of one partition in a file, with the column of offsets."""
    with files.open(each.path) as opened:
        file = reader(opened)
        groups = [group for group in range(file.num_row_groups) if overlaps(file, group, partition, first, following)]
        columns = list(dict.fromkeys([*schema.names, "offset", "destination", "receive_ns", "partition"]))
        for batch in file.iter_batches(size, groups, columns):
            mask = _within(batch.column("offset"), first, following)
            if len(each.spans) > 1:
                mask = pc.and_(mask, pc.equal(batch.column("partition"), partition))
            yield _chosen(batch.filter(mask), selection)


def rows(files: Files, each: DataFile, schema: pa.Schema, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that a selection of destinations and receive times matches.

    Args:
        files: The archive.
        each: The file.
        schema: The columns to return.
        selection: The rows to return. Its conditions on partitions and offsets are ignored.

    Raises:
        OSError: The file cannot be read.
        pa.ArrowException: The file is damaged.
    """
    with files.open(each.path) as opened:
        columns = list(dict.fromkeys([*schema.names, "destination", "receive_ns"]))
        for batch in reader(opened).iter_batches(ROWS_PER_BATCH, columns=columns):
            yield _as(_chosen(batch, selection), schema)


def _chosen(batch: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    """Return the rows that the conditions on destination and receive time match."""
    if selection.by_time:
        batch = batch.filter(_within(batch.column("receive_ns"), selection.receive_low_ns, selection.receive_high_ns))
    if selection.destinations:
        coded = batch.column("destination").dictionary_encode()
        wanted = pa.array([selection.wants_destination(name) for name in coded.dictionary.to_pylist()], pa.bool_())
        batch = batch.filter(wanted.take(coded.indices))
    return batch


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(field.name).cast(field.type) for field in schema], schema=schema)


def overlaps(file: pq.ParquetFile, group: int, partition: str, first: int, following: int) -> bool:
    """Return whether a row group may have such offsets of a partition."""
    names = file.schema_arrow.names
    for name, low, high in (("partition", partition, partition), ("offset", first, following - 1)):
        place = names.index(name)  # before the maps, so the leaf has the same number
        statistics = file.metadata.row_group(group).column(place).statistics
        if statistics is not None and statistics.has_min_max and (statistics.max < low or statistics.min > high):
            return False
    return True


def inside(batch: pa.RecordBatch, wanted: Ranges) -> np.ndarray:
    """Return for each row whether its offset is in a range of its partition."""
    coded, offsets = batch.column("partition").dictionary_encode(), batch.column("offset").to_numpy()
    names, ids = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    found = np.zeros(len(ids), np.bool_)
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]):
        own = offsets[start:stop]
        for first, following in wanted.get(names[ids[start]], ()):
            found[start:stop] |= (first <= own) & (own < following)
    return found


def _within(values: pa.Array, low: int, high: int) -> pa.Array:
    if low == LOW:
        return pc.less(values, high)
    return pc.and_(pc.greater_equal(values, low), pc.less(values, high))


def _new(batch: pa.RecordBatch, given: np.ndarray, first: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows that were not returned before."""
    places = batch.column("offset").to_numpy() - first
    again = given[places]
    if again.any():
        batch, places = batch.filter(pa.array(~again)), places[~again]
    if batch.num_rows:
        given[places] = True
        yield _as(batch, schema)
