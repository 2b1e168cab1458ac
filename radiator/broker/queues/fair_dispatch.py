"""Equal shares for equal consumers of one queue: when its messages are used up, each has had as many as the others,
give or take one.

A message goes to whoever asks; of those who ask at once, to who has had fewest. That alone makes shares drift apart:
most of the time only one consumer has room, and it is chance whose answer comes first. Being ahead costs nobody
anything while enough messages are left for the others to catch up, so nobody waits then. When what is left is what the
others lack, it is kept for them for a moment, and who is ahead waits.

It is kept for who is about as quick and about to answer. Who takes longer over its messages is no equal, and neither,
for its next deliveries, is one that did not answer within that moment; so a slow consumer costs a quick one next to
nothing. What somebody has missed is made up for as long as that takes ``DEBT_NS`` at most.

Equal means: the same window, the same ack mode, and about the same time for a message. With ``ack:auto`` messages are
dealt out in turn anyway.

Knows: what went to whom and when. Must not know: messages, logs.
Invariants: whoever waits here is looked at again, at the latest when ``due`` is called; of those who have room, the one
that has had fewest waits for nobody who has room.
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

CONSUMERS_MAX = 16  # among more the looking costs more than the evenness is worth
PATIENCE_NS = 50 * NS_PER_MS  # a pause of a quick one's process, on a busy machine
SLOWER = 3  # who takes so many times as long is no equal
SAMPLES = 3  # as few say nothing
EXEMPT, EXEMPT_MAX = 1, 256  # deliveries for which one that kept others waiting in vain is not waited for again
DEBT_NS = 100 * NS_PER_MS  # the longest that one may be alone in catching up
DEBT_MIN, DEBT_MAX = 4, 128  # deliveries
NOT_AWAITED = MonoNs(0)

Credits = list[tuple["Consumer", int]]
Kind = tuple["int | None", str, "Selection | None", int]


class ConsumerShare:
    """What one consumer has had. ``service_ns``: how long it takes for a message, about; 0 is not known yet."""

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
        self.served = served  # this is what is kept equal
        self.sent = in_flight  # in truth
        self.done, self.since_ns = 0, now_ns  # how many of these it had acknowledged when the time was taken last
        self.last_ns = now_ns
        self.answered = True  # it has had room since it was served last
        self.service_ns = self.samples = 0
        self.took_ns = 0  # for its last answer
        self.exempt = 0
        self.penalty = EXEMPT

    def asks(self, consumer: Consumer, now_ns: MonoNs) -> None:
        """It has room. Half a window is timed, as answers come in bursts; what took long may have been a pause, so a
        short time counts at once, a long one little by little."""
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

    def gets(self, consumer: Consumer, messages: int, now_ns: MonoNs) -> None:
        """So many have just gone to it."""
        self.served += messages
        self.sent += messages
        in_flight = len(consumer.in_flight)
        if in_flight <= messages:  # it had nothing to do
            self.done, self.since_ns = self.sent - in_flight, now_ns
        self.last_ns = now_ns
        self.answered = False
        self.exempt = max(0, self.exempt - messages)

    @property
    def debt_max(self) -> int:
        """How many deliveries may be made up for."""
        return max(DEBT_MIN, min(DEBT_MAX, DEBT_NS // max(1, self.service_ns)))

    def awaited_to_ns(self, by: ConsumerShare, now_ns: MonoNs) -> MonoNs:
        """Until when the other one waits for this one, which is at work; NOT_AWAITED: not at all."""
        if self.exempt:
            return NOT_AWAITED
        known = self.samples >= SAMPLES and by.samples
        if known and self.service_ns > SLOWER * by.service_ns + NS_PER_MS // 5:
            return NOT_AWAITED
        # What they share may have paused.
        until_ns = MonoNs(self.last_ns + max(PATIENCE_NS, min(2 * by.took_ns, 4 * PATIENCE_NS)))
        return until_ns if until_ns > now_ns else NOT_AWAITED


class FairDispatch:
    """The shares of one queue's consumers.

    Args:
        consumers: The consumers of the queue; the same object for as long as the queue exists.
        left: Returns about how many messages nobody was given yet; it may stop counting at its argument.
        timing: Where the timers are set.
        wake: Called when the queue is to be looked at again.
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
        self._blockers: dict[Consumer, MonoNs] = {}  # who is waited for, and until when
        for consumer in consumers:
            self.joined(consumer)
        self._top = 0  # the most that one has ever had

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for somebody else."""
        return bool(self._blockers)

    def limit(self, credits: Credits, everybody: bool, but: ConsumerSession | None) -> Credits:
        """The credits, cut down to what keeps the shares equal, who has had fewest first. ``everybody``: these are all
        who have room; else others may have it too, but for those of the session ``but``."""
        now_ns = self._timing.now.mono
        for consumer, _ in credits:
            self._shares[consumer].asks(consumer, now_ns)
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
        """How many of those that are left this one may have, so that enough are left for those that have had fewer."""
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
                self._wake()  # for these to be asked, which come first
        return allowed

    def joined(self, consumer: Consumer) -> None:
        """One more: it shares what is left."""
        in_flight = len(consumer.in_flight)
        done = [known.served - len(each.in_flight) for each, known in self._shares.items()]
        self._shares[consumer] = ConsumerShare(min(done, default=0) + in_flight, in_flight, self._timing.now.mono)

    def left(self, consumer: Consumer) -> None:
        """One less."""
        del self._shares[consumer]
        self._blockers.pop(consumer, None)

    def served(self, consumer: Consumer, messages: int) -> None:
        """So many messages have just gone to this one."""
        share = self._shares[consumer]
        share.gets(consumer, messages, self._timing.now.mono)
        self._top = max(self._top, share.served)
        if share.served < self._top - DEBT_MIN and share.served < self._top - share.debt_max:
            kind = _kind(consumer)
            most = max(each.served for peer, each in self._shares.items() if _kind(peer) == kind)
            share.served = max(share.served, most - share.debt_max)
        if self._blockers and self._blockers.pop(consumer, None) is not None:
            share.penalty = EXEMPT
            self._wake()

    def due(self, now: Now) -> None:
        """Who has not answered in time is no equal; the others go on."""
        if self._blockers:
            for peer, until_ns in self._blockers.items():
                share = self._shares.get(peer)
                if share is not None and until_ns <= now.mono:
                    share.exempt = share.penalty
                    share.penalty = min(EXEMPT_MAX, 4 * share.penalty)
            self._blockers.clear()  # whoever is still waited for is met again at once
            self._wake()

    def turns(self, credits: Credits) -> Iterator[int]:
        """Which of these, by their places, gets the next message, and so on: who has had fewest, as long as it has
        credit. Where they are not all equal: one after the other."""
        kind = _kind(credits[0][0])
        if all(_kind(consumer) == kind for consumer, _ in credits):
            return _turns(credits, [self._shares[consumer].served for consumer, _ in credits])
        return in_turn(credits)


def in_turn(credits: Credits) -> Iterator[int]:
    """As ``Shares.turns``, where nobody knows what each has had."""
    return _turns(credits, list(repeat(0, len(credits))))


def _turns(credits: Credits, served: list[int]) -> Iterator[int]:
    """``served``: how many each has had."""
    open_ = sorted(range(len(credits)), key=served.__getitem__)[::-1]  # of equal ones the first comes first
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
    """How many of the ``left`` messages one may have, at most ``credit``: those behind it, by its ``leads``, must be
    able to come up to one less."""

    low = 1 - max(leads, default=0)  # with so many, nobody lacks anything
    if not leads or credit <= low:
        return credit
    low, high = max(low, 0), min(credit, left) + 1  # ``low`` fits, ``high`` does not
    while high - low > 1:
        middle = (low + high) // 2
        lacking = sum([lead + middle - 1 for lead in leads if lead + middle > 1])
        low, high = (middle, high) if middle + lacking <= left else (low, middle)
    return low


def _kind(one: Consumer) -> Kind:
    """Return what two consumers must have in common to be given equally many messages."""
    return one.window, one.ack, one.selection, one.session.window
