"""The wall clock and the monotonic clock, with a type for the times of each.

The wall clock gives nanoseconds since 1970 (UTC). It can step, because NTP, an operator or a hypervisor sets it. Times
that are stored or shown to people are wall times: receive times, expiry, ``deliver-at``, retention. The monotonic clock
never steps. Time-outs, pauses, intervals, retries and heart-beats are monotonic times.

The core reads no clock: its entry points take a ``Now``. The server, the CLI and the client read the clocks with the
functions of this module, and a simulation passes numbers of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, NewType

NS_PER_SECOND: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
_NS_OF: Final = {"s": NS_PER_SECOND, "m": 60 * NS_PER_SECOND, "h": 3600 * NS_PER_SECOND, "d": 86_400 * NS_PER_SECOND}
_EPOCH: Final = datetime(1970, 1, 1)
_BEFORE_NOW: Final = re.compile(r"-((?:\d{1,9}(?:ms|[smhd]))+)", re.ASCII)
_AGO: Final = re.compile(r"(\d{1,9}) (second|minute|hour|day)s? ago", re.ASCII)
_OF_DAY: Final = re.compile(r"(today|yesterday)(?: ([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?)?", re.ASCII)
RELATIVE: Final = "-1h30m, 2 hours ago, today, yesterday 14:05 or now"
"""The forms of ``relative_time``, for error messages."""

WallNs = NewType("WallNs", int)
"""A time of the wall clock: nanoseconds since 1970 (UTC)."""

MonoNs = NewType("MonoNs", int)
"""A time of the monotonic clock: nanoseconds since an arbitrary point."""


class Now(NamedTuple):
    """The times of both clocks, read together.

    Attributes:
        wall: The time of the wall clock.
        mono: The time of the monotonic clock.
    """

    wall: WallNs
    mono: MonoNs


def relative_time(text: str, now_ns: int) -> int | None:
    """Return a time that is written relative to now, in nanoseconds since the epoch. Days are those of UTC.

    Args:
        text: ``-1d`` or ``-1h30m`` (before now), ``2 hours ago``, ``yesterday 14:05``, ``today`` (its midnight) or
            ``now``, without regard to case.
        now_ns: The current time, in nanoseconds since the epoch.

    Returns:
        The time, or None if ``text`` is in none of these forms.

    Example:
        >>> relative_time("yesterday 00:01", 90_000 * NS_PER_SECOND) // NS_PER_SECOND
        60
    """
    text = " ".join(text.split()).lower()
    if text == "now":
        return now_ns
    if found := _BEFORE_NOW.fullmatch(text):
        parts = re.findall(r"(\d+)(ms|[smhd])", found[1])
        return now_ns - sum(int(number) * (NS_PER_MS if unit == "ms" else _NS_OF[unit]) for number, unit in parts)
    if found := _AGO.fullmatch(text):
        return now_ns - int(found[1]) * _NS_OF[found[2][0]]
    if found := _OF_DAY.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        midnight = now_ns - now_ns % _NS_OF["d"] - (_NS_OF["d"] if found[1] == "yesterday" else 0)
        return midnight + hours * _NS_OF["h"] + minutes * _NS_OF["m"] + seconds * NS_PER_SECOND
    return None


def rfc3339(ns: int) -> str:
    """Return a time as text in UTC with nanoseconds, as in RFC 3339.

    Args:
        ns: Nanoseconds since the epoch.

    Raises:
        OverflowError: The year is not in 1 to 9999.

    Example:
        >>> rfc3339(1)
        '1970-01-01T00:00:00.000000001Z'
    """
    seconds, rest = divmod(ns, NS_PER_SECOND)
    return f"{_to_the_second(seconds)}.{rest:09d}Z"


@lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()  # strftime does not pad the years before 1000


BEFORE: Final = Now(WallNs(0), MonoNs(0))
"""A time before all present times, on both clocks."""


# These run for each visit of a connection. A Python call costs as much as reading a clock, so these are the functions
# of ``time`` themselves, with other types.

now_ns: Callable[[], WallNs] = time.time_ns  # type: ignore[assignment]
"""Return the present time of the wall clock."""

monotonic_ns: Callable[[], MonoNs] = time.monotonic_ns  # type: ignore[assignment]
"""Return the present time of the monotonic clock."""


def now() -> Now:
    """Return the present time of both clocks."""
    return tuple.__new__(Now, (now_ns(), monotonic_ns()))
