"""Find an earlier version of an archive: by its number, by a time, or by a record.

Every commit is a version, and commits stay, so every version can be found. Its files are there unless they were merged
before the retention of the table. Versions are found by bisection, since neither times nor ends decrease.

This module knows the manifest. It does not know the contents of files.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import datetime

from radiator.archive.contents import DataFile, State
from radiator.archive.files import Files, NoArchive, NoVersion
from radiator.archive.manifest import load, made_ms, stored_versions
from radiator.archive.paths import DATE_PREFIX
from radiator.archive.times import time_ns
from radiator.clock import NS_PER_MS
from radiator.words import counted

AsOf = int | str | datetime  # a version; a time, or `partition@offset`

_VERSION = re.compile(r"[0-9]{1,12}")
_RECORD = re.compile(r"(.+)@([0-9]{1,18})", re.DOTALL)


def load_as_of(files: Files, as_of: AsOf) -> State:
    """Return the state of an earlier version.

    Args:
        files: The archive.
        as_of: The number of a version (an int, or its digits); a time (a datetime, or RFC 3339): the last version that
            was committed by then; or ``<partition>@<offset>``: the first version that has that partition up to and
            including that offset.

    Raises:
        NoArchive: There is no archive, or none yet at that time.
        NoVersion: There is no such version, or its files are not stored any more.
        StorageError: It cannot be read.
        ValueError: ``as_of`` is none of these.
    """
    latest = load(files)
    state = _find(files, latest, as_of)
    replaced = [each for path, each in state.files.items() if path not in latest.files]
    gone = _not_stored(files, replaced)
    if gone:
        what = f"{counted(len(gone), 'file')} of version {state.version} {'was' if len(gone) == 1 else 'were'}"
        raise NoVersion(
            f"{files.uri}: {what} merged and removed ({gone[0]}): only "
            "versions since then can be read; `radiator archive --keep-merged` sets how long merged files stay"
        )
    return state


def _not_stored(files: Files, replaced: list[DataFile]) -> list[str]:
    """Return the paths of those files that do not exist.

    The commits do not say so of all: a run may have died after it removed some, other programs may remove files that a
    merge has replaced, and before the log was Delta's each merge removed them at once.
    """
    stored = {entry.path for date in {each.date for each in replaced} for entry in files.list(f"{DATE_PREFIX}{date}")}
    return [each.path for each in replaced if each.path not in stored]


def _find(files: Files, latest: State, as_of: AsOf) -> State:
    text = str(as_of) if isinstance(as_of, int | str) else ""
    if _VERSION.fullmatch(text):
        return load(files, int(text))
    record = _RECORD.fullmatch(text)
    if record is not None:
        return _with_record(files, latest, record[1], int(record[2]))
    if isinstance(as_of, int):
        raise ValueError(f"expected a version, got {as_of}")
    try:
        moment_ns = time_ns(as_of)
    except ValueError as error:
        raise ValueError(
            f"expected a version (a number), a time (RFC 3339) or PARTITION@OFFSET, got {as_of!r}"
        ) from error
    return _at(files, moment_ns // NS_PER_MS, str(as_of))


def _at(files: Files, time_ms: int, said: str) -> State:
    versions = stored_versions(files)
    place = bisect_right(versions, time_ms, key=lambda version: made_ms(files, version))
    if not place:
        raise NoArchive(f"{files.uri}: there was no archive at {said}")
    return load(files, versions[place - 1])


def _with_record(files: Files, latest: State, partition: str, offset: int) -> State:
    end = latest.ends.get(partition)
    if end is None:
        raise NoVersion(f"{files.uri}: the archive has no partition {partition!r}")
    if end <= offset:
        raise NoVersion(f"{files.uri}: the archive has no offset {offset} of {partition!r}: it ends at {end - 1}")
    ends: Callable[[int], int] = lambda version: load(files, version).ends.get(partition, 0)  # noqa: E731
    versions = stored_versions(files)
    return load(files, versions[bisect_left(versions, offset + 1, key=ends)])
