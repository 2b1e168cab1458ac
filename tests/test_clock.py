"""Moments relative to now: one parser for the commands, the options of Spark and notebooks."""

from __future__ import annotations

import pytest

from radiator.broker.headers.values import parse_time
from radiator.clock import now_ns, relative_time
from radiator.errors import ConfigError
from radiator.spark.options import Use, parse
from radiator.spark.positions import parse_time as parse_option

NOW = parse_time("2013-07-10T12:30:15.25Z") or 0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2013-07-10T12:30:15.25Z"),
        ("-1d", "2013-07-09T12:30:15.25Z"),
        ("-1h30m", "2013-07-10T11:00:15.25Z"),
        ("-250ms", "2013-07-10T12:30:15Z"),
        ("2 hours ago", "2013-07-10T10:30:15.25Z"),
        ("1 day ago", "2013-07-09T12:30:15.25Z"),
        ("today", "2013-07-10T00:00:00Z"),
        ("yesterday", "2013-07-09T00:00:00Z"),
        ("yesterday 14:05", "2013-07-09T14:05:00Z"),
        ("Yesterday  14:05:59", "2013-07-09T14:05:59Z"),
    ],
)
def test_a_moment_may_be_relative_to_now(text: str, moment: str) -> None:
    assert relative_time(text, NOW) == parse_time(moment) == parse_option(text, "asOf", NOW)


@pytest.mark.parametrize("text", ["yesterday 24:00", "tomorrow", "-1", "-1y", "2 weeks ago", "yesterday14:05", ""])
def test_other_texts_are_no_relative_moments(text: str) -> None:
    assert relative_time(text, NOW) is None


def test_a_stream_refuses_a_relative_start_because_it_would_move_with_each_restart() -> None:
    given = {"path": "./data", "startTime": "yesterday 14:05"}
    at_ns = parse(given, Use.BATCH).selection.receive_low_ns
    assert 0 < at_ns < now_ns()
    with pytest.raises(ConfigError, match="expected RFC 3339"):
        parse(given, Use.STREAM)
