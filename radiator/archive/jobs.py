"""Write jobs: units whose records become files of one commit.

A job has one unit that may be large, or the small units of many partitions, which share a file for each day. An error
of one partition leaves its unit out. A job that has taken long, or has become large, leaves the rest of its units to
another one, so that what is complete can be committed.

This module knows units and files in the spool. It does not know commits, or where the archive is. It runs in a process
of its own or in any thread: arguments and results can be pickled.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from radiator.archive.failures import partition_failure
from radiator.archive.manifest import Anchor, Lost
from radiator.archive.split import Settings, Split, SpooledFile
from radiator.archive.unit import SegmentGone, Unit, add_unit
from radiator.columns.scan import LostRecords
from radiator.limits import (
    ARCHIVE_COMMIT_BYTES,
    ARCHIVE_COMMIT_SECONDS,
    ARCHIVE_FILE_SECONDS,
    ARCHIVE_SHARED_LOGS_MAX,
    ARCHIVE_SHARED_UNIT_BYTES_MAX,
)
from radiator.storage.header import DamagedBatch


@dataclass(frozen=True)
class Job:
    """Units, each of another partition if there are several. ``token`` begins the names of its files in the spool."""

    units: tuple[Unit, ...]
    source: str
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def bytes(self) -> int:
        """The size of its units in the log."""
        return sum(each.bytes for each in self.units)


@dataclass(frozen=True)
class Failure:
    """Why a unit was left out. ``gone``: retention has deleted a segment; ``damaged``: it cannot be read."""

    unit: Unit
    text: str
    gone: bool
    damaged: bool


@dataclass
class Written:
    """The result of a job.

    ``units`` are complete in ``files``; ``lost`` and ``anchors`` are theirs. ``left``: jobs that are to follow at once.
    """

    units: list[Unit] = field(default_factory=list)
    files: list[SpooledFile] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    anchors: dict[str, Anchor] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The size of its complete units in the log."""
        return sum(each.bytes for each in self.units)


def jobs_of(units: Iterable[Unit], source: str, job_bytes: int) -> Iterator[Job]:
    """Yield jobs for units.

    Args:
        units: Those of a partition in the order of their offsets.
        source: The data directory.
        job_bytes: The size of the units that are written together, at most.
    """
    planned = list(units)
    count = Counter(unit.partition for unit in planned)
    shared: list[Unit] = []
    alone: list[Unit] = []
    for unit in planned:  # a unit that another one precedes is committed after it, so alone
        small = count[unit.partition] == 1 and unit.bytes <= ARCHIVE_SHARED_UNIT_BYTES_MAX
        (shared if small else alone).append(unit)
    group: list[Unit] = []
    size = 0
    for unit in shared:
        if group and (size + unit.bytes > job_bytes or len(group) >= ARCHIVE_SHARED_LOGS_MAX):
            yield Job(tuple(group), source)
            group, size = [], 0
        group.append(unit)
        size += unit.bytes
    if group:
        yield Job(tuple(group), source)
    yield from (Job((unit,), source) for unit in alone)


def write_job(job: Job, settings: Settings, advance: Callable[[int], None] = lambda done: None) -> Written:
    """Write the files of a job.

    Args:
        job: The job.
        settings: Of the files.
        advance: Called with the bytes of the log that are done.

    Raises:
        OSError: A file cannot be written.
    """
    made, begun = Written(), time.monotonic()
    split = Split(job.token, job.source, settings, alone=len(job.units) == 1)
    for place, unit in enumerate(job.units):
        enough = time.monotonic() - begun >= max(ARCHIVE_COMMIT_SECONDS, split.days * ARCHIVE_FILE_SECONDS)
        if made.units and (enough or split.bytes >= ARCHIVE_COMMIT_BYTES):
            made.left = [Job(job.units[place:], job.source)]
            break
        try:
            lost, anchor = add_unit(unit, split, settings.skip_damaged, advance)
        except OSError:
            raise
        except Exception as error:
            split.drop()
            made.failed.append(_failure(unit, error))
            continue
        made.units.append(unit)
        made.lost += lost
        if anchor is not None:
            made.anchors[unit.partition] = anchor
    try:
        made.files = split.finish() if made.units else []
    except OSError:
        raise
    except Exception as error:
        if len(made.units) == 1:
            return Written(failed=[*made.failed, _failure(made.units[0], error)], left=made.left)
        middle = len(made.units) // 2  # to find the partition of the error
        halves = [Job(tuple(each), job.source) for each in (made.units[:middle], made.units[middle:])]
        return Written(failed=made.failed, left=[*halves, *made.left])
    return made


def _failure(unit: Unit, error: Exception) -> Failure:
    damaged = isinstance(error, LostRecords | DamagedBatch)
    return Failure(unit, partition_failure(unit.partition, error), isinstance(error, SegmentGone), damaged)
