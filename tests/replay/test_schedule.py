"""When records are due, and in which order streams are one: pure functions, no clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.clock import NS_PER_SECOND
from radiator.export.rows import Row
from radiator.replay.merging import Stream, merge
from radiator.replay.schedule import Schedule, Speed, parse_speed

S = NS_PER_SECOND
DAY = 1_356_998_400 * S


def dues(speed: str, times: list[int | None]) -> list[float]:
    schedule = Schedule(parse_speed(speed))
    return [schedule.due_ns(None if time is None else DAY + time) / S for time in times]


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("original", Speed(1.0)),
        ("MAX", Speed()),
        ("10x", Speed(10.0)),
        ("0.5 x", Speed(0.5)),
        ("100/s", Speed(None, 100.0)),
        ("0.1/s", Speed(None, 0.1)),
    ],
)
def test_a_speed_is_a_word_a_factor_or_a_rate(text: str, speed: Speed) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["", "fast", "x", "0x", "-1x", "0/s", "10", "1e400x", "10/m"])
def test_other_speeds_are_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected original, max, a factor"):
        parse_speed(text)


def test_the_distances_are_those_of_the_records() -> None:
    times: list[int | None] = [0, 2 * S, 2 * S, 60 * S]
    assert dues("original", times) == [0, 2, 2, 60]
    assert dues("10x", times) == [0, 0.2, 0.2, 6]
    assert dues("0.5x", times) == [0, 4, 4, 120]
    assert dues("max", times) == [0, 0, 0, 0]
    assert dues("4/s", times) == [0, 0.25, 0.5, 0.75]


def test_one_that_is_late_or_has_no_time_is_due_with_the_one_before_it() -> None:
    assert dues("original", [None, 5 * S, 8 * S, 6 * S, None, 9 * S]) == [0, 0, 3, 3, 3, 4]


@given(st.lists(st.none() | st.integers(-S * 10, S * 10)), st.sampled_from(["original", "3x", "0.1x", "7/s", "max"]))
def test_due_times_never_fall(times: list[int | None], speed: str) -> None:
    found = dues(speed, times)
    assert found == sorted(found)


def row(partition: str, offset: int, receive_ns: int) -> Row:
    return Row("/topic/a", partition, offset, f"{partition}@{offset}", receive_ns, None, None, {}, {}, b"")


@given(st.lists(st.lists(st.integers(0, 50), max_size=20), max_size=6))
def test_streams_are_merged_by_time_and_each_keeps_its_order(lists: list[list[int]]) -> None:
    streams = [
        Stream(
            min(times, default=0) - 1,
            lambda p=p, times=times: iter([row(str(p), i, t) for i, t in enumerate(sorted(times))]),
        )
        for p, times in enumerate(lists)
    ]
    found = list(merge(streams))
    assert [each.receive_ns for each in found] == sorted(time for times in lists for time in times)
    for p, times in enumerate(lists):
        assert [each.offset for each in found if each.partition == str(p)] == list(range(len(times)))


def test_a_stream_is_opened_when_its_first_row_may_be_next() -> None:
    opened: list[str] = []

    def stream(name: str, times: list[int]) -> Stream:
        def rows() -> Iterator[Row]:
            opened.append(name)
            yield from (row(name, i, time) for i, time in enumerate(times))

        return Stream(times[0], rows)

    merged = merge([stream("late", [10, 11]), stream("early", [1, 5, 12])])
    assert [next(merged).receive_ns for _ in range(2)] == [1, 5]
    assert opened == ["early"]
    assert [each.receive_ns for each in merged] == [10, 11, 12]
