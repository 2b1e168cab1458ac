"""What an archive contains after a commit: its files, how far it has each partition, and what is lost.

``manifest`` reads and writes it as a Delta table. This module has data only. Everything in it is immutable.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

SOURCE_KEY = "radiator.source"  # of the table's configuration
_PARTITION = attrgetter("partition")


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


class Span(NamedTuple):
    """Offsets from ``first`` up to, not including, ``next_offset`` of a partition, of which a file has all records.

    There may be fewer records than offsets. ``destinations``: those of the records, if the file has several spans; None
    if they are too many to be listed. A file with one span has them itself (``DataFile.destinations_of``).
    """

    partition: str
    first: int
    next_offset: int
    records: int
    destinations: tuple[str, ...] | None = None


@dataclass(frozen=True)
class DataFile:
    """The manifest entry of a Parquet file.

    Its records are those of ``spans``, which are sorted. ``destinations`` is None if they are too many to be listed.
    ``digest`` is the BLAKE2b of all bytes, 16 bytes in hex, or empty. ``offsets`` and ``names`` are the smallest and
    largest offset and destination, if known. ``typed`` and ``rejected`` are the numbers of records with a struct, and
    of those whose bodies do not fit their schema; None: the file has no struct columns. ``anchors``: those of its
    partitions when the file was added, if the file has these records.
    """

    path: str
    spans: tuple[Span, ...]
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
    anchors: Mapping[str, Anchor] = field(default_factory=dict, compare=False)  # ``State.anchors`` has the result
    modified_ms: int = field(default=0, compare=False)  # when it was committed

    @cached_property
    def partitions(self) -> frozenset[str]:
        """The partitions that it has records of."""
        return frozenset(each.partition for each in self.spans)

    def spans_of(self, partition: str) -> tuple[Span, ...]:
        """Return its spans of a partition."""
        first = bisect_left(self.spans, partition, key=_PARTITION)
        return self.spans[first : bisect_right(self.spans, partition, first, key=_PARTITION)]

    def destinations_of(self, span: Span) -> tuple[str, ...] | None:
        """Return the destinations of the records of one of its spans; None if they are not listed."""
        return self.destinations if len(self.spans) == 1 else span.destinations


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


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return spans, sorted, with those of a partition joined that overlap or follow one another directly.

    Spans of different files are not joined over offsets that none of them has: another file may have these.
    """
    found: list[Span] = []
    for each in sorted(spans, key=lambda span: span[:3]):
        last = found[-1] if found else None
        if last is None or last.partition != each.partition or each.first > last.next_offset:
            found.append(each)
            continue
        if last.destinations is None or each.destinations is None:
            names = None
        elif last.destinations == each.destinations:
            names = last.destinations
        else:
            names = tuple(sorted({*last.destinations, *each.destinations}))
        end = max(last.next_offset, each.next_offset)
        found[-1] = Span(last.partition, last.first, end, last.records + each.records, names)
    return tuple(found)


def latest_anchors(found: Iterable[DataFile]) -> dict[str, Anchor]:
    """Return the anchor with the highest offset of each partition."""
    anchors: dict[str, Anchor] = {}
    for each in found:
        for name, anchor in each.anchors.items():
            if anchor.offset >= anchors.get(name, anchor).offset:
                anchors[name] = anchor
    return anchors
