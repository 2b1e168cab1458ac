"""The types of values of keys: text of the file to a Python value, and back.

Each type is a ``ValueType``: ``read`` parses the scalar's text or raises ValueError("expected ..."), ``show`` writes a
value as an operator would. ``None`` means "no limit" or "off" and is written ``none``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.config.units import format_duration_ns, format_size, parse_duration_ns, parse_size
from radiator.config.units import format_time_of_day as show_time_of_day
from radiator.config.units import parse_time_of_day as read_time_of_day


@dataclass(frozen=True, slots=True)
class ValueType:
    """``show`` is the inverse of ``read``: reading a shown value gives the same value."""

    read: Callable[[str], Any]
    show: Callable[[Any], str] = str


def text(what: str, pattern: str = r"[^\x00]+") -> ValueType:
    """Return the type of a text that matches ``pattern``; ``what`` describes it."""
    compiled = re.compile(pattern)

    def read(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"expected {what}")
        return value

    return ValueType(read)


def choice(values: dict[str, Any] | tuple[str, ...]) -> ValueType:
    """Return the type of one of some words."""
    table = values if isinstance(values, dict) else {value: value for value in values}
    words = {value: word for word, value in table.items()}

    def read(value: str) -> Any:
        if value not in table:
            *others, last = table
            raise ValueError(f"expected {', '.join(others)} or {last}" if others else f"expected {last}")
        return table[value]

    return ValueType(read, words.__getitem__)


def count(least: int, most: int) -> ValueType:
    """Return the type of a whole number. With ``most`` above 10**18 the error says that there is no upper limit."""
    bounds = f"{least} or more" if most > 10**18 else f"{least} to {most}"

    def read(value: str) -> int:
        if not re.fullmatch(r"0|[1-9][0-9_]{0,17}", value) or not least <= int(value) <= most:
            raise ValueError(f"expected a whole number, {bounds}")
        return int(value)

    return ValueType(read)


def size(least: int, most: int) -> ValueType:
    """Return the type of a size in bytes."""

    def read(value: str) -> int:
        size_bytes = parse_size(value)
        if not least <= size_bytes <= most:
            raise ValueError(f"expected {format_size(least)} to {format_size(most)}")
        return size_bytes

    return ValueType(read, format_size)


def duration(least: str, most: str, unit_ns: int = 1) -> ValueType:
    """Return the type of a duration, in units of ``unit_ns`` nanoseconds (a float if it is no whole number)."""

    def read(value: str) -> Any:
        duration_ns = parse_duration_ns(value)
        if not parse_duration_ns(least) <= duration_ns <= parse_duration_ns(most):
            raise ValueError(f"expected {least} to {most}")
        return duration_ns // unit_ns if duration_ns % unit_ns == 0 else duration_ns / unit_ns

    return ValueType(read, lambda value: format_duration_ns(round(value * unit_ns)))


def number(least: float, most: float) -> ValueType:
    """Return the type of a decimal number."""

    def read(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) or not least <= float(value) <= most:
            raise ValueError(f"expected a number, {least} to {most}")
        return float(value)

    return ValueType(read)


def or_word(word: str, meaning: Any, other: ValueType) -> ValueType:
    """Return a type with a ``word`` for ``meaning``; everything else is read as ``other``."""

    def read(value: str) -> Any:
        if value == word:
            return meaning
        try:
            return other.read(value)
        except ValueError as error:
            raise ValueError(str(error).replace("expected ", f"expected {word} or ", 1)) from None

    return ValueType(read, lambda value: word if value == meaning else other.show(value))


def or_none(other: ValueType, none: Any = None) -> ValueType:
    """Return a type with ``none``, which switches the feature off."""
    return or_word("none", none, other)


def header(what: str) -> ValueType:
    """Return the type of ``header:NAME``; ``what`` describes its value."""

    def read(value: str) -> str:
        match = re.fullmatch(r"header:([^\x00\s:][^\x00:]*)", value)
        if match is None:
            raise ValueError(f"expected header:NAME, the header whose value {what}")
        return match[1]

    return ValueType(read, lambda name: f"header:{name}")


def _read_rate(value: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(?:/([smh]))?", value)
    a_second = float(match[1]) / {"s": 1, "m": 60, "h": 3_600}[match[2] or "s"] if match is not None else 0.0
    if not a_second:
        raise ValueError("expected messages a second such as 100, or 100/s, 600/m, 1000/h")
    return a_second


def _read_function(value: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", value):
        raise ValueError("expected MODULE:FUNCTION such as mypackage.hooks:stamp")
    return value


def _read_fsync(value: str) -> SyncPolicy:
    if value in ("always", "never"):
        return SyncPolicy(0 if value == "always" else None)
    try:
        interval_ns = parse_duration_ns(value)
    except ValueError as error:
        raise ValueError(str(error).replace("expected ", "expected always, never or ", 1)) from None
    if not NS_PER_MS <= interval_ns <= 3_600 * NS_PER_SECOND:
        raise ValueError("expected always, never or an interval of 1ms to 1h")
    return SyncPolicy(interval_ns)


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """When a RECEIPT may be sent, and when the disk must sync.

    ``interval_ns`` 0: after fdatasync. None: after the write, and the broker never syncs. Else after the write, and
    the sync follows within this time.
    """

    interval_ns: int | None = 0

    @property
    def always(self) -> bool:
        """Whether each write is synced."""
        return self.interval_ns == 0

    @property
    def never(self) -> bool:
        """Whether the broker never syncs."""
        return self.interval_ns is None

    def __str__(self) -> str:
        if self.interval_ns is None:
            return "never"
        return "always" if self.interval_ns == 0 else format_duration_ns(self.interval_ns)


BOOLEAN: Final = choice({"true": True, "false": False})
FSYNC: Final = ValueType(_read_fsync)
FUNCTION: Final = ValueType(_read_function)
RATE: Final = ValueType(_read_rate, "{:g}/s".format)
TIME_OF_DAY: Final = ValueType(read_time_of_day, show_time_of_day)
