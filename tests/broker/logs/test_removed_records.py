"""Messages that were removed from the log on purpose: nobody waits for them, and nobody is told of a loss."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiator.storage import layout
from tests.broker.harness import Client, World
from tests.storage.faults import FaultyFileSystem
from tests.storage.rewriting import swap

T, Q, B = "/topic/a", "/queue/a", "/queue/b"
COUNT = 60
CONFIG = "defaults: {segment: {size: 64KiB}}"
SHARED = "destinations: [{match: '/*/*', partition: shared, segment: {size: 64KiB}, retention: {acked: keep}}]"


def filled(*names: str, config: str = CONFIG, count: int = COUNT) -> World:
    """``count`` messages in turn to these destinations, over several segments; nothing stays in memory."""
    world = World(config, tail_bytes_max=1)
    sender = world.connect()
    for number in range(count):
        sender.publish(names[number % len(names)], str(number).ljust(4_000))
        if number % 3 == 2:
            world.settle()
    world.settle()
    sender.drop()
    return world


def remove(world: World, gone: Iterable[int], partition: str = T, per_batch: int = 10) -> list[int]:
    """Takes messages out of the sealed segments, but not the last of any; the broker starts anew. What is left."""
    gone = set(gone)
    bases = [segment.base_offset for segment in world.store.partitions[partition].segments]
    assert len(bases) > 3
    world.stop()
    assert isinstance(world.fs, FaultyFileSystem)
    kept = {base - 1 for base in bases} | {each for each in gone if each >= bases[-1]}
    for base in bases[:-1]:
        swap(world.fs, layout.partition_path("/data", partition), base, lambda each: each not in gone, 3, per_batch)
    world.start()
    return [offset for offset in range(world.store.partitions[partition].high_watermark) if offset not in gone - kept]


def subscribed(world: World, name: str = T, ack: str = "auto", **headers: str) -> Client:
    client = world.connect()
    client.subscribe(name, ack=ack, **headers)
    world.settle()
    return client


def heard(client: Client) -> list[int]:
    """Offsets of the messages; no gap is told with any of them."""
    messages = [message for message in client.messages() if "replay-end" not in message.headers]
    assert not any("gap" in message.headers or "start-adjusted" in message.headers for message in messages)
    assert all(int(message.body) == int(message.headers["offset"]) for message in messages)
    return [int(message.headers["offset"]) for message in messages]


EVENS = range(0, COUNT, 2)
BLOCKS = [each for each in range(COUNT) if each % 20 < 13]


# --- topics -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [EVENS, BLOCKS], ids=["every second", "blocks"])
def test_a_replay_passes_over_removed_records_without_a_gap(gone: Iterable[int]) -> None:
    world = filled(T)
    left = remove(world, gone)
    assert len(left) < COUNT - 15
    client = subscribed(world, start_position="first")
    assert heard(client) == left
    client.publish(T, str(COUNT))
    world.settle()
    assert heard(client) == [COUNT], "and goes on live"


@pytest.mark.parametrize("gone", [EVENS, BLOCKS], ids=["every second", "blocks"])
def test_a_replay_may_start_and_stop_among_removed_records(gone: Iterable[int]) -> None:
    world = filled(T)
    left = remove(world, gone)
    for start in (0, 1, 5, 6, 20, 33):
        for stop in (start, start + 1, start + 7, start + 20, COUNT - 1):
            client = subscribed(world, start_position=f"offset:{start}", stop_position=f"offset:{stop}")
            client.flush()
            assert client.inbox[-1].headers["replay-end"] == "true", (start, stop)
            assert heard(client) == [each for each in left if start <= each <= stop], (start, stop)
            client.drop()


def test_a_bounded_replay_that_ends_in_removed_records_needs_no_ack_to_end() -> None:
    world = filled(T)
    assert not {4, 5, 6, 7, 8} & set(remove(world, range(4, 9)))
    headers = {"start_position": "offset:3", "stop_position": "offset:7", "prefetch_count": "1"}
    client = subscribed(world, ack="client-individual", **headers)
    message, end = client.messages()
    assert (message.headers["offset"], end.headers["replay-end"]) == ("3", "true")


@pytest.mark.parametrize("word", ["start", "stop"])
@pytest.mark.parametrize("number", [1, 3, 10, 25, 100])
def test_the_last_n_are_messages(word: str, number: int) -> None:
    world = filled(T)
    left = remove(world, EVENS)
    if word == "start":
        assert heard(subscribed(world, start_position=f"last:{number}")) == left[-number:]
    else:
        client = subscribed(world, start_position="first", stop_position=f"last:{number}")
        assert heard(client) == left[:-number]


@pytest.mark.parametrize("number", [1, 4, 30])
def test_the_last_n_before_a_stop_are_those_of_each_destination_of_a_log(number: int) -> None:
    world = filled(T, "/topic/b", "/topic/c", config=SHARED)
    left = remove(world, EVENS, "shared")
    client = subscribed(world, "/topic/*", start_position="first", stop_position=f"last:{number}")
    mine = [[each for each in left if each % 3 == topic][:-number] for topic in range(3)]
    assert heard(client) == sorted(each for topic in mine for each in topic)


def test_damage_between_removed_records_is_still_a_gap() -> None:
    world = filled(T)
    left = remove(world, EVENS, per_batch=4)
    path = layout.segment_path(layout.partition_path("/data", T), 0)
    cache = world.fs.nodes[path].cache
    second = int.from_bytes(cache[8:12], "little")  # the first batch ends where the second begins
    cache[second + 100] ^= 1
    client = subscribed(world, start_position="first")
    messages = client.messages()
    found = [int(message.headers["offset"]) for message in messages]
    lost = [each for each in left if each not in found]
    assert 1 <= len(lost) <= 4
    told = {
        int(message.headers["offset"]): int(message.headers["gap"]) for message in messages if "gap" in message.headers
    }
    before = left[left.index(lost[0]) - 1]
    assert told == {left[left.index(lost[-1]) + 1]: lost[-1] - before}, "what the damaged batch covered"


# --- queues -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(Q,), (Q, B)], ids=["alone", "shared"])
@pytest.mark.parametrize("window", ["1", "7", "1000"])
def test_a_queue_passes_over_removed_records_and_counts_none_as_lost(names: tuple[str, ...], window: str) -> None:
    world = filled(*names, config=SHARED)
    left = remove(world, [*range(3, 9), *range(14, 30), 33, 35, 36], "shared")
    mine = [each for each in left if each % len(names) == 0]
    client = subscribed(world, Q, ack="client-individual", prefetch_count=window)
    found = []
    while messages := client.messages():
        found += [int(message.headers["offset"]) for message in messages]
        for message in messages:
            client.ack(message)
        world.settle()
    assert found == mine
    assert world.broker.stats.lost_to_retention == 0
    (source,) = world.broker.destinations[Q].queue.sources  # type: ignore[union-attr]
    assert source.cursor.floor == COUNT and not source.cursor.intervals, "nothing holds the log back"
    assert source.backlog == 0 and source.waiting == 0


@pytest.mark.parametrize("names", [(Q,), (Q, B)], ids=["alone", "shared"])
def test_what_was_handed_out_and_is_gone_does_not_come_back(names: tuple[str, ...]) -> None:
    """A cursor that a power cut set back finds that what it takes for unsettled is no longer there."""
    world = filled(*names, config=SHARED)
    client = subscribed(world, Q, ack="client-individual", prefetch_count="20")
    held = [int(message.headers["offset"]) for message in client.messages()]
    assert len(held) == 20
    left = remove(world, range(2, 13), "shared")
    client = subscribed(world, Q)
    messages = client.messages()
    assert [int(each.headers["offset"]) for each in messages] == [each for each in left if each % len(names) == 0]
    assert [each.headers.get("redelivered") for each in messages if int(each.headers["offset"]) in held] == ["true"] * (
        len([each for each in held if each in left])
    )
    assert world.broker.stats.lost_to_retention == 0
    (source,) = world.broker.destinations[Q].queue.sources  # type: ignore[union-attr]
    world.settle()
    assert source.cursor.floor == COUNT and source.waiting == 0


def test_a_queue_without_consumers_passes_over_removed_records_up_to_its_first_message() -> None:
    world = filled(B, config=SHARED, count=10)
    world.connect().publish(Q, "10".ljust(4_000))
    world.settle()
    sender = world.connect()
    for number in range(11, COUNT):
        sender.publish(B, str(number).ljust(4_000))
        world.settle()
    remove(world, [*range(2, 5), *range(6, 10)], "shared")
    world.stop()
    for path in [path for path in world.fs.nodes if path.startswith("/data/cursors/")]:
        del world.fs.nodes[path]  # so that the queue begins where the log does
    world.start()
    for _ in range(3):
        world.tick(11)
    (source,) = world.broker.destinations[Q].queue.sources  # type: ignore[union-attr]
    assert source.cursor.floor == 10 and source.next_own == 10
    assert heard(subscribed(world, Q)) == [10]


def test_a_browser_sees_what_is_left_and_ends() -> None:
    world = filled(Q)
    left = remove(world, BLOCKS, Q)
    client = subscribed(world, Q, browser="true")
    client.flush()
    assert client.inbox[-1].headers["replay-end"] == "true"
    assert heard(client) == left


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, COUNT - 1)), st.integers(1, 30), st.booleans(), st.integers(1, 12))
def test_whatever_is_removed_the_rest_is_delivered_once_in_order(
    gone: set[int], window: int, shared: bool, per_batch: int
) -> None:
    world = filled(Q, T, config=SHARED) if shared else filled(Q, config=SHARED)
    left = remove(world, gone, "shared", per_batch)
    mine = left[:] if not shared else [each for each in left if each % 2 == 0]
    client = subscribed(world, Q, ack="client-individual", prefetch_count=str(window))
    found: list[int] = []
    while messages := client.messages():
        found += [int(message.headers["offset"]) for message in messages]
        for message in reversed(messages):
            client.ack(message)
        world.settle()
    assert found == mine
    (source,) = world.broker.destinations[Q].queue.sources  # type: ignore[union-attr]
    assert source.cursor.floor == COUNT and source.waiting == 0
    assert heard(subscribed(world, "/*/*", start_position="first")) == left
