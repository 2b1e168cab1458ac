"""A feed: nobody stays behind offsets that are given out again, and a read that the disk fails is not forgotten."""

from __future__ import annotations

import errno
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from radiator.broker.logs.destination_filter import QueueFilter
from radiator.broker.logs.feed import Feed
from tests.broker.harness import Client, World

T, Q = "/topic/a", "/queue/a"
RETRY_SECONDS = 3  # a log that could not be written takes messages again after that


def fail_commit(world: World) -> None:
    """The disk refuses what is open now."""
    world.fs.fail("pwritev", 1, errno.ENOSPC)
    world.settle()


def recover(world: World, destination: str = T) -> None:
    """The disk has room again."""
    for _ in range(3):
        world.tick(RETRY_SECONDS)
    assert world.store.partitions[destination].failed is None


def publish(world: World, *bodies: str, destination: str = T) -> None:
    """Each in a batch of its own, and receipted."""
    sender = world.connect()
    for body in bodies:
        sender.publish(destination, body, receipt=body)
        world.settle()
    assert sender.receipts() == list(bodies)


# --- offsets that are given out again ---------------------------------------------------------------------------------


def test_a_live_subscriber_misses_nothing_that_takes_the_places_of_lost_messages(world: World) -> None:
    publish(world, "a")
    sender, client = world.connect(), world.connect()
    sender.publish(T, "lost", "lost")
    client.subscribe(T, ack="auto")  # it starts behind messages that will never be stored
    fail_commit(world)
    recover(world)
    publish(world, "b", "c", "d")
    assert client.bodies() == ["b", "c", "d"]
    assert [int(offset) for offset in (world.store.partitions[T].high_watermark,)] == [4]


def test_a_subscriber_that_was_live_already_goes_on_too(world: World) -> None:
    client, sender = world.connect(), world.connect()
    client.subscribe(T, ack="auto")
    publish(world, "a")
    assert client.bodies() == ["a"]
    sender.publish(T, "lost", "lost")
    fail_commit(world)
    recover(world)
    publish(world, "b", "c", "d")
    messages = client.messages()
    assert [message.body for message in messages] == [b"b", b"c", b"d"]
    assert not any("replayed" in message.headers or "gap" in message.headers for message in messages)


def test_messages_in_the_place_of_lost_ones_are_not_history(world: World) -> None:
    publish(world, "a")
    sender, client = world.connect(), world.connect()
    sender.publish(T, "lost", "lost")
    client.subscribe(T, ack="auto", start_position="first")
    fail_commit(world)
    recover(world)
    publish(world, "b", "c", "d")
    marks = [(message.body, message.headers.get("replayed")) for message in client.messages()]
    assert marks == [(b"a", "true"), (b"b", None), (b"c", None), (b"d", None)]


@pytest.mark.parametrize("stop", ["end", "next"])
def test_a_replay_to_the_end_ends_where_the_log_ended_when_what_was_open_is_lost(world: World, stop: str) -> None:
    publish(world, "a", "b")
    sender, client = world.connect(), world.connect()
    sender.publish(T, "lost", "lost")
    client.subscribe(T, ack="auto", start_position="first", stop_position=stop)
    fail_commit(world)
    messages = client.messages()
    assert [(message.body, message.headers.get("replay-end")) for message in messages] == [
        (b"a", None),
        (b"b", None),
        (b"", "true"),
    ]
    recover(world)
    publish(world, "c", "d", "e")
    assert client.messages() == []


def test_positions_in_the_future_stay_where_they_are(world: World) -> None:
    publish(world, "a")
    sender, client = world.connect(), world.connect()
    sender.publish(T, "lost", "lost")
    client.subscribe(T, ack="auto", start_position="offset:5", stop_position="offset:6")
    fail_commit(world)
    recover(world)
    publish(world, *"bcdefgh")
    assert [(m.headers.get("offset"), m.body) for m in client.messages()] == [("5", b"f"), ("6", b"g"), (None, b"")]


def test_a_new_queue_misses_nothing_that_takes_the_places_of_lost_messages() -> None:
    """In a log that others use, a queue may be born while messages are on their way that will be lost."""
    world = World("destinations: [{match: '/queue/*', partition: shared}]")
    sender, client = world.connect(), world.connect()
    publish(world, "x", destination="/queue/other")
    sender.publish("/queue/other", "lost", "lost")
    client.subscribe(Q, ack="auto")
    fail_commit(world)
    recover(world, "shared")
    publish(world, "b", "c", "d", destination=Q)
    assert client.bodies() == ["b", "c", "d"]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_queue_that_dropped_what_was_then_lost_swallows_nothing(kept: int) -> None:
    world = World("destinations: [{match: /queue/a, max_messages: 3, on_full: drop_oldest}]")
    publish(world, *[f"old{number}" for number in range(kept)], destination=Q)
    sender = world.connect()
    sender.publish(Q, *[f"lost{number}" for number in range(7)])  # the last 3 would be left
    fail_commit(world)
    recover(world, Q)
    publish(world, "b", "c", "d", destination=Q)
    client = world.connect()
    client.subscribe(Q, ack="auto")
    world.settle()
    assert client.bodies() == ["b", "c", "d"]
    queue = world.broker.destinations[Q].queue
    assert queue is not None and (queue.backlog, queue.sources[0].fresh) == (0, 0)
    publish(world, *"efg", destination=Q)  # not one of these is refused or dropped
    assert client.bodies() == ["e", "f", "g"]


def test_what_is_dropped_before_it_is_stored_is_settled_when_it_is() -> None:
    world = World("destinations: [{match: /queue/a, max_messages: 2, on_full: drop_oldest}]")
    sender = world.connect()
    sender.publish(Q, *"012345", receipt="r")
    world.settle()
    assert sender.receipts() == ["r"] * 6
    assert world.broker.stats.dropped_oldest == 4
    assert world.store.cursors.get(f"queue:{Q}", Q).floor == 4  # type: ignore[union-attr]
    world.kill()
    client = world.connect()
    client.subscribe(Q, ack="auto")
    world.settle()
    assert client.bodies() == ["4", "5"]


@pytest.mark.parametrize("lost", ["first", "second"])
def test_batches_of_which_one_is_lost_leave_a_dropping_queue_with_what_is_stored(lost: str) -> None:
    world = World("destinations: [{match: /queue/a, max_messages: 2, on_full: drop_oldest}]")
    sender = world.connect()
    sender.publish(Q, *"0123")
    world.take()  # on its way to the disk
    world.connect().publish(Q, *"4567")
    if lost == "first":
        world.fs.fail("pwritev", 1, errno.ENOSPC)
    world.write()
    world.sync()
    world.completed()
    if lost == "second":
        world.fs.fail("pwritev", 1, errno.ENOSPC)
    world.settle()
    recover(world, Q)
    queue = world.broker.destinations[Q].queue
    assert queue is not None and queue.backlog == 0  # 4 and 5 pushed 0 to 3 out before they were lost themselves
    publish(world, "8", "9", destination=Q)
    assert queue.backlog == 2
    client = world.connect()
    client.subscribe(Q, ack="auto")
    world.settle()
    assert client.bodies() == ["8", "9"]
    assert queue.backlog == 0


# --- reads that the disk fails ----------------------------------------------------------------------------------------


class BadDisk:
    """Every read of a segment fails with EIO until ``heal``; nothing is in memory."""

    def __init__(self, *names: str, config: str = "") -> None:
        self.world = world = World(config, tail_bytes_max=1)
        for name in names:
            publish(world, *[f"m{number}" for number in range(5)], destination=name)
        self.reads = 0
        self.good = world.fs.pread
        world.fs.pread = self.pread

    def pread(self, fd: int, size: int, position: int) -> bytes:
        if self.world.fs.descriptors[fd][0].endswith(".rlog"):
            self.reads += 1
            raise OSError(errno.EIO, "Input/output error")
        data: bytes = self.good(fd, size, position)
        return data

    def heal(self) -> None:
        self.world.fs.pread = self.good

    def subscriber(self, destination: str, **headers: Any) -> Client:
        client = self.world.connect()
        client.subscribe(destination, ack="auto", **headers)
        self.world.settle()
        return client


def test_a_reader_of_an_unreadable_log_gets_an_error_in_the_end() -> None:
    disk = BadDisk(T)
    client = disk.subscriber(T, start_position="first")
    disk.world.tick()
    assert not client.session.closing  # one failure says little
    for _ in range(30):
        disk.world.tick()
    assert client.error() == "storage"
    assert client.messages() == []
    assert 2 <= disk.reads < 30


def test_a_reader_goes_on_when_the_disk_recovers_in_time() -> None:
    disk = BadDisk(T)
    client = disk.subscriber(T, start_position="first")
    for _ in range(3):
        disk.world.tick()
    disk.heal()
    disk.world.tick()
    assert client.bodies() == [f"m{number}" for number in range(5)]


def test_a_queue_tries_for_as_long_as_it_takes_and_loses_nothing() -> None:
    disk = BadDisk(Q)
    client = disk.subscriber(Q)
    for _ in range(60):
        disk.world.tick()
    assert client.take() == []
    assert not client.session.closing
    assert disk.world.broker.stats.read_errors >= 50
    disk.heal()
    disk.world.tick()
    assert client.bodies() == [f"m{number}" for number in range(5)]
    assert disk.world.broker.stats.lost_to_retention == 0


def test_a_reader_of_a_topic_in_the_log_of_a_queue_gets_an_error_and_the_queue_retries() -> None:
    disk = BadDisk(Q)
    consumer = disk.subscriber(Q)
    looker = disk.subscriber(Q, start_position="first")
    for _ in range(30):
        disk.world.tick()
    assert looker.error() == "storage"
    assert consumer.take() == []
    looker.drop()
    disk.heal()
    disk.world.tick()
    assert consumer.bodies() == [f"m{number}" for number in range(5)]


@pytest.mark.parametrize(("name", "headers"), [(T, {"start_position": "first"}), (Q, {})])
def test_without_readers_nothing_more_is_read(name: str, headers: dict[str, str]) -> None:
    disk = BadDisk(name)
    client = disk.subscriber(name, **headers)
    disk.world.tick()
    client.drop()
    disk.world.tick()
    before = disk.reads
    for _ in range(10):
        disk.world.tick()
    assert disk.reads == before
    disk.heal()
    again = disk.subscriber(name, **headers)  # and whoever comes later is served
    assert again.bodies() == [f"m{number}" for number in range(5)]


def test_a_failed_read_holds_up_one_log_and_no_other() -> None:
    disk = BadDisk(Q, config="destinations: [{match: /topic/memory, store: memory}]")
    bad = disk.subscriber(Q)
    good = disk.world.connect()
    good.subscribe("/topic/memory", ack="auto")
    good.publish("/topic/memory", "m")
    disk.world.tick()
    assert good.bodies() == ["m"]
    assert bad.messages() == []


# --- the lowest offset that a queue still needs -----------------------------------------------------------------------


class Counted:
    """A cursor that counts who asks it where it stands."""

    asked = 0

    def __init__(self, floor: int) -> None:
        self.at = floor

    @property
    def floor(self) -> int:
        Counted.asked += 1
        return self.at


class Stub(SimpleNamespace):
    """A source of which only the floor is asked for."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def many(count: int) -> tuple[Feed, list[Any]]:
    partition = SimpleNamespace(name="p", high_watermark=0, destinations=set(), whole=True, retain_from=None)
    partition.report_to = lambda on_forced, settled_in: None

    def pin(lowest: int | None, pins: int, history: bool) -> None:
        partition.retain_from, partition.pins = lowest, pins

    partition.pin = pin
    feed = Feed(partition, lambda feed, job: None)
    for number in range(count):
        feed.join(Stub(cursor=Counted(0), queue=SimpleNamespace(filter=QueueFilter(f"q{number}"))))
    return feed, feed.sources


def test_a_turn_in_which_every_queue_of_a_log_moves_asks_each_a_few_times() -> None:
    feed, sources = many(1_000)
    Counted.asked = 0
    for source in sources:
        source.cursor.at = 5
        feed.pin()
    assert feed.partition.retain_from == 5
    assert Counted.asked <= 4 * len(sources)


@pytest.mark.parametrize("seed", range(5))
def test_the_lowest_floor_is_right_while_cursors_come_and_go(seed: int) -> None:
    random = Random(seed)
    feed, _ = many(10)
    for number in range(300):
        what = random.randrange(8)
        if what == 0 and len(feed.sources) > 1:
            feed.leave(random.choice(feed.sources).queue)
        elif what == 1:
            floor = random.randrange(200)
            feed.join(Stub(cursor=Counted(floor), queue=SimpleNamespace(filter=QueueFilter(f"new{number}"))))
        else:
            random.choice(feed.sources).cursor.at += random.randrange(9)
        feed.pin()
        assert feed.partition.retain_from == min(source.cursor.at for source in feed.sources)
        assert feed.partition.pins == len(feed.sources)
