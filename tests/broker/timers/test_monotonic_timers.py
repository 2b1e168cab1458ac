"""The wall clock steps: no time-out, pause or limit of a rate comes earlier or later for it."""

from __future__ import annotations

import pytest

from tests.broker.harness import World

HOUR = 3_600
STEPS = pytest.mark.parametrize("step", [120, 365 * 24 * HOUR, -120, -HOUR])
RULES = """
destinations:
  - match: /queue/slow
    ack_timeout: 60s
    redeliver: {max: 2}
    dead_letter: /queue/dead
  - match: /queue/full
    max_messages: 1
    on_full: block
    block_timeout: 10s
  - match: /queue/rated
    rate_limit: {messages: 1, burst: 1}
"""


@STEPS
def test_a_message_under_ack_timeout_goes_to_no_second_worker(step: float) -> None:
    world = World(RULES)
    first, second = world.connect(), world.connect()
    first.subscribe("/queue/slow", max_in_flight=1)
    world.connect().publish("/queue/slow", "x")
    world.settle()
    (message,) = first.messages()
    second.subscribe("/queue/slow", max_in_flight=1)
    for _ in range(3):
        world.step(step)
        world.tick(0.05)
    assert second.bodies() == []
    world.tick(59)
    assert second.bodies() == []
    first.ack(message, receipt="done")
    world.settle()
    assert first.receipts() == ["done"]
    world.tick(61)
    assert second.bodies() == [] and world.broker.stats.ack_timeouts == 0


def test_steps_destroy_no_message_through_its_deliveries() -> None:
    world = World(RULES)
    client = world.connect()
    client.subscribe("/queue/slow")
    client.publish("/queue/slow", "x")
    world.settle()
    for _ in range(10):
        world.step(120)
        world.tick(1)
    assert [each.headers.get("redelivered") for each in client.messages()] in ([None], ["false"])
    assert world.broker.stats.dead_lettered == world.broker.stats.dropped_max_deliveries == 0


@STEPS
def test_a_pause_after_a_nack_is_as_long_as_it_was(step: float) -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x")
    world.settle()
    client.nack(client.messages()[0], delay="10s")
    world.settle()
    world.step(step)
    world.tick(9.9)
    assert client.bodies() == []
    world.tick(0.2)
    assert client.bodies() == ["x"]


@STEPS
def test_a_blocked_producer_waits_as_long_as_its_rule_says(step: float) -> None:
    world = World(RULES)
    client = world.connect()
    client.publish("/queue/full", "1", "2")
    world.settle()
    world.step(step)
    world.tick(9.9)
    assert not client.session.closing
    world.tick(0.2)
    assert client.error() == "full"


@STEPS
def test_a_rate_limit_lets_through_what_time_allows(step: float) -> None:
    world = World(RULES)
    client = world.connect()
    client.publish("/queue/rated", "1", "2", "3")
    world.settle()
    assert world.broker.stats.messages_in == 1
    world.step(step)
    world.tick(0.9)
    assert world.broker.stats.messages_in == 1
    world.tick(0.2)
    assert world.broker.stats.messages_in == 2


def test_a_delay_is_judged_by_the_wall_clock() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", ack="auto")
    client.publish("/queue/a", "x", delay="60s")
    client.publish("/queue/a", "y", delay="120s")
    world.settle()
    world.step(60)
    world.tick(0)
    assert client.bodies() == ["x"]
    world.step(-30)
    world.tick(60)
    assert client.bodies() == []
    world.tick(30)
    assert client.bodies() == ["y"]
