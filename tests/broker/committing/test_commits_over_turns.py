"""A COMMIT that takes several turns: what others do in between, and what a lost connection leaves of it."""

from __future__ import annotations

import pytest

from radiator import limits
from radiator.broker import core as core_module
from radiator.clock import NS_PER_SECOND
from radiator.storage.file_partition import FilePartition
from tests.broker.harness import Client, World
from tests.broker.turns import Counted

TURN = 60  # units
Q, RESULTS, T = "/queue/a", "/queue/results", "/topic/a"


@pytest.fixture(autouse=True)
def _slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_WORK", TURN)


def goes_on(client: Client) -> None:
    client.world.settle()
    assert not client.rest


def bodies_in(world: World, name: str) -> list[str]:
    client = world.connect()
    client.subscribe(name, ack="auto")
    world.settle()
    return client.bodies()


def holding(world: World, count: int, destination: str = Q, **headers: str) -> Client:
    """A client that holds so many messages."""
    client, sender = world.connect(), world.connect()
    client.subscribe(destination, prefetch_count=count, **headers)
    for number in range(count):
        sender.publish(destination, str(number))
    world.settle()
    return client


@pytest.mark.parametrize("after", range(8))
def test_what_a_transaction_refuses_for_good_is_refused_though_the_connection_is_lost(after: int) -> None:
    world = World("destinations: [{match: '/queue/a', dead_letter: /queue/dead, partitions: 1}]")
    client = holding(world, 300)
    client.say("BEGIN", transaction="t")
    client.publish(RESULTS, "fruit", transaction="t")
    for message in client.messages():
        client.nack(message, transaction="t", requeue="false")
        goes_on(client)
    client.say("COMMIT", transaction="t")
    while client.session.transactions.by_name:
        client.go_on()
    for _ in range(after):
        world.commit()
        client.go_on()
    client.drop()
    world.settle()
    assert bodies_in(world, RESULTS) == ["fruit"]
    assert bodies_in(world, Q) == []
    assert len(bodies_in(world, "/queue/dead")) == 300


@pytest.mark.parametrize("transaction", [True, False])
def test_the_receipt_waits_for_all_dead_letters_of_a_refusal(
    monkeypatch: pytest.MonkeyPatch, transaction: bool
) -> None:
    world = World(
        "defaults: {dead_letter: /queue/dead}\ndestinations: [{match: '/queue/b', store: memory, partitions: 1}]"
    )
    client, sender = world.connect(), world.connect()
    client.subscribe("/queue/a,/queue/b", ack="client", prefetch_count=1_000)
    sender.publish(Q, *["a"] * 200)
    world.settle()
    sender.publish("/queue/b", *["b"] * 60)
    world.settle()
    last = client.messages()[-1]
    if transaction:
        client.say("BEGIN", transaction="t")
        client.nack(last, requeue="false", transaction="t")
        goes_on(client)
        client.say("COMMIT", transaction="t", receipt="done")
    else:
        client.nack(last, requeue="false", receipt="done")
    monkeypatch.setattr(FilePartition, "read", lambda *_: None)  # to be read from the disk, which takes its time
    for _ in range(50):
        world.commit()
        client.go_on()
    assert world.broker.stats.dead_lettered == 60 and client.receipts() == []
    monkeypatch.undo()
    goes_on(client)
    assert world.broker.stats.dead_lettered == 260 and client.receipts() == ["done"]


@pytest.mark.parametrize("after", range(1, 12))
def test_a_replay_may_end_in_the_middle(after: int) -> None:
    world = World()
    sender, client = world.connect(), world.connect()
    sender.publish(T, *map(str, range(250)))
    world.settle()
    stop = world.now + 10 * NS_PER_SECOND
    client.subscribe(T, ack="client", start_position="first", stop_position=f"time:{stop}", prefetch_count=1_000)
    world.settle()
    last = client.messages()[-1]
    client.say("BEGIN", transaction="t")
    client.publish(RESULTS, "fruit", transaction="t")
    client.ack(last, transaction="t")
    goes_on(client)
    client.say("COMMIT", transaction="t", receipt="done")
    for _ in range(after):
        world.commit()
        client.go_on()
    world.now = stop
    world.broker.tick(world.time)
    goes_on(client)
    assert client.receipts() == ["done"] and client.take("ERROR") == []
    assert bodies_in(world, RESULTS) == ["fruit"]


@pytest.mark.parametrize("after", range(1, 20))
def test_a_message_is_no_repeat_of_one_that_was_taken_back_meanwhile(after: int) -> None:
    world = World("destinations: [{match: '/queue/a', partitions: 1}]")
    sender, client = world.connect(), world.connect()
    client.say("BEGIN", transaction="t")
    for number in range(100):
        client.publish(Q, str(number), transaction="t", dedup_id=str(number))
        world.settle()
    sender.publish(Q, "0", dedup_id="0")
    world.take()
    client.say("COMMIT", transaction="t", receipt="done")
    for _ in range(after):
        client.go_on()
    world.fs.fail("pwritev")
    world.write()
    world.sync()
    world.completed()
    for _ in range(10):
        world.now += NS_PER_SECOND
        world.broker.tick(world.time)
        world.commit()
    goes_on(client)
    if client.receipts() == ["done"]:  # or it was refused, while the log took nothing
        assert sorted(bodies_in(world, Q), key=int) == [str(number) for number in range(100)]


@pytest.mark.parametrize("rule", ["partitions: 4", "priority: true"])
def test_a_queue_that_drops_the_newest_keeps_the_first_of_a_transaction(rule: str) -> None:
    world = World(f"destinations: [{{match: '/queue/a', max_messages: 3, on_full: drop_newest, {rule}}}]")
    client = world.connect()
    client.say("BEGIN", transaction="t")
    for number in range(20):
        client.publish(Q, str(number), transaction="t", priority=str(number % 3))
        world.settle()
    client.say("COMMIT", transaction="t", receipt="done")
    goes_on(client)
    assert client.receipts() == ["done"] and world.broker.stats.dropped_newest == 17
    assert sorted(bodies_in(world, Q), key=int) == ["0", "1", "2"]


def test_a_queue_that_drops_the_oldest_drops_what_came_back_for_a_transaction() -> None:
    world = World("destinations: [{match: '/queue/a', max_messages: 2, on_full: drop_oldest, partitions: 1}]")
    consumer, client = holding(world, 2), world.connect()
    consumer.drop()
    world.settle()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "new", transaction="t")
    client.say("COMMIT", transaction="t", receipt="done")
    goes_on(client)
    assert client.receipts() == ["done"] and world.broker.stats.dropped_oldest == 1
    assert bodies_in(world, Q) == ["1", "new"]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_queue_that_drops_the_oldest_keeps_the_newest_of_a_transaction(together: bool, count: int) -> None:
    world = World("destinations: [{match: '/queue/a', max_messages: 2, on_full: drop_oldest, priority: true}]")
    client = world.connect()
    client.publish(Q, "high 1", "high 2", priority="9")
    world.settle()
    headers = {"transaction": "t"} if together else {}
    if together:
        client.say("BEGIN", transaction="t")
    for number in range(count):
        client.publish(Q, f"low {number}", priority="1", **headers)
        world.settle()
    if together:
        client.say("COMMIT", transaction="t", receipt="done")
    goes_on(client)
    assert bodies_in(world, Q) == ["high 2", f"low {count - 1}"]


def test_a_commit_that_needs_most_of_a_turn_begins_with_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "Budget", Counted)
    monkeypatch.setattr(limits, "TURN_WORK", 200)
    for count in range(1_450, 1_550, 9):
        world = World("destinations: [{match: '/topic/*', store: memory}]")
        client = world.connect()
        client.say("BEGIN", transaction="t")
        for _ in range(count):
            client.publish(T, "", transaction="t")
        goes_on(client)
        budget = world.broker.budget
        assert isinstance(budget, Counted)
        budget.turns.clear()
        client.say("COMMIT", transaction="t", receipt="done")
        goes_on(client)
        assert client.receipts() == ["done"]
        assert max(budget.turns) <= 200 + 50, "and one step of freeing its frames"
