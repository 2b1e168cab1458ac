"""Admission of messages: a message is stored, waits, is dropped, or is refused.

A rule says what happens beyond the limits of a queue (``max_messages``, ``max_bytes``):

    reject         ERROR full, nothing is stored
    block          the frame waits, a COMMIT as a whole; ERROR full after ``block_timeout``
    drop_newest    the message is not stored
    drop_oldest    the oldest message that is not in flight is dropped. Messages in flight do not count against the
                   limit: they never displace a newer message, and do not return into a queue that is full without them

A frame also waits if its client exceeds ``rate_limit``, or if the memory for messages is full (``limits.memory``). All
later frames of the client wait too, including its ACKs. Other clients do not wait. ``clients.held_back`` has the
sessions that wait.

    Dropped   raised when a message is dropped. It is no error: its RECEIPT has ``dropped:true``
    Wait      raised when a frame cannot be handled yet. It is no error either: the frame is handled again
    Hold      the frame that a session waits with
    Bucket    the tokens of one client under one rule with a ``rate_limit``

The module knows limits and times. It knows no sockets and reads no clock.
Invariant: the caller counts dropped messages (``Dropped.counter``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from radiator import limits
from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs
from radiator.errors import MemoryFull, ProtocolError, StorageError
from radiator.memory import MESSAGES
from radiator.routing.rules import TEMPORARY
from radiator.timers import NEVER_NS

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.memory_watch import MemoryWatch
    from radiator.broker.queues.queue import Queue
    from radiator.config import Settings
    from radiator.routing.policy import Policy
    from radiator.stomp.frames import Frame
    from radiator.storage.partition import Partition

DROPS = ("drop_newest", "drop_oldest")
NEVER = MonoNs(NEVER_NS)
REST_NS = 5 * NS_PER_MS  # a client that is too fast may send the messages of so long at a time, not one by one


class Dropped(Exception):
    """The message is not stored, and its sender gets a RECEIPT.

    Args:
        counter: The field of ``Stats`` that counts it.
    """

    @property
    def counter(self) -> str:
        """The field of ``Stats`` that counts it."""
        return str(self.args[0])


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

    def retry_at(self, due_ns: MonoNs) -> None:
        """Set the time of the next attempt."""
        self.due_ns = due_ns


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


def admit(
    destination: Destination,
    size_bytes: int,
    mandatory: bool,
    delayed: bool,
    buckets: dict[int, Bucket] | None,
    now_ns: MonoNs,
) -> int:
    """Check one message against all limits, then make room for it. A message that is refused or waits changes nothing.

    Args:
        destination: The destination.
        size_bytes: The size of the body.
        mandatory: The message needs a subscriber.
        delayed: The message waits for its time.
        buckets: The buckets of the client, if the rule limits the rate.
        now_ns: The monotonic time.

    Returns:
        The number of older messages that were dropped.

    Raises:
        Dropped: This message is dropped.
        ProtocolError: The message is refused.
        Wait: The message has to wait.
    """
    queue, policy = destination.queue, destination.policy
    limited = queue if destination.limited else None
    if mandatory:
        require_subscriber(destination)
    if delayed and queue is not None:
        require_room_for_delay(queue)
    if limited is not None:
        require_room(limited, 1, size_bytes)
    if buckets is not None:
        spend(buckets, {policy.rule_index: (policy, 1)}, now_ns)
    if limited is None or fits(limited, 1, size_bytes):
        return 0
    if limited.settings.on_full == "drop_newest":
        raise Dropped("dropped_newest")
    return make_room(limited, size_bytes)


def require_subscriber(destination: Destination) -> None:
    """Check that a mandatory message has a subscriber.

    Raises:
        ProtocolError: ``no-route``, if the destination has none.
    """
    if destination.subscribers == 0:
        raise no_route(destination.name)


def no_route(name: str) -> ProtocolError:
    """Return the error of a mandatory message to a destination without a subscriber."""
    return ProtocolError(
        "no-route", f"no subscription matches {name[:200]}", "The message has mandatory:true and was not stored."
    )


def require_room_for_delay(queue: Queue) -> None:
    """Check that another message can be scheduled.

    Raises:
        ProtocolError: ``full``, if too many messages are scheduled in the broker.
    """
    if queue.timing.full:
        raise ProtocolError(
            "full",
            "too many delayed messages",
            f"The broker accepts {limits.DEFERRED_MAX} delayed messages at most (DEFERRED_MAX).",
        )


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


def require_room(queue: Queue, messages: int, size_bytes: int) -> None:
    """Check that the messages of one SEND or COMMIT fit into a queue. Queues that drop messages need no room.

    Args:
        queue: The queue.
        messages: The number of messages.
        size_bytes: The size of their bodies.

    Raises:
        ProtocolError: The queue is full (reject), or the messages can never fit (block).
        Wait: The queue is full (block).
    """
    settings = queue.settings
    if settings.on_full in DROPS:
        return
    shortage = _shortage(queue, messages, size_bytes)
    if not shortage:
        return
    if settings.on_full == "reject":
        raise _full(queue, shortage)
    if messages > (settings.max_messages or messages) or size_bytes > (settings.max_bytes or size_bytes):
        raise _full(queue, f"{messages} messages of {size_bytes} bytes at once can never fit. {shortage}")
    refusal = _full(queue, f"{shortage} It stayed full for block_timeout.")
    raise Wait("blocked", partial(fits, queue, messages, size_bytes), refusal, settings.block_timeout_ns)


def room(queue: Queue) -> tuple[int, int]:
    """Return how many more messages and bytes fit into a queue."""
    settings = queue.settings
    most = sys.maxsize if settings.max_messages is None else settings.max_messages - queue.backlog
    most_bytes = sys.maxsize if settings.max_bytes is None else settings.max_bytes - queue.backlog_bytes
    return most, most_bytes


def make_room(queue: Queue, size_bytes: int) -> int:
    """Drop the oldest messages that are not in flight until a message of ``size_bytes`` fits or none is left to drop.

    Returns:
        The number of dropped messages.
    """
    dropped = 0
    while not fits(queue, 1, size_bytes) and queue.drop_oldest():
        dropped += 1
    return dropped


def bring(queue: Queue, size_bytes: int) -> int:
    """Make room for a message that the broker moves to the queue. Never raises Wait: the caller retries.

    Returns:
        The number of dropped messages.

    Raises:
        ProtocolError: The queue is full.
    """
    dropped = make_room(queue, size_bytes) if queue.settings.on_full == "drop_oldest" else 0
    shortage = _shortage(queue, 1, size_bytes)
    if shortage and queue.settings.on_full != "drop_oldest":
        raise _full(queue, shortage)
    return dropped


def trim(queue: Queue) -> int:
    """Drop the oldest messages of a queue that is too full because messages have returned from a consumer.

    Returns:
        The number of dropped messages.
    """
    dropped = 0
    while trim_one(queue):
        dropped += 1
    return dropped


def trim_one(queue: Queue, newest_in: Partition | None = None) -> bool:
    """Drop the oldest message of a queue that is too full, but not the newest one in ``newest_in``.

    Returns:
        False if nothing was dropped.
    """
    return not fits(queue, 0, 0) and queue.drop_oldest(newest_in)


def not_stored(
    watch: MemoryWatch, destination: Destination, partition: Partition, error: StorageError, mandatory: bool
) -> Exception:
    """Return what happens to a message that a partition refuses.

    Args:
        watch: The watch over the memory of the broker.
        destination: The destination.
        partition: The partition.
        error: The error of the partition.
        mandatory: The message needs a subscriber.

    Returns:
        ``undelivered`` if the owner of a temporary queue does not read it: the sender is not at fault. A Wait if other
        clients may free the memory: if all memory partitions together are full, or under ``on_full: block``. Otherwise
        ``error``.
    """
    if destination.name.startswith(TEMPORARY):
        return undelivered(destination.name, mandatory)
    if not isinstance(error, MemoryFull):
        return error
    settings = destination.policy.settings
    if error.everywhere:
        watch.met(watch.account.shares[MESSAGES])
    elif settings.on_full != "block":
        return error
    refusal = ProtocolError("full", "no memory is free for the message", str(error))
    return Wait("blocked", partial(_accepts, partition), refusal, settings.block_timeout_ns)


def undelivered(name: str, mandatory: bool) -> Exception:
    """Return Dropped for a message to a temporary queue that does not exist or is not read; an ERROR if mandatory."""
    return no_route(name) if mandatory else Dropped("dropped_replies")


def _accepts(partition: Partition) -> bool:
    try:
        partition.check()
    except StorageError:
        return False
    return True


def fits(queue: Queue, messages: int, size_bytes: int) -> bool:
    """Return True if so much more exceeds no limit. Called in every turn for each waiting frame."""
    settings = queue.settings
    most, most_bytes = settings.max_messages, settings.max_bytes
    return (most is None or queue.backlog + messages <= most) and (
        most_bytes is None or queue.backlog_bytes + size_bytes <= most_bytes
    )


def _shortage(queue: Queue, messages: int, size_bytes: int) -> str:
    """Return a description of the limit that so much more would exceed; empty if there is none."""
    if fits(queue, messages, size_bytes):
        return ""
    settings = queue.settings
    most = settings.max_messages
    if most is not None and (held := queue.backlog) + messages > most:
        return f"max_messages: {most} is set on line {queue.policy.line} of the configuration; it has {held}."
    most = settings.max_bytes
    if most is not None and (held := queue.backlog_bytes) + size_bytes > most:
        return f"max_bytes: {most} is set on line {queue.policy.line} of the configuration; it has {held}."
    return ""


def _full(queue: Queue, detail: str) -> ProtocolError:
    return ProtocolError("full", f"{queue.name} is full", detail)
