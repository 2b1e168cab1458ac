"""Which of a queue's sources are looked at, and in which turn.

A name may read thousands of topics of which few have something: a source that has nothing leaves the ring, and whoever
gives it something (a commit, a message that comes back) puts it in again.

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

    __slots__ = ("_ring",)

    def __init__(self) -> None:
        self._ring: OrderedDict[QueueSource, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ring)

    def __contains__(self, source: object) -> bool:
        return source in self._ring

    def rouse(self, source: QueueSource) -> None:
        """It may have something."""
        self._ring[source] = None

    def drop(self, source: QueueSource) -> None:
        """The queue reads it no more."""
        self._ring.pop(source, None)

    def turns(self) -> Iterator[QueueSource]:
        """Each at most once, the one whose turn was longest ago first."""
        ring = self._ring
        for _ in range(len(ring)):
            source = next(iter(ring))
            if spent(source):
                del ring[source]
            else:
                ring.move_to_end(source)
                yield source


def spent(source: QueueSource) -> bool:
    """True if there is nothing to be looked at until something is stored or comes back."""
    if source.returned or source.loading or source.parked is not None:
        return False
    return bool(source.next_offset >= source.feed.partition.high_watermark)
