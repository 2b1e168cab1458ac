"""What is taken from a filter is taken exactly: a record passes the selection if and only if it passes the filter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from radiator.columns.selection import Selection
from radiator.spark.pushdown import narrow

pytestmark = pytest.mark.spark

COMPARISONS = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def selects(selection: Selection, offset: int, receive_ns: int) -> bool:
    return (
        selection.offset_low <= offset < selection.offset_high
        and selection.receive_low_ns <= receive_ns < selection.receive_high_ns
    )


@given(st.sampled_from(list(COMPARISONS)), st.integers(-3000, 3000), st.integers(-3, 3))
def test_times_are_compared_in_microseconds_as_spark_does(kind: Any, receive_ns: int, microseconds: int) -> None:
    literal = EPOCH + timedelta(microseconds=microseconds)
    taken = narrow(Selection(), kind(("receive_time",), literal))
    assert taken is not None
    column = EPOCH + timedelta(microseconds=receive_ns // 1000)
    assert selects(taken, 0, receive_ns) == COMPARISONS[kind](column, literal)


@given(st.sampled_from(list(COMPARISONS)), st.integers(-3, 3), st.integers(-3, 3))
def test_numbers(kind: Any, value: int, literal: int) -> None:
    expected = COMPARISONS[kind](value, literal)
    by_offset, by_time = (
        narrow(Selection(), kind(("offset",), literal)),
        narrow(Selection(), kind(("receive_ns",), literal)),
    )
    assert by_offset is not None
    assert by_time is not None
    assert selects(by_offset, value, 0) == selects(by_time, 0, value) == expected


@pytest.mark.parametrize(
    ("condition", "matching"),
    [
        (EqualTo(("destination",), "/topic/a"), {"/topic/a"}),
        (In(("destination",), ["/topic/a", "/queue/a"]), {"/topic/a", "/queue/a"}),
        (Not(In(("destination",), ["/topic/a"])), {"/topic/b", "/queue/a"}),
        (StringStartsWith(("destination",), "/topic"), {"/topic/a", "/topic/b"}),
        (StringEndsWith(("destination",), "a"), {"/topic/a", "/queue/a"}),
        (Not(StringContains(("destination",), "topic")), {"/queue/a"}),
    ],
)
def test_names(condition: Filter, matching: set[str]) -> None:
    names = {"/topic/a", "/topic/b", "/queue/a"}
    taken = narrow(Selection(), condition)
    assert taken is not None
    assert {name for name in names if taken.wants_destination(name)} == matching
    assert all(map(taken.wants_partition, names))
    inner: Any = condition.child if isinstance(condition, Not) else condition
    of_partition: Any = type(inner)(("partition",), inner.value)
    taken = narrow(Selection(), Not(of_partition) if isinstance(condition, Not) else of_partition)
    assert taken is not None
    assert {name for name in names if taken.wants_partition(name)} == matching
    assert all(map(taken.wants_destination, names))


def test_a_message_id_is_a_place() -> None:
    taken = narrow(Selection(), EqualTo(("message_id",), "%2Ftopic%2Fa@17"))
    assert taken is not None
    assert taken.wants_partition("/topic/a")
    assert not taken.wants_partition("other")
    assert taken.offsets_of("/topic/a") == (17, 18)


def test_columns_that_are_never_null_take_their_not_null_filter() -> None:
    assert narrow(Selection(), IsNotNull(("offset",))) == Selection()
    assert narrow(Selection(), IsNotNull(("event_time",))) is None


@pytest.mark.parametrize(
    "condition",
    [
        Not(EqualTo(("offset",), 3)),
        Not(IsNotNull(("offset",))),
        IsNull(("offset",)),
        EqualNullSafe(("destination",), "x"),
        EqualTo(("event_ns",), 3),
        EqualTo(("size",), 3),
        EqualTo(("message_id",), "nonsense"),
        EqualTo(("message_id",), "a@017"),  # no record is called so: the one at 17 is a@17
        EqualTo(("offset",), 3.0),
        EqualTo(("offset",), True),
        EqualTo(("receive_time",), datetime(2020, 1, 1)),
        In(("destination",), ["a", None]),
        EqualTo(("tags", "x"), "y"),
        EqualTo(("unknown",), 1),
        GreaterThan(("destination",), "a"),
    ],
)
def test_everything_else_is_left_to_spark(condition: Filter) -> None:
    assert narrow(Selection(), condition) is None
