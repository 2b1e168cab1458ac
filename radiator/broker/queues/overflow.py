"""Overflow: what happens to a message when its queue is full.

    reject         ERROR full, nothing is stored
    block          the frame waits (``radiator.broker.throttle``), a COMMIT as a whole; ERROR full after
                   ``block_timeout``
    drop_newest    the message is not stored
    drop_oldest    the oldest message that is not in flight is dropped. Messages in flight do not count against the
                   limit: they never displace a newer message, and do not return into a queue that is full without them

The module knows a queue's limits and its backlog.
Invariant: the caller counts dropped messages.
"""

from __future__ import annotations

import sys
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from radiator.broker.throttle import Wait
from radiator.errors import ProtocolError, StorageError

if TYPE_CHECKING:
    from radiator.broker.queues.queue import Queue
    from radiator.routing.policy import Policy
    from radiator.storage.partition import Partition


DROPS = ("drop_newest", "drop_oldest")


class Verdict(Enum):
    """What happens to a message that is sent to a queue."""

    STORE = "store"
    DROP_NEWEST = "drop_newest"
    DROP_OLDEST = "drop_oldest"


def judge(queue: Queue, size_bytes: int) -> Verdict:
    """Return what happens to a message with a body of ``size_bytes`` bytes. Changes nothing.

    Raises:
        ProtocolError: The queue is full (reject).
        Wait: The queue is full (block).
    """
    require_room(queue, 1, size_bytes)
    if fits(queue, 1, size_bytes):
        return Verdict.STORE
    return Verdict.DROP_NEWEST if queue.settings.on_full == "drop_newest" else Verdict.DROP_OLDEST


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


def no_memory(policy: Policy, partition: Partition, error: StorageError, everywhere: bool) -> Wait | None:
    """Return the wait of a producer whose memory partition is full; None if the frame is refused.

    Args:
        policy: The policy of the destination.
        partition: The partition.
        error: The error of the partition.
        everywhere: True if all memory partitions together are full. Then every producer waits; otherwise only under
            ``on_full: block``.
    """
    if not everywhere and policy.settings.on_full != "block":
        return None
    refusal = ProtocolError("full", "no memory is free for the message", str(error))
    return Wait("blocked", partial(_accepts, partition), refusal, policy.settings.block_timeout_ns)


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
