"""The monitor of a broker: samples, surveys, and the rates of single destinations.

Invariant: its work per tick and its memory are bounded, whatever exists in the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from radiator.broker.monitoring import figures
from radiator.broker.monitoring.history import History
from radiator.broker.monitoring.listings import Listings
from radiator.broker.monitoring.survey import Survey
from radiator.broker.stats import COUNTERS
from radiator.clock import NS_PER_SECOND, MonoNs, Now

if TYPE_CHECKING:
    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.durable.subscriptions import DurableSubscriptions

WATCHED_MAX: Final = 100  # destinations whose rates are measured, because somebody looks at them
WATCH_NS: Final = 10 * NS_PER_SECOND  # the time over which a rate is measured
WATCH_MIN_NS: Final = NS_PER_SECOND
DELIVERED: Final = tuple(metric.name for metric in COUNTERS if metric.series[0] == "messages_delivered")


class _Seen(NamedTuple):
    """The numbers of one destination at one time."""

    mono: MonoNs
    numbers: dict[str, int | None]


class Monitor:
    """The monitor of one broker.

    Args:
        core: The core of the broker.
        durable: Its durable subscriptions.

    Attributes:
        history: The last hour.
        survey: What is wrong with queues and consumers.
        listings: Sorted lists of names.
        disk: The free bytes and the size of the disk of the data directory, once the server has measured them.
    """

    def __init__(self, core: Core, durable: DurableSubscriptions) -> None:
        self._core = core
        self._started_ns: MonoNs | None = None
        self._seen: dict[str, list[_Seen]] = {}
        self.history = History()
        self.survey = Survey(core, durable)
        self.listings = Listings()
        self.disk: tuple[int, int] | None = None

    def set_disk(self, free: int, size: int) -> None:
        """Set the free bytes and the size of the disk of the data directory."""
        self.disk = (free, size)

    def tick(self, now: Now) -> None:
        """Take a sample and continue the survey, if it is time. Called by the tick of the broker."""
        if self._started_ns is None:
            self._started_ns = now.mono
        self.survey.tick()
        if self.history.is_due(now):
            self.history.add(now, self.numbers())

    @property
    def uptime_seconds(self) -> float:
        """Seconds since the first tick."""
        if self._started_ns is None:
            return 0.0
        return (self._core.timing.now.mono - self._started_ns) / NS_PER_SECOND

    def numbers(self) -> dict[str, int]:
        """Return the numbers of a sample, as they are now."""
        core, stats = self._core, self._core.stats
        found = {
            "published": stats.messages_in,
            "acknowledged": stats.acks,
            "dead_lettered": stats.dead_lettered,
            "published_bytes": stats.body_bytes_in,
            "connections": len(core.sessions),
        }
        if DELIVERED:
            counters = stats.as_dict()
            found["delivered"] = sum(counters[name] for name in DELIVERED)
        if self.survey.ready is not None:
            found["ready"] = self.survey.ready
        return found

    def rates_of(self, destination: Destination) -> dict[str, float | None]:
        """Return the rates of a destination since it was last asked for, over about ten seconds.

        The first call for a destination returns None for each, and begins the measurement.
        """
        now_ns, queue = self._core.timing.now.mono, destination.queue
        numbers = {
            "published": figures.published(destination),
            "delivered": None if queue is None else figures.delivered(queue),
            "acknowledged": None if queue is None else figures.settled(queue),
        }
        seen = self._seen.pop(destination.name, [])
        while len(self._seen) >= WATCHED_MAX:
            del self._seen[next(iter(self._seen))]
        while len(seen) > 1 and now_ns - seen[1].mono >= WATCH_NS:
            del seen[0]
        if seen and now_ns - seen[0].mono > 6 * WATCH_NS:
            seen = []  # that long ago says nothing about now
        if not seen or now_ns - seen[-1].mono >= WATCH_MIN_NS:
            seen.append(_Seen(now_ns, numbers))
        self._seen[destination.name] = seen
        seconds = (now_ns - seen[0].mono) / NS_PER_SECOND
        if not seconds:
            return dict.fromkeys(numbers)
        return {name: _rate(seen[0].numbers[name], numbers[name], seconds) for name in numbers}


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    return None if before is None or after is None else round(max(0, after - before) / seconds, 3)
