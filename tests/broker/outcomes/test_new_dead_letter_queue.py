"""A dead-letter queue that is born by its first letter is there from then on, whoever comes and goes."""

from __future__ import annotations

from tests.broker.harness import World

CONFIG = "destinations: [{match: /queue/a, redeliver: {max: 1}, dead_letter: /queue/dead.1}]"


def test_a_new_dead_letter_queue_outlives_its_only_consumer_while_the_first_letter_is_not_stored() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "m")
    world.settle()
    (message,) = client.messages()
    consumer = world.connect()
    consumer.subscribe("/queue/dead.*")
    client.nack(message)
    world.take()  # the letter is on its way to the disk
    consumer.drop()
    world.write()
    world.sync()
    world.completed()
    world.settle()
    consumer = world.connect()
    consumer.subscribe("/queue/dead.*")
    world.settle()
    assert consumer.bodies() == ["m"]
