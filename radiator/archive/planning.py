"""Plan what is new: the sealed segments of a data directory behind the end of the archive, as units of work.

This module knows the store's listing and the state of an archive. It does not know Parquet, or where the archive is. It
has no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from radiator.archive.lineage import LineageCheck, OtherLog
from radiator.archive.manifest import Lost, State
from radiator.archive.unit import Unit
from radiator.columns.scan import SegmentRange
from radiator.errors import StorageError
from radiator.limits import ARCHIVE_UNIT_BYTES
from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file
from radiator.storage.reader import StoredPartition, StoredSegment
from radiator.storage.salt import decode_key

_REMEDY = (
    "the data directory belongs to another archive, and retention waits for that one: archive it to a new place, or "
    "restore the data that belongs to this archive"
)


@dataclass
class Plan:
    """The work of a run.

    ``problems``: partitions that cannot go on, and why; ``other_logs``: those of which the archive has another log.
    """

    units: list[Unit] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    other_logs: list[str] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)  # offsets that retention removed before, as in the units

    @property
    def bytes(self) -> int:
        """The size of all units."""
        return sum(unit.bytes for unit in self.units)


def source_of(root: str) -> str:
    """Return an id of a data directory. Raises StorageError."""
    key = decode_key(read_file(FileSystem(), layout.salt_path(root)))
    if key is None:
        raise StorageError(
            f"{layout.salt_path(root)} is missing or damaged, so it is unknown which archive belongs to this data "
            "directory: start the broker on it once to create it, or restore it from a backup"
        )
    return blake2b(key, digest_size=16).hexdigest()


def plan(partitions: Iterable[StoredPartition], state: State, unit_bytes: int = ARCHIVE_UNIT_BYTES) -> Plan:
    """Plan partitions."""
    made, lineage = Plan(), LineageCheck(FileSystem(), state)
    for partition in partitions:
        end = state.ends.get(partition.name)
        try:
            lineage.check(partition)
        except OtherLog as error:
            made.other_logs.append(partition.name)
            made.problems[partition.name] = f"{error}; {_REMEDY}"
            continue
        except StorageError as error:
            made.problems[partition.name] = str(error)
            continue
        made.units += _units(partition, end, unit_bytes)
    made.lost = [lost for unit in made.units for lost in unit.lost]
    return made


def _units(partition: StoredPartition, end: int | None, unit_bytes: int) -> Iterator[Unit]:
    sealed = [each for each in partition.segments[:-1] if end is None or each.end_offset > end]
    group: list[StoredSegment] = []
    before, size_bytes = end, 0
    for segment in sealed:
        group.append(segment)
        size_bytes += segment.size_bytes
        if size_bytes >= unit_bytes:
            yield _unit(partition.name, group, before)
            before, group, size_bytes = group[-1].end_offset, [], 0
    if group:
        yield _unit(partition.name, group, before)
    start = partition.log_start_offset
    if not sealed and end is not None and start > end:  # all of it went before
        lost = (Lost(partition.name, end, start, "retention"),)
        yield Unit(partition.name, (), end, start, start, lost, 0)


def _unit(partition: str, segments: list[StoredSegment], before: int | None) -> Unit:
    expected = segments[0].base_offset if before is None else before
    ranges, lost = [], []
    for each in segments:
        if each.base_offset > expected:
            lost.append(Lost(partition, expected, each.base_offset, "retention"))
        ranges.append(SegmentRange(partition, each.path, 0, each.size_bytes, each.base_offset, each.end_offset))
        expected = each.end_offset
    return Unit(
        partition, tuple(ranges), before, max(segments[0].base_offset, before or 0), expected, tuple(lost),
        sum(each.size_bytes for each in segments), any(each.sparse for each in segments),
    )  # fmt: skip
