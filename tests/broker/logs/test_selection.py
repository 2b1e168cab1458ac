"""Selectors on topics, replays and browsers: who is given what, how much is looked at, what is evaluated once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radiator import limits
from radiator.broker.logs import selection
from radiator.broker.logs.selection import Selection
from radiator.broker.logs.wire import RECORD_HEADERS, StoredRecord
from radiator.stomp import spec
from tests.broker.harness import Client, World

ALL = [f"{colour}{number}" for number in range(5) for colour in ("red", "blue")]


def publish(client: Client, destination: str = "/topic/a") -> None:
    for body in ALL:
        size = body[-1]
        jms = {"correlation_id": f"c{size}", "reply_to": f"/queue/r{size}", "type": f"t{size}"}
        client.publish(destination, body, colour=body[:-1], size=size, expires=9 * 10**12 + int(size), **jms)


def test_every_header_of_a_record_has_the_value_for_selectors_that_a_subscriber_gets(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/a")
    publish(client)
    world.settle()
    batch = world.store.partitions["/topic/a"].read(0)
    of_records = {name for name, of in spec.MESSAGE_HEADERS.items() if of == "record"}
    assert set(RECORD_HEADERS) == {"destination", *of_records}
    messages = client.messages()
    assert len(messages) == len(ALL)
    for index, message in enumerate(messages):
        stored = StoredRecord(batch, index, "/topic/a", "%2Ftopic%2Fa@")
        assert {name: message.headers[name] for name in RECORD_HEADERS} == {
            name: value_of(stored) for name, value_of in RECORD_HEADERS.items()
        }


@pytest.mark.parametrize("name", [name for name, of in spec.MESSAGE_HEADERS.items() if of == "delivery"])
def test_a_selector_with_a_header_of_a_delivery_is_refused(name: str) -> None:
    client = World().connect()
    client.subscribe("/topic/a", selector=f"\"{name}\" = '1'")
    client.world.settle()
    assert client.error() == "bad-selector"


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("colour = 'red'", ALL[::2]),
        ("colour <> 'red'", ALL[1::2]),
        ("colour = 'red' AND size > 2", ["red3", "red4"]),
        ("offset BETWEEN 2 AND 3", ALL[2:4]),
        ("destination = '/topic/a' AND partition LIKE '%/a' AND size = 0", ALL[:2]),
        ("JMSMessageID = '%2Ftopic%2Fa@7'", ["blue3"]),
        (
            "JMSPriority = 4 AND JMSTimestamp > 16e11 AND receive-time > 16e17 AND size = 1",
            ALL[2:4],
        ),
        ("JMSDestination = '/topic/b' OR missing IS NOT NULL", []),
        ("JMSCorrelationID = 'c3' OR JMSReplyTo = '/queue/r4' OR JMSType = 't0'", [*ALL[:2], *ALL[6:]]),
        ("JMSExpiration > 9e12 AND JMSExpiration < 9e12 + 2", ALL[2:4]),
        ("TRUE", ALL),
        ("", ALL),
    ],
)
def test_a_subscriber_is_given_what_its_selector_takes(world: World, selector: str, wanted: list[str]) -> None:
    live, late = world.connect(), world.connect()
    live.subscribe("/topic/a", ack="auto", selector=selector)
    publish(world.connect())
    late.subscribe("/topic/a", ack="auto", selector=selector, start_position="first")
    world.settle()
    assert live.bodies() == wanted
    assert late.bodies() == wanted


def test_only_that_subscription_has_a_selector(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/a", id="all", ack="auto")
    client.subscribe("/topic/a", id="red", ack="auto", selector="colour = 'red'")
    publish(client)
    world.settle()
    heard = client.messages()
    assert [each.body.decode() for each in heard if each.headers["subscription"] == "all"] == ALL
    assert [each.body.decode() for each in heard if each.headers["subscription"] == "red"] == ALL[::2]


def test_headers_are_compared_as_they_were_sent_whatever_the_escapes(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/a", ack="auto", selector="\"a:b\" = 'x\\y' AND text LIKE 'one%two'")
    client.say_bytes(b"SEND\ndestination:/topic/a\na\\cb:x\\\\y\ntext:one\\ntwo\n\nyes\0")
    client.say_bytes(b"SEND\ndestination:/topic/a\na\\cb:x\\\\\\\\y\ntext:one\\ntwo\n\nno\0")
    world.settle()
    assert client.bodies() == ["yes"]


def test_a_bad_selector_is_an_error_with_the_place(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/a", selector="colour = = 'red'")
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-selector"
    assert error.headers["message"] == "header selector: at character 10 expected a name, a literal or (, got '='"
    assert error.body.decode().endswith("colour = = 'red'\n         ^")


@pytest.mark.parametrize(
    "name",
    ["redelivered", "JMSRedelivered", "content-length", '"delivery-count"', "JMSDeliveryMode", "JMSXDeliveryCount"],
)
def test_what_is_about_a_delivery_cannot_be_asked_for(world: World, name: str) -> None:
    client = world.connect()
    client.subscribe("/topic/a", selector=f"{name} = 'x'")
    world.settle()
    assert client.error() == "bad-selector"


def test_the_window_counts_what_is_delivered_and_not_what_is_passed_over(world: World) -> None:
    client = world.connect()
    publish(world.connect())
    client.subscribe("/topic/a", selector="colour = 'blue'", start_position="first", prefetch_count=2)
    world.settle()
    first, second = client.messages()
    assert (first.body, second.body) == (b"blue0", b"blue1")
    client.ack(first)
    world.settle()
    assert client.bodies() == ["blue2"]


def test_a_bounded_replay_with_a_selector_ends_though_nothing_matches_any_more(world: World) -> None:
    client = world.connect()
    publish(world.connect())
    client.subscribe("/topic/a", ack="auto", selector="size = 2", start_position="offset:1", stop_position="offset:6")
    world.settle()
    *messages, end = client.messages()
    assert [each.body for each in messages] == [b"red2", b"blue2"]
    assert end.headers["replay-end"] == "true"


def test_last_n_with_a_selector_is_the_last_n_that_are_looked_at(world: World) -> None:
    client = world.connect()
    publish(world.connect())
    client.subscribe("/topic/a", ack="auto", selector="colour = 'red'", start_position="last:4")
    world.settle()
    assert client.bodies() == ["red3", "red4"]


def test_a_browser_with_a_selector_sees_what_waits_and_matches(world: World) -> None:
    client, browser = world.connect(), world.connect()
    publish(client, "/queue/a")
    browser.subscribe("/queue/a", ack="auto", browser="true", selector="colour = 'red'")
    world.settle()
    *messages, end = browser.messages()
    assert [each.body.decode() for each in messages] == ALL[::2]
    assert end.headers["replay-end"] == "true"
    client.subscribe("/queue/a", ack="auto")
    world.settle()
    assert client.bodies() == ALL


def test_a_selector_on_a_pattern_applies_to_later_destinations(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/>", ack="auto", selector="size = 4")
    publish(client, "/topic/x.y")
    world.settle()
    assert client.bodies() == ["red4", "blue4"]


def test_a_hundred_subscribers_with_one_selector_cost_one_evaluation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[int] = []
    real: Callable[..., bytes] = Selection._evaluate

    def counting(self: Selection, wire: object, batch: object, start: int, stop: int) -> bytes:
        evaluated.append(stop - start)
        return real(self, wire, batch, start, stop)

    monkeypatch.setattr(Selection, "_evaluate", counting)
    clients = [world.connect() for _ in range(100)]
    for number, client in enumerate(clients):
        client.subscribe("/topic/a", ack="auto", selector="colour = 'red'" if number % 2 else "(colour='red')")
    publish(clients[0])
    world.settle()
    assert all(client.bodies() == ALL[::2] for client in clients)
    assert sum(evaluated) == len(ALL)


def test_a_turn_of_a_reader_looks_at_a_bounded_number_of_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SELECTOR_RUN_CHARS", 100)
    looked: list[int] = []
    real: Callable[..., bytes] = Selection._evaluate

    def counting(self: Selection, wire: object, batch: object, start: int, stop: int) -> bytes:
        looked.append(stop - start)
        return real(self, wire, batch, start, stop)

    monkeypatch.setattr(Selection, "_evaluate", counting)
    client = world.connect()
    client.subscribe("/topic/a", ack="auto", selector="colour = 'none'")
    publish(client)
    publish(client)
    world.settle()
    assert client.bodies() == []
    assert max(looked) == 100 // len("colour = 'none'")
    assert sum(looked) == 2 * len(ALL)


def test_the_verdicts_that_a_batch_keeps_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SELECTORS_PER_BATCH_MAX", 3)
    client = world.connect()
    for number in range(5):
        client.subscribe("/topic/a", id=str(number), ack="auto", selector=f"size = {number}")
    publish(client)
    world.settle()
    assert sorted(client.bodies()) == sorted(ALL)
    (partition,) = world.store.partitions.values()
    assert len(partition.read(0).memo[selection.VERDICTS]) == 3
