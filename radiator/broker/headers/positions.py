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

from dataclasses import dataclass
from typing import Literal

from radiator.broker.headers.values import INT64_MAX, NUMBER, parse_duration, parse_time
from radiator.clock import NS_PER_SECOND, WallNs
from radiator.errors import ProtocolError

Kind = Literal["first", "next", "last", "offset", "time", "end"]

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
    if kind in ("last", "offset") and NUMBER.fullmatch(rest) and int(rest) <= INT64_MAX:
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
    if kind == "offset" and NUMBER.fullmatch(rest) and int(rest) <= INT64_MAX:
        return Position("offset", int(rest))
    if kind == "timestamp" and NUMBER.fullmatch(rest) and int(rest) <= INT64_MAX // NS_PER_SECOND:
        return Position("time", int(rest) * NS_PER_SECOND)
    return None
