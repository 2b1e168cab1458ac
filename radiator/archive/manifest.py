"""The commits of an archive, which is a Delta table: a file that is in no commit is not in the archive.

``load`` reads the commits into a ``State``; ``commit`` adds one behind the state that it was made from, under a name
that must be new. If that name exists, the result is a ``Conflict``, and the caller loads again: so two archivers at
once have the same effect as one after the other. Every ``CHECKPOINT_COMMITS`` commits, and after one of
``CHECKPOINT_BYTES``, the state is written as one file, so that a load reads few files; commits are never removed.

Any reader of Delta may read the table. Commits and checkpoints of other programs are read here too, as far as they add
no files: properties, a vacuum.

This module knows ``Files`` and Delta's log. It does not know stores. States and committed data files are immutable.
Invariant: a state is exactly its commits. A missing or damaged commit is an error, never skipped.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from radiator.archive import actions, checkpoint
from radiator.archive.actions import PARTITION_COLUMN, TAG, Action
from radiator.archive.contents import (
    SOURCE_KEY,
    Anchor,
    DataFile,
    Lost,
    Span,
    State,
    Table,
    latest_anchors,
    without_old_anchors,
)
from radiator.archive.files import Files, NoVersion
from radiator.archive.paths import LAST_CHECKPOINT, LOG, OLD_LOG, checkpoint_path, commit_path, version_of
from radiator.archive.retention import RETENTION_KEY, RETENTION_SECONDS, interval
from radiator.clock import NS_PER_MS
from radiator.errors import StorageError
from radiator.limits import MIB

__all__ = [
    "Anchor",
    "Changes",
    "Conflict",
    "DataFile",
    "Lost",
    "Span",
    "State",
    "Table",
    "check_source",
    "commit",
    "load",
]

CHECKPOINT_COMMITS = 50
CHECKPOINT_BYTES = 4 * MIB  # of one commit: read from a checkpoint, so many spans take a third of the time
STATISTICS_KEY = "delta.dataSkippingStatsColumns"


class Conflict(NamedTuple):
    """Another archiver has made that version."""

    version: int


def load(files: Files, version: int | None = None) -> State:
    """Return the latest state, or that of a ``version``. Raises NoVersion, or another StorageError."""
    commits, checkpoints = _versions(files, version)
    if not _without_gap(commits, checkpoints):  # a listing is no moment: it may lack one that came before another
        commits, checkpoints = _versions(files, version)
    last = max(commits, default=-1)
    if version is not None and last != version:
        raise NoVersion(f"{files.uri}: there is no version {version}; the last one is {last}")
    if (beyond := max(checkpoints, default=-1)) > last:
        raise StorageError(
            f"{files.uri}: there is a checkpoint of commit {beyond}, but the last commit in {LOG}/ is {last}: "
            "commits are missing; restore them: later commits need them"
        )
    fold = _Fold(State())
    for number in sorted(checkpoints, reverse=True):
        state = _checkpoint(files, number)
        if state is not None:
            fold = _Fold(state)
            break
    if last < 0:
        _refuse_old(files)
    for number in range(fold.version + 1, last + 1):
        if number not in commits:
            _refuse_old(files)
            raise StorageError(f"{files.uri}: commit {number} is missing in {LOG}/; restore it: later commits need it")
        fold.add(number, _read(files, number))
        if number % CHECKPOINT_COMMITS == 0:
            fold = _Fold(fold.state())  # without anchors that later commits have replaced
    return fold.state()


def _refuse_old(files: Files) -> None:
    """Raise StorageError if the archive has a log of an earlier version of radiator."""
    if any(each.path.startswith(f"{OLD_LOG}/") for each in files.list(OLD_LOG)):
        raise StorageError(
            f"{files.uri}: this archive has the log of an earlier version of radiator ({OLD_LOG}/): run `radiator "
            "archive convert` on it once, which writes a new log and leaves the data files as they are"
        )


def _without_gap(commits: set[int], checkpoints: set[int]) -> bool:
    """Return whether all commits from the latest checkpoint on are listed."""
    known = max(checkpoints, default=-1)
    return known <= max(commits, default=-1) and commits.issuperset(range(known + 1, max(commits, default=-1)))


def _versions(files: Files, last: int | None) -> tuple[set[int], set[int]]:
    """Return the versions of commits, and of checkpoints."""
    commits: set[int] = set()
    checkpoints: set[int] = set()
    for entry in files.list(LOG):
        found = version_of(entry.path)
        if found is not None and (last is None or found[0] <= last):
            (checkpoints if found[1] else commits).add(found[0])
    return commits, checkpoints


def stored_versions(files: Files) -> list[int]:
    """Return the versions whose commits are stored, in order."""
    return sorted(_versions(files, None)[0])


def made_ms(files: Files, version: int) -> int:
    """Return the time of a commit, in milliseconds since 1970. Raises StorageError."""
    for action in _read(files, version):
        if "commitInfo" in action:
            return int(action["commitInfo"]["timestamp"])
    raise StorageError(f"{files.named(commit_path(version))}: has no commitInfo, so its time is unknown")


@dataclass(frozen=True)
class Changes:
    """The changes of a commit.

    Attributes:
        source: The data directory.
        add: The new files.
        remove: Paths of files whose records the new files have.
        ends: The new ends of partitions.
        starts: The starts of new partitions.
        lost: Lost ranges.
        anchors: The new anchors; each is stored with the new file that has the record.
        schema: The columns of data files from now on; None: as they were.
        configuration: Changed properties of the table.
        vacuumed_ms: Merged files that were replaced up to then do not exist.
    """

    source: str
    add: Sequence[DataFile] = ()
    remove: Sequence[str] = ()
    ends: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    lost: Sequence[Lost] = ()
    anchors: Mapping[str, Anchor] = field(default_factory=dict)
    schema: pa.Schema | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)
    vacuumed_ms: int | None = None

    @property
    def operation(self) -> str:
        """The name that the history of the table shows."""
        if self.remove:
            return "OPTIMIZE"
        if self.add or self.ends:
            return "WRITE"
        return "VACUUM END" if self.vacuumed_ms else "SET TBLPROPERTIES"

    def numbers(self, made_ms: int) -> Iterator[Action]:
        """Yield the actions that store ends, starts, lost ranges, and how far merged files are removed."""
        for kind, offsets in ((actions.END, self.ends), (actions.START, self.starts)):
            yield from (actions.txn(offset, made_ms, kind, self.source, name) for name, offset in offsets.items())
        yield from (actions.lost_of(self.source, each, made_ms) for each in self.lost)
        if self.vacuumed_ms is not None:
            yield actions.txn(self.vacuumed_ms, made_ms, actions.VACUUM, self.source)


def commit(files: Files, state: State, changes: Changes) -> State | Conflict:
    """Add one commit behind ``state``, and return the new state.

    After an error the commit may be stored or not.
    """
    following, data = next_commit(state, time.time_ns() // NS_PER_MS, changes)
    path = commit_path(following.version)
    if not files.create_new(path, data) and files.read(path) != data:  # else the store had taken it, without an answer
        return Conflict(following.version)
    if following.version % CHECKPOINT_COMMITS == CHECKPOINT_COMMITS - 1 or len(data) >= CHECKPOINT_BYTES:
        write_checkpoint(files, following)
    return following


def next_commit(
    state: State, made_ms: int, changes: Changes, engine: str = actions.ENGINE_VERSION
) -> tuple[State, bytes]:
    """Return the state after a commit, and the bytes of the commit.

    Args:
        state: The state before it.
        made_ms: The time of the commit, in milliseconds since 1970.
        changes: What it changes.
        engine: The program that has made it.
    """
    if missing := [path for path in changes.remove if path not in state.files]:
        raise StorageError(f"commit {state.version + 1} removes files that do not exist: {missing[:3]}")
    made: list[Action] = []
    table = _table(state, made_ms, changes)
    if table != state.table:
        if state.table is None:
            made.append({"protocol": actions.PROTOCOL})
        made.append(actions.metadata_of(table))
    made += changes.numbers(made_ms)
    gone = [state.files[path] for path in changes.remove]
    deleted_ms = max(made_ms, state.vacuumed_ms + 1)  # so that a vacuum with another clock finds it
    made += (actions.remove_of(each, deleted_ms) for each in gone)
    carried = {name: anchor for name, anchor in latest_anchors(gone).items() if state.anchors.get(name) == anchor}
    added = _anchored([replace(each, modified_ms=made_ms) for each in changes.add], {**carried, **changes.anchors})
    made += (actions.add_of(each, data_change=not gone) for each in added)
    kind = changes.operation
    info: dict[str, Any] = {"timestamp": made_ms, "operation": kind, "operationParameters": {}, "engineInfo": engine}
    if kind == "WRITE":
        info["operationParameters"] = {"mode": "Append", "partitionBy": f'["{PARTITION_COLUMN}"]'}
    fold = _Fold(state)
    fold.add(state.version + 1, made)
    return fold.state(), actions.encode(info, made)


def _statistics(state: State, new: Iterable[DataFile]) -> dict[str, str]:
    """Return the property with the columns whose statistics all files have; nothing if the table has it.

    Without it deltalake compares other columns with null, and a query with a filter over its dataset, such as DuckDB's,
    silently loses all rows. Files of archives that were converted have no destinations and offsets.
    """
    if state.table is not None and STATISTICS_KEY in state.table.configuration:
        return {}
    known = all(each.names is not None and each.offsets is not None for each in chain(state.files.values(), new))
    return {STATISTICS_KEY: ",".join((*actions.MEASURED, *(("destination", "offset") if known else ())))}


def _table(state: State, made_ms: int, changes: Changes) -> Table:
    """Return the metadata of the table after a commit."""
    table = state.table or Table(
        str(uuid.uuid5(uuid.NAMESPACE_OID, f"{changes.source}:{made_ms}")),
        actions.schema_string(),
        {
            SOURCE_KEY: changes.source,
            RETENTION_KEY: interval(RETENTION_SECONDS),
            "delta.appendOnly": "true",  # other programs may not delete or change records
            "delta.enableExpiredLogCleanup": "false",  # commits stay, so every version can be found
        },
        made_ms,
    )
    columns = table.schema if changes.schema is None else actions.schema_string(changes.schema)
    configuration = {**table.configuration, **_statistics(state, changes.add), **changes.configuration}
    return replace(table, schema=columns, configuration=configuration)


def _anchored(added: list[DataFile], anchors: Mapping[str, Anchor]) -> list[DataFile]:
    """Return new files, each anchor with one that has its record."""
    by_partition: dict[str, list[int]] = {}
    for place, each in enumerate(added):
        for name in each.partitions:
            by_partition.setdefault(name, []).append(place)
    own: dict[int, dict[str, Anchor]] = {}
    for name, anchor in anchors.items():
        places = [
            place
            for place in by_partition.get(name, ())
            if any(span.first <= anchor.offset < span.next_offset for span in added[place].spans_of(name))
        ]
        if places:
            own.setdefault(max(places, key=lambda place: added[place].max_receive_ns), {})[name] = anchor
    return [replace(each, anchors=own[place]) if place in own else each for place, each in enumerate(added)]


def write_checkpoint(files: Files, state: State) -> None:
    """Write a checkpoint. Raises StorageError if another one of that number exists."""
    path = checkpoint_path(state.version)
    data = checkpoint.encode(state)
    if not files.create_new(path, data) and _checkpoint(files, state.version) != state:
        raise StorageError(
            f"{files.named(path)}: exists, but is not the state as of version {state.version}; remove it: the commits "
            f"have the complete state"
        )
    count = checkpoint.rows(state)
    files.replace(LAST_CHECKPOINT, b'{"version":%d,"size":%d}' % (state.version, count))


def check_source(files: Files, state: State, source: str) -> None:
    """Raise StorageError if the archive belongs to another data directory."""
    if state.source not in (None, source):
        raise StorageError(
            f"{files.uri} is the archive of another data directory (source {state.source}, this one is {source}): use "
            f"one archive per data directory"
        )


def _read(files: Files, version: int) -> list[Action]:
    path = commit_path(version)
    try:
        return actions.decode(files.read(path))
    except ValueError as error:
        raise StorageError(f"{files.named(path)}: damaged: {error}; restore it: later commits need it") from None


def _checkpoint(files: Files, version: int) -> State | None:
    """Return the state of a checkpoint; None if it is damaged, because the commits have the same."""
    try:
        fold = _Fold(State(version - 1))
        fold.add_checkpoint(version, files.read(checkpoint_path(version)))
        return fold.state()
    except (ValueError, TypeError, KeyError, OSError, StorageError, pa.ArrowException):
        return None


class _Fold:
    """A state to which commits are added."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.version = state.version
        self._table, self._vacuumed_ms = state.table, state.vacuumed_ms
        self._files, self._removed = dict(state.files), dict(state.removed)
        self._ends, self._starts, self._lost = dict(state.ends), dict(state.starts), set(state.lost)

    def state(self) -> State:
        """Return the state."""
        if self.version >= 0 and self._table is None:
            raise StorageError(f"commit {self.version}: there is no metaData action in any commit")
        removed = {path: at_ms for path, at_ms in self._removed.items() if at_ms > self._vacuumed_ms}
        anchors = latest_anchors(self._files.values())
        files = {path: without_old_anchors(each, anchors) for path, each in self._files.items()}
        return State(
            self.version, self._table, files, self._ends, self._starts, tuple(sorted(self._lost)), anchors, removed,
            self._vacuumed_ms,
        )  # fmt: skip

    def add(self, version: int, made: Iterable[Action]) -> None:
        """Add the actions of a commit."""
        assert version == self.version + 1
        self.version = version
        try:
            for action in made:
                for kind, value in action.items():
                    self._add(kind, value)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StorageError(f"commit {version}: {type(error).__name__}: {error}") from None
        except StorageError as error:
            raise StorageError(f"commit {version}: {error}") from None

    def _add(self, kind: str, value: dict[str, Any]) -> None:
        if kind == "add":
            self._add_file(
                value["path"], value["partitionValues"].get(PARTITION_COLUMN), value["size"],
                value["modificationTime"], (value.get("tags") or {}).get(TAG),
            )  # fmt: skip
        elif kind == "remove":
            if self._files.pop(value["path"], None) is None:
                raise StorageError(f"removes a file that does not exist: {value['path']}")
            self._removed[value["path"]] = value.get("deletionTimestamp") or 0
        elif kind == "txn":
            self._add_number(value["appId"], value["version"])
        elif kind == "metaData":
            self._table = actions.table_from(value)
        elif kind == "protocol":
            actions.check_protocol(value)

    def _add_file(self, path: str, date: str | None, size: int, modified_ms: int, tag: str | None) -> None:
        if path in self._files:
            raise StorageError(f"adds a file that exists: {path}")
        self._files[path] = actions.file_of(path, date, size, modified_ms, tag)
        self._removed.pop(path, None)

    def _add_number(self, name: str, version: int) -> None:
        kind, _, rest = name.partition(":")
        source, _, rest = rest.partition(":")
        if self._table is None or source != self._table.configuration.get(SOURCE_KEY):
            return  # of another program
        if kind == actions.END:
            self._ends[rest] = version
        elif kind == actions.START:
            self._starts[rest] = version
        elif kind == actions.LOST:
            self._lost.add(actions.lost_from(rest, version))
        elif kind == actions.VACUUM:
            self._vacuumed_ms = version

    def add_checkpoint(self, version: int, data: bytes) -> None:
        """Add all actions of a checkpoint."""
        self.version = version
        for kind in ("protocol", "metaData", "txn", "remove"):
            for found in checkpoint.decode(data, kind):
                for value in found.to_pylist(maps_as_pydicts="strict"):
                    if kind == "remove":
                        self._removed[value["path"]] = value.get("deletionTimestamp") or 0
                    else:
                        self._add(kind, value)
        for files in checkpoint.decode(data, "add"):
            columns = [
                pc.struct_field(files, "path"),
                pc.map_lookup(pc.struct_field(files, "partitionValues"), PARTITION_COLUMN, "first"),
                pc.struct_field(files, "size"),
                pc.struct_field(files, "modificationTime"),
                pc.map_lookup(pc.struct_field(files, "tags"), TAG, "first"),
            ]
            for row in zip(*(each.to_pylist() for each in columns), strict=True):
                self._add_file(*row)
        pa.default_memory_pool().release_unused()  # some hundred MiB, if there are many logs
