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

from collections.abc import Callable
from typing import TYPE_CHECKING

from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs
from radiator.errors import ProtocolError
from radiator.timers import NEVER_NS, Timers

if TYPE_CHECKING:
    from radiator.broker.session import Session
    from radiator.broker.stats import Stats
    from radiator.config import Settings
    from radiator.routing.policy import Policy
    from radiator.stomp.frames import Frame

NEVER = MonoNs(NEVER_NS)
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
        at_ns: MonoNs = NEVER,
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

    def __init__(self, wait: Wait, since_ns: MonoNs) -> None:
        self.wait = wait
        self.since_ns = since_ns
        end_ns = NEVER_NS if wait.timeout_ns is None else since_ns + wait.timeout_ns
        self.due_ns = MonoNs(min(wait.at_ns, end_ns))


class Throttle:
    """All of one broker."""

    __slots__ = ("_stats", "_timers", "held", "passed")

    def __init__(self, stats: Stats) -> None:
        self.held: dict[Session, Hold] = {}
        self.passed: Frame | None = None  # the frame that is tried again has been through the hooks
        self._stats = stats
        self._timers: Timers[MonoNs, Session] = Timers()

    def lets(self, session: Session, hold: Hold, now_ns: MonoNs) -> bool:
        """Whether what this session waits for has come, or its time is over: then it waits no more."""
        if not (hold.due_ns <= now_ns or hold.wait.over()):
            return False
        self.passed = hold.wait.frame
        session.hold = None
        del self.held[session]
        return True

    def hold(self, session: Session, wait: Wait, before: Hold | None, now_ns: MonoNs) -> bool:
        """Let the session wait. False if its frame, which was held ``before``, has waited for as long as it may."""
        since_ns = now_ns if before is None else before.since_ns
        if before is None:
            setattr(self._stats, wait.counter, getattr(self._stats, wait.counter) + 1)
        if wait.timeout_ns is not None and now_ns - since_ns >= wait.timeout_ns:
            return False
        hold = session.hold = self.held[session] = Hold(wait, since_ns)
        self._timers.at(hold.due_ns, session)
        return True

    def forget(self, session: Session) -> None:
        """It has ended."""
        if session.hold is not None:
            session.hold = None
            del self.held[session]
        self._timers.forget(session)

    @property
    def next_ns(self) -> MonoNs:
        """When the next one is to be tried again."""
        return self._timers.next_ns

    def meet(self, now_ns: MonoNs) -> None:
        """The time has come for some of them: they are tried in this turn, and the others are planned for."""
        for session in self._timers.due(now_ns):
            if session.hold is not None and session.hold.due_ns > now_ns:
                self._timers.at(session.hold.due_ns, session)


class Bucket:
    """Tokens, one a message; they come back with time, up to ``burst`` of them. A COMMIT may leave it in debt."""

    __slots__ = ("at_ns", "tokens")

    def __init__(self, burst: int, now_ns: MonoNs) -> None:
        self.tokens = float(burst)
        self.at_ns = now_ns

    def refill(self, rate: float, burst: int, now_ns: MonoNs) -> None:
        passed_ns = now_ns - self.at_ns
        self.at_ns = now_ns
        self.tokens = min(float(burst), self.tokens + rate * passed_ns / NS_PER_SECOND)


def spend(session: Session, policies: dict[int, tuple[Policy, int]], now_ns: MonoNs) -> None:
    """Take tokens for so many messages under each of these rules, all of them or none. Raises Wait, or ProtocolError
    where the rule says so."""
    buckets = []
    for index, (policy, messages) in policies.items():
        settings = policy.settings
        rate, burst = settings.rate_messages, burst_of(settings)
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
                f"rate_limit on line {policy.rule.line} of the configuration lets one client send {rate:g} a second"
                f", {burst} at once.",
            )
            if settings.rate_action == "reject":
                raise refusal
            wanted = max(needed, min(burst, rate * REST_NS / NS_PER_SECOND))
            at_ns = MonoNs(now_ns + int((wanted - bucket.tokens) / rate * NS_PER_SECOND) + 1)
            raise Wait("rate_limited", lambda: False, refusal, None, at_ns)
        buckets.append((bucket, messages))
    for bucket, messages in buckets:
        bucket.tokens -= messages


def burst_of(settings: Settings) -> int:
    """Return how many messages may come at once: ``rate_limit.burst``, or those of a second."""
    if settings.rate_burst is not None:
        return settings.rate_burst
    assert settings.rate_messages is not None
    return max(1, int(settings.rate_messages))
