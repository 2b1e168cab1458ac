"""Named subscriptions of users who may not read everything: which topics they pin, and how many there may be."""

from __future__ import annotations

import pytest

from radiator.routing.rights import Rights
from tests.broker.harness import Client, World


def user(world: World, name: str, **rights: str) -> Client:
    """A client with these rights."""
    client = world.connect()
    client.become(name, Rights({right: [text] for right, text in rights.items()}))
    return client


def about(world: World, key: str = "sub:spy") -> list[str]:
    return sorted(each.name for each in world.broker.durable.by_key[key].destinations)


def cursors(world: World) -> list[str]:
    return sorted(where for name, where in world.broker.store.cursors.names() if name == "sub:spy")


def test_a_new_topic_that_its_user_may_not_read_is_not_pinned(world: World) -> None:
    guest, sender = user(world, "guest", read="/topic/news"), world.connect()
    guest.subscribe("/topic/>", ack="auto", subscription_name="spy")
    for topic in ("/topic/news", "/topic/secret"):
        sender.publish(topic, topic)
    world.settle()
    assert guest.bodies() == ["/topic/news"]
    assert about(world) == cursors(world) == ["/topic/news"]


def test_after_a_restart_the_topics_narrow_to_what_the_user_may_read_once_it_is_back(world: World) -> None:
    sender = world.connect()
    for topic in ("/topic/news", "/topic/secret"):
        sender.publish(topic, "before")
    boss = user(world, "guest", read="/topic/>")
    boss.subscribe("/topic/>", ack="auto", subscription_name="spy", receipt="r")
    world.settle()
    assert cursors(world) == ["/topic/news", "/topic/secret"]
    world.restart()
    world.connect().publish("/topic/news", "away")
    guest = user(world, "guest", read="/topic/news")
    guest.subscribe("/topic/>", ack="auto", subscription_name="spy")
    world.settle()
    assert guest.bodies() == ["away"]
    assert about(world) == cursors(world) == ["/topic/news"]


def test_what_a_user_may_read_meanwhile_comes_with_the_next_subscribe(world: World) -> None:
    guest, sender = user(world, "guest", read="/topic/news"), world.connect()
    guest.subscribe("/topic/>", ack="auto", subscription_name="spy")
    sender.publish("/topic/other", "1")
    world.settle()
    guest.drop()
    guest = user(world, "guest", read="/topic/>")
    guest.subscribe("/topic/>", ack="auto", subscription_name="spy")
    world.settle()
    sender.publish("/topic/other", "2")
    world.settle()
    assert guest.bodies() == ["2"]


def test_one_user_does_not_take_the_names_of_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radiator.limits.SUBSCRIPTION_NAMES_PER_USER_MAX", 2)
    guest, other = user(world, "guest", read="/topic/>"), user(world, "other", read="/topic/>")
    for number in range(2):
        guest.subscribe("/topic/a", id=str(number), subscription_name=f"n{number}")
    guest.say("UNSUBSCRIBE", id="0", subscription_name="n0")
    guest.subscribe("/topic/a", id="again", subscription_name="n2")
    assert not guest.take("ERROR")
    other.subscribe("/topic/a", id="0", subscription_name="o0")
    assert not other.take("ERROR")
    guest.subscribe("/topic/a", id="more", subscription_name="n3")
    assert guest.error() == "too-many"
    everybody = world.connect()
    for number in range(3):
        everybody.subscribe("/topic/a", id=str(number), subscription_name=f"e{number}")
    assert not everybody.take("ERROR")
