"""A drain: new clients are refused, and the others leave one after the other with nothing in their hands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from radiator.broker.admin import connection_verbs, readiness
from radiator.broker.clients.identity import Identity
from radiator.routing.rights import Rights
from tests.broker.harness import Client, World, bodies

STAYS = {"while_draining": "true"}


@pytest.fixture
def operator(world: World) -> Client:
    return world.connect(**STAYS)


def ask(client: Client, **args: Any) -> dict[str, Any]:
    send(client, **args)
    (answer,) = client.messages()
    found: dict[str, Any] = json.loads(answer.body)
    return found


def knock(world: World, **headers: str) -> Client:
    client = Client(world)
    client.say("CONNECT", accept_version="1.2", host="test", **headers)
    world.settle()
    return client


def send(client: Client, **args: Any) -> None:
    body = json.dumps({"do": "broker.drain", **args})
    client.say("SEND", body, destination="/radiator/admin", reply_to="/temp-queue/answers")
    client.world.settle()


def pass_time(world: World, seconds: float, step: float = 0.25) -> None:
    for _ in range(round(seconds / step)):
        world.tick(step)
        world.settle()


def test_new_clients_are_refused_and_administrators_accepted_until_the_drain_is_cancelled(
    world: World, operator: Client
) -> None:
    answer = ask(operator, seconds=60)
    assert (answer["draining"], answer["ends_in_seconds"], answer["connections"]) == (True, None, 0)
    assert knock(world).error() == "draining"
    assert ask(Client(world, **STAYS).open())["draining"]
    assert not ask(operator, cancel=True)["draining"]
    world.connect()


def test_only_administrators_are_accepted_while_the_broker_drains(world: World, operator: Client) -> None:
    ask(operator)
    world.broker.access.use(lambda login: login.decide(Identity("", Rights({"read": ["#"]}), "users")))
    assert knock(world, **STAYS).error() == "draining"


def test_the_sessions_end_spread_over_the_period_and_an_operator_stays(world: World, operator: Client) -> None:
    clients = [world.connect() for _ in range(30)]
    assert ask(operator, seconds=30)["connections"] == 30
    left = []
    for _ in range(20):
        pass_time(world, 1)
        left.append(sum(not each.session.closing for each in clients))
    assert left[-1] == 0
    assert max(before - after for before, after in zip([30, *left], left, strict=False)) <= 3
    assert {each.error() for each in clients} == {"draining"}
    assert not operator.session.closing
    assert world.broker.draining.done


def test_a_consumer_gets_no_new_message_and_leaves_when_it_has_acknowledged(world: World, operator: Client) -> None:
    consumer = world.connect()
    consumer.subscribe("/queue/work", prefetch_count=10)
    consumer.publish("/queue/work", "1", "2")
    world.settle()
    first, second = consumer.messages()
    ask(operator, seconds=60)
    pass_time(world, 1)
    operator.publish("/queue/work", "3")
    consumer.ack(first)
    pass_time(world, 1)
    assert consumer.messages() == [] and not consumer.session.closing
    consumer.ack(second)
    pass_time(world, 0.5)
    assert consumer.error() == "draining"
    operator.subscribe("/queue/work")
    world.settle()
    assert bodies(operator.messages()) == ["3"]


def test_what_is_not_acknowledged_in_time_returns_whatever_on_unacked_says() -> None:
    world = World("destinations: [{match: /queue/work, on_unacked: delete}]")
    operator, consumer = world.connect(**STAYS), world.connect()
    consumer.subscribe("/queue/work")
    consumer.publish("/queue/work", "1")
    world.settle()
    assert bodies(consumer.messages()) == ["1"]
    ask(operator, seconds=9)
    pass_time(world, 2)
    assert not consumer.session.closing
    pass_time(world, 2)  # the grace is a third of the period
    assert consumer.error() == "draining"
    operator.subscribe("/queue/work")
    world.settle()
    assert bodies(operator.messages()) == ["1"]


def test_an_open_transaction_may_be_committed(world: World, operator: Client) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish("/queue/work", "1", transaction="t")
    ask(operator, seconds=60)
    pass_time(world, 1)
    assert not client.session.closing
    client.say("COMMIT", "", "done", transaction="t")
    pass_time(world, 0.5)
    assert client.receipts() == ["done"]
    assert client.error() == "draining"


def test_receipts_come_before_the_error(world: World, operator: Client) -> None:
    client = world.connect()
    ask(operator, seconds=0)
    client.say("SEND", "1", "r", destination="/queue/work")
    world.tick(0.25)
    world.settle()
    assert [frame.command for frame in client.take()] == ["RECEIPT", "ERROR"]


def test_after_a_cancel_everything_that_waited_is_delivered(world: World, operator: Client) -> None:
    client = world.connect()
    client.subscribe("/queue/work", "q", prefetch_count=10)
    client.subscribe("/topic/news", "t")
    for number in ("1", "2"):
        operator.publish("/queue/work", f"queue {number}")
        operator.publish("/topic/news", f"topic {number}")
        world.settle()
        if number == "1":
            assert sorted(bodies(client.messages())) == ["queue 1", "topic 1"]
            ask(operator, seconds=60)
            pass_time(world, 10)
    assert client.messages() == []
    ask(operator, cancel=True)
    world.settle()
    assert sorted(bodies(client.messages())) == ["queue 2", "topic 2"]
    pass_time(world, 60)
    assert not client.session.closing


def test_a_request_can_wait_for_the_end(world: World, operator: Client) -> None:
    client = world.connect()
    send(operator, seconds=30, wait=True)
    assert operator.messages() == []
    pass_time(world, 1)
    assert client.error() == "draining"
    (answer,) = operator.messages()
    assert json.loads(answer.body)["connections"] == 0


def test_too_many_requests_that_wait_are_refused(
    world: World, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_verbs, "WAITING_MAX", 1)
    world.connect()
    send(operator, seconds=30, wait=True)
    assert ask(operator, wait=True)["error"]["code"] == "too-many"


def test_another_request_without_seconds_leaves_the_period_as_it_is(world: World, operator: Client) -> None:
    holder = world.connect()
    holder.say("BEGIN", transaction="t")
    world.settle()
    ask(operator, seconds=60)
    pass_time(world, 15)
    assert ask(operator)["ends_in_seconds"] == 45
    assert ask(operator, seconds=90)["ends_in_seconds"] == 90
    assert not holder.session.closing
    ask(operator, seconds=1)
    pass_time(world, 1.25)  # also for a session whose turn had come before
    assert holder.error() == "draining"


def test_a_draining_broker_is_not_ready_and_says_why(world: World, operator: Client) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    ask(operator, seconds=60)
    assert readiness.reasons(world.broker) == ["the broker is draining: 1 connection ends within 60 s"]
    pass_time(world, 60)
    assert readiness.reasons(world.broker) == ["the broker is drained: all clients are disconnected"]
    ask(operator, cancel=True)
    assert readiness.reasons(world.broker) == []


def test_without_the_admin_right_nobody_can_drain(world: World) -> None:
    client = world.connect()
    client.become(rights=Rights({"read": ["#"]}))
    client.say("SEND", '{"do": "broker.drain"}', destination="/radiator/admin", reply_to="/temp-queue/a")
    world.settle()
    assert '"code": "denied"' in client.bodies()[0]
    assert not world.broker.draining.active
