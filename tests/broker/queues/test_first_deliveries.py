"""Messages that waited before anybody had them: put off, or passed over. Once one was delivered it comes again marked,
and counted right, whatever it waited for, and whenever the broker ended."""

from __future__ import annotations

import pytest

from tests.broker.harness import Client, World, bodies

ENDS = ("restart", "kill")


def marks(client: Client) -> list[tuple[str | None, str | None]]:
    client.world.settle()
    return [(frame.headers.get("redelivered"), frame.headers.get("delivery-count")) for frame in client.take("MESSAGE")]


def put_off(world: World, *sent: str) -> None:
    """Delayed messages that were looked at while a consumer was there."""
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    client.publish("/queue/a", *sent, delay="1s")
    world.settle()
    assert client.bodies() == []
    assert world.broker.timing.deferred == len(sent)


def passed_over(world: World, *sent: str) -> None:
    """Messages that the only consumer's selector did not want; another behind them was delivered."""
    client = world.connect()
    client.subscribe("/queue/a", selector="kind = 'y'", prefetch_count=10)
    client.publish("/queue/a", *sent, kind="x")
    client.publish("/queue/a", "last", kind="y")
    world.settle()
    assert client.bodies() == ["last"]


@pytest.mark.parametrize("end", ENDS)
def test_what_was_put_off_before_a_restart_is_counted_from_its_first_delivery(world: World, end: str) -> None:
    put_off(world, "late")
    getattr(world, end)()
    client = world.connect()
    client.subscribe("/queue/a")
    world.tick(2)
    (first,) = client.messages()
    assert "redelivered" not in first.headers
    client.nack(first)
    assert marks(client) == [("true", "2")]


@pytest.mark.parametrize("end", ENDS)
def test_what_was_put_off_and_then_delivered_comes_again_marked_after_each_end(world: World, end: str) -> None:
    put_off(world, "late")
    seen = []
    for _ in range(4):
        getattr(world, end)()
        client = world.connect()
        client.subscribe("/queue/a")
        world.tick(2)
        seen += marks(client)
    assert seen == [(None, "1"), ("true", "2"), ("true", "3"), ("true", "4")]


@pytest.mark.parametrize("end", ENDS)
def test_what_was_put_off_is_not_delivered_more_often_than_its_rule_allows(end: str) -> None:
    world = World("destinations: [{match: /queue/a, redeliver: {max: 3, delay: 0ms}, dead_letter: /queue/dead}]")
    put_off(world, "late")
    getattr(world, end)()
    client = world.connect()
    client.subscribe("/queue/a")
    world.tick(2)
    deliveries = 0
    while frames := client.messages():
        deliveries += len(frames)
        client.nack(frames[0])
        world.settle()
    assert deliveries == 3


@pytest.mark.parametrize("wait", [put_off, passed_over])
def test_a_waiting_message_that_was_delivered_just_before_a_kill_comes_again_marked(world: World, wait: object) -> None:
    wait(world, "1", "2", "3")  # type: ignore[operator]
    for client in list(world.clients):
        client.drop()
    world.settle()
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=2)
    world.now += 2_000_000_000
    world.broker.tick(world.time)
    while world.pump() or world.flush():  # and no turn of the disk
        pass
    had = bodies(client.take("MESSAGE"))
    assert len(had) == 2
    world.kill()
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    world.tick(2)
    again = {frame.body.decode(): frame.headers.get("redelivered") for frame in client.messages()}
    assert [again[body] for body in had] == ["true", "true"]
    assert [mark for body, mark in again.items() if body not in had and body != "last"] == [None]


def test_once_the_counts_are_written_nothing_is_doubted_any_more(world: World) -> None:
    passed_over(world, "1", "2")
    other = world.connect()
    other.subscribe("/queue/a", prefetch_count=1)
    world.settle()
    (first,) = other.messages()
    assert first.body == b"1"
    world.kill()
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    assert marks(client) == [("true", "2"), (None, "1"), ("true", "2")]


def test_a_power_cut_that_takes_the_delivery_hints_leaves_each_message_its_count() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "1")
    world.settle()
    (first,) = client.messages()
    client.nack(first)
    world.settle()
    world.tick(1)
    hints = world.fs.nodes["/data/cursors/delivered"].cache
    world.power_cut()
    world.stop()
    hints[:] = bytes(len(hints))
    world.fs.nodes["/data/cursors/delivered"].cache[:] = bytes(len(hints))
    world.start()
    client = world.connect()
    client.subscribe("/queue/a")
    assert marks(client) == [("true", "3")]
