"""The life of a segment as a table of states and events.

    ACTIVE --seal--> SEALED --rewrite--> REWRITING --merge--> MERGED --remove--> REMOVED --delete--> DELETED

The log appends to its active segment. When a write or a sync of the file has failed, the log continues in another one
(``reopen``), and the failed file is cut. Sealed segments are rewritten by maintenance and removed by retention.
Everything that is not in the table is an error of the broker.

The event loop has the states of all segments of a log (``SegmentInfo``), the disk thread has that of the active file
(``Log``).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from radiator.transitions import Transitions


class State(Enum):
    """The state of a segment, which decides the events that it may have."""

    __hash__ = object.__hash__  # members are compared by identity; the hash of Enum takes five times as long

    ACTIVE = "active"  # the last of its log: batches are appended
    REFUSING = "refusing"  # the disk was full, or the journal did not take a batch: nothing is appended until a retry
    FAILED = "failed"  # a write or a sync has failed: the file is never written or synced again
    CUTTING = "being cut"  # the disk thread cuts off what a failed file has behind its last sync
    SEALED = "sealed"  # it gets no more batches
    REWRITING = "being rewritten"  # a job of maintenance reads it, and may replace its file
    MERGED = "merged"  # maintenance found, or made, large batches
    COMPRESSED = "compressed"  # maintenance has compressed it, or it would not get smaller
    DAMAGED = "damaged"  # maintenance could not read all of it, and leaves it as it is
    REMOVED = "removed"  # no longer in its log; its files are to be deleted
    DELETED = "deleted"  # its files are gone


class Event(Enum):
    """An event of a segment."""

    __hash__ = object.__hash__

    APPEND = "append"  # a batch was written
    REFUSE = "refuse"  # there was no room for a batch, or the journal did not take it
    RETRY = "retry"  # there is room again
    FAIL = "fail"  # a write or a sync has failed
    SEAL = "seal"  # the log continues in the next segment; a failed file was cut
    CUT = "cut"  # a job begins to cut a failed file
    REWRITE = "rewrite"  # a job of maintenance begins
    MERGE = "merge"  # the job has ended: the batches are large
    COMPRESS = "compress"  # the job has ended: the segment is as small as it gets
    ABANDON = "abandon"  # the job has changed nothing, or had an error: the segment is examined again
    DAMAGE = "damage"  # the job has found damage
    REMOVE = "remove"  # retention removes the segment from its log
    DELETE = "delete"  # the files were deleted


TRANSITIONS: Final = Transitions(
    "a segment",
    {
        State.ACTIVE: {
            Event.APPEND: State.ACTIVE,
            Event.REFUSE: State.REFUSING,
            Event.FAIL: State.FAILED,
            Event.SEAL: State.SEALED,
        },
        State.REFUSING: {Event.REFUSE: State.REFUSING, Event.RETRY: State.ACTIVE, Event.FAIL: State.FAILED},
        State.FAILED: {
            Event.REFUSE: State.FAILED,
            Event.FAIL: State.FAILED,
            Event.CUT: State.CUTTING,
            Event.REMOVE: State.REMOVED,
        },
        State.CUTTING: {Event.SEAL: State.SEALED},
        State.SEALED: {Event.REWRITE: State.REWRITING, Event.REMOVE: State.REMOVED},
        State.REWRITING: {
            Event.MERGE: State.MERGED,
            Event.COMPRESS: State.COMPRESSED,
            Event.ABANDON: State.SEALED,
            Event.DAMAGE: State.DAMAGED,
        },
        State.MERGED: {Event.REWRITE: State.REWRITING, Event.REMOVE: State.REMOVED},
        State.COMPRESSED: {Event.REWRITE: State.REWRITING, Event.REMOVE: State.REMOVED},
        State.DAMAGED: {Event.REMOVE: State.REMOVED},
        State.REMOVED: {Event.DELETE: State.DELETED},
        State.DELETED: {},
    },
)
