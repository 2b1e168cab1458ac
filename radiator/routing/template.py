"""Templates: text with ``{name}``, the whole destination, and ``{1}``, ``{2}``..., what wildcards or groups matched.

This module knows text. It does not know what the names are for.
"""

from __future__ import annotations

import re
from typing import Final

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}|[{}]")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")


def fault(template: str, capture_count: int) -> str | None:
    """Return what is wrong with the placeholders of a template, for an operator, or None."""
    for match in PLACEHOLDER.finditer(template):
        key = match[1]
        if key != "name" and not (key and _NUMBER.fullmatch(key) and int(key) <= capture_count):
            known = "".join(f", {{{number}}}" for number in range(1, capture_count + 1))
            return f"expected {{name}}{known} between braces, got {match[0]!r}"
    return None


def expand(template: str, name: str, captures: tuple[str, ...]) -> str:
    """Return the text for this name; the template was checked before."""
    if template == "{name}":
        return name
    return PLACEHOLDER.sub(lambda m: name if m[1] == "name" else captures[int(m[1]) - 1], template)


def groups_of(expression: re.Pattern[str], name: str) -> tuple[str, ...] | None:
    """Return what the groups of a ``match_regex`` match in this name; None if it does not match."""
    match = expression.fullmatch(name)
    return None if match is None else tuple(group or "" for group in match.groups())
