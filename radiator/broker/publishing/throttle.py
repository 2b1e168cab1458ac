"""Producers that have to wait: the frame stays where it is, and the transport does not read that socket.

    Wait      raised where a frame cannot be acted on yet. It is no error: the frame comes again
    Throttle  who waits since when, for what, and when to try again; after its time a waiting frame is refused
    Bucket    the tokens of one client under one rule with a ``rate_limit``

What makes a frame wait: its queue is full and the rule says ``on_full: block``; its client is faster than
``rate_limit``; the memory that messages may take is full (``limits.memory``). Whatever the client sent behind it waits
too, its ACKs included. Nobody else does.

Knows: sessions, moments. Must not know: sockets, clocks: the time comes in.
Invariants: a session waits for one thing at a time; the time that a frame has waited counts from its first try; who
has gone waits for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from radiator.broker.due.timing import NEVER_NS
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.session import Session
    from radiator.broker.stats import Stats
    from radiator.config import Rule
    from radiator.routing.policy import Policy
    from radiator.stomp.frames import Frame

log = logging.getLogger("radiator.broker")

REST_NS = 5 * NS_PER_MS  # a client that is too fast is let in for so much at a time, and not for every message


class Wait(Exception):
    """``over`` is asked whether it is worth another try; at ``at_ns`` it is. ``refusal`` is what is answered once
    ``timeout_ns`` has passed. ``counter`` is the field of Stats that counts it, once for each frame."""

    def __init__(
        self,
        counter: str,
        over: Callable[[], bool],
        refusal: ProtocolError,
        timeout_ns: int | None,
        at_ns: int = NEVER_NS,
    ) -> None:
        super().__init__(counter)
        self.counter = counter
        self.over = over
        self.refusal = refusal
        self.timeout_ns = timeout_ns
        self.at_ns = at_ns
        self.frame: Frame | None = None  # as middleware has left it; it does not see it again


class Hold:
    """What one session waits for. ``due_ns``: when it is tried again in any case."""

    __slots__ = ("due_ns", "since_ns", "wait")

    def __init__(self, wait: Wait, since_ns: int) -> None:
        self.wait = wait
        self.since_ns = since_ns
        end_ns = NEVER_NS if wait.timeout_ns is None else since_ns + wait.timeout_ns
        self.due_ns = min(wait.at_ns, end_ns)


class Throttle:
    """All of one broker."""

    __slots__ = ("_heap", "_memory_full", "_now_ns", "_numbers", "_planned", "_stats", "held", "passed")

    def __init__(self, stats: Stats) -> None:
        self.held: dict[Session, Hold] = {}
        self.passed: Frame | None = None  # the frame that is tried again has been through the hooks
        self._stats = stats
        self._memory_full = False
        self._now_ns = 0
        self._heap: list[tuple[int, int, Session]] = []
        self._planned: dict[Session, int] = {}  # of each session one entry of the heap counts
        self._numbers = count()

    def lets(self, session: Session, hold: Hold, now_ns: int) -> bool:
        """Whether what this session waits for has come, or its time is over: then it waits no more."""
        if not (hold.due_ns <= now_ns or hold.wait.over()):
            return False
        self.passed = hold.wait.frame
        session.hold = None
        del self.held[session]
        return True

    def hold(self, session: Session, wait: Wait, before: Hold | None, now_ns: int) -> bool:
        """Let the session wait. False if its frame, which was held ``before``, has waited for as long as it may."""
        since_ns = now_ns
        if before is not None:
            since_ns = min(before.since_ns, now_ns)
        else:
            setattr(self._stats, wait.counter, getattr(self._stats, wait.counter) + 1)
        if wait.timeout_ns is not None and now_ns - since_ns >= wait.timeout_ns:
            return False
        hold = session.hold = self.held[session] = Hold(wait, since_ns)
        self._plan(session, hold.due_ns)
        return True

    def forget(self, session: Session) -> None:
        """It has ended."""
        if session.hold is not None:
            session.hold = None
            del self.held[session]
        self._planned.pop(session, None)

    @property
    def next_ns(self) -> int:
        """When the next one is to be tried again."""
        heap, planned = self._heap, self._planned
        while heap and planned.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else NEVER_NS

    def meet(self, now_ns: int) -> None:
        """The time has come for some of them: they are tried in this turn, and the others are planned for."""
        if now_ns < self._now_ns:
            self._clock_went_back(self._now_ns - now_ns)
        self._now_ns = now_ns
        while self.next_ns <= now_ns:
            _, _, session = heappop(self._heap)
            del self._planned[session]
            if session.hold is not None and session.hold.due_ns > now_ns:
                self._plan(session, session.hold.due_ns)

    def memory_is_full(self, most_bytes: int) -> None:
        """Somebody has met it. Told once, until there is room again."""
        if not self._memory_full:
            self._memory_full = True
            self._stats.memory_pauses += 1
            log.warning(
                "memory: %d bytes are taken by messages in memory that are needed (limits.memory); who sends more of "
                "them waits, consumers and acknowledgements go on",
                most_bytes,
            )

    def look_at_memory(self, full: bool) -> None:
        if self._memory_full and not full:
            self._memory_full = False
            log.warning("memory: there is room again")

    def _clock_went_back(self, by_ns: int) -> None:
        """What was counted from the time before is due so much earlier."""
        for hold in self.held.values():
            hold.since_ns -= by_ns
            hold.due_ns -= by_ns
        self._planned = {session: hold.due_ns for session, hold in self.held.items()}
        self._heap = [(due_ns, next(self._numbers), session) for session, due_ns in self._planned.items()]
        heapify(self._heap)

    def _plan(self, session: Session, due_ns: int) -> None:
        if due_ns < self._planned.get(session, NEVER_NS):
            self._planned[session] = due_ns
            heappush(self._heap, (due_ns, next(self._numbers), session))


class Bucket:
    """Tokens, one a message; they come back with time, up to ``burst`` of them. A COMMIT may leave it in debt."""

    __slots__ = ("at_ns", "tokens")

    def __init__(self, burst: int, now_ns: int) -> None:
        self.tokens = float(burst)
        self.at_ns = now_ns

    def refill(self, rate: float, burst: int, now_ns: int) -> None:
        passed_ns = max(0, now_ns - self.at_ns)  # a wall clock may be set back
        self.at_ns = now_ns
        self.tokens = min(float(burst), self.tokens + rate * passed_ns / NS_PER_SECOND)


def spend(session: Session, policies: dict[int, tuple[Policy, int]], now_ns: int) -> None:
    """Take tokens for so many messages under each of these rules, all of them or none. Raises Wait, or ProtocolError
    where the rule says so."""
    buckets = []
    for index, (policy, messages) in policies.items():
        rule = policy.rule
        rate, burst = rule.rate_messages, burst_of(rule)
        assert rate is not None
        bucket = session.buckets.get(index)
        if bucket is None:
            bucket = session.buckets[index] = Bucket(burst, now_ns)
        bucket.refill(rate, burst, now_ns)
        needed = min(messages, burst)
        if bucket.tokens < needed:
            refusal = ProtocolError(
                "rate-limited",
                f"too many messages to {policy.destination}",
                f"rate_limit on line {rule.line} of the configuration lets one client send {rate:g} a second"
                f", {burst} at once.",
            )
            if rule.rate_action == "reject":
                raise refusal
            wanted = max(needed, min(burst, rate * REST_NS / NS_PER_SECOND))
            at_ns = now_ns + int((wanted - bucket.tokens) / rate * NS_PER_SECOND) + 1
            raise Wait("rate_limited", lambda: False, refusal, None, at_ns)
        buckets.append((bucket, messages))
    for bucket, messages in buckets:
        bucket.tokens -= messages


def burst_of(rule: Rule) -> int:
    """How many may come at once: what the rule says, or what comes in a second."""
    if rule.rate_burst is not None:
        return rule.rate_burst
    assert rule.rate_messages is not None
    return max(1, int(rule.rate_messages))
