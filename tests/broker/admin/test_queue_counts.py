"""What the admin channel says of a queue: ready, in flight, delayed, on the way to the dead letters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from radiator import limits
from radiator.broker.admin import lists
from radiator.broker.queues import scheduled
from tests.broker.harness import World


def figures(world: World, queue: str = "/queue/a") -> dict[str, Any]:
    client = world.connect()
    question = json.dumps({"do": "destinations.ls", "match": queue})
    client.say("SEND", question, destination="/radiator/admin", reply_to="/temp-queue/answers")
    world.settle()
    (answer,) = client.messages()
    client.drop()
    (found,) = json.loads(answer.body)["destinations"]
    return {name: count for name, count in found.items() if name in FIELDS and count}


FIELDS = ("ready", "in_flight", "delayed", "dead_lettering", "unchecked", "total")


def test_a_message_with_a_delay_counts_as_delayed_before_the_queue_was_read() -> None:
    world = World()
    client = world.connect()
    for number in range(3):
        client.publish("/queue/a", str(number), delay="5s")
    client.publish("/queue/a", "now")
    assert figures(world) == {"ready": 1, "delayed": 3, "total": 4}
    client.subscribe("/queue/a")
    world.settle()
    assert figures(world) == {"in_flight": 1, "delayed": 3, "total": 4}
    client.drop()
    assert figures(world) == {"ready": 1, "delayed": 3, "total": 4}
    world.tick(5)
    assert figures(world) == {"ready": 4, "total": 4}


def test_one_that_is_due_and_was_never_looked_at_is_ready() -> None:
    world = World()
    world.connect().publish("/queue/a", "x", delay="5s")
    assert figures(world) == {"delayed": 1, "total": 1}
    world.tick(6)
    assert figures(world) == {"ready": 1, "total": 1}


def test_a_delay_in_a_transaction_counts_once_it_is_committed() -> None:
    world = World()
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish("/queue/a", "x", delay="5s", transaction="t")
    client.publish("/queue/a", "y", transaction="t")
    client.say("COMMIT", transaction="t")
    assert figures(world) == {"ready": 1, "delayed": 1, "total": 2}


def test_many_are_counted_exactly_whatever_has_been_passed_and_whatever_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduled, "BLOCK", 4)
    world = World()
    client = world.connect()
    for number in range(30):
        client.publish("/queue/a", str(number), **({"delay": f"{number}s"} if number % 3 else {}))
    world.settle()
    client.subscribe("/queue/a")
    for second in range(30):
        world.tick(1)
        late = sum(bool(number % 3) and number > second + 1 for number in range(30))
        found = figures(world)
        assert found.get("delayed", 0) == late
        assert found.get("ready", 0) + found.get("in_flight", 0) + late == found["total"] == 30 - second
        client.ack(client.messages()[0])
        world.settle()
    assert world.broker.timing.noted <= 4


def test_what_an_earlier_run_has_left_is_found_by_asking() -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "now")
    client.publish("/queue/a", "later", delay="1h")
    world.settle()
    world.restart()
    assert figures(world) == {"ready": 2, "unchecked": 2, "total": 2}
    world.connect().publish("/queue/a", "later still", delay="2h")
    assert figures(world) == {"ready": 1, "delayed": 2, "total": 3}
    world.tick(3601)
    assert figures(world) == {"ready": 2, "delayed": 1, "total": 3}


def test_a_question_looks_at_a_bounded_part_of_it_and_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LOOKED_READS", 1)
    monkeypatch.setattr(limits, "READ_CHUNK_BYTES", 300)
    world = World()
    client = world.connect()
    for number in range(20):
        client.publish("/queue/a", "x" * 200, delay=f"{number + 1}h")
        world.settle()
    world.restart()
    seen = [figures(world) for _ in range(30)]
    assert seen[0] == {"ready": 20, "unchecked": 20, "total": 20}
    left = [each.get("unchecked", 0) for each in seen]
    assert left == sorted(left, reverse=True) and len(set(left)) > 5
    assert seen[-1] == {"delayed": 20, "total": 20}


def test_what_could_not_be_stored_is_not_counted_as_delayed() -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "x", delay="1h")
    world.settle()
    queue = world.broker.destinations["/queue/a"].queue
    assert queue is not None
    (source,) = queue.sources
    client.publish("/queue/a", "y", delay="1h")
    client.publish("/queue/a", "z", delay="1h")
    assert source.delayed(world.now) == 3
    source.failed_write(1, 2)
    assert source.delayed(world.now) == 1
    assert world.broker.timing.noted == 1


def test_dead_letters_without_room_are_not_in_flight() -> None:
    world = World(
        "destinations: [{match: /queue/a, redeliver: {max: 1}, dead_letter: /queue/dead}, "
        "{match: /queue/dead, max_messages: 1}]"
    )
    client = world.connect()
    client.publish("/queue/a", "1", "2", "3")
    client.subscribe("/queue/a", prefetch_count=5)
    world.settle()
    for message in client.messages():
        client.nack(message, requeue="false")
    world.settle()
    assert figures(world) == {"dead_lettering": 2, "total": 2}
    drain = world.connect()
    drain.subscribe("/queue/dead", ack="auto", prefetch_count=0)
    world.settle()
    world.tick(120)
    world.tick(120)
    assert figures(world) == {}
    assert sorted(drain.bodies()) == ["1", "2", "3"]


def test_dead_letters_that_were_moved_are_no_longer_counted() -> None:
    world = World(
        "destinations: [{match: /queue/a, message_ttl: 1s, dead_letter: /queue/dead, dead_letter_expired: true}]"
    )
    world.connect().publish("/queue/a", "1", "2")
    world.settle()
    world.tick(2)
    world.settle()
    assert figures(world) == {}
    queue = world.broker.destinations["/queue/a"].queue
    assert queue is not None and [source.burying for source in queue.sources] == [0]


def test_a_fan_out_source_lists_its_bound_queues_instead_of_counts() -> None:
    world = World("destinations: [{match: /queue/f, fan_out: [/queue/f.a, /queue/f.b]}]")
    client = world.connect()
    client.publish("/queue/f", "1", "2")
    question = json.dumps({"do": "destinations.ls", "match": "/queue/>"})
    client.say("SEND", question, destination="/radiator/admin", reply_to="/temp-queue/answers")
    world.settle()
    (answer,) = client.messages()
    parent, *children = json.loads(answer.body)["destinations"]
    assert parent["fan_out"] == ["/queue/f.a", "/queue/f.b"] and "ready" not in parent
    assert [(each["name"], each["ready"], each["total"]) for each in children] == [
        ("/queue/f.a", 2, 2), ("/queue/f.b", 2, 2)
    ]  # fmt: skip
    assert not any("fan_out" in each for each in children)
