"""The queues that got a destination's messages by the rules of an earlier run.

Of each rule the names it matches, its ``kind`` and its ``fan_out`` are stored, as plain values. Rules behind the last
one with either key are left out: without them every name has its usual kind.

This module knows patterns and templates. It does not know cursors, logs or the present rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from radiator.config import Config
from radiator.config.settings import Kind
from radiator.errors import ProtocolError
from radiator.routing.pattern import parse_list
from radiator.routing.rule_index import Matcher, RuleIndex
from radiator.routing.rules import kind_of
from radiator.routing.template import expand

Entries = dict[str, dict[str, Any]]


class PreviousUse(NamedTuple):
    """The earlier kind of a destination, and the queues that got its messages too."""

    kind: Kind
    children: tuple[str, ...]


def entries_of(config: Config) -> Entries:
    """Return what is stored of these rules, by their number."""
    last = max((index for index, rule in enumerate(config.rules) if rule.fan_out or rule.kind), default=-1)
    return {
        str(index): {
            "match": rule.match,
            "match_regex": rule.match_regex,
            "kind": rule.kind,
            "fan_out": list(rule.fan_out),
        }
        for index, rule in enumerate(config.rules[: last + 1])
    }


class PreviousRules:
    """The stored rules. Raises ValueError if they are malformed."""

    __slots__ = ("_index", "_rules")

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self._rules: list[tuple[Kind | None, list[str]]] = []
        matchers: list[Matcher] = []
        try:
            for _, entry in sorted(entries.items(), key=lambda item: int(item[0])):
                match, kind = entry["match"], entry["kind"]
                matchers.append(parse_list(match) if match is not None else re.compile(entry["match_regex"]))
                if kind not in ("queue", "topic", None):
                    raise ValueError(f"kind {kind!r}")
                self._rules.append((kind, [str(each) for each in entry["fan_out"]]))
        except (KeyError, TypeError, re.error, ProtocolError) as error:
            raise ValueError(repr(error)) from None
        self._index = RuleIndex(matchers)

    def of(self, name: str) -> PreviousUse:
        """Return the earlier use of a name."""
        found = self._index.first(name)
        if found is None:
            return PreviousUse(kind_of(name), ())
        rule, captures = found
        kind, children = self._rules[rule]
        return PreviousUse(kind or kind_of(name), tuple(expand(child, name, captures) for child in children))
