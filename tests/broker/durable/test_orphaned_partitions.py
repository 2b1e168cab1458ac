"""Rules that name other logs than before: what a queue has in the old ones is delivered, once, and first."""

from __future__ import annotations

import pytest

from tests.broker.durable.orphaned import NAME, change, drained, figures, rule, take_all
from tests.broker.harness import World, bodies

CHANGES = [
    ("", ", partitions: 3"),
    (", partitions: 3", ""),
    (", partitions: 2", ", partitions: 3, partition: '{name}.new'"),
    ("", ", partition: other"),
    ("", ", priority: true"),
    (", priority: true", ""),
    (", partition: other", ", store: memory"),
    (", store: file", ", store: memory, partitions: 2"),
]


@pytest.mark.parametrize("how", ["stop", "kill", "power_cut"])
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_queue_goes_on_draining_what_it_has_and_delivers_it_first(before: str, after: str, how: str) -> None:
    world = World(rule(before))
    world.connect().publish(NAME, "1", "2", partition_key="k")
    world.settle()
    change(world, rule(after), how)
    assert figures(world) == (1, 0)
    world.connect().publish(NAME, "3", "4", partition_key="k")
    assert take_all(world) == ["1", "2", "3", "4"]
    assert drained(world) and figures(world) == (0, 0)
    change(world, rule(before), how)
    assert take_all(world) == [] and drained(world)


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_rule_that_is_changed_back_goes_on_where_it_was(before: str, after: str) -> None:
    world = World(rule(before))
    world.connect().publish(NAME, "1", "2", "3", partition_key="k")
    change(world, rule(after))
    client = world.connect()
    client.subscribe(NAME, prefetch_count=1)
    world.settle()
    (first,) = client.messages()
    client.ack(first)
    world.settle()
    change(world, rule(before))
    assert take_all(world) == ["2", "3"]


def test_messages_in_flight_come_again_marked_from_an_orphaned_log() -> None:
    world = World(rule(""))
    client = world.connect()
    client.publish(NAME, "1", "2")
    client.subscribe(NAME, prefetch_count=1)
    world.settle()
    change(world, rule(", partitions: 2"), "kill")
    client = world.connect()
    client.subscribe(NAME, prefetch_count=9)
    world.settle()
    found = client.messages()
    assert [each.headers.get("redelivered") for each in found] == ["true", None]
    assert found[0].headers["delivery-count"] == "2"
    client.nack(found[0], requeue="true", delay="0")
    world.settle()
    assert bodies(client.messages()) == ["1"]


def test_no_new_message_is_delivered_before_those_of_an_orphaned_log() -> None:
    world = World(rule(""))
    world.connect().publish(NAME, *map(str, range(50)))
    change(world, rule(", partitions: 2"))
    world.connect().publish(NAME, "new")
    client = world.connect()
    client.subscribe(NAME, prefetch_count=7)
    heard: list[str] = []
    while len(heard) < 51:
        world.settle()
        frames = client.messages()
        assert frames
        heard += bodies(frames)
        for each in frames:
            client.ack(each)
    assert heard == [*map(str, range(50)), "new"]


def test_a_deferred_message_of_an_orphaned_log_holds_up_no_other() -> None:
    world = World(rule(""))
    world.connect().publish(NAME, "later", delay="60s")
    change(world, rule(", partition: other"))
    world.connect().publish(NAME, "now")
    client = world.connect()
    client.subscribe(NAME, prefetch_count=9)
    world.settle()
    assert client.bodies() == ["now"]
    world.tick(61)
    assert client.bodies() == ["later"]


def test_the_orphaned_priorities_of_a_queue_are_drained_from_the_highest_down() -> None:
    world = World(rule(", priority: true"))
    for priority in (2, 9, 4, 7):
        world.connect().publish(NAME, str(priority), priority=priority)
    change(world, rule(""))
    world.connect().publish(NAME, "new", priority=9)
    client = world.connect()
    client.subscribe(NAME, prefetch_count=1)
    heard = []
    for _ in range(5):
        world.settle()
        (frame,) = client.messages()
        heard.append(frame.body.decode())
        client.ack(frame)
    assert heard == ["9", "7", "4", "2", "new"]


def test_messages_from_before_priorities_have_the_default_priority() -> None:
    world = World(rule(""))
    world.connect().publish(NAME, "old 1", "old 2")
    change(world, rule(", priority: true"))
    for priority in (3, 4, 5):
        world.connect().publish(NAME, str(priority), priority=priority)
    assert take_all(world) == ["5", "old 1", "old 2", "4", "3"]


def test_a_limit_counts_messages_of_orphaned_logs_and_drops_their_oldest_first() -> None:
    world = World(rule(""))
    world.connect().publish(NAME, "1", "2")
    change(world, rule(", partition: other, max_messages: 2, on_full: drop_oldest"))
    world.connect().publish(NAME, "3")
    assert take_all(world) == ["2", "3"]
    world = World(rule(""))
    world.connect().publish(NAME, "1", "2")
    change(world, rule(", priority: true, max_messages: 3, on_full: drop_oldest"))
    world.connect().publish(NAME, "3", "4")
    assert take_all(world) == ["2", "3", "4"]


def test_two_changes_leave_two_orphaned_logs() -> None:
    world = World(rule(""))
    world.connect().publish(NAME, "1")
    change(world, rule(", partition: b"))
    world.connect().publish(NAME, "2")
    change(world, rule(", partition: c"))
    world.connect().publish(NAME, "3")
    assert figures(world) == (2, 0)
    assert sorted(take_all(world)) == ["1", "2", "3"]
    assert drained(world)


def test_dead_letters_of_an_orphaned_log_go_where_the_current_rule_says() -> None:
    dead = ", dead_letter: /queue/dead, redeliver: {max: 1}"
    world = World(rule(""))
    world.connect().publish(NAME, "1")
    change(world, rule(", partitions: 2" + dead))
    client = world.connect()
    client.subscribe(NAME)
    world.settle()
    (message,) = client.messages()
    client.nack(message)
    world.settle()
    assert take_all(world, "/queue/dead") == ["1"]
    assert drained(world)


def test_a_dead_letter_queue_whose_own_rule_changes_keeps_its_letters() -> None:
    rules = "destinations: [{match: /queue/a, dead_letter: /queue/dead, redeliver: {max: 1}}, {match: /queue/dead%s}]"
    world = World(rules % "")
    client = world.connect()
    client.publish(NAME, "1")
    client.subscribe(NAME)
    world.settle()
    client.nack(client.messages()[0])
    world.settle()
    change(world, rules % ", partitions: 2")
    assert take_all(world, "/queue/dead") == ["1"]


def test_a_browser_sees_messages_of_orphaned_logs() -> None:
    world = World(rule(""))
    client = world.connect()
    client.publish(NAME, "1", "2")
    client.subscribe(NAME, prefetch_count=1)
    world.settle()
    client.ack(client.messages()[0])
    change(world, rule(", partitions: 2"))
    client = world.connect()
    client.publish(NAME, "3")
    client.subscribe(NAME, ack="auto", browser="true")
    world.settle()
    assert sorted(filter(None, client.bodies())) == ["2", "3"]  # each log for itself, and the end


def test_a_wildcard_finds_a_queue_that_has_only_an_orphaned_log() -> None:
    world = World(rule("", "'/queue/*'"))
    world.connect().publish(NAME, "1")
    change(world, rule(", partitions: 2", "'/queue/*'"))
    assert take_all(world, "/queue/*") == ["1"]


def test_a_queue_without_anything_new_is_not_forgotten_with_its_last_consumer() -> None:
    world = World(rule(""))
    world.connect().publish(NAME, "1")
    change(world, rule(", partitions: 2"))
    client = world.connect()
    client.subscribe(NAME)
    world.settle()
    client.drop()
    world.settle()
    assert take_all(world) == ["1"] and drained(world)
    client = world.connect()
    client.subscribe(NAME)
    world.settle()
    client.drop()
    world.settle()
    assert NAME not in world.broker.destinations
    change(world, rule(""))
    assert take_all(world) == []
