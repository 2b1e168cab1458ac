"""Names come and go: what only subscriptions made is forgotten with the last of them, and what holds messages stays."""

from __future__ import annotations

import pytest

from tests.broker.harness import Client, World

T, Q = "/topic/a", "/queue/a"


def visit(client: Client, *names: str) -> None:
    """Subscribe and leave again."""
    for name in names:
        client.subscribe(name, id="x", ack="auto")
        client.say("UNSUBSCRIBE", id="x")


def facts(world: World) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """Everything that is remembered of names."""
    return sorted(world.broker.destinations), sorted(world.store.partitions), sorted(world.store.cursors.names())


NOTHING: tuple[list[str], list[str], list[tuple[str, str]]] = ([], [], [])


@pytest.mark.parametrize("ending", ["UNSUBSCRIBE", "DISCONNECT", "drop", "error"])
def test_names_that_only_a_subscription_made_are_forgotten_with_it(world: World, ending: str) -> None:
    client = world.connect()
    for number in range(20):
        client.subscribe(f"/queue/{number}", id=f"q{number}")
        client.subscribe(f"/topic/{number}", id=f"t{number}")
    client.subscribe("/queue/x,/topic/x", id="list")
    world.settle()
    assert len(world.broker.destinations) == 42
    if ending == "UNSUBSCRIBE":
        for subscription_id in list(client.session.subscriptions.by_id):
            client.say("UNSUBSCRIBE", id=subscription_id)
    elif ending == "drop":
        client.drop()
    else:
        client.say("DISCONNECT" if ending == "DISCONNECT" else "NONSENSE")
    world.settle()
    assert facts(world) == NOTHING
    world.restart()
    assert facts(world) == NOTHING


@pytest.mark.parametrize("death", ["restart", "kill", "power_cut"])
def test_cursors_of_forgotten_queues_do_not_come_back_with_a_start(world: World, death: str) -> None:
    client = world.connect()
    visit(client, *[f"/queue/{number}" for number in range(50)])
    world.settle()
    getattr(world, death)()
    assert facts(world) == NOTHING


@pytest.mark.parametrize("death", ["kill", "power_cut"])
def test_cursors_of_queues_that_a_start_no_longer_knows_are_forgotten(world: World, death: str) -> None:
    """The broker died while somebody was subscribed to queues that never had a message."""
    client = world.connect()
    for number in range(50):
        client.subscribe(f"/queue/{number}", id=str(number))
    world.settle()
    getattr(world, death)()
    assert facts(world) == NOTHING


def test_names_stay_while_they_have_subscribers(world: World) -> None:
    first, second = world.connect(), world.connect()
    first.subscribe(Q)
    second.subscribe(Q)
    first.drop()
    world.settle()
    assert Q in world.broker.destinations
    second.publish(Q, "m")
    world.settle()
    assert second.bodies() == ["m"]


@pytest.mark.parametrize("name", [T, Q])
def test_names_with_messages_stay(world: World, name: str) -> None:
    client = world.connect()
    client.publish(name, "m")
    visit(client, name)
    world.settle()
    visit(client, name)
    assert name in world.broker.destinations
    client.subscribe(name, start_position="first")
    world.settle()
    assert client.bodies() == ["m"] or name == Q
    world.restart()
    assert name in world.broker.destinations


def test_a_message_that_is_not_stored_yet_keeps_its_name(world: World) -> None:
    client = world.connect()
    client.subscribe(Q, id="x")
    client.publish(Q, "m", receipt="r")
    client.say("UNSUBSCRIBE", id="x")
    assert Q in world.broker.destinations
    world.settle()
    assert client.receipts() == ["r"]
    client.subscribe(Q)
    world.settle()
    assert client.bodies() == ["m"]


@pytest.mark.parametrize("name", [T, Q])
def test_names_in_a_log_with_messages_of_others_are_forgotten_too(name: str) -> None:
    world = World("destinations: [{match: '#', partition: shared}]")
    client = world.connect()
    client.publish("/topic/kept", "m")
    client.publish("/queue/kept", "m")
    world.settle()
    visit(client, *[f"{name}{number}" for number in range(30)])
    world.settle()
    assert sorted(world.broker.destinations) == ["/queue/kept", "/topic/kept"]
    assert world.store.cursors.names() == [("queue:/queue/kept", "shared")]
    client.subscribe(f"{name}3", ack="auto")
    client.publish(f"{name}3", "m2")
    world.settle()
    assert client.bodies() == ["m2"]
    world.restart()
    assert sorted(world.broker.destinations) == sorted(["/queue/kept", "/topic/kept", f"{name}3"])


@pytest.mark.parametrize("store", ["file", "memory"])
@pytest.mark.parametrize("name", [T, Q])
def test_a_header_block_understood_before_its_destination_was_forgotten_is_understood_again(
    name: str, store: str
) -> None:
    """What a SEND's headers mean is remembered, with the destination in it: that one may be gone meanwhile."""
    world = World(f"destinations: [{{match: '{name}', store: {store}}}]")
    sender, client = world.connect(), world.connect()
    sender.publish(name, "0", mandatory="true")  # understood, and refused: nobody is subscribed
    assert sender.error() == "no-route"
    sender = world.connect()
    visit(client, name)
    assert name not in world.broker.destinations
    for number in range(3):
        client.subscribe(name, id="s", ack="auto")
        sender.publish(name, f"{number}", receipt=f"{number}", mandatory="true")
        world.settle()
        assert client.bodies() == [f"{number}"]
        assert sender.receipts() == [f"{number}"]
        client.say("UNSUBSCRIBE", id="s")
    assert world.broker.pending_bytes == 0
    assert world.store.partitions[name].high_watermark == 3


def test_a_transaction_may_outlive_the_destination_it_names(world: World) -> None:
    sender, client = world.connect(), world.connect()
    client.subscribe(Q, id="x")
    sender.say("BEGIN", transaction="t")
    sender.publish(Q, "m", transaction="t")
    client.say("UNSUBSCRIBE", id="x")
    assert Q not in world.broker.destinations
    sender.say("COMMIT", transaction="t", receipt="c")
    client.subscribe(Q, id="y", ack="auto")
    world.settle()
    assert sender.receipts() == ["c"]
    assert client.bodies() == ["m"]


def test_repeated_subscriptions_cost_no_memory(world: World) -> None:
    client, sender = world.connect(), world.connect()
    client.subscribe("/queue/*", id="pattern", ack="auto")
    for number in range(300):
        client.subscribe(f"/queue/reply-{number}", id="x", ack="auto")
        client.say("UNSUBSCRIBE", id="x")
        if number % 50 == 0:
            world.settle()
    client.say("UNSUBSCRIBE", id="pattern")
    world.settle()
    assert facts(world) == NOTHING
    assert not world.broker.dirty_sources
    client.subscribe("/queue/reply-7", ack="auto")
    sender.publish("/queue/reply-7", "m")
    world.settle()
    assert client.bodies() == ["m"]


def test_names_that_a_pattern_holds_as_well_are_forgotten_with_the_last(world: World) -> None:
    one, two = world.connect(), world.connect()
    one.subscribe("/queue/*", id="pattern")
    two.subscribe(Q, id="name")
    two.say("UNSUBSCRIBE", id="name")
    assert Q in world.broker.destinations
    one.say("UNSUBSCRIBE", id="pattern")
    assert facts(world)[0] == []
