"""Messages that consumers had when their cursor was set back: they come again marked, with their count.

The new cursor reads them as fresh ones, like everything behind it. So it remembers which of these had been handed out
and not settled, and what is met among the fresh ones takes the way of those that come back. What was acknowledged is
not remembered: to deliver that once more is what was asked for, and it begins anew.

Knows: sources, offsets. Must not know: who set the cursor. Kept in memory: a restart before they are delivered again
forgets them.
Invariants: in ascending order; a run of fresh messages ends with the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.broker.queues.source import QueueSource
    from radiator.storage.batch import RecordBatch


def handed_out(source: QueueSource) -> dict[int, int]:
    """What this source, which ends, has given to consumers and is not settled: how often, by offset."""
    cursor, settled = source.cursor, set(source.settled)
    covered = min(cursor.delivered, source.next_offset)
    unsettled = [offset for offset in cursor.unacked(covered) if offset not in settled]
    unsettled += sorted(offset for offset in cursor.counts if offset >= covered and offset not in settled)
    handed = {offset: count for offset in unsettled if (count := source.deliveries(offset))}
    return handed | {offset: count for offset, count in source.rewound.items() if offset >= source.next_offset}


def remember(source: QueueSource, handed: dict[int, int]) -> None:
    """The one that takes its place may meet these again."""
    end = source.feed.partition.next_offset
    source.rewound = {offset: count for offset, count in handed.items() if source.next_offset <= offset < end}


def bound(source: QueueSource, batch: RecordBatch, start: int, stop: int) -> int:
    """How far a run of fresh records that begins at ``start`` may go: up to the first that was handed out before."""
    rewound = source.rewound
    while rewound:
        offset = next(iter(rewound))
        if offset >= batch.offsets[start]:
            return min(stop, batch.index_at(offset) + 1) if offset < batch.next_offset else stop
        del rewound[offset]  # passed: it was removed, or is others'
    return stop
