"""One moment of a store: where each log ended, noted without looking at each log.

Only logs that had an open batch at the moment, or begin one later, have to be remembered: all others end where they
ended then. So a moment costs as much as what is appended while it is needed, however many logs there are.

Knows: offsets. Must not know: who asks.
Invariant: what was appended before the moment lies below ``end_of``, and what is appended later does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.storage.partition import Partition


class Moment:
    """A moment that lasts until ``close``.

    Args:
        kept: Where the moments of a store are; each batch that is begun is reported to all of them.
        active: The partitions that may have an open batch now.
    """

    __slots__ = ("_ends", "_kept")

    def __init__(self, kept: dict[Moment, None], active: Iterable[Partition]) -> None:
        self._kept = kept
        self._ends = {partition: partition.next_offset for partition in active}
        kept[self] = None

    def begins(self, partition: Partition) -> None:
        """A batch is begun at ``partition.next_offset``."""
        self._ends.setdefault(partition, partition.next_offset)

    def end_of(self, partition: Partition) -> int:
        """The offset that was to be given out next at the moment; less if a write has failed since."""
        return min(self._ends.get(partition, partition.next_offset), partition.next_offset)

    def close(self) -> None:
        """Nobody asks any more."""
        self._kept.pop(self, None)
        self._ends.clear()
