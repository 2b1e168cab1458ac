"""Find the JSON Schema of a destination, in the versions that the broker stores beside its logs.

``<data_dir>/schemas/<the match of the rule, percent-encoded>@<n>.json`` is version n of the schema of a rule. The order
of the rules is not stored, nor whether a rule still exists. So a schema is used automatically only if there is no
choice: its rule matches everything that the user reads, and no other rule with another schema matches any of it.

Uses these files, and patterns. Must not import rules, configuration or Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from radiator.columns.files import Place
from radiator.columns.typed import read_schema
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.pattern import ANY, ONE, ONE_OR_MORE, Pattern, parse_list, segments
from radiator.storage import layout

_REGEX = "regex "  # the prefix of the expression of a rule with match_regex
_OTHER = "\0"  # a segment that no pattern contains


class StoredSchema(NamedTuple):
    """A stored version of a schema.

    Attributes:
        match: The match of the rule.
        version: The number of the version.
        path: The path of the file.
    """

    match: str
    version: int
    path: str


def schema_of(place: Place, destination: str) -> tuple[StoredSchema, Any] | None:
    """Return the newest version of the schema for a destination.

    Args:
        place: The store.
        destination: Names and patterns, separated by commas.

    Returns:
        The stored version and its JSON document. None if no schema matches all of it.

    Raises:
        ConfigError: Several different schemas match, or a schema cannot be read.
    """
    asked = list(parse_list(destination))
    near = [stored for stored in newest(place) if any(overlaps(stored.match, each) for each in asked)]
    whole = [stored for stored in near if all(covers(stored.match, each) for each in asked)]
    if not whole:
        return None
    schemas = [read_schema(place, stored.path) for stored in near]
    if any(schema != schemas[0] for schema in schemas):
        raise ConfigError(
            f"several rules have a schema for {destination}: "
            f"{'; '.join(f'{stored.match} in {stored.path}' for stored in near)}. "
            "Choose one with schema=<its path>, or use typed=False for no columns of the bodies"
        )
    return whole[0], schemas[0]


def newest(place: Place) -> list[StoredSchema]:
    """Return the newest version of the schema of each rule, sorted by match.

    Args:
        place: The store.

    Raises:
        OSError: The directory cannot be read.
    """
    fs, root = place
    directory = layout.schemas_path(root)
    found: dict[str, StoredSchema] = {}
    for name in fs.listdir(directory):
        stem, _, number = name.removesuffix(".json").rpartition("@")
        if not name.endswith(".json") or not (number.isascii() and number.isdigit()):
            continue  # not a file of the broker
        try:
            stored = StoredSchema(layout.decode_name(stem), int(number), f"{directory}/{name}")
        except ValueError:
            continue
        if stored.match not in found or found[stored.match].version < stored.version:
            found[stored.match] = stored
    return sorted(found.values())


def covers(match: str, asked: Pattern) -> bool:
    """Return True if a rule matches every name that a pattern matches.

    Args:
        match: The match of the rule.
        asked: The pattern.
    """
    if asked.is_literal or match.startswith(_REGEX):
        return asked.is_literal and _takes(match, asked.text)
    return not _some_name(asked, _patterns(match), lambda reached: not any(reached))


def overlaps(match: str, asked: Pattern) -> bool:
    """Return True if a rule and a pattern match a common name. A regular expression and a pattern count as disjoint.

    Args:
        match: The match of the rule.
        asked: The pattern.
    """
    if asked.is_literal or match.startswith(_REGEX):
        return asked.is_literal and _takes(match, asked.text)
    parts = _patterns(match)
    if any(asked.matches(each.text) for each in parts if each.is_literal):
        return True
    return _some_name(asked, parts, any)


def _takes(match: str, name: str) -> bool:
    if not match.startswith(_REGEX):
        return any(each.matches(name) for each in _patterns(match))
    try:
        return re.fullmatch(match.removeprefix(_REGEX), name) is not None
    except re.error:
        return False


def _patterns(match: str) -> list[Pattern]:
    try:
        return list(parse_list(match))
    except ProtocolError:
        return []  # a rule of another version


# --- patterns as automata over the segments that they contain, and one other segment ---------------------------------


def _some_name(asked: Pattern, others: Iterable[Pattern], wanted: Callable[[list[bool]], bool]) -> bool:
    """Return True if a name exists that ``asked`` matches and for which ``wanted`` is true.

    ``wanted`` receives a list that says which of the other patterns match the name.
    """
    patterns = [segments(asked.text), *(segments(each.text) for each in others if not each.is_literal)]
    alphabet = {part for pattern in patterns for part in pattern} - {ONE, ONE_OR_MORE, ANY} | {_OTHER}
    start = tuple(_settled(pattern, frozenset((0,))) for pattern in patterns)
    seen, todo = {start}, [start]
    while todo:
        state = todo.pop()
        if not state[0]:
            continue
        ends = [len(pattern) in places for pattern, places in zip(patterns, state, strict=True)]
        if ends[0] and wanted(ends[1:]):
            return True
        for segment in alphabet:
            following = tuple(_step(pattern, places, segment) for pattern, places in zip(patterns, state, strict=True))
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return False


def _step(pattern: list[str], places: frozenset[int], segment: str) -> frozenset[int]:
    reached = set()
    for place in places:
        part = pattern[place] if place < len(pattern) else None
        if part in (ANY, ONE_OR_MORE):
            reached.add(place)
        if part in (segment, ONE, ONE_OR_MORE):
            reached.add(place + 1)
    return _settled(pattern, frozenset(reached))


def _settled(pattern: list[str], places: frozenset[int]) -> frozenset[int]:
    """Return the positions, extended by those that a ``#`` without a segment reaches."""
    reached = set(places)
    for place in sorted(places):
        while place < len(pattern) and pattern[place] == ANY:
            place += 1
            reached.add(place)
    return frozenset(reached)
