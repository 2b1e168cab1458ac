"""The times of a cron expression, in a time zone.

``cronsim`` evaluates expressions (an extra, ``radiator-broker[cron]``), as Debian's cron does, also when clocks change:
a fixed time that does not exist is moved to the end of the gap, and one that exists twice counts once. An expression
with ``*`` as its minute or hour counts every real time.

This module knows expressions and time zones. It reads no clock. Times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from radiator.clock import NS_PER_SECOND, WallNs

FIELDS: Final = 5  # minute, hour, day of the month, month, day of the week
HOUR_NS: Final = 3_600 * NS_PER_SECOND
WINDOWS_NS: Final = tuple(hours * HOUR_NS for hours in (1, 24, 32 * 24, 366 * 24, 5 * 366 * 24))


def is_installed() -> bool:
    """Return whether cronsim is installed."""
    try:
        import cronsim  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


class CronTimes:
    """The times of one expression.

    Args:
        expression: Five fields, as in a crontab.
        time_zone: The name of a time zone, such as ``UTC`` or ``Europe/Berlin``.

    Raises:
        ValueError: The expression or the time zone is wrong; the text begins with the key at fault.
    """

    __slots__ = ("_expression", "_zone")

    def __init__(self, expression: str, time_zone: str) -> None:
        from zoneinfo import ZoneInfo  # 3 ms, which a start without schedules does not spend

        from cronsim import CronSimError

        try:
            self._zone = UTC if time_zone == "UTC" else ZoneInfo(time_zone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"time_zone: expected UTC or a name such as Europe/Berlin, got {time_zone!r}") from None
        self._expression = expression
        wanted = "cron: expected five fields such as 0 2 * * * (minute, hour, day, month, day of the week)"
        if len(expression.split()) != FIELDS:
            raise ValueError(f"{wanted}, got {expression!r}")
        try:
            self._simulated(WallNs(0))
        except CronSimError as error:
            raise ValueError(f"{wanted}, got {expression!r}: {error}") from None

    def next_after(self, time_ns: int) -> WallNs | None:
        """Return the first time after ``time_ns``; None if there is none."""
        return next(self._after(time_ns), None)

    def last_between(self, after_ns: int, until_ns: int) -> WallNs | None:
        """Return the last time after ``after_ns`` and not after ``until_ns``; None if there is none.

        The search begins with the last hour, and goes further back if that has no time.
        """
        for window_ns in WINDOWS_NS:
            start_ns = max(after_ns, until_ns - window_ns)
            last = None
            for time_ns in self._after(start_ns):
                if time_ns > until_ns:
                    break
                last = time_ns
            if last is not None or start_ns == after_ns:
                return last
        return None

    def _after(self, time_ns: int) -> Iterator[WallNs]:
        try:
            for found in self._simulated(time_ns):
                found_ns = WallNs(int(found.timestamp()) * NS_PER_SECOND)
                if found_ns > time_ns:  # in an hour that exists twice the library may begin with the first one
                    yield found_ns
        except (OverflowError, ValueError):
            return  # beyond the year 9999

    def _simulated(self, time_ns: int) -> Any:
        from cronsim import CronSim

        return CronSim(self._expression, datetime.fromtimestamp(time_ns // NS_PER_SECOND, self._zone))
