"""The headers ``expires``, ``delay`` and ``deliver-at`` of SEND.

Every form of a delay is stored as ``deliver-at`` in milliseconds since 1970, so the delay survives a restart and is the
same for every reader. The value is rounded up: a message may be delivered late, never early.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from radiator.broker.headers.values import delay_ms, parse_time
from radiator.broker.logs.delivery_times import DIGITS_MAX
from radiator.clock import NS_PER_MS, WallNs
from radiator.errors import ProtocolError

EXPIRES, DELIVER_AT = "expires", "deliver-at"
DELAYS = ("delay", "delay-ms", "AMQ_SCHEDULED_DELAY")
HEADERS = frozenset([EXPIRES, DELIVER_AT, *DELAYS])


def deliver_at_ms(text: str) -> int:
    """Return the time of a ``deliver-at`` header in milliseconds since 1970.

    Raises:
        ProtocolError: The text is neither digits nor an RFC 3339 date-time (bad-time).
    """
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
    """Validate the time headers of a SEND and return the delivery time.

    Args:
        headers: The headers of the frame.
        now_ns: The present wall time.

    Returns:
        The earliest delivery time in milliseconds since 1970, or None if the message is not delayed.

    Raises:
        ProtocolError: A header is malformed (bad-time or bad-header).
    """
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
    """Return the stored header block with ``deliver-at`` in place of all delay headers."""
    return b"\n".join([*_without(block, (DELIVER_AT, *DELAYS)), b"deliver-at:%d" % due_ms])


def is_none(headers: Mapping[str, str]) -> bool:
    """Return True if the delay is 0. Every destination accepts a delay of 0."""
    return DELIVER_AT not in headers and all(delay_ms(each, headers[each]) == 0 for each in DELAYS if each in headers)


def bare(block: bytes) -> bytes:
    """Return the stored header block without delay headers."""
    return b"\n".join(_without(block, DELAYS))


def _without(block: bytes, names: Iterable[str]) -> list[bytes]:
    starts = tuple(name.encode() + b":" for name in names)
    return [line for line in block.split(b"\n") if line and not line.startswith(starts)]
