"""How long merged files stay: ``delta.deletedFileRetentionDuration``, a property of the table, as Delta spells it.

This module knows Delta's intervals. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

RETENTION_KEY = "delta.deletedFileRetentionDuration"
RETENTION_SECONDS = 7 * 86_400

_UNITS = {
    "week": 7 * 86_400, "day": 86_400, "hour": 3600, "minute": 60, "second": 1, "millisecond": 1e-3,
    "microsecond": 1e-6, "nanosecond": 1e-9,
}  # fmt: skip
_INTERVAL = re.compile(r"(?:interval\s+)?((?:[0-9]+\s+[a-z]+\s*)+)", re.IGNORECASE)


def interval(seconds: int) -> str:
    """Return a duration as Delta spells it."""
    unit = next(unit for unit in ("day", "hour", "minute", "second") if seconds % int(_UNITS[unit]) == 0)
    return f"interval {seconds // int(_UNITS[unit])} {unit}s"


def retention_ms(configuration: Mapping[str, str]) -> int:
    """Return how long merged files of a table stay, in milliseconds. Raises ValueError."""
    text = configuration.get(RETENTION_KEY)
    if text is None:
        return RETENTION_SECONDS * 1000
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{RETENTION_KEY} is {text!r}: expected an interval such as 'interval 7 days'")
    words = found[1].lower().split()
    total = 0.0
    for number, unit in zip(words[::2], words[1::2], strict=True):
        if unit.removesuffix("s") not in _UNITS:
            raise ValueError(f"{RETENTION_KEY} is {text!r}: {unit} is no unit")
        total += int(number) * _UNITS[unit.removesuffix("s")]
    return int(total * 1000)
