"""Which destinations there are for the patterns of a SUBSCRIBE, found in portions.

A few names are found at once, by the index of names. Where a turn does not suffice for that (``#`` with a hundred
thousand names, a list of a hundred patterns) every name is tried once against all the patterns together; for a regular
expression there is no other way.

Knows: names, patterns. Must not know: subscriptions, rights. Destinations that are created meanwhile are the affair of
``births``.
Invariants: a turn looks at no more than its budget lets it, and one name; each name is found that matches, exists when
the search begins, and still when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from radiator.routing.index import PatternIndex
from radiator.routing.regex import RegexSet

if TYPE_CHECKING:
    from radiator.broker.services import Services
    from radiator.routing.pattern import PatternSet

STEPS_A_UNIT = 4  # nodes of a tree, or what takes as long
NAMES_A_UNIT = 100  # that are copied
NAME_STEPS = 4  # a name, whatever is asked of it
REGEX_STEPS = 16  # a name and an expression; four times that for one that is made to be slow


def matching(broker: Services, patterns: PatternSet) -> Iterator[str | None]:
    """The names that the wildcards of ``patterns`` match. None: a name was looked at that does not; the turn may end
    after each."""
    budget = broker.budget
    if not isinstance(patterns, RegexSet):
        whole = budget.spent == 0
        found = _by_index(broker, patterns)
        if found is None and not whole:
            budget.give_way()  # it may be found within a whole turn
            yield None
            found = _by_index(broker, patterns)
        if found is not None:
            yield from found
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
        yield name if wanted else None


def _matcher(patterns: PatternSet) -> Callable[[str], tuple[bool, int]]:
    """What says of a name whether it is wanted, and how many steps that took."""
    if isinstance(patterns, RegexSet):
        return lambda name: (patterns.matches(name), REGEX_STEPS)
    index: PatternIndex[bool] = PatternIndex()
    index.add(True, [each for each in patterns if not each.is_literal])
    return index.reach


def _by_index(broker: Services, patterns: PatternSet) -> list[str] | None:
    """None if what is left of this turn does not suffice."""
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
