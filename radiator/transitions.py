"""Tables of states and events: what a session, a message in a queue and a segment may become.

h11 keeps the states of an HTTP connection in the same way (``h11/_state.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


class Transitions(dict[State, Mapping[Event, State]], Generic[State, Event]):
    """The state that follows each state and event; a pair that is not in the table is an error of the broker.

    Args:
        subject: What has these states, for the text of an error: "a session".
        table: The state that follows, by state and event.
    """

    def __init__(self, subject: str, table: Mapping[State, Mapping[Event, State]]) -> None:
        super().__init__(table)
        self.subject = subject

    def after(self, state: State, event: Event) -> State:
        """Return the state that follows ``state`` when ``event`` happens.

        Raises:
            RuntimeError: The event cannot happen in this state.
        """
        following = self[state].get(event)
        if following is None:
            raise RuntimeError(f"{self.subject} that is {state.value} got the event {event.value}")
        return following
