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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from radiator.archive.files import Files
from radiator.archive.listing import in_order, literal_names, may_have
from radiator.archive.manifest import DataFile, State, load
from radiator.archive.parquet import reader
from radiator.columns.options import ROWS_PER_BATCH
from radiator.columns.selection import LOW, Selection
from radiator.errors import StorageError

TRIES_MAX = 20  # each time a whole run of the archive has come in between

WINDOW = 16 * 1024 * 1024  # offsets that are remembered at a time, a byte each

NOT_READ = "the archive could not read them"

OnMissing = Callable[[int, int, str], None]  # first, next, why


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
                for batch in _rows(files, each, first, following, schema, selection, size):
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
    low, high = selection.offsets_of(each.partition)
    return (
        selection.wants_partition(each.partition)
        and each.next_offset > low
        and each.first_offset < high
        and each.max_receive_ns >= selection.receive_low_ns
        and each.min_receive_ns < selection.receive_high_ns
        and (not selection.destinations or may_have(each, selection.wants_destination, _literals(selection)))
    )


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
    files: Files, each: DataFile, first: int, following: int, schema: pa.Schema, selection: Selection, size: int
) -> Iterator[pa.RecordBatch]:
    """Yield rows of one file, with the column of offsets."""
    with files.open(each.path) as opened:
        file = reader(opened)
        groups = [group for group in range(file.num_row_groups) if overlaps(file, group, first, following)]
        columns = list(dict.fromkeys([*schema.names, "offset", "destination", "receive_ns"]))
        for batch in file.iter_batches(size, groups, columns):
            mask = _within(batch.column("offset"), first, following)
            if selection.by_time:
                times = _within(batch.column("receive_ns"), selection.receive_low_ns, selection.receive_high_ns)
                mask = pc.and_(mask, times)
            if selection.destinations:
                coded = batch.column("destination").dictionary_encode()
                wanted = pa.array(
                    [selection.wants_destination(name) for name in coded.dictionary.to_pylist()], pa.bool_()
                )
                mask = pc.and_(mask, wanted.take(coded.indices))
            yield batch.filter(mask)


def overlaps(file: pq.ParquetFile, group: int, first: int, following: int) -> bool:
    """Return whether a row group may have such offsets."""
    place = file.schema_arrow.names.index("offset")  # before the maps, so the leaf has the same number
    statistics = file.metadata.row_group(group).column(place).statistics
    return statistics is None or not statistics.has_min_max or (statistics.max >= first and statistics.min < following)


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
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
