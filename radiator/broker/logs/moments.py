"""When a stored message may be delivered: its headers ``deliver-at`` and ``expires``, and its rule's ``message_ttl``.

A batch is searched for these headers once, whatever reads it, and the answer is kept with it (``RecordBatch.marks``);
only where it has them is each record looked at.

Knows: the stored form of a header block. Must not know: queues, what becomes of an expired message.
A dead letter is not judged by the headers that it had before: it is there to be seen.
Invariant: a header that is no time, in a message of an earlier version, means nothing.
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

NOW, EXPIRED = WallNs(0), WallNs(-1)  # verdicts; any other is the moment at which to look again
EXPIRES, DELIVER_AT = 1, 2  # marks
FIRST: Final = "first expiry"  # a key in ``RecordBatch.memo``
REMEMBERED_BYTES_MAX = 1_024  # of a header block whose marks are remembered
DIGITS_MAX = 15  # of milliseconds: far beyond what fits 64 bits of nanoseconds is never

_expires = header_value("expires")
_deliver_at = header_value("deliver-at")
_dead_since = header_value("dlq-time")


def marks(batch: RecordBatch) -> int:
    """Which of these headers the batch has somewhere."""
    found = batch.marks
    if found < 0:
        blocks = batch.blocks
        first = blocks[0]
        if blocks.count(first) != len(blocks):
            found = _found_in(b"\n".join(blocks))
        elif len(first) > REMEMBERED_BYTES_MAX:
            found = _found_in(first)
        else:  # the rule: one producer, one block, and the same object
            found = _remembered(first)
        batch.set_marks(found)
    return found


def _found_in(text: bytes) -> int:
    text = b"\n" + text
    return EXPIRES * (b"\nexpires:" in text) | DELIVER_AT * (b"\ndeliver-at:" in text)


_remembered = lru_cache(1_024)(_found_in)


def judge(batch: RecordBatch, index: int, ttl_ns: int | None, timing: Timing) -> WallNs:
    """NOW, EXPIRED or the moment, as the wall clock shows it, until which this record has to wait.

    Expiry is judged by the trusted wall time, ``deliver-at`` by what the wall clock shows.
    """
    block, found = batch.blocks[index], marks(batch)
    end_ns = expiry(batch, index, ttl_ns)
    if end_ns <= timing.now.wall:
        return EXPIRED
    if found & DELIVER_AT and not buried(batch, index):
        due_ns = _moment(_deliver_at(block), 0)
        if due_ns > timing.shown_ns:
            return min(due_ns, WallNs(end_ns + timing.clock.ahead_ns))
    return NOW


def buried(batch: RecordBatch, index: int) -> bool:
    """True if the broker moved this record to its log as a dead letter. SEND loses ``dlq-time``, but stores of earlier
    versions may hold messages of clients with it: there it is not the receive time."""
    since = _dead_since(batch.blocks[index])
    return since is not None and since == b"%d" % batch.receive_ns[index]


def expiry(batch: RecordBatch, index: int, ttl_ns: int | None) -> WallNs:
    """When this record expires. A dead letter has done so already, or never will: its own header is history."""
    end_ns = WallNs(NEVER_NS if ttl_ns is None else batch.receive_ns[index] + ttl_ns)
    if marks(batch) & EXPIRES and not buried(batch, index):
        end_ns = min(end_ns, _moment(_expires(batch.blocks[index]), NEVER_NS))
    return end_ns


def first_expiry(batch: RecordBatch, ttl_ns: int | None) -> WallNs:
    """When the first record of a batch expires. However many sources ask, its headers are looked at once."""
    first_ns = WallNs(NEVER_NS if ttl_ns is None else batch.receive_ns[0] + ttl_ns)  # times never fall within a log
    if marks(batch) & EXPIRES:
        memos = batch.memos()
        if FIRST not in memos:
            different = set(batch.blocks)
            letters = {block for block in different if _dead_since(block) is not None}
            different -= letters
            if letters:
                numbered = enumerate(batch.blocks)
                different |= {block for index, block in numbered if block in letters and not buried(batch, index)}
            memos[FIRST] = min((_moment(_expires(block), NEVER_NS) for block in different), default=NEVER_NS)
        first_ns = min(first_ns, memos[FIRST])
    return first_ns


def _moment(value: bytes | None, none: int) -> WallNs:
    """Epoch milliseconds as nanoseconds; ``none`` for 0 and for what is no number."""
    if value is None or not value.isdigit() or len(value) > DIGITS_MAX:
        return WallNs(none)
    return WallNs(int(value) * NS_PER_MS or none)
