"""What comes and goes leaves nothing: not even circles, which Python's collector would find some day."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.broker.harness import Client, World

CONFIG = "destinations: [{match: '/topic/mem.>,/queue/mem.>', store: memory, ack_timeout: 1h}]"
Visit = Callable[[Client, int], None]


def request(client: Client, number: int) -> None:
    client.publish("/topic/mem.asked", "?", reply_to=f"/temp-queue/q{number}")
    client.publish(f"/temp-queue/q{number}", "!")


def temporary(client: Client, number: int) -> None:
    client.subscribe(f"/temp-queue/q{number}", ack="client")
    client.publish(f"/temp-queue/q{number}", "1", delay=10_000)
    client.publish(f"/temp-queue/q{number}", "2", expires=10**13 + number)


def topic(client: Client, number: int) -> None:
    client.subscribe(f"/topic/mem.new.{number}")
    client.say("UNSUBSCRIBE", id="0")


def queue(client: Client, number: int) -> None:
    client.subscribe(f"/queue/new.{number}")
    client.say("UNSUBSCRIBE", id="0")


def name(client: Client, number: int) -> None:
    client.subscribe("/topic/mem.t,/topic/file", durable="true", subscription_name=f"n{number}")
    client.world.settle()
    client.say("UNSUBSCRIBE", id="0", subscription_name=f"n{number}")


def transaction(client: Client, number: int) -> None:
    client.say("BEGIN", transaction=f"t{number}")
    client.publish("/topic/mem.t", "x", transaction=f"t{number}")
    client.say("COMMIT" if number % 2 else "ABORT", "", f"r{number}", transaction=f"t{number}")


def work(client: Client, number: int) -> None:
    client.subscribe("/queue/mem.work")
    client.publish("/queue/mem.work", "x")
    client.world.settle()
    for message in client.messages():
        client.ack(message)


def left_open(client: Client, number: int) -> None:
    """It goes while a receipt waits for the disk."""
    client.say("BEGIN", transaction="t")
    client.publish("/queue/file", "x", receipt="r")


VISITS = [request, temporary, topic, queue, name, transaction, work, left_open]


def objects() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if is_ours(each))


def is_ours(each: object) -> bool:
    return str(type(each).__module__).startswith("radiator.")


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def visit(world: World, act: Visit, number: int) -> None:
    client = world.connect()
    act(client, number)
    if act is not left_open:
        world.settle()
        client.take()
    assert not client.session.closing
    client.drop()
    world.clients.remove(client)
    world.settle()
    world.woken.clear()


@pytest.mark.parametrize("act", VISITS)
def test_what_is_gone_is_free_without_the_collector(act: Visit) -> None:
    world = World(CONFIG)
    for number in range(3):  # what stays, and what is remembered of each kind
        visit(world, act, number)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    visit(world, act, 3)
    gc.collect()
    assert Counter(type(each).__name__ for each in gc.garbage if is_ours(each)) == Counter()


@pytest.mark.parametrize("act", VISITS)
def test_nothing_grows_with_what_has_been(act: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radiator.routing.rules.POLICIES_MAX", 5)
    monkeypatch.setattr("radiator.timers.STALE_MAX", 5)
    world = World(CONFIG)
    for number in range(20):
        visit(world, act, number)
    gc.collect()
    before = objects()
    for number in range(20, 60):
        visit(world, act, number)
    gc.collect()
    grown = {kind: count for kind, count in (objects() - before).items() if count >= 10}
    grown.pop("Head", None)  # a cache by the bytes of a header block, bounded (HEAD_CACHE_ENTRIES_MAX)
    grown.pop("Plan", None)  # in a Head
    if act in (request, transaction, work, left_open):
        grown.pop("RecordBatch", None)  # what a topic keeps
    assert grown == {}
