"""Names in pictures: of a length that leaves room for the picture, cut in the middle, and told apart all the same.

    cut(["/topic/a.very.long.name.of.berlin", "/topic/b"], 20)     # ["/topic/a…e.of.berlin", "/topic/b"]

Whoever wants to know the name in full finds it in the table, in the JSON and in the title of the picture on the page.

Knows: text. Invariants: as many labels as values, and as many different ones; none is wider than ``length``, but for a
number behind those that cannot be told apart otherwise.
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
_HEADS = (0.5, 0.25, 0.75, 0.0)  # how much of what is left stands in front of the cut: as many places are tried


def cut(values: Sequence[Any], length: int) -> list[str]:
    texts = [_text(value) for value in values]
    different = len({*map(str, values)})
    for share in _HEADS:
        labels = [shortened(text, length, share) for text in texts]
        if len({*labels}) == different:
            return labels
    return _numbered([shortened(text, length) for text in texts], list(map(str, values)))


def in_full(values: Sequence[Any], length: int) -> tuple[str, ...]:
    """Those that ``cut`` does not show as they are."""
    texts = dict.fromkeys(_text(value) for value in values)
    return tuple(text for text in texts if _width(text) > length)


def shortened(text: str, length: int, head: float = 0.5) -> str:
    """At most as wide as ``length`` letters; ``head`` of them from the front."""
    if _width(text) <= length:
        return text
    before = _within(text, int((length - 1) * head))
    after = _within(text[::-1], length - 1 - _width(before))[::-1]
    return f"{before}{ELLIPSIS}{after}"


def _text(value: Any) -> str:
    text = units.moment(value) if isinstance(value, datetime) else units.text(value)
    return "".join(each if each.isprintable() else " " for each in text) or EMPTY


def _numbered(labels: list[str], values: list[str]) -> list[str]:
    """Labels that are equal, and values that are not: these are counted."""
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
