"""When a stored message may be delivered: its headers ``deliver-at`` and ``expires``, and its rule's ``message_ttl``.

A batch is searched for these headers once and the result is stored with the batch (``RecordBatch.marks``). Single
records are examined only in a batch that has the headers.

The module knows the stored form of a header block, but not queues or the fate of an expired message.
The headers of a dead letter do not count: a dead letter does not expire by the header that it had before.
Invariant: a malformed time header, as stores of earlier versions may have, is ignored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from radiator.broker.logs.header_values import header_value
from radiator.clock import NS_PER_MS, WallNs
from radiator.timers import NEVER_NS

if TYPE_CHECKING:
    from radiator.broker.timers.timing import Timing
    from radiator.storage.batch import RecordBatch

NOW, EXPIRED = WallNs(0), WallNs(-1)  # results of judge(); any other is the time of the next check
EXPIRES, DELIVER_AT = 1, 2  # bits of RecordBatch.marks
FIRST: Final = "first expiry"  # a key in ``RecordBatch.memo``
REMEMBERED_BYTES_MAX = 1_024  # a longer header block is not cached
DIGITS_MAX = 15  # of milliseconds; a longer number exceeds 64 bits of nanoseconds and counts as never

_expires = header_value("expires")
_deliver_at = header_value("deliver-at")
_dead_since = header_value("dlq-time")


def marks(batch: RecordBatch) -> int:
    """Return the bits of the time headers that occur in the batch."""
    found = batch.marks
    if found < 0:
        blocks = batch.blocks
        first = blocks[0]
        if blocks.count(first) != len(blocks):
            found = _found_in(b"\n".join(blocks))
        elif len(first) > REMEMBERED_BYTES_MAX:
            found = _found_in(first)
        else:  # the usual case: one producer, one block, the same object
            found = _remembered(first)
        batch.set_marks(found)
    return found


def _found_in(text: bytes) -> int:
    text = b"\n" + text
    return EXPIRES * (b"\nexpires:" in text) | DELIVER_AT * (b"\ndeliver-at:" in text)


_remembered = lru_cache(1_024)(_found_in)


def judge(batch: RecordBatch, index: int, ttl_ns: int | None, timing: Timing) -> WallNs:
    """Return NOW, EXPIRED or the time, by the wall clock as shown, until which a record has to wait.

    Expiry is judged by the trusted wall time, ``deliver-at`` by the wall clock as shown.

    Args:
        batch: The batch.
        index: The index of the record in the batch.
        ttl_ns: The ``message_ttl`` of the rule; None means no limit.
        timing: The present time.
    """
    block, found = batch.blocks[index], marks(batch)
    end_ns = expiry(batch, index, ttl_ns)
    if end_ns <= timing.now.wall:
        return EXPIRED
    if found & DELIVER_AT and not is_dead_letter(batch, index):
        due_ns = _moment(_deliver_at(block), 0)
        if due_ns > timing.shown_ns:
            return min(due_ns, WallNs(end_ns + timing.clock.ahead_ns))
    return NOW


def is_dead_letter(batch: RecordBatch, index: int) -> bool:
    """Return True if the broker wrote this record as a dead letter.

    The broker removes ``dlq-time`` from SEND. Stores of earlier versions may have it from clients, but then it differs
    from the receive time.
    """
    since = _dead_since(batch.blocks[index])
    return since is not None and since == b"%d" % batch.receive_ns[index]


def expiry(batch: RecordBatch, index: int, ttl_ns: int | None) -> WallNs:
    """Return the wall time at which a record expires; NEVER_NS if it does not."""
    end_ns = WallNs(NEVER_NS if ttl_ns is None else batch.receive_ns[index] + ttl_ns)
    if marks(batch) & EXPIRES and not is_dead_letter(batch, index):
        end_ns = min(end_ns, _moment(_expires(batch.blocks[index]), NEVER_NS))
    return end_ns


def first_expiry(batch: RecordBatch, ttl_ns: int | None) -> WallNs:
    """Return the earliest wall time at which a record of the batch expires.

    The headers are examined once per batch, however many sources call.
    """
    first_ns = WallNs(NEVER_NS if ttl_ns is None else batch.receive_ns[0] + ttl_ns)  # receive times never decrease
    if marks(batch) & EXPIRES:
        memos = batch.memos()
        if FIRST not in memos:
            different = set(batch.blocks)
            letters = {block for block in different if _dead_since(block) is not None}
            different -= letters
            if letters:
                numbered = enumerate(batch.blocks)
                different |= {
                    block for index, block in numbered if block in letters and not is_dead_letter(batch, index)
                }
            memos[FIRST] = min((_moment(_expires(block), NEVER_NS) for block in different), default=NEVER_NS)
        first_ns = min(first_ns, memos[FIRST])
    return first_ns


def _moment(value: bytes | None, none: int) -> WallNs:
    """Return epoch milliseconds as nanoseconds; ``none`` for 0, a missing value and a malformed number."""
    if value is None or not value.isdigit() or len(value) > DIGITS_MAX:
        return WallNs(none)
    return WallNs(int(value) * NS_PER_MS or none)
