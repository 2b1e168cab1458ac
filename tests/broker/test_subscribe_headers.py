"""The headers of a SUBSCRIBE as one value: what follows from them together."""

from __future__ import annotations

import pytest

from radiator.broker.headers.positions import END, NEXT, Position
from radiator.broker.headers.subscribe import SubscribeHeaders, parse_subscribe
from radiator.clock import WallNs
from radiator.config.load import load
from radiator.errors import ProtocolError
from radiator.routing.rules import Rules
from radiator.stomp.frames import Head

RULES = Rules(load(None))
NOW = WallNs(1_000)


def own_name(text: str) -> str:
    return f"{text}@session" if text.startswith("/temp-queue/") else text


def parsed(destination: str = "/topic/a", **headers: str) -> SubscribeHeaders:
    given = {"destination": destination, "id": "s", **{name.replace("_", "-"): text for name, text in headers.items()}}
    raw = "\n".join(f"{name}:{text}" for name, text in given.items()).encode()
    return parse_subscribe(Head("SUBSCRIBE", given, raw, "1.2", -1), "", own_name, RULES, 7, NOW)


@pytest.mark.parametrize(
    ("headers", "right", "browses"),
    [
        ({}, "read", False),
        ({"start_position": "next"}, "read", True),
        ({"start_position": "first"}, "browse", True),
        ({"start_position": "last:3"}, "browse", True),
        ({"start_at": "%2Ftopic%2Fa@7"}, "browse", True),
        ({"stop_position": "end"}, "browse", True),
        ({"browser": "true"}, "browse", True),
        ({"browser": "true", "start_position": "next"}, "browse", True),
        ({"subscription_name": "n"}, "read", False),
        ({"subscription_name": "n", "start_position": "first"}, "read", False),
    ],
)
def test_history_needs_another_right_and_consumes_no_queue(headers: dict[str, str], right: str, browses: bool) -> None:
    found = parsed(**headers)
    assert (found.right, found.browses) == (right, browses)


def test_a_browser_without_positions_ends_where_the_log_ends() -> None:
    assert parsed(browser="true").stop == END
    assert parsed(browser="true", start_position="first").stop is None
    assert parsed(browser="true", stop_position="offset:3").stop == Position("offset", 3)


def test_offsets_without_a_start_position_leave_all_other_logs_at_their_end() -> None:
    found = parsed(start_at="%2Ftopic%2Fa@7, b@1,")
    assert (found.start, found.starts) == (NEXT, {"/topic/a": 7, "b": 1})


def test_a_start_in_the_future_holds_earlier_messages_back() -> None:
    assert parsed(start_position="time:1001").since_ns == 1_001
    assert parsed(start_position="time:1000").since_ns == 0


def test_a_queue_ignores_the_name_of_a_durable_subscription() -> None:
    found = parsed("/queue/a", subscription_name="n", browser="true")
    assert found.name is None and found.browses and found.stop == END


def test_temporary_destinations_get_the_names_that_the_broker_gives_them() -> None:
    assert parsed("/topic/a, /temp-queue/x").patterns.names == ("/topic/a", "/temp-queue/x@session")


@pytest.mark.parametrize("header", ["exclusive", "activemq.exclusive", "browser", "reset", "durable"])
def test_each_flag_is_checked_whatever_the_others_say(header: str) -> None:
    with pytest.raises(ProtocolError, match=f"header {header}: expected true or false"):
        parsed(**{"exclusive": "true", header: "yes"})
