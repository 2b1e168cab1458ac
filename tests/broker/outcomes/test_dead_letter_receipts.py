"""The RECEIPT of a frame that ends a message: it comes once what became of the message can no longer be taken back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.harness import Client, World, bodies

KEPT = "{match: /queue/a, redeliver: {max: 1}, dead_letter: /queue/dead}"
DROPPED = "{match: /queue/a, redeliver: {max: 1}}"
FOREVER = "{match: /queue/a, redeliver: {max: 5, delay: 0ms}, dead_letter: /queue/dead}"


def nack(client: Client) -> None:
    client.nack(client.messages()[0], requeue="false", receipt="r")


def nack_once_too_often(client: Client) -> None:
    client.nack(client.messages()[0], receipt="r")


def unsubscribe(client: Client) -> None:
    client.say("UNSUBSCRIBE", id="0", receipt="r")


def disconnect(client: Client) -> None:
    client.say("DISCONNECT", receipt="r")


def commit(client: Client) -> None:
    client.say("BEGIN", transaction="t")
    client.nack(client.messages()[0], transaction="t", requeue="false")
    client.say("COMMIT", transaction="t", receipt="r")


ENDS = [nack, nack_once_too_often, unsubscribe, disconnect, commit]


def with_a_message(config: str) -> tuple[World, Client]:
    world = World(config)
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "poison")
    world.settle()
    return world, client


def until_receipted(world: World, client: Client) -> int:
    """Turns, one at a time; in how many something was still on its way to the disk when there was no receipt yet."""
    for turn in range(50):
        client.flush()
        if "r" in client.receipts():
            return turn
        world.commit()
        world.reads()
        world.pump()
        world.now += 5_000_000
    raise AssertionError("no receipt")


def waiting_in(world: World, name: str) -> list[str]:
    client = world.connect()
    client.subscribe(name, prefetch_count=10)
    world.settle()
    found = bodies(client.messages())
    client.drop()
    return found


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("rule", "dead"), [(KEPT, ["poison"]), (DROPPED, [])])
def test_a_receipted_end_outlives_a_power_cut(end: Callable[[Client], None], rule: str, dead: list[str]) -> None:
    world, client = with_a_message(f"destinations: [{rule}]")
    end(client)
    assert until_receipted(world, client) > 0, "it was told before anything was stored"
    world.power_cut()
    assert waiting_in(world, "/queue/a") == []
    assert waiting_in(world, "/queue/dead") == dead


@pytest.mark.parametrize("end", ENDS)
def test_a_cut_before_the_receipt_finds_the_message_in_one_of_the_two_places(end: Callable[[Client], None]) -> None:
    world, client = with_a_message(f"destinations: [{KEPT}]")
    end(client)
    world.take()
    world.write()
    client.flush()
    assert "r" not in client.receipts()
    world.power_cut()
    assert waiting_in(world, "/queue/a") + waiting_in(world, "/queue/dead") == ["poison"]


def test_out_of_memory_the_receipt_waits_for_the_new_place() -> None:
    world, client = with_a_message(f"destinations: [{KEPT.replace('{match', '{store: memory, match', 1)}]")
    nack(client)
    assert until_receipted(world, client) > 0
    world.power_cut()
    assert waiting_in(world, "/queue/dead") == ["poison"]


def test_into_memory_the_receipt_waits_for_the_old_place() -> None:
    world, client = with_a_message(f"destinations: [{{match: /queue/dead, store: memory}}, {KEPT}]")
    nack(client)
    assert until_receipted(world, client) > 0
    world.power_cut()
    assert waiting_in(world, "/queue/a") == waiting_in(world, "/queue/dead") == []


def test_a_dead_letter_that_cannot_be_stored_holds_up_no_receipt() -> None:
    world, client = with_a_message(f"destinations: [{KEPT}, {{match: /queue/dead, create: deny}}]")
    nack(client)
    world.settle()
    assert client.receipts() == ["r"]
    assert world.broker.timing.deferred == 1
    client.publish("/queue/a", "next")
    world.settle()
    nack(client)  # others are held back for the same place: this one is with them at once
    world.settle()
    assert client.receipts() == ["r"]
    assert world.broker.timing.deferred == 2


def test_receipts_keep_their_order_around_one_that_waits() -> None:
    world, client = with_a_message(f"destinations: [{KEPT}]")
    client.nack(client.messages()[0], requeue="false", receipt="1")
    client.say("BEGIN", transaction="t", receipt="2")
    client.say("ABORT", transaction="t", receipt="3")
    client.flush()
    assert client.receipts() == []
    world.settle()
    assert client.receipts() == ["1", "2", "3"]


def test_a_message_that_was_lost_from_the_log_meanwhile_holds_no_receipt_up() -> None:
    world, client = with_a_message(f"destinations: [{KEPT}]")
    message = client.messages()[0]
    source = world.broker.destination("/queue/a").queue.sources[0]  # type: ignore[union-attr]
    client.nack(message, requeue="false", receipt="r")
    source.feed.partition.log_start_offset = 1
    world.settle()
    assert client.receipts() == ["r"]
    assert world.broker.stats.lost_to_retention == 1


def test_a_plain_nack_waits_for_nothing() -> None:
    _, client = with_a_message(f"destinations: [{FOREVER}]")
    client.nack(client.messages()[0], receipt="r")
    client.flush()
    assert client.receipts() == ["r"]
