"""What an archive contains after a commit: its files, how far it has each partition, and what is lost.

``manifest`` reads and writes it as a Delta table. This module has data only. Everything in it is immutable.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from sys import intern
from typing import NamedTuple, overload

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


class PackedSpans(Sequence[Span]):
    """Spans in columns, with 32 bytes for each: a year of 10,000 logs has millions.

    Args:
        spans: The spans, sorted.
    """

    __slots__ = ("_destinations", "_ends", "_firsts", "_names", "_records")

    def __init__(self, spans: Iterable[Span]) -> None:
        names: list[str] = []
        self._firsts, self._ends, self._records = array("q"), array("q"), array("q")
        self._destinations: dict[int, tuple[str, ...] | None] = {}  # where they are not the partition's name alone
        for place, each in enumerate(spans):
            names.append(intern(each.partition))
            self._firsts.append(each.first)
            self._ends.append(each.next_offset)
            self._records.append(each.records)
            if each.destinations != (each.partition,):
                self._destinations[place] = each.destinations
        self._names = tuple(names)

    @property
    def partitions(self) -> frozenset[str]:
        """Their partitions."""
        return frozenset(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, place: int) -> Span: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Span, ...]: ...
    def __getitem__(self, place: int | slice) -> Span | tuple[Span, ...]:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(len(self))))
        name = self._names[place]
        names = self._destinations.get(place % len(self), (name,))
        return Span(name, self._firsts[place], self._ends[place], self._records[place], names)

    def __iter__(self) -> Iterator[Span]:
        rows = zip(self._names, self._firsts, self._ends, self._records, strict=True)
        for place, (name, first, end, records) in enumerate(rows):
            yield Span(name, first, end, records, self._destinations.get(place, (name,)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


@dataclass(frozen=True)
class DataFile:
    """The manifest entry of a Parquet file.

    Its records are those of ``spans``, which are sorted. ``destinations`` is None if they are too many to be listed.
    ``digest`` is the BLAKE2b of all bytes, 16 bytes in hex, or empty. ``offsets`` and ``names`` are the smallest and
    largest offset and destination, if known. ``typed`` and ``rejected`` are the numbers of records with a struct, and
    of those whose bodies do not fit their schema; None: the file has no struct columns. ``anchors``: those of its
    partitions when the file was added, if the file has these records; in a ``State`` without those of which a
    later file has a newer one.
    """

    path: str
    spans: Sequence[Span]
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

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions that it has records of."""
        if isinstance(self.spans, PackedSpans):
            return self.spans.partitions
        return frozenset(each.partition for each in self.spans)

    def spans_of(self, partition: str) -> tuple[Span, ...]:
        """Return its spans of a partition."""
        first = bisect_left(self.spans, partition, key=_PARTITION)
        return tuple(self.spans[first : bisect_right(self.spans, partition, first, key=_PARTITION)])

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


def without_old_anchors(each: DataFile, latest: Mapping[str, Anchor]) -> DataFile:
    """Return a file with those of its anchors that are the latest of their partitions."""
    kept = {name: anchor for name, anchor in each.anchors.items() if anchor == latest[name]}
    return each if len(kept) == len(each.anchors) else replace(each, anchors=kept)
