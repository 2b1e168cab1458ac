"""Shorten names in charts in the middle, so that different names stay different.

    cut(["/topic/a.very.long.name.of.berlin", "/topic/b"], 20)     # ["/topic/a…e.of.berlin", "/topic/b"]

The full name is in the table, in the JSON, and in the title of the chart on the page.

Invariants: there are as many labels as values, and as many different ones. No label is wider than ``length``, except
for a number after labels that cannot be distinguished otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from unicodedata import east_asian_width

from radiator.spark import units

ELLIPSIS = "…"
EMPTY = "(empty)"
_HEADS = (0.5, 0.25, 0.75, 0.0)  # the shares of letters before the cut that are tried


def cut(values: Sequence[Any], length: int) -> list[str]:
    """Return the values as labels of at most ``length`` letters.

    Args:
        values: The values.
        length: The maximum width; wide East Asian letters count twice.
    """
    texts = [_text(value) for value in values]
    different = len({*map(str, values)})
    for share in _HEADS:
        labels = [shortened(text, length, share) for text in texts]
        if len({*labels}) == different:
            return labels
    for start in range(1, max(map(_width, texts), default=0)):  # names that differ only far from both ends
        labels = [text if _width(text) <= length else _inner(text, start, length) for text in texts]
        if len({*labels}) == different:
            return labels
    return _numbered([shortened(text, length) for text in texts], list(map(str, values)))


def in_full(values: Sequence[Any], length: int) -> tuple[str, ...]:
    """Return the names that ``cut`` would shorten.

    Args:
        values: The values.
        length: The maximum width.
    """
    texts = dict.fromkeys(_text(value) for value in values)
    return tuple(text for text in texts if _width(text) > length)


def shortened(text: str, length: int, head: float = 0.5) -> str:
    """Return a text of at most ``length`` letters, shortened in the middle.

    Args:
        text: The text.
        length: The maximum width.
        head: The share of the letters to take from the front.

    Example:
        >>> shortened("/topic/orders", 9)
        '/top…ders'
    """
    if _width(text) <= length:
        return text
    before = _within(text, int((length - 1) * head))
    after = _within(text[::-1], length - 1 - _width(before))[::-1]
    return f"{before}{ELLIPSIS}{after}"


def _inner(text: str, start: int, length: int) -> str:
    part = _within(text[start:], length - 2)
    return f"{ELLIPSIS}{part}{ELLIPSIS * (start + len(part) < len(text))}"


def _text(value: Any) -> str:
    text = units.moment(value) if isinstance(value, datetime) else units.text(value)
    return "".join(each if each.isprintable() else " " for each in text) or EMPTY


def _numbered(labels: list[str], values: list[str]) -> list[str]:
    """Return the labels, with a number added to equal labels of different values."""
    found: dict[str, str] = {}
    used: Counter[str] = Counter()
    for label, value in zip(labels, values, strict=True):
        if value not in found:
            used[label] += 1
            found[value] = label if used[label] == 1 else f"{label} ({used[label]})"
    return [found[value] for value in values]


def _width(text: str) -> int:
    return sum(map(_wide, text))


def _wide(letter: str) -> int:
    return 2 if east_asian_width(letter) in "WF" else 1


def _within(text: str, length: int) -> str:
    for place, letter in enumerate(text):
        length -= _wide(letter)
        if length < 0:
            return text[:place]
    return text
