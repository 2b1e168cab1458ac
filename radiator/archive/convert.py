"""Convert the log of an archive of radiator before Delta (``_log/``) to Delta's, in place.

Each old commit becomes the Delta commit of the same number, and data files stay as they are. Commits are written from
the last to the first: the archive cannot be loaded before commit 0 exists, and has everything then. After that the old
log is removed, from the first commit on: an older radiator then finds no complete archive. A conversion that died is
repeated: what it had written is equal byte for byte.

This module knows the old log, which nothing else reads. It needs no lock; no run of an older radiator may be active.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from radiator.archive.actions import MEASURED
from radiator.archive.contents import Anchor, DataFile, Lost, Span, State
from radiator.archive.files import Files, NoArchive
from radiator.archive.manifest import STATISTICS_KEY, Changes, load, next_commit, write_checkpoint
from radiator.archive.paths import OLD_LOG, commit_path
from radiator.checksum import crc32
from radiator.errors import StorageError

FORMAT = 1
_CRC = re.compile(rb',"crc":([0-9]{1,10})\}\n\Z')
_NAME = re.compile(rf"{OLD_LOG}/([0-9]{{20}})(\.checkpoint)?\.json")


def convert(files: Files, step: Callable[[str], None] = lambda name: None) -> tuple[State, bool]:
    """Convert an archive.

    Args:
        files: The archive.
        step: Called before each change.

    Returns:
        The state, and whether there was anything to convert.

    Raises:
        NoArchive: There is no archive.
        StorageError: The old log is damaged, or the new one is not what the old one says.
        OSError: A file cannot be read or written.
    """
    old = {each.path: found for each in files.list(OLD_LOG) if (found := _NAME.fullmatch(each.path)) is not None}
    versions = sorted(int(found[1]) for found in old.values() if found[2] is None)
    if files.size(commit_path(0)) is None:
        if not versions:
            load(files)  # raises if there is a part of a log
            raise NoArchive(f"{files.uri}: there is no archive")
        made = _converted(files, versions)
        for version in reversed(range(len(made))):
            step("convert")
            path = commit_path(version)
            if not files.create_new(path, made[version]) and files.read(path) != made[version]:
                raise StorageError(
                    f"{files.named(path)}: exists, but is not commit {version} of {OLD_LOG}/: remove it, and convert "
                    "again"
                )
    state = load(files)
    if old:
        step("checkpoint")
        write_checkpoint(files, state)
    for path in sorted(old, key=lambda path: (old[path][2] is None, path)):  # checkpoints first
        step("remove")
        files.remove(path)
    if files.local is not None:
        with contextlib.suppress(OSError):
            os.rmdir(files.address(OLD_LOG))
    return state, bool(old)


def _converted(files: Files, versions: list[int]) -> list[bytes]:
    """Return the bytes of all commits."""
    state, made = State(), []
    for number in range(versions[-1] + 1):
        if number not in versions:
            raise StorageError(f"{files.uri}: commit {number} is missing in {OLD_LOG}/: restore it, then convert")
        old = _read(files, f"{OLD_LOG}/{number:020d}.json")
        moment = datetime.fromisoformat(old["made"]).astimezone(UTC)
        try:
            state, data = next_commit(
                state,
                int(moment.timestamp() * 1000),
                Changes(
                    old["source"],
                    add=[_file(said) for said in old["add"]],
                    remove=old["remove"],
                    ends=old["ends"],
                    starts=old["starts"],
                    lost=[Lost(*each) for each in old["lost"]],
                    anchors={name: Anchor(*each) for name, each in old.get("anchors", {}).items()},
                    configuration={STATISTICS_KEY: ",".join(MEASURED)},
                ),
                engine=old["by"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{files.uri}: commit {number} in {OLD_LOG}/: {type(error).__name__}: {error}") from None
        made.append(data)
    return made


def _file(said: dict[str, Any]) -> DataFile:
    names, rest = said["destinations"], dict(said)
    span = Span(rest.pop("partition"), rest.pop("first_offset"), rest.pop("next_offset"), said["records"])
    return DataFile(**{**rest, "spans": (span,), "destinations": None if names is None else tuple(names)})


def _read(files: Files, path: str) -> dict[str, Any]:
    """Return an old commit: JSON whose last key is the crc32 of the bytes without it."""
    data = files.read(path)
    try:
        end = _CRC.search(data)
        if end is None:
            raise ValueError('it does not end with "crc"')
        found = crc32(data[: end.start()] + b"}")
        if found != int(end[1]):
            raise ValueError(f"its crc32 is {found}, it says {int(end[1])}")
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
    except ValueError as error:
        raise StorageError(f"{files.named(path)}: damaged: {error}; restore it, then convert") from None
    return value
