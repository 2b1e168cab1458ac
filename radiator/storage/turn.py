"""Turns: what is stored together, and who waits for it.

    place   a batch that is begun, or a sync that is asked for; it ends once, well or with a failure
    turn    the places that are stored in one group commit

A session has one receipt line to be told for each turn, to however many logs it has sent. Hub only.
"""

from __future__ import annotations

from typing import Any, Protocol

NONE: dict[Any, Any] = {}  # stands for the failures of all turns that have none; it stays empty


class Turn:
    """Places that are stored together."""

    __slots__ = ("_left", "failures", "waiters")

    def __init__(self) -> None:
        self._left = 0  # places that have not ended
        self.failures = NONE  # by place: why what was to be stored there is not
        self.waiters: list[Any] = []  # what the broker tells when the last place has ended

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
            place: one that has begun.
            failure: why what was to be stored there is not; None: it is.

        Returns:
            Who is to be told now: all that have waited if it was the last place, else nobody.
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
    """Where one can wait for a message."""

    @property
    def turn(self) -> Turn:
        """The turn that the place belongs to."""

    @property
    def waiters(self) -> list[Any]:
        """Each is told how this place has ended."""
