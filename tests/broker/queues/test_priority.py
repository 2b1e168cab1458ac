"""Priorities: the highest first, in order within each, whatever comes back, ends or is killed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.harness import Client, World

CONFIG = "destinations: [{match: '/queue/*', priority: true}]"


@pytest.fixture
def world() -> World:
    return World(CONFIG)


def send(client: Client, *messages: tuple[int, str]) -> None:
    for priority, body in messages:
        client.publish("/queue/a", body, priority=priority)


def drain(world: World, client: Client) -> list[str]:
    """Everything, one at a time."""
    seen = []
    world.settle()
    while messages := client.messages():
        for message in messages:
            seen.append(message.body.decode())
            client.ack(message)
        world.settle()
    return seen


def test_the_highest_priority_comes_first_and_order_is_kept_within_each(world: World) -> None:
    client = world.connect()
    send(client, (1, "a"), (9, "b"), (1, "c"), (9, "d"), (5, "e"))
    world.settle()
    client.subscribe("/queue/a")
    assert drain(world, client) == ["b", "d", "e", "a", "c"]


def test_without_the_header_the_priority_is_four_and_other_values_become_the_nearest(world: World) -> None:
    client = world.connect()
    client.publish("/queue/a", "four")
    send(client, (3, "3"), (5, "5"), (99, "99"), (9, "9"), (-7, "-7"), (0, "0"))
    client.subscribe("/queue/a")
    assert drain(world, client) == ["99", "9", "5", "four", "3", "-7", "0"]
    assert sorted(world.store.partitions) == [f"/queue/a-p{priority}" for priority in (0, 3, 4, 5, 9)]


@pytest.mark.parametrize("text", ["high", "", "4.5", "٤", "9" * 30])
def test_a_priority_that_is_no_number_is_an_error(world: World, text: str) -> None:
    client = world.connect()
    client.publish("/queue/a", "x", priority=text)
    world.settle()
    assert client.error() == "bad-header"


def test_elsewhere_the_header_is_carried_and_means_nothing(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/a", ack="auto")
    client.publish("/topic/a", "x", priority="high")
    world.settle()
    (message,) = client.messages()
    assert message.headers["priority"] == "high"


def test_with_a_window_of_one_a_higher_message_is_the_very_next(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a")
    send(client, (4, "first"), (4, "second"), (4, "third"))
    world.settle()
    (first,) = client.messages()
    send(world.connect(), (9, "urgent"))
    world.settle()
    client.ack(first)
    assert [first.body.decode(), *drain(world, client)] == ["first", "urgent", "second", "third"]


def test_a_refused_message_keeps_its_priority_and_its_place(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=3)
    send(client, (7, "a"), (7, "b"), (2, "c"), (2, "d"))
    world.settle()
    a, b, c = client.messages()
    client.ack(b)
    client.nack(c)
    client.nack(a)
    assert [frame.body for frame in (a, b, c)] == [b"a", b"b", b"c"]
    world.settle()
    again = client.messages()
    assert [(frame.body, frame.headers.get("redelivered")) for frame in again] == [
        (b"a", "true"),
        (b"c", "true"),
        (b"d", None),
    ]


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_priorities_outlive_the_broker(world: World, end: str) -> None:
    client = world.connect()
    send(client, (1, "a"), (9, "b"), (4, "c"), (9, "d"))
    client.subscribe("/queue/a")
    world.settle()
    (b,) = client.messages()
    client.ack(b, receipt="r")
    world.settle()
    getattr(world, end)()
    client = world.connect()
    client.subscribe("/queue/a")
    assert drain(world, client) == ["d", "c", "a"]


def test_a_browser_and_a_replay_see_all_priorities(world: World) -> None:
    client = world.connect()
    send(client, (1, "a"), (9, "b"), (4, "c"))
    client.subscribe("/queue/a", id="consumer")
    world.settle()
    (b,) = client.messages()
    client.ack(b, receipt="r")
    world.settle()
    client.messages()
    client.subscribe("/queue/a", id="browser", ack="auto", browser="true")
    client.subscribe("/queue/a", id="replay", ack="auto", start_position="first", stop_position="end")
    world.settle()
    heard = client.messages()
    for each, wanted in (("browser", {"a", "c"}), ("replay", {"a", "b", "c"})):
        frames = [frame for frame in heard if frame.headers["subscription"] == each]
        assert {frame.body.decode() for frame in frames[:-1]} == wanted
        assert "replay-end" in frames[-1].headers


def test_a_browser_sees_priorities_that_are_used_later(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a", id="live", ack="auto", start_position="next")
    client.subscribe("/queue/*", id="pattern", ack="auto", start_position="next")
    client.subscribe("/queue/a", id="bounded", ack="auto", stop_position="offset:5")
    send(client, (4, "a"), (9, "b"), (0, "c"))
    world.settle()
    heard = client.messages()
    for each in ("live", "pattern"):
        assert {frame.body for frame in heard if frame.headers["subscription"] == each} == {b"a", b"b", b"c"}
    client.drop()
    world.settle()
    world.holds_nothing()


def test_a_browser_with_a_stop_in_the_future_gets_the_end_of_new_priorities_too(
    world: World,
) -> None:
    client = world.connect()
    stop = f"time:{world.now + 5_000_000_000}"
    client.subscribe("/queue/a", ack="auto", start_position="first", stop_position=stop)
    send(client, (4, "a"), (9, "b"))
    world.settle()
    assert sorted(client.bodies()) == ["a", "b"]
    world.tick(10)
    send(client, (9, "late"))
    world.settle()
    (end,) = client.messages()
    assert end.headers["replay-end"] == "true"


def test_the_queue_counts_all_priorities_together_and_drops_the_lowest() -> None:
    world = World("destinations: [{match: '/queue/*', priority: true, max_messages: 3, on_full: drop_oldest}]")
    client = world.connect()
    send(client, (9, "a"), (1, "b"), (1, "c"), (5, "d"), (5, "e"))
    client.subscribe("/queue/a")
    assert drain(world, client) == ["a", "d", "e"]


def test_a_transaction_may_use_several_priorities(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    for priority in (1, 9, 5):
        client.publish("/queue/a", str(priority), priority=priority, transaction="t")
    client.say("COMMIT", transaction="t", receipt="r")
    client.subscribe("/queue/a")
    assert drain(world, client) == ["9", "5", "1"]


def test_consumers_share_a_queue_with_priorities(world: World) -> None:
    one, two = world.connect(), world.connect()
    for client in (one, two):
        client.subscribe("/queue/a")
    send(one, (1, "a"), (9, "b"), (9, "c"), (1, "d"))
    world.settle()
    first, second = one.messages(), two.messages()
    assert {frame.body for frame in first + second} == {b"b", b"c"}
    one.ack(first[0])
    two.ack(second[0])
    world.settle()
    assert sorted(one.bodies() + two.bodies()) == ["a", "d"]


@given(st.lists(st.one_of(st.tuples(st.integers(0, 9), st.just("send")), st.just("ack"), st.just("nack")), max_size=40))
def test_what_is_delivered_is_always_the_oldest_of_the_highest(actions: list[tuple[int, str] | str]) -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/queue/a")
    waiting: list[tuple[int, int]] = []  # (-priority, number)
    held: tuple[int, int] | None = None
    ack = ""
    world.settle()
    for number, action in enumerate(actions):
        if isinstance(action, tuple):
            send(client, (action[0], str(number)))
            waiting.append((-action[0], number))
        elif held is not None:
            client.say("ACK" if action == "ack" else "NACK", id=ack, delay=0)
            if action == "nack":
                waiting.append(held)
            held = None
        world.settle()
        for frame in client.messages():
            assert held is None
            held = min(waiting)
            waiting.remove(held)
            ack = frame.headers["ack"]
            assert frame.body.decode() == str(held[1])
        assert held is not None or not waiting
