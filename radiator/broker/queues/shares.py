"""Equal shares for equal consumers of one queue: nobody gets ahead of one that is as quick and about to answer.

A message goes to whoever asks, and who is served longest ago comes first. That alone makes shares drift apart: most of
the time only one consumer has room, and it is chance whose answer comes first. So a consumer that is ahead of an equal
one waits a moment for it. Who takes longer over its messages is no equal, and neither, for its next deliveries, is one
that did not answer within that moment; so a slow consumer costs a quick one next to nothing. What somebody has missed
for a hiccup is made up for, but no more than ``DEBT_MAX`` deliveries.

Equal means: the same window, the same ack mode, and about the same time for a message. With ``ack:auto`` messages are
dealt out in turn anyway.

Knows: what went to whom and when. Must not know: messages, logs.
Invariant: whoever waits here is looked at again, at the latest when ``due`` is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from radiator.broker.due.timing import NEVER_NS
from radiator.clock import NS_PER_MS

if TYPE_CHECKING:
    from radiator.broker.due.timing import Timing
    from radiator.broker.queues.queue import Queue
    from radiator.broker.subscriptions.subscription import Subscription

LEAD = 1  # deliveries, of one equal before another
CONSUMERS_MAX = 16  # among more the looking costs more than the evenness is worth
PATIENCE_NS = 5 * NS_PER_MS  # the most that a message waits here
SLOWER = 3  # who takes so many times as long is no equal
SERVICE_NS_MAX = 20 * NS_PER_MS
EXEMPT, EXEMPT_MAX = 4, 256  # deliveries for which one that kept others waiting in vain is not waited for again
DEBT_MAX = 32
UNLIMITED = 1 << 30

Credits = list[tuple["Subscription", int]]


class Share:
    """What one consumer has had. ``service_ns``: how long it takes for a message, about; 0 is not known yet."""

    __slots__ = ("answered", "exempt", "last_ns", "penalty", "served", "service_ns")

    def __init__(self, served: int) -> None:
        self.served = served
        self.last_ns = 0
        self.answered = True  # it has had room since it was served last
        self.service_ns = 0
        self.exempt = 0
        self.penalty = EXEMPT

    def asks(self, now_ns: int) -> None:
        """It has room. What took long may have been a pause: long times count little, short ones at once."""
        if not self.answered:
            self.answered = True
            took_ns = min(SERVICE_NS_MAX, max(1, now_ns - self.last_ns))
            slower = self.service_ns and took_ns > self.service_ns
            self.service_ns = self.service_ns + (took_ns - self.service_ns) // 8 if slower else took_ns

    def waits_for(self, other: Share, now_ns: int) -> bool:
        """Whether the other one is as quick, and will answer in a moment."""
        if other.exempt or now_ns - other.last_ns >= PATIENCE_NS:
            return False
        known = self.service_ns and other.service_ns
        return not known or other.service_ns <= SLOWER * self.service_ns + NS_PER_MS // 5


class Shares:
    """Those of one queue's consumers."""

    __slots__ = ("_blockers", "_queue", "_shares", "_timing", "wake_ns")

    def __init__(self, queue: Queue, timing: Timing) -> None:
        self._queue = queue
        self._timing = timing
        self._shares: dict[Subscription, Share] = {}
        self._blockers: dict[Subscription, int] = {}  # who is waited for, and until when
        self.wake_ns = NEVER_NS

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for somebody else."""
        return bool(self._blockers)

    def limit(self, takers: Iterable[Subscription], credits: Credits) -> Credits:
        """The credits, cut down to what keeps the shares equal."""
        now_ns = self._timing.now_ns
        given = dict(credits)
        peers = [each for each in takers if each.ack != "auto"]
        allowed: Credits = []
        for consumer, credit in credits:
            if consumer.ack != "auto":
                credit = min(credit, self._allowance(consumer, peers, given, now_ns))
            if credit > 0:
                allowed.append((consumer, credit))
        return allowed

    def _allowance(
        self, consumer: Subscription, peers: list[Subscription], given: dict[Subscription, int], now_ns: int
    ) -> int:
        own = self._share(consumer)
        own.asks(now_ns)
        awaited = reachable = UNLIMITED
        for peer in peers:
            if peer is consumer or not _equal(peer, consumer):
                continue
            share = self._share(peer)
            going = given.get(peer, 0)
            if going:
                reachable = min(reachable, share.served + going)
            elif peer.in_flight and own.waits_for(share, now_ns):
                awaited = min(awaited, share.served)
                if own.served - share.served >= LEAD:
                    self._blockers[peer] = share.last_ns + PATIENCE_NS
                    self._timing.at(share.last_ns + PATIENCE_NS, self)
        return min(awaited, reachable) + LEAD - own.served

    def _share(self, consumer: Subscription) -> Share:
        share = self._shares.get(consumer)
        if share is None:
            present = self._queue.consumers
            self._shares = {each: known for each, known in self._shares.items() if each in present}
            done = [known.served - len(each.in_flight) for each, known in self._shares.items()]
            share = self._shares[consumer] = Share(min(done, default=0) + len(consumer.in_flight))
        return share

    def served(self, consumer: Subscription, messages: int) -> None:
        """So many messages have just gone to this one."""
        share = self._share(consumer)
        share.last_ns = self._timing.now_ns
        share.answered = consumer.queue_credit() > 0  # while there is room left, room says nothing
        share.exempt = max(0, share.exempt - messages)
        top = max(each.served for each in self._shares.values())
        share.served = max(share.served + messages, top - DEBT_MAX)
        if self._blockers and self._blockers.pop(consumer, None) is not None:
            share.penalty = EXEMPT
            self._timing.wake(self._queue)

    def due(self, now_ns: int) -> None:
        """Who has not answered in time is no equal; the others go on."""
        if self._blockers:
            for peer, until_ns in self._blockers.items():
                share = self._shares.get(peer)
                if share is not None and until_ns <= now_ns:
                    share.exempt = share.penalty
                    share.penalty = min(EXEMPT_MAX, 2 * share.penalty)
            self._blockers.clear()  # whoever is still waited for is met again at once
            self._timing.wake(self._queue)

    def clock_went_back(self, by_ns: int) -> None:
        """Nobody waits longer for it."""
        for share in self._shares.values():
            share.last_ns -= by_ns
        self.due(self._timing.now_ns)


def _equal(one: Subscription, other: Subscription) -> bool:
    return one.window == other.window and one.ack == other.ack and one.session.window == other.session.window
