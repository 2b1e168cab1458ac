"""Places that are looked up on disk: the sources of a named subscription that do not know yet where they begin.

    start() -> a look-up, off the loop -> found: the source is told its place
                                      or failed: who waits is told; it is asked for again at the next tick

Knows: sources, jobs, who waits. Must not know: what a place means, sessions.
Invariants: who calls ``settled`` is called back once, when every place is known, when a look-up has failed, or when the
name is gone; a source that was dropped meanwhile is told nothing.
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
    """Those of one named subscription."""

    __slots__ = ("_reading", "_sources", "_waiting")

    def __init__(self, reading: ColdReads) -> None:
        self._reading = reading
        self._sources: dict[QueueSource, None] = {}
        self._waiting: list[Then] = []

    def start(self, sources: list[QueueSource], ends: Ends, make: Make, found: Found) -> None:
        """``make`` gives the job that looks their places up, each time it is tried, once what lies below ``ends`` is
        stored; ``found`` gets the finished one, for each of them."""
        for source in sources:
            source.wait_for_place()
            self._sources[source] = None
        self._look_up(sources, ends, make, found)

    def drop(self, source: QueueSource) -> None:
        """Nobody wants to know it any more."""
        self._sources.pop(source, None)

    def settled(self, then: Then) -> None:
        """``then`` is called with None once every place is known, now or later; or with what went wrong."""
        self._waiting.append(then)
        if not self._sources:
            self.report(None)

    def report(self, error: StorageError | None) -> None:
        """Nobody waits any longer."""
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
            self._reading.look_up_stored(ends, make, done, wanted)
