"""A name that is made while a message is on its way to the disk: that message is from before, after a restart too."""

from __future__ import annotations

import errno

import pytest

from tests.broker.harness import Client, World

T = "/topic/a"
HOW = [{"group": "g"}, {"subscription_name": "n"}]


def joined(world: World, how: dict[str, str]) -> Client:
    client = world.connect()
    client.subscribe(T, ack="auto", **how)
    return client


def under_way(world: World, sender: Client) -> None:
    """One message is stored, and one on its way to the disk."""
    sender.publish(T, "long ago")
    world.settle()
    sender.publish(T, "under way")
    world.take()


def stored(world: World) -> None:
    """The disk is done with it."""
    world.write()
    world.sync()
    world.completed()
    world.settle()


@pytest.mark.parametrize("end", ["restart", "kill", "power_cut"])
@pytest.mark.parametrize("how", HOW)
def test_what_was_under_way_when_a_name_was_made_does_not_come_after_a_restart(how: dict[str, str], end: str) -> None:
    world = World()
    sender = world.connect()
    under_way(world, sender)
    joined(world, how).drop()
    stored(world)
    world.now += 10**9
    world.settle()
    sender.publish(T, "later")
    world.settle()
    getattr(world, end)()
    client = joined(world, how)
    world.settle()
    assert client.bodies() == ["later"]


@pytest.mark.parametrize("how", HOW)
def test_what_takes_the_place_of_a_message_that_could_not_be_stored_comes(how: dict[str, str]) -> None:
    world = World()
    sender = world.connect()
    under_way(world, sender)
    joined(world, how).drop()
    world.fs.fail("pwritev", 1, errno.EIO)
    stored(world)
    world.now += 10 * 10**9
    world.tick(10)
    world.settle()
    again = world.connect()
    again.publish(T, "in its place", receipt="1")
    world.settle()
    assert again.receipts() == ["1"]
    world.restart()
    client = joined(world, how)
    world.settle()
    assert client.bodies() == ["in its place"]


@pytest.mark.parametrize("how", HOW)
def test_a_name_that_passed_over_what_was_under_way_passes_over_others_behind_it(how: dict[str, str]) -> None:
    world = World("destinations: [{match: '/>', partition: shared}]")
    sender = world.connect()
    sender.publish("/queue/c", "a queue reads the log, too")
    under_way(world, sender)
    client = joined(world, how)
    stored(world)
    sender.publish("/topic/b", "another's")
    world.settle()
    world.nothing_is_overlooked()
    sender.publish(T, "mine")
    world.settle()
    assert client.bodies() == ["mine"]
