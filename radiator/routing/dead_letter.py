"""The name of the dead-letter destination that a rule gives a queue, by its template ``dead_letter``.

A dead-letter queue has no dead letters of its own: a name that the template could have made is one of them, even if the
rule matches it. So ``match: /queue/>`` with ``dead_letter: /queue/dead.{name}`` does what it looks like, and no message
goes in a cycle. Cycles over several rules are found if the rules contain the names in full (``cycles``).

This module knows names and templates. It raises ValueError with the key and what is wrong, for the operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from radiator.config import Config, Rule, Settings
from radiator.config.settings import SETTINGS
from radiator.errors import ProtocolError
from radiator.routing.pattern import is_pattern
from radiator.routing.policy import Policy
from radiator.routing.template import expand

PATHS_MAX = 10_000  # looked at from one name: no configuration for people has more
STEPS_MAX = 32  # from grave to grave: names that grow with each step never end

_PLACEHOLDER = re.compile(r"\{(name|[1-9][0-9]{0,3})\}")


def check(rule: Rule) -> None:
    """Check the template of a rule, whose placeholders were checked before. Raises ValueError."""
    template = rule.settings.dead_letter
    if template is None:
        return
    literal = _PLACEHOLDER.sub("", template)
    if not template.startswith("/") or "{" in template[:2] or not literal.strip("/"):
        raise ValueError(f"dead_letter: expected a name such as /queue/dead or /queue/dead.{{name}}, got {template!r}")
    if template.startswith(("/temp-queue/", "/temp-topic/", "/radiator/")) or "," in template:
        raise ValueError(f"dead_letter: expected the name of a queue that is not temporary, got {template!r}")
    names = [name.strip(" ") for name in (rule.match or "").split(",")]
    if any(is_dead_letter(template, name) for name in names):
        raise ValueError(f"dead_letter: {template!r} is, or can be, the queue itself; expected another queue")


def templates(config: Config) -> list[str]:
    """Return the dead-letter templates of all rules."""
    given = (each.settings.dead_letter for each in (*config.rules, config.defaults))
    return list(dict.fromkeys(template for template in given if template))


def name_for(template: str | None, name: str, captures: tuple[str, ...]) -> str | None:
    """Return the dead-letter destination of the queue ``name``; None if it has none, or is one itself."""
    if template is None or is_dead_letter(template, name):
        return None
    return expand(template, name, captures)


def settings_of_dead_letters(settings: Settings) -> Settings:
    """Return the settings of a rule's dead-letter queues: no message leaves one by itself."""
    fixed = {key.field: key.type.read(key.of_dead_letters) for key in SETTINGS if key.of_dead_letters is not None}
    return replace(settings, **fixed)


def is_dead_letter(template: str, name: str) -> bool:
    """Return whether the template makes this name of some queue."""
    return _names(template).fullmatch(name) is not None


def cycles(config: Config, policy_for: Callable[[str], Policy]) -> list[str]:
    """Return the cycles of dead letters over queues that rules name in full: place and description."""
    names: list[str] = []
    for rule in (*config.rules, config.defaults):
        matched = [] if rule.match is None else [each.strip(" ") for each in rule.match.split(",")]
        named = [*matched, *rule.fan_out, rule.settings.dead_letter or ""]
        names += [each for each in named if each and "{" not in each and not is_pattern(each)]

    def next_names(name: str) -> tuple[str, ...]:
        try:
            policy = policy_for(name)
        except ProtocolError:
            return ()
        dead = None if policy.fan_out and policy.kind == "queue" else policy.dead_letter_name
        return policy.fan_out if dead is None else (*policy.fan_out, dead)

    faults = []
    for cycle in _find_cycles(dict.fromkeys(names), next_names):
        policy = next(each for name in cycle[:-1] if (each := policy_for(name)).dead_letter_name)
        where = f":{policy.rule.line}: destinations[{policy.rule_index}]" if policy.rule_index >= 0 else ": defaults"
        faults.append(f"{where}.dead_letter: the dead-letter destinations form a cycle: {' -> '.join(cycle)}")
    return faults


def _find_cycles(names: Iterable[str], next_names: Callable[[str], Iterable[str]]) -> list[list[str]]:
    """Return the cycles among these names; each cycle once.

    Args:
        names: Where to begin.
        next_names: Returns where a message may go from a name, as a dead letter or to a bound queue.
    """
    found: dict[frozenset[str], list[str]] = {}
    done: set[str] = set()
    for start in names:
        paths = [[start]]
        while paths:
            path = paths.pop()
            if path[-1] in path[:-1]:
                cycle = path[path.index(path[-1]) :]
                found.setdefault(frozenset(cycle), cycle)
            elif len(path) > STEPS_MAX:
                found.setdefault(frozenset(("...",)), [*path[:4], "..."])  # one of them will do
                break
            elif path[-1] not in done:
                paths += [[*path, each] for each in next_names(path[-1])]
                if len(paths) > PATHS_MAX:
                    break
        done.add(start)
    return list(found.values())


@lru_cache(maxsize=256)
def _names(template: str) -> re.Pattern[str]:
    parts = _PLACEHOLDER.split(template)[::2]
    return re.compile("(?s:.+)".join(map(re.escape, parts)))
