"""A queue's source: what waits is counted right, an idle one holds nothing, and an empty one holds nobody else back."""

from __future__ import annotations

import errno
from random import Random

import pytest

from radiator.broker.queues.queue import Queue
from tests.broker.harness import Client, World
from tests.broker.queues.test_queue import drain
from tests.tiers import sampled

Q, B = "/queue/a", "/queue/b"
REJECT = "destinations: [{match: '/queue/*', max_messages: 10}]"
NEWEST = "destinations: [{match: '/queue/*', max_messages: 10, on_full: drop_newest}]"
BYTES = "destinations: [{match: '/queue/*', max_bytes: 10KiB}]"
SHARED = (
    "destinations: [{match: '/queue/*', partition: shared, max_messages: 10}, {match: '/topic/*', partition: shared}]"
)


def queue_of(world: World, name: str = Q) -> Queue:
    queue = world.broker.destinations[name].queue
    assert queue is not None
    return queue


def consumer(world: World, name: str = Q, ack: str = "auto", **headers: int) -> Client:
    client = world.connect()
    client.subscribe(name, ack=ack, **headers)
    world.settle()
    return client


def accepted(world: World, name: str = Q, most: int = 100, body: str = "m") -> int:
    """How many messages a queue takes before it refuses one."""
    sender = world.connect()
    for number in range(most):
        sender.publish(name, body, receipt="r")
        world.settle()
        if sender.session.closing:
            assert sender.error() == "full"
            return number
    return most


# --- a limit counts what waits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [REJECT, NEWEST, BYTES])
def test_a_slow_consumer_does_not_make_a_queue_full_that_a_fast_one_empties(config: str) -> None:
    """The one message that the slow one holds is a hole in front of everything the fast one has acknowledged."""
    world = World(config)
    sender = world.connect()
    slow = consumer(world, ack="client")
    sender.publish(Q, "slow")
    world.settle()
    fast = consumer(world)
    sender.publish(Q, *["x" * 500] * 5)
    for _ in range(40):
        sender.publish(Q, "x" * 500)
        world.settle()
    assert not sender.take("ERROR")
    assert slow.bodies() == ["slow"]
    assert len(fast.bodies()) == 45
    assert world.broker.stats.dropped_newest == 0
    assert queue_of(world).backlog == 1


def test_what_consumers_hold_and_what_waits_counts_each_once() -> None:
    world = World(REJECT)
    client = consumer(world, ack="client-individual", prefetch_count=6)
    assert accepted(world) == 10
    held = client.messages()
    assert len(held) == 6
    for place in (1, 3, 5):
        client.ack(held[place])  # holes
    world.settle()
    assert accepted(world) == 3
    client.nack(held[0])
    world.settle()
    assert accepted(world) == 0  # what came back waits again: it was never anything else
    client.drop()
    assert accepted(world) == 0
    other = consumer(world)
    assert len(other.bodies()) == 10
    other.drop()
    assert accepted(world) == 10


def test_messages_that_were_acked_twice_or_late_are_counted_off_once() -> None:
    world = World(REJECT)
    client = consumer(world, ack="client-individual", prefetch_count=5)
    assert accepted(world) == 10
    held = client.messages()
    for message in [held[0], held[0], held[1]]:
        client.ack(message)
    client.nack(held[1])
    world.settle()
    assert queue_of(world).backlog == 8


@pytest.mark.parametrize("death", ["restart", "kill"])
def test_after_a_start_a_limit_counts_what_is_left(death: str) -> None:
    world = World(REJECT)
    client = consumer(world, ack="client-individual", prefetch_count=10)
    assert accepted(world) == 10
    held = client.messages()
    for place in (0, 2, 4, 9):
        client.ack(held[place], receipt="r")
    world.settle()
    getattr(world, death)()
    assert queue_of(world).backlog == 6
    assert accepted(world) == 4
    assert len(drain(consumer(world, ack="client"))) == 10
    assert queue_of(world).backlog == 0


def test_a_transaction_counts_like_its_messages() -> None:
    world = World(REJECT)
    sender = world.connect()
    for ending in ("COMMIT", "ABORT"):
        sender.say("BEGIN", transaction="t")
        sender.publish(Q, *"1234", transaction="t")
        sender.say(ending, transaction="t")
        world.settle()
    assert queue_of(world).backlog == 4
    assert accepted(world) == 6


def test_a_commit_that_fails_leaves_no_count_behind() -> None:
    world = World(REJECT)
    assert accepted(world, most=3) == 3
    sender = world.connect()
    sender.publish(Q, *"1234")
    world.fs.fail("pwritev")
    world.settle()
    for _ in range(3):
        world.tick(3)
    assert queue_of(world).backlog == 3
    assert accepted(world) == 7


def test_retention_that_takes_messages_makes_room() -> None:
    """A queue in memory whose messages are too old: they are gone, and so do not wait."""
    world = World("destinations: [{match: '/queue/*', max_messages: 10}]", tail_bytes_max=1)
    assert accepted(world) == 10
    partition = world.store.partitions[Q]
    partition.log_start_offset = 4  # as if an operator had removed a segment
    client = consumer(world, ack="client-individual")
    assert [message.headers["offset"] for message in client.messages()] == ["4"]
    assert world.broker.stats.lost_to_retention == 4
    assert queue_of(world).backlog == 6


# --- ... in a log that others use too ---------------------------------------------------------------------------------


def test_what_others_store_in_the_same_log_is_not_counted() -> None:
    world = World(SHARED)
    emptied = consumer(world)
    sender = world.connect()
    sender.publish(B, "one")
    world.settle()
    for number in range(40):
        sender.publish(Q, f"{number}")
        sender.publish("/topic/a", f"{number}")
        world.settle()
    assert len(emptied.bodies()) == 40
    assert queue_of(world, B).backlog == 1
    assert accepted(world, B) == 9


def test_a_queue_that_is_created_in_a_log_in_use_is_empty() -> None:
    world = World(SHARED)
    sender = world.connect()
    for number in range(40):
        sender.publish("/topic/a", f"{number}")
        world.settle()
    sender.publish("/topic/a", "not stored yet")
    assert accepted(world, B) == 10
    assert len(consumer(world, B).bodies()) == 10


@pytest.mark.parametrize("death", ["restart", "kill"])
def test_after_a_start_a_queue_in_a_log_that_others_use_does_not_refuse_for_their_sake(death: str) -> None:
    world = World(SHARED)
    sender = world.connect()
    sender.publish(B, "one")
    world.settle()
    for number in range(40):
        sender.publish("/topic/a", f"{number}")
        world.settle()
    getattr(world, death)()
    assert accepted(world, B) >= 9
    found = consumer(world, B).bodies()
    assert found[0] == "one"
    assert queue_of(world, B).backlog == 0
    assert accepted(world, B) == 100  # its consumer empties it


def test_after_a_start_the_count_is_exact_once_the_queue_was_read() -> None:
    world = World(SHARED)
    sender = world.connect()
    for number in range(9):
        sender.publish(B, f"{number}")
        sender.publish("/topic/a", *"12345")
        world.settle()
    world.restart()
    client = consumer(world, B, ack="client-individual", prefetch_count=100)
    held = client.messages()
    assert len(held) == 9
    assert queue_of(world, B).backlog == 9
    assert accepted(world, B) == 1
    for message in held:
        client.ack(message)
    world.settle()
    assert queue_of(world, B).backlog == 1


def test_what_was_acked_before_the_start_is_not_counted_off_twice() -> None:
    world = World(SHARED)
    client = consumer(world, B, ack="client-individual", prefetch_count=100)
    sender = world.connect()
    for number in range(8):
        sender.publish(B, f"{number}")
        sender.publish("/topic/a", *"123")
        world.settle()
    held = client.messages()
    for place in (1, 4, 7):
        client.ack(held[place], receipt="r")
    world.restart()
    client = consumer(world, B, ack="client-individual", prefetch_count=100)
    assert [message.body for message in client.messages()] == [b"0", b"2", b"3", b"5", b"6"]
    assert queue_of(world, B).backlog == 5


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize("open_", [False, True], ids=["stored", "not stored yet"])
def test_the_oldest_messages_that_are_dropped_are_ours(open_: bool, read: bool) -> None:
    world = World(SHARED.replace("max_messages: 10", "max_messages: 3, on_full: drop_oldest"))
    sender = world.connect()
    held = consumer(world, B, ack="client") if read else None
    for number in range(8):
        sender.publish("/topic/a", "other")
        sender.publish(B, f"{number}", receipt="r")
        if not open_:
            world.settle()
    world.settle()
    assert len(sender.receipts()) == 8
    queue = queue_of(world, B)
    assert queue.backlog == 3
    if held is None:
        assert world.broker.stats.dropped_oldest == 5
        assert consumer(world, B).bodies() == ["5", "6", "7"]
    else:
        (message,) = held.messages()
        held.ack(message)
        assert [message.body.decode(), *drain(held)] == (["5", "6", "7"] if open_ else ["0", "6", "7"])
    world.settle()
    assert queue.backlog == 0
    world.kill()
    assert consumer(world, B).bodies() == []


def test_a_queue_that_drops_and_has_no_consumer_does_not_hold_the_log_back() -> None:
    world = World(RETAINED.replace("partition", "max_messages: 3, on_full: drop_oldest, partition", 1))
    sender = world.connect()
    for number in range(60):
        sender.publish(B, f"{number}")
        fill_shared(world, count=1)
    assert kept(world) <= 192 * 1024
    assert consumer(world, B).bodies() == ["57", "58", "59"]


def stored(world: World, name: str) -> int:
    """How many messages of a queue are in the logs."""
    count = 0
    for partition in world.store.partitions.values():
        offset = partition.log_start_offset
        while (batch := partition.read(offset)) is not None:
            count += sum(batch.names[number] == name for number in batch.destination_ids)
            offset = batch.next_offset
    return count


@pytest.mark.parametrize("on_full", ["reject", "drop_oldest"])
@pytest.mark.parametrize("partition", ["shared", "{name}"])
@pytest.mark.parametrize("seed", sampled(range(15), 3))
def test_the_count_is_what_was_stored_less_what_was_settled(seed: int, partition: str, on_full: str) -> None:
    """Whatever happens in between: acks in any order, refusals, lost consumers, commits that fail."""
    random = Random(seed)
    world = World(
        f"destinations: [{{match: '/queue/*', partition: '{partition}', max_messages: 12, on_full: {on_full}, "
        "redeliver: {delay: 0ms}}, "
        "{match: '/topic/*', partition: shared}]"
    )
    acked = {Q: 0, B: 0}
    clients: list[Client] = []
    for _ in range(150):
        what = random.random()
        if what < 0.4:
            sender = world.connect()
            for _ in range(random.randint(1, 4)):
                sender.publish(random.choice([Q, B, "/topic/a"]), "m")
        elif what < 0.55:
            world.settle()
        elif what < 0.6:
            world.fs.fail("pwritev", random.randint(1, 3), errno.ENOSPC)
            world.settle()
            world.fs.heal()
            for _ in range(3):
                world.tick(3)
        elif what < 0.7 and len(clients) < 4:
            client = world.connect()
            client.subscribe(random.choice([Q, B]), prefetch_count=random.randint(1, 5))
            clients.append(client)
        elif what < 0.75 and clients:
            clients.pop(random.randrange(len(clients))).drop()
        elif what < 0.8:
            world.tick(11)
        elif clients and (held := next(iter(random.choice(clients).session.subscriptions.by_id.values())).in_flight):
            number, (source, _, _) = random.choice(list(held.items()))
            command = random.choice(["ACK", "ACK", "ACK", "NACK"])
            owner = next(each for each in clients if held is each.session.subscriptions.by_id["0"].in_flight)
            owner.say(command, id=f"{owner.session.subscriptions.by_id['0'].tag}-{number}")
            if command == "ACK" and source is not None:
                acked[source.queue.name] += 1
    world.settle()
    for client in clients:
        assert not client.take("ERROR")
        client.drop()
    for name in (Q, B):
        queue = queue_of(world, name)
        waiting = queue.backlog
        assert 0 <= waiting <= 12
        if on_full == "reject":
            assert waiting == stored(world, name) - acked[name]
        assert len(drain(consumer(world, name, ack="client"))) == waiting
        assert queue.backlog == 0
    assert world.broker.pending_bytes == 0


# --- idle -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", ["", "destinations: [{match: '/queue/*', partition: shared}]"])
def test_a_queue_that_has_nothing_to_hand_out_holds_no_messages_in_memory(config: str) -> None:
    world = World(config)
    sender = world.connect()
    for name in (Q, B):
        sender.publish(name, *["x" * 1_000] * 5)
    world.settle()
    clients = [consumer(world, Q), consumer(world, B, ack="client", prefetch_count=10)]
    assert [len(client.bodies()) for client in clients] == [5, 5]
    assert all(source.batch is None for name in (Q, B) for source in queue_of(world, name).sources)


def test_a_queue_whose_consumers_are_gone_holds_no_messages_in_memory() -> None:
    world = World()
    sender = world.connect()
    sender.publish(Q, *["x" * 1_000] * 5)
    client = consumer(world, Q, ack="client")
    assert len(client.bodies()) == 1
    client.drop()
    world.settle()
    assert all(source.batch is None for source in queue_of(world).sources)
    assert len(consumer(world).bodies()) == 5


# --- retention of a shared log ----------------------------------------------------------------------------------------

RETAINED = """
destinations:
  - {match: '/queue/*', partition: shared, segment: {size: 64KiB}, retention: {size: 128KiB}}
  - {match: '/topic/*', partition: shared, segment: {size: 64KiB}, retention: {size: 128KiB}}
"""


def fill_shared(world: World, name: str = "/topic/a", count: int = 60) -> None:
    sender = world.connect()
    for _ in range(count):
        sender.publish(name, "x" * 10_000)
        world.settle()
        world.tick(11)


def kept(world: World) -> int:
    return int(world.store.partitions["shared"].size_bytes)


def test_an_empty_queue_lets_retention_pass() -> None:
    world = World(RETAINED)
    sender = world.connect()
    once = consumer(world, Q)
    sender.publish(Q, "m")
    world.settle()
    assert once.bodies() == ["m"]
    once.drop()
    consumer(world, B).drop()  # this one never had a message
    fill_shared(world)
    assert kept(world) <= 192 * 1024
    assert world.broker.stats.lost_to_retention == 0


def test_a_queue_with_one_message_does_not_let_retention_pass_and_then_does() -> None:
    world = World(RETAINED)
    sender = world.connect()
    sender.publish(Q, "m")
    fill_shared(world)
    assert kept(world) > 500 * 1024
    client = consumer(world)
    assert client.bodies() == ["m"]
    client.drop()
    for _ in range(3):
        world.tick(11)
    assert kept(world) <= 192 * 1024
    assert world.broker.stats.lost_to_retention == 0


def test_a_queue_that_retention_passed_gets_its_next_messages_all_the_same() -> None:
    world = World(RETAINED)
    consumer(world).drop()
    sender = world.connect()
    for life in range(3):
        fill_shared(world, count=20)
        sender.publish(Q, "1", "2")
        world.settle()
        fill_shared(world, count=5)
        found = [message.headers.get("redelivered") for message in consumer(world).messages()]
        assert found == [None, None], life
        for client in world.clients[:]:
            if client is not sender:
                client.drop()
    assert world.broker.stats.lost_to_retention == 0


@pytest.mark.parametrize("death", ["restart", "kill"])
def test_an_empty_queue_lets_retention_pass_after_a_start_too(death: str) -> None:
    world = World(RETAINED)
    sender = world.connect()
    once = consumer(world, Q)
    sender.publish(Q, "m")
    world.settle()
    assert once.bodies() == ["m"]
    once.drop()
    world.connect().publish("/topic/a", *["x" * 10_000] * 3)  # after its last message, and nobody has looked since
    world.settle()
    getattr(world, death)()
    fill_shared(world)
    assert kept(world) <= 192 * 1024


def test_an_empty_queue_beside_a_busy_one_lets_retention_pass() -> None:
    world = World(RETAINED)
    consumer(world, B).drop()
    busy = consumer(world)
    fill_shared(world, Q)
    assert len(busy.messages()) == 60
    assert kept(world) <= 192 * 1024
