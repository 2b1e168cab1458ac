"""Parse the options of a report: the part of the log, and how to divide it.

    parse({"start": "2023-11-14T22:00:00Z", "every": "5m"})
    parse({"start": "-1d"})                                  # the last day, by the clock of this computer

Times are RFC 3339 (UTC without a zone) or nanoseconds since the epoch, each with or without ``@``, or relative to
now (``-1h30m``, ``yesterday 14:05``: ``radiator.clock.relative_time``). Widths are ``30s``, ``5m``, ``1h30m``, ``7d``,
or Spark's notation (``5 minutes``).

Must not import pyspark. Errors name an option as the command line writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta

from radiator.clock import RELATIVE
from radiator.errors import ConfigError
from radiator.spark import units
from radiator.spark.positions import parse_time

PIECES_MAX = 5000  # buckets of a time axis: more cannot be drawn or read
LIMIT = 10
SAMPLES = "/topic/ops.cursors"  # the default of ``radiator cursors sample``
WINDOWS = "/topic/ops.traffic"  # the default of ``radiator report live``
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SHORT = re.compile(r"(?:\d{1,9}[smhd])+", re.ASCII)
_WORDS = re.compile(r"(\d{1,9}) (second|minute|hour|day)s?", re.ASCII)


@dataclass(frozen=True)
class Options:
    """The parsed options. None means that an option was not given.

    Attributes:
        destination: The destinations: names and patterns, separated by commas.
        start: The first receive time, in nanoseconds since the epoch.
        until: The receive time after the last one, in nanoseconds since the epoch.
        every: The width of a time bucket, in seconds.
        by: What to group by instead of the destination: ``partition``, or the name of a header.
        limit: The maximum number of rows of rankings.
        key: A header, or a path into JSON bodies (``$.name``).
        sender: The header or path with the name of the sender.
        gap: The gap that ends a session, in seconds.
        shift: The distance from the window to the one that it is compared with, in seconds.
        with_start: The first receive time of the window to compare with, in nanoseconds since the epoch.
        with_until: The receive time after the last one of that window, in nanoseconds since the epoch.
        samples: The destination with the samples of cursors.
    """

    destination: str | None = None
    start: int | None = None
    until: int | None = None
    every: int | None = None
    by: str | None = None
    limit: int = LIMIT
    key: str | None = None
    sender: str | None = None
    gap: int | None = None
    shift: int | None = None
    with_start: int | None = None
    with_until: int | None = None
    samples: str = SAMPLES

    def width(self, span: timedelta, about: int = 120, of_clients: bool = False) -> tuple[int, str]:
        """Return the width of time buckets: in seconds, and as Spark writes it.

        Args:
            span: The time span to divide.
            about: The maximum number of buckets if the user gave no width.
            of_clients: True for times that clients set. If the given width would make too many buckets, a wider one is
                used, because one wrong time stretches the span and no option excludes it.

        Raises:
            ConfigError: The given width makes more than PIECES_MAX buckets.
        """
        pieces = 0.0 if self.every is None else span.total_seconds() / self.every
        if self.every is None or (of_clients and pieces > PIECES_MAX):
            return units.bucket(span, about)
        if pieces > PIECES_MAX:
            raise ConfigError(
                f"--every {self.every}s would cut {units.duration(span.total_seconds() * 1000)} into {pieces:,.0f} "
                f"pieces: expected at most {PIECES_MAX:,}; give a wider one, or less of the log with --from and --until"
            )
        return self.every, f"{self.every} seconds"

    def common_width(self, span: timedelta) -> int:
        """Return a width that divides each width that ``width`` may return for this time span or a longer one.

        Args:
            span: The time span so far, of times that clients set.

        Returns:
            The width in seconds.
        """
        given = self.every is not None and span.total_seconds() / self.every <= PIECES_MAX
        return units.common_width(span, *([self.every] if given and self.every else []))

    @property
    def what(self) -> str:
        """The noun for the column ``destination``: what the report groups by."""
        return self.by or "destination"

    def described(self) -> str:
        """Return the chosen part of the log in words; empty for all of it."""
        parts = [f"destination {self.destination}"] if self.destination else []
        parts += [f"from {units.moment(units.utc(self.start))}"] if self.start is not None else []
        parts += [f"until {units.moment(units.utc(self.until))}"] if self.until is not None else []
        return ", ".join(parts)


_NAMED = {"start": "--from", "shift": "--with", "with_start": "--with-from"}
FLAGS: Mapping[str, str] = {
    each.name: _NAMED.get(each.name, "--" + each.name.replace("_", "-")) for each in fields(Options)
}


def parse(given: Mapping[str, str | int | None], now_ns: int) -> Options:
    """Parse and return the options of a report.

    Args:
        given: The options; None is an option that was not given.
        now_ns: The current time, in nanoseconds since the epoch.

    Raises:
        ConfigError: An option is unknown, has a wrong value, or contradicts another one.
    """
    known = {each.name for each in fields(Options)}
    values: dict[str, str | int] = {}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"a report has no option {name!r}: expected {', '.join(sorted(known))}")
        if value is None:
            continue
        text = str(value).strip()
        if name in ("start", "until", "with_start", "with_until"):
            values[name] = _moment(text, FLAGS[name], now_ns)
        elif name in ("every", "gap"):
            values[name] = seconds(text, FLAGS[name])
        elif name == "shift":
            values[name] = _shift(text)
        elif name == "limit":
            values[name] = _count(text, FLAGS[name])
        elif (name, text) == ("by", "destination"):
            continue  # the default
        else:
            values[name] = text
    options = Options(**values)  # type: ignore[arg-type]
    for first, last in (("start", "until"), ("with_start", "with_until")):
        begin, end = getattr(options, first), getattr(options, last)
        if begin is not None and end is not None and begin >= end:
            raise ConfigError(f"{FLAGS[first]} must be before {FLAGS[last]}, got a later or equal time")
    if (options.with_start is None) != (options.with_until is None):
        raise ConfigError("--with-from and --with-until go together: expected both, or --with -7d")
    if options.shift is not None and options.with_start is not None:
        raise ConfigError("--with and --with-from name two windows to compare with: expected one of them")
    return options


def seconds(text: str, flag: str) -> int:
    """Return a width in seconds.

    Args:
        text: ``1h30m``, or Spark's notation.
        flag: The option on the command line, for error messages.

    Raises:
        ConfigError: The text is not a width above 0.

    Example:
        >>> seconds("1h30m", "--every"), seconds("5 minutes", "--every")
        (5400, 300)
    """
    found = _WORDS.fullmatch(text)
    if found:
        total = int(found[1]) * _UNITS[found[2][0]]
    elif _SHORT.fullmatch(text):
        total = sum(int(part[:-1]) * _UNITS[part[-1]] for part in re.findall(r"\d+[smhd]", text))
    else:
        total = 0
    if total == 0:
        raise ConfigError(f"{flag}: expected a width such as 30s, 5m, 1h30m or 7d, got {text!r}")
    return total


def _moment(text: str, flag: str, now_ns: int) -> int:
    try:
        return parse_time(text.removeprefix("@"), flag, now_ns)
    except ConfigError:
        raise ConfigError(
            f"{flag}: expected a time such as @2013-01-31T12:00:00Z, epoch nanoseconds, or {RELATIVE}, got {text!r}"
        ) from None


def _shift(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * seconds(text.lstrip("+-"), FLAGS["shift"])


def _count(text: str, flag: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1000):
        raise ConfigError(f"{flag}: expected a whole number from 1 to 1000, got {text!r}")
    return int(text)
