"""Dead letters that come back: where the rules do not show it, a message ends after some rounds."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.broker.outcomes.dead_letters import HOPS_MAX
from radiator.clock import NS_PER_MS
from tests.broker.harness import NOW, Client, World

NOW_MS = NOW // NS_PER_MS
# Which names the wildcards will stand for is not known when the file is read.
ROUND = """
destinations:
  - {match: '/queue/here.*', message_ttl: 1s, dead_letter_expired: true, dead_letter: '/queue/there.{1}'}
  - {match: '/queue/there.*', message_ttl: 1s, dead_letter_expired: true, dead_letter: '/queue/here.{1}'}
"""
FANNED = """
destinations:
  - {match: '/queue/parent.*', fan_out: ['/queue/a.{1}', '/queue/b.{1}']}
  - {match: '/queue/a.*', dead_letter: '/queue/parent.{1}'}
"""


def messages_of(client: Client, world: World) -> list[Any]:
    world.settle()
    return client.messages()


def test_what_expires_in_a_circle_ends(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ROUND)
    world.connect().publish("/queue/here.1", "x")
    world.settle()
    for _ in range(50):
        world.tick(1.1)
    assert world.broker.stats.dead_lettered == HOPS_MAX
    assert world.broker.stats.dropped_in_circles == 1
    assert "dead letters in circles" in caplog.text and "/queue/here.1" in caplog.text
    for name in ("/queue/here.1", "/queue/there.1"):
        queue = world.broker.destination(name).queue
        assert queue is not None and not any(
            list(each.cursor.unacked(each.feed.partition.high_watermark)) for each in queue.sources
        )


def test_what_is_refused_in_a_circle_through_a_fan_out_ends() -> None:
    world = World(FANNED)
    refuser = world.connect()
    refuser.subscribe("/queue/a.1")
    world.connect().publish("/queue/parent.1", "x")
    hops, begun, received = [], world.now, set()
    for _ in range(50):
        for message in messages_of(refuser, world):
            hops.append(message.headers.get("dlq-hops"))
            received.add(message.headers.get("dlq-received", "none yet"))
            refuser.nack(message, requeue="false", receipt="r")
        world.tick(1)
    assert received == {"none yet", str(begun)}  # the first time, however often it is moved
    assert hops == [None, None, *[str(each) for each in range(2, HOPS_MAX + 1)]]
    assert world.broker.stats.dropped_in_circles == 1
    assert len(refuser.receipts()) == len(hops)


def test_a_clock_that_goes_back_does_not_let_it_go_on() -> None:
    world = World(FANNED)
    refuser = world.connect()
    refuser.subscribe("/queue/a.1")
    world.connect().publish("/queue/parent.1", "x")
    for _ in range(50):
        for message in messages_of(refuser, world):
            refuser.nack(message, requeue="false")
        world.now -= 10**9
    assert world.broker.stats.dropped_in_circles == 1


def test_a_client_may_send_a_dead_letter_on_unchanged_for_ever() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /queue/dead}]")
    client = world.connect()
    client.subscribe("/queue/a")
    client.subscribe("/queue/dead", id="dead")
    client.publish("/queue/a", "x")
    for _ in range(3 * HOPS_MAX):
        (message,) = messages_of(client, world)
        client.nack(message, requeue="false")
        (letter,) = messages_of(client, world)
        assert "dlq-hops" not in letter.headers and letter.headers["dlq-received"] == message.headers["receive-time"]
        client.ack(letter)
        world.tick(0.001)
        again = {name.replace("-", "_"): value for name, value in letter.headers.items() if name.startswith("dlq-")}
        client.publish("/queue/a", "x", **again)
    assert world.broker.stats.dropped_in_circles == 0


def test_a_dead_letter_is_seen_though_it_was_not_due_yet() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /queue/dead, dead_letter_expired: true}]")
    client = world.connect()
    client.subscribe("/queue/a")
    client.subscribe("/queue/dead", id="dead")
    client.publish("/queue/a", "x", deliver_at=NOW_MS + 86_400_000, expires=NOW_MS + 5_000)
    world.settle()
    world.tick(6)
    (letter,) = messages_of(client, world)
    assert letter.headers["deliver-at"] == str(NOW_MS + 86_400_000)
    client.ack(letter)
    world.tick(1)
    again = {name.replace("-", "_"): value for name, value in letter.headers.items() if name.startswith("dlq-")}
    client.publish("/queue/a", "later", delay="10s", **again)
    world.settle()
    assert client.bodies() == []
    world.tick(10)
    assert client.bodies() == ["later"]
