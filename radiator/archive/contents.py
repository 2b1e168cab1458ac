"""What an archive contains after a commit: its files, how far it has each partition, and what is lost.

``manifest`` reads and writes it as a Delta table. This module has data only. Everything in it is immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

SOURCE_KEY = "radiator.source"  # of the table's configuration


class Lost(NamedTuple):
    """Offsets from ``first`` up to, not including, ``next_offset`` that the archive does not have, and why."""

    partition: str
    first: int
    next_offset: int
    why: str


class Anchor(NamedTuple):
    """A record of the archive that identifies a log. ``digest``: see ``lineage``; may be empty."""

    offset: int
    receive_ns: int
    digest: str


@dataclass(frozen=True)
class DataFile:
    """The manifest entry of a Parquet file.

    Its records have offsets from ``first_offset`` up to, not including, ``next_offset``; there may be fewer records
    than offsets. ``destinations`` is None if they are too many to be listed. ``digest`` is the BLAKE2b of all bytes, 16
    bytes in hex, or empty. ``offsets`` and ``names`` are the smallest and largest offset and destination, if known.
    ``typed`` and ``rejected`` are the numbers of records with a struct, and of those whose bodies do not fit their
    schema; None: the file has no struct columns. ``anchor``: that of the partition when the file was added, if the file
    has that record.
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
    offsets: tuple[int, int] | None = None
    names: tuple[str, str] | None = None
    typed: int | None = None
    rejected: int | None = None
    anchor: Anchor | None = field(default=None, compare=False)  # ``State.anchors`` has the result
    modified_ms: int = field(default=0, compare=False)  # when it was committed


@dataclass(frozen=True)
class Table:
    """The metadata of the Delta table. ``schema``: as Delta's JSON."""

    id: str
    schema: str
    configuration: Mapping[str, str]
    created_ms: int


@dataclass(frozen=True)
class State:
    """The contents of an archive after a commit. ``version`` -1: it has no commit.

    Below ``ends`` (and from ``starts`` on) it has everything of a partition except what is ``lost``. ``anchors``: the
    last record of each. ``removed``: files that a merge has replaced and that are still stored, by path, and when
    that was, in milliseconds since 1970; ``vacuumed_ms``: files that were replaced up to then are not stored.
    """

    version: int = -1
    table: Table | None = None
    files: Mapping[str, DataFile] = field(default_factory=dict)  # by path
    ends: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[Lost, ...] = ()
    anchors: Mapping[str, Anchor] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    vacuumed_ms: int = 0

    @property
    def source(self) -> str | None:
        """The id of the data directory to which the archive belongs."""
        return None if self.table is None else self.table.configuration.get(SOURCE_KEY)

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(each.records for each in self.files.values())


def latest_anchors(found: Iterable[DataFile]) -> dict[str, Anchor]:
    """Return the anchor with the highest offset of each partition."""
    anchors: dict[str, Anchor] = {}
    for each in found:
        if each.anchor is not None and each.anchor.offset >= anchors.get(each.partition, each.anchor).offset:
            anchors[each.partition] = each.anchor
    return anchors
