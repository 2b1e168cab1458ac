"""The headers of SEND that are about time: ``expires``, ``delay`` and ``deliver-at``.

However a delay was written, it is stored as ``deliver-at`` in milliseconds since 1970, so it outlives a restart and
says the same to every reader. It is rounded up: a message may come late, and never early.

Raises ProtocolError (bad-time, bad-header, unsupported) that names the header.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from radiator.broker.headers.positions import parse_duration, parse_time
from radiator.broker.logs.moments import DIGITS_MAX
from radiator.clock import NS_PER_MS, WallNs
from radiator.errors import ProtocolError

EXPIRES, DELIVER_AT = "expires", "deliver-at"
DELAYS = ("delay", "delay-ms", "AMQ_SCHEDULED_DELAY")
HEADERS = frozenset([EXPIRES, DELIVER_AT, *DELAYS])
DELAY_MS_MAX = 36_500 * 86_400_000


def delay_ms(header: str, text: str) -> int:
    """A delay in milliseconds from digits or a duration such as 5s. Raises ProtocolError."""
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX:
        value = int(text)
    else:
        duration_ns = parse_duration(text) if len(text) <= 100 else None
        value = -1 if duration_ns is None else -(-duration_ns // NS_PER_MS)
    if not 0 <= value <= DELAY_MS_MAX:
        raise ProtocolError(
            "bad-header",
            f"header {header}: not a delay: {text[:100]!r}",
            "Expected milliseconds, or a duration such as 500ms, 5s or 1h30m, of at most 36500 days.",
        )
    return value


def deliver_at_ms(text: str) -> int:
    """The moment that a header ``deliver-at`` names. Raises ProtocolError."""
    if text.isascii() and text.isdigit():
        if len(text) <= DIGITS_MAX:
            return int(text)
    elif len(text) <= 100 and (time_ns := parse_time(text)) is not None and time_ns >= 0:
        return -(-time_ns // NS_PER_MS)
    raise ProtocolError(
        "bad-time",
        f"header {DELIVER_AT}: not a time: {text[:100]!r}",
        "Expected milliseconds since 1970-01-01 UTC (13 digits today), or RFC 3339 such as 2030-01-01T05:15:00Z.",
    )


def check(headers: Mapping[str, str], now_ns: WallNs) -> int | None:
    """The moment in milliseconds before which the message must not be delivered; None if it says nothing of it."""
    expires = headers.get(EXPIRES)
    if expires is not None and not (expires.isascii() and expires.isdigit() and len(expires) <= DIGITS_MAX):
        raise ProtocolError(
            "bad-time",
            f"header {EXPIRES}: not a time: {expires[:100]!r}",
            "Expected milliseconds since 1970-01-01 UTC (13 digits today), or 0 for never.",
        )
    if DELIVER_AT in headers:
        return deliver_at_ms(headers[DELIVER_AT])
    for each in DELAYS:
        if each in headers:
            return -(-now_ns // NS_PER_MS) + delay_ms(each, headers[each])
    return None


def stamp(block: bytes, due_ms: int) -> bytes:
    """The stored block with ``deliver-at`` in the place of however the delay was written."""
    return b"\n".join([*_without(block, (DELIVER_AT, *DELAYS)), b"deliver-at:%d" % due_ms])


def is_none(headers: Mapping[str, str]) -> bool:
    """True if the delay is 0, which any destination may be told."""
    return DELIVER_AT not in headers and all(delay_ms(each, headers[each]) == 0 for each in DELAYS if each in headers)


def bare(block: bytes) -> bytes:
    """The stored block of a message whose delay is none."""
    return b"\n".join(_without(block, DELAYS))


def _without(block: bytes, names: Iterable[str]) -> list[bytes]:
    starts = tuple(name.encode() + b":" for name in names)
    return [line for line in block.split(b"\n") if line and not line.startswith(starts)]
