"""Describe failures: those of one partition, and those that end the run.

An unexpected error ends the work on its partition; the message has the exception and where it was raised. A full disk,
an unreachable store or a killed worker affects all: then what is complete is committed, and the run ends.

This module knows exceptions. It does not know runs or commits. All functions are pure.
"""

from __future__ import annotations

import errno
import re
import tempfile
import traceback
from concurrent.futures.process import BrokenProcessPool

from radiator.archive.files import Files
from radiator.archive.unit import Unit
from radiator.errors import ConfigError, StorageError
from radiator.limits import MIB
from radiator.storage.header import DamagedBatch

_PLACE = re.compile(r'File "([^"]+)", line ([0-9]+)')
_GO_ON = "committed files are safe, and the next run continues after them"
_REMEDIES = {
    errno.ENOSPC: "free space there (a run needs about twice the size of its current unit)",
    errno.EDQUOT: "raise the quota of the user that archives",
    errno.EACCES: "it must belong to the user that archives",
    errno.EPERM: "it must belong to the user that archives",
    errno.EROFS: "it is mounted read-only",
    errno.EIO: "check the disk (dmesg, smartctl)",
    errno.ENOTDIR: "it is a file: give another --to",
}


def partition_failure(name: str, error: Exception) -> str:
    """Return the message for an error of one partition."""
    if isinstance(error, StorageError | DamagedBatch):
        return str(error)
    if isinstance(error, ConfigError):  # a decoder cannot be imported here, or a column is refused
        return f"partition {name!r}: {error}. The partition is not archived further, the others are"
    return (
        f"partition {name!r}: {type(error).__name__}: {error} ({_place(error)}); this is a bug of radiator, please "
        f"report it with this line. The partition is not archived further, the others are"
    )


def is_full(error: Exception) -> bool:
    """Return whether there is no room where files are made."""
    return isinstance(error, OSError) and (error.errno or _number(str(error))) in (errno.ENOSPC, errno.EDQUOT)


def run_failure(files: Files, error: OSError | BrokenProcessPool, unit: Unit | None = None) -> str:
    """Return the message for an error that ends the run.

    Args:
        files: The archive.
        error: The error.
        unit: The unit for which there was no room, though it is as small as possible.
    """
    if isinstance(error, BrokenProcessPool):
        return (
            f"{files.uri}: a process that wrote files was killed, perhaps because memory ran out; use fewer --jobs. "
            f"{_GO_ON}"
        )
    number = error.errno or _number(str(error))
    if number is None:
        return f"{with_location(files.uri, error)}; {_GO_ON}"
    where = error.filename or files.uri
    if files.local is None and number in (errno.ENOSPC, errno.EDQUOT):
        where = f"{where} (files are made in {tempfile.gettempdir()} first: TMPDIR)"
    remedy = f"; {_REMEDIES[number]}" if number in _REMEDIES else ""
    if unit is not None:
        remedy = (
            f"; {unit.bytes / MIB:.1f} MiB of log in one segment of {unit.partition} (offsets {unit.first} to "
            f"{unit.following - 1}) are the smallest unit that can be archived, and need about twice that size here: "
            f"free space; a smaller segment.size makes new segments smaller"
        )
    return f"{where}: {error.strerror or error}{remedy}; {_GO_ON}"


def with_location(place: str, error: OSError) -> str:
    """Return the error with the place, unless its text has one, as those of remote stores do (``calls``)."""
    return str(error) if "://" in str(error).partition(": ")[0] else f"{place}: {error}"


def _number(text: str) -> int | None:
    """Return the errno in the text of an error of pyarrow, or None."""
    found = re.search(r"\[errno ([0-9]+)\]", text)
    return int(found[1]) if found else None


def _place(error: Exception) -> str:
    """Return where an error was raised, maybe in another process."""
    places = _PLACE.findall(str(error.__cause__)) if error.__cause__ is not None else []
    frames = traceback.extract_tb(error.__traceback__)
    if not places and frames:
        places = [(frames[-1].filename, str(frames[-1].lineno))]
    return f"{places[-1][0].rpartition('/')[2]}:{places[-1][1]}" if places else "unknown place"
