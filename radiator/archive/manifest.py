"""The log of commits, which define the contents of an archive: a file that is in no commit is not in the archive.

``load`` reads the commits into a ``State``; ``commit`` adds one behind the state that it was made from, under a name
that must be new. If that name exists, the result is a ``Conflict``, and the caller loads again: so two archivers at
once have the same effect as one after the other. Every ``CHECKPOINT_COMMITS`` commits the state is written as one file,
so that a load reads few files; commits are never removed.

This module knows ``Files`` and JSON. It does not know Parquet or stores. States and committed data files are immutable.
Invariant: a state is exactly its commits. A missing or damaged commit is an error, never skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zlib import crc32

from radiator import __version__
from radiator.archive.files import Files
from radiator.archive.paths import LOG, checkpoint_path, commit_path, version_of
from radiator.errors import StorageError

FORMAT = 1
CHECKPOINT_COMMITS = 50

_CRC = re.compile(rb',"crc":([0-9]{1,10})\}\n\Z')


class Lost(NamedTuple):
    """Offsets from ``first`` up to, not including, ``next_offset`` that the archive does not have, and why."""

    partition: str
    first: int
    next_offset: int
    why: str


@dataclass(frozen=True)
class DataFile:
    """The manifest entry of a Parquet file.

    Its records have offsets from ``first_offset`` up to, not including, ``next_offset``; there may be fewer records
    than offsets. ``destinations`` is None if they are too many to be listed. ``digest`` is the BLAKE2b of all bytes, 16
    bytes in hex, or empty.
    """

    path: str
    partition: str
    first_offset: int
    next_offset: int
    date: str
    destinations: tuple[str, ...] | None
    records: int
    bytes: int
    body_bytes: int
    min_receive_ns: int
    max_receive_ns: int
    digest: str = ""


class Anchor(NamedTuple):
    """A record of the archive that identifies a log. ``digest``: see ``lineage``; may be empty."""

    offset: int
    receive_ns: int
    digest: str


_FILE_KEYS = frozenset(each.name for each in fields(DataFile))


@dataclass(frozen=True)
class State:
    """The contents of an archive after a commit. ``version`` -1: it has no commit.

    Below ``ends`` (and from ``starts`` on) it has everything of a partition except what is ``lost``. ``anchors``: the
    last record of each.
    """

    version: int = -1
    source: str | None = None
    files: Mapping[str, DataFile] = field(default_factory=dict)  # by path
    ends: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[Lost, ...] = ()
    anchors: Mapping[str, Anchor] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(each.records for each in self.files.values())


class Conflict(NamedTuple):
    """Another archiver has made that version."""

    version: int


def load(files: Files, version: int | None = None) -> State:
    """Return the latest state, or that of a ``version``. Raises StorageError."""
    commits, checkpoints = _versions(files, version)
    if not _without_gap(commits, checkpoints):  # a listing is no moment: it may lack one that came before another
        commits, checkpoints = _versions(files, version)
    last = max(commits, default=-1)
    if version is not None and last != version:
        raise StorageError(f"{files.uri}: there is no commit {version}; the last one is {last}")
    if (beyond := max(checkpoints, default=-1)) > last:
        raise StorageError(
            f"{files.uri}: there is a checkpoint of commit {beyond}, but the last commit in {LOG}/ is {last}: "
            "commits are missing; restore them: later commits need them"
        )
    for checkpoint in sorted(checkpoints, reverse=True):
        state = _checkpoint(files, checkpoint)
        if state is not None:
            break
    else:
        state = State()
    for number in range(state.version + 1, last + 1):
        if number not in commits:
            raise StorageError(f"{files.uri}: commit {number} is missing in {LOG}/; restore it: later commits need it")
        state = _folded(state, _read(files, commit_path(number)))
    return state


def _without_gap(commits: set[int], checkpoints: set[int]) -> bool:
    """Return whether all commits from the latest checkpoint on are listed."""
    known = max(checkpoints, default=-1)
    return known <= max(commits, default=-1) and commits.issuperset(range(known + 1, max(commits, default=-1)))


def _versions(files: Files, last: int | None) -> tuple[set[int], set[int]]:
    """Return the versions of commits, and of checkpoints."""
    commits: set[int] = set()
    checkpoints: set[int] = set()
    for entry in files.list(LOG):
        found = version_of(entry.path.rpartition("/")[2])
        if found is not None and (last is None or found[0] <= last):
            (checkpoints if found[1] else commits).add(found[0])
    return commits, checkpoints


def commit(
    files: Files,
    state: State,
    *,
    source: str,
    add: Iterable[DataFile] = (),
    remove: Iterable[str] = (),
    ends: Mapping[str, int] | None = None,
    starts: Mapping[str, int] | None = None,
    lost: Iterable[Lost] = (),
    anchors: Mapping[str, Anchor] | None = None,
) -> State | Conflict:
    """Add one commit behind ``state``, and return the new state.

    After an error the commit may be stored or not.

    Args:
        files: The archive.
        state: The state that the commit was made from.
        source: The data directory.
        add: Its new files.
        remove: Paths of files that it removes.
        ends: The new ends of partitions.
        starts: The starts of new partitions.
        lost: Lost ranges.
        anchors: The new anchors.
    """
    made = {
        "format": FORMAT,
        "version": state.version + 1,
        "source": source,
        "made": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "by": f"radiator {__version__}",
        "ends": dict(ends or {}),
        "starts": dict(starts or {}),
        "lost": list(lost),
        "anchors": dict(anchors or {}),
        "add": [asdict(each) for each in add],
        "remove": list(remove),
    }
    following = _folded(state, made)
    path, data = commit_path(following.version), encode(made)
    if not files.create_new(path, data) and files.read(path) != data:  # else the store had taken it, without an answer
        return Conflict(following.version)
    if following.version % CHECKPOINT_COMMITS == CHECKPOINT_COMMITS - 1:
        _write_checkpoint(files, following)
    return following


def _write_checkpoint(files: Files, state: State) -> None:
    """Write a checkpoint. Raises StorageError if another one of that number exists."""
    path = checkpoint_path(state.version)
    if not files.create_new(path, encode(_whole(state))) and _checkpoint(files, state.version) != state:
        raise StorageError(
            f"{files.named(path)}: exists, but is not the state as of commit {state.version}; remove it: the commits "
            f"have the complete state"
        )


def check_source(files: Files, state: State, source: str) -> None:
    """Raise StorageError if the archive belongs to another data directory."""
    if state.source not in (None, source):
        raise StorageError(
            f"{files.uri} is the archive of another data directory (source {state.source}, this one is {source}): use "
            f"one archive per data directory"
        )


def encode(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of a commit or a checkpoint: JSON whose last key is the crc32 of the bytes without it."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return data[:-1] + b',"crc":%d}\n' % crc32(data)


def _decode(data: bytes) -> dict[str, Any]:
    """Return the contents of a commit. Raises ValueError with what is wrong."""
    end = _CRC.search(data)
    if end is None:
        raise ValueError('it does not end with "crc"')
    found = crc32(data[: end.start()] + b"}")
    if found != int(end[1]):
        raise ValueError(f"its crc32 is {found}, it says {int(end[1])}")
    value = json.loads(data)
    if not isinstance(value, dict) or "format" not in value:
        raise ValueError('it has no "format"')
    value.pop("crc")
    return value


def _whole(state: State) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": state.version,
        "source": state.source,
        "ends": dict(state.ends),
        "starts": dict(state.starts),
        "lost": list(state.lost),
        "anchors": dict(state.anchors),
        "add": [asdict(each) for each in state.files.values()],
        "remove": [],
    }


def _read(files: Files, path: str) -> dict[str, Any]:
    data = files.read(path)
    try:
        value = _decode(data)
    except ValueError as error:
        raise StorageError(f"{files.named(path)}: damaged: {error}; restore it: later commits need it") from None
    if value["format"] != FORMAT:
        raise StorageError(
            f"{files.named(path)}: format {value['format']} is newer than this radiator: install another one"
        )
    return value


def _checkpoint(files: Files, version: int) -> State | None:
    """Return the state of a checkpoint; None if it is damaged, because the commits have the same."""
    try:
        value = _decode(files.read(checkpoint_path(version)))
        if value["format"] != FORMAT or value["version"] != version:
            return None
        return _folded(State(version - 1), value)
    except (ValueError, TypeError, KeyError, FileNotFoundError, StorageError):
        return None


def _folded(state: State, made: Mapping[str, Any]) -> State:
    if made["version"] != state.version + 1:
        raise StorageError(f"commit {state.version + 1} says that it is {made['version']}")
    removed = set(made["remove"])
    if not removed <= state.files.keys():
        raise StorageError(f"commit {made['version']} removes files that do not exist: {sorted(removed)[:3]}")
    kept = {path: each for path, each in state.files.items() if path not in removed} if removed else dict(state.files)
    for said in made["add"]:
        if unknown := said.keys() - _FILE_KEYS:
            raise StorageError(
                f"commit {made['version']} says {', '.join(sorted(unknown))} of a file, which this radiator does not "
                "know: install a newer one"
            )
        names = said["destinations"]
        each = DataFile(**{**said, "destinations": None if names is None else tuple(names)})
        if each.path in kept:
            raise StorageError(f"commit {made['version']} adds a file that exists: {each.path}")
        kept[each.path] = each
    return replace(
        state,
        version=made["version"],
        source=made["source"],
        files=kept,
        ends={**state.ends, **made["ends"]},
        starts={**state.starts, **made["starts"]},
        lost=(*state.lost, *(Lost(*each) for each in made["lost"])),
        anchors={**state.anchors, **{name: Anchor(*each) for name, each in made.get("anchors", {}).items()}},
    )
