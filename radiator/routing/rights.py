"""The rights of a user: patterns of destinations for each right.

    read     consume, subscribe               write     SEND
    browse   look at a queue, see history     monitor   the admin channel, without changes and without messages
    admin    all of the admin channel; it includes monitor

``may`` is a dict look-up after the first time. Names under ``/temp-queue/`` belong to connections and not to users: any
client that has the name may SEND to it, and the broker checks the rest.

Invariant: the results of a Rights object never change. Other rights are another object, so "the same object" means "the
same results".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from radiator.routing.pattern import PatternSet, parse_list

RIGHTS: Final = ("read", "write", "browse", "monitor", "admin")
DECISIONS_MAX: Final = 10_000  # remembered, of one user: the names come from peers
TEMPORARY: Final = ("/temp-queue/", "/temp-topic/")
OF_CONNECTIONS: Final = frozenset(("read", "write", "browse"))  # which any client has over temporary queues


class Rights:
    """``patterns`` by right. Raises ProtocolError ``bad-pattern``."""

    __slots__ = ("_decided", "_covers_all", "_patterns")

    def __init__(self, patterns: Mapping[str, Iterable[str]]) -> None:
        unknown = set(patterns) - set(RIGHTS)
        assert not unknown, unknown
        self._patterns = {right: [parse_list(text) for text in patterns.get(right, ())] for right in RIGHTS}
        self._patterns["monitor"] += self._patterns["admin"]
        self._decided: dict[tuple[str, str], bool] = {}
        self._covers_all = {
            right: any(pattern.text in ("#", ">") for each in sets for pattern in each)
            for right, sets in self._patterns.items()
        }

    def may(self, right: str, name: str) -> bool:
        """Return whether the right includes the destination ``name``."""
        if self._covers_all[right]:
            return True
        key = (right, name)
        decided = self._decided.get(key)
        if decided is None:
            if right in OF_CONNECTIONS and name.startswith(TEMPORARY):  # not remembered: such a name is soon gone
                return True
            if len(self._decided) >= DECISIONS_MAX:
                self._decided.clear()
            decided = self._decided[key] = self._decide(right, name)
        return decided

    def _decide(self, right: str, name: str) -> bool:
        return any(patterns.matches(name) for patterns in self._patterns[right])

    def has(self, right: str) -> bool:
        """Return whether the right includes any name at all."""
        return bool(self._patterns[right])

    def pattern_count(self, right: str) -> int:
        """Return how many lists of patterns a decision may have to look at."""
        return 0 if self._covers_all[right] else len(self._patterns[right])

    def covers_all(self, right: str) -> bool:
        """Return whether the right includes every possible name."""
        return self._covers_all[right]

    @property
    def everything(self) -> bool:
        """Whether everything is allowed."""
        return all(map(self.covers_all, RIGHTS))

    @property
    def nothing(self) -> bool:
        """Whether nothing is allowed."""
        return not any(self._patterns.values())


EVERYTHING: Final = Rights(dict.fromkeys(RIGHTS, ("#",)))
NOTHING: Final = Rights({})


class Permitted:
    """The patterns of a subscription, limited to what a user may do; a replacement of PatternSet.

    Names that were requested one by one have been checked before; other names that a wildcard matches do not exist for
    this user.
    """

    __slots__ = ("_may", "_matches", "_right", "is_literal", "names", "patterns", "text")

    def __init__(self, requested: PatternSet, rights: Rights, right: str) -> None:
        self._may = rights.may
        self._matches = requested.matches
        self._right = right
        self.text = requested.text
        self.patterns = requested.patterns
        self.names = requested.names
        self.is_literal = requested.is_literal

    def matches(self, name: str) -> bool:
        """Return whether a pattern matches a name and the user has the right."""
        return self._matches(name) and self._may(self._right, name)
