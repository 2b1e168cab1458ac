"""Which of a queue's sources are looked at, and in which turn.

A name may read thousands of topics of which few have something: a source that has nothing leaves the ring, and whoever
gives it something (a commit, a message that comes back) puts it in again.

Those that go ``first`` (former logs, ``destinations.former``) come before the ring, the highest of them first.

Knows: sources. Must not know: consumers, messages.
Invariant: every source that is not ``spent`` is here, but for those whose log goes on with others' messages alone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from radiator.broker.queues.source import QueueSource


class Rota:
    """See the top of the file."""

    __slots__ = ("_first", "_ring")

    def __init__(self) -> None:
        self._ring: OrderedDict[QueueSource, None] = OrderedDict()
        self._first: dict[QueueSource, None] = {}

    def __len__(self) -> int:
        return len(self._ring) + len(self._first)

    def __contains__(self, source: object) -> bool:
        return source in self._ring or source in self._first

    def left(self, enough: int) -> int:
        """How many messages nobody has been given yet, about; ``enough`` or more are not counted."""
        left = 0
        for source in self._ring:
            left += source.fresh + len(source.returned)
            if left >= enough:
                break
        return left

    def rouse(self, source: QueueSource) -> None:
        """It may have something."""
        if source.first:
            self._first[source] = None
        else:
            self._ring[source] = None

    def drop(self, source: QueueSource) -> None:
        """The queue reads it no more."""
        self._ring.pop(source, None)
        self._first.pop(source, None)

    def turns(self) -> Iterator[QueueSource]:
        """Each at most once: those that go first, then the one whose turn was longest ago."""
        if self._first:
            for source in [each for each in self._first if spent(each)]:
                del self._first[source]
            yield from sorted(self._first, key=_lane, reverse=True)  # which keeps the order of those that are alike
        ring = self._ring
        for _ in range(len(ring)):
            source = next(iter(ring))
            if spent(source):
                del ring[source]
            else:
                ring.move_to_end(source)
                yield source


def _lane(source: QueueSource) -> int:
    return source.lane


def spent(source: QueueSource) -> bool:
    """True if there is nothing to be looked at until something is stored or comes back."""
    if source.returned or source.loading or source.skipped is not None:
        return False
    return bool(source.next_offset >= source.feed.partition.high_watermark)
