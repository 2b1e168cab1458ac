"""SUBSCRIBE with ``match:regex``: whether it is allowed, and which destinations there are for it.

No index finds what an expression matches: it is tried on every name. With a hundred thousand names that takes a while,
so a SUBSCRIBE looks at some of them in each visit, and others have their turn in between; the frame comes again
(``Unfinished``) until it has seen them all. Destinations that are born later are ``births``' affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator import limits
from radiator.errors import ProtocolError
from radiator.routing.regex import RegexSet
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from radiator.broker.broker import Broker
    from radiator.broker.session import Session

NAMES_A_VISIT = 200  # half a millisecond; fifty for an expression that is made to be slow


class Unfinished(Exception):
    """The frame is to come again: there was more to look at than one visit may take."""


class Search:
    """How far one SUBSCRIBE has come."""

    __slots__ = ("at", "found", "names", "patterns")

    def __init__(self, patterns: RegexSet, names: list[str]) -> None:
        self.patterns = patterns
        self.names = names
        self.at = 0
        self.found: list[str] = []


def asked_for(broker: Broker, session: Session, headers: Mapping[str, str], text: str) -> RegexSet | None:
    """The expression; None if the destination is names and patterns as ever. Raises ProtocolError."""
    match = headers.get("match")
    if match is None:
        return None
    if match != "regex":
        raise ProtocolError(
            "bad-header",
            f"header match: expected regex, or no such header, got {match[:100]!r}",
            "Without it a destination is a name, or a pattern with *, > and #.",
        )
    if not broker.config.regex_subscriptions:
        raise ProtocolError(
            "denied",
            "regular expressions on SUBSCRIBE are switched off",
            "regex_subscriptions: true in the YAML file allows them; *, > and # need no key.",
        )
    if len(broker.births.tried) >= limits.REGEX_SUBSCRIPTIONS_MAX:
        raise ProtocolError(
            "too-many",
            "too many subscriptions with regular expressions",
            f"There may be {limits.REGEX_SUBSCRIPTIONS_MAX} in the whole broker (REGEX_SUBSCRIPTIONS_MAX).",
        )
    if session.search is not None and session.search.patterns.text == text:
        return session.search.patterns
    return RegexSet(text)


def names_for(broker: Broker, session: Session, patterns: RegexSet) -> list[str]:
    """The names that match, but for temporary ones. Raises Unfinished."""
    search = session.search
    if search is None or search.patterns is not patterns:
        search = session.search = Search(patterns, list(broker.destinations))
    stop = search.at + NAMES_A_VISIT
    matches = patterns.matches
    search.found += [name for name in search.names[search.at : stop] if matches(name)]
    search.at = stop
    if stop < len(search.names):
        raise Unfinished
    session.search = None
    known = set(search.names)
    late = [name for name in broker.destinations if name not in known and matches(name)]
    return [name for name in search.found + late if name in broker.destinations and not name.startswith(TEMPORARY)]
