"""A COMMIT that is decided holds whatever happens next: to its other half, to the disk, the clock, the machine."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator import limits
from radiator.storage.file_partition import RetryJob
from tests.broker.harness import Client, World
from tests.storage.driving import read_all
from tests.storage.faults import FaultyFileSystem

A, B = "/topic/a", "/topic/b"
NEVER = "destinations: [{match: /topic/a, fsync: never, segment: {size: 64KiB}}]"
SHORT = {
    "retention": "destinations: [{match: /topic/a, segment: {size: 64KiB}, retention: {count: 1}}]",
    "compression": "destinations: [{match: /topic/a, segment: {size: 64KiB}, compress: zstd}]",
    "merging": "destinations: [{match: /topic/a, segment: {size: 64KiB}}]",
}


def bodies(world: World, name: str) -> list[bytes]:
    return list(read_all(world.store.partitions[name]).values())


def begun(config: str = "", fs: FaultyFileSystem | None = None) -> tuple[World, Client]:
    """Both logs have files, and all of it is stored."""
    world = World(config, fs)
    client = world.connect()
    client.publish(A, "0")
    client.publish(B, "0")
    world.settle()
    return world, client


def commit(client: Client, first: str = "one", second: str = "two", receipt: str = "c") -> None:
    client.say("BEGIN", transaction="t")
    client.publish(A, first, transaction="t")
    client.publish(B, second, transaction="t")
    client.say("COMMIT", transaction="t", receipt=receipt)


def settle_but(world: World, name: str, error: int = errno.ENOSPC) -> None:
    """The group commit; the partition of that name cannot be written."""
    jobs = world.take()
    jobs[0].write()
    for job in jobs[1:]:
        if job.batch is not None and job.partition.name == name:
            world.fs.fail("pwritev", 1, error)
        job.write()
    world.sync()
    world.completed()


def never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that failed stays so."""

    def fails(job: Any) -> None:
        job.error, job.recent = job.partition.failed, ()

    monkeypatch.setattr(RetryJob, "write", fails)


@pytest.mark.parametrize("how", SHORT)
def test_one_half_waits_while_the_other_is_removed_or_rewritten(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, client = begun(SHORT[how])
    commit(client)
    settle_but(world, B)
    client.flush()
    assert client.receipts() == ["c"]
    with monkeypatch.context() as patch:
        never_again(patch)
        for _ in range(8):
            client.publish(A, "x" * 20_000)
            world.settle()
        world.maintain(20)
        world.maintain(20)
    segments = world.store.partitions[A].segments
    assert len(segments) == 1 if how == "retention" else world.store.maintenance.counts["rewritten"]
    world.kill()
    assert bodies(world, B) == [b"0", b"two"]


@pytest.mark.parametrize("several", [False, True])
def test_a_sync_that_was_asked_for_is_made_though_the_segment_ends_in_the_same_group(several: bool) -> None:
    """Where the rule says ``never``: for ``durability: fsync``, and for a COMMIT."""
    for seed in range(6):
        world, client = begun(NEVER, FaultyFileSystem(Random(seed)))
        if several:
            commit(client)
        else:
            client.publish(A, "one", durability="fsync", receipt="c")
        log = world.store.partitions[A]
        for _ in range(limits.BATCH_RECORDS_MAX + 1):
            log.append(A, b"", b"z", world.now)
        world.settle()
        assert client.receipts() == ["c"]
        other = world.connect()
        commit(other, "later", "later")  # over the entry of the first
        other.drop()
        world.power_cut()
        assert b"one" in bodies(world, A)
        assert b"two" in bodies(world, B) or not several


def test_a_commit_that_looks_like_the_one_before_is_another() -> None:
    """The clock stands behind the log, so that both were received at the same time."""
    world, client = begun()
    world.now -= 3_600 * 10**9
    commit(client, "beat", "beat", "1")
    world.settle()
    commit(client, "beat", "beat", "2")
    settle_but(world, B)
    client.flush()
    assert client.receipts() == ["1", "2"]
    world.kill()
    assert bodies(world, A) == bodies(world, B) == [b"0", b"beat", b"beat"]


def test_what_waits_for_a_bad_disk_does_not_keep_others_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = begun()
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        client.say("BEGIN", transaction="t")
        for _ in range(4):
            client.publish(A, "y" * 3_500_000, transaction="t")
        client.publish(B, "b", transaction="t")
        client.say("COMMIT", transaction="t", receipt="c")
    assert world.broker.pending_bytes > limits.PENDING_APPEND_BYTES_MAX
    with monkeypatch.context() as patch:
        never_again(patch)
        settle_but(world, A, errno.EIO)
        assert world.broker.pending_bytes == 0
    world.tick(3)
    world.settle()
    assert world.broker.pending_bytes == 0
    assert len(bodies(world, A)) == 13


def test_a_start_over_a_full_disk_keeps_it_until_there_is_room() -> None:
    world, client = begun()
    commit(client, "one", "two" * 30_000)
    jobs = world.take()
    jobs[0].write()
    world.fs.fill()
    for job in jobs[1:]:
        job.write()
    world.sync()
    world.completed()
    client.flush()
    assert client.receipts() == ["c"]
    for _ in range(2):
        world.kill()
        assert bodies(world, A) == [b"0", b"one"], "from the journal"
        assert bodies(world, B) == [b"0", b"two" * 30_000]
        refused = world.connect()
        refused.publish(A, "no room", receipt="r")
        world.settle()
        assert refused.error() == "storage"
    world.fs.capacity = None
    world.tick(3)
    world.settle()
    assert bodies(world, A) == [b"0", b"one"]
    assert bodies(world, B) == [b"0", b"two" * 30_000]
    world.restart()
    assert world.fs.listdir("/data/journal") == []


def test_a_journal_that_fails_refuses_its_commit_and_nobody_after_it() -> None:
    world, client = begun()
    commit(client)
    world.fs.fail("pwritev", under="/journal/")
    world.settle()
    assert client.error() == "storage"
    other = world.connect()
    other.publish(A, "goes on", receipt="r")
    world.settle()
    assert other.receipts() == ["r"]
    assert bodies(world, A) == [b"0", b"goes on"]


@pytest.mark.parametrize("before", ["short", "long" * 20_000])
def test_a_refused_entry_does_nothing_where_others_stand_now(before: str) -> None:
    world = World()
    client = world.connect()
    client.publish(A, before)
    client.publish(B, "0")
    world.settle()
    commit(client)
    world.fs.fail("fdatasync")
    world.settle()
    assert client.error() == "storage"
    other = world.connect()
    other.publish(A, "goes on", receipt="r")
    world.settle()
    assert other.receipts() == ["r"]
    world.kill()
    assert bodies(world, A) == [before.encode(), b"goes on"]
    assert bodies(world, B) == [b"0"]


def test_what_stood_before_it_under_a_weaker_rule_is_synced_with_it() -> None:
    for seed in range(40):
        world, client = begun("destinations: [{match: /topic/a, fsync: 1h}]", FaultyFileSystem(Random(seed)))
        client.publish(A, *"12345")
        world.settle()
        commit(client)
        world.take()[0].write()
        world.power_cut()
        assert bodies(world, A) == [b"0", *(b"%d" % number for number in range(1, 6)), b"one"]
        assert not world.notes


def test_offsets_that_a_power_cut_took_before_it_are_given_up_without_a_gap() -> None:
    """Nobody was promised anything of them: they were too large for the journal."""
    for seed in range(40):
        world, client = begun("destinations: [{match: /topic/a, fsync: never}]", FaultyFileSystem(Random(seed)))
        client.publish(A, *("x" * limits.JOURNAL_PASSED_BYTES_MIN for _ in range(5)))
        world.settle()
        commit(client)
        world.take()[0].write()
        world.power_cut()
        log = world.store.partitions[A]
        offset = max(read_all(log))
        assert bodies(world, A)[-1] == b"one" and offset == 6
        if len(read_all(log)) < 7 and any(note.kind == "damage" for note in world.notes):
            break
    else:
        raise AssertionError("no power cut took just the end")
    reader = world.connect()
    reader.subscribe(A, ack="auto", start_position="first")
    world.settle()
    messages = reader.messages()
    assert messages[-1].body == b"one" and not any("gap" in message.headers for message in messages)
    world.connect().publish(A, "goes on")
    world.restart()
    assert read_all(world.store.partitions[A])[7] == b"goes on"
