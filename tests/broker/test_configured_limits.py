"""What the YAML file bounds, the broker bounds, and whoever meets a limit is told its key."""

from __future__ import annotations

import pytest

from radiator.config import load_text
from tests.broker.harness import Client, World

CONFIG = """\
limits: {in_flight: 3, subscriptions: 2, transactions: 2, transaction: 1KiB, destinations: 3, outbox: 4KiB}
"""


@pytest.fixture
def client() -> Client:
    return World(CONFIG).connect()


def refusal(client: Client) -> tuple[str, str]:
    """Code and body of the ERROR that came."""
    client.world.settle()
    (frame,) = client.take("ERROR")
    return frame.headers["error-code"], frame.body.decode()


def test_a_session_has_the_configured_limits(client: Client) -> None:
    assert client.session.limits is client.world.broker.config.limits


def test_too_many_subscriptions_names_the_key(client: Client) -> None:
    for number in range(3):
        client.subscribe("/topic/a", id=str(number))
    code, body = refusal(client)
    assert (code, "limits.subscriptions in the YAML file is 2" in body) == ("too-many", True)


def test_too_many_transactions_names_the_key(client: Client) -> None:
    for name in "abc":
        client.say("BEGIN", transaction=name)
    code, body = refusal(client)
    assert (code, "limits.transactions in the YAML file is 2" in body) == ("too-many", True)


def test_a_transaction_that_holds_too_much_names_the_key(client: Client) -> None:
    client.say("BEGIN", transaction="a")
    client.publish("/topic/a", "x" * 1024, transaction="a")
    code, body = refusal(client)
    assert (code, "limits.transaction in the YAML file is 1024 bytes" in body) == ("too-large", True)


def test_too_many_destinations_names_the_key(client: Client) -> None:
    for number in range(4):
        client.publish(f"/topic/{number}", "x")
    code, body = refusal(client)
    assert (code, "limits.destinations in the YAML file is 3" in body) == ("too-many", True)


def test_what_the_log_holds_is_there_after_a_start_even_above_the_limit() -> None:
    world = World()
    world.connect().publish("/topic/a", "1")
    world.connect().publish("/topic/b", "2")
    world.settle()
    world.stop()
    world.config = load_text("limits: {destinations: 1}")
    world.start()
    assert set(world.broker.destinations) == {"/topic/a", "/topic/b"}
    client = world.connect()
    client.publish("/topic/a", "3")
    client.publish("/topic/c", "4")
    assert refusal(client)[0] == "too-many"


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize", "credit"])
def test_a_window_above_the_limit_names_the_key(client: Client, header: str) -> None:
    client.subscribe("/queue/a", **{header: "4"})
    code, body = refusal(client)
    assert (code, "limits.in_flight in the YAML file is 3" in body) == ("bad-header", True)


def test_deliveries_pause_at_the_configured_outbox() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/topic/a", ack="auto")
    world.connect().publish("/topic/a", *("x" * 500 for _ in range(100)))
    world.commit()
    while world.pump():
        pass
    assert 0 < client.session.outbox.unsent_bytes <= 2 * 4096
    world.settle()
    assert len(client.messages()) == 100


# --- on_full: drop_oldest ---------------------------------------------------------------------------------------------


def test_a_topic_in_memory_keeps_the_newest_as_drop_oldest_says() -> None:
    world = World(
        "destinations: [{match: /topic/a, store: memory, retention: {count: 3}, on_full: drop_oldest}]",
    )
    sender = world.connect()
    for number in range(6):
        sender.publish("/topic/a", str(number))
        world.settle()
    client = world.connect()
    client.subscribe("/topic/a", ack="auto", start_position="first")
    world.settle()
    assert client.bodies() == ["3", "4", "5"]


@pytest.mark.parametrize("bound", ["max_messages: 2", "max_bytes: 400B"])
def test_a_full_queue_gives_up_its_oldest_message(bound: str) -> None:
    world = World(f"destinations: [{{match: /queue/a, {bound}, on_full: drop_oldest}}]")
    sender = world.connect()
    for number in range(6):
        sender.publish("/queue/a", f"{number}".ljust(100))
        world.settle()
    assert world.broker.stats.dropped_oldest == 4
    client = world.connect()
    client.subscribe("/queue/a", ack="auto")
    world.settle()
    assert [body.strip() for body in client.bodies()] == ["4", "5"]


def test_topics_in_memory_are_never_refused_and_never_hold_more_than_their_part() -> None:
    """Nobody needs their old messages, so these go; what was sent in all does not matter."""
    world = World("limits: {memory: 1MiB}\ndestinations: [{match: '#', store: memory}]\n")
    client = world.connect()
    reader = world.connect()
    reader.subscribe("/topic/0", ack="client", prefetch_count="1")
    for number in range(400):
        client.publish(f"/topic/{number % 7}", b"x" * 10_000, receipt=str(number))
        world.settle()
    assert len(client.receipts()) == 400
    figures = world.broker.memory.figures()
    assert figures["messages"] <= 3 / 4 * figures["limit"]
    assert world.broker.stats.memory_refusals == world.broker.stats.memory_pauses == 0
