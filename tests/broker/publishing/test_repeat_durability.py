"""A repeat is receipted when the first copy is as durable as the repeat asks for; the power cut decides."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from radiator.config.load import load_text
from radiator.storage.file_partition import FilePartition, SyncJob
from tests.broker.harness import Client, World
from tests.broker.publishing.test_idempotence import QUEUE, receipt, send, stored
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled

SEEDS = range(12)
WEAK = ["never", "30s"]


def world_of(policy: str, seed: int = 0, **more: str) -> World:
    return World(config_of(policy, **more), fs=FaultyFileSystem(Random(seed)))


def config_of(policy: str, **more: str) -> str:
    return f"defaults: {{fsync: {policy}{''.join(f', {key}: {value}' for key, value in more.items())}}}"


def restart_under(world: World, policy: str, end: str = "kill") -> None:
    """The broker dies, and starts with another rule."""
    world.config = load_text(config_of(policy))
    getattr(world, end)()


def syncs(world: World) -> int:
    return world.fs.calls["fdatasync"]


def first_copy(world: World, body: str = "x") -> None:
    """A message that is written, and receipted as such."""
    client = world.connect()
    send(client, body, dedup_id=body)
    world.settle()
    assert "duplicate" not in receipt(client).headers
    client.drop()


def repeat(world: World, body: str = "x", **headers: Any) -> int:
    """The offset that the repeat's RECEIPT has."""
    client = world.connect()
    send(client, body, dedup_id=body, **headers)
    world.settle()
    answer = receipt(client)
    assert answer.headers["duplicate"] == "true"
    client.drop()
    return int(answer.headers["offset"])


# --- SEND -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", WEAK)
@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_repeat_with_durability_fsync_outlives_a_power_cut(policy: str, seed: int) -> None:
    world = world_of(policy, seed)
    first_copy(world)
    assert repeat(world, durability="fsync") == 0
    world.power_cut()
    assert stored(world) == ["x"]
    assert repeat(world) == 0, "and its id does"


@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_repeat_under_a_rule_that_has_become_always_outlives_a_power_cut(seed: int) -> None:
    world = world_of("never", seed)
    first_copy(world)
    restart_under(world, "always")
    assert repeat(world) == 0
    world.power_cut()
    assert stored(world) == ["x"]


@pytest.mark.parametrize("when", ["open", "taken", "written"])
@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_durable_repeat_of_a_message_under_way_waits_for_its_sync(when: str, seed: int) -> None:
    world = world_of("never", seed)
    client, other = world.connect(), world.connect()
    send(client, "x", dedup_id="x")
    if when != "open":
        world.take()
    if when == "written":
        world.write()
    send(other, "x", dedup_id="x", durability="fsync")
    if when == "taken":
        world.write()
    if when != "open":
        world.sync()
        world.completed()
        client.flush()
        other.flush()
        assert client.receipts() == ["r"] and other.receipts() == [], "the first asked for less"
    world.settle()
    assert other.receipts() == ["r"]
    world.power_cut()
    assert stored(world) == ["x"]


@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_durable_repeat_of_a_message_in_a_sealed_segment_outlives_a_power_cut(seed: int) -> None:
    world = world_of("never", seed, segment="{size: 64KiB}", retention="{acked: keep}")
    first_copy(world)
    client = world.connect()
    for _ in range(4):
        send(client, "y" * 40_000, None)
        world.settle()
    assert len(world.store.partitions[QUEUE].segments) >= 3
    assert repeat(world, durability="fsync") == 0
    world.power_cut()
    assert stored(world)[0] == "x"


@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_that_holds_after_a_kill_and_for_every_priority(seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    world = World(f"destinations: [{{match: {QUEUE}, fsync: never, priority: true}}]", fs=fs)
    client = world.connect()
    for priority in (1, 9):
        send(client, str(priority), None, dedup_id=priority, priority=priority)
    world.settle()
    world.kill()
    client = world.connect()
    for priority in (1, 9):
        send(client, str(priority), dedup_id=priority, priority=priority, durability="fsync")
    world.settle()
    assert [frame.headers["duplicate"] for frame in client.take("RECEIPT")] == ["true", "true"]
    world.power_cut()
    assert sorted(stored(world)) == ["1", "9"]


@pytest.mark.parametrize("after", ["kill", "a sweep", "a sweep and a kill"])
@pytest.mark.parametrize("seed", range(4))
def test_a_repeat_under_another_rule_of_a_message_in_a_sealed_or_merged_segment_outlives_a_power_cut(
    after: str, seed: int
) -> None:
    rule = "fsync: {}, segment: {{size: 64KiB}}, retention: {{acked: keep}}, merge_commits: true"
    rules = [f"destinations: [{{match: /topic/a, {rule.format(fsync)}}}]" for fsync in ("never", "always")]
    world = World(rules[0], fs=FaultyFileSystem(Random(seed)))
    client = world.connect()
    for number in range(160):
        send(client, str(number).ljust(1_500), None, destination="/topic/a", dedup_id=number)
        world.settle()
    assert len(world.store.partitions["/topic/a"].segments) >= 3
    if after.startswith("a sweep"):
        assert world.maintain() > 0 and world.store.maintenance.counts["rewritten"] > 0
    world.config = load_text(rules[1])
    if after.endswith("kill"):
        world.kill()
    client = world.connect()
    repeats = [0, 40, 80, 159]
    for number in repeats:
        send(client, "", destination="/topic/a", dedup_id=number, durability="fsync")
    world.settle()
    assert [int(frame.headers["offset"]) for frame in client.take("RECEIPT")] == repeats
    world.power_cut()
    assert set(map(str, repeats)) <= {body.strip() for body in stored(world, "/topic/a")}


@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_repeat_of_a_message_in_a_log_of_several_destinations_outlives_a_power_cut(seed: int) -> None:
    config = "destinations: [{match: '/topic/shared.*', partition: shared, fsync: never}]"
    world = World(config, fs=FaultyFileSystem(Random(seed)))
    client = world.connect()
    for name in "ab":
        send(client, name, None, destination=f"/topic/shared.{name}", dedup_id="x")
    world.settle()
    for name in "ab":
        send(client, name, destination=f"/topic/shared.{name}", dedup_id="x", durability="fsync")
    world.settle()
    assert [frame.headers["duplicate"] for frame in client.take("RECEIPT")] == ["true", "true"]
    world.power_cut()
    assert [stored(world, f"/topic/shared.{name}") for name in "ab"] == [["a"], ["b"]]


def test_a_repeat_of_a_message_in_memory_waits_for_that_message_and_for_no_sync() -> None:
    world = World("destinations: [{match: /queue/a, store: memory}]")
    client = world.connect()
    send(client, "x", None, dedup_id="x")
    send(client, "x", dedup_id="x", durability="fsync")
    client.flush()
    assert client.receipts() == []
    before = syncs(world)
    world.settle()
    assert client.receipts() == ["r"]
    assert repeat(world, durability="fsync") == 0 and syncs(world) == before


def test_a_durable_repeat_of_what_a_commit_has_left_to_be_synced_later_outlives_a_power_cut() -> None:
    """The journal has it until then, and checkpoints come in between."""
    for seed in SEEDS:
        world = World(config_of("never"), fs=FaultyFileSystem(Random(seed)), journal_file_bytes=1)
        client = world.connect()
        begin(client)
        for name in "ab":
            send(client, name, None, destination=f"/queue/{name}", dedup_id=name, transaction="t")
        client.say("COMMIT", transaction="t")
        client.flush()
        world.take()
        finish(world)
        assert repeat(world, "a", durability="fsync") == 0
        world.power_cut()
        assert (stored(world), stored(world, "/queue/b")) == (["a"], ["b"])


def test_only_the_first_durable_repeat_costs_a_sync() -> None:
    world = world_of("never")
    for body in "abc":
        first_copy(world, body)
    before = syncs(world)
    for body in "abcabc":
        assert repeat(world, body, durability="fsync") == "abc".index(body)
    assert syncs(world) == before + 1


def test_what_always_has_synced_costs_a_repeat_nothing_and_after_a_start_one_sync_for_each_log() -> None:
    world = world_of("always")
    for body in "abc":
        first_copy(world, body)
    before = syncs(world)
    assert repeat(world, "a") == 0 and syncs(world) == before
    world.kill()
    repeat(world, "a")
    before = syncs(world)
    for body in "abcabc":
        repeat(world, body)
    assert syncs(world) == before, "one sync for the log, and a checkpoint"


def test_a_repeat_that_asks_for_no_more_than_a_weak_rule_gives_causes_no_sync() -> None:
    world = world_of("never")
    first_copy(world)
    before = syncs(world)
    repeat(world)
    assert syncs(world) == before
    world.kill()
    world.settle()
    before = syncs(world)
    repeat(world)
    assert syncs(world) == before


def test_a_receipt_behind_a_durable_repeat_that_asked_for_none_waits_for_it() -> None:
    world = world_of("never")
    first_copy(world)
    client = world.connect()
    send(client, "x", None, dedup_id="x", durability="fsync")
    client.say("DISCONNECT", receipt="bye")
    client.flush()
    assert client.receipts() == []
    world.settle()
    assert client.receipts() == ["bye"]
    world.power_cut()
    assert stored(world) == ["x"]


@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_repeat_outlives_a_power_cut_though_the_journal_could_not_be_synced(seed: int) -> None:
    """Its segment is synced instead."""
    world = world_of("never", seed)
    first_copy(world)
    world.fs.fail("fdatasync", under="/journal/")
    assert repeat(world, durability="fsync") == 0
    world.power_cut()
    assert stored(world) == ["x"]


def test_a_repeat_whose_sync_fails_gets_an_error() -> None:
    world = world_of("never")
    first_copy(world)
    world.fs.fail("fdatasync", times=2)
    client = world.connect()
    send(client, "x", dedup_id="x", durability="fsync")
    world.settle()
    assert client.error() == "storage"
    for _ in range(3):
        world.tick(1)
    assert repeat(world, durability="fsync") == 0
    world.power_cut()
    assert stored(world) == ["x"]


@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_sync_that_failed_before_a_kill_is_made_up_for(seed: int) -> None:
    """The system holds what it could not write as if it had been: a sync alone would say yes, and write nothing."""
    world = world_of("never", seed)
    first_copy(world)
    world.fs.fail("fdatasync", times=2)  # of the journal, and of the segment
    client = world.connect()
    send(client, "x", dedup_id="x", durability="fsync")
    world.settle()
    assert client.error() == "storage"
    world.kill()
    assert repeat(world, durability="fsync") == 0
    world.power_cut()
    assert stored(world) == ["x"]


def test_a_durable_repeat_of_a_message_that_cannot_be_written_gets_its_error() -> None:
    world = world_of("never")
    client, other = world.connect(), world.connect()
    send(client, "x", dedup_id="x")
    world.take()
    send(other, "x", dedup_id="x", durability="fsync")
    world.fs.fail("pwritev", 1, errno.ENOSPC, under="/journal/")
    world.write()
    world.sync()
    world.completed()
    world.settle()
    assert (client.error(), other.error()) == ("storage", "storage")
    world.tick(3)
    assert stored(world) == []


def test_a_durable_repeat_is_answered_while_the_disk_is_full() -> None:
    world = world_of("never")
    first_copy(world)
    world.fs.fill()
    client = world.connect()
    send(client, "y" * 70_000)
    world.settle()
    assert client.error() == "storage"
    assert repeat(world, durability="fsync") == 0


# --- COMMIT -----------------------------------------------------------------------------------------------------------

PAIR = "destinations: [{match: /queue/weak, fsync: never}, {match: /queue/strong, fsync: always}]"


def begin(client: Client) -> None:
    client.say("BEGIN", transaction="t")


def commit(client: Client) -> None:
    client.say("COMMIT", transaction="t", receipt="done")


def weak_copy(world: World, when: str) -> None:
    client = world.connect()
    send(client, "old", None, destination="/queue/weak", dedup_id="old")
    if when == "taken":
        world.take()
    elif when == "written":
        world.settle()


def finish(world: World) -> None:
    if world.jobs:
        world.write()
        world.sync()
        world.completed()
    world.settle()


def kept(world: World, name: str) -> list[str]:
    return stored(world, name)


@pytest.mark.parametrize("when", ["open", "taken", "written"])
@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_commit_with_a_repeat_of_an_unsynced_message_is_there_as_a_whole(when: str, seed: int) -> None:
    world = World(PAIR, fs=FaultyFileSystem(Random(seed)))
    weak_copy(world, when)
    client = world.connect()
    begin(client)
    send(client, "new", None, destination="/queue/strong", transaction="t")
    send(client, "old", None, destination="/queue/weak", dedup_id="old", transaction="t")
    commit(client)
    finish(world)
    assert client.receipts() == ["done"]
    world.power_cut()
    assert (kept(world, "/queue/strong"), kept(world, "/queue/weak")) == (["new"], ["old"])


@pytest.mark.parametrize("when", sampled(["taken", "written"], 1))
def test_at_every_step_of_it_all_or_nothing_of_a_commit_outlives_a_power_cut(when: str) -> None:
    outcomes = set()
    for stop in range(14):
        for seed in range(4):
            world = World(PAIR, fs=FaultyFileSystem(Random(seed)))
            weak_copy(world, when)
            client = world.connect()
            begin(client)
            send(client, "new", None, destination="/queue/strong", transaction="t")
            send(client, "old", None, destination="/queue/weak", dedup_id="old", transaction="t")
            commit(client)
            steps = steps_of(world, client)
            for _ in range(stop):
                next(steps)
            world.power_cut()
            found = kept(world, "/queue/strong"), kept(world, "/queue/weak")
            assert found[0] == [] or found == (["new"], ["old"])
            outcomes.add(bool(found[0]))
    assert outcomes == {True, False}


def steps_of(world: World, client: Client) -> Iterator[None]:
    """One job is written, or synced; or the loop hears of it and goes on."""
    while True:
        client.go_on()
        for job in world.jobs or world.take():
            job.write()
            yield
        for job in world.jobs:
            if job.needs_sync and job.error is None:
                job.sync()
                yield
        world.completed()
        yield


@pytest.mark.parametrize("policy", ["never", "50ms"])
@pytest.mark.parametrize("seed", sampled(range(25), 4))
def test_an_input_is_not_settled_by_a_commit_whose_output_is_lost(policy: str, seed: int) -> None:
    world = World(config_of(policy), fs=FaultyFileSystem(Random(seed)))
    client = world.connect()
    send(client, "in", None, destination="/queue/in", durability="fsync")
    client.subscribe("/queue/in")
    send(client, "out", None, destination="/queue/out", dedup_id="out")
    world.settle()
    (message,) = client.messages()
    begin(client)
    send(client, "out", None, destination="/queue/out", dedup_id="out", transaction="t")
    client.ack(message, transaction="t")
    commit(client)
    world.settle()
    assert client.receipts() == ["done"]
    world.tick(1)  # the cursors are synced
    world.power_cut()
    client = world.connect()
    client.subscribe("/queue/in")
    world.settle()
    assert kept(world, "/queue/out") == ["out"] or client.bodies() == ["in"]
    assert kept(world, "/queue/out") == ["out"]


@pytest.mark.parametrize("now", ["never", "always"])
@pytest.mark.parametrize("seed", sampled(SEEDS, 4))
def test_a_commit_with_a_repeat_from_an_earlier_run_is_there_as_a_whole(now: str, seed: int) -> None:
    world = World(PAIR, fs=FaultyFileSystem(Random(seed)))
    weak_copy(world, "written")
    world.config = load_text(PAIR.replace("never", now))
    world.kill()
    client = world.connect()
    begin(client)
    send(client, "new", None, destination="/queue/strong", transaction="t")
    send(client, "old", None, destination="/queue/weak", dedup_id="old", transaction="t")
    commit(client)
    world.settle()
    assert client.receipts() == ["done"]
    world.power_cut()
    assert (kept(world, "/queue/strong"), kept(world, "/queue/weak")) == (["new"], ["old"])


@pytest.mark.parametrize("when", ["open", "taken", "written"])
def test_a_commit_with_a_repeat_of_a_message_in_memory_is_done(when: str) -> None:
    world = World("destinations: [{match: /queue/weak, store: memory}]")
    weak_copy(world, when)
    client = world.connect()
    begin(client)
    send(client, "new", None, destination="/queue/strong", transaction="t")
    send(client, "old", None, destination="/queue/weak", dedup_id="old", transaction="t")
    commit(client)
    finish(world)
    assert client.receipts() == ["done"]
    assert (kept(world, "/queue/strong"), kept(world, "/queue/weak")) == (["new"], ["old"])


def test_a_commit_and_a_send_that_wait_for_one_sync_both_hear_that_it_failed() -> None:
    world = World(PAIR)
    weak_copy(world, "written")
    client, other = world.connect(), world.connect()
    begin(client)
    send(client, "old", None, destination="/queue/weak", dedup_id="old", transaction="t")
    commit(client)
    send(other, "old", destination="/queue/weak", dedup_id="old", durability="fsync")
    world.fs.fail("fdatasync", times=2)
    world.commit()
    world.settle()
    assert (client.error(), other.error()) == ("storage", "storage")


def test_a_commit_whose_repeat_cannot_be_synced_has_done_nothing() -> None:
    world = World(PAIR)
    weak_copy(world, "written")
    client = world.connect()
    begin(client)
    send(client, "new", None, destination="/queue/strong", transaction="t")
    send(client, "old", None, destination="/queue/weak", dedup_id="old", transaction="t")
    world.fs.fail("fdatasync", times=2)
    commit(client)
    world.settle()
    assert client.error() == "storage"
    world.tick(3)
    assert kept(world, "/queue/strong") == []


def test_a_commit_that_repeats_what_is_synced_causes_no_sync_of_it() -> None:
    world = World(PAIR)
    weak_copy(world, "written")
    client = world.connect()
    send(client, "old", None, destination="/queue/weak", dedup_id="old", durability="fsync")
    world.settle()
    begin(client)
    send(client, "old", None, destination="/queue/weak", dedup_id="old", transaction="t")
    commit(client)
    world.take()
    assert not any(isinstance(job, SyncJob) for job in world.jobs)
    finish(world)
    assert client.receipts() == ["done"]
    assert isinstance(world.store.partitions["/queue/weak"], FilePartition)
