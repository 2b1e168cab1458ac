"""The life of a session as a table of states and events.

    NEW --login--> LOGGING_IN --welcome--> CONNECTED --close--> CLOSING --gone--> CLOSED

A session may be closed in any state, and its connection may be lost in any state. Anything that is not in the table
is an error of the broker.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from radiator.transitions import Transitions


class State(Enum):
    """What is known about a session, and what may happen to it."""

    NEW = "new"  # no CONNECT has come
    LOGGING_IN = "logging in"  # CONNECT has come, and it is not decided whose it is: frames behind it wait
    CONNECTED = "connected"  # frames are acted on
    CLOSING = "closing"  # frames are ignored; bytes in the outbox are still sent
    CLOSED = "closed"  # the connection is gone


class Event(Enum):
    """What happens to a session."""

    LOGIN = "login"  # CONNECT or STOMP has come
    WELCOME = "welcome"  # the login was accepted
    CLOSE = "close"  # ERROR was answered, or DISCONNECT was acted on
    GONE = "gone"  # the connection was lost, or closed


TRANSITIONS: Final = Transitions(
    "a session",
    {
        State.NEW: {Event.LOGIN: State.LOGGING_IN, Event.CLOSE: State.CLOSING, Event.GONE: State.CLOSED},
        State.LOGGING_IN: {Event.WELCOME: State.CONNECTED, Event.CLOSE: State.CLOSING, Event.GONE: State.CLOSED},
        State.CONNECTED: {Event.CLOSE: State.CLOSING, Event.GONE: State.CLOSED},
        State.CLOSING: {Event.CLOSE: State.CLOSING, Event.GONE: State.CLOSED},
        State.CLOSED: {Event.CLOSE: State.CLOSED, Event.GONE: State.CLOSED},
    },
)
