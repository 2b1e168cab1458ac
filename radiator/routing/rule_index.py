"""Find the first of many rules that matches a name.

A tree over the segments of names (``index.PatternIndex``) returns the rules that may match, so the cost of a look-up
does not grow with their number. Regular expressions are not in the tree: each is tried for each name.

This module knows patterns and expressions. It does not know the contents of rules. Invariant: ``first`` returns what a
walk over all rules in their order would return.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from radiator.routing.index import PatternIndex
from radiator.routing.pattern import ANY, Pattern, PatternSet
from radiator.routing.template import groups_of

Captures = Callable[[str], tuple[str, ...] | None]
Matcher = PatternSet | re.Pattern[str]

_EVERY_NAME: Final = Pattern(ANY)


class RuleIndex:
    """Rules by what they match, in the order given."""

    __slots__ = ("_index", "_matchers")

    def __init__(self, matchers: Iterable[Matcher]) -> None:
        self._matchers: list[tuple[int, Captures]] = []  # by number in the tree: the rule, and its captures
        self._index: PatternIndex[int] = PatternIndex()
        for rule, matcher in enumerate(matchers):
            if isinstance(matcher, PatternSet):
                for pattern in matcher:
                    self._add(rule, pattern, pattern.captures)
            else:
                self._add(rule, _EVERY_NAME, captures_of(matcher))

    def _add(self, rule: int, pattern: Pattern, captures: Captures) -> None:
        self._index.add(len(self._matchers), (pattern,))
        self._matchers.append((rule, captures))

    def first(self, name: str) -> tuple[int, tuple[str, ...]] | None:
        """Return the number of the first rule that matches ``name``, and what its wildcards or groups matched.

        It is None if no rule matches.
        """
        for number in self._index.find(name):
            rule, captures = self._matchers[number]
            found = captures(name)
            if found is not None:
                return rule, found
        return None


def captures_of(matcher: Matcher) -> Captures:
    """Return the function that returns what the wildcards or groups of a rule match in a name, or None."""
    return matcher.captures if isinstance(matcher, PatternSet) else partial(groups_of, matcher)
