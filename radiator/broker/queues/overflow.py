"""What becomes of a message when its destination is full.

    reject         ERROR full, nothing stored
    block          it waits (``publishing.throttle``), a COMMIT as a whole; after ``block_timeout`` ERROR full
    drop_newest    it is not stored
    drop_oldest    the oldest that no consumer holds is given up. What consumers hold is beside the limit then: it is
                   never in the way of something newer, and does not come back into a queue that is full without it

Knows: a destination's limits, and how much of them is taken. Invariant: what is dropped is counted by who asked.
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
    """What a destination that may be full says to one more message."""

    STORE = "store"
    DROP_NEWEST = "drop_newest"
    DROP_OLDEST = "drop_oldest"


def judge(queue: Queue, size_bytes: int) -> Verdict:
    """Judge a message with a body of ``size_bytes``; changes nothing. Raises ProtocolError and Wait."""
    require_room(queue, 1, size_bytes)
    if fits(queue, 1, size_bytes):
        return Verdict.STORE
    return Verdict.DROP_NEWEST if queue.settings.on_full == "drop_newest" else Verdict.DROP_OLDEST


def require_room(queue: Queue, messages: int, size_bytes: int) -> None:
    """All messages of one SEND or COMMIT to a queue whose rule says reject or block: others have no need of room.

    Raises:
        ProtocolError: There is none (reject), or never can be (block).
        Wait: There is none yet (block).
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
    refusal = _full(queue, f"{shortage} It was so for as long as block_timeout says.")
    raise Wait("blocked", partial(fits, queue, messages, size_bytes), refusal, settings.block_timeout_ns)


def room(queue: Queue) -> tuple[int, int]:
    """For how many more messages, and bytes of them, there is room."""
    settings = queue.settings
    most = sys.maxsize if settings.max_messages is None else settings.max_messages - queue.backlog
    most_bytes = sys.maxsize if settings.max_bytes is None else settings.max_bytes - queue.backlog_bytes
    return most, most_bytes


def make_room(queue: Queue, size_bytes: int) -> int:
    """Give up the oldest messages that no consumer holds, until one of ``size_bytes`` fits or no more can be given up.
    Returns how many."""
    dropped = 0
    while not fits(queue, 1, size_bytes) and queue.drop_oldest():
        dropped += 1
    return dropped


def bring(queue: Queue, size_bytes: int) -> int:
    """Room for a message that the broker moves there; whatever the rule says, the mover can wait. Returns how many were
    given up. Raises ProtocolError."""
    dropped = make_room(queue, size_bytes) if queue.settings.on_full == "drop_oldest" else 0
    shortage = _shortage(queue, 1, size_bytes)
    if shortage and queue.settings.on_full != "drop_oldest":
        raise _full(queue, shortage)
    return dropped


def trim(queue: Queue) -> int:
    """Messages have come back from a consumer into a queue that has taken newer ones instead: drop what is too much,
    oldest first. Returns how many."""
    dropped = 0
    while trim_one(queue):
        dropped += 1
    return dropped


def trim_one(queue: Queue, newest_in: Partition | None = None) -> bool:
    """Drop the oldest, if there is too much, but not the newest one in ``newest_in``. False if nothing was dropped."""
    return not fits(queue, 0, 0) and queue.drop_oldest(newest_in)


def no_memory(policy: Policy, partition: Partition, error: StorageError, everywhere: bool) -> Wait | None:
    """A memory partition takes no more. If all of them together are full, whoever sends there waits; if only this one
    is, then only where the rule says so."""
    if not everywhere and policy.settings.on_full != "block":
        return None
    refusal = ProtocolError("full", "no memory is free to keep the message in", str(error))
    return Wait("blocked", partial(_accepts, partition), refusal, policy.settings.block_timeout_ns)


def _accepts(partition: Partition) -> bool:
    try:
        partition.check()
    except StorageError:
        return False
    return True


def fits(queue: Queue, messages: int, size_bytes: int) -> bool:
    """Whether so much more breaks no limit: asked in every turn for everybody who waits, so without a word."""
    settings = queue.settings
    most, most_bytes = settings.max_messages, settings.max_bytes
    return (most is None or queue.backlog + messages <= most) and (
        most_bytes is None or queue.backlog_bytes + size_bytes <= most_bytes
    )


def _shortage(queue: Queue, messages: int, size_bytes: int) -> str:
    """Which limit so much more would break, in words; nothing if none."""
    if fits(queue, messages, size_bytes):
        return ""
    settings = queue.settings
    most = settings.max_messages
    if most is not None and (held := queue.backlog) + messages > most:
        return f"max_messages: {most} is set on line {queue.policy.line} of the configuration; it holds {held}."
    most = settings.max_bytes
    if most is not None and (held := queue.backlog_bytes) + size_bytes > most:
        return f"max_bytes: {most} is set on line {queue.policy.line} of the configuration; it holds {held}."
    return ""


def _full(queue: Queue, detail: str) -> ProtocolError:
    return ProtocolError("full", f"{queue.name} is full", detail)
