"""Equal consumers of a queue get equal shares, whatever the order of their answers; unequal ones do not wait for one
another."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from radiator.broker.queues.fair_dispatch import CONSUMERS_MAX, PATIENCE_NS, _most
from radiator.clock import NS_PER_MS
from tests.broker.harness import Client, World
from tests.tiers import sampled

Q = "/queue/a"


def turn(world: World) -> None:
    for _ in range(4):
        world.commit()
        world.pump()
    world.flush()


def work(
    world: World,
    services_us: list[float],
    messages: int,
    prefetch: int,
    jitter: float,
    seed: int,
    every: int = 1,
    pause: tuple[int, int, int] = (0, 0, 0),
) -> list[int]:
    """Consumers that take so long for each message, more or less, until all have been acknowledged: each by itself, or
    ``every`` so many with one ACK. ``pause``: who, once it has had so many, does nothing for so many ns. Returns how
    many each has got; ``world.now`` says how long it took."""
    random = Random(seed)
    sender = world.connect()
    sender.publish(Q, *map(str, range(messages)))
    turn(world)
    more: dict[str, object] = {"prefetch_count": prefetch} if prefetch > 1 else {}
    if every > 1:
        more["ack"] = "client"
    clients: list[Client] = []
    for _ in services_us:
        clients.append(world.connect())
        clients[-1].subscribe(Q, **more)
        turn(world)
    counts = [0] * len(clients)
    busy_until = [world.now] * len(clients)
    answers: list[tuple[int, int, int]] = []  # when, whose, serial
    held: dict[int, list[object]] = {index: [] for index in range(len(clients))}
    serial = 0
    while sum(counts) < messages:
        for index, client in enumerate(clients):
            for message in client.messages():
                held[index].append(message)
                spread = random.uniform(1 - jitter, 1 + jitter)
                busy_until[index] = max(busy_until[index], world.now) + int(services_us[index] * 1_000 * spread)
                if pause[0] == index and pause[1] == counts[index] + len(held[index]):
                    busy_until[index] += pause[2]
                serial += 1
                heappush(answers, (busy_until[index], index, serial))
        planned_ns = world.wall_at(world.broker.timing.next_ns)
        if not answers or planned_ns < answers[0][0]:
            world.now = max(world.now, planned_ns)
            world.broker.tick(world.time)
        else:
            world.now, index, _ = heappop(answers)
            message = held[index].pop(0)
            counts[index] += 1
            if counts[index] % every == 0:
                clients[index].ack(message)  # type: ignore[arg-type]
        turn(world)
    return counts


@pytest.mark.parametrize(
    ("prefetch", "every"), [(1, 1), (2, 1), (10, 1), (50, 1), (100, 1), (10, 5), (50, 5), (100, 20)]
)
@pytest.mark.parametrize("service_us", [100, 3_000])
@pytest.mark.parametrize("seed", sampled(range(3), 1))
def test_three_equal_consumers_of_300_messages_get_100_each(
    prefetch: int, every: int, service_us: float, seed: int
) -> None:
    counts = work(World(), [service_us] * 3, 300, prefetch, jitter=0.4, seed=seed, every=every)
    assert all(abs(count - 100) <= 1 for count in counts), counts


@pytest.mark.parametrize("prefetch", [2, 10])
def test_consumers_get_equally_many_messages_with_priorities_too(prefetch: int) -> None:
    world = World("destinations: [{match: '/queue/*', priority: true}]")
    counts = work(world, [100, 100, 100], 120, prefetch, jitter=0.4, seed=1)
    assert all(abs(count - 40) <= 1 for count in counts), counts


@pytest.mark.parametrize("prefetch", [1, 10, 50])
def test_one_that_pauses_for_a_while_gets_what_it_has_missed(prefetch: int) -> None:
    pause = (1, 40, 4 * NS_PER_MS)
    counts = work(World(), [100, 100, 100], 300, prefetch, jitter=0.2, seed=1, pause=pause)
    assert all(abs(count - 100) <= 1 for count in counts), counts


def test_no_consumer_waits_while_enough_messages_are_left_for_the_others() -> None:
    world = World()
    began_ns = world.now
    counts = work(world, [100, 130, 160], 3_000, 1, jitter=0.4, seed=1)
    together = 3_000 / (1 / 100 + 1 / 130 + 1 / 160) * 1_000
    assert counts[0] > counts[1] > counts[2]
    assert world.now - began_ns < 1.1 * together


@pytest.mark.parametrize("slow_us", sampled([1_000, 3_000, 4_900, 50_000, 1_000_000], 2))
def test_a_slow_consumer_does_not_slow_a_quick_one_down(slow_us: float) -> None:
    world = World()
    began_ns = world.now
    quick, slow = work(world, [100, slow_us], 2_000, 1, jitter=0.2, seed=1)
    alone_ns = 2_000 * 100 * 1_000
    last_one_ns = int(2 * slow_us * 1_000)  # what the slow one holds at the end has to be waited for
    assert world.now - began_ns < 1.15 * alone_ns + last_one_ns + PATIENCE_NS
    assert quick > 5 * slow


def test_a_consumer_that_does_not_answer_is_waited_for_once() -> None:
    world = World()
    stuck, client, sender = world.connect(), world.connect(), world.connect()
    stuck.subscribe(Q)
    client.subscribe(Q)
    sender.publish(Q, *map(str, range(50)))
    began_ns, waits = world.now, 0
    turn(world)
    assert stuck.messages()
    taken = 0
    while taken < 49:
        messages = client.messages()
        if not messages:
            waits += 1
            world.until(world.broker.timing.next_ns)
            world.broker.tick(world.time)
        for message in messages:
            client.ack(message)
            taken += 1
        turn(world)
    assert waits <= 1
    assert world.now - began_ns <= PATIENCE_NS


def test_a_consumer_that_leaves_is_not_waited_for() -> None:
    world = World()
    sender, *clients = (world.connect() for _ in range(3))
    for client in clients:
        client.subscribe(Q)
    sender.publish(Q, *map(str, range(20)))
    turn(world)
    leaver, client = clients
    for message in client.messages():
        client.ack(message)
    turn(world)
    leaver.drop()
    world.clients.remove(leaver)
    heard = 0
    for _ in range(60):
        world.settle()
        for message in client.messages():
            client.ack(message)
            heard += 1
    assert heard == 19


def test_many_consumers_are_served_without_fair_dispatch() -> None:
    world = World()
    sender, *clients = (world.connect() for _ in range(CONSUMERS_MAX + 2))
    for client in clients[:2]:
        client.subscribe(Q)
    sender.publish(Q, "a", "b", "c")
    turn(world)
    queue = world.broker.destinations[Q].queue
    assert queue is not None
    assert queue.shares is not None
    for client in clients[2:]:
        client.subscribe(Q)
    assert queue.shares is None
    sender.publish(Q, *map(str, range(CONSUMERS_MAX)))
    turn(world)
    assert all(len(client.messages()) == 1 for client in clients)


def test_a_late_consumer_gets_an_equal_part_of_the_rest() -> None:
    world = World()
    first, sender = world.connect(), world.connect()
    first.subscribe(Q)
    sender.publish(Q, *map(str, range(300)))
    for _ in range(100):
        turn(world)
        world.now += NS_PER_MS
        for message in first.messages():
            first.ack(message)
    late = world.connect()
    late.subscribe(Q)
    counts = [0, 0]
    while sum(counts) < 200:
        turn(world)
        world.now += NS_PER_MS
        for index, client in enumerate((first, late)):
            for message in client.messages():
                client.ack(message)
                counts[index] += 1
    assert 99 <= counts[1] <= 101, counts


@pytest.mark.parametrize("leads", [[], [0], [3], [-2, -5], [0, 0, 0], [-1, 2, 7]])
def test_one_may_have_as_many_as_leave_enough_for_those_behind_it(leads: list[int]) -> None:
    def lacking(count: int) -> int:
        return sum(max(0, lead + count - 1) for lead in leads)

    for credit in range(1, 13):
        for left in range(1, 25):
            fits = [count for count in range(credit + 1) if not lacking(count) or count + lacking(count) <= left]
            assert _most(leads, credit, left) == max([0, *fits])
