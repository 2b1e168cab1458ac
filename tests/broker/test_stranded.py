"""Rules that name other logs than before: what is left in the old ones is told, not forgotten."""

from __future__ import annotations

import logging

import pytest

from radiator.config.load import load_text
from tests.broker.harness import World


def rule(more: str) -> str:
    return f"destinations: [{{match: /queue/a{more}}}]"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ", partitions: 3"),
        (", partitions: 3", ""),
        ("", ", partition: other"),
        ("", ", priority: true"),
        (", priority: true", ""),
    ],
)
def test_messages_in_logs_that_a_rule_reads_no_more_are_told_at_the_start(
    before: str, after: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(rule(before))
    world.connect().publish("/queue/a", "1", "2")
    world.stop()
    world.config = load_text(rule(after))
    with caplog.at_level(logging.WARNING, "radiator.broker"):
        world.start()
    assert any("queue:/queue/a" in text and "not settled" in text for text in caplog.messages)
    world.stop()
    world.config = load_text(rule(before))
    caplog.clear()
    world.start()
    assert not caplog.messages
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=9)
    world.settle()
    assert sorted(client.bodies()) == ["1", "2"]


def test_an_old_log_that_is_settled_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World(rule(""))
    client = world.connect()
    client.subscribe("/queue/a", ack="auto")
    client.publish("/queue/a", "1")
    world.stop()
    world.config = load_text(rule(", partitions: 3"))
    world.start()
    assert not caplog.messages


def test_a_group_whose_topic_is_spread_over_more_logs_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World("destinations: [{match: /topic/a}]")
    client = world.connect()
    client.subscribe("/topic/a", group="G")
    world.settle()
    client.drop()
    world.connect().publish("/topic/a", "1")
    world.stop()
    world.config = load_text("destinations: [{match: /topic/a, partitions: 4}]")
    world.start()
    assert any("group:G" in text and "up to 1 messages" in text for text in caplog.messages)


def test_what_others_have_in_a_log_that_is_shared_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World("destinations: [{match: '/queue/*', partition: all}]")
    client = world.connect()
    client.subscribe("/queue/a")
    world.settle()
    client.publish("/queue/b", "1")
    world.restart()
    assert not caplog.messages


def test_a_delay_on_a_queue_with_fan_out_is_refused_in_words_that_fit() -> None:
    world = World("destinations: [{match: /queue/a, fan_out: [/queue/b]}]")
    client = world.connect()
    client.publish("/queue/a", "1", delay="1s")
    world.settle()
    (error,) = client.take("ERROR")
    assert "fan_out" in error.headers["message"]
