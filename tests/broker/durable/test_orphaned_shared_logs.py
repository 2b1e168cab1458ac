"""Former logs that several have something in: shared ones, those of parents, and topics under a name."""

from __future__ import annotations

import pytest

from tests.broker.durable.orphaned import NAME, change, drained, figures, rule, take_all
from tests.broker.harness import World

# --- logs that several share -----------------------------------------------------------------------------------------

SHARED = "destinations: [{match: /queue/a, partition: %s}, {match: '/queue/*', partition: all}]"


def test_a_queue_that_leaves_a_shared_log_drains_its_messages_and_holds_back_no_other() -> None:
    world = World(SHARED % "all")
    client = world.connect()
    for number in range(4):
        client.publish("/queue/a", f"a{number}")
        client.publish("/queue/b", f"b{number}")
    change(world, SHARED % "own")
    partition = world.store.partitions["all"]
    assert partition.retain_from == 0
    assert take_all(world, "/queue/b") == ["b0", "b1", "b2", "b3"]
    assert partition.retain_from == 0
    assert take_all(world, "/queue/a") == ["a0", "a1", "a2", "a3"]
    assert drained(world)
    world.connect().publish("/queue/b", "b4", "b5")
    assert take_all(world, "/queue/b") == ["b4", "b5"]
    world.tick(11)
    assert partition.retain_from == partition.high_watermark
    change(world, SHARED % "all")
    assert take_all(world, "/queue/a") == []


@pytest.mark.parametrize("restarted", [False, True])
def test_an_orphaned_log_is_reclaimed_up_to_its_unsettled_messages(restarted: bool) -> None:
    world = World(rule(", segment: {size: 64KiB}"))
    client = world.connect()
    for number in range(40):
        client.publish(NAME, f"{number} ".ljust(8_000))
    world.settle()
    change(world, rule(", segment: {size: 64KiB}, partition: other"))
    partition = world.store.partitions[NAME]
    held = partition.size_bytes
    world.tick(60)
    assert partition.size_bytes == held and partition.log_start_offset == 0
    assert len(take_all(world)) == 40
    if restarted:
        world.fs.kill()
        world.start()
        assert figures(world) == (0, 0) and partition is not world.store.partitions[NAME]
        partition = world.store.partitions[NAME]
    assert drained(world)
    for _ in range(3):
        world.tick(60)
    assert partition.log_start_offset > 30


def test_a_log_that_was_given_up_is_kept_as_the_rule_says_that_names_it_next() -> None:
    rules = "destinations: [{match: /queue/a, partition: %s}, {match: /queue/b, partition: x, retention: {age: 1h}}]"
    world = World(rules % "x, retention: {age: 1h}")
    world.connect().publish("/queue/a", "1")
    change(world, rules % "y")
    world.connect().publish("/queue/b", "2")
    world.settle()
    assert world.store.partitions["x"].settings.retention_age_ns == 3_600 * 10**9
    assert take_all(world, "/queue/b") == ["2"] and take_all(world, "/queue/a") == ["1"]
    assert drained(world)


# --- fan_out ----------------------------------------------------------------------------------------------------------

FAN = "destinations: [{match: /queue/p, fan_out: [/queue/x, /queue/y]%s}]"


def test_bound_queues_each_drain_the_orphaned_log_of_their_source() -> None:
    world = World(FAN % "")
    world.connect().publish("/queue/p", "1", "2")
    world.settle()
    assert take_all(world, "/queue/x") == ["1", "2"]
    change(world, FAN % ", partitions: 2")
    world.connect().publish("/queue/p", "3")
    assert take_all(world, "/queue/x") == ["3"]
    assert take_all(world, "/queue/y") == ["1", "2", "3"]
    assert drained(world)


def test_a_bound_queue_that_left_the_log_of_its_source_reads_it_once() -> None:
    rules = (
        "destinations: [{match: /queue/p, partition: all, fan_out: [/queue/x]}, "
        "{match: /queue/x, partition: %s}, {match: '/queue/*', partition: all}]"
    )
    world = World(rules % "all")
    world.connect().publish("/queue/x", "own")
    world.connect().publish("/queue/p", "fed")
    change(world, rules % "x")
    world.connect().publish("/queue/p", "fed again")
    assert take_all(world, "/queue/x") == ["own", "fed", "fed again"]


def test_a_source_created_in_an_orphaned_log_of_its_bound_queue_is_read_by_the_same_cursor() -> None:
    rules = "destinations: [{match: /queue/p, partition: all, fan_out: [/queue/x]}, {match: /queue/x, partition: %s}]"
    world = World(rules % "all")
    world.connect().publish("/queue/x", "own")
    change(world, rules % "x")
    assert figures(world) == (1, 0)
    world.connect().publish("/queue/p", "fed")
    assert take_all(world, "/queue/x") == ["own", "fed"]
    assert drained(world)
    world.connect().publish("/queue/p", "fed again")
    assert take_all(world, "/queue/x") == ["fed again"]


def test_a_queue_that_is_no_longer_bound_retains_nothing_of_the_orphaned_log_of_its_source() -> None:
    world = World(FAN % "")
    world.connect().publish("/queue/p", "1")
    world.connect().publish("/queue/x", "own")
    change(world, "destinations: [{match: /queue/p, fan_out: [/queue/y], partitions: 2}]")
    assert take_all(world, "/queue/x") == ["own"]
    assert world.store.cursors.get("queue:/queue/x", "/queue/p") is None
    assert take_all(world, "/queue/y") == ["1"]


# --- names over topics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("name", ["group", "subscription_name"])
@pytest.mark.parametrize(
    ("before", "after"), [("", ", partitions: 4"), (", partitions: 4", ""), ("", ", partition: b")]
)
def test_a_durable_subscription_goes_on_in_the_orphaned_logs_of_its_topics(
    name: str, before: str, after: str, how: str
) -> None:
    world = World(rule(before, "/topic/a"))
    client = world.connect()
    client.subscribe("/topic/a", **{name: "N"})
    world.settle()
    client.drop()
    world.connect().publish("/topic/a", "1", "2", "3", partition_key="k")
    world.settle()
    change(world, rule(after, "/topic/a"), how)
    world.connect().publish("/topic/a", "4", partition_key="k")
    assert sorted(take_all(world, "/topic/a", **{name: "N"})) == ["1", "2", "3", "4"]
    assert drained(world)
    change(world, rule(before, "/topic/a"), how)
    assert take_all(world, "/topic/a", **{name: "N"}) == []


def test_a_durable_subscription_gets_the_older_ones_first() -> None:
    world = World(rule("", "/topic/a"))
    take_all(world, "/topic/a", subscription_name="N")
    world.connect().publish("/topic/a", "1", "2")
    change(world, rule(", partitions: 2", "/topic/a"))
    world.connect().publish("/topic/a", "3")
    assert take_all(world, "/topic/a", subscription_name="N") == ["1", "2", "3"]


def test_a_durable_subscription_with_a_pattern_gets_the_older_ones_first_when_the_new_log_is_empty() -> None:
    world = World()
    world.connect().publish("/topic/rooms.kitchen", "0")
    take_all(world, "/topic/rooms.*", subscription_name="N")
    world.connect().publish("/topic/rooms.kitchen", "1", "2")
    change(world, rule(", partition: rooms", "/topic/rooms.*"))
    assert figures(world) == (1, 0)
    world.connect().publish("/topic/rooms.kitchen", "3")
    assert take_all(world, "/topic/rooms.*", subscription_name="N") == ["1", "2", "3"]


def test_the_members_of_a_group_keep_the_order_of_an_orphaned_partition() -> None:
    world = World(rule(", partitions: 2", "/topic/a"))
    take_all(world, "/topic/a", group="G")
    for number in range(20):
        world.connect().publish("/topic/a", str(number), partition=number % 2)
    change(world, rule("", "/topic/a"))
    members = [world.connect() for _ in range(2)]
    for each in members:
        each.subscribe("/topic/a", group="G", prefetch_count=20)
    world.settle()
    found = [each.bodies() for each in members]
    assert sorted(len(each) for each in found) == [10, 10]
    assert all(each == sorted(each, key=int) for each in found)


def test_a_durable_subscription_that_drops_a_topic_drops_its_orphaned_log() -> None:
    world = World(rule("", "/topic/a"))
    take_all(world, "/topic/a", subscription_name="N")
    world.connect().publish("/topic/a", "1")
    change(world, rule(", partitions: 2", "/topic/a"))
    client = world.connect()
    client.subscribe("/topic/b", subscription_name="N")
    world.settle()
    assert client.bodies() == []
    assert drained(world) and world.store.cursors.get("sub:N", "/topic/a") is None


def test_a_durable_subscription_keeps_the_orphaned_log_of_one_topic_when_it_drops_another() -> None:
    world = World(rule("", "'/topic/*'"))
    take_all(world, "/topic/a,/topic/b", subscription_name="N")
    world.connect().publish("/topic/a", "1")
    world.connect().publish("/topic/b", "2")
    change(world, rule(", partitions: 2", "'/topic/*'"))
    assert take_all(world, "/topic/a", subscription_name="N") == ["1"]
