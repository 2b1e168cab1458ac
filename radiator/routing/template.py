"""Templates: text with ``{name}``, the whole destination, and ``{1}``, ``{2}``..., what wildcards or groups matched.

In some of them ``{date}`` is the date of a message, which is known later: ``expand`` leaves ``DATE`` for ``dated``.

This module knows text. It does not know what the names are for.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from radiator.clock import NS_PER_SECOND, WallNs

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}|[{}]")
DATE: Final = "\0"  # no destination has it
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")


def fault(template: str, capture_count: int, of_message: bool = False) -> str | None:
    """Return what is wrong with the placeholders of a template, for an operator, or None.

    Args:
        template: The template.
        capture_count: How many wildcards or groups there are.
        of_message: The template is expanded for each message, so it may have ``{date}``.
    """
    words = ("name", "date") if of_message else ("name",)
    for match in PLACEHOLDER.finditer(template):
        key = match[1]
        if key not in words and not (key and _NUMBER.fullmatch(key) and int(key) <= capture_count):
            known = ", ".join(f"{{{each}}}" for each in (*words, *range(1, capture_count + 1)))
            return f"expected {known} between braces, got {match[0]!r}"
    return None


def expand(template: str, name: str, captures: tuple[str, ...]) -> str:
    """Return the text for this name; the template was checked before. ``{date}`` becomes ``DATE``."""
    if template == "{name}":
        return name
    words = {"name": name, "date": DATE}
    return PLACEHOLDER.sub(lambda m: words[m[1]] if m[1] in words else captures[int(m[1]) - 1], template)


def dated(text: str, at_ns: WallNs) -> str:
    """Return an expanded text with the date in UTC, such as ``2026-11-28``, in the places of ``{date}``."""
    return (
        text
        if DATE not in text
        else text.replace(DATE, f"{datetime.fromtimestamp(at_ns // NS_PER_SECOND, UTC):%Y-%m-%d}")
    )


def groups_of(expression: re.Pattern[str], name: str) -> tuple[str, ...] | None:
    """Return what the groups of a ``match_regex`` match in this name; None if it does not match."""
    match = expression.fullmatch(name)
    return None if match is None else tuple(group or "" for group in match.groups())
