"""Windows without a number: ``prefetch: none`` in a rule, 0 on SUBSCRIBE."""

from __future__ import annotations

import pytest

from tests.broker.harness import World, bodies

CONFIG = """
limits: {in_flight: 7}
destinations:
  - {match: /queue/wide.*, prefetch: none}
  - {match: /topic/wide, prefetch: none}
"""
TEN = [str(number) for number in range(10)]
HEADERS = ["prefetch_count", "activemq.prefetchSize", "credit"]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_0_is_as_many_as_the_broker_lets_anybody_hold_where_the_rule_allows_it(header: str, ack: str) -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/queue/wide.a", ack=ack, **{header: "0"})
    client.publish("/queue/wide.a", *TEN)
    world.settle()
    messages = client.messages()
    assert bodies(messages) == TEN[:7]
    client.ack(messages[0])
    world.settle()
    assert bodies(client.messages()) == TEN[7:8]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("destination", ["/queue/narrow", "/queue/wide.a,/queue/narrow", "/queue/*"])
def test_0_is_an_error_that_names_the_key_where_the_rule_does_not_allow_it(header: str, destination: str) -> None:
    world = World(CONFIG)
    client = world.connect()
    client.publish("/queue/narrow", "x")
    world.settle()
    client.subscribe(destination, **{header: "0"})
    client.flush()
    (frame,) = client.take("ERROR")
    assert frame.headers["error-code"] == "bad-header"
    assert "/queue/narrow" in frame.headers["message"] and b"prefetch: none" in frame.body


def test_a_rule_without_a_limit_needs_no_header_and_a_number_there_has_the_last_word() -> None:
    world = World(CONFIG)
    for headers, most in (({}, 7), ({"prefetch_count": 3}, 3)):
        client = world.connect()
        client.subscribe("/queue/wide.a", **headers)
        client.publish("/queue/wide.a", *TEN)
        world.settle()
        assert len(client.messages()) == most
        client.drop()
        world.settle()


def test_what_one_client_may_hold_bounds_it_too() -> None:
    world = World(CONFIG)
    client = world.connect(max_in_flight="4")
    client.subscribe("/queue/wide.a", prefetch_count="0")
    client.publish("/queue/wide.a", *TEN)
    world.settle()
    assert len(client.messages()) == 4


@pytest.mark.parametrize(
    ("destination", "headers"),
    [
        ("/topic/narrow", {}),
        ("/topic/narrow", {"durable": "true"}),
        ("/topic/wide", {"group": "g"}),
        ("/queue/narrow", {"ack": "auto"}),
        ("/queue/narrow", {"browser": "true"}),
        ("/temp-queue/narrow", {}),
    ],
)
def test_0_is_what_holds_anyway_where_no_window_is_shared(destination: str, headers: dict[str, str]) -> None:
    world = World(CONFIG)
    client = world.connect()
    if "browser" in headers:
        client.publish(destination, *TEN[:7])
        world.settle()
    client.subscribe(destination, prefetch_count="0", **headers)
    world.settle()
    if "browser" not in headers:
        client.publish(destination, *TEN[:7])
    world.settle()
    assert bodies(client.messages())[:7] == TEN[:7]


def test_a_group_shares_work_as_a_queue_does_so_its_rule_has_to_allow_it() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/topic/narrow", prefetch_count="0", group="g")
    client.flush()
    assert client.error() == "bad-header"


RULES = "destinations: [{match: '/queue/wide.*', prefetch: 4}, {match: '/queue/wider.*', prefetch: 6}]"


@pytest.mark.parametrize("first", ["subscription", "queues"])
def test_a_rule_widens_the_window_of_a_pattern_for_existing_and_new_queues(first: str) -> None:
    world = World(RULES)
    client, sender = world.connect(), world.connect()
    if first == "subscription":
        client.subscribe("/queue/>")
        world.settle()
    sender.publish("/queue/narrow", *TEN)
    world.settle()
    held = client.messages()
    assert len(held) == (first == "subscription")
    sender.publish("/queue/wide.a", *TEN)
    world.settle()
    if first == "queues":
        client.subscribe("/queue/>")
        world.settle()
    held += client.messages()
    assert len(held) == 4
    sender.publish("/queue/wider.a", *TEN)
    world.settle()
    held += client.messages()
    assert len(held) == 6
    while held:
        for message in held:
            client.ack(message)
        world.settle()
        held = client.messages()
        assert len(held) <= 6
    assert client.session.window.held == 0


def test_a_window_that_was_widened_leaves_its_place_in_the_clients_window_to_others() -> None:
    world = World(RULES)
    client, sender = world.connect(), world.connect()
    client.subscribe("/queue/>", id="0")
    sender.publish("/queue/narrow", *TEN)
    client.subscribe("/queue/narrow", id="1")
    world.settle()
    assert len(client.messages()) == 1
    sender.publish("/queue/wide.a", "x")
    world.settle()
    got = [message.headers["subscription"] for message in client.messages()]
    assert sorted(got) == ["0", "0", "0", "1"]
    client.say("UNSUBSCRIBE", id="0")
    client.say("UNSUBSCRIBE", id="1")
    world.settle()
    assert client.session.window.held == 0 and not client.session.window.queues


@pytest.mark.parametrize("headers", [{"prefetch_count": "2"}, {"ack": "auto"}])
def test_what_the_client_said_is_not_widened(headers: dict[str, str]) -> None:
    world = World(RULES)
    client = world.connect()
    client.subscribe("/queue/>", **headers)
    client.publish("/queue/wide.a", *TEN)
    world.settle()
    assert len(client.messages()) == (10 if "ack" in headers else 2)


def test_what_a_client_may_hold_in_all_holds_after_widening() -> None:
    world = World(RULES)
    client = world.connect(max_in_flight="3")
    client.subscribe("/queue/>")
    client.publish("/queue/wide.a", *TEN)
    world.settle()
    messages = client.messages()
    assert len(messages) == 3
    for message in messages:
        client.ack(message)
    world.settle()
    assert len(client.messages()) == 3
