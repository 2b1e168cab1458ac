"""A log that several queues share: what belongs to no queue there is history, which reclaiming must leave alone."""

from __future__ import annotations

from radiator.broker.logs.feed import Feed
from tests.broker.destinations.test_fan_out import under
from tests.broker.harness import World

RULES = """
destinations:
  - match: /queue/shared.>
    partition: shared
"""


def shared(world: World) -> Feed:
    feed: Feed = world.broker.registry.feed_of(world.store.partitions["shared"])
    return feed


def test_the_messages_of_queues_are_no_history() -> None:
    world = World(RULES)
    client = world.connect()
    for number in range(5):
        client.publish(f"/queue/shared.{number}", "x")
        world.settle()
    feed = shared(world)
    feed.pin()
    assert len(feed.sources) == 5 and not world.store.partitions["shared"].history


def test_what_is_stored_for_a_queue_that_is_not_there_yet_is_history_until_it_is() -> None:
    world = World(RULES)
    client = world.connect()
    client.publish("/queue/shared.a", "1")
    client.publish("/queue/shared.b", "2")
    world.settle()
    feed, second = shared(world), shared(world).sources[1]
    feed.leave(second.queue)
    feed.pin()
    assert world.store.partitions["shared"].history
    feed.join(second)
    feed.pin()
    assert not world.store.partitions["shared"].history
    client.publish("/queue/shared.b", "3")
    world.settle()
    feed.pin()
    assert not world.store.partitions["shared"].history


def test_a_name_that_no_queue_owns_any_more_is_history() -> None:
    world = World(RULES)
    client = world.connect()
    client.publish("/queue/shared.a", "1")
    world.settle()
    feed, (source,) = shared(world), shared(world).sources
    source.queue.filter.owned.clear()
    feed.filters_changed()
    feed.pin()
    assert world.store.partitions["shared"].history


def test_a_bound_queue_owns_the_messages_that_its_source_left_in_its_log() -> None:
    world = World(
        """
destinations:
  - {match: /queue/p, partition: shared}
  - {match: /queue/a, partition: shared}
"""
    )
    client = world.connect()
    client.publish("/queue/p", "1")
    client.publish("/queue/a", "2")
    world.settle()
    under(
        world,
        """
destinations:
  - {match: /queue/p, partition: others, fan_out: [/queue/a]}
  - {match: /queue/a, partition: shared}
""",
    )
    client = world.connect()
    client.publish("/queue/p", "3")
    world.settle()
    assert not world.store.partitions["shared"].history
