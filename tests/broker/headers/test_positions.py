"""The grammar of start-position and stop-position, and of times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.headers.positions import Position, parse_position
from radiator.broker.headers.values import INT64_MAX, parse_duration, parse_time
from radiator.clock import NS_PER_SECOND
from radiator.errors import ProtocolError

NOW = 1_000_000 * NS_PER_SECOND
NEW_YEAR_2013 = 1_356_998_400 * NS_PER_SECOND

GOOD = {
    "first": Position("first"),
    "next": Position("next"),
    "last": Position("last", 1),
    "last:0": Position("last", 0),
    "last:25": Position("last", 25),
    "offset:0": Position("offset", 0),
    "offset:9223372036854775807": Position("offset", INT64_MAX),
    "time:0": Position("time", 0),
    "time:1356998400000000000": Position("time", NEW_YEAR_2013),
    "time:2013-01-01T00:00:00Z": Position("time", NEW_YEAR_2013),
    "time:2013-01-01t00:00:00z": Position("time", NEW_YEAR_2013),
    "time:2013-01-01 00:00:00.000000001Z": Position("time", NEW_YEAR_2013 + 1),
    "time:2013-01-01T01:30:00.5+01:30": Position("time", NEW_YEAR_2013 + NS_PER_SECOND // 2),
    "time:2012-12-31T19:00:00-05:00": Position("time", NEW_YEAR_2013),
    "ago:1h30m": Position("time", NOW - 5_400 * NS_PER_SECOND),
    "ago:250ms": Position("time", NOW - NS_PER_SECOND // 4),
    "ago:1d": Position("time", NOW - 86_400 * NS_PER_SECOND),
    "ago:99999d": Position("time", 0),
}
BAD = [
    "", " first", "first ", "First", "FIRST", "earliest", "latest", "0", "-1", "last:", "last:-1", "last:1.5", "last:x",
    "last:9223372036854775808", "last:99999999999999999999", "offset:", "offset:-1", "offset:+1", "offset:1_000",
    "offset:9223372036854775808", "offset=3", "time:", "time:yesterday", "time:2013-01-01", "time:2013-13-01T00:00:00Z",
    "time:2013-01-01T00:00:00", "time:2013-02-30T00:00:00Z", "time:2013-01-01T25:00:00Z", "time:-5", "time:1e9",
    "time:9223372036854775808", "ago:", "ago:5", "ago:5 m", "ago:m", "ago:-1h", "ago:1h-30m", "ago:1w", "next:1",
    "end:1", "first:", "offset:١", "last:²", "time:2013-01-01T00:00:00.1234567890Z", "first\n",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_a_position_is_understood(text: str) -> None:
    assert parse_position("start-position", text, NOW) == GOOD[text]
    assert parse_position("stop-position", text, NOW) == GOOD[text]


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_position("start-position", text, NOW)
    assert caught.value.code == "bad-position"
    assert "start-position" in caught.value.message
    assert "offset:N" in caught.value.detail


def test_end_is_a_stop_only() -> None:
    assert parse_position("stop-position", "end", NOW) == Position("end")
    with pytest.raises(ProtocolError, match="start-position"):
        parse_position("start-position", "end", NOW)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("first", Position("first")),
        ("next", Position("next")),
        ("last", Position("last", 1)),
        ("offset=12", Position("offset", 12)),
        ("timestamp=1356998400", Position("time", NEW_YEAR_2013)),
    ],
)
def test_the_alias_of_streams_has_its_own_values(text: str, position: Position) -> None:
    assert parse_position("x-stream-offset", text, NOW) == position


@pytest.mark.parametrize(
    "text", ["offset:12", "last:3", "timestamp=", "offset=", "timestamp=99999999999", "time:1", "end"]
)
def test_the_alias_does_not_take_ours(text: str) -> None:
    with pytest.raises(ProtocolError, match="x-stream-offset"):
        parse_position("x-stream-offset", text, NOW)


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_a_protocol_error(text: str) -> None:
    for header in ("start-position", "stop-position", "x-stream-offset"):
        for value in (text, "time:" + text, "ago:" + text, "last:" + text, "offset:" + text, "timestamp=" + text):
            try:
                position = parse_position(header, value, NOW)
            except ProtocolError as error:
                assert error.code == "bad-position"
            else:
                assert abs(position.value) <= INT64_MAX


@given(st.integers(0, INT64_MAX))
def test_a_time_in_nanoseconds_is_exact(value: int) -> None:
    assert parse_time(str(value)) == value


@given(st.datetimes(datetime(1678, 1, 1), datetime(2262, 1, 1)), st.integers(0, 999_999_999))
def test_rfc_3339_is_exact_to_the_nanosecond(moment: datetime, fraction: int) -> None:
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    assert parse_time(f"{text}.{fraction:09d}Z") == seconds * NS_PER_SECOND + fraction


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "2262-04-12T00:00:00Z"])
def test_a_time_that_does_not_fit_the_log_is_no_time(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(("text", "value"), [("1s", 1), ("1m1s", 61), ("1s1m", 61), ("2h", 7_200), ("1d1h", 90_000)])
def test_durations_add_up(text: str, value: int) -> None:
    assert parse_duration(text) == value * NS_PER_SECOND
