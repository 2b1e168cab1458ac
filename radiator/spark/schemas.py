"""Which JSON Schema belongs to a destination: by the versions that the broker keeps beside its logs.

``<data_dir>/schemas/<the rule's match, percent-encoded>@<n>.json`` is version n of a rule's schema. The order of the
rules is not kept there, nor whether a rule still stands. So a schema is taken without being named only where there is
no choice: its rule matches everything that is asked for, and no other rule with another schema matches any of it.

Knows: those files, patterns. Must not know: rules, configuration, Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from radiator.columns.files import Place
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.pattern import ANY, ONE, ONE_OR_MORE, Pattern, parse_list, segments
from radiator.storage import layout
from radiator.storage.files import read_file

_REGEX = "regex "  # what stands before the expression of a rule with match_regex
_OTHER = "\0"  # a segment that stands in no pattern


class Kept(NamedTuple):
    match: str
    version: int
    path: str


def schema_of(place: Place, destination: str) -> tuple[Kept, Any] | None:
    """The newest version of the one that describes ``destination`` (a name, a pattern, a comma list), and where it
    lies; None if there is none. Raises ConfigError if there are several, or it is damaged."""
    asked = list(parse_list(destination))
    near = [kept for kept in newest(place) if any(overlaps(kept.match, each) for each in asked)]
    whole = [kept for kept in near if all(covers(kept.match, each) for each in asked)]
    if not whole:
        return None
    schemas = [read_schema(place, kept.path) for kept in near]
    if any(schema != schemas[0] for schema in schemas):
        raise ConfigError(
            f"several rules have had a schema for {destination}: "
            f"{'; '.join(f'{kept.match} in {kept.path}' for kept in near)}. "
            "Say which one with schema=<its path>, or typed=False for no columns of the bodies"
        )
    return whole[0], schemas[0]


def read_schema(place: Place, path: str) -> Any:
    """Raises ConfigError."""
    try:
        data = read_file(place.fs, path)
        if data is None:
            raise ConfigError(f"{path}: expected a JSON Schema, and there is no such file")
        return json.loads(data)
    except (ValueError, RecursionError, OSError) as error:
        raise ConfigError(f"{path}: expected a JSON Schema: {error}") from None


def newest(place: Place) -> list[Kept]:
    """The last version of each rule's schema, by what the rule matches."""
    fs, root = place
    directory = layout.schemas_path(root)
    found: dict[str, Kept] = {}
    for name in fs.listdir(directory):
        stem, _, number = name.removesuffix(".json").rpartition("@")
        if not name.endswith(".json") or not (number.isascii() and number.isdigit()):
            continue  # somebody's notes
        try:
            kept = Kept(layout.decode_name(stem), int(number), f"{directory}/{name}")
        except ValueError:
            continue
        if kept.match not in found or found[kept.match].version < kept.version:
            found[kept.match] = kept
    return sorted(found.values())


def covers(match: str, asked: Pattern) -> bool:
    """Whether a rule for ``match`` is one for every name that ``asked`` matches."""
    if match.startswith(_REGEX):
        return asked.is_literal and _fits(match, asked.text)
    parts = _patterns(match)
    if asked.is_literal:
        return any(each.matches(asked.text) for each in parts)
    return not _some_name(asked, parts, lambda reached: not any(reached))


def overlaps(match: str, asked: Pattern) -> bool:
    """Whether both match some name. Of an expression and a pattern this cannot be told: no."""
    if match.startswith(_REGEX):
        return asked.is_literal and _fits(match, asked.text)
    parts = _patterns(match)
    if asked.is_literal:
        return any(each.matches(asked.text) for each in parts)
    if any(asked.matches(each.text) for each in parts if each.is_literal):
        return True
    return _some_name(asked, parts, any)


def _fits(match: str, name: str) -> bool:
    try:
        return re.fullmatch(match.removeprefix(_REGEX), name) is not None
    except re.error:
        return False


def _patterns(match: str) -> list[Pattern]:
    try:
        return list(parse_list(match))
    except ProtocolError:
        return []  # a rule of another version


# --- two patterns side by side: as automata over the segments that stand in either, and one other -------------------


def _some_name(asked: Pattern, others: Iterable[Pattern], wanted: Callable[[list[bool]], bool]) -> bool:
    """Whether some name that ``asked`` matches is ``wanted``, which is told which of the others match it."""
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
    """With the places that are reached over a ``#`` without a segment."""
    reached = set(places)
    for place in sorted(places):
        while place < len(pattern) and pattern[place] == ANY:
            place += 1
            reached.add(place)
    return frozenset(reached)
