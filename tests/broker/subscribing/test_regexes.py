"""``match:regex`` on SUBSCRIBE: what it matches, who may, and that nobody is stopped by it."""

from __future__ import annotations

import sys

import pytest

from radiator import limits
from radiator.errors import ConfigError
from radiator.routing.rights import Rights
from tests.broker.harness import Client, World, bodies

pytest.importorskip("re2")

ON = "regex_subscriptions: true\n"


def subscribed(world: World, expression: str, **headers: str) -> Client:
    client = world.connect()
    client.subscribe(expression, match="regex", ack="auto", **headers)
    world.settle()
    return client


def send(world: World, *names: str) -> None:
    client = world.connect()
    for name in names:
        client.publish(name, name)
    world.settle()
    client.drop()


def refused(world: World, expression: str, **headers: str) -> tuple[str, str]:
    client = world.connect()
    client.subscribe(expression, **{"match": "regex", **headers})
    client.flush()
    (frame,) = client.take("ERROR")
    return frame.headers["error-code"], frame.headers["message"] + " " + frame.body.decode()


def test_the_whole_name_has_to_match_now_and_later() -> None:
    world = World(ON)
    send(world, "/topic/weather.EWR")
    client = subscribed(world, r"/topic/weather\.(EWR|JFK)")
    wanted = ["/topic/weather.EWR", "/topic/weather.JFK"]
    send(world, *wanted, "/topic/weather.LGA", "/topic/weather.EWR.x", "x/topic/weather.EWR", "/topic/weatherxEWR")
    assert sorted(bodies(client.messages())) == wanted


def test_it_is_a_wildcard_for_queues_too_and_one_subscription_for_all() -> None:
    world = World(ON)
    send(world, "/queue/a1", "/queue/b")
    client = world.connect()
    client.subscribe("/queue/a[0-9]+", match="regex")
    send(world, "/queue/a22", "/queue/ax")
    world.settle()
    (first,) = client.messages()
    client.ack(first)
    world.settle()
    (second,) = client.messages()
    assert bodies([first, second]) == ["/queue/a1", "/queue/a22"]
    client.say("UNSUBSCRIBE", id="0")
    world.settle()
    send(world, "/queue/a3")
    assert client.messages() == []
    assert not world.broker.creation.tried


def test_history_and_expressions_go_together() -> None:
    world = World(ON)
    send(world, "/topic/a", "/topic/b", "/topic/ü")
    client = subscribed(world, "/topic/[^b]", start_position="first", stop_position="end")
    assert sorted(bodies(client.messages())) == ["", "/topic/a", "/topic/ü"]


def test_names_that_share_a_log_are_distinguished() -> None:
    world = World(ON + "destinations: [{match: '/topic/*', partition: all}]")
    client = subscribed(world, "/topic/(a|c)")
    send(world, "/topic/a", "/topic/b", "/topic/c", "/topic/a")
    assert bodies(client.messages()) == ["/topic/a", "/topic/c", "/topic/a"]


def test_queues_of_connections_are_not_found() -> None:
    world = World(ON)
    owner = world.connect()
    owner.subscribe("/temp-queue/mine")
    client = subscribed(world, ".*")
    owner.publish("/temp-queue/mine", "x")
    owner.publish("/temp-queue/other", "x")
    world.settle()
    assert client.messages() == []


def test_without_the_key_it_is_denied_and_the_key_is_named() -> None:
    code, told = refused(World(), "/topic/a")
    assert code == "denied" and "regex_subscriptions: true" in told


@pytest.mark.parametrize(
    ("expression", "headers", "code", "why"),
    [
        ("/topic/(", {}, "bad-pattern", "missing )"),
        ("/topic/(?=a)", {}, "bad-pattern", "(?="),
        (r"/topic/(a)\\1", {}, "bad-pattern", "invalid escape"),
        ("x" * (limits.REGEX_CHARS_MAX + 1), {}, "bad-pattern", str(limits.REGEX_CHARS_MAX)),
        ("(a{30}){30}", {}, "bad-pattern", str(limits.REGEX_STEPS_MAX)),
        ("(((a{99}){99}){99}){99}", {}, "bad-pattern", "malformed"),
        ("/topic/a", {"match": "glob"}, "bad-header", "expected regex"),
        ("/topic/a", {"subscription_name": "s"}, "bad-header", "cannot have a regular expression"),
        ("/topic/a", {"group": "g"}, "bad-header", "cannot have a regular expression"),
    ],
)
def test_an_invalid_regex_subscription_is_refused_with_the_reason(
    expression: str, headers: dict[str, str], code: str, why: str
) -> None:
    found, told = refused(World(ON), expression.replace("\\\\", "\\"), **headers)
    assert (found, why in told) == (code, True), told


def test_there_is_an_end_to_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REGEX_SUBSCRIPTIONS_MAX", 2)
    world = World(ON)
    first = subscribed(world, "a")
    subscribed(world, "a")
    assert refused(world, "a")[0] == "too-many"
    first.drop()
    world.settle()
    subscribed(world, "a")
    assert len(world.broker.creation.tried) == 2


def test_a_search_among_many_names_lets_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_WORK", 50)
    world = World(ON)
    send(world, *(f"/topic/{number}" for number in range(100)))
    client, other = world.connect(), world.connect()
    client.subscribe("/topic/[0-9]*[02468]", match="regex", ack="auto", receipt="r")
    client.publish("/topic/0", "behind", receipt="behind")
    other.publish("/topic/200", "born meanwhile", receipt="other")
    world.commit()
    other.flush()
    assert other.receipts() == ["other"]
    client.flush()
    assert client.receipts() == []
    world.settle()
    assert client.receipts() == ["r", "behind"]
    assert bodies(client.messages()) == ["born meanwhile", "behind"]
    send(world, "/topic/200", "/topic/98", "/topic/99")
    assert sorted(bodies(client.messages())) == ["/topic/200", "/topic/98"]


EVIL = ["(a+)+b", "(a|aa)+b", "(a*)*(a*)*c", "(.*a){20}b", "(a|b)*a(a|b){20}"]


@pytest.mark.parametrize("expression", EVIL)
def test_what_hangs_others_is_an_expression_like_any(expression: str) -> None:
    """With backtracking some of these would not be done before the sun is."""
    world = World(ON)
    client = subscribed(world, "/topic/" + expression)
    send(world, "/topic/" + "a" * 220)
    assert len(client.messages()) == (expression == EVIL[-1])


def test_only_what_is_permitted_of_it_is_delivered_now_and_later() -> None:
    world = World(ON)
    send(world, "/topic/a", "/topic/b")
    client = world.connect()
    client.become(rights=Rights({"read": ["/topic/a", "/topic/c"]}))
    client.subscribe("/topic/.*", match="regex", ack="auto")
    send(world, "/topic/a", "/topic/b", "/topic/c", "/topic/d")
    assert sorted(bodies(client.messages())) == ["/topic/a", "/topic/c"]


def test_without_its_package_the_key_is_a_fault_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ConfigError, match="pip install 'radiator-broker\\[regex\\]'"):
        World(ON)
