"""Values of headers: flags, times, durations and delays.

The letter case of a flag does not matter: Python writes ``True`` and SQL writes ``TRUE``. Any other value is refused. A
consumer that sends ``browser:yes`` and becomes an ordinary consumer would take messages from the queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from radiator.broker.logs.delivery_times import DIGITS_MAX
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.errors import ProtocolError

WORDS = {"true": True, "false": False}
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
NUMBER = re.compile(r"\d{1,19}", re.ASCII)
INT64_MAX = 2**63 - 1
DELAY_MS_MAX = 36_500 * 86_400_000


def flag(headers: Mapping[str, str], name: str) -> bool | None:
    """Return the value of a boolean header.

    Args:
        headers: The headers of a frame.
        name: The name of the header.

    Returns:
        The value, or None if the frame does not have the header.

    Raises:
        ProtocolError: The value is neither true nor false (bad-header).
    """
    text = headers.get(name)
    if text is None:
        return None
    said = WORDS.get(text.lower())
    if said is None:
        raise ProtocolError(
            "bad-header",
            f"header {name}: expected true or false, got {text[:100]!r}",
            "Case does not matter; for the default, leave the header out.",
        )
    return said


def parse_time(text: str) -> int | None:
    """Return a time in nanoseconds since the epoch.

    Args:
        text: Decimal digits (nanoseconds since the epoch) or an RFC 3339 date-time.

    Returns:
        The time, or None if ``text`` is in neither form or outside of 64 bits (the years 1678 to 2262).
    """
    if NUMBER.fullmatch(text):
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


def delay_ms(header: str, text: str) -> int:
    """Return a delay in milliseconds.

    Args:
        header: The name of the header, for the error.
        text: Digits (milliseconds) or a duration such as ``5s``.

    Raises:
        ProtocolError: The text is not a delay, or the delay exceeds ``DELAY_MS_MAX`` (bad-header).
    """
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


def time_ns(headers: Mapping[str, str], name: str) -> int | None:
    """Return a time of the client in nanoseconds since 1970; None if the frame does not have the header.

    Raises:
        ProtocolError: The value is neither digits nor an RFC 3339 date-time (bad-time).
    """
    text = headers.get(name)
    if text is None:
        return None
    value = parse_time(text)
    if value is None:
        raise ProtocolError(
            "bad-time",
            f"header {name}: not a time: {text[:100]!r}",
            "Expected nanoseconds since 1970-01-01 UTC in decimal, or RFC 3339 such as 2013-01-01T05:15:00Z.",
        )
    return value


def time_ms(headers: Mapping[str, str], name: str, zero: str = "") -> int | None:
    """Return a time for the broker in milliseconds since 1970; None if the frame does not have the header.

    Args:
        headers: The headers of a frame.
        name: The name of the header.
        zero: What 0 means, if the value is stored as it came. Then it may not be a date-time.

    Raises:
        ProtocolError: The value is neither digits nor an RFC 3339 date-time (bad-time).
    """
    text = headers.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        if len(text) <= DIGITS_MAX:
            return int(text)
    elif not zero and len(text) <= 100 and (value := parse_time(text)) is not None and value >= 0:
        return -(-value // NS_PER_MS)
    raise ProtocolError(
        "bad-time",
        f"header {name}: not a time: {text[:100]!r}",
        "Expected milliseconds since 1970-01-01 UTC (13 digits today), or "
        f"{zero or 'RFC 3339 such as 2030-01-01T05:15:00Z'}.",
    )
