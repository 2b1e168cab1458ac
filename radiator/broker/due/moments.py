"""When a stored message may be delivered: its headers ``deliver-at`` and ``expires``, and its rule's ``message_ttl``.

A batch is searched for these headers once, whatever reads it, and the answer is kept with it (``RecordBatch.marks``);
only where it has them is each record looked at.

Knows: the stored form of a header block. Must not know: queues, what becomes of an expired message.
A dead letter is not judged by the headers that it had before: it is there to be seen.
Invariant: a header that is no time, in a message of an earlier version, means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from radiator.broker.destinations.keys import header_value
from radiator.broker.due.timing import NEVER_NS
from radiator.clock import NS_PER_MS

if TYPE_CHECKING:
    from radiator.storage.batch import RecordBatch

NOW, EXPIRED = 0, -1  # verdicts; any other is the moment at which to look again
EXPIRES, DELIVER_AT = 1, 2  # marks
FIRST: Final = "first expiry"  # a key in ``RecordBatch.memo``
DIGITS_MAX = 15  # of milliseconds: far beyond what fits 64 bits of nanoseconds is never

_expires = header_value("expires")
_deliver_at = header_value("deliver-at")
_dead = header_value("dlq-reason")
_dead_since = header_value("dlq-time")


def marks(batch: RecordBatch) -> int:
    """Which of these headers the batch has somewhere."""
    found = batch.marks
    if found < 0:
        blocks = batch.blocks
        alike = blocks.count(blocks[0]) == len(blocks)  # the rule: one producer, one block, and the same object
        text = b"\n" + (blocks[0] if alike else b"\n".join(blocks))
        found = batch.marks = EXPIRES * (b"\nexpires:" in text) | DELIVER_AT * (b"\ndeliver-at:" in text)
    return found


def judge(batch: RecordBatch, index: int, ttl_ns: int | None, now_ns: int) -> int:
    """NOW, EXPIRED or the moment until which this record has to wait."""
    block, found = batch.blocks[index], marks(batch)
    end_ns = expiry(batch, index, ttl_ns)
    if end_ns <= now_ns:
        return EXPIRED
    if found & DELIVER_AT and not buried(batch, index):
        due_ns = _moment(_deliver_at(block), 0)
        if due_ns > now_ns:
            return min(due_ns, end_ns)
    return NOW


def buried(batch: RecordBatch, index: int) -> bool:
    """True if this record came to its log as a dead letter, and not from a client that sends one on."""
    since = _dead_since(batch.blocks[index])
    return since is not None and since == b"%d" % batch.receive_ns[index]


def expiry(batch: RecordBatch, index: int, ttl_ns: int | None) -> int:
    """When this record expires. A dead letter has done so already, or never will: its own header is history."""
    end_ns = NEVER_NS if ttl_ns is None else batch.receive_ns[index] + ttl_ns
    if marks(batch) & EXPIRES:
        block = batch.blocks[index]
        if _dead(block) is None:
            end_ns = min(end_ns, _moment(_expires(block), NEVER_NS))
    return end_ns


def first_expiry(batch: RecordBatch, ttl_ns: int | None) -> int:
    """When the first record of a batch expires. However many sources ask, its headers are looked at once."""
    first_ns = NEVER_NS if ttl_ns is None else batch.receive_ns[0] + ttl_ns  # times never fall within a log
    if marks(batch) & EXPIRES:
        if batch.memo is None:
            batch.memo = {}
        if FIRST not in batch.memo:
            blocks = set(batch.blocks)
            batch.memo[FIRST] = min(
                (_moment(_expires(each), NEVER_NS) for each in blocks if _dead(each) is None), default=NEVER_NS
            )
        first_ns = min(first_ns, batch.memo[FIRST])
    return first_ns


def _moment(value: bytes | None, none: int) -> int:
    """Epoch milliseconds as nanoseconds; ``none`` for 0 and for what is no number."""
    if value is None or not value.isdigit() or len(value) > DIGITS_MAX:
        return none
    return int(value) * NS_PER_MS or none
