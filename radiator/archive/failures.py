"""What went wrong, in words, and whose trouble it is: one partition's own, or everybody's.

A record that nobody foresaw ends the part of its partition, told with the name of the exception and where it was
raised. A full disk, a store out of reach or a worker that was killed meets all: then what is complete is committed, and
the run ends.

Knows: exceptions. Must not know: runs, commits. Pure functions.
"""

from __future__ import annotations

import errno
import re
import tempfile
import traceback
from concurrent.futures.process import BrokenProcessPool

from radiator.archive.files import Files
from radiator.archive.unit import Unit
from radiator.errors import StorageError
from radiator.limits import MIB
from radiator.storage.format import DamagedBatch

_PLACE = re.compile(r'File "([^"]+)", line ([0-9]+)')
_GO_ON = "what is committed is safe, and the next run goes on behind it"
_REMEDIES = {
    errno.ENOSPC: "make room there (a run needs about twice the unit that it is at)",
    errno.EDQUOT: "raise the quota of the user that archives",
    errno.EACCES: "it must belong to the user that archives",
    errno.EPERM: "it must belong to the user that archives",
    errno.EROFS: "it is mounted read-only",
    errno.ENOTDIR: "what stands there is a file: give another --to",
}


def ends_run(error: Exception) -> bool:
    return isinstance(error, OSError | BrokenProcessPool)


def partition_failure(name: str, error: Exception) -> str:
    if isinstance(error, StorageError | DamagedBatch):
        return str(error)
    return (
        f"partition {name!r}: {type(error).__name__}: {error} ({_place(error)}); this is a fault of radiator's, please "
        "report it with this line. The partition stays where it was, the others go on"
    )


def is_full(error: Exception) -> bool:
    """Whether there is no room where files are made."""
    return isinstance(error, OSError) and (error.errno or _number(str(error))) in (errno.ENOSPC, errno.EDQUOT)


def run_failure(files: Files, error: OSError | BrokenProcessPool, unit: Unit | None = None) -> str:
    """``unit``: the one for which there was no room, though it is as small as can be."""
    if isinstance(error, BrokenProcessPool):
        return (
            f"{files.uri}: a process that wrote files was killed, perhaps for want of memory; fewer --jobs need less. "
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
            f"{unit.following - 1}) are the least that can be archived at once, and take about twice that here: make "
            "room; a smaller segment.size makes smaller ones from now on"
        )
    return f"{where}: {error.strerror or error}{remedy}; {_GO_ON}"


def with_location(place: str, error: OSError) -> str:
    """With the place where it happened, if the error does not say it: stores elsewhere do (``asking``)."""
    return str(error) if "://" in str(error).partition(": ")[0] else f"{place}: {error}"


def _number(text: str) -> int | None:
    """pyarrow says it in its text only."""
    found = re.search(r"\[errno ([0-9]+)\]", text)
    return int(found[1]) if found else None


def _place(error: Exception) -> str:
    """Where it was raised; in another process if it comes from there."""
    frames_told = _PLACE.findall(str(error.__cause__)) if error.__cause__ is not None else []
    frames = traceback.extract_tb(error.__traceback__)
    if not frames_told and frames:
        frames_told = [(frames[-1].filename, str(frames[-1].lineno))]
    return f"{frames_told[-1][0].rpartition('/')[2]}:{frames_told[-1][1]}" if frames_told else "nobody knows where"
