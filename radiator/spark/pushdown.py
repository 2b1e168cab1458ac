"""Convert filters of a DataFrame to a Selection, or to a DeliveryFilter for the table of deliveries.

Spark passes simple filters as objects (``EqualTo(("destination",), "/topic/a")``) that are combined by AND. A filter is
converted only if the selection is exactly equal, so that Spark need not test it again; other filters are returned to
Spark. Time literals have microseconds, and a record's time is truncated to microseconds before the comparison, so the
bounds in nanoseconds are exact.

Uses pyspark's filter classes. Must not import files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from radiator.columns.deliveries import TEXTS
from radiator.columns.options import ReadOptions
from radiator.columns.selection import HIGH, LOW, DeliveryFilter, Selection
from radiator.spark.schema import BY_NAME
from radiator.storage.layout import message_id, parse_message_id

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT: dict[type[Filter], str] = {
    EqualTo: "in",
    In: "in",
    StringStartsWith: "starts",
    StringEndsWith: "ends",
    StringContains: "contains",
}
_RANGES: dict[type[Filter], Callable[[int, int], tuple[int, int]]] = {  # (value, unit) -> [low, high) in small units
    EqualTo: lambda value, unit: (value * unit, (value + 1) * unit),
    GreaterThan: lambda value, unit: ((value + 1) * unit, HIGH),
    GreaterThanOrEqual: lambda value, unit: (value * unit, HIGH),
    LessThan: lambda value, unit: (LOW, value * unit),
    LessThanOrEqual: lambda value, unit: (LOW, (value + 1) * unit),
}


def narrow_options(options: ReadOptions, condition: Filter) -> ReadOptions | None:
    """Return the options combined with a filter, or None if the filter cannot be converted exactly.

    Args:
        options: The options of a read of messages or of deliveries.
        condition: The filter.
    """
    if options.deliveries is not None:
        fewer = _narrow_deliveries(options.deliveries, condition)
        return None if fewer is None else replace(options, deliveries=fewer)
    narrower = narrow(options.selection, condition)
    return None if narrower is None else replace(options, selection=narrower)


def _narrow_deliveries(only: DeliveryFilter, condition: Filter) -> DeliveryFilter | None:
    negated = isinstance(condition, Not)
    inner: Any = condition.child if isinstance(condition, Not) else condition
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in TEXTS:
        return None
    if isinstance(inner, IsNotNull) and not negated:
        return only.where(path[0], "starts", "")
    found = _text(inner)
    return None if found is None else only.where(path[0], found[0], *found[1], negated=negated)


def narrow(selection: Selection, condition: Filter) -> Selection | None:
    """Return the selection combined with a filter, or None if the filter cannot be converted exactly.

    Args:
        selection: The selection so far.
        condition: The filter.
    """
    negated = isinstance(condition, Not)
    inner: Any = condition.child if isinstance(condition, Not) else condition
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in BY_NAME:
        return None
    column = path[0]
    if isinstance(inner, IsNotNull):
        return selection if not negated and not BY_NAME[column].nullable else None
    if column in ("destination", "partition"):
        return _named(selection, column, inner, negated)
    if negated:
        return None
    if column == "message_id":
        return _addressed(selection, inner)
    to_range = _RANGES.get(type(inner))
    if to_range is None:
        return None
    if column == "receive_time":
        moment = _microseconds(inner.value)
        return None if moment is None else selection.received(*to_range(moment, 1000))
    if type(inner.value) is not int:
        return None
    if column == "receive_ns":
        return selection.received(*to_range(inner.value, 1))
    if column == "offset":
        return selection.offsets(*to_range(inner.value, 1))
    return None


def _named(selection: Selection, column: str, condition: Any, negated: bool) -> Selection | None:
    found = _text(condition)
    if found is None:
        return None
    narrowing = selection.destination if column == "destination" else selection.partition
    return narrowing(found[0], *found[1], negated=negated)


def _text(condition: Any) -> tuple[str, tuple[str, ...]] | None:
    """Return the kind and the values of a condition on text, or None."""
    kind = _TEXT.get(type(condition))
    values = tuple(condition.value) if isinstance(condition, In) else (getattr(condition, "value", None),)
    return (kind, values) if kind is not None and all(isinstance(value, str) for value in values) else None


def _addressed(selection: Selection, condition: Any) -> Selection | None:
    """Return the selection of one record for an equality with a message id, which is a partition and an offset.

    An id in another spelling (``a@017``) belongs to no record; Spark's own filter finds that.
    """
    if not isinstance(condition, EqualTo) or not isinstance(condition.value, str):
        return None
    try:
        partition, offset = parse_message_id(condition.value)
    except ValueError:
        return None
    if message_id(partition, offset) != condition.value:
        return None
    return selection.partition("in", partition).offsets(offset, offset + 1)


def _microseconds(value: object) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)
