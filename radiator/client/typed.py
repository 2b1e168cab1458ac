"""Store the types of header values (numbers, booleans, None) beside the text of the headers.

A STOMP header is text, so every client can read ``delay:3`` and ``late:true``. The header ``json-headers`` repeats
the values that are not text as JSON. If a header was changed on the way, its text differs from ``json-headers``, and
the text counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None

HEADER = "json-headers"


def typed(values: Mapping[str, Value]) -> dict[str, str]:
    """Return headers for ``send`` that keep the types of their values.

    Args:
        values: Header names and values.

    Returns:
        The values as text, and a ``json-headers`` header if a value is not text.

    Raises:
        TypeError: A value is not text, a number, a boolean or None.
        ValueError: A number is NaN or infinite, which JSON does not have.

    Example:
        >>> typed({"delay": 3, "late": True})
        {'delay': '3', 'late': 'true', 'json-headers': '{"delay":3,"late":true}'}
    """
    headers = {name: _text(name, value) for name, value in values.items()}
    not_text = {name: value for name, value in values.items() if not isinstance(value, str)}
    if not_text:
        headers[HEADER] = json.dumps(not_text, ensure_ascii=False, separators=(",", ":"))
    return headers


def untyped(headers: Mapping[str, str]) -> dict[str, Value]:
    """Return the headers of a message with the types that ``typed`` stored.

    Args:
        headers: The headers of a received message.

    Returns:
        The headers without ``json-headers``. A header without a stored type, or with a changed value, is text.

    Example:
        >>> untyped({"delay": "3", "json-headers": '{"delay":3}'})
        {'delay': 3}
    """
    values: dict[str, Value] = {name: text for name, text in headers.items() if name != HEADER}
    try:
        stored = json.loads(headers.get(HEADER, "{}"))
    except ValueError:
        return values
    if isinstance(stored, dict):
        for name, value in stored.items():
            if isinstance(value, int | float | bool | None) and values.get(name) == _text(name, value):
                values[name] = value
    return values


def _text(name: str, value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"header {name}: expected a number that JSON can represent, got {value!r}")
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"header {name}: expected text, a number, a boolean or None, got {value!r}")
