"""What was ended for good while its dead-letter destination took nothing is not delivered again, whatever happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.harness import Client, World

RULES = """
destinations:
  - {match: /queue/q, dead_letter: /queue/dead, on_unacked: ON, prefetch: 5}
  - {match: /queue/dead, max_messages: 1}
"""


def held_back(end: Callable[[Client], None], on: str = "requeue") -> World:
    """One message of /queue/q came to its end with a receipt while its dead-letter queue was full."""
    world = World(RULES.replace("ON", on))
    client = world.connect()
    client.publish("/queue/dead", "full")
    client.subscribe("/queue/q", id="q")
    client.publish("/queue/q", "poison", "held")
    world.settle()
    end(client)
    world.settle()
    assert world.broker.timing.deferred >= 1
    return world


def reject(client: Client) -> None:
    client.nack(client.messages()[0], requeue="false", receipt="r")
    client.world.settle()
    assert client.receipts() == ["r"]


def heard(world: World, name: str) -> list[tuple[str, str | None, str | None]]:
    client = world.connect()
    client.subscribe(name, prefetch_count=10)
    world.settle()
    messages = client.messages()
    for message in messages:
        client.ack(message)
    world.settle()
    client.drop()
    return [(m.body.decode(), m.headers.get("dlq-reason"), m.headers.get("dlq-deliveries")) for m in messages]


@pytest.mark.parametrize("again", ["restart", "kill", "power_cut"])
def test_a_rejected_message_is_a_dead_letter_after_any_start(again: str) -> None:
    world = held_back(reject)
    for _ in range(2):
        getattr(world, again)()
        world.tick(1)
    assert [body for body, *_ in heard(world, "/queue/q")] == ["held"]
    assert heard(world, "/queue/dead") == [("full", None, None)]
    world.tick(70)
    assert heard(world, "/queue/dead") == [("poison", "rejected", "1")]
    assert "poison" not in [body for body, *_ in heard(world, "/queue/q")]


def test_what_its_consumer_left_keeps_its_reason() -> None:
    world = held_back(Client.drop, "dead_letter")
    world.restart()
    assert heard(world, "/queue/q") == []
    assert heard(world, "/queue/dead") == [("full", None, None)]
    world.tick(70)
    assert heard(world, "/queue/dead")[0] == ("poison", "unacked", "1")
    world.tick(70)
    assert heard(world, "/queue/dead") == [("held", "unacked", "1")]


def test_without_a_dead_letter_rule_after_the_start_it_is_dropped_as_it_would_have_been() -> None:
    world = held_back(reject)
    world.stop()
    world.config = World("").config
    world.start()
    assert [body for body, *_ in heard(world, "/queue/q")] == ["held"]
    assert world.broker.stats.dropped_rejected == 1
