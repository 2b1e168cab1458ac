"""Unacknowledged messages that return to their queue, and messages whose delivery or life has ended.

    consumer disconnects or leaves  return at once to their places; the delivery counts. A rule may say otherwise
    NACK                            return after a back-off, by the rule or the frame, to other consumers first. At
                                    once if too many messages wait already (DEFERRED_MAX)
    ack_timeout                     return at once; the consumer's window is free again
    redeliver.max is reached        dead letter, or dropped if the rule has no dead_letter
    NACK with requeue:false         the same, at once
    expired                         settled, or a dead letter if the rule says so

``queues.message_states`` has the table of states. Invariants: drops are counted and logged with the key that would keep
the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from radiator.broker import admission
from radiator.broker.clients.session import by_source
from radiator.broker.outcomes.dead_letters import DeadLetter
from radiator.broker.queues import end_reasons
from radiator.broker.queues.recorder import DROPPED, EXPIRED, NACKED, REQUEUED, TIMED_OUT

if TYPE_CHECKING:
    from radiator.broker.clients.session import InFlight, Subscription
    from radiator.broker.core import Core
    from radiator.broker.headers.refusals import Refusal
    from radiator.broker.outcomes.dead_letters import DeadLetters
    from radiator.broker.outcomes.dropped import DroppedLog
    from radiator.broker.queues.consumer import Number
    from radiator.broker.queues.queue import QueueSource

log = logging.getLogger("radiator.broker")


class Returns:
    """The returning messages of one broker.

    Args:
        core: The core of the broker.
        dead_letters: The dead letters of the broker.
        dropped: The log of dropped messages.
    """

    __slots__ = ("_core", "_dropped", "dead_letters")

    def __init__(self, core: Core, dead_letters: DeadLetters, dropped: DroppedLog) -> None:
        self._core = core
        self._dropped = dropped
        self.dead_letters = dead_letters

    @property
    def crowded(self) -> bool:
        """True if more dead letters wait than one turn moves."""
        return self.dead_letters.crowded

    def back(self, source: QueueSource, offsets: list[int], attempted: bool = True, outcome: bytes = REQUEUED) -> None:
        """Return messages that were in flight to their queue.

        Args:
            source: The source of the queue.
            offsets: The offsets.
            attempted: True if the consumer may have begun to process them, so the delivery counts.
            outcome: The outcome of these deliveries, for their record.
        """
        if not offsets or source.closed:
            return
        self._core.stats.count(returned=len(offsets))
        if attempted:
            offsets = self._below_delivery_limit(source, offsets)
        else:
            source.note_unwritten(offsets)
        source.ended(offsets, outcome)
        source.give_back(offsets)
        self._has_returned(source)

    def left(self, source: QueueSource, offsets: list[int]) -> None:
        """Return or end the messages that a disconnected consumer had in flight, as ``on_unacked`` of the rule says.

        While the broker stops or is drained, they always return.
        """
        if source.closed:
            return
        what = source.settings.on_unacked
        if what == "requeue" or self._core.stopping or self._core.draining.active:
            self.back(source, offsets)
            return
        if what == "dead_letter":
            self.ended(source, offsets, end_reasons.UNACKED)
        else:
            source.settle(offsets, DROPPED)
            self._core.stats.count(dropped_unacked=len(offsets))

    def due(self, source: QueueSource, offsets: list[int]) -> None:
        """Return deferred messages to their original places: their time has come."""
        source.come_due(offsets)
        self._has_returned(source)

    def _has_returned(self, source: QueueSource) -> None:
        if source.queue.settings.on_full == "drop_oldest":
            self._core.stats.count(dropped_oldest=admission.trim(source.queue))
        self._core.ready.queue(source.queue)

    def refused(
        self, subscription: Subscription, settled: Sequence[InFlight], refusal: Refusal, transaction: str = ""
    ) -> None:
        """Process a NACK.

        Args:
            subscription: The subscription that refuses.
            settled: The refused deliveries, already out of its window.
            refusal: The request of the NACK.
            transaction: The id of the transaction of the NACK; empty outside of one.
        """
        core = self._core
        groups = by_source(settled)
        for source, offsets in groups.items():
            if source.closed:  # its cursor was set or deleted, so these deliveries have no effect
                continue
            if refusal.requeue:
                core.stats.count(returned=len(offsets))
                offsets = self._below_delivery_limit(source, offsets, transaction)
                self._requeue_after_backoff(source, offsets, refusal.delay_ns, transaction)
            else:
                self.ended(source, offsets, end_reasons.REJECTED, transaction)
            source.queue.served(subscription)
        core.ready.refused(subscription, [source.queue for source in groups])

    def timed_out(self, source: QueueSource, subscription: Subscription, numbers: list[Number]) -> None:
        """Return deliveries that were not acknowledged in time.

        Deliveries that are settled, or acknowledged in an open transaction, are not affected.

        Args:
            source: The source of the queue.
            subscription: The subscription that they were delivered to.
            numbers: The delivery numbers.
        """
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
            "session %s %s: %d messages of %s were not acknowledged within ack_timeout and returned to it",
            session.id,
            session.address,
            len(taken),
            source.queue.name,
            logger=log,
            peer=session,
        )
        self.back(source, taken, outcome=TIMED_OUT)
        source.queue.served(subscription)
        core.ready.refused(subscription, [source.queue])

    def expired(self, source: QueueSource, offset: int, deliveries: int) -> None:
        """Settle an expired message, or make it a dead letter if the rule says so.

        Args:
            source: The source of the queue.
            offset: The offset.
            deliveries: The delivery count.
        """
        self._core.stats.count(expired=1)
        to = source.policy.dead_letter if source.policy.buries_expired else None
        if to is None:
            source.settle([offset], EXPIRED)
        elif source.bury([offset]):
            self.dead_letters.bury([DeadLetter(source, offset, end_reasons.EXPIRED, deliveries, to)])

    def _below_delivery_limit(self, source: QueueSource, offsets: list[int], transaction: str = "") -> list[int]:
        """Return the offsets that may be delivered again, and end the others."""
        most = source.settings.redeliver_max
        if most is None:
            return offsets
        spent = [offset for offset in offsets if source.deliveries(offset) >= most]
        if not spent:
            return offsets
        self.ended(source, spent, end_reasons.MAX_DELIVERIES, transaction)
        left = set(offsets).difference(spent)
        return [offset for offset in offsets if offset in left]

    def _requeue_after_backoff(
        self, source: QueueSource, offsets: list[int], delay_ns: int | None, transaction: str
    ) -> None:
        source.ended(offsets, NACKED, transaction)
        at_once = []
        for offset in offsets:
            pause_ns = source.policy.pause_ns(source.deliveries(offset), offset) if delay_ns is None else delay_ns
            if pause_ns <= 0:
                at_once.append(offset)
            elif source.deferred.refuses:
                at_once.append(offset)
                self._core.stats.count(delays_not_kept=1)
            else:
                source.pause(offset, pause_ns)
        source.give_back(at_once)
        self._has_returned(source)

    def ended(self, source: QueueSource, offsets: list[int], reason: str, transaction: str = "") -> None:
        """Make messages dead letters, or drop them if the rule has no ``dead_letter``.

        Args:
            source: The source of the queue.
            offsets: The offsets.
            reason: A constant of ``queues.end_reasons``.
            transaction: The id of the transaction that refuses them; empty if there is none.
        """
        to = source.policy.dead_letter
        if to is not None:
            buried = source.bury(offsets)
            letters = [DeadLetter(source, each, reason, source.deliveries(each), to, transaction) for each in buried]
            self.dead_letters.bury(letters)
            return
        source.settle(offsets, DROPPED, transaction)
        stats = self._core.stats
        if reason == end_reasons.REJECTED:
            stats.count(dropped_rejected=len(offsets))
        else:
            stats.count(dropped_max_deliveries=len(offsets))
        self._dropped.add(source.queue.name, reason, len(offsets), "to store them, set dead_letter: in its rule")
