"""The life of a message in a queue as a table of states and events.

    FRESH --advance--> IN_FLIGHT --settle--> SETTLED
      |                 ^     |
      | skip_over       |     | give_back
      v      redeliver  |     v                       come_due
    SKIPPED ------------+--RETURNED <------------------------- DEFERRED

This module is the table. ``QueueMessages`` has a method of the same name for each event, which moves a message from one
state to the next. Everything that is not in the table is an error of the broker.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from radiator.transitions import Transitions


class State(Enum):
    """Where a message of a queue is. Each message is in exactly one state."""

    FRESH = "fresh"  # ready, and not examined yet: at or above the next offset, in the order of the log
    RETURNED = "returned"  # ready, before the fresh messages
    SKIPPED = "skipped"  # no consumer with credit wants it
    DEFERRED = "deferred"  # not due before a time
    IN_FLIGHT = "in flight"  # delivered, and not answered
    BURIED = "buried"  # on its way to a dead-letter destination
    DROPPED = "dropped"  # dropped before it was stored
    SETTLED = "settled"  # never delivered again


class Event(Enum):
    """An event of a message in a queue."""

    ADVANCE = "advance"  # a consumer gets it for the first time
    REDELIVER = "redeliver"  # a consumer gets a message that was returned or skipped
    GIVE_BACK = "give_back"  # its consumer refuses it, times out or leaves; or a cursor was set back
    DEFER = "defer"  # it was sent with a delay, and is met before its time
    PAUSE = "pause"  # its consumer refuses it, and a back-off begins
    COME_DUE = "come_due"  # its time has come
    SKIP_OVER = "skip_over"  # no consumer with credit matches it
    BURY = "bury"  # it expires, is rejected, or was delivered too often, and the rule has a dead-letter destination
    SETTLE = "settle"  # acknowledged, expired, dropped, moved to its dead-letter destination, or of another queue
    LOSE = "lose"  # retention or damage has removed it from the log
    DROP = "drop"  # the queue is full before the message is stored
    STORED = "stored"  # a dropped message is stored
    TAKE_BACK = "take_back"  # a dropped message could not be stored: its offset will be assigned again


TRANSITIONS: Final = Transitions(
    "a message",
    {
        State.FRESH: {
            Event.ADVANCE: State.IN_FLIGHT,
            Event.GIVE_BACK: State.RETURNED,
            Event.DEFER: State.DEFERRED,
            Event.SKIP_OVER: State.SKIPPED,
            Event.BURY: State.BURIED,
            Event.SETTLE: State.SETTLED,
            Event.LOSE: State.SETTLED,
            Event.DROP: State.DROPPED,
            Event.TAKE_BACK: State.FRESH,
        },
        State.RETURNED: {
            Event.REDELIVER: State.IN_FLIGHT,
            Event.DEFER: State.DEFERRED,
            Event.SKIP_OVER: State.SKIPPED,
            Event.BURY: State.BURIED,
            Event.SETTLE: State.SETTLED,
            Event.LOSE: State.SETTLED,
        },
        State.SKIPPED: {
            Event.REDELIVER: State.IN_FLIGHT,
            Event.DEFER: State.DEFERRED,
            Event.BURY: State.BURIED,
            Event.SETTLE: State.SETTLED,
            Event.LOSE: State.SETTLED,
        },
        State.DEFERRED: {
            Event.COME_DUE: State.RETURNED,
            Event.SETTLE: State.SETTLED,
            Event.LOSE: State.SETTLED,
        },
        State.IN_FLIGHT: {
            Event.GIVE_BACK: State.RETURNED,
            Event.PAUSE: State.DEFERRED,
            Event.BURY: State.BURIED,
            Event.SETTLE: State.SETTLED,
            Event.LOSE: State.SETTLED,
        },
        State.BURIED: {
            Event.SETTLE: State.SETTLED,
            Event.LOSE: State.SETTLED,
        },
        State.DROPPED: {
            Event.STORED: State.SETTLED,
            Event.TAKE_BACK: State.FRESH,
        },
        State.SETTLED: {  # a message that was lost in flight may still be answered
            Event.GIVE_BACK: State.SETTLED,
            Event.PAUSE: State.SETTLED,
            Event.BURY: State.SETTLED,
            Event.SETTLE: State.SETTLED,
            Event.LOSE: State.SETTLED,
        },
    },
)
