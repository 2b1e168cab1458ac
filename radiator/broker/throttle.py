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
from radiator.timers import NEVER_NS

if TYPE_CHECKING:
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

    def hold(self, frame: Frame | None) -> None:
        """Set the frame that waits, as middleware has left it."""
        self.frame = frame


class Hold:
    """What one session waits for. ``due_ns``: when it is tried again in any case."""

    __slots__ = ("due_ns", "since_ns", "wait")

    def __init__(self, wait: Wait, since_ns: MonoNs) -> None:
        self.wait = wait
        self.since_ns = since_ns
        end_ns = NEVER_NS if wait.timeout_ns is None else since_ns + wait.timeout_ns
        self.due_ns = MonoNs(min(wait.at_ns, end_ns))


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


def spend(buckets: dict[int, Bucket], policies: dict[int, tuple[Policy, int]], now_ns: MonoNs) -> None:
    """Take tokens for so many messages under each of these rules, all of them or none. Raises Wait, or ProtocolError
    where the rule says so."""
    taken = []
    for index, (policy, messages) in policies.items():
        settings = policy.settings
        rate, burst = settings.rate_messages, burst_of(settings)
        assert rate is not None
        bucket = buckets.get(index)
        if bucket is None:
            bucket = buckets[index] = Bucket(burst, now_ns)
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
        taken.append((bucket, messages))
    for bucket, messages in taken:
        bucket.tokens -= messages


def burst_of(settings: Settings) -> int:
    """Return how many messages may come at once: ``rate_limit.burst``, or those of a second."""
    if settings.rate_burst is not None:
        return settings.rate_burst
    assert settings.rate_messages is not None
    return max(1, int(settings.rate_messages))
