"""No command does more in a turn than its budget, whatever its input, and others are served in between.

Each command, each verb of the admin channel and the end of a connection is driven with an input that is many times the
budget; the work of each turn is counted, not timed. A command or verb without a case here fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from radiator import limits
from radiator.broker import core as core_module
from radiator.broker.admin.channel import VERBS
from radiator.broker.clients.delivery_numbers import DeliveryNumbers
from radiator.broker.clients.session import Subscription
from radiator.broker.frames.commands import COMMANDS
from radiator.routing.rights import Rights
from radiator.stomp.encoder import encode
from tests.broker.harness import Client, World
from tests.broker.turns import Counted

BUDGET = 150
STEP = 80  # the most that one indivisible step is counted as: a destination is created
MANY = 300  # destinations, subscriptions, frames
DELIVERIES = 3_000
OF_THE_BROKER = ("stats", "clock", "clock.accept", "overview", "rates", "clients.show", "config.reload", "broker.drain")
OF_QUEUES = ("maintenance.run", "maintenance.status", "queues.pause", "queues.resume")
SMALL = ("CONNECT", "STOMP", "BEGIN", *OF_THE_BROKER, *OF_QUEUES)  # no input makes them long
RULES = """
destinations:
  - {match: '/topic/mem.>', store: memory}
  - {match: '/queue/mem.>', store: memory}
  - {match: '/queue/limited', store: memory, max_messages: 500}
  - {match: '/queue/oldest', store: memory, max_messages: 200, on_full: drop_oldest}
  - {match: '/queue/newest', store: memory, max_messages: 200, on_full: drop_newest}
  - {match: '/queue/timed', store: memory, ack_timeout: 1h}
"""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(limits, "TURN_WORK", BUDGET)
    monkeypatch.setattr(core_module, "Budget", Counted)
    return World(RULES + ("regex_subscriptions: true\n" if find_spec("re2") else ""))


def topics(world: World, count: int = MANY, kind: str = "topic") -> None:
    client = world.connect()
    for number in range(count):
        client.publish(f"/{kind}/mem.{number}", "x")
    world.settle()
    client.drop()
    world.settle()


def opened(world: World) -> Client:
    return world.connect()


def subscribed(world: World, **headers: str) -> Client:
    topics(world)
    client = world.connect()
    client.subscribe("/topic/mem.>", ack="auto", **headers)
    world.settle()
    client.inbox.clear()
    return client


def consuming(world: World) -> Client:
    topics(world, kind="queue")
    client = world.connect()
    client.subscribe("/queue/mem.>", prefetch_count="1000")
    world.settle()
    client.inbox.clear()
    return client


def transaction(world: World, destination: str = "/topic/mem.0", count: int = MANY, **headers: str) -> Client:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    for number in range(count):
        each = {name: value.format(number) for name, value in headers.items()}
        client.publish(destination, str(number), transaction="t", **each)
        world.settle()
    return client


def holding(world: World, ack: str, count: int = DELIVERIES) -> Client:
    """A client that holds so many deliveries, which have to be answered in time."""
    client, sender = world.connect(), world.connect()
    client.subscribe("/queue/timed", ack=ack, prefetch_count="65536")
    for _ in range(count):
        sender.publish("/queue/timed", "x")
    world.settle()
    while client.rest:
        client.go_on()
        world.settle()
    assert len(client.session.subscriptions.by_id["0"].in_flight) == count
    return client


def last_held(client: Client) -> str:
    return client.take("MESSAGE")[-1].headers["message-id"]


def holding_in_a_transaction(world: World, count: int = 1_000) -> Client:
    client = holding(world, "client", count)
    client.say("BEGIN", transaction="t")
    client.say("ACK", message_id=last_held(client), transaction="t")
    while client.rest:
        client.go_on()
    return client


def answering(command: str) -> Callable[[World], Client]:
    def prepare(world: World) -> Client:
        client = holding(world, "client-individual", 2 * MANY)
        client.say("BEGIN", transaction="t")
        for message in client.take("MESSAGE"):
            client.say(command, message_id=message.headers["message-id"], transaction="t", requeue="false")
            world.settle()
        return client

    return prepare


def repeating(world: World) -> Client:
    sender = world.connect()
    for number in range(MANY):
        sender.publish("/queue/mem.0", "first", dedup_id=str(number))
    world.settle()
    return transaction(world, "/queue/mem.0", dedup_id="{}")


def answered(world: World) -> Client:
    client = world.connect()
    for number in range(10):  # each of which has held every message
        client.subscribe("/topic/mem.a", id=str(number), prefetch_count="1000")
    client.publish("/topic/mem.a", *["x"] * 20)
    world.settle()
    client.say("BEGIN", transaction="t")
    for message in client.messages():
        client.say("ACK", message_id=message.headers["message-id"], transaction="t")
        world.settle()
    return client


def created(world: World) -> Client:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    for number in range(50):
        client.publish(f"/topic/mem.new.{number}", "x", transaction="t")
    world.settle()
    return client


def asking(world: World) -> Client:
    topics(world)
    client = world.connect()
    client.subscribe("/temp-queue/a", id="answers", ack="auto")
    world.settle()
    return client


def asking_about_a_name(world: World) -> Client:
    topics(world)
    owner = world.connect()
    owner.subscribe("/topic/mem.>", subscription_name="me", ack="auto")
    world.settle()
    owner.drop()
    client = world.connect()
    client.subscribe("/temp-queue/a", id="answers", ack="auto")
    world.settle()
    return client


def asking_about_delays(world: World) -> Client:
    sender = world.connect()
    for number in range(DELIVERIES):
        sender.publish("/queue/mem.late", str(number), delay="1h")
    sender.subscribe("/queue/mem.late")
    world.settle()
    sender.drop()
    return asking(world)


def asking_with_consumers(world: World) -> Client:
    for _ in range(MANY):
        consumer = world.connect()
        consumer.subscribe("/queue/mem.work", ack="client", prefetch_count="10")
        consumer.publish("/queue/mem.work", *["x"] * 10)
    world.settle()
    client = world.connect()
    client.subscribe("/temp-queue/a", id="answers", ack="auto")
    world.settle()
    return client


def reader_of_some(world: World) -> Client:
    topics(world)
    client = world.connect()
    client.become(rights=Rights({"read": ["/topic/mem.*"], "browse": ["/topic/mem.*"]}))
    return client


def reader_of_an_expression(world: World) -> Client:
    pytest.importorskip("re2")
    topics(world, 10 * MANY)
    return world.connect()


def named_before(world: World) -> Client:
    client = subscribed(world, subscription_name="me")
    client.drop()
    world.settle()
    return world.connect()


def subscribed_often(world: World) -> Client:
    topics(world, 10)
    client = world.connect()
    for number in range(MANY):
        client.subscribe(f"/topic/mem.{number % 10}", id=str(number), ack="auto")
        world.settle()
    return client


def say(command: str, **headers: str) -> Callable[[Client], None]:
    return lambda client: client.say(command, receipt="done", **headers)


def answer_all(command: str, **headers: str) -> Callable[[Client], None]:
    def answer(client: Client) -> None:
        if "transaction" in headers:
            client.say("BEGIN", transaction=headers["transaction"])
        client.say(command, message_id=last_held(client), receipt="done", **headers)

    return answer


def subscribe(destination: str, **headers: str) -> Callable[[Client], None]:
    return lambda client: client.subscribe(destination, receipt="done", ack="auto", **headers)


def sends(client: Client) -> None:
    frames = [encode("SEND", [("destination", f"/topic/mem.new.{number}")]) for number in range(50)]
    client.say_bytes(b"".join(frames) + encode("SEND", [("destination", "/topic/mem.new.0"), ("receipt", "done")]))


def ask(do: str, **args: Any) -> Callable[[Client], None]:
    def asked(client: Client) -> None:
        body = json.dumps({"do": do, **args})
        client.say("SEND", body, destination="/radiator/admin", reply_to="/temp-queue/a", receipt="done")

    return asked


Case = tuple[str, Callable[[World], Client], Callable[[Client], None]]

CASES: dict[str, Case] = {
    "births": ("SEND", opened, sends),
    "a wildcard over topics": ("SUBSCRIBE", lambda w: (topics(w), w.connect())[1], subscribe("/topic/mem.>")),
    "a list of patterns": (
        "SUBSCRIBE",
        lambda w: (topics(w), w.connect())[1],
        subscribe(",".join(f"#.mem.{each}.#" for each in range(90))),
    ),
    "a wildcard over queues": (
        "SUBSCRIBE",
        lambda w: (topics(w, kind="queue"), w.connect())[1],
        subscribe("/queue/mem.>"),
    ),
    "history": ("SUBSCRIBE", lambda w: (topics(w), w.connect())[1], subscribe("/topic/mem.>", start_position="last:3")),
    "names that are new": (
        "SUBSCRIBE",
        opened,
        subscribe(",".join(f"/topic/mem.new.{each}" for each in range(90))),
    ),
    "a durable name": (
        "SUBSCRIBE",
        lambda w: (topics(w), w.connect())[1],
        subscribe("/topic/mem.>", subscription_name="me"),
    ),
    "one of the last": (
        "SUBSCRIBE",
        lambda w: (topics(w), w.connect())[1],
        subscribe("/topic/mem.>", start_position="last:1"),
    ),
    "rights over some names": ("SUBSCRIBE", reader_of_some, subscribe("/topic/mem.>")),
    "an expression": ("SUBSCRIBE", reader_of_an_expression, subscribe("/topic/mem[.][0-9]+", match="regex")),
    "a durable name at the last": (
        "SUBSCRIBE",
        lambda w: (topics(w), w.connect())[1],
        subscribe("/topic/mem.>", subscription_name="me", start_position="last:1"),
    ),
    "a durable name that is reset": (
        "SUBSCRIBE",
        named_before,
        subscribe("/topic/mem.>", subscription_name="me", reset="true", start_position="first"),
    ),
    "a durable name that gets narrower": ("SUBSCRIBE", named_before, subscribe("/topic/mem.1", subscription_name="me")),
    "a durable name that is left": ("UNSUBSCRIBE", named_before, say("UNSUBSCRIBE", subscription_name="me")),
    "a goodbye of many subscriptions": ("DISCONNECT", subscribed_often, say("DISCONNECT")),
    "the end of a wildcard": ("UNSUBSCRIBE", subscribed, say("UNSUBSCRIBE", id="0")),
    "the end of a durable name": (
        "UNSUBSCRIBE",
        lambda w: subscribed(w, subscription_name="me"),
        say("UNSUBSCRIBE", id="0", subscription_name="me"),
    ),
    "the end of a consumer": ("UNSUBSCRIBE", consuming, say("UNSUBSCRIBE", id="0")),
    "many messages": ("COMMIT", transaction, say("COMMIT", transaction="t")),
    "many messages with ids": (
        "COMMIT",
        lambda w: transaction(w, "/queue/mem.0", dedup_id="{}"),
        say("COMMIT", transaction="t"),
    ),
    "many messages with ids that came before": ("COMMIT", repeating, say("COMMIT", transaction="t")),
    "many messages to a queue with a limit": (
        "COMMIT",
        lambda w: transaction(w, "/queue/limited", 500),
        say("COMMIT", transaction="t"),
    ),
    "many messages to a queue that drops the oldest": (
        "COMMIT",
        lambda w: transaction(w, "/queue/oldest"),
        say("COMMIT", transaction="t"),
    ),
    "many messages to a queue that drops the newest": (
        "COMMIT",
        lambda w: transaction(w, "/queue/newest"),
        say("COMMIT", transaction="t"),
    ),
    "many messages with a delay": (
        "COMMIT",
        lambda w: transaction(w, "/queue/mem.0", delay="1h"),
        say("COMMIT", transaction="t"),
    ),
    "many acknowledgements": ("COMMIT", answering("ACK"), say("COMMIT", transaction="t")),
    "many refusals": ("COMMIT", answering("NACK"), say("COMMIT", transaction="t")),
    "one acknowledgement of all": ("COMMIT", holding_in_a_transaction, say("COMMIT", transaction="t")),
    "many that are given up": (
        "ABORT",
        lambda w: holding_in_a_transaction(w, DELIVERIES),
        say("ABORT", transaction="t"),
    ),
    "a cumulative ACK": ("ACK", lambda w: holding(w, "client"), answer_all("ACK")),
    "a cumulative ACK in a transaction": ("ACK", lambda w: holding(w, "client"), answer_all("ACK", transaction="t")),
    "a cumulative touch": ("ACK", lambda w: holding(w, "client"), answer_all("ACK", touch="true")),
    "a cumulative NACK": ("NACK", lambda w: holding(w, "client"), answer_all("NACK", requeue="false")),
    "many new destinations": ("COMMIT", created, say("COMMIT", transaction="t")),
    "a goodbye": ("DISCONNECT", subscribed, say("DISCONNECT")),
    "a goodbye of a consumer": ("DISCONNECT", consuming, say("DISCONNECT")),
    "destinations": ("destinations.ls", asking, ask("destinations.ls")),
    "clients": (
        "clients.ls",
        lambda w: ([w.connect() for _ in range(100)], asking(w))[1],
        ask("clients.ls"),
    ),
    "cursors": ("cursors.ls", asking_about_a_name, ask("cursors.ls")),
    "a cursor that is moved": ("cursors.set", asking_about_a_name, ask("cursors.set", name="me", position="first")),
    "a cursor that is deleted": ("cursors.rm", asking_about_a_name, ask("cursors.rm", name="me")),
    "destinations by what waits": ("destinations.ls", asking, ask("destinations.ls", sort="ready", limit=10)),
    "one destination": ("destinations.show", asking_with_consumers, ask("destinations.show", name="/queue/mem.work")),
    "a destination that does not exist": ("destinations.show", asking, ask("destinations.show", name="/topic/mem.x")),
    "a client that does not exist": (
        "clients.disconnect",
        lambda w: ([w.connect() for _ in range(MANY)], asking(w))[1],
        ask("clients.disconnect", session="s1x"),
    ),
    "declared subscriptions": (
        "subscriptions.apply",
        asking,
        ask(
            "subscriptions.apply",
            subscriptions=[{"name": str(each), "destination": f"/topic/mem.{each}"} for each in range(MANY)],
        ),
    ),
    "a queue that is purged": ("queues.purge", asking_about_delays, ask("queues.purge", name="/queue/mem.late")),
}


@pytest.mark.parametrize("name", CASES)
def test_no_turn_does_more_than_its_budget_and_others_are_served_in_between(world: World, name: str) -> None:
    _, prepare, act = CASES[name]
    client, other = prepare(world), world.connect()
    other.publish("/topic/mem.other", "x")
    world.settle()
    budget = world.broker.budget
    assert isinstance(budget, Counted)
    budget.turns.clear()
    act(client)
    served = 0
    while client.rest or world.broker.background.waiting:
        other.publish("/topic/mem.other", "x", receipt=str(served))
        world.commit()
        other.flush()
        assert other.receipts() == [str(served)]
        served += 1
        if client.rest:
            client.go_on()
        assert served < 5_000
    world.settle()
    assert "done" in client.receipts() or client.session.closing
    assert not client.take("ERROR")
    assert max(budget.turns) <= BUDGET + STEP, sorted(budget.turns)[-5:]
    assert served > 3
    assert sum(budget.turns) > 4 * BUDGET


@pytest.mark.parametrize("prepare", [subscribed, consuming, transaction, subscribed_often])
def test_the_end_of_a_connection_is_no_more_in_a_turn_either(world: World, prepare: Callable[[World], Client]) -> None:
    client, other = prepare(world), world.connect()
    for _ in range(3):
        client.say("SUBSCRIBE", destination="/topic/mem.>", id=f"more {_}", ack="auto")
        world.settle()
    budget = world.broker.budget
    assert isinstance(budget, Counted)
    budget.turns.clear()
    client.drop()
    while world.broker.background.waiting:
        other.publish("/topic/mem.other", "x", receipt="r")
        world.commit()
        other.flush()
        assert other.receipts() == ["r"]
    other.drop()
    world.settle()
    assert max(budget.turns) <= BUDGET + STEP
    world.holds_nothing()


@pytest.mark.parametrize("again", [False, True])
def test_commit_does_not_look_among_all_subscriptions_for_what_is_acknowledged(
    world: World, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    client = answered(world)
    if again:
        subscription, number = next(iter(client.session.transactions.by_name["t"].answered))
        _, offset, log = subscription.in_flight[number]
        message_id = f"{log.decode()}{offset}"
        for _ in range(100):
            client.say("ACK", message_id=message_id, transaction="t")
            world.settle()
    looked = 0
    find, was_delivered = Subscription.find, DeliveryNumbers.was_delivered

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            nonlocal looked
            looked += 1
            return function(*args)

        return call

    monkeypatch.setattr(Subscription, "find", counted(find))
    monkeypatch.setattr(DeliveryNumbers, "was_delivered", counted(was_delivered))
    client.say("COMMIT", transaction="t", receipt="done")
    world.settle()
    assert client.receipts() == ["done"] and looked == 0
    assert not any(each.in_flight for each in client.session.subscriptions.by_id.values())
    assert world.broker.stats.late_acks == 100 * again


def test_at_a_stop_no_consumer_is_removed_from_its_queues(world: World) -> None:
    client = subscribed(world)
    world.broker.stopping = True
    budget = world.broker.budget
    assert isinstance(budget, Counted)
    budget.begin()
    budget.turns.clear()
    client.drop()
    assert not world.broker.background.waiting
    assert budget.spent == 0


def test_every_command_and_verb_has_a_case() -> None:
    assert {"SEND", *COMMANDS, *VERBS} == {command for command, _, _ in CASES.values()} | set(SMALL)
