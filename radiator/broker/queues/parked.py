"""Messages of one source that were passed over: no consumer that could be sent one wanted them.

A queue hands its messages out in order; where consumers have selectors, one that nobody present wants, or whose takers
have no credit, must not hold up the others. Such a message is *parked*: its offset is kept, in a *lane* for each
selector (by its text) that wants it, so that the lowest one for a consumer is found without looking at the others.
Those that expire are known by when they do, so that they go although nobody comes for them.

Knows: offsets, which selector wants what, when one expires. Must not know: consumers, records.
Invariants: what is here is unsettled, in nobody's hands and not in ``returned``; every parked offset is in each lane
that wants it; fresh ones make them ``limits.PARKED_MAX`` at most, then the source looks no further. What comes back
from consumers may make them more: no more than were in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.due.timing import NEVER_NS

if TYPE_CHECKING:
    from radiator.broker.queues.source import QueueSource


class Parked:
    """See the top of the file."""

    __slots__ = ("_ends", "_lanes", "_offsets", "_order")

    def __init__(self) -> None:
        self._offsets: set[int] = set()
        self._order: list[int] = []  # all of them; a heap, as the lanes are: what has left may still be there
        self._lanes: dict[str, list[int]] = {}
        self._ends: list[tuple[int, int]] = []  # when those that expire do: a heap as well

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        """True if no more may be passed over."""
        return len(self._offsets) >= limits.PARKED_MAX

    def serve(self, texts: Iterable[str]) -> list[int]:
        """These are the selectors of the consumers from now on. Returns what has to be judged anew, as one of them was
        not asked before: it is not here any more."""
        wanted = set(texts)
        for text in self._lanes.keys() - wanted:
            del self._lanes[text]
        if wanted <= self._lanes.keys():
            return []
        self._lanes = {text: [] for text in wanted}
        offsets = sorted(self._offsets)
        self._offsets.clear()
        self._order.clear()
        return offsets

    def add(self, offset: int, texts: Iterable[str]) -> None:
        """Pass this one over, which these selectors want."""
        self._offsets.add(offset)
        self._push(self._order, offset)
        for text in texts:
            self._push(self._lanes[text], offset)

    def expires(self, offset: int, end_ns: int) -> None:
        """This one, which was passed over, is of use until then."""
        heappush(self._ends, (end_ns, offset))
        if len(self._ends) > self._room:
            self._ends = list({end for end in self._ends if end[1] in self._offsets})
            heapify(self._ends)

    def expired(self, now_ns: int, most: int) -> list[int]:
        """Take those whose time is over, at most so many."""
        over: list[int] = []
        while len(over) < most and self.next_end_ns <= now_ns:
            offset = heappop(self._ends)[1]
            self._offsets.discard(offset)
            over.append(offset)
        return over

    @property
    def next_end_ns(self) -> int:
        """When the first of them expires."""
        ends = self._ends
        while ends and ends[0][1] not in self._offsets:
            heappop(ends)
        return ends[0][0] if ends else NEVER_NS

    def first(self, text: str) -> int | None:
        """The lowest offset that this selector wants."""
        return self._first(self._lanes[text])

    def lowest(self) -> int | None:
        """The lowest of all."""
        return self._first(self._order)

    def take(self, offset: int) -> None:
        """It is looked at again, or settled."""
        self._offsets.discard(offset)

    def remove(self, start: int, stop: int) -> int:
        """The log has lost these offsets; how many of them were here."""
        lost = [offset for offset in self._offsets if start <= offset < stop]
        self._offsets.difference_update(lost)
        return len(lost)

    def _push(self, heap: list[int], offset: int) -> None:
        heappush(heap, offset)
        if len(heap) > self._room:  # messages that were passed over again and again
            heap[:] = self._offsets.intersection(heap)
            heapify(heap)

    @property
    def _room(self) -> int:
        """How long a heap may be: half of it are live ones at most, so making it anew is rare."""
        return 2 * max(limits.PARKED_MAX, len(self._offsets))

    def _first(self, heap: list[int]) -> int | None:
        while heap and heap[0] not in self._offsets:
            heappop(heap)
        return heap[0] if heap else None


def back(source: QueueSource) -> int:
    """How many messages of a source were looked at, are due, and are in nobody's hands."""
    return len(source.returned) + (0 if source.parked is None else len(source.parked))


def take_lowest(source: QueueSource) -> int | None:
    """Take the oldest that was looked at and is in nobody's hands, due or not, for good; None if there is none."""
    parked = None if source.parked is None else source.parked.lowest()
    deferred = source.deferred.lowest()
    lowest: int | None = min(
        [*source.returned[:1], *(each for each in (parked, deferred) if each is not None)], default=None
    )
    if lowest is None:
        return None
    if lowest == deferred:
        source.deferred.take(lowest)
    elif lowest == parked and source.parked is not None:
        source.parked.take(lowest)
    else:
        heappop(source.returned)
    return lowest
