"""What becomes of a message when its destination is full.

    reject         ERROR full, nothing stored
    block          it waits (``publishing.throttle``), a COMMIT as a whole; after ``block_timeout`` ERROR full
    drop_newest    it is not stored
    drop_oldest    the oldest that no consumer holds is given up. What consumers hold is beside the limit then: it is
                   never in the way of something newer, and does not come back into a queue that is full without it

Knows: a destination's limits, and how much of them is taken. Invariant: what is dropped is counted by who asked.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from radiator.broker.publishing.throttle import Wait
from radiator.errors import ProtocolError, StorageError

if TYPE_CHECKING:
    from radiator.broker.queues.queue import Queue
    from radiator.routing.policy import Policy
    from radiator.storage.partition import Partition


class Verdict(Enum):
    """What a destination that may be full says to one more message."""

    STORE = "store"
    REPEAT = "repeat"  # it is there already
    DROP_NEWEST = "drop_newest"
    DROP_OLDEST = "drop_oldest"


def judge(queue: Queue, size_bytes: int, ahead: tuple[int, int] | None) -> Verdict:
    """What becomes of a message with a body of ``size_bytes``; changes nothing. Raises ProtocolError and Wait.

    ``ahead``: messages, and their bytes, that the same transaction sends there before this one. A transaction waits as
    a whole, see ``together``.
    """
    on_full = queue.terms.on_full
    if on_full == "block":
        if ahead is None:
            together(queue, 1, size_bytes)
        return Verdict.STORE
    before, bytes_before = ahead or (0, 0)
    shortage = _shortage(queue, before + 1, bytes_before + size_bytes)
    if not shortage:
        return Verdict.STORE
    if on_full == "drop_newest":
        return Verdict.DROP_NEWEST
    if on_full == "drop_oldest":
        return Verdict.DROP_OLDEST
    raise _full(queue, shortage)


def together(queue: Queue, messages: int, size_bytes: int) -> None:
    """All messages of one SEND or COMMIT to a queue whose rule says block. Raises Wait while there is no room for them,
    and ProtocolError if there never can be."""
    terms = queue.terms
    if terms.on_full != "block":
        return
    shortage = _shortage(queue, messages, size_bytes)
    if not shortage:
        return
    if messages > (terms.max_messages or messages) or size_bytes > (terms.max_bytes or size_bytes):
        raise _full(queue, f"{messages} messages of {size_bytes} bytes at once can never fit. {shortage}")
    refusal = _full(queue, f"{shortage} It was so for as long as block_timeout says.")
    raise Wait("blocked", partial(_fits, queue, messages, size_bytes), refusal, terms.block_timeout_ns)


def make_room(queue: Queue, size_bytes: int) -> int:
    """Give up the oldest messages that no consumer holds, until one of ``size_bytes`` fits or no more can be given up.
    Returns how many."""
    dropped = 0
    while not _fits(queue, 1, size_bytes) and queue.drop_oldest():
        dropped += 1
    return dropped


def bring(queue: Queue, size_bytes: int) -> int:
    """Room for a message that the broker moves there; whatever the rule says, the mover can wait. Returns how many were
    given up. Raises ProtocolError."""
    dropped = make_room(queue, size_bytes) if queue.terms.on_full == "drop_oldest" else 0
    shortage = _shortage(queue, 1, size_bytes)
    if shortage and queue.terms.on_full != "drop_oldest":
        raise _full(queue, shortage)
    return dropped


def trim(queue: Queue) -> int:
    """Messages have come back from a consumer into a queue that has taken newer ones instead: drop what is too much,
    oldest first. Returns how many."""
    dropped = 0
    while not _fits(queue, 0, 0) and queue.drop_oldest():
        dropped += 1
    return dropped


def no_memory(policy: Policy, partition: Partition, error: StorageError, everywhere: bool) -> Wait | None:
    """A memory partition takes no more. If all of them together are full, whoever sends there waits; if only this one
    is, then only where the rule says so."""
    if not everywhere and policy.on_full != "block":
        return None
    refusal = ProtocolError("full", "no memory is free to keep the message in", str(error))
    return Wait("blocked", partial(_accepts, partition), refusal, policy.rule.block_timeout_ns)


def _accepts(partition: Partition) -> bool:
    try:
        partition.check()
    except StorageError:
        return False
    return True


def _fits(queue: Queue, messages: int, size_bytes: int) -> bool:
    """Whether so much more breaks no limit: asked in every turn for everybody who waits, so without a word."""
    terms = queue.terms
    most, most_bytes = terms.max_messages, terms.max_bytes
    return (most is None or queue.backlog + messages <= most) and (
        most_bytes is None or queue.backlog_bytes + size_bytes <= most_bytes
    )


def _shortage(queue: Queue, messages: int, size_bytes: int) -> str:
    """Which limit so much more would break, in words; nothing if none."""
    if _fits(queue, messages, size_bytes):
        return ""
    terms = queue.terms
    most = terms.max_messages
    if most is not None and (held := queue.backlog) + messages > most:
        return f"max_messages: {most} is set on line {terms.line} of the configuration; it holds {held}."
    most = terms.max_bytes
    if most is not None and (held := queue.backlog_bytes) + size_bytes > most:
        return f"max_bytes: {most} is set on line {terms.line} of the configuration; it holds {held}."
    return ""


def _full(queue: Queue, detail: str) -> ProtocolError:
    return ProtocolError("full", f"{queue.name} is full", detail)
