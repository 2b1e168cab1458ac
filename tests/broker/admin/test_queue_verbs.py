"""Purge a queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.admin.asking import done, refused, user
from tests.broker.harness import World

RULES = """
destinations:
  - {match: '/queue/shared.*', partition: shared}
  - {match: '/queue/all', fan_out: [/queue/one, /queue/two]}
  - {match: '/queue/urgent', priority: true}
  - {match: '/queue/parts', partitions: 3}
  - {match: '/queue/mem', store: memory}
  - {match: '/queue/full', max_messages: 5, on_full: block}
"""


@pytest.fixture
def world() -> World:
    return World(RULES)


def left(world: World, name: str) -> list[str]:
    """The bodies that a new consumer gets."""
    client = world.connect()
    client.subscribe(name, prefetch_count=1000)
    world.settle()
    bodies = client.bodies()
    client.drop()
    world.settle()
    return bodies


QUEUES = ("/queue/plain", "/queue/shared.a", "/queue/one", "/queue/urgent", "/queue/parts", "/queue/mem")


def target(name: str) -> str:
    """Where messages for a queue are sent."""
    return "/queue/all" if name == "/queue/one" else name


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("name", QUEUES)
def test_all_that_waits_is_settled_for_ever_and_what_a_consumer_has_stays(
    world: World, name: str, restart: bool
) -> None:
    client, worker = world.connect(), world.connect()
    for number in range(40):
        client.publish(target(name), str(number), priority=number % 3)
        client.publish("/queue/shared.b", f"other {number}")
    worker.subscribe(name, prefetch_count=10)
    world.settle()
    held = worker.messages()
    for message in held[:2]:
        worker.nack(message)  # comes back
    worker.nack(held[2], delay="1h")
    total = 40
    if name != "/queue/one":  # a message to a fan-out source has no delay
        client.publish(name, "late", delay="1h")
        total += 1
    world.settle()
    holds = len(held) - 3 + len(worker.messages())
    answer = done(client, "queues.purge", name=name)
    assert answer["purged"] == total - holds
    assert answer["in_flight"] == (None if name == "/queue/shared.a" else holds)
    if restart and name != "/queue/mem":
        world.restart()
    else:
        worker.drop()
        world.settle()
    remaining = left(world, name)
    assert len(remaining) == holds
    assert sorted(left(world, "/queue/shared.b"))[:1] == ["other 0"]


def test_a_message_that_comes_after_the_request_stays(world: World) -> None:
    client = world.connect()
    client.publish("/queue/plain", *(["old"] * 20))
    body = json.dumps({"do": "queues.purge", "name": "/queue/plain"})
    client.say("SEND", body, destination="/radiator/admin", reply_to="/temp-queue/answers")
    client.publish("/queue/plain", "new")
    world.settle()
    assert json.loads(client.messages()[0].body)["purged"] == 20
    assert left(world, "/queue/plain") == ["new"]


def test_publishers_that_wait_for_room_go_on(world: World) -> None:
    client, sender = world.connect(), world.connect()
    for number in range(7):
        sender.publish("/queue/full", str(number), receipt=str(number))
    world.settle()
    assert sender.receipts() == ["0", "1", "2", "3", "4"]
    assert done(client, "queues.purge", name="/queue/full")["purged"] == 5
    world.tick()
    assert sender.receipts() == ["5", "6"]


def test_messages_that_a_selector_skips_are_settled_too(world: World) -> None:
    client, picky = world.connect(), world.connect()
    picky.subscribe("/queue/plain", selector="kind = 'a'")
    for number in range(250):
        client.publish("/queue/plain", str(number), kind="b")
    client.publish("/queue/plain", "mine", kind="a")
    world.settle()
    assert picky.bodies() == ["mine"]
    answer = done(client, "queues.purge", name="/queue/plain")
    assert (answer["purged"], answer["in_flight"]) == (250, 1)
    picky.drop()
    world.settle()
    assert left(world, "/queue/plain") == ["mine"]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("/topic/t", "bad-request", "is a topic"),
        ("/queue/all", "bad-request", "has fan_out"),
        ("/queue/none", "not-found", "there is no queue"),
        ("sub:me", "bad-request", "is a cursor"),
        ("", "bad-request", "needs name"),
        (["/queue/plain"], "bad-request", "needs name"),
    ],
)
def test_what_cannot_be_purged_is_refused(world: World, name: Any, code: str, words: str) -> None:
    client = world.connect()
    for sent in ("/topic/t", "/queue/all", "/queue/plain"):
        client.publish(sent, "x")
    world.settle()
    error = refused(client, "queues.purge", name=name)
    assert error["code"] == code and words in error["message"]
    assert left(world, "/queue/plain") == ["x"]


def test_a_purge_needs_the_admin_right_over_the_queue(world: World) -> None:
    client = user(world, admin=["/queue/mine"], monitor=["#"], read=["#"], write=["#"])
    client.publish("/queue/mine", "x")
    client.publish("/queue/plain", "x")
    world.settle()
    assert refused(client, "queues.purge", name="/queue/plain")["code"] == "denied"
    assert done(client, "queues.purge", name="/queue/mine")["purged"] == 1
