"""Waiting frames of producers: the frame is handled again later, and the transport does not read that socket.

    Wait      raised when a frame cannot be handled yet. It is no error: the frame is handled again
    Hold      the frame that a session waits with
    Bucket    the tokens of one client under one rule with a ``rate_limit``

A frame waits if its queue is full and the rule says ``on_full: block``, if its client exceeds ``rate_limit``, or if the
memory for messages is full (``limits.memory``). All later frames of the client wait too, including its ACKs. Other
clients do not wait. ``clients.held_back`` has the sessions that wait.

The module knows times, but not sockets, and reads no clock.
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
REST_NS = 5 * NS_PER_MS  # a client that is too fast may send the messages of so long at a time, not one by one


class Wait(Exception):
    """The frame has to wait.

    Args:
        counter: The field of ``Stats`` that counts it, once for each frame.
        over: Returns True if another attempt may succeed.
        refusal: The ERROR after ``timeout_ns``.
        timeout_ns: The longest wait in nanoseconds; None means no limit.
        at_ns: The monotonic time at which another attempt succeeds, if known.
    """

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
        self.frame: Frame | None = None  # the frame after middleware, which must not run again

    def hold(self, frame: Frame | None) -> None:
        """Set the waiting frame, as changed by middleware."""
        self.frame = frame


class Hold:
    """The wait of one session.

    Args:
        wait: The reason of the wait.
        since_ns: The monotonic time of the first attempt.

    Attributes:
        due_ns: The monotonic time of the next attempt in any case.
    """

    __slots__ = ("due_ns", "since_ns", "wait")

    def __init__(self, wait: Wait, since_ns: MonoNs) -> None:
        self.wait = wait
        self.since_ns = since_ns
        end_ns = NEVER_NS if wait.timeout_ns is None else since_ns + wait.timeout_ns
        self.due_ns = MonoNs(min(wait.at_ns, end_ns))


class Bucket:
    """A token bucket: one token per message, refilled over time up to ``burst``. A COMMIT may leave it in debt."""

    __slots__ = ("at_ns", "tokens")

    def __init__(self, burst: int, now_ns: MonoNs) -> None:
        self.tokens = float(burst)
        self.at_ns = now_ns

    def refill(self, rate: float, burst: int, now_ns: MonoNs) -> None:
        """Add the tokens of the time since the last refill.

        Args:
            rate: Tokens per second.
            burst: The most tokens.
            now_ns: The monotonic time.
        """
        passed_ns = now_ns - self.at_ns
        self.at_ns = now_ns
        self.tokens = min(float(burst), self.tokens + rate * passed_ns / NS_PER_SECOND)


def spend(buckets: dict[int, Bucket], policies: dict[int, tuple[Policy, int]], now_ns: MonoNs) -> None:
    """Take tokens for the messages of each rule: all of them, or none.

    Args:
        buckets: The buckets of the client, by the index of the rule.
        policies: A policy and a number of messages, by the index of the rule.
        now_ns: The monotonic time.

    Raises:
        Wait: A bucket has too few tokens.
        ProtocolError: The same, where the rule says reject (rate-limited).
    """
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
    """Return how many messages may be sent at once: ``rate_limit.burst``, or the messages of one second."""
    if settings.rate_burst is not None:
        return settings.rate_burst
    assert settings.rate_messages is not None
    return max(1, int(settings.rate_messages))
