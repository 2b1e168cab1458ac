"""Dead letters: what they carry, that none is lost or doubled, and what happens where they cannot go."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.broker.outcomes.dead_letters import RUN_MAX
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from tests.broker.harness import NOW, Client, World

RULE = "{match: '/queue/a,/queue/b', redeliver: {max: 2, delay: 0ms}, dead_letter: /queue/dead}"
CONFIG = f"destinations: [{RULE}]"
BODY = bytes(range(256)) * 3


def consumer(world: World, name: str = "/queue/a", id: str = "0") -> Client:
    client = world.connect()
    client.subscribe(name, id=id, prefetch_count=100)
    world.settle()
    return client


def refuse(world: World, client: Client, **headers: Any) -> None:
    for message in client.messages():
        client.nack(message, **headers)
    world.settle()


def unsettled(world: World, name: str = "/queue/a") -> int:
    queue = world.broker.destination(name).queue
    assert queue is not None
    return sum(len(list(each.cursor.unacked(each.feed.partition.high_watermark))) for each in queue.sources)


def dead(world: World, name: str = "/queue/dead") -> list[Any]:
    """What lies there; it stays."""
    client = consumer(world, name)
    messages = client.messages()
    client.drop()
    world.settle()
    return messages


def test_a_dead_letter_is_the_message_and_what_happened_to_it() -> None:
    world = World(CONFIG)
    client = consumer(world)
    client.say("SEND", BODY, destination="/queue/a", colour="a:b", event_time="123", tag_x="1")
    world.settle()
    (original,) = client.messages()
    received, _ = original.headers["receive-time"], world.tick(5)
    client.nack(original)
    world.settle()
    refuse(world, client)
    (letter,) = dead(world)
    assert letter.body == BODY
    own = {"colour", "event-time", "tag-x"}
    assert {name: letter.headers[name] for name in own} == {name: original.headers[name] for name in own}
    assert letter.headers["dlq-reason"] == "max-deliveries"
    assert letter.headers["dlq-destination"] == "/queue/a"
    assert letter.headers["dlq-deliveries"] == "2"
    assert letter.headers["dlq-time"] == str(world.now)
    assert letter.headers["dlq-received"] == received != letter.headers["receive-time"] == str(world.now)
    assert letter.headers["destination"] == "/queue/dead"
    assert "redelivered" not in letter.headers
    assert world.broker.stats.dead_lettered == 1
    assert unsettled(world) == 0


def test_rejected_and_expired_have_their_reasons() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: '/queue/dead.{name}', dead_letter_expired: true}]")
    client = consumer(world)
    client.publish("/queue/a", "r")
    world.settle()
    refuse(world, client, requeue="false")
    client.drop()
    sender = world.connect()
    sender.publish("/queue/a", "e", expires=NOW // NS_PER_MS + 1_000)
    world.tick(1)
    consumer(world)
    found = [
        (each.body, each.headers["dlq-reason"], each.headers["dlq-deliveries"])
        for each in dead(world, "/queue/dead./queue/a")
    ]
    assert found == [(b"r", "rejected", "1"), (b"e", "expired", "0")]
    world.tick(3600)
    assert len(dead(world, "/queue/dead./queue/a")) == 2


def test_a_template_may_use_what_the_wildcards_stood_for() -> None:
    world = World("destinations: [{match: '/queue/*.*', dead_letter: '/queue/dead.{2}'}]")
    client = consumer(world, "/queue/x.y")
    client.publish("/queue/x.y", "1")
    world.settle()
    refuse(world, client, requeue="false")
    assert [each.body for each in dead(world, "/queue/dead.y")] == [b"1"]


@pytest.mark.parametrize(("here", "there"), [("memory", "file"), ("file", "memory"), ("memory", "memory")])
def test_dead_letters_from_and_to_memory(here: str, there: str) -> None:
    world = World(
        f"destinations: [{{match: /queue/a, store: {here}, dead_letter: /queue/dead}}, "
        f"{{match: /queue/dead, store: {there}}}]"
    )
    client = consumer(world)
    client.publish("/queue/a", "1", "2")
    world.settle()
    refuse(world, client, requeue="false")
    assert [each.body for each in dead(world)] == [b"1", b"2"]
    assert unsettled(world) == 0


def test_both_in_one_log() -> None:
    world = World(f"destinations: [{RULE[:-1]}, partition: one}}, {{match: /queue/dead, partition: one}}]")
    client = consumer(world)
    client.publish("/queue/a", "1", "2")
    client.publish("/queue/b", "3")
    world.settle()
    refuse(world, client, requeue="false")
    assert [each.body for each in dead(world)] == [b"1", b"2"]
    assert [each.body for each in consumer(world, "/queue/b").messages()] == [b"3"]


@pytest.mark.parametrize("end", ["kill", "power_cut"])
@pytest.mark.parametrize("steps", range(5))
def test_a_crash_at_any_step_neither_loses_nor_doubles_it(steps: int, end: str) -> None:
    world = World(CONFIG)
    client = consumer(world)
    client.publish("/queue/a", "1", "2", receipt="r")
    world.settle()
    for message in client.messages():
        client.nack(message, requeue="false")
    for step in (world.take, world.write, world.sync, world.completed)[:steps]:
        step()
    getattr(world, end)()
    left = sorted(each.body for each in consumer(world).messages())
    buried = sorted(each.body for each in dead(world))
    assert sorted([*left, *buried]) == [b"1", b"2"]
    assert not (left and buried), "what was refused together in one turn is decided together"
    if steps >= 3:
        assert buried


def test_a_message_that_is_not_in_memory_is_read_for_it() -> None:
    world = World(CONFIG, tail_bytes_max=1)
    client = consumer(world)
    for number in range(20):
        client.publish("/queue/a", f"{number}:" + 2_000 * "x")
        world.settle()
    refuse(world, client, requeue="false")
    assert len(dead(world)) == 20
    world.restart()
    assert len(dead(world)) == 20


# --- where they cannot go ---------------------------------------------------------------------------------------------


def test_a_full_dead_letter_queue_loses_nothing_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World(f"destinations: [{RULE}, {{match: /queue/dead, max_messages: 1}}]")
    client = consumer(world)
    client.publish("/queue/a", "1", "2", "3")
    world.settle()
    refuse(world, client, requeue="false")
    assert len(dead(world)) == 1
    assert caplog.text.count("stay in their queue") == 1 and "/queue/dead is full" in caplog.text
    assert client.messages() == [] and unsettled(world) == 2
    for _ in range(2):
        other = consumer(world, "/queue/dead")
        for message in other.messages():
            other.ack(message)
        other.drop()
        world.tick(10)
        world.tick(0)
    assert len(dead(world)) == 1
    assert unsettled(world) == 0
    assert world.broker.timing.deferred == 0
    world.restart()
    assert len(dead(world)) == 1


def test_a_dead_letter_queue_that_may_not_be_created(caplog: pytest.LogCaptureFixture) -> None:
    world = World(f"destinations: [{RULE}, {{match: /queue/dead, create: deny}}]")
    client = consumer(world)
    client.publish("/queue/a", "1")
    world.settle()
    refuse(world, client, requeue="false")
    assert "may not be created" in caplog.text
    assert unsettled(world) == 1
    world.restart()
    assert consumer(world).messages() == []
    assert unsettled(world) == 1


def test_a_disk_that_fails_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World(CONFIG)
    client = consumer(world)
    client.publish("/queue/a", "1", "2")
    world.settle()
    world.fs.fail("pwritev")
    refuse(world, client, requeue="false")
    world.tick(0)
    assert world.broker.stats.dead_lettered == 0
    assert client.messages() == []
    for _ in range(10):
        world.tick(10)
    assert sorted(each.body for each in dead(world)) == [b"1", b"2"]
    assert world.broker.stats.dead_lettered == 2


def test_a_dead_letter_queue_of_a_general_rule_has_no_dead_letters_itself() -> None:
    world = World("destinations: [{match: /queue/>, redeliver: {max: 1}, dead_letter: '/queue/dead.{name}'}]")
    client = consumer(world)
    client.publish("/queue/a", "1")
    world.settle()
    refuse(world, client)
    grave = consumer(world, "/queue/dead./queue/a")
    for _ in range(8):
        for message in grave.messages():
            grave.nack(message)
        world.tick(5)
    assert len(grave.messages()) == 1
    assert world.broker.stats.dropped_max_deliveries == 0


def test_a_dead_letter_that_dies_again_has_the_headers_of_the_last_time_only() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /queue/b}, {match: /queue/b, dead_letter: /queue/c}]")
    client = consumer(world)
    client.publish("/queue/a", "1", colour="red")
    world.settle()
    refuse(world, client, requeue="false")
    refuse(world, consumer(world, "/queue/b"), requeue="false")
    (letter,) = dead(world, "/queue/c")
    assert letter.headers["dlq-destination"] == "/queue/b" and letter.headers["colour"] == "red"
    assert client.raw.count(b"dlq-") == 0


def test_a_clock_that_is_set_back_wakes_nothing_twice() -> None:
    world = World(f"destinations: [{RULE}, {{match: /queue/dead, max_messages: 1}}]")
    client = consumer(world)
    client.publish("/queue/a", "1", "2", "3")
    world.settle()
    refuse(world, client, requeue="false")
    for _ in range(5):
        world.now -= 3600 * NS_PER_SECOND
        world.tick(0)
        world.tick(100)
    assert world.broker.timing.deferred == 2
    assert unsettled(world) == 2


def test_a_named_subscription_buries_by_the_rule_of_its_topic() -> None:
    world = World(
        "destinations: [{match: /topic/t, redeliver: {max: 2, delay: 0ms}, dead_letter: '/queue/dead.{name}'}]"
    )
    client = world.connect()
    client.subscribe("/topic/t", durable="true", subscription_name="s", prefetch_count=5)
    client.publish("/topic/t", "bad", "good")
    world.settle()
    for _ in range(2):
        for message in client.messages():
            if message.body == b"bad":
                client.nack(message)
            else:
                client.ack(message)
        world.settle()
    (letter,) = dead(world, "/queue/dead./topic/t")
    assert letter.body == b"bad" and letter.headers["dlq-destination"] == "/topic/t"
    client.drop()
    world.restart()
    again = world.connect()
    again.subscribe("/topic/t", durable="true", subscription_name="s", prefetch_count=5)
    world.settle()
    assert again.messages() == []
    assert len(dead(world, "/queue/dead./topic/t")) == 1


# --- many at once -----------------------------------------------------------------------------------------------------


def many_dead(world: World, number: int) -> None:
    """Messages of which the last delivery ended with a crash: their letters are cold."""
    client = world.connect()
    client.publish("/queue/a", *[str(each) for each in range(number)])
    world.settle()
    client.subscribe("/queue/a", prefetch_count=number)
    world.settle()
    assert len(client.messages()) == number
    world.kill()


ONCE = "destinations: [{match: /queue/a, redeliver: {max: 1}, dead_letter: /queue/dead}]"


def test_messages_that_lie_together_are_read_together() -> None:
    world = World(ONCE)
    many_dead(world, 300)
    reads = 0
    while world.broker.dead_letters.waiting:
        world.commit()
        for read in world.broker.take_reads():
            read.run()
            world.broker.read_done(read)
            reads += 1
    world.settle()
    assert world.broker.stats.dead_lettered == 300
    assert reads < 5


def test_one_turn_moves_a_bounded_number_and_the_next_goes_on() -> None:
    world = World(ONCE)
    client = world.connect()
    client.publish("/queue/a", *[str(each) for each in range(2 * RUN_MAX + 1)])
    client.subscribe("/queue/a", prefetch_count=3 * RUN_MAX)
    world.settle()
    for message in client.messages():
        client.nack(message, requeue="false", receipt=message.body.decode())
    world.commit()
    client.flush()
    assert world.broker.stats.dead_lettered == RUN_MAX
    assert len(client.receipts()) == 0  # they went in one piece, and are answered in one
    world.settle()
    assert world.broker.stats.dead_lettered == 2 * RUN_MAX + 1
    assert len(client.receipts()) == 2 * RUN_MAX + 1
    assert len({each.body for each in dead(world)}) == 100  # its window
    assert not world.broker.dead_letters.waiting


def test_a_receipt_waits_for_its_own_dead_letters_and_not_for_later_ones() -> None:
    world = World(ONCE)
    client = world.connect()
    client.publish("/queue/a", *[str(each) for each in range(RUN_MAX + 2)])
    client.subscribe("/queue/a", prefetch_count=3 * RUN_MAX)
    world.settle()
    first, *others = client.messages()
    client.nack(first, requeue="false", receipt="first")
    world.take()
    for message in others:
        client.nack(message, requeue="false")
    world.write()
    world.sync()
    world.completed()
    assert client.receipts() == ["first"]
    world.settle()
    assert world.broker.stats.dead_lettered == RUN_MAX + 2
