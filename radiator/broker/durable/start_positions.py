"""Start positions of a durable subscription that are looked up on disk.

    start() -> a look-up, off the event loop -> found: the source gets its position
                                             or failed: waiters get the error; repeated at the next tick

This module knows sources, jobs and waiters. It knows neither sessions nor the meaning of a position.

Invariants: each waiter of ``settled`` is called once: when every position is known, when a look-up has failed, or when
the subscription is deleted. A source that was dropped meanwhile gets no position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radiator.broker.delivery.cold_reads import ColdReads, Ends
    from radiator.broker.queues.queue import QueueSource
    from radiator.errors import StorageError

Make = Callable[[], Any]
Found = Callable[[Any, "QueueSource"], None]
Then = Callable[["StorageError | None"], None]


class PositionLookups:
    """The look-ups of one durable subscription."""

    __slots__ = ("_reading", "_sources", "_waiting")

    def __init__(self, reading: ColdReads) -> None:
        self._reading = reading
        self._sources: dict[QueueSource, None] = {}
        self._waiting: list[Then] = []

    def start(self, sources: list[QueueSource], ends: Ends, make: Make, found: Found) -> None:
        """Look up where sources begin. The sources wait for it.

        Args:
            sources: The sources.
            ends: Partitions and end offsets below which everything has to be stored first.
            make: Makes the look-up job, once per attempt.
            found: Called with the finished job and each source.
        """
        for source in sources:
            source.wait_for_place()
            self._sources[source] = None
        self._look_up(sources, ends, make, found)

    def drop(self, source: QueueSource) -> None:
        """Forget a source that was removed."""
        self._sources.pop(source, None)

    def settled(self, then: Then) -> None:
        """Call ``then`` once: with None when every position is known, now or later, or with the error of a look-up."""
        self._waiting.append(then)
        if not self._sources:
            self.report(None)

    def report(self, error: StorageError | None) -> None:
        """Call all waiters with this error, or with None."""
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(error)

    def _look_up(self, sources: list[QueueSource], ends: Ends, make: Make, found: Found) -> None:
        def wanted() -> bool:
            return any(source in self._sources for source in sources)

        def done(finished: Any) -> None:
            if not wanted():
                return
            if finished.error is not None:
                self._reading.failed_look_up(finished.error, partial(self._look_up, sources, ends, make, found))
                self.report(finished.error)
                return
            for source in sources:
                if source in self._sources:
                    del self._sources[source]
                    found(finished, source)
            if not self._sources:
                self.report(None)

        if wanted():
            self._reading.look_up(make, done, wanted, ends)
