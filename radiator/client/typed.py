"""Headers that keep their types: numbers, booleans and None, in one header ``json-headers`` beside the text.

A STOMP header is text, and so every client reads these: ``delay:3``, ``late:true``. Those who know ``json-headers`` get
back what was sent. Where a header's text is not what that says any more, somebody has changed it on the way, and the
text counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None

HEADER = "json-headers"


def typed(values: Mapping[str, Value]) -> dict[str, str]:
    """Headers for ``send`` that keep the types of ``values``. Raises TypeError for a value of another kind, ValueError
    for a number that JSON does not have."""
    headers = {name: _text(name, value) for name, value in values.items()}
    kept = {name: value for name, value in values.items() if not isinstance(value, str)}
    if kept:
        headers[HEADER] = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
    return headers


def untyped(headers: Mapping[str, str]) -> dict[str, Value]:
    """The headers of a message, with the types that they were sent with."""
    values: dict[str, Value] = {name: text for name, text in headers.items() if name != HEADER}
    try:
        kept = json.loads(headers.get(HEADER, "{}"))
    except ValueError:
        return values
    if isinstance(kept, dict):
        for name, value in kept.items():
            if isinstance(value, int | float | bool | None) and values.get(name) == _text(name, value):
                values[name] = value
    return values


def _text(name: str, value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"header {name}: expected a number that JSON has, got {value!r}")
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"header {name}: expected text, a number, a boolean or None, got {value!r}")
