"""Times that users give, as nanoseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime

from radiator.clock import NS_PER_MS

Time = int | str | datetime  # 19 digits of nanoseconds since 1970, or 13 of milliseconds; RFC 3339; UTC without a zone
UNITS = {19: 1, 13: NS_PER_MS}  # unit of a number, by its length


def time_ns(time: Time) -> int:
    """Return a time in nanoseconds since 1970. Raises ValueError."""
    if isinstance(time, int):
        digits = len(str(abs(time)))
        if digits not in UNITS:
            raise ValueError(
                "expected nanoseconds since 1970 (19 digits), milliseconds (13 digits), RFC 3339 or a datetime, got "
                f"{time}"
            )
        return time * UNITS[digits]
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
