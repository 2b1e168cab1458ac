"""The grammar of ``start-position`` and ``stop-position``.

::

    position = "first" | "next" | "last" | "last:" count | "offset:" number
             | "time:" ( epoch nanoseconds | RFC 3339 ) | "ago:" duration | "end"     (end: stop-position only)
    duration = 1*( number ( "ms" | "s" | "m" | "h" | "d" ) )

``x-stream-offset`` (RabbitMQ's streams) is accepted with its own values: first, last, next, offset=N,
timestamp=SECONDS.
A start is inclusive. A stop is exclusive, except ``offset:N``, which still delivers N (``docs/protocol.md``, "Replay").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from radiator.clock import NS_PER_MS, NS_PER_SECOND, WallNs
from radiator.errors import ProtocolError

Kind = Literal["first", "next", "last", "offset", "time", "end"]

DURATION_NS = {
    "ms": NS_PER_MS,
    "s": NS_PER_SECOND,
    "m": 60 * NS_PER_SECOND,
    "h": 3_600 * NS_PER_SECOND,
    "d": 86_400 * NS_PER_SECOND,
}
_DURATION = re.compile(r"(?:\d{1,9}(?:ms|s|m|h|d))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
INT64_MAX = 2**63 - 1

GRAMMAR = "first, next, last, last:N, offset:N, time:<RFC 3339 or epoch nanoseconds>, ago:<duration such as 1h30m>"


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a log.

    Attributes:
        kind: The kind of position.
        value: An offset (``offset``), a number of messages (``last``) or nanoseconds since the epoch (``time``).
    """

    kind: Kind
    value: int = 0


FIRST = Position("first")
NEXT = Position("next")
END = Position("end")


def parse_time(text: str) -> int | None:
    """Return a time in nanoseconds since the epoch.

    Args:
        text: Decimal digits (nanoseconds since the epoch) or an RFC 3339 date-time.

    Returns:
        The time, or None if ``text`` is in neither form or outside of 64 bits (the years 1678 to 2262).
    """
    if _NUMBER.fullmatch(text):
        value = int(text)
        return value if value <= INT64_MAX else None
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    date, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    except ValueError:
        return None
    seconds = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    value = seconds * NS_PER_SECOND + int((fraction or "0").ljust(9, "0"))
    return value if abs(value) <= INT64_MAX else None


def parse_duration(text: str) -> int | None:
    """Return a duration such as ``1h30m`` in nanoseconds; None if ``text`` is not a duration."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(number) * DURATION_NS[unit] for number, unit in _DURATION_PART.findall(text))


def parse_position(header: str, text: str, now_ns: WallNs) -> Position:
    """Parse the value of a position header.

    Args:
        header: ``start-position``, ``stop-position`` or ``x-stream-offset``.
        text: The value.
        now_ns: The present wall time, for ``ago:``.

    Raises:
        ProtocolError: The value is not a position (bad-position). The error names the header and the expected forms.
    """
    position = _alias(text) if header == "x-stream-offset" else _parse(text, now_ns)
    if position is None or (position.kind == "end" and header != "stop-position"):
        expected = GRAMMAR + (", end" if header == "stop-position" else "")
        if header == "x-stream-offset":
            expected = "first, last, next, offset=N, timestamp=SECONDS"
        raise ProtocolError(
            "bad-position", f"header {header}: not a position: {text[:100]!r}", f"Expected one of: {expected}."
        )
    return position


def _parse(text: str, now_ns: WallNs) -> Position | None:
    if text in ("first", "next", "end"):
        return Position(text)  # type: ignore[arg-type]
    if text == "last":
        return Position("last", 1)
    kind, _, rest = text.partition(":")
    if kind in ("last", "offset") and _NUMBER.fullmatch(rest) and int(rest) <= INT64_MAX:
        return Position(kind, int(rest))  # type: ignore[arg-type]
    if kind == "time" and (time_ns := parse_time(rest)) is not None:
        return Position("time", time_ns)
    if kind == "ago" and (duration_ns := parse_duration(rest)) is not None:
        return Position("time", max(0, now_ns - duration_ns))
    return None


def _alias(text: str) -> Position | None:
    if text in ("first", "next"):
        return Position(text)  # type: ignore[arg-type]
    if text == "last":
        return Position("last", 1)
    kind, _, rest = text.partition("=")
    if kind == "offset" and _NUMBER.fullmatch(rest) and int(rest) <= INT64_MAX:
        return Position("offset", int(rest))
    if kind == "timestamp" and _NUMBER.fullmatch(rest) and int(rest) <= INT64_MAX // NS_PER_SECOND:
        return Position("time", int(rest) * NS_PER_SECOND)
    return None
