"""Search for the destinations that the patterns of a SUBSCRIBE match, in portions.

The index of names finds a few names at once. If one turn does not suffice for that (``#`` with a hundred thousand
names, a list of a hundred patterns), every name is tried once against all patterns together. Regular expressions are
always searched that way.

This module knows names and patterns. It knows no subscriptions and no rights. Destinations that are created meanwhile
are handled by ``destination_creation``.

Invariants: a turn looks at no more names than the budget allows, plus one. Each matching name is found that exists when
the search begins and still exists when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from radiator.routing.index import PatternIndex
from radiator.routing.pattern import DELIVERIES
from radiator.routing.regex import RegexSet

if TYPE_CHECKING:
    from radiator.broker.services import Services
    from radiator.routing.pattern import PatternSet

STEPS_A_UNIT = 4  # nodes of a tree, or work that takes as long
NAMES_A_UNIT = 100  # names that are copied
NAME_STEPS = 4  # per name
REGEX_STEPS = 16  # per name and expression; a deliberately slow expression takes four times as long


def matching(broker: Services, patterns: PatternSet) -> Iterator[str | None]:
    """Yield the names that the wildcards of ``patterns`` match.

    None stands for a name that was tried and does not match. The turn may end after each.
    """
    budget = broker.budget

    def visible(name: str) -> bool:
        return name != DELIVERIES or patterns.matches(name)

    if not isinstance(patterns, RegexSet):
        whole = budget.spent == 0
        found = _by_index(broker, patterns)
        if found is None and not whole:
            budget.give_way()  # a whole turn may suffice for the index
            yield None
            found = _by_index(broker, patterns)
        if found is not None:
            yield from filter(visible, found)
            return
    matcher = _matcher(patterns)
    names = list(broker.destinations)
    budget.spend(len(names) // NAMES_A_UNIT)
    steps = 0
    for name in names:
        wanted, cost = matcher(name)
        steps += cost + NAME_STEPS
        if steps >= STEPS_A_UNIT:
            budget.spend(steps // STEPS_A_UNIT)
            steps %= STEPS_A_UNIT
        yield name if wanted and visible(name) else None


def _matcher(patterns: PatternSet) -> Callable[[str], tuple[bool, int]]:
    """Return a function that returns whether a name matches, and how many steps that took."""
    if isinstance(patterns, RegexSet):
        return lambda name: (patterns.matches(name), REGEX_STEPS)
    index: PatternIndex[bool] = PatternIndex()
    index.add(True, [each for each in patterns if not each.is_literal])
    return index.count_steps


def _by_index(broker: Services, patterns: PatternSet) -> list[str] | None:
    """Return the matching names from the index; None if the rest of this turn does not suffice."""
    found: dict[str, None] = {}
    budget = broker.budget
    most = left = budget.left * STEPS_A_UNIT
    for pattern in patterns:
        if not pattern.is_literal:
            names, looked = broker.registry.names.find(pattern, left)
            left -= looked
            if names is None:
                break
            found.update(dict.fromkeys(names))
    else:
        budget.spend((most - left) // STEPS_A_UNIT)
        return list(found)
    budget.spend((most - left) // STEPS_A_UNIT)
    return None
