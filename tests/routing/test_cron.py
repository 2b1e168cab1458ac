"""Times of cron expressions, in UTC and where clocks change."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.routing.cron import CronTimes

BERLIN = "Europe/Berlin"


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * NS_PER_SECOND


def following(expression: str, zone: str, start: str, count: int) -> list[str]:
    times, at, found = CronTimes(expression, zone), ns(start), []
    for _ in range(count):
        next_ns = times.next_after(at)
        assert next_ns is not None and next_ns > at
        assert times.last_between(at, next_ns) == next_ns
        assert times.last_between(next_ns - 1, next_ns + 1) == next_ns
        at = next_ns
        found.append(datetime.fromtimestamp(at // NS_PER_SECOND, UTC).strftime("%m-%dT%H:%M"))
    return found


def test_times_follow_one_another() -> None:
    assert following("*/20 * * * *", "UTC", "2026-01-01T00:00:30", 3) == ["01-01T00:20", "01-01T00:40", "01-01T01:00"]
    assert following("0 2 1 * *", BERLIN, "2026-01-15", 2) == ["02-01T01:00", "03-01T01:00"]


def test_a_fixed_time_that_does_not_exist_comes_at_the_end_of_the_gap() -> None:
    assert following("30 2 * * *", BERLIN, "2026-03-28T12:00", 2) == ["03-29T01:00", "03-30T00:30"]


def test_a_fixed_time_that_exists_twice_comes_once() -> None:
    assert following("30 2 * * *", BERLIN, "2026-10-24T12:00", 2) == ["10-25T00:30", "10-26T01:30"]
    assert following("30 2 * * *", BERLIN, "2026-10-25T01:10", 1) == ["10-26T01:30"]  # in the second of both hours


def test_every_half_hour_comes_every_half_hour_also_when_clocks_change() -> None:
    found = following("*/30 * * * *", BERLIN, "2026-10-24T23:45", 5)
    assert found == ["10-25T00:00", "10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"]


@pytest.mark.parametrize("expression", ["* * * * *", "0 * * * *", "0 2 * * *", "0 0 1 * *", "0 0 1 1 *", "0 0 29 2 *"])
def test_the_last_time_is_found_however_long_ago_it_is(expression: str) -> None:
    times, until = CronTimes(expression, "UTC"), ns("2026-11-28T12:30")
    last = times.last_between(0, until)
    assert last is not None and last <= until
    following_ns = times.next_after(last)
    assert following_ns is not None and following_ns > until


def test_there_is_none_between_two_times() -> None:
    assert CronTimes("0 2 * * *", "UTC").last_between(ns("2026-01-01T02:00"), ns("2026-01-02T01:59")) is None


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("* * * *", "UTC", "cron: expected five fields"),
        ("* * * * * *", "UTC", "cron: expected five fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 31 2 *", "UTC", "Bad day-of-month"),
        ("0 0 * * *", "Europe/Atlantis", "time_zone: expected UTC"),
        ("0 0 * * *", "../etc", "time_zone: expected UTC"),
    ],
)
def test_what_is_no_schedule_is_refused(expression: str, zone: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CronTimes(expression, zone)
