"""Turns: batches that are stored together, and the receipts that wait for them.

    place   a batch that is begun, or a sync that is requested; it ends once, stored or with a failure
    turn    the places that are stored in one group commit

A session has one line of receipts to be released for each turn, however many logs it sends to. The event loop owns it.
"""

from __future__ import annotations

from typing import Any, Protocol

NONE: dict[Any, Any] = {}  # shared by all turns without failures; it stays empty


class Turn:
    """Places that are stored together."""

    __slots__ = ("_left", "failures", "waiters")

    def __init__(self) -> None:
        self._left = 0  # places that have not ended
        self.failures = NONE  # by place: why its messages are not stored
        self.waiters: list[Any] = []  # what the broker sends when the last place has ended

    @property
    def begun(self) -> bool:
        """Whether any of its places has not ended."""
        return self._left > 0

    def begins(self) -> None:
        """Count a place that begins."""
        self._left += 1

    def ends(self, place: Place, failure: Any) -> list[Any]:
        """Note how a place has ended.

        Args:
            place: One that has begun.
            failure: Why its contents are not stored; None: they are.

        Returns:
            The waiters to notify now: all of them if it was the last place, else none.
        """
        self._left -= 1
        if failure is not None:
            if self.failures is NONE:
                self.failures = {}
            self.failures[place] = failure
        if self._left:
            return []
        waiters, self.waiters = self.waiters, []
        return waiters


class Place(Protocol):
    """What a receipt can wait for."""

    @property
    def turn(self) -> Turn:
        """The turn of the place."""

    @property
    def waiters(self) -> list[Any]:
        """Objects that are notified when the place ends."""
