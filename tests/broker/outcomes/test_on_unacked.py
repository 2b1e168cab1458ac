"""``on_unacked``: what becomes of what a consumer held that is gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.harness import Client, World, bodies

DEAD = "destinations: [{match: /queue/a, on_unacked: dead_letter, dead_letter: /queue/dead, prefetch: 10}]"
DELETE = "destinations: [{match: /queue/a, on_unacked: delete, prefetch: 10}]"
REQUEUE = "destinations: [{match: /queue/a, on_unacked: requeue, prefetch: 10}]"


def unsubscribes(client: Client) -> None:
    client.say("UNSUBSCRIBE", id="0", receipt="r")


def disconnects(client: Client) -> None:
    client.say("DISCONNECT", receipt="r")


def is_lost(client: Client) -> None:
    client.drop()


def errs(client: Client) -> None:
    client.say("NONSENSE")


GOES = [unsubscribes, disconnects, is_lost, errs]


def holding(world: World, *texts: str, **headers: str) -> Client:
    client = world.connect()
    client.subscribe("/queue/a", **headers)
    client.publish("/queue/a", *texts)
    world.settle()
    return client


def waiting(world: World, name: str) -> list[str]:
    client = world.connect()
    client.subscribe(name, prefetch_count=10)
    world.settle()
    return bodies(client.messages())


@pytest.mark.parametrize("goes", GOES)
@pytest.mark.parametrize(
    ("config", "left", "dead", "deleted"),
    [(REQUEUE, ["1", "2"], [], 0), (DEAD, [], ["1", "2"], 0), (DELETE, [], [], 2)],
)
def test_the_rule_says_what_becomes_of_what_a_lost_consumer_held(
    goes: Callable[[Client], None], config: str, left: list[str], dead: list[str], deleted: int
) -> None:
    world = World(config)
    client = holding(world, "0", "1", "2")
    client.ack(client.messages()[0])
    world.settle()
    goes(client)
    world.settle()
    assert waiting(world, "/queue/a") == left
    assert waiting(world, "/queue/dead") == dead
    assert world.broker.stats.dropped_unacked == deleted
    world.kill()
    assert waiting(world, "/queue/a") == left
    assert waiting(world, "/queue/dead") == dead


def test_a_dead_letter_of_a_lost_consumer_says_so() -> None:
    world = World(DEAD)
    holding(world, "x").drop()
    world.settle()
    reader = world.connect()
    reader.subscribe("/queue/dead")
    world.settle()
    (letter,) = reader.messages()
    assert letter.headers["dlq-reason"] == "unacked"
    assert letter.headers["dlq-destination"] == "/queue/a"
    assert letter.headers["dlq-deliveries"] == "1"


@pytest.mark.parametrize("config", [DEAD, DELETE])
def test_what_no_consumer_held_stays(config: str) -> None:
    world = World(config)
    client = holding(world, "1", "2", "3", prefetch_count="2")
    client.drop()
    world.settle()
    assert waiting(world, "/queue/a") == ["3"]


@pytest.mark.parametrize("config", [DEAD, DELETE])
def test_a_nack_and_a_timeout_are_not_the_loss_of_a_consumer(config: str) -> None:
    world = World(config.replace("prefetch: 10", "ack_timeout: 5s, redeliver: {delay: 0ms}"))
    client = holding(world, "x")
    client.nack(client.messages()[0])
    world.settle()
    (again,) = client.messages()
    assert again.headers["delivery-count"] == "2"
    world.tick(6)
    (again,) = client.messages()
    assert again.headers["delivery-count"] == "3"


@pytest.mark.parametrize("config", [DEAD, DELETE])
def test_a_stop_or_kill_of_the_broker_does_not_count_as_a_lost_consumer(config: str) -> None:
    world = World(config)
    holding(world, "x")
    world.kill()
    client = world.connect()
    client.subscribe("/queue/a")
    world.settle()
    assert bodies(client.messages()) == ["x"]
    world.broker.stopping = True
    world.restart()
    assert waiting(world, "/queue/a") == ["x"]


@pytest.mark.parametrize("config", [DEAD, DELETE])
def test_what_an_automatic_consumer_was_not_sent_yet_stays(config: str) -> None:
    world = World(config)
    client = world.connect()
    client.subscribe("/queue/a", ack="auto")
    client.publish("/queue/a", "x")
    world.commit()
    world.pump()
    client.drop()  # before a byte of it was written
    world.settle()
    assert waiting(world, "/queue/a") == ["x"]


def test_a_durable_subscription_comes_back_for_what_it_held_and_a_group_is_a_queue() -> None:
    world = World("defaults: {on_unacked: delete}")
    for headers, left in (({"subscription_name": "s"}, ["x"]), ({"group": "g"}, [])):
        client = world.connect()
        client.subscribe("/topic/a", **headers)
        world.settle()
        client.publish("/topic/a", "x")
        world.settle()
        assert bodies(client.messages()) == ["x"]
        client.drop()
        world.settle()
        client = world.connect()
        client.subscribe("/topic/a", **headers)
        world.settle()
        assert bodies(client.messages()) == left


def test_a_waiting_sender_gets_the_room_of_deleted_messages() -> None:
    rule = "{match: /queue/a, on_unacked: delete, max_messages: 1, on_full: block, block_timeout: none}"
    world = World(f"destinations: [{rule}]")
    client = holding(world, "1")
    sender = world.connect()
    sender.publish("/queue/a", "2", receipt="r")
    world.settle()
    assert sender.receipts() == []
    client.drop()
    world.settle()
    assert sender.receipts() == ["r"]
    assert waiting(world, "/queue/a") == ["2"]


@pytest.mark.parametrize("how", ["unsubscribes", "is deleted"])
def test_what_the_last_member_held_of_a_group_that_ends_is_not_forgotten(how: str) -> None:
    world = World("destinations: [{match: /topic/a, on_unacked: dead_letter, dead_letter: /queue/dead}]")
    client = world.connect()
    client.subscribe("/topic/a", group="g", prefetch_count="2")
    world.settle()
    client.publish("/topic/a", "1", "2", "3")
    world.settle()
    assert bodies(client.messages()) == ["1", "2"]
    if how == "unsubscribes":
        client.say("UNSUBSCRIBE", id="0", group="g", receipt="r")
    else:
        order = '{"do": "cursors.rm", "name": "group:g"}'
        world.connect().say("SEND", order, destination="/radiator/admin", reply_to="/temp-queue/answers")
    world.settle()
    assert world.broker.durable.by_key == {}
    world.kill()
    assert waiting(world, "/queue/dead") == ["1", "2"]
