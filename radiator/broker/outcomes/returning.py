"""What becomes of messages that come back unsettled, and of those whose time is over.

    a consumer is lost or leaves    at once to their places; each delivery counts. Unless the rule says otherwise
    NACK                            the same after a back-off, by the rule or the frame; to others first. At once if
                                    too many wait already (DEFERRED_MAX)
    not answered in time            at once; the window of who did not answer is free
    delivered often enough          not any more: to the dead letters, or dropped if the rule has none
    NACK with requeue:false         the same, at once
    expired                         settled, or to the dead letters if the rule wants them

Invariants: every message is settled, given back, deferred or on its way to the dead letters, and only one of these;
what is dropped is counted and told in the log, with the key that would keep it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from radiator.broker.clients.session import by_source
from radiator.broker.outcomes.dead_letters import DeadLetter
from radiator.broker.queues import end_reasons as ended
from radiator.broker.queues import overflow

if TYPE_CHECKING:
    from radiator.broker.clients.session import InFlight, Subscription
    from radiator.broker.core import Core
    from radiator.broker.outcomes.dead_letters import DeadLetters
    from radiator.broker.outcomes.dropped import DroppedLog
    from radiator.broker.queues.consumer import Number
    from radiator.broker.queues.queue import QueueSource

log = logging.getLogger("radiator.broker")


class Refusal(NamedTuple):
    """What a NACK asks for; ``delay_ns`` None is what the rule says."""

    requeue: bool = True
    delay_ns: int | None = None


class Returns:
    """All of one broker."""

    __slots__ = ("_core", "_dropped", "dead_letters")

    def __init__(self, core: Core, dead_letters: DeadLetters, dropped: DroppedLog) -> None:
        self._core = core
        self._dropped = dropped
        self.dead_letters = dead_letters

    @property
    def crowded(self) -> bool:
        """True if more dead letters wait than one turn moves."""
        return self.dead_letters.crowded

    def back(self, source: QueueSource, offsets: list[int], attempted: bool = True) -> None:
        """These were in flight and are not settled. ``attempted``: their consumer may have begun with them."""
        if not offsets or source.closed:
            return
        self._core.stats.count(returned=len(offsets))
        source.released(offsets)
        if attempted:
            offsets = self._below_delivery_limit(source, offsets)
        else:
            source.spare(offsets)
        self.due(source, offsets)

    def left(self, source: QueueSource, offsets: list[int]) -> None:
        """The consumer that held these is gone; a broker that stops takes nobody's work for failed."""
        if source.closed:
            return
        what = source.settings.on_unacked
        if what == "requeue" or self._core.stopping:
            self.back(source, offsets)
            return
        source.released(offsets)
        if what == "dead_letter":
            self.ended(source, offsets, ended.UNACKED)
        else:
            source.settle(offsets)
            self._core.stats.count(dropped_unacked=len(offsets))

    def due(self, source: QueueSource, offsets: list[int]) -> None:
        """These take their places again."""
        source.give_back(offsets)
        if source.queue.settings.on_full == "drop_oldest":
            self._core.stats.count(dropped_oldest=overflow.trim(source.queue))
        self._core.ready.queue(source.queue)

    def refused(self, subscription: Subscription, settled: Sequence[InFlight], refusal: Refusal) -> None:
        """NACK: these deliveries were refused."""
        core = self._core
        groups = by_source(settled)
        for source, offsets in groups.items():
            if source.closed:  # its cursor was set, or its name deleted: these mean nothing any more
                continue
            source.released(offsets)
            if refusal.requeue:
                core.stats.count(returned=len(offsets))
                self._requeue_after_backoff(source, self._below_delivery_limit(source, offsets), refusal.delay_ns)
            else:
                self.ended(source, offsets, ended.REJECTED)
            source.queue.served(subscription)
        core.ready.refused(subscription, [source.queue for source in groups])

    def timed_out(self, source: QueueSource, subscription: Subscription, numbers: list[Number]) -> None:
        """These deliveries were not answered in time. What is settled, or is to be by an open transaction, stays."""
        taken = [offset for _, offset, _ in subscription.take_back(numbers)]
        if not taken:
            return
        core = self._core
        core.stats.count(ack_timeouts=len(taken))
        session = subscription.session
        core.peer_log.line(
            logging.INFO,
            "ack_timeout",
            session.origin,
            "session %s %s: %d messages of %s were not acknowledged within ack_timeout and went back",
            session.id,
            session.address,
            len(taken),
            source.queue.name,
            logger=log,
        )
        self.back(source, taken)
        source.queue.served(subscription)
        core.ready.refused(subscription, [source.queue])

    def expired(self, source: QueueSource, offset: int, deliveries: int) -> None:
        """Its time is over."""
        self._core.stats.count(expired=1)
        to = source.policy.dead_letter if source.policy.buries_expired else None
        if to is not None:
            self.dead_letters.bury([DeadLetter(source, offset, ended.EXPIRED, deliveries, to)])
        else:
            source.settle([offset])

    def spent(self, source: QueueSource, offsets: list[int]) -> None:
        """These were delivered as often as their rule allows."""
        self.ended(source, offsets, ended.MAX_DELIVERIES)

    def _below_delivery_limit(self, source: QueueSource, offsets: list[int]) -> list[int]:
        """Those of these that may be delivered once more."""
        most = source.settings.redeliver_max
        if most is None:
            return offsets
        spent = [offset for offset in offsets if source.deliveries(offset) >= most and offset >= source.forced_to]
        if not spent:
            return offsets
        self.spent(source, spent)
        left = set(offsets).difference(spent)
        return [offset for offset in offsets if offset in left]

    def _requeue_after_backoff(self, source: QueueSource, offsets: list[int], delay_ns: int | None) -> None:
        at_once = []
        for offset in offsets:
            pause_ns = source.policy.pause_ns(source.deliveries(offset), offset) if delay_ns is None else delay_ns
            if pause_ns <= 0 or offset < source.forced_to:
                at_once.append(offset)
            elif source.deferred.refuses:
                at_once.append(offset)
                self._core.stats.count(delays_not_kept=1)
            else:
                source.deferred.pause(pause_ns, offset)
        self.due(source, at_once)

    def ended(self, source: QueueSource, offsets: list[int], reason: str) -> None:
        """These are delivered no more."""
        to = source.policy.dead_letter
        if to is not None:
            self.dead_letters.bury([DeadLetter(source, each, reason, source.deliveries(each), to) for each in offsets])
            return
        source.settle(offsets)
        stats = self._core.stats
        if reason == ended.REJECTED:
            stats.count(dropped_rejected=len(offsets))
        else:
            stats.count(dropped_max_deliveries=len(offsets))
        self._dropped.add(source.queue.name, reason, len(offsets), "dead_letter: in its rule keeps them")
