"""A disk that fails under a running broker: who is told what, and when the broker is ready again."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator.broker.admin import readiness
from radiator.errors import ProtocolError
from radiator.storage.journal import journal
from tests.broker.harness import World
from tests.storage.faults import FaultyFileSystem

A, B = "/queue/a", "/queue/b"


def failing(world: World, verb: str = "fdatasync", error: int = errno.EIO) -> Any:
    """A client whose message meets a disk that fails; it has had its ERROR in the same turn."""
    client = world.connect()
    client.publish(A, "kept", receipt="0")
    world.settle()
    assert client.receipts() == ["0"]
    world.fs.fail(verb, 1, error)
    client.publish(A, "refused", receipt="1")
    world.settle()
    return client


def test_a_failed_sync_is_answered_at_once_and_makes_the_broker_unready() -> None:
    world = World()
    assert readiness.reasons(world.broker) == []
    client = failing(world)
    assert not client.receipts() and client.error() == "storage"
    ((reason),) = readiness.reasons(world.broker)
    assert reason.startswith("journal: ") and "cannot sync" in reason
    world.tick(2.5)
    world.settle()
    assert readiness.reasons(world.broker) == [], "without another message"


def test_sends_to_a_failed_partition_get_an_error_without_waiting_and_others_go_on() -> None:
    world = World()
    client = world.connect()
    world.fs.fail("pwritev", under="/partitions/")
    client.publish(A, "kept", receipt="0")
    world.settle()
    assert client.receipts() == ["0"], "the journal has it"
    (reason,) = readiness.reasons(world.broker)
    assert reason.startswith("partition /queue/a: ") and "cannot write" in reason
    assert readiness.figures(world.broker)["store"]["partitions_failed"] == 1
    client = world.connect()
    client.publish(A, "again", receipt="2")
    client.flush()
    assert client.error() == "storage", "in the very call that read the frame"
    client = world.connect()
    client.publish(B, "other", receipt="3")
    world.settle()
    assert client.receipts() == ["3"]
    client.subscribe(A)
    world.settle()
    assert client.bodies() == ["kept"]


def test_some_seconds_later_it_takes_messages_again_and_is_ready() -> None:
    for verb, error in [("fdatasync", errno.EIO), ("pwritev", errno.EIO), ("pwritev", errno.ENOSPC)]:
        world = World()
        failing(world, verb, error)
        world.tick(2.5)
        assert readiness.reasons(world.broker) == []
        client = world.connect()
        client.publish(A, "next", receipt="4")
        client.subscribe(A, prefetch_count=10)
        world.settle()
        assert client.receipts() == ["4"] and client.bodies() == ["kept", "next"]


def test_a_reader_goes_on_over_the_failure_as_if_nothing_had_happened() -> None:
    world = World("destinations: [{match: '/topic/>', fsync: 1s}]")
    reader, client = world.connect(), world.connect()
    reader.subscribe("/topic/t", ack="auto", start_position="first")
    for number in range(5):
        client.publish("/topic/t", str(number))
        world.settle()
    world.fs.fail("fdatasync")
    world.tick(1.5)
    assert readiness.reasons(world.broker)
    world.tick(2.5)
    assert readiness.reasons(world.broker) == []
    client.publish("/topic/t", "5", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]
    assert reader.bodies() == ["0", "1", "2", "3", "4", "5"]
    world.power_cut()
    client = world.connect()
    client.subscribe("/topic/t", ack="auto", start_position="first")
    world.settle()
    assert client.bodies()[:5] == ["0", "1", "2", "3", "4"]


def test_lost_messages_are_counted_logged_and_reported_as_a_gap(caplog: Any) -> None:
    """Memory has forgotten it, the file could not be synced nor read back, and the journal's file was deleted."""
    world = World("destinations: [{match: '/topic/>', fsync: 1s}]", tail_bytes_max=1, journal_file_bytes=1)
    client = world.connect()
    for number in range(5):
        client.publish("/topic/t", str(number))
    world.commit()
    world.fs.fail("fdatasync", under="/partitions/")
    path = "/data/partitions/%2Ftopic%2Ft/00000000000000000000.rlog"
    client.publish("/topic/other", "a file of the journal is full")
    world.settle()
    world.fs.evict(path)
    for name in sorted(each for each in world.fs.nodes if "/journal/" in each)[:-1]:
        del world.fs.nodes[name]
    world.tick(2.5)
    assert world.broker.stats.lost_to_failures == 5
    assert "/topic/t: offsets 0 to 4 are lost" in caplog.text
    client.publish("/topic/t", "5")
    client.subscribe("/topic/t", ack="auto", start_position="offset:0")
    world.settle()
    assert client.inbox[-1].headers["gap"] == "5"
    assert [(frame.body, frame.headers["message-id"]) for frame in client.messages()] == [(b"5", "%2Ftopic%2Ft@5")]


def test_acks_that_cannot_be_stored_make_it_unready_until_a_snapshot_makes_up_for_it() -> None:
    world = World()
    client = world.connect()
    client.publish(A, "one", "two")
    client.subscribe(A)
    world.settle()
    (message,) = client.messages()
    world.fs.fail("fdatasync")
    client.ack(message, receipt="r")
    world.settle()
    assert [reason.partition(":")[0] for reason in readiness.reasons(world.broker)] == ["cursors", "journal"]
    assert client.receipts() == []
    world.tick(2.5)
    assert readiness.reasons(world.broker) == [] and client.receipts() == ["r"]
    world.power_cut()
    client = world.connect()
    client.subscribe(A)
    world.settle()
    assert client.bodies() == ["two"], "the snapshot has what the journal missed"


def test_with_too_little_room_it_is_not_ready_and_says_which_key_changes_that() -> None:
    world = World()
    world.broker.files_refused = ProtocolError("storage", "too little disk space is free", "See disk.min_free.")
    assert readiness.reasons(world.broker) == ["too little disk space is free: See disk.min_free."]


def test_while_it_stops_it_is_not_ready() -> None:
    world = World(fs=FaultyFileSystem())
    world.broker.stopping = True
    assert readiness.reasons(world.broker) == ["the broker is stopping"]


def fill_up(world: World, room: int = 0) -> None:
    world.fs.capacity = sum(len(node.cache) for node in world.fs.nodes.values()) + room


def backlog(world: World, count: int) -> Any:
    client = world.connect()
    client.publish(A, *(f"{number:4}" + "x" * 200 for number in range(count)))
    world.settle()
    consumer = world.connect()
    consumer.subscribe(A)
    world.settle()
    return consumer


def test_on_a_full_disk_sends_are_refused_while_a_backlog_is_consumed_and_acked() -> None:
    world = World()
    consumer = backlog(world, 300)
    first = consumer.messages()[0]
    consumer.ack(first, receipt="first")
    world.settle()
    fill_up(world)
    client = world.connect()
    client.publish(A, "in the journal", receipt="s")
    world.settle()
    assert client.receipts() == ["s"]
    for number in range(299):
        client = world.connect()
        client.publish(A, "y" * 20_000, receipt="s")
        world.settle()
        assert client.error() == "storage"
        client.drop()
        (message,) = consumer.messages()
        consumer.ack(message, receipt=str(number))
        world.settle()
        assert consumer.receipts()[-1:] == [str(number)]
    world.power_cut()
    consumer = world.connect()
    consumer.subscribe(A)
    world.settle()
    assert consumer.bodies() == ["in the journal"]


@pytest.fixture
def no_room_for_acks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal has no zeros ahead."""
    monkeypatch.setattr(journal, "ROOM_BYTES", 0)
    monkeypatch.setattr(journal, "AHEAD_BYTES_MIN", 0)
    monkeypatch.setattr(journal, "AHEAD_BYTES_MAX", 0)


@pytest.mark.usefixtures("no_room_for_acks")
def test_an_ack_that_finds_no_room_waits_for_some_and_is_then_receipted() -> None:
    world = World()
    consumer = backlog(world, 5)
    fill_up(world)
    messages = consumer.messages()
    for number in range(3):
        consumer.ack(messages[-1], receipt=str(number))
        world.settle()
        messages += consumer.messages()
    assert consumer.receipts() == [] and len(messages) == 4, "and what comes next is delivered all the same"
    assert readiness.reasons(world.broker)[0].startswith("cursors: ")
    world.fs.capacity = None
    world.tick(2.5)
    assert consumer.receipts() == ["0", "1", "2"] and readiness.reasons(world.broker) == []
    world.power_cut()
    consumer = world.connect()
    consumer.subscribe(A, prefetch_count=10)
    world.settle()
    assert [body[:4].strip() for body in consumer.bodies()] == ["3", "4"]


@pytest.mark.usefixtures("no_room_for_acks")
def test_an_ack_that_finds_no_room_is_refused_after_one_more_attempt() -> None:
    world = World()
    backlog(world, 5).drop()
    fill_up(world)
    for _ in range(2):  # and so is the next one
        consumer = world.connect()
        consumer.subscribe(A)
        world.settle()
        consumer.ack(consumer.messages()[0], receipt="r")
        world.settle()
        assert not consumer.session.closing
        world.tick(2.1)
        assert consumer.error() == "storage" and consumer.session.closing
    world.fs.capacity = None
    world.tick(2.1)
    assert readiness.reasons(world.broker) == []
    consumer = world.connect()
    consumer.subscribe(A, prefetch_count=10)
    world.settle()
    assert [body[:4].strip() for body in consumer.bodies()] == ["2", "3", "4"], "a refused ack holds all the same"


def test_when_there_is_room_again_sends_are_taken_within_five_seconds_and_nothing_is_torn() -> None:
    world = World()
    client = world.connect()
    client.publish(A, "kept", receipt="0")
    world.settle()
    fill_up(world, 70_000)
    client.publish(A, "y" * 200_000, receipt="1")
    world.settle()
    assert client.error() == "storage"
    (segment,) = [node for path, node in world.fs.nodes.items() if path.endswith(".rlog")]
    assert b"yyyy" not in segment.cache, "no half record is left"
    world.fs.capacity = None
    world.tick(2.5)
    client = world.connect()
    client.publish(A, "z" * 200_000, receipt="2")
    world.settle()
    assert client.receipts() == ["2"]
    world.kill()
    assert not world.notes


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_takes_no_more_than_the_interval(seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    world = World("defaults: {fsync: 1s}", fs)
    client, sent_ns = world.connect(), []
    for number in range(20 + 3 * seed):
        client.publish("/topic/t", str(number), receipt=str(number))
        world.settle()
        sent_ns.append(world.now)
        world.tick(0.1)
    assert len(client.receipts()) == len(sent_ns)
    cut_ns = world.now
    world.power_cut()
    client = world.connect()
    client.subscribe("/topic/t", ack="auto", start_position="first")
    world.settle()
    found = client.bodies()
    safe = [str(number) for number, at_ns in enumerate(sent_ns) if at_ns < cut_ns - 1_100_000_000]
    assert len(safe) > 5 and found[: len(safe)] == safe


def test_receipts_come_in_the_order_of_the_frames_whatever_each_one_waits_for() -> None:
    world = World("destinations: [{match: /topic/never, fsync: never}, {match: /topic/always}]")
    client = world.connect()
    for number in range(9):
        destination = ["/topic/always", "/topic/never", "/topic/never"][number % 3]
        more = {"durability": "fsync"} if number % 4 == 2 else {}
        client.publish(destination, "m", receipt=str(number), **more)
        if number % 2:
            world.commit()
    world.settle()
    assert client.receipts() == [str(number) for number in range(9)]
