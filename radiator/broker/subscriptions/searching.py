"""Which destinations there are for the patterns of a SUBSCRIBE, in portions.

A few names are found at once, by the index of names. Where that would be too much (``#`` with a hundred thousand names,
a list of a hundred patterns) every name is tried once against all the patterns together; for a regular expression there
is no other way. A SUBSCRIBE does a portion of that in each visit, and others have their turn between; the frame comes
again (``Unfinished``) until it has seen them all.

Knows: names, patterns. Must not know: subscriptions, rights. Destinations that are born later are ``births``' affair.
Invariants: what a visit does is bounded by STEPS_A_VISIT, and by one name; each name that exists at the end and matches
is found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from radiator.routing.index import PatternIndex
from radiator.routing.regex import RegexSet
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.session import Session
    from radiator.routing.pattern import PatternSet

STEPS_A_VISIT = 4_000  # nodes of a tree, or what takes as long: about a millisecond
NAME_STEPS = 4  # a name, whatever is asked of it
REGEX_STEPS = 16  # a name and an expression; four times that for one that is made to be slow


class Unfinished(Exception):
    """The frame is to come again: at once, as there was more to look at than one visit may take; or when the disk is
    done with something."""

    def __init__(self, at_once: bool = True) -> None:
        super().__init__()
        self.at_once = at_once


class Search:
    """How far one SUBSCRIBE has come. ``reach`` says of a name whether it is wanted, and what that took."""

    __slots__ = ("at", "done", "found", "names", "patterns", "reach", "seen")

    def __init__(self, patterns: PatternSet) -> None:
        self.patterns = patterns
        self.names: list[str] = []
        self.seen: set[str] = set()
        self.at = 0
        self.done = False
        self.found: list[str] = []
        self.reach: Callable[[str], tuple[bool, int]]
        if isinstance(patterns, RegexSet):
            self.reach = lambda name: (patterns.matches(name), REGEX_STEPS)
        else:
            index: PatternIndex[bool] = PatternIndex()
            index.add(True, [each for each in patterns if not each.is_literal])
            self.reach = index.reach

    def go_on(self, there: Collection[str]) -> None:
        """One portion; at the end also the names that were born in the meantime."""
        steps = 0
        while steps < STEPS_A_VISIT:
            if self.at == len(self.names):
                self.names, self.at = [name for name in there if name not in self.seen], 0
                self.seen.update(self.names)
                if not self.names:
                    self.done = True
                    return
            name = self.names[self.at]
            self.at += 1
            wanted, cost = self.reach(name)
            steps += cost + NAME_STEPS
            if wanted:
                self.found.append(name)

    def is_for(self, patterns: PatternSet) -> bool:
        """True if this is what was begun for an earlier visit of the same frame."""
        return self.patterns.text == patterns.text and type(self.patterns) is type(patterns)


def names_for(broker: Broker, session: Session, patterns: PatternSet) -> list[str]:
    """The names that the patterns match, but for temporary ones and for the names in the list. Raises Unfinished."""
    search = session.search
    if search is None or not search.is_for(patterns):
        known = None if isinstance(patterns, RegexSet) else _by_index(broker, patterns)
        if known is not None:
            return known
        search = session.search = Search(patterns)
    search.go_on(broker.destinations)
    broker.give_way()
    if not search.done:
        raise Unfinished
    session.search = None
    there = broker.destinations
    return [name for name in search.found if name in there and not name.startswith(TEMPORARY)]


def _by_index(broker: Broker, patterns: PatternSet) -> list[str] | None:
    """None if it is too much for one visit."""
    found: dict[str, None] = {}
    left = STEPS_A_VISIT
    for pattern in patterns:
        if not pattern.is_literal:
            names, looked = broker.registry.names.find(pattern, left)
            left -= looked
            if names is None:
                return None
            found.update(dict.fromkeys(names))
    broker.work += STEPS_A_VISIT - left
    return list(found)
