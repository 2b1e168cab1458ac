"""Queues whose consumers have selectors: who is given what, in which order, and what stays in its place."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator import limits
from radiator.broker.queues import parked
from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World, bodies


def send(client: Client, *sent: str) -> None:
    """``red1`` has the header ``colour:red``."""
    for body in sent:
        client.publish("/queue/a", body, colour=body.rstrip("0123456789"))


def take_all(world: World, client: Client) -> list[str]:
    """Acknowledge one by one."""
    seen = []
    world.settle()
    while frames := client.messages():
        for frame in frames:
            seen.append(frame.body.decode())
            client.ack(frame)
        world.settle()
    return seen


def test_a_consumer_takes_what_matches_and_the_rest_stays_in_its_place(world: World) -> None:
    client, other = world.connect(), world.connect()
    send(client, "red1", "blue1", "red2", "blue2")
    client.subscribe("/queue/a", selector="colour = 'red'")
    assert take_all(world, client) == ["red1", "red2"]
    other.subscribe("/queue/a")
    send(client, "blue3")
    assert take_all(world, other) == ["blue1", "blue2", "blue3"]
    assert not any("redelivered" in frame.headers for frame in other.inbox)


def test_what_nobody_wanted_was_not_delivered_and_says_so(world: World) -> None:
    client, other = world.connect(), world.connect()
    send(client, "blue1", "red1")
    client.subscribe("/queue/a", selector="colour = 'red'")
    world.settle()
    other.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    (message,) = other.messages()
    assert message.body == b"blue1"
    assert "redelivered" not in message.headers
    other.nack(message)
    world.settle()
    (again,) = other.messages()
    assert (again.headers["redelivered"], again.headers["delivery-count"]) == ("true", "2")


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_parked_messages_outlive_the_broker_in_their_places(world: World, end: str) -> None:
    client = world.connect()
    send(client, "blue1", "red1", "blue2", "red2")
    client.subscribe("/queue/a", selector="colour = 'red'")
    assert take_all(world, client) == ["red1", "red2"]
    client.say("SEND", destination="/topic/x", receipt="r")
    world.settle()
    getattr(world, end)()
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    frames = client.messages()
    assert bodies(frames)[:2] == ["blue1", "blue2"]
    assert not any("redelivered" in frame.headers for frame in frames if frame.body.startswith(b"blue"))


def test_a_consumer_that_is_full_does_not_hold_up_the_others(world: World) -> None:
    red, blue = world.connect(), world.connect()
    red.subscribe("/queue/a", selector="colour = 'red'")
    blue.subscribe("/queue/a", selector="colour = 'blue'")
    send(red, "red1", "red2", "blue1", "red3", "blue2", "red4")
    assert take_all(world, blue) == ["blue1", "blue2"]
    (first,) = red.messages()
    red.ack(first)
    assert [first.body.decode(), *take_all(world, red)] == ["red1", "red2", "red3", "red4"]


def test_a_consumer_without_a_selector_takes_everything(world: World) -> None:
    red, anything = world.connect(), world.connect()
    red.subscribe("/queue/a", selector="colour = 'red'", prefetch_count=100)
    anything.subscribe("/queue/a", prefetch_count=100)
    sent = [f"{colour}{number}" for number in range(10) for colour in ("red", "blue")]
    send(red, *sent)
    world.settle()
    to_red, rest = red.bodies(), anything.bodies()
    assert sorted(to_red + rest) == sorted(sent)
    assert all(body.startswith("red") for body in to_red)
    assert len(to_red) >= 5  # they take turns where both may
    assert (to_red, rest) == (sorted(to_red, key=sent.index), sorted(rest, key=sent.index))


def test_a_refused_message_goes_to_another_that_wants_it_and_else_comes_back(world: World) -> None:
    one, two, blue = world.connect(), world.connect(), world.connect()
    one.subscribe("/queue/a", selector="colour = 'red'")
    send(one, "red1")
    world.settle()
    blue.subscribe("/queue/a", selector="colour = 'blue'")
    (message,) = one.messages()
    one.nack(message)
    world.settle()
    (message,) = one.messages()
    assert message.headers["delivery-count"] == "2"
    assert blue.messages() == []
    two.subscribe("/queue/a", selector="colour = 'red'")
    one.nack(message)
    world.settle()
    assert two.bodies() == ["red1"]


def test_what_a_lost_consumer_held_is_parked_until_somebody_wants_it(world: World) -> None:
    red, blue = world.connect(), world.connect()
    red.subscribe("/queue/a", selector="colour = 'red'", prefetch_count=2)
    blue.subscribe("/queue/a", selector="colour = 'blue'")
    send(blue, "red1", "blue1", "red2", "red3")
    world.settle()
    assert red.bodies() == ["red1", "red2"]
    red.drop()
    assert take_all(world, blue) == ["blue1"]
    red = world.connect()
    red.subscribe("/queue/a", selector="colour LIKE 'r%'", prefetch_count=10)
    world.settle()
    frames = red.messages()
    assert [(frame.body, frame.headers.get("delivery-count")) for frame in frames] == [
        (b"red1", "2"),
        (b"red2", "2"),
        (b"red3", None),
    ]


def test_two_subscriptions_of_one_client_share_its_window_of_one(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a", id="red", selector="colour = 'red'")
    client.subscribe("/queue/a", id="blue", selector="colour = 'blue'")
    send(client, "blue1", "blue2", "red1", "green1")
    world.settle()
    seen = []
    while frames := client.messages():
        (frame,) = frames
        seen.append((frame.headers["subscription"], frame.body.decode()))
        client.ack(frame)
        world.settle()
    assert sorted(seen) == [("blue", "blue1"), ("blue", "blue2"), ("red", "red1")]


def test_auto_ack_and_patterns_have_selectors_too(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/>", ack="auto", selector="colour = 'red'")
    send(client, "red1", "blue1", "red2")
    world.settle()
    assert client.bodies() == ["red1", "red2"]


def test_an_unselected_backlog_in_a_log_of_many_is_passed_over() -> None:
    world = World("destinations: [{match: '/queue/*', partition: all}]")
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'")
    other.subscribe("/queue/b", selector="colour = 'red'", ack="auto")
    for number in range(5):
        send(client, f"red{number}", f"blue{number}")
        client.publish("/queue/b", f"b{number}", colour="red")
    assert take_all(world, client) == [f"red{number}" for number in range(5)]
    assert other.bodies() == [f"b{number}" for number in range(5)]


def test_selectors_and_priorities_go_together() -> None:
    world = World("destinations: [{match: '/queue/*', priority: true}]")
    client, other = world.connect(), world.connect()
    for body, priority in (("red1", 1), ("blue9", 9), ("red9", 9), ("red5", 5), ("blue1", 1)):
        client.publish("/queue/a", body, colour=body[:-1], priority=priority)
    client.subscribe("/queue/a", selector="colour = 'red'")
    assert take_all(world, client) == ["red9", "red5", "red1"]
    other.subscribe("/queue/a")
    assert take_all(world, other) == ["blue9", "blue1"]


def test_what_expires_while_it_is_parked_is_not_delivered(world: World) -> None:
    client, other = world.connect(), world.connect()
    client.publish("/queue/a", "blue1", colour="blue", expires=world.now // 1_000_000 + 5_000)
    send(client, "blue2")
    client.subscribe("/queue/a", selector="colour = 'red'")
    world.settle()
    world.tick(10)
    other.subscribe("/queue/a")
    assert take_all(world, other) == ["blue2"]


def test_the_look_ahead_is_bounded_and_goes_on_when_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PARKED_MAX", 5)
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'")
    send(client, *[f"blue{number}" for number in range(8)], "red1")
    world.settle()
    assert client.messages() == []
    (source,) = world.broker.destinations["/queue/a"].queue.sources
    assert len(source.parked) == 5
    other.subscribe("/queue/a", selector="colour = 'blue'", prefetch_count=4)
    world.settle()
    assert other.bodies() == [f"blue{number}" for number in range(4)]
    assert client.bodies() == ["red1"]


def test_more_than_may_be_passed_over_come_back_and_each_costs_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = []
    monkeypatch.setattr(parked, "heapify", lambda heap: (rebuilt.append(len(heap)), heapify(heap)))
    monkeypatch.setattr(limits, "PARKED_MAX", 5)
    lost, client = world.connect(), world.connect()
    lost.subscribe("/queue/a", prefetch_count=1_000)
    send(client, *[f"blue{number}" for number in range(300)], "red1")
    world.settle()
    assert len(lost.messages()) == 301
    client.subscribe("/queue/a", selector="colour = 'red'")
    lost.drop()
    world.settle()
    assert client.bodies() == ["red1"]
    assert sum(rebuilt) < 300
    other = world.connect()
    other.subscribe("/queue/a", selector="colour = 'blue'", prefetch_count=1_000)
    world.settle()
    assert other.bodies() == [f"blue{number}" for number in range(300)]


def test_the_oldest_that_is_dropped_may_be_parked() -> None:
    world = World("destinations: [{match: '/queue/*', max_messages: 3, on_full: drop_oldest}]")
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'")
    send(client, "blue1", "blue2", "blue3")
    world.settle()
    send(client, "blue4", "blue5")
    world.settle()
    other.subscribe("/queue/a")
    assert take_all(world, other) == ["blue3", "blue4", "blue5"]
    assert world.broker.stats.dropped_oldest == 2


def test_a_long_backlog_that_nobody_wants_is_looked_through_in_bounded_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.connect()
    send(client, *[f"blue{number}" for number in range(3_000)], "red1")
    world.settle()
    monkeypatch.setattr(limits, "SELECTOR_RUN_CHARS", 200 * len("colour = 'red'"))
    client.subscribe("/queue/a", selector="colour = 'red'")
    (source,) = world.broker.destinations["/queue/a"].queue.sources
    steps = [0]
    real: Callable[[], bool] = world.broker.ready.pump
    while source.next_offset < 3_001:
        before = source.next_offset
        real()
        world.reads()
        steps.append(source.next_offset - before)
    assert max(steps) <= 200 * 17
    world.settle()
    assert client.bodies() == ["red1"]


COLOURS = ("red", "blue", "green")
SELECTORS = (None, "colour = 'red'", "colour <> 'red'", "colour IN ('red', 'green')", "n > 3")
actions = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(COLOURS)),
    st.tuples(st.just("join"), st.sampled_from(SELECTORS), st.integers(1, 3)),
    st.tuples(st.just("leave"), st.integers(0, 3)),
    st.tuples(st.just("ack"), st.integers(0, 3)),
    st.tuples(st.just("nack"), st.integers(0, 3)),
)


def wants(selector: str | None, colour: str, n: int) -> bool:
    truths = (True, colour == "red", colour != "red", colour != "blue", n > 3)
    return truths[SELECTORS.index(selector)]


@given(st.lists(actions, max_size=40), st.integers(0, 1))
def test_any_history_gives_each_message_to_one_who_wants_it_and_loses_none(history: list[tuple], shared: int) -> None:
    world = World("destinations: [{match: '/queue/*', partition: all}]" if shared else "")
    producer = world.connect()
    consumers: list[tuple[Client, str | None, int, list[Frame]]] = []
    sent: list[str] = []
    colours: dict[str, str] = {}
    acked: list[str] = []
    refused: set[str] = set()

    def hear() -> None:
        world.settle()
        for client, selector, _, held in consumers:
            for frame in client.messages():
                assert wants(selector, frame.headers["colour"], int(frame.headers["n"]))
                if "redelivered" not in frame.headers and held:
                    fresh = [each for each in held if "redelivered" not in each.headers]
                    assert all(int(each.headers["n"]) < int(frame.headers["n"]) for each in fresh)
                held.append(frame)
        everywhere = [frame.body.decode() for *_, held in consumers for frame in held]
        assert len(set(everywhere)) == len(everywhere)
        assert not set(everywhere) & set(acked)
        waiting = set(sent) - set(acked) - set(everywhere) - refused
        for _, selector, window, held in consumers:  # nobody with credit waits for what it wants
            assert len(held) >= window or not any(wants(selector, colours[each], int(each)) for each in waiting)

    for action in history:
        if action[0] == "send":
            sent.append(str(len(sent)))
            colours[sent[-1]] = action[1]
            producer.publish("/queue/a", sent[-1], colour=action[1], n=len(sent) - 1)
        elif action[0] == "join" and len(consumers) < 4:
            client = world.connect()
            headers = {} if action[1] is None else {"selector": action[1]}
            client.subscribe("/queue/a", prefetch_count=action[2], **headers)
            consumers.append((client, action[1], action[2], []))
        elif consumers and action[0] != "join":
            client, _, _, held = consumers[action[1] % len(consumers)]
            if action[0] == "leave":
                del consumers[action[1] % len(consumers)]
                client.drop()
            elif held:
                frame = held.pop(0)
                client.ack(frame, action[0].upper())
                if action[0] == "ack":
                    acked.append(frame.body.decode())
                elif int(frame.headers.get("delivery-count", 1)) > 2:
                    refused.add(frame.body.decode())  # comes back after a while
        hear()
    for client, *_ in consumers:
        client.drop()
    last = world.connect()
    last.subscribe("/queue/a", prefetch_count=1_000)
    world.tick(600)
    assert sorted(last.bodies(), key=int) == sorted(set(sent) - set(acked), key=int)
