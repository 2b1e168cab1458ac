"""Damage that a reader meets is told in the broker's log: once, with file, bytes and offsets, and nothing else is."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from radiator import limits
from radiator.storage import layout
from radiator.storage.damage import Damage
from tests.broker.harness import World
from tests.broker.logs.test_damage import QUEUE, TOPIC, flip, stored
from tests.broker.queues.test_retention import T, filled, world_of


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno == logging.ERROR]


def replay(world: World, **headers: object) -> list[str]:
    client = world.connect()
    client.subscribe(TOPIC, ack="auto", **headers)
    world.settle()
    return client.bodies()


def test_damage_under_a_replay_is_logged_once_with_its_bytes_and_offsets(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    batches = stored(world, TOPIC)
    flip(world, batches[3])
    flip(world, batches[4])
    world.start()
    for start in ("first", "offset:7", "offset:3", "first"):
        replay(world, start_position=start)
    (line,) = reported(caplog)
    path, first, _ = batches[3]
    assert line == (
        f"storage: {TOPIC}: {path}: bytes {first} to {batches[5][1] - 1} are damaged: offsets 6 to 9 are lost"
    )
    assert world.broker.stats.damaged_ranges == 1


def test_each_damaged_range_is_logged_also_at_the_end_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    batches = stored(world, TOPIC)
    for each in (0, 2, 7):
        flip(world, batches[each])
    world.start()
    assert len(replay(world, start_position="first")) == 10
    found = [re.findall(r"offsets (\d+) to (\d+) are lost", line) for line in reported(caplog)]
    assert found == [[("0", "1")], [("4", "5")], [("14", "15")]]
    assert world.broker.stats.damaged_ranges == 3


def test_damage_under_a_queue_is_logged_as_well_as_the_loss(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    batches = stored(world, QUEUE)
    flip(world, batches[3])
    world.start()
    client = world.connect()
    client.subscribe(QUEUE, prefetch_count=100)
    world.settle()
    (line,) = reported(caplog)
    assert "are damaged: offsets 6 to 7 are lost" in line
    (loss,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert loss.startswith(f"{QUEUE}: 2 messages") and loss.endswith(f"among them offsets 6 to 7 of {QUEUE}")


def test_a_segment_that_a_stranger_removed_is_logged_and_one_that_retention_removed_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = "destinations: [{match: '/topic/*', segment: {size: 64KiB}, retention: {count: 6}}]"
    world = world_of(config, tmp_path)
    filled(world, 10, T)
    partition = world.store.partitions[T]
    reader = world.connect()
    reader.subscribe(T, ack="client", start_position="first", prefetch_count=1)
    world.settle()
    job = partition.fetch(partition.log_start_offset)
    filled(world, 4, T)
    world.tick(20)
    assert partition.log_start_offset > job.offset
    job.run()
    job.done()
    assert job.damage is None and job.skip_to == partition.log_start_offset
    for message in reader.messages():
        reader.ack(message)
    world.settle()
    assert not reported(caplog), "that was retention"
    segments = partition.segments
    path = layout.segment_path(partition.directory, segments[1].base_offset)
    world.fs.remove(path)
    other = world.connect()
    other.subscribe(T, ack="auto", start_position="first")
    world.settle()
    (line,) = reported(caplog)
    assert line.startswith(f"storage: {T}: {path} does not exist: offsets {segments[1].base_offset} to ")


def test_very_much_damage_is_logged_in_summary(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DAMAGES_REPORTED_MAX", 2)
    world = World()
    batches = stored(world, TOPIC)
    for each in (1, 3, 5):
        flip(world, batches[each])
    world.start()
    replay(world, start_position="first")
    lines = reported(caplog)
    assert len(lines) == 3 and "fsck" in lines[-1]
    assert world.broker.stats.damaged_ranges == 2


def test_what_is_missing_between_two_whole_batches_is_said_so() -> None:
    assert str(Damage("/a.rlog", 80, 80, 3, 5)) == "/a.rlog: no batch has them at byte 80: offsets 3 to 4 are lost"
