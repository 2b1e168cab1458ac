"""Destinations that nobody uses go, with everything that they had; a name that is used again begins anew."""

from __future__ import annotations

import errno
from random import Random

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.storage import layout
from tests.broker.harness import World
from tests.storage.faults import Crash, FaultyFileSystem

IDLE = "destinations: [{match: '/*/s.>', expire: {idle: 10m}}]"


def directories(world: World) -> set[str]:
    """The names of partitions with a file, and everything else that a removal leaves for a moment."""
    places = (f"{layout.partitions_path('/data')}/", f"{layout.removed_path('/data')}/", layout.removals_path("/data"))
    return {
        path.split("/")[3] if "/partitions/" in path else path for path in world.fs.nodes if path.startswith(places)
    }


def pass_time(world: World, seconds: float, step: float = 30) -> None:
    for _ in range(int(seconds / step)):
        world.tick(step)


@pytest.mark.parametrize("name", ["/queue/s.1", "/topic/s.1"])
def test_a_destination_goes_after_the_time_of_its_rule_and_leaves_nothing(name: str) -> None:
    world = World(IDLE)
    client = world.connect()
    client.publish("/queue/stays", "x")
    world.settle()
    before = world.store.facts(), directories(world), len(world.broker.destinations), len(world.store.cursors.names())
    client.publish(name, "one", "two")
    world.settle()
    assert name in world.broker.destinations and directories(world) != before[1]
    pass_time(world, 570)
    assert name in world.broker.destinations
    pass_time(world, 60)
    assert name not in world.broker.destinations
    after = world.store.facts(), directories(world), len(world.broker.destinations), len(world.store.cursors.names())
    assert after[1:] == before[1:]
    assert [after[0][each] for each in ("tail_bytes", "partitions")] == [
        before[0][each] for each in ("tail_bytes", "partitions")
    ]
    assert len(world.broker.idle) == 0
    counts = world.broker.stats
    assert counts.destinations_removed == 1
    assert counts.lost_with_destination == (2 if name.startswith("/queue") else 0)


def test_a_subscription_or_a_message_keeps_a_destination_and_the_time_begins_when_it_ends() -> None:
    world = World(IDLE)
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/s.1", ack="auto")
    other.publish("/queue/s.2", "x")
    for _ in range(4):
        pass_time(world, 500)
        other.publish("/queue/s.2", "x")
        world.settle()
    assert {"/queue/s.1", "/queue/s.2"} <= set(world.broker.destinations)
    other.publish("/queue/s.1", "x")
    world.settle()
    client.say("UNSUBSCRIBE", id="0")
    world.settle()
    pass_time(world, 570)
    assert {"/queue/s.1", "/queue/s.2"} <= set(world.broker.destinations)
    pass_time(world, 60)
    assert not {"/queue/s.1", "/queue/s.2"} & set(world.broker.destinations)


def test_a_durable_subscription_keeps_a_topic() -> None:
    world = World(IDLE)
    client = world.connect(client_id="c")
    client.subscribe("/topic/s.1", ack="client", durable="true", subscription_name="d")
    client.publish("/topic/s.1", "x")
    world.settle()
    client.drop()
    pass_time(world, 1_200)
    assert "/topic/s.1" in world.broker.destinations


def test_the_name_begins_again_at_offset_0_for_every_kind_of_reader() -> None:
    world = World(IDLE)
    client = world.connect()
    client.publish("/topic/s.1", "old 0", "old 1")
    world.settle()
    pass_time(world, 660)
    client.say("SEND", "new", destination="/topic/s.1", receipt="r")
    world.settle()
    (receipt,) = client.take("RECEIPT")
    assert receipt.headers["offset"] == "0" and "duplicate" not in receipt.headers
    client.subscribe("/topic/s.1", ack="auto", start_position="first")
    world.settle()
    assert client.bodies() == ["new"]
    world.kill()
    client = world.connect()
    client.subscribe("/topic/s.1", ack="auto", start_position="first")
    world.settle()
    assert client.bodies() == ["new"]


def test_a_message_id_of_the_removed_destination_is_no_duplicate_in_the_new_one() -> None:
    world = World(IDLE)
    client = world.connect()
    client.publish("/queue/s.1", "x", message_id="m")
    world.settle()
    pass_time(world, 620)
    client.say("SEND", "y", destination="/queue/s.1", receipt="r", message_id="m")
    world.settle()
    assert "duplicate" not in client.take("RECEIPT")[0].headers


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "COMMIT"])
def test_a_command_during_the_removal_waits_and_uses_a_new_destination(command: str) -> None:
    world = World(IDLE)
    client = world.connect()
    client.publish("/queue/s.1", "old")
    world.settle()
    for _ in range(100):
        world.now += 30 * NS_PER_SECOND
        world.broker.tick(world.time)
        if "/queue/s.1" not in world.broker.destinations:
            break
    assert world.store.removals.names == {"/queue/s.1"}
    other = world.connect()
    if command == "SUBSCRIBE":
        client.subscribe("/queue/s.1", ack="auto", receipt="r")
    elif command == "COMMIT":
        client.say("BEGIN", transaction="t")
        client.publish("/queue/s.1", "new", transaction="t")
        client.say("COMMIT", transaction="t", receipt="r")
    else:
        client.say("SEND", "new", destination="/queue/s.1", receipt="r")
    client.flush()
    assert client.rest and not client.inbox
    world.settle()
    assert client.receipts() == ["r"] and not world.store.removals.names
    if command == "SUBSCRIBE":
        other.publish("/queue/s.1", "new")
        world.settle()
        assert client.bodies() == ["new"]
    else:
        world.kill()
        consumer = world.connect()
        consumer.subscribe("/queue/s.1", ack="auto")
        world.settle()
        assert consumer.bodies() == ["new"]


def test_a_plan_of_a_send_does_not_outlive_the_destination() -> None:
    world = World(IDLE)
    client = world.connect()
    client.publish("/queue/s.1", "a")  # its plan is remembered for frames with the same headers
    world.settle()
    pass_time(world, 620)
    client.publish("/queue/s.1", "b")
    world.settle()
    consumer = world.connect()
    consumer.subscribe("/queue/s.1", ack="auto")
    world.settle()
    assert consumer.bodies() == ["b"]


def test_a_removal_that_the_disk_refuses_leaves_the_destination_as_it_was() -> None:
    world = World(IDLE)
    client = world.connect()
    client.publish("/queue/s.1", "a", "b")
    world.settle()
    consumer = world.connect()
    consumer.subscribe("/queue/s.1")
    world.settle()
    consumer.ack(consumer.messages()[0])
    world.settle()
    consumer.drop()
    world.fs.fail("open", error=errno.ENOSPC, under="removals")
    pass_time(world, 620)
    assert "/queue/s.1" in world.broker.destinations and not world.store.removals.names
    consumer = world.connect()
    consumer.subscribe("/queue/s.1", ack="auto")
    world.settle()
    assert consumer.bodies() == ["b"]
    consumer.drop()
    pass_time(world, 660)
    assert "/queue/s.1" not in world.broker.destinations


def test_while_the_disk_does_not_end_a_removal_a_send_is_refused_and_nothing_is_lost() -> None:
    world = World(IDLE)
    client = world.connect()
    client.publish("/queue/s.1", "a")
    world.settle()
    world.fs.fail("rename", error=errno.EIO, under="/removed/", times=3)
    pass_time(world, 630)
    assert world.store.removals.failed is not None
    client.say("SEND", "x", destination="/queue/s.1", receipt="r")
    world.settle()
    assert client.error() == "storage"
    pass_time(world, 10, step=2.5)
    client = world.connect()
    client.say("SEND", "x", destination="/queue/s.1", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]


@pytest.mark.thorough
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_a_crash_during_a_removal_leaves_the_queue_as_it_was_or_none(power: bool) -> None:
    seen = set()
    for nth in range(1, 100):
        fs = FaultyFileSystem(Random(nth))
        world = World(IDLE, fs)
        client = world.connect()
        client.publish("/queue/s.1", "a", "b", "c")
        world.settle()
        client.subscribe("/queue/s.1")
        world.settle()
        client.ack(client.messages()[0], receipt="r")
        world.settle()
        client.drop()
        world.settle()
        world.now += 590 * NS_PER_SECOND
        world.broker.tick(world.time)
        world.settle()
        fs.crash_at(nth)
        try:
            pass_time(world, 60, step=20)
        except Crash:
            pass
        else:
            break
        (world.power_cut if power else world.kill)()
        fresh = world.connect()
        fresh.subscribe("/queue/s.1", ack="auto")
        world.settle()
        bodies = fresh.bodies()
        assert bodies in ([], ["b", "c"])
        seen.add(len(bodies))
    assert seen == {0, 2}


# --- what a SUBSCRIBE says --------------------------------------------------------------------------------------------


def test_a_queue_with_auto_delete_goes_with_its_last_consumer() -> None:
    world = World()
    first, second, sender = world.connect(), world.connect(), world.connect()
    first.subscribe("/queue/a", auto_delete="true")
    second.subscribe("/queue/a", ack="auto")
    world.settle()
    sender.publish("/queue/a", "x", "y", "z")
    world.settle()
    first.drop()
    world.settle()
    assert "/queue/a" in world.broker.destinations
    sender.publish("/queue/a", "later")
    world.settle()
    second.say("DISCONNECT", receipt="bye")
    world.settle()
    second.drop()
    world.settle()
    pass_time(world, 5, step=1)
    assert "/queue/a" not in world.broker.destinations and directories(world) == set()
    assert not world.store.definitions.entries


def test_a_queue_with_x_expires_goes_after_that_time_also_over_a_restart() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", x_expires=30_000)
    client.publish("/queue/a", "x")
    world.settle()
    world.restart()
    assert "/queue/a" in world.broker.destinations
    pass_time(world, 25, step=5)
    assert "/queue/a" in world.broker.destinations
    pass_time(world, 15, step=5)
    assert "/queue/a" not in world.broker.destinations and not world.store.definitions.entries
    world.restart()
    assert "/queue/a" not in world.broker.destinations and not world.notes


def test_a_queue_with_auto_delete_goes_after_a_restart_unless_a_consumer_comes_back() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", auto_delete="true")
    client.subscribe("/queue/b", id="1", auto_delete="true")
    client.publish("/queue/a", "x")
    client.publish("/queue/b", "x")
    world.settle()
    world.kill()
    world.tick()
    client = world.connect()
    client.subscribe("/queue/b", auto_delete="true")
    pass_time(world, 90)
    assert set(world.broker.destinations) == {"/queue/b"}
    client.drop()
    world.settle()
    pass_time(world, 5, step=1)
    assert not world.broker.destinations


def test_the_headers_change_no_queue_that_exists_and_no_topic() -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "x")
    client.publish("/topic/t", "x")
    world.settle()
    client.subscribe("/queue/a", auto_delete="true", x_expires=1_000)
    client.subscribe("/topic/t", id="1", auto_delete="true", x_expires=1_000)
    client.subscribe("/topic/new", id="2", auto_delete="true", x_expires=1_000)
    client.publish("/topic/new", "x")
    world.settle()
    client.drop()
    pass_time(world, 120)
    assert set(world.broker.destinations) == {"/queue/a", "/topic/t", "/topic/new"}


@pytest.mark.parametrize("headers", [{"x_expires": "0"}, {"x_expires": "soon"}, {"auto_delete": "maybe"}])
def test_a_malformed_header_is_refused(headers: dict[str, str]) -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", **headers)
    world.settle()
    assert client.error() == "bad-header"


def test_shared_logs_fan_outs_and_queues_with_dead_letters_on_their_way_stay() -> None:
    world = World(
        """
defaults: {expire: {idle: 1m}}
destinations:
- {match: '/topic/shared.>', partition: together}
- {match: /queue/source, fan_out: [/queue/bound]}
"""
    )
    client = world.connect()
    names = {"/topic/shared.a", "/topic/shared.b", "/queue/source", "/queue/bound"}
    for name in names:
        client.publish(name, "x")
    world.settle()
    pass_time(world, 300)
    assert names <= set(world.broker.destinations)


def test_a_paused_queue_stays_and_after_its_resume_the_time_begins_again() -> None:
    world = World(IDLE)
    client = world.connect()
    client.publish("/queue/s.1", "x")
    world.settle()
    queue = world.broker.destinations["/queue/s.1"].queue
    queue.pause()
    pass_time(world, 1800)
    assert "/queue/s.1" in world.broker.destinations
    queue.resume()
    pass_time(world, 570)
    assert "/queue/s.1" in world.broker.destinations
    pass_time(world, 60)
    assert "/queue/s.1" not in world.broker.destinations


@pytest.mark.parametrize("headers", [{"auto_delete": "true"}, {"x_expires": "20000"}])
def test_a_drain_takes_the_consumers_and_no_queue(headers: dict[str, str]) -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", **headers)
    client.publish("/queue/a", "x")
    world.settle()
    world.broker.draining.begin(3, world.time.mono)
    pass_time(world, 5, 1)
    assert client.error() == "draining"
    client.drop()
    pass_time(world, 120)
    world.restart()
    client = world.connect()
    client.subscribe("/queue/a")
    world.settle()
    assert client.bodies() == ["x"]
    world.broker.draining.begin(3, world.time.mono)
    pass_time(world, 5, 1)
    client.drop()
    world.broker.draining.cancel()
    pass_time(world, 120)
    assert "/queue/a" not in world.broker.destinations


@pytest.mark.parametrize(
    "rule",
    [
        "match: /queue/many, priority: true",
        "match: /queue/many, partitions: 3",
        "match: /queue/many, kind: topic, partitions: 3, partition_by: none",
        "match: /queue/many, store: memory",
        "match: /queue/many, fsync: never, compress: zstd",
    ],
)
def test_all_logs_of_a_destination_go_together(rule: str) -> None:
    world = World(f"destinations: [{{{rule}, expire: {{idle: 1m}}}}]")
    client = world.connect()
    before = world.store.facts()["memory_bytes"], world.store.facts()["tail_bytes"], len(world.broker.timing)
    for number in range(9):
        client.publish("/queue/many", str(number), priority=number)
    world.settle()
    pass_time(world, 90)
    assert not world.broker.destinations and not world.store.partitions and directories(world) == set()
    assert not list(world.store.cursors.names())
    assert (world.store.facts()["memory_bytes"], world.store.facts()["tail_bytes"], len(world.broker.timing)) == before
    client.say("SEND", "new", destination="/queue/many", receipt="r")
    world.settle()
    assert client.take("RECEIPT")[0].headers["offset"] == "0"
    world.restart()
    assert list(world.broker.destinations) == ([] if "memory" in rule else ["/queue/many"])


def test_delayed_messages_and_their_timers_go_with_the_queue() -> None:
    world = World(IDLE)
    client = world.connect()
    timers = len(world.broker.timing)
    for number in range(3):
        client.publish("/queue/s.1", "x", delay=86_400_000 + number)
    world.settle()
    assert len(world.broker.timing) > timers
    pass_time(world, 660)
    assert "/queue/s.1" not in world.broker.destinations and len(world.broker.timing) == timers
    assert world.broker.stats.lost_with_destination == 3


def test_a_removed_destination_gives_its_place_under_the_limit_back() -> None:
    world = World("limits: {destinations: 2}\n" + IDLE)
    client = world.connect()
    client.publish("/queue/s.1", "x")
    client.publish("/queue/s.2", "x")
    client.publish("/queue/s.3", "x")
    world.settle()
    assert client.error() == "too-many"
    pass_time(world, 660)
    client = world.connect()
    client.say("SEND", "x", destination="/queue/s.3", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]


def test_a_hundred_destinations_go_in_few_syncs() -> None:
    world = World(IDLE)
    client = world.connect()
    for number in range(100):
        client.publish(f"/queue/s.{number}", "x")
    world.settle()
    world.now += 590 * NS_PER_SECOND
    world.broker.tick(world.time)
    world.settle()
    before = world.fs.calls["sync_dir"] + world.fs.calls["fdatasync"]
    pass_time(world, 60)
    assert not world.broker.destinations and directories(world) == set()
    assert world.fs.calls["sync_dir"] + world.fs.calls["fdatasync"] - before < 20
