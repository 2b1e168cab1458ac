"""What is remembered of messages stays true when the disk fails: a file that cannot be written, batches held back."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from radiator.broker.headers.send import identify
from radiator.storage import layout
from radiator.storage.file_partition import FilePartition
from radiator.upkeep.purge import purge
from tests.broker.harness import Client, World
from tests.broker.publishing.test_idempotence import QUEUE, send
from tests.broker.publishing.test_idempotence_restart import again, publish
from tests.storage.driving import read_all

SMALL = "defaults: {segment: {size: 64KiB}}"


@contextmanager
def no_room_for_ids(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The logs can be written, the files of the ids cannot."""
    real = world.fs.open

    def refusing(path: str, create: bool = False) -> int:
        if os.path.basename(path).removesuffix(layout.NEW_SUFFIX) == layout.DEDUP:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        opened: int = real(path, create)
        return opened

    with monkeypatch.context() as patch:
        patch.setattr(world.fs, "open", refusing)
        yield


def file_partition(world: World, name: str = QUEUE) -> FilePartition:
    partition = world.store.partitions[name]
    assert isinstance(partition, FilePartition)
    return partition


def filled(world: World, count: int) -> None:
    """That many messages without an id, each most of a segment."""
    client = world.connect()
    for _ in range(count):
        send(client, "x" * 60_000, None)
        world.settle()
    client.drop()


def acked(world: World) -> None:
    """Somebody reads and acknowledges all there is."""
    client = world.connect()
    client.subscribe(QUEUE, ack="auto")
    world.settle()
    client.drop()
    world.settle()


def test_what_is_acked_stays_in_the_log_until_the_file_has_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(SMALL)
    publish(world, "first", "once")
    with no_room_for_ids(world, monkeypatch):
        filled(world, 3)
        acked(world)
        for _ in range(3):
            world.tick(11)
        assert file_partition(world).log_start_offset == 0
    world.kill()
    assert again(world, "first", "once") == {"first": 0, "once": 1}
    filled(world, 1)
    acked(world)
    for _ in range(3):
        world.tick(11)
    assert file_partition(world).log_start_offset > 2, "with room for the file, the log goes"
    world.power_cut()
    assert again(world, "first", "once") == {"first": 0, "once": 1}


def test_ids_older_than_their_window_hold_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("defaults: {segment: {size: 64KiB}, dedup: {window: 1m}}")
    publish(world, "first", "once")
    with no_room_for_ids(world, monkeypatch):
        filled(world, 3)
        acked(world)
        world.tick(59)
        assert file_partition(world).log_start_offset == 0
        for _ in range(2):
            world.tick(11)
        assert file_partition(world).log_start_offset > 2


def test_removing_settled_messages_waits_for_the_file_of_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(SMALL)
    publish(world, *range(10))
    client = world.connect()
    with no_room_for_ids(world, monkeypatch):
        filled(world, 3)
        client.subscribe(QUEUE, prefetch_count=100)
        world.settle()
        for message in client.messages()[1:]:
            client.ack(message)
        world.settle()
        for _ in range(3):
            assert world.maintain() == 0
    for _ in range(2):
        world.maintain()
    assert world.store.maintenance.counts["removed_records"] >= 9
    world.power_cut()
    assert again(world, *range(10)) == {str(number): number for number in range(10)}


def test_compaction_waits_for_the_file_of_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = "/topic/t"
    world = World("defaults: {segment: {size: 64KiB}, compact_by: 'header:key'}")
    client = world.connect()
    send(client, "", None, destination=topic, key="k", dedup_id=0)
    world.settle()
    with no_room_for_ids(world, monkeypatch):
        for number in range(1, 6):
            send(client, "x" * 30_000, None, destination=topic, key="k", dedup_id=number)
            world.settle()
        for _ in range(3):
            world.maintain()
        assert len(read_all(world.store.partitions[topic])) == 6
    for _ in range(3):
        world.maintain()
    assert world.store.maintenance.counts["removed_records"] >= 2
    world.power_cut()
    client = world.connect()
    for number in range(6):
        send(client, "", str(number), destination=topic, key="k", dedup_id=number)
    world.settle()
    assert [frame.headers.get("duplicate") for frame in client.take("RECEIPT")] == ["true"] * 6


def test_a_start_does_not_rely_on_a_file_that_was_not_synced() -> None:
    """A kill leaves the blocks in the memory of the machine; the log goes, then the power fails."""
    world = World(SMALL)
    publish(world, *range(1_100))
    assert file_partition(world).dedup_file is not None
    world.kill()
    filled(world, 2)
    acked(world)
    for _ in range(3):
        world.tick(11)
    assert file_partition(world).log_start_offset >= 1_100
    world.power_cut()
    assert again(world, *range(1_100)) == {str(number): number for number in range(1_100)}


def commit(client: Client, name: str) -> None:
    """Over two files; for the first of them more than half a batch."""
    client.say("BEGIN", transaction="t")
    client.say("SEND", name, destination="/topic/a", transaction="t", dedup_id=name)
    for _ in range(3):
        client.say("SEND", "y" * 3_000_000, destination="/topic/a", transaction="t")
    client.publish("/topic/b", name, transaction="t")
    client.say("COMMIT", transaction="t", receipt=name)


def test_every_decided_batch_that_is_held_back_keeps_its_ids() -> None:
    world = World("limits: {transaction: 16MiB}")
    setting_up, first, second = world.connect(), world.connect(), world.connect()
    setting_up.publish("/topic/a", "0")
    setting_up.publish("/topic/b", "0")
    world.settle()
    commit(first, "1")
    commit(second, "2")
    setting_up.say("SEND", "3", destination="/topic/a", dedup_id="3")
    for job in world.take():
        if job.batch is not None and job.partition.name == "/topic/a" and job.batch.base_offset == 1:
            world.fs.fail("pwritev", 1, errno.ENOSPC)
        job.write()
    world.sync()
    world.completed()
    for _ in range(2):
        world.tick(3)
    assert first.receipts() == ["1"] and second.receipts() == ["2"]
    repeating = world.connect()
    for name in ("1", "2", "3"):
        send(repeating, name, name, destination="/topic/a", dedup_id=name)
    world.settle()
    known = [frame.headers.get("duplicate") for frame in repeating.take("RECEIPT")]
    kept = [body for body in read_all(world.store.partitions["/topic/a"]).values() if len(body) == 1]
    assert kept == [b"0", b"1", b"2", b"3"]
    assert known[:2] == ["true", "true"]


# --- a COMMIT that repeats a message under way ------------------------------------------------------------------------


def under_way(taken: bool) -> tuple[World, Client, Client]:
    """Who sends a message to /topic/a, which is on its way to the disk or about to be; and who repeats it in a
    transaction, acknowledges the message of /queue/in and publishes to /topic/b."""
    world = World()
    sender, worker = world.connect(), world.connect()
    for name in ("/topic/a", "/topic/b", "/queue/in"):
        sender.publish(name, "0")
    worker.subscribe("/queue/in")
    world.settle()
    (message,) = worker.messages()
    send(sender, "once", "first", destination="/topic/a", dedup_id="i")
    if taken:
        world.take()
    worker.say("BEGIN", transaction="t")
    send(worker, "once", None, destination="/topic/a", dedup_id="i", transaction="t")
    send(worker, "x", None, destination="/topic/b", transaction="t")
    worker.ack(message, transaction="t")
    worker.say("COMMIT", transaction="t", receipt="c")
    return world, sender, worker


def there(world: World) -> tuple[list[bytes], list[bytes], list[str]]:
    """What the two topics have, and what /queue/in gives to somebody else."""
    for client in world.clients:
        client.drop()
    reader = world.connect()
    reader.subscribe("/queue/in")
    world.settle()
    a, b = (list(read_all(world.store.partitions[name]).values()) for name in ("/topic/a", "/topic/b"))
    return a, b, reader.bodies()


DONE = ([b"0", b"once"], [b"0", b"x"], [])
NOT_DONE = ([b"0"], [b"0"], ["0"])


@pytest.mark.parametrize("taken", [True, False])
def test_a_commit_that_repeats_a_message_under_way_holds_with_it(taken: bool) -> None:
    world, sender, worker = under_way(taken)
    if taken:
        world.write()
        world.sync()
        world.completed()
    world.settle()
    assert (sender.receipts(), worker.receipts()) == (["first"], ["c"])
    world.power_cut()
    assert there(world) == DONE


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_commit_fails_as_a_whole_with_the_message_under_way_that_it_repeats(code: int) -> None:
    world, sender, worker = under_way(taken=True)
    world.fs.fail("pwritev", 1, code, under="/journal/")
    world.write()
    world.sync()
    world.completed()
    world.settle()
    assert (sender.error(), worker.error()) == ("storage", "storage")
    world.tick(3)
    assert there(world) == NOT_DONE
    world.kill()
    assert there(world) == NOT_DONE


def test_a_commit_that_repeats_a_message_that_cannot_be_written_does_nothing() -> None:
    world, sender, worker = under_way(taken=False)
    world.take()
    world.fs.fail("pwritev", 1, errno.ENOSPC, under="/journal/")
    world.write()
    world.sync()
    world.completed()
    world.settle()
    assert (sender.error(), worker.error()) == ("storage", "storage")
    world.tick(3)
    assert there(world) == NOT_DONE


@pytest.mark.parametrize("end", ["kill", "power_cut"])
@pytest.mark.parametrize("taken", [True, False])
def test_a_crash_at_any_step_leaves_all_of_a_commit_with_a_repeat_or_nothing(taken: bool, end: str) -> None:
    outcomes = []
    for stop in range(100):
        world, _, worker = under_way(taken)
        left = stop
        while left >= 0 and (jobs := world.jobs or world.take()):
            steps = [*(job.write for job in jobs), *(job.sync for job in jobs if job.needs_sync), world.completed]
            for step in steps[:left]:
                step()
            left -= len(steps)
            worker.go_on()
        finished = left >= 0
        getattr(world, end)()
        found = there(world)
        outcomes.append(found[1:])
        assert found[0] == DONE[0] or found == NOT_DONE
        if finished:
            break
    assert outcomes[0] == NOT_DONE[1:] and outcomes[-1] == DONE[1:]
    assert all(each in (NOT_DONE[1:], DONE[1:]) for each in outcomes)


# --- what is taken out of the log on purpose --------------------------------------------------------------------------


def test_the_ids_of_a_purged_topic_are_known_within_their_window() -> None:
    topic = "/topic/t"
    world = World()
    publish(world, *range(5), destination=topic)
    world.fs.kill()
    purge("/data", topic, "", False, world.time, world.fs, identify=identify)
    world.fs.kill()
    world.start()
    client = world.connect()
    for number in range(5):
        send(client, "", str(number), destination=topic, dedup_id=number)
    world.settle()
    assert [frame.headers.get("duplicate") for frame in client.take("RECEIPT")] == ["true"] * 5
