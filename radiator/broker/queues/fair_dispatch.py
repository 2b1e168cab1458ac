"""Fair dispatch: equal consumers of a queue get equal numbers of messages, give or take one, when the queue runs empty.

A message goes to the consumer that has credit; among several consumers, to the one that has had the fewest. That alone
lets the numbers drift apart, because mostly only one consumer has credit and chance decides which. A lead is harmless
while enough messages are left for the others to catch up. When the messages left are those that the others lack, the
leading consumer waits for a moment.

It waits only for consumers of about the same speed that are about to acknowledge. A consumer that takes longer for its
messages is not equal. Nor is one that did not acknowledge within that moment, for its next deliveries. So a slow
consumer costs a fast one next to nothing. A backlog of deliveries is caught up for at most ``DEBT_NS``.

Equal consumers have the same window, the same ack mode, and about the same time per message. Under ``ack:auto``
messages are dealt out in turn anyway.

The module knows numbers and times of deliveries, but not messages or logs.
Invariants: a consumer that waits is considered again, at the latest when ``due`` is called. Among consumers with
credit, the least-served one is served first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING

from radiator.clock import NS_PER_MS, MonoNs, Now

if TYPE_CHECKING:
    from radiator.broker.logs.selection import Selection
    from radiator.broker.queues.consumer import Consumer, ConsumerSession
    from radiator.broker.timers.timing import Timing

CONSUMERS_MAX = 16  # with more consumers the cost exceeds the benefit
PATIENCE_NS = 50 * NS_PER_MS  # a pause of a fast consumer's process on a busy machine
SLOWER = 3  # a consumer that takes so many times as long is not equal
SAMPLES = 3  # fewer samples are not used
EXEMPT, EXEMPT_MAX = 1, 256  # deliveries during which no consumer waits for one that was late
DEBT_NS = 100 * NS_PER_MS  # the longest time of catching up alone
DEBT_MIN, DEBT_MAX = 4, 128  # deliveries
NOT_AWAITED = MonoNs(0)

Credits = list[tuple["Consumer", int]]
Kind = tuple["int | None", str, "Selection | None", int]


class ConsumerShare:
    """The deliveries of one consumer.

    Args:
        served: The number of messages that it counts as having had.
        in_flight: The number of messages that it has in flight.
        now_ns: The monotonic time.

    Attributes:
        served: The number that fair dispatch keeps equal.
        sent: The real number of messages sent.
        done: Messages acknowledged at ``since_ns``, the start of the present measurement.
        answered: True if the consumer has had credit since its last delivery.
        service_ns: The approximate time per message; 0 if unknown.
        took_ns: The time of its last acknowledgement.
        exempt: The number of deliveries during which other consumers do not wait for it.
        penalty: The next value of ``exempt``.
    """

    __slots__ = (
        "answered",
        "done",
        "exempt",
        "last_ns",
        "penalty",
        "samples",
        "sent",
        "served",
        "service_ns",
        "since_ns",
        "took_ns",
    )

    def __init__(self, served: int, in_flight: int, now_ns: MonoNs) -> None:
        self.served = served
        self.sent = in_flight
        self.done, self.since_ns = 0, now_ns
        self.last_ns = now_ns
        self.answered = True
        self.service_ns = self.samples = 0
        self.took_ns = 0
        self.exempt = 0
        self.penalty = EXEMPT

    def note_credit(self, consumer: Consumer, now_ns: MonoNs) -> None:
        """Note that the consumer has credit, and measure its time per message.

        Half a window is measured, because acknowledgements come in bursts. A long time may have been a pause, so a
        short time counts at once and a long time gradually.
        """
        if self.answered:
            return
        self.answered = True
        self.took_ns = now_ns - self.last_ns
        done = self.sent - len(consumer.in_flight)
        answers = done - self.done
        if answers > 0 and 2 * answers >= (consumer.window or 1):
            service_ns = max(1, (now_ns - self.since_ns) // answers)
            self.service_ns = min(service_ns, 1 + 5 * self.service_ns // 4) if self.samples else service_ns
            self.samples += 1
            self.done, self.since_ns = done, now_ns

    def note_sent(self, consumer: Consumer, messages: int, now_ns: MonoNs) -> None:
        """Note that ``messages`` messages were sent to the consumer."""
        self.served += messages
        self.sent += messages
        in_flight = len(consumer.in_flight)
        if in_flight <= messages:  # the consumer was idle
            self.done, self.since_ns = self.sent - in_flight, now_ns
        self.last_ns = now_ns
        self.answered = False
        self.exempt = max(0, self.exempt - messages)

    @property
    def debt_max(self) -> int:
        """The number of deliveries that may be caught up."""
        return max(DEBT_MIN, min(DEBT_MAX, DEBT_NS // max(1, self.service_ns)))

    def awaited_to_ns(self, by: ConsumerShare, now_ns: MonoNs) -> MonoNs:
        """Return until when the consumer ``by`` waits for this one; NOT_AWAITED if it does not wait."""
        if self.exempt:
            return NOT_AWAITED
        known = self.samples >= SAMPLES and by.samples
        if known and self.service_ns > SLOWER * by.service_ns + NS_PER_MS // 5:
            return NOT_AWAITED
        # A resource that both use may have paused.
        until_ns = MonoNs(self.last_ns + max(PATIENCE_NS, min(2 * by.took_ns, 4 * PATIENCE_NS)))
        return until_ns if until_ns > now_ns else NOT_AWAITED


class FairDispatch:
    """The deliveries of one queue's consumers.

    Args:
        consumers: The consumers of the queue; the same object for as long as the queue exists.
        left: Returns the approximate number of undelivered messages; it may stop counting at its argument.
        timing: The present time and the timers.
        wake: Called when the queue should be dispatched again.
    """

    __slots__ = ("_blockers", "_consumers", "_left", "_shares", "_timing", "_top", "_wake")

    def __init__(
        self,
        consumers: Collection[Consumer],
        left: Callable[[int], int],
        timing: Timing,
        wake: Callable[[], None],
    ) -> None:
        self._consumers = consumers
        self._left = left
        self._timing = timing
        self._wake = wake
        self._shares: dict[Consumer, ConsumerShare] = {}
        self._blockers: dict[Consumer, MonoNs] = {}  # consumers that others wait for, and until when
        for consumer in consumers:
            self.joined(consumer)
        self._top = 0  # the highest ``served`` of any consumer

    @property
    def waiting(self) -> bool:
        """True if a consumer waits for another one."""
        return bool(self._blockers)

    def limit(self, credits: Credits, everybody: bool, but: ConsumerSession | None) -> Credits:
        """Return the credits, limited to keep the numbers equal, the least-served consumer first.

        Args:
            credits: The consumers with credit.
            everybody: True if no other consumer has credit.
            but: The session whose other consumers have no credit.
        """
        now_ns = self._timing.now.mono
        for consumer, _ in credits:
            self._shares[consumer].note_credit(consumer, now_ns)
        enough = len(self._consumers) * DEBT_MAX + sum(map(itemgetter(1), credits))
        left = self._left(enough)
        if left < enough:
            given = dict(credits)
            peers = [
                (each, self._shares[each], _kind(each))
                for each in self._consumers
                if each.ack != "auto" and each.session is not but
            ]
            credits = [
                (consumer, allowed)
                for consumer, credit in credits
                if (allowed := self._allowance(consumer, credit, peers, given, everybody, left, now_ns)) > 0
            ]
        if len(credits) > 1:
            shares = self._shares
            credits = sorted(credits, key=lambda each: shares[each[0]].served)
        return credits

    def _allowance(
        self,
        consumer: Consumer,
        credit: int,
        peers: list[tuple[Consumer, ConsumerShare, Kind]],
        given: dict[Consumer, int],
        everybody: bool,
        left: int,
        now_ns: MonoNs,
    ) -> int:
        """Return how many of the messages left a consumer may have, so that enough remain for less-served ones."""
        if consumer.ack == "auto":
            return credit
        own, kind = self._shares[consumer], _kind(consumer)
        served = own.served
        leads: list[int] = []
        at_work: list[tuple[Consumer, int, MonoNs]] = []
        with_room = False
        for peer, share, its_kind in peers:
            if peer is consumer or its_kind != kind:
                continue
            if peer not in given:
                if everybody or peer.queue_credit() <= 0:
                    until_ns = share.awaited_to_ns(own, now_ns) if peer.in_flight else NOT_AWAITED
                    if not until_ns:
                        continue
                    at_work.append((peer, share.served, until_ns))
                elif share.served < served:
                    with_room = True
            leads.append(served - share.served)
        allowed = _most(leads, credit, left)
        if allowed < credit:
            for peer, had, until_ns in at_work:
                if had < served + allowed:
                    self._blockers[peer] = until_ns
                    self._timing.at(until_ns, self)
            if not allowed and with_room:
                self._wake()  # to dispatch to these, which come first
        return allowed

    def joined(self, consumer: Consumer) -> None:
        """Add a consumer. It shares the messages that are left."""
        in_flight = len(consumer.in_flight)
        done = [known.served - len(each.in_flight) for each, known in self._shares.items()]
        self._shares[consumer] = ConsumerShare(min(done, default=0) + in_flight, in_flight, self._timing.now.mono)

    def left(self, consumer: Consumer) -> None:
        """Remove a consumer."""
        del self._shares[consumer]
        self._blockers.pop(consumer, None)

    def served(self, consumer: Consumer, messages: int) -> None:
        """Note that ``messages`` messages were sent to a consumer."""
        share = self._shares[consumer]
        share.note_sent(consumer, messages, self._timing.now.mono)
        self._top = max(self._top, share.served)
        if share.served < self._top - DEBT_MIN and share.served < self._top - share.debt_max:
            kind = _kind(consumer)
            most = max(each.served for peer, each in self._shares.items() if _kind(peer) == kind)
            share.served = max(share.served, most - share.debt_max)
        if self._blockers and self._blockers.pop(consumer, None) is not None:
            share.penalty = EXEMPT
            self._wake()

    def due(self, now: Now) -> None:
        """Exempt consumers that did not acknowledge in time; the others go on."""
        if self._blockers:
            for peer, until_ns in self._blockers.items():
                share = self._shares.get(peer)
                if share is not None and until_ns <= now.mono:
                    share.exempt = share.penalty
                    share.penalty = min(EXEMPT_MAX, 4 * share.penalty)
            self._blockers.clear()  # a consumer that is still awaited is added again at once
            self._wake()

    def turns(self, credits: Credits) -> Iterator[int]:
        """Yield the index of the consumer that gets the next message: the least-served one with credit.

        Consumers that are not all equal take turns.
        """
        kind = _kind(credits[0][0])
        if all(_kind(consumer) == kind for consumer, _ in credits):
            return _turns(credits, [self._shares[consumer].served for consumer, _ in credits])
        return in_turn(credits)


def in_turn(credits: Credits) -> Iterator[int]:
    """Yield the index of the consumer that gets the next message: the consumers with credit take turns."""
    return _turns(credits, list(repeat(0, len(credits))))


def _turns(credits: Credits, served: list[int]) -> Iterator[int]:
    """Yield the index of the consumer that gets the next message. ``served``: messages sent to each consumer."""
    open_ = sorted(range(len(credits)), key=served.__getitem__)[::-1]  # reversed: ties are served in order
    ring: list[int] = []
    level = 0
    ends: list[int] = [0] * len(credits)
    while open_ or ring:
        if not ring:
            level = served[open_[-1]]
        while open_ and served[open_[-1]] <= level:
            place = open_.pop()
            ends[place] = served[place] + credits[place][1]
            ring.append(place)
        yield from ring
        level += 1
        ring = [place for place in ring if ends[place] > level]


def _most(leads: list[int], credit: int, left: int) -> int:
    """Return how many of the ``left`` messages a consumer may have, at most ``credit``.

    The consumers behind it, by its ``leads``, must be able to reach one message less than it has then.
    """
    low = 1 - max(leads, default=0)  # with so many, no consumer lacks a message
    if not leads or credit <= low:
        return credit
    low, high = max(low, 0), min(credit, left) + 1  # ``low`` fits, ``high`` does not
    while high - low > 1:
        middle = (low + high) // 2
        lacking = sum([lead + middle - 1 for lead in leads if lead + middle > 1])
        low, high = (middle, high) if middle + lacking <= left else (low, middle)
    return low


def _kind(one: Consumer) -> Kind:
    """Return what two consumers must have in common to be equal."""
    return one.window, one.ack, one.selection, one.session.window.size
