"""Templates: text with ``{name}``, the whole destination, and ``{1}``, ``{2}``..., what wildcards or groups matched.

This module knows text. It does not know what the names are for.
"""

from __future__ import annotations

import re
from typing import Final

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}|[{}]")


def expand(template: str, name: str, captures: tuple[str, ...]) -> str:
    """Return the text for this name; the template was checked before."""
    if template == "{name}":
        return name
    return PLACEHOLDER.sub(lambda m: name if m[1] == "name" else captures[int(m[1]) - 1], template)


def groups_of(expression: re.Pattern[str], name: str) -> tuple[str, ...] | None:
    """Return what the groups of a ``match_regex`` match in this name; None if it does not match."""
    match = expression.fullmatch(name)
    return None if match is None else tuple(group or "" for group in match.groups())
