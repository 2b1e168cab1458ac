"""Compute when each record is due, from the records' own times. It reads no clock.

``original`` keeps the distances of the records' times, ``10x`` makes them a tenth, ``100/s`` makes them equal, ``max``
makes them zero. A record that is older than one before it is due with that one: due times never fall. One without a
time is due with the one before it.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from radiator.clock import NS_PER_SECOND

EXPECTED = "expected original, max, a factor such as 10x or 0.5x, or a rate such as 100/s"
_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*x")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*s")


class Speed(NamedTuple):
    """A factor, a rate, or neither: as fast as possible."""

    factor: float | None = None
    per_second: float | None = None


def parse_speed(text: str) -> Speed:
    """Parse a speed. Raises ValueError."""
    word = text.strip().lower()
    if word == "max":
        return Speed()
    if word == "original":
        return Speed(factor=1.0)
    factor, rate = _FACTOR.fullmatch(word), _RATE.fullmatch(word)
    found = Speed(float(factor[1]) if factor else None, float(rate[1]) if rate else None)
    number = found.factor or found.per_second
    if not number or not math.isfinite(number):
        raise ValueError(f"{EXPECTED}, got {text!r}")
    return found


class Schedule:
    """Call ``due_ns`` once per record, in order."""

    def __init__(self, speed: Speed) -> None:
        self._speed = speed
        self._count = 0
        self._first_ns: int | None = None
        self._due_ns = 0

    def due_ns(self, record_ns: int | None) -> int:
        """Return when the record is due, in nanoseconds after the start."""
        factor, per_second = self._speed
        if per_second is not None:
            self._due_ns = int(self._count * NS_PER_SECOND / per_second)
            self._count += 1
        elif factor is not None and record_ns is not None:
            if self._first_ns is None:
                self._first_ns = record_ns
            self._due_ns = max(self._due_ns, int((record_ns - self._first_ns) / factor))
        return self._due_ns
