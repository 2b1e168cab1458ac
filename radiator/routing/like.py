"""LIKE: ``%`` is any number of characters, ``_`` is one.

A pattern is split at its ``%`` into parts. The first must be at the beginning, the last at the end, each other one is
searched from where the one before ended; the leftmost place is always good enough, so nothing is tried twice. A part
with ``_`` is searched with a bit for each of its characters that may come next.

Invariant: the time is proportional to the length of the value, for each part; there are no regular expressions.
"""

from __future__ import annotations

from collections.abc import Callable

Part = tuple[str | None, ...]  # characters; None is any


def pattern_parts(pattern: str, escape: str = "") -> list[Part] | None:
    """Return the parts between the ``%``; None if the escape character precedes another character."""
    parts: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if not character or character not in ("%", "_", escape):
                return None
            parts[-1].append(character)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
    return [tuple(part) for part in parts]


def like(pattern: str, escape: str = "") -> Callable[[str], bool]:
    """Return a function that says whether a text matches the pattern."""
    parts = pattern_parts(pattern, escape)
    assert parts is not None
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return lambda text: len(text) == len(first) and _matches_at(first, text, 0)
    finds = [_finder(part) for part in parts[1:-1] if part]
    least = sum(map(len, parts))

    def matches(text: str) -> bool:
        end = len(text) - len(last)
        if len(text) < least or not _matches_at(first, text, 0) or not _matches_at(last, text, end):
            return False
        at = len(first)
        for find in finds:
            at = find(text, at, end)
            if at < 0:
                return False
        return True

    return matches


def _matches_at(part: Part, text: str, at: int) -> bool:
    if None not in part:
        return text.startswith("".join(part), at)  # type: ignore[arg-type]
    return all(wanted is None or wanted == text[at + index] for index, wanted in enumerate(part))


def _finder(part: Part) -> Callable[[str, int, int], int]:
    """Return a function that finds the part in ``text[at:end]`` and returns the place behind it, or -1."""
    if None not in part:
        word = "".join(part)  # type: ignore[arg-type]

        def find(text: str, at: int, end: int) -> int:
            found = text.find(word, at, end)
            return found if found < 0 else found + len(word)

        return find
    if not any(part):
        return lambda text, at, end: at + len(part) if at + len(part) <= end else -1
    anything = sum(1 << index for index, wanted in enumerate(part) if wanted is None)
    masks: dict[str, int] = {}
    for index, wanted in enumerate(part):
        if wanted is not None:
            masks[wanted] = masks.get(wanted, anything) | 1 << index
    done = 1 << (len(part) - 1)

    def search(text: str, at: int, end: int) -> int:
        begun = 0  # bit i: the first i + 1 characters of the part end here
        for index in range(at, end):
            begun = (begun << 1 | 1) & masks.get(text[index], anything)
            if begun & done:
                return index + 1
        return -1

    return search
