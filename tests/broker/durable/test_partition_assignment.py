"""Groups over topics with several partitions: one owner each, order kept, nobody works on what another one holds."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.harness import Client, World

RULE = "destinations:\n  - {match: '/topic/>', partitions: 4, partition_by: 'header:key', prefetch: 100}\n"
T = "/topic/clicks"


def member(world: World, **headers: str) -> Client:
    client = world.connect()
    client.subscribe(T, group="g", receipt="sub", **headers)
    world.settle()
    assert client.receipts() == ["sub"]
    return client


def send(world: World, client: Client, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        client.publish(T, str(number), key=f"k{number % 12}")
    world.settle()


def partitions(client: Client) -> set[str]:
    """Acknowledge what there is; the partitions that it came from."""
    found = set()
    while messages := client.messages():
        for message in messages:
            found.add(message.headers["partition"])
            client.ack(message)
        client.world.settle()
    return found


@pytest.fixture
def world() -> World:
    return World(RULE)


def test_each_partition_is_assigned_to_one_member_and_surplus_members_wait(world: World) -> None:
    members = [member(world) for _ in range(5)]
    send(world, world.connect(), 48)
    shares = [partitions(each) for each in members]
    assert sorted(map(len, shares)) == [0, 1, 1, 1, 1]
    assert len(set().union(*shares)) == 4


def test_a_member_that_leaves_hands_its_partitions_over_with_what_it_held(world: World) -> None:
    first, second = member(world), member(world)
    send(world, world.connect(), 24)
    held = second.messages()
    assert held
    partitions(first)
    second.drop()
    world.settle()
    again = first.messages()
    assert sorted(int(each.body) for each in again) == sorted(int(each.body) for each in held)
    assert all(each.headers["redelivered"] == "true" for each in again)


def test_a_partition_is_reassigned_only_when_its_member_has_settled_its_messages(world: World) -> None:
    first = member(world)
    producer = world.connect()
    send(world, producer, 24)
    held = first.messages()
    assert len({each.headers["partition"] for each in held}) == 4
    second = member(world)
    send(world, producer, 24, 24)
    assert second.messages() == []
    more = first.messages()
    moved = {f"{T}-{n}" for n in range(4)} - {each.headers["partition"] for each in more}
    assert len(moved) == 2
    for message in held[:-1]:
        first.ack(message)
    world.settle()
    last = held[-1].headers["partition"]
    assert partitions(second) == moved - {last}
    first.ack(held[-1])
    world.settle()
    assert partitions(second) == moved & {last}


@pytest.mark.parametrize("end", ["dies", "unsubscribes and dies", "reads on"])
def test_a_message_that_was_not_written_under_auto_is_still_in_flight(world: World, end: str) -> None:
    sender = world.connect()
    first = member(world, ack="auto")
    send(world, sender, 24)
    first.bodies()
    for number in range(24, 72):
        sender.publish(T, str(number), key=f"k{number % 12}")
    for _ in range(3):
        world.commit()
        world.pump()  # all is in the outbox of the first now, and nothing of it is written
    if end == "unsubscribes and dies":
        first.say("UNSUBSCRIBE", id="0")
    second = world.connect()
    second.subscribe(T, group="g", ack="auto")
    for number in range(72, 96):
        sender.publish(T, str(number), key=f"k{number % 12}")
    for _ in range(5):
        world.commit()
        world.reads()
        world.pump()
    heard = second.bodies()
    if end == "reads on":
        world.settle()
    else:
        first.session.outbox.pieces.clear()
        first.drop()
        world.settle()
    heard += second.bodies()
    by_key = defaultdict(list)
    for number in map(int, heard):
        by_key[number % 12].append(number)
    assert all(each == sorted(each) for each in by_key.values()), by_key
    if end == "reads on":
        everything = sorted(map(int, heard + first.bodies()))
        assert everything == list(range(24, 96))
        assert heard, "the newcomer has its share"
    else:
        assert sorted(map(int, heard)) == list(range(24, 96))


def test_a_topic_with_one_partition_is_shared_message_by_message() -> None:
    world = World()
    members = [member(world) for _ in range(3)]
    send(world, world.connect(), 3)
    assert sorted(len(each.messages()) for each in members) == [1, 1, 1]


def test_after_a_restart_the_members_share_again(world: World) -> None:
    member(world)
    world.restart()
    members = [member(world), member(world)]
    send(world, world.connect(), 48)
    assert [len(partitions(each)) for each in members] == [2, 2]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_order_of_each_key_is_kept_whatever_members_do(seed: int) -> None:
    """Whoever joins, leaves, refuses or is slow: each key is acknowledged in its order, and nobody
    was given a message of a partition while another held one of it."""
    chance = random.Random(seed)
    world = World(RULE)
    producer = world.connect()
    members: list[Client] = [member(world)]
    holding: dict[Client, list[object]] = defaultdict(list)
    done: dict[str, list[int]] = defaultdict(list)
    sent = 0

    def take() -> None:
        world.settle()
        for each in members:
            holding[each] += each.messages()
        assignment = defaultdict(set)
        for each in members:
            for message in holding[each]:
                assignment[message.headers["partition"]].add(each)  # type: ignore[attr-defined]
        assert all(len(found) == 1 for found in assignment.values())

    for _ in range(40):
        action = chance.choice(["send", "send", "ack", "ack", "join", "leave"])
        if action == "send":
            send(world, producer, 6, sent)
            sent += 6
        elif action == "ack" and members:
            each = chance.choice(members)
            for message in holding[each][: chance.randrange(1, 8)]:
                holding[each].remove(message)
                each.ack(message)  # type: ignore[arg-type]
                done[message.headers["key"]].append(int(message.body))  # type: ignore[attr-defined]
        elif action == "join" and len(members) < 5:
            members.append(member(world))
        elif action == "leave" and len(members) > 1:
            each = members.pop(chance.randrange(len(members)))
            holding.pop(each, None)
            each.drop()
        take()
    while any(holding.values()):
        for each in members:
            for message in holding[each]:
                each.ack(message)  # type: ignore[arg-type]
                done[message.headers["key"]].append(int(message.body))  # type: ignore[attr-defined]
            holding[each] = []
        take()
    assert sorted(number for numbers in done.values() for number in numbers) == list(range(sent))
    assert all(numbers == sorted(numbers) for numbers in done.values())


def test_a_partition_is_reassigned_when_its_last_member_has_acknowledged_and_is_busy_with_another_group() -> None:
    world = World("destinations: [{match: /topic/clicks, partitions: 2, partition_by: 'header:key'}]")
    first, sender = world.connect(), world.connect()
    first.subscribe("/topic/other", id="other", group="other")
    first.subscribe(T, group="g")
    for body in "123":
        sender.publish(T, body, key="k0")
    world.settle()
    (held,) = first.messages()
    assert held.headers["partition"] == "/topic/clicks-1"  # of two the one that moves
    sender.publish("/topic/other", "next")
    second = member(world, prefetch_count="100")
    assert second.bodies() == []
    first.ack(held)
    world.settle()
    assert (first.bodies(), second.bodies()) == (["next"], ["2", "3"])
