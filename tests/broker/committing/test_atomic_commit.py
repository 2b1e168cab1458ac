"""A COMMIT over several partitions, and over messages and ACKs, is all or nothing, wherever it is stopped."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from radiator.storage import partition
from tests.broker.harness import Client, World
from tests.storage.driving import read_all
from tests.storage.faults import FaultyFileSystem

CONFIG = "destinations: [{match: /topic/weak, fsync: 1h}, {match: /topic/memory, store: memory}]"
VERBS = ["open", "pwritev", "fdatasync", "sync_dir"]


def prepared(fs: FaultyFileSystem | None = None) -> tuple[World, Client]:
    """A worker that holds the message ``in`` of /queue/in; the other partitions have files already."""
    world = World(CONFIG, fs)
    client = world.connect()
    client.publish("/queue/in", "in", "next")
    client.publish("/topic/out", "before")
    client.publish("/topic/weak", "before")
    client.subscribe("/queue/in")
    world.settle()
    (message,) = client.messages()
    client.say("BEGIN", transaction="t")
    client.publish("/topic/out", "one", "two", transaction="t")
    client.publish("/topic/weak", "three", transaction="t")
    client.publish("/queue/new", "four", transaction="t")
    client.ack(message, transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    return world, client


def bodies(world: World, name: str) -> list[bytes]:
    partition = world.store.partitions.get(name)
    return [] if partition is None else list(read_all(partition).values())


def outcome(world: World) -> bool:
    """True if all of it is there, False if nothing is; anything else fails."""
    sent = [
        b"one" in bodies(world, "/topic/out"),
        b"two" in bodies(world, "/topic/out"),
        b"three" in bodies(world, "/topic/weak"),
        b"four" in bodies(world, "/queue/new"),
    ]
    for client in world.clients:
        client.drop()
    world.settle()
    reader = world.connect()
    reader.subscribe("/queue/in", prefetch_count=10)
    world.settle()
    acked = "in" not in (found := reader.bodies())
    assert "next" in found
    assert len({*sent, acked}) == 1, (sent, acked)
    for name in ("/topic/out", "/topic/weak", "/queue/new"):
        found_there = bodies(world, name)
        assert len(found_there) == len(set(found_there)), "done twice"
    reader.drop()
    return acked


def steps(world: World) -> list[Callable[[], object]]:
    """The group commit, one step at a time."""
    jobs = world.take()
    return [
        *(job.write for job in jobs),
        *(job.sync for job in jobs if job.needs_sync),
        world.completed,
    ]


def test_all_of_it_is_visible_and_receipted() -> None:
    world, client = prepared()
    world.settle()
    assert client.receipts() == ["c"]
    world.power_cut()
    assert not world.notes
    assert outcome(world)


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["kill", "power_cut"])
def test_a_crash_at_any_step_leaves_all_or_nothing(end: str) -> None:
    outcomes, redone = [], 0
    count = len(steps(prepared()[0]))
    for stop in range(count + 1):
        for seed in range(12):
            world, client = prepared(FaultyFileSystem(Random(seed)))
            for step in steps(world)[:stop]:
                step()
            client.flush()
            receipted = client.receipts() == ["c"]
            getattr(world, end)()
            redone += world.store.restored
            done = outcome(world)
            assert done or not receipted
            outcomes.append(done)
            getattr(world, end)()
            assert outcome(world) == done
    assert True in outcomes and False in outcomes
    assert redone, "no crash met a transaction that was decided and not everywhere"


@pytest.mark.parametrize("end", ["kill", "power_cut"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_disk_that_fails_at_any_call_leaves_all_or_nothing(verb: str, end: str) -> None:
    """At run time too: what is decided comes when the partition takes messages again."""
    world, _ = prepared()
    before = world.fs.calls[verb]
    world.settle()
    for nth in range(1, world.fs.calls[verb] - before + 1):
        for seed in range(4):
            world, client = prepared(FaultyFileSystem(Random(seed)))
            world.fs.fail(verb, nth, errno.ENOSPC if verb == "pwritev" else errno.EIO)
            world.settle()
            receipted = client.receipts() == ["c"]
            assert receipted or client.error() == "storage"
            getattr(world, end)()
            done = outcome(world)
            assert done or not receipted


def test_a_transaction_that_is_decided_and_cannot_be_written_is_there_and_is_written_later() -> None:
    world, client = prepared()
    jobs = world.take()
    jobs[0].write()
    for job in jobs[1:]:
        if job.batch is not None and job.partition.name == "/topic/out":
            world.fs.fail("pwritev", 1, errno.ENOSPC)
        job.write()
    world.sync()
    world.completed()
    client.flush()
    assert client.receipts() == ["c"], "it is decided, so it is promised"
    assert bodies(world, "/topic/out") == [b"before", b"one", b"two"]
    assert world.store.partitions["/topic/out"].written_to == 1  # type: ignore[attr-defined]
    assert b"three" in bodies(world, "/topic/weak")
    other = world.connect()
    other.publish("/topic/out", "refused", receipt="r")
    world.settle()
    assert other.error() == "storage"
    world.now += 3_000_000_000
    world.broker.tick(world.time)
    world.settle()
    assert bodies(world, "/topic/out") == [b"before", b"one", b"two"]
    assert world.store.partitions["/topic/out"].written_to == 3  # type: ignore[attr-defined]
    other = world.connect()
    other.publish("/topic/out", "after", receipt="r")
    world.settle()
    assert other.receipts() == ["r"]
    assert outcome(world)
    world.kill()
    assert bodies(world, "/topic/out") == [b"before", b"one", b"two", b"after"]
    assert outcome(world)


def test_a_refused_transaction_gives_its_message_back() -> None:
    world, client = prepared()
    world.fs.fail("pwritev", 1, errno.ENOSPC)
    world.settle()
    assert client.error() == "storage"
    world.now += 3_000_000_000
    world.broker.tick(world.time)
    world.settle()
    assert not outcome(world)


def test_a_message_of_a_transaction_that_says_which_one_it_is_stays_the_only_one() -> None:
    """Also if a power cut takes what stood before it, so that it moves to where the list of ids thinks others are."""
    for stop in range(12):
        for seed in range(6):
            world = World(CONFIG, FaultyFileSystem(Random(seed)))
            client = world.connect()
            client.publish("/topic/weak", "may be lost")
            world.settle()
            client.say("BEGIN", transaction="t")
            client.publish("/topic/weak", "only once", transaction="t", dedup_id="x")
            client.publish("/topic/out", "one", transaction="t")
            client.say("COMMIT", transaction="t", receipt="c")
            for step in steps(world)[:stop]:
                step()
            world.power_cut()
            for _ in range(2):
                world.connect().publish("/topic/weak", "only once", dedup_id="x")
                world.settle()
            assert bodies(world, "/topic/weak").count(b"only once") == 1


def test_one_partition_alone_needs_no_redo_log() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish("/queue/a", "1", "2", transaction="t")
    client.publish("/topic/memory", "3", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.receipts() == ["c"]
    assert "/data/transactions" not in world.fs.nodes


def test_a_clean_stop_leaves_no_journal() -> None:
    world, _ = prepared()
    world.settle()
    assert "/data/journal/0000000001.rjl" in world.fs.nodes
    world.restart()
    assert world.fs.listdir("/data/journal") == []
    assert outcome(world)


def test_a_commit_to_one_log_that_does_not_fit_into_one_batch_is_all_or_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Headers of STOMP 1.0 take more room in the log than on the wire: a colon is two bytes there."""
    count, colons = 15, b":" * 6_000
    monkeypatch.setattr(partition, "BYTES_MAX", 100_000)
    outcomes = []
    for stop in range(20):
        world = World()
        client = world.connect("1.0")
        client.publish("/topic/t", "0")
        world.settle()
        client.say("BEGIN", transaction="t")
        for _ in range(count):
            client.say_bytes(b"SEND\ndestination:/topic/t\ntransaction:t\nx:%b\n\n\0" % colons)
        client.say("COMMIT", transaction="t", receipt="c")
        jobs = world.take()
        assert sum(job.batch is not None for job in jobs) == 2, "two batches"
        steps_of = [*(job.write for job in jobs), *(job.sync for job in jobs if job.needs_sync), world.completed]
        for step in steps_of[:stop]:
            step()
        world.kill()
        outcomes.append(world.store.partitions["/topic/t"].high_watermark - 1)
        if stop >= len(steps_of):
            break
    assert outcomes[0] == 0 and outcomes[-1] == count
    assert set(outcomes) == {0, count}
