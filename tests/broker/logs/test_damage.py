"""Damaged files under a whole broker: readers are told how many records are missing, and get everything behind."""

from __future__ import annotations

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.storage import layout
from radiator.storage.header import BatchHeader
from radiator.storage.reader import segment_batches
from tests.broker.harness import NOW, World

TOPIC, QUEUE = "/topic/t", "/queue/q"


def stored(world: World, name: str, batches: int = 8) -> list[tuple[str, int, range]]:
    """Messages one second apart, two in a batch; (path, position, offsets) of the batches."""
    client = world.connect()
    for number in range(batches):
        client.publish(name, f"{2 * number}", f"{2 * number + 1}")
        world.settle()
        world.now = NOW + (number + 1) * NS_PER_SECOND
    world.stop()
    path = layout.segment_path(layout.partition_path("/data", name), 0)
    found = []
    for position, header in segment_batches(path, world.fs):
        assert isinstance(header, BatchHeader)
        found.append((path, position, range(header.base_offset, header.base_offset + header.records)))
    assert len(found) == batches
    return found


def flip(world: World, batch: tuple[str, int, range], at: int = 70, bit: int = 4) -> None:
    world.fs.nodes[batch[0]].cache[batch[1] + at] ^= 1 << bit


@pytest.mark.parametrize("at", [4, 9, 13, 20, 30, 41, 44, 70])
@pytest.mark.parametrize("lost", [0, 3, 7])
def test_a_replay_reports_the_gap_and_goes_on_behind_it(lost: int, at: int) -> None:
    world = World()
    batches = stored(world, TOPIC)
    flip(world, batches[lost], at)
    world.start()
    client = world.connect()
    client.subscribe(TOPIC, ack="auto", start_position="first")
    world.settle()
    client.publish(TOPIC, "behind")
    world.settle()
    heard = client.messages()
    expected = [str(number) for number in range(16) if number not in batches[lost][2]] + ["behind"]
    assert [frame.body.decode() for frame in heard] == expected
    gaps = {frame.body.decode(): frame.headers["gap"] for frame in heard if "gap" in frame.headers}
    assert gaps == {str(batches[lost][2].stop) if lost < 7 else "behind": "2"}
    assert [int(frame.headers["message-id"].rpartition("@")[2]) for frame in heard][-1] == 16


@pytest.mark.parametrize("lost", [0, 3, 7])
def test_a_queue_counts_what_is_lost_and_goes_on_behind_it(lost: int) -> None:
    world = World()
    batches = stored(world, QUEUE)
    flip(world, batches[lost])
    world.start()
    client = world.connect()
    client.subscribe(QUEUE, prefetch_count=100)
    client.publish(QUEUE, "behind")
    world.settle()
    heard = client.messages()
    assert [frame.body.decode() for frame in heard] == [
        *[str(number) for number in range(16) if number not in batches[lost][2]],
        "behind",
    ]
    assert world.broker.stats.lost_to_retention == 2
    for frame in heard:
        client.ack(frame)
    world.settle()
    world.restart()
    client = world.connect()
    client.subscribe(QUEUE)
    world.settle()
    assert not client.messages(), "what was lost is not waited for"


def test_a_start_reports_damage_with_its_offsets() -> None:
    world = World()
    batches = stored(world, TOPIC)
    flip(world, batches[3])
    del world.fs.nodes[batches[0][0].replace(".rlog", ".idx")]
    world.start()
    (note,) = [note for note in world.notes if note.kind == "damage"]
    assert (note.first_offset, note.last_offset) == (6, 7) and "offsets 6 to 7 are lost" in str(note)


@pytest.mark.parametrize("field", [24, 32])
def test_a_damaged_time_hides_nothing_from_a_replay_by_time(field: int) -> None:
    """Bits of the first and of the last time in a header, which no reader believes without the crc."""
    for bit in range(64):
        world = World()
        batches = stored(world, TOPIC)
        flip(world, batches[3], field + bit // 8, bit % 8)
        world.start()
        client = world.connect()
        start = NOW + 4 * NS_PER_SECOND
        client.subscribe(TOPIC, ack="auto", start_position=f"time:{start}")
        world.settle()
        assert client.bodies() == [str(number) for number in range(8, 16)], bit
