"""What clients see of files that are rewritten under them: nothing but less space."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from radiator.broker.logs.feed import between
from radiator.broker.logs.header_values import header_value
from radiator.stomp.frames import Frame
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.segment import Window, whole_batches
from tests.broker.harness import Client, World
from tests.tiers import sampled

Q, T = "/queue/a", "/topic/a"
SMALL = "defaults: {segment: {size: 64KiB}}\n"


def world_of(config: str, root: Path) -> World:
    return World(config, FileSystem(), str(root), tail_bytes_max=1)


def size_on_disk(world: World, name: str) -> int:
    return sum(path.stat().st_size for path in Path(layout.partition_path(world.root, name)).glob("*.rlog"))


def drain(world: World, client: Client, answer: Callable[[Client, Frame], None] = Client.ack) -> list[Frame]:
    found: list[Frame] = []
    while True:
        world.settle()
        messages = client.messages()
        if not messages:
            return found
        found += messages
        for message in messages:
            answer(client, message)


def test_an_old_unsettled_message_keeps_its_bytes_and_place_while_the_space_around_it_is_reclaimed(
    tmp_path: Path,
) -> None:
    world = world_of(SMALL, tmp_path)
    sender, slow, busy = world.connect(), world.connect(), world.connect()
    for number in range(400):
        sender.publish(Q, f"m{number}".ljust(1_000), tag=f"t{number}")
    slow.subscribe(Q, prefetch_count=1)
    world.settle()
    (held,) = slow.messages()
    busy.subscribe(Q, prefetch_count=50)
    assert len(drain(world, busy)) == 399
    for number in range(400, 500):
        sender.publish(Q, f"m{number}".ljust(1_000))
    world.settle()
    taken = busy.messages()
    whole = size_on_disk(world, Q)
    assert world.maintain() > 0
    assert size_on_disk(world, Q) < whole / 2
    slow.nack(held)
    drained = drain(world, slow) + drain(world, busy)
    (again,) = [message for message in [*drained, *busy.messages()] if message.headers["offset"] == "0"]
    assert again.body == held.body and again.headers["tag"] == "t0" and again.headers["redelivered"] == "true"
    for message in taken:
        busy.ack(message)
    rest = drain(world, busy) + drain(world, slow)
    assert {message.headers["offset"] for message in [*drained, *taken, *rest]} >= {
        str(each) for each in range(400, 500)
    }
    assert world.broker.stats.lost_to_retention == 0
    world.maintain()
    world.restart()
    client = world.connect()
    client.subscribe(Q)
    assert drain(world, client) == []
    assert world.broker.stats.lost_to_retention == 0


def test_a_compacted_topic_is_replayed_without_a_gap(tmp_path: Path) -> None:
    world = world_of(SMALL + "destinations: [{match: /topic/*, compact_by: 'header:key', compress: zstd}]", tmp_path)
    sender = world.connect()
    for number in range(600):
        sender.publish(T, f"v{number}".ljust(500), key=f"k{number % 20}")
        world.settle()
    whole = size_on_disk(world, T)
    assert world.maintain() > 0
    assert size_on_disk(world, T) < whole / 2
    for _ in range(2):
        reader = world.connect()
        reader.subscribe(T, ack="auto", start_position="first", stop_position="end")
        world.settle()
        messages = replayed(reader)
        assert len(messages) < 300
        assert not any("gap" in message.headers for message in messages)
        assert all(int(message.body.split()[0][1:]) == int(message.headers["offset"]) for message in messages)
        last = {message.headers["key"]: message.body.split()[0] for message in messages}
        assert last == {f"k{number % 20}": b"v%d" % number for number in range(580, 600)}
        world.restart()


def test_the_last_n_are_as_many_as_asked_for_also_when_what_was_removed_is_still_in_memory(tmp_path: Path) -> None:
    config = SMALL + "destinations: [{match: /topic/*, compact_by: 'header:key'}]"
    world = World(config, FileSystem(), str(tmp_path))
    sender, early = world.connect(), world.connect()
    for number in range(600):
        sender.publish(T, f"v{number}".ljust(500), key=f"k{number % 37}" if number % 50 else f"u{number}")
        world.settle()
    early.subscribe(T, ack="client", start_position="first", stop_position="end", prefetch_count=20)
    world.settle()
    started = replayed(early)
    assert len(started) == 20
    assert world.maintain() > 0
    whole = world.connect()
    whole.subscribe(T, ack="auto", start_position="first", stop_position="end")
    world.settle()
    left = [message.headers["offset"] for message in replayed(whole)]
    assert 50 < len(left) < 300, "the rest was compacted"
    for count in (5, 40, 100, 500):
        reader = world.connect()
        reader.subscribe(T, ack="auto", start_position=f"last:{count}", stop_position="end")
        world.settle()
        assert [message.headers["offset"] for message in replayed(reader)] == left[-count:]
    early.ack(started[-1])
    world.settle()
    while messages := replayed(early):
        started += messages
        early.ack(messages[-1])
        world.settle()
    offsets = [int(message.headers["offset"]) for message in started]
    assert offsets == sorted(set(offsets)) and {*map(int, left)} <= {*offsets}, "who is in the middle goes on"
    assert not any("gap" in message.headers for message in started)


@pytest.mark.parametrize("rule", ["compress: zstd", "merge_commits: true"])
def test_a_replay_goes_on_through_segments_that_are_rewritten_under_it(rule: str, tmp_path: Path) -> None:
    world = world_of(SMALL + f"destinations: [{{match: /topic/*, {rule}}}]", tmp_path)
    sender = world.connect()
    for number in range(600):
        sender.publish(T, f"v{number}".ljust(500))
        world.settle()
    reader = world.connect()
    reader.subscribe(T, ack="client", start_position="first", stop_position="end", prefetch_count=50)
    world.settle()
    found: list[Frame] = []
    while messages := replayed(reader):
        found += messages
        world.maintain()
        reader.ack(messages[-1])
        world.settle()
    assert [message.body.split()[0] for message in found] == [b"v%d" % number for number in range(600)]
    assert not any("gap" in message.headers for message in found)
    assert world.store.maintenance.counts["rewritten"] == len(world.store.partitions[T].segments) - 1 > 3


def batches_of(world: World, name: str) -> list[int]:
    """In each sealed segment."""
    found, fs = [], FileSystem()
    for info in world.store.partitions[name].segments[:-1]:
        path = layout.segment_path(layout.partition_path(world.root, name), info.base_offset)
        fd = fs.open_read(path)
        found.append(sum(1 for _ in whole_batches(Window(fs, fd, path=path), 0, fs.size(fd), info.base_offset)))
        fs.close(fd)
    return found


@pytest.mark.parametrize("restarted", [False, True])
def test_topics_are_merged_and_queues_that_give_their_space_back_are_not(restarted: bool, tmp_path: Path) -> None:
    rules = """
destinations:
  - {match: /queue/kept, retention: {acked: keep}}
  - {match: /topic/left, merge_commits: false}
  - {match: "/queue/mixed,/topic/mixed", partition: mixed}
"""
    world = world_of(SMALL + rules, tmp_path)
    sender = world.connect()
    for number in range(500):
        for name in (T, Q, "/queue/kept", "/topic/left", "/queue/mixed"):
            sender.publish(name, f"m{number}".ljust(200), tag=f"t{number}")
        if number % 100 == 0:
            sender.publish("/topic/mixed", "m")
        world.settle()
    if restarted:
        world.restart()
    world.maintain()
    names = (T, "/queue/kept", "mixed", Q, "/topic/left")
    merged = {name: batches_of(world, name) for name in names}
    assert all(merged.values())
    assert [set(counts) == {1} for counts in merged.values()] == [True, True, True, False, False]
    client = world.connect()
    for name in (Q, "/queue/kept", "/queue/mixed"):
        client.subscribe(name, prefetch_count=50, id=name)
    assert len(drain(world, client)) == 1_500
    world.maintain()
    world.restart()
    world.maintain()
    assert world.store.maintenance.counts["rewritten"] == 0, "known by their first headers"


def test_two_queues_in_one_log_give_back_what_both_are_done_with(tmp_path: Path) -> None:
    world = world_of(SMALL + "destinations: [{match: /queue/*, partition: both}]", tmp_path)
    sender = world.connect()
    for number in range(300):
        sender.publish(f"/queue/{'ab'[number % 2]}", f"m{number}".ljust(1_000))
        world.settle()
    whole = size_on_disk(world, "both")
    held = world.connect()
    held.subscribe("/queue/b", prefetch_count=2)
    world.settle()
    (first, second) = held.messages()
    one = world.connect()
    one.subscribe("/queue/a", prefetch_count=10)
    drain(world, one)
    world.maintain()
    assert size_on_disk(world, "both") > whole / 2, "half of it is the other queue's"
    held.ack(second)
    held.drop()
    other = world.connect()
    other.subscribe("/queue/b", prefetch_count=10)
    drained = drain(
        world, other, lambda client, message: None if message.headers["offset"] == "1" else client.ack(message)
    )
    world.maintain()
    assert next(message.headers["offset"] for message in drained) == first.headers["offset"] == "1"
    assert size_on_disk(world, "both") < whole / 3
    other.drop()
    world.settle()
    (last,) = drain(world, consumer(world, "/queue/b"))
    assert last.body == first.body


def replayed(client: Client) -> list[Frame]:
    """The messages heard, without the one that ends a replay."""
    return [message for message in client.messages() if "replay-end" not in message.headers]


def consumer(world: World, queue: str) -> Client:
    client = world.connect()
    client.subscribe(queue)
    return client


@pytest.mark.parametrize("seed", sampled(range(12), 3))
def test_against_a_model_whatever_is_sent_settled_rewritten_and_restarted(seed: int, tmp_path: Path) -> None:
    """A queue and a compacted topic against dictionaries, over acks, nacks, maintenance, kills and restarts."""
    random = Random(seed)
    config = SMALL + (
        "destinations: [{match: /topic/*, compact_by: 'header:key', compress: zstd},"
        "{match: /queue/*, compress: " + random.choice(["none", "zstd"]) + "}]"
    )
    world = World(config, tail_bytes_max=random.choice([1, 100_000]))
    waiting: dict[str, bytes] = {}  # by body's number: what nobody has settled
    table: dict[str, bytes] = {}
    sender, client = world.connect(), consumer(world, Q)
    held: dict[str, Frame] = {}

    def again() -> None:
        nonlocal sender, client
        held.clear()
        sender, client = world.connect(), world.connect()
        client.subscribe(Q, prefetch_count=30)

    again()
    for number in range(260):
        what = random.choices(
            ["send", "state", "ack", "nack", "maintain", "restart", "kill", "power"], [60, 40, 60, 6, 8, 1, 1, 1]
        )[0]
        if what == "send":
            for each in range(random.randrange(1, 12)):
                body = b"%d.%d " % (number, each) + b"x" * random.randrange(3_000)
                sender.publish(Q, body)
                waiting[body.split()[0].decode()] = body
        elif what == "state":
            for _ in range(random.randrange(1, 12)):
                key, body = f"k{random.randrange(40)}", b"%d " % number + b"y" * random.randrange(1_500)
                sender.publish(T, body, key=key)
                table[key] = body
        elif what in ("ack", "nack") and held:
            for name in random.sample(sorted(held), random.randrange(1, len(held) + 1)):
                message = held.pop(name)
                if what == "ack":
                    client.ack(message, receipt="r")
                    del waiting[name]
                else:
                    client.nack(message)
        elif what == "maintain":
            world.maintain()
        elif what in ("restart", "kill", "power"):
            world.settle()
            {"restart": world.restart, "kill": world.kill, "power": world.power_cut}[what]()
            again()
        world.settle()
        for message in client.messages():
            name = message.body.split()[0].decode()
            assert name not in held and message.body == waiting[name], name
            held[name] = message
    world.maintain()
    world.restart()
    client = world.connect()
    client.subscribe(Q, prefetch_count=100)
    assert {message.body.split()[0].decode(): message.body for message in drain(world, client)} == waiting
    reader = world.connect()
    reader.subscribe(T, ack="auto", start_position="first", stop_position="end")
    world.settle()
    messages = replayed(reader)
    assert {message.headers["key"]: message.body for message in messages} == table
    assert not any("gap" in message.headers for message in messages)
    offsets = [int(message.headers["offset"]) for message in messages]
    assert offsets == sorted(set(offsets))
    assert world.broker.stats.lost_to_retention == 0


def test_the_value_of_a_header_is_found_in_its_stored_form() -> None:
    value = header_value("k:e y")
    assert value(b"k\\ce y:one") == b"one"
    assert value(b"a:b\nk\\ce y:two\nz:") == b"two"
    assert value(b"xk\\ce y:three") is None
    assert value(b"") is None
    assert header_value("key")(b"key:") == b""
    assert header_value("key")(b"a:1\nmonkey:2\nkey:3") == b"3"


@pytest.mark.parametrize("seed", range(20))
def test_what_is_between_intervals(seed: int) -> None:
    random = Random(seed)
    some = sorted((start, random.randrange(start, 70)) for start in random.sample(range(60), random.randrange(10)))
    first, last = random.randrange(10), random.randrange(50, 70)
    covered = {offset for start, stop in some for offset in range(start, stop)}
    found = between(some, first, last) if not some or some[-1][1] < last else between(some, first, 70)
    until = max([last, *(stop for _, stop in some)]) if not some or some[-1][1] < last else 70
    assert {offset for start, stop in found for offset in range(start, stop)} >= set(range(first, last)) - covered
    assert not {offset for start, stop in found for offset in range(start, stop)} & covered
    assert all(start < stop <= until for start, stop in found) and found == sorted(found)


@pytest.mark.parametrize("queues", [1, 2, 5])
def test_what_all_queues_of_a_log_have_settled(queues: int) -> None:
    world = World("destinations: [{match: '/queue/*', partition: shared}]")
    client, random = world.connect(), Random(queues)
    for number in range(queues):
        client.publish(f"/queue/{number}", *map(str, range(20)))
    world.settle()
    feed = world.broker.destinations["/queue/0"].feeds[0]
    end = feed.partition.high_watermark
    everywhere = set(range(end))
    for source in feed.sources:
        mine = set(random.sample(range(end), 3 * end // 4))
        source.cursor.ack(mine)
        everywhere &= mine
    for start in range(0, end, 7):
        found = feed.settled_in(start, start + 9)
        assert {offset for one, two in found for offset in range(one, two)} == everywhere & set(range(start, start + 9))
        assert all(one < two for one, two in found) and found == sorted(found)
