"""Find matches among many: patterns for a new name, names for a new pattern.

Both are trees over segments (``pattern.segments``), so a look-up costs as much as it finds, plus the wildcards on the
way. ``pattern.Pattern.matches`` defines a match; this finds the same, faster.

Invariants: removing leaves no node behind; the order of results depends only on the order of additions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from radiator.routing.pattern import ANY, ONE, ONE_OR_MORE, WILDCARDS, Pattern, segments
from radiator.routing.regex import Regex

Value = TypeVar("Value", bound=Hashable)


class _Patterns(Generic[Value]):
    """A node: the patterns that continue from here, by their next segment, and those that end here.

    A pattern behind a ``#`` stays reachable for any number of segments.
    """

    __slots__ = ("next", "values")

    def __init__(self) -> None:
        self.next: dict[str, _Patterns[Value]] = {}
        self.values: dict[Value, None] = {}


class PatternIndex(Generic[Value]):
    """Values by their patterns: ``find`` returns those with a pattern that matches a name."""

    __slots__ = ("_exact", "_added", "_numbers", "_root", "regexes")

    def __init__(self) -> None:
        self._root: _Patterns[Value] = _Patterns()
        self._exact: dict[str, dict[Value, None]] = {}
        self._numbers: dict[Value, int] = {}
        self._added = 0
        self.regexes: dict[Value, Regex] = {}  # not indexed: each is matched against each name

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, value: Value, patterns: Iterable[Pattern]) -> None:
        """Add a value, which is found by any of these patterns."""
        self._added += 1
        self._numbers[value] = self._added
        for pattern in patterns:
            if isinstance(pattern, Regex):
                self.regexes[value] = pattern
                continue
            if pattern.is_literal:
                self._exact.setdefault(pattern.text, {})[value] = None
                continue
            node = self._root
            for part in segments(pattern.text):
                node = node.next.setdefault(part, _Patterns())
            node.values[value] = None

    def remove(self, value: Value, patterns: Iterable[Pattern]) -> None:
        """Remove a value, with the same patterns as in ``add``. An unknown value is no error."""
        if self._numbers.pop(value, None) is None:
            return
        self.regexes.pop(value, None)
        wild: dict[tuple[str, ...], None] = {}  # each path once: a.* and a/* are the same
        for pattern in patterns:
            if isinstance(pattern, Regex):
                continue
            if pattern.is_literal:
                exact = self._exact.get(pattern.text, {})
                exact.pop(value, None)
                if not exact:
                    self._exact.pop(pattern.text, None)
            else:
                wild[tuple(segments(pattern.text))] = None
        for parts in wild:
            path = [self._root]
            for part in parts:
                path.append(path[-1].next[part])
            path[-1].values.pop(value, None)
            for part in reversed(parts):
                node = path.pop()
                if node.next or node.values:
                    break
                del path[-1].next[part]

    def find(self, name: str) -> list[Value]:
        """Return each matching value once, in the order in which they were added."""
        found: dict[Value, None] = dict(self._exact.get(name, ()))
        if self._root.next:
            self._walk(segments(name), found)
        if self.regexes:
            found.update((value, None) for value, regex in self.regexes.items() if regex.matches(name))
        return sorted(found, key=self._numbers.__getitem__)

    def count_steps(self, name: str) -> tuple[bool, int]:
        """Return whether any pattern matches, and how many nodes were visited."""
        found: dict[Value, None] = {}
        steps = self._walk(segments(name), found)
        return bool(found), steps

    def _walk(self, names: list[str], found: dict[Value, None]) -> int:
        steps = 0
        here: dict[_Patterns[Value], bool] = {}  # where the walk may be; True: behind a #, and may stay
        _enter(here, self._root, False)
        for name in names:
            steps += len(here)
            after: dict[_Patterns[Value], bool] = {}
            for node, stays in here.items():
                if stays:
                    _enter(after, node, True)
                rest = node.next.get(ONE_OR_MORE)
                if rest is not None:
                    found.update(rest.values)
                for part in (name, ONE):
                    child = node.next.get(part)
                    if child is not None and (part == ONE or name not in (ONE_OR_MORE, ANY)):
                        _enter(after, child, False)
            here = after
        for node in here:
            found.update(node.values)
        return steps + len(here)


def _enter(states: dict[_Patterns[Value], bool], node: _Patterns[Value], stays: bool) -> None:
    states[node] = states.get(node, False) or stays
    behind = node.next.get(ANY)
    if behind is not None:
        _enter(states, behind, True)


class _Names:
    __slots__ = ("names", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Names] = {}
        self.names: dict[str, None] = {}  # several: ``a.b`` and ``a/b`` have the same segments


class NameIndex:
    """Names: ``find`` returns those that a pattern matches."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Names()

    def add(self, name: str) -> None:
        """Add a name."""
        node = self._root
        for part in segments(name):
            child = node.next.get(part)
            if child is None:
                child = node.next[part] = _Names()
            node = child
        node.names[name] = None

    def remove(self, name: str) -> None:
        """Remove a name. An unknown name is no error."""
        path = [self._root]
        parts = segments(name)
        for part in parts:
            child = path[-1].next.get(part)
            if child is None:
                return
            path.append(child)
        path[-1].names.pop(name, None)
        for part in reversed(parts):
            node = path.pop()
            if node.next or node.names:
                break
            del path[-1].next[part]

    def find(self, pattern: Pattern, nodes_max: int) -> tuple[list[str] | None, int]:
        """Return the names that match.

        Args:
            pattern: The pattern.
            nodes_max: About how many nodes may be visited.

        Returns:
            The names, each once (None if more nodes would be needed), and how many nodes were visited.
        """
        here: dict[_Names, None] = {self._root: None}
        visited = 0
        before = ""
        for part in segments(pattern.text):
            after: dict[_Names, None] = {}
            if part == before == ANY:
                continue
            before = part
            for node in here:
                if len(after) + (len(node.next) if part in WILDCARDS else 0) > nodes_max - visited:
                    return None, visited + len(after)
                if part == ONE:
                    after.update(dict.fromkeys(node.next.values()))
                elif part == ANY:
                    _below([node], after, nodes_max - visited)
                elif part == ONE_OR_MORE:
                    _below(list(node.next.values()), after, nodes_max - visited)
                elif (child := node.next.get(part)) is not None:
                    after[child] = None
            here = after
            visited += len(here)
            if visited > nodes_max:
                return None, visited
        return [name for node in here for name in node.names], visited


def _below(tops: list[_Names], found: dict[_Names, None], nodes_max: int) -> None:
    """Add these nodes and all below them to ``found``, until it has more than ``nodes_max``.

    It uses no recursion, as names may be deep.
    """
    waiting = tops[::-1]
    while waiting and len(found) <= nodes_max:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting.extend(reversed(node.next.values()))
