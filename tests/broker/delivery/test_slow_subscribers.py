"""Subscribers that do not keep up: what they miss, who is told, and who is not harmed."""

from __future__ import annotations

import pytest

from radiator.config import LimitsConfig
from tests.broker.harness import Client, World

BODY = "x" * 1_000


def stalled(store: str) -> tuple[World, Client, Client]:
    """A topic with a subscriber that does not read for 200 messages, and one that does."""
    config = f"destinations: [{{match: /topic/t, store: {store}, retention: {{count: 50}}}}]"
    world = World(config, limits=LimitsConfig(outbox=5_000))
    slow, quick, sender = world.connect(), world.connect(), world.connect()
    for client in (slow, quick):
        client.subscribe("/topic/t", ack="auto")
    for number in range(200):
        sender.publish("/topic/t", f"{number} {BODY}")
        world.commit()
        world.reads()
        world.pump()
        quick.flush()
    assert [int(each.split()[0]) for each in quick.bodies()] == list(range(200))
    return world, slow, quick


def test_a_slow_subscriber_of_a_memory_topic_misses_the_oldest_and_gets_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    world, slow, _ = stalled("memory")
    world.settle()
    messages = slow.messages()
    offsets = [int(each.headers["offset"]) for each in messages]
    assert offsets[-50:] == list(range(150, 200))
    told = [int(each.headers["gap"]) for each in messages if "gap" in each.headers]
    assert sum(told) == 200 - len(offsets) == world.broker.stats.missed_by_slow > 0
    warnings = [each for each in caplog.records if "too slow" in each.getMessage()]
    assert len(warnings) == 1


def test_of_a_topic_in_files_it_misses_nothing() -> None:
    world, slow, _ = stalled("file")
    world.settle()
    assert [int(each.split()[0]) for each in slow.bodies()] == list(range(200))
    assert world.broker.stats.missed_by_slow == 0
