"""Producers that are too fast, and memory that is full: who waits, and who does not."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest.mock import patch

import pytest

from radiator.broker.admin.readiness import figures, held_back, reasons
from radiator.limits import ANSWERS_BYTES_MAX, MIB
from tests.broker.harness import Client, World

FAST = "destinations: [{match: '/queue/fast.*', rate_limit: {messages: 10/s, burst: 5}}]"
REJECT = "destinations: [{match: '/queue/fast.*', rate_limit: {messages: 10, burst: 5, action: reject}}]"
MEMORY = """
limits: {memory: 1MiB}
destinations: [{match: '/queue/m.*,/topic/m.*', store: memory, block_timeout: 60s}]
"""
BODY = "x" * 100_000


def sent(world: World) -> int:
    return world.broker.stats.messages_in


# --- rate_limit -------------------------------------------------------------------------------------------------------


def test_a_burst_goes_through_and_then_so_many_a_second() -> None:
    world = World(FAST)
    sender = world.connect()
    sender.publish("/queue/fast.a", *map(str, range(40)))
    world.settle()
    assert sent(world) == 5
    for _ in range(20):
        world.tick(0.1)
    assert 24 <= sent(world) <= 25
    for _ in range(20):
        world.tick(0.1)
    assert sent(world) == 40 and not sender.rest
    assert world.broker.stats.rate_limited > 0


def test_the_time_is_known_and_the_order_stays() -> None:
    world = World(FAST)
    sender, client = world.connect(), world.connect()
    client.subscribe("/queue/fast.a", ack="auto")
    sender.publish("/queue/fast.a", *map(str, range(12)))
    world.settle()
    while sender.rest:
        due_ns = world.broker.next_deadline_ns(world.time)
        assert 0 < due_ns - world.time.mono <= 200_000_000
        world.until(due_ns)
        world.broker.tick(world.time)
        world.settle()
    assert client.bodies() == list(map(str, range(12)))


def test_each_client_has_its_own_and_the_rule_s_destinations_share_it() -> None:
    world = World(FAST)
    one, other = world.connect(), world.connect()
    one.publish("/queue/fast.a", "1", "2", "3")
    one.publish("/queue/fast.b", "1", "2", "3")
    other.publish("/queue/fast.a", "1", "2", "3")
    world.settle()
    assert len(one.rest) == 1 and not other.rest
    one.publish("/queue/slow", "behind it")
    other.publish("/queue/slow", "free")
    assert len(one.rest) == 2 and not other.rest


def test_a_refusal_names_the_key() -> None:
    world = World(REJECT)
    sender = world.connect()
    sender.publish("/queue/fast.a", *"123456")
    world.settle()
    (error,) = sender.take("ERROR")
    assert error.headers["error-code"] == "rate-limited"
    assert b"rate_limit on line 1" in error.body


def test_a_commit_takes_tokens_for_all_of_it_and_may_run_into_debt() -> None:
    world = World(FAST)
    sender = world.connect()
    for name in ("t", "u"):
        sender.say("BEGIN", transaction=name)
        sender.publish("/queue/fast.a", *"12345678", transaction=name)
        sender.say("COMMIT", receipt=name, transaction=name)
    world.settle()
    assert sender.receipts() == ["t"] and sent(world) == 8
    world.tick(0.7)
    assert sender.receipts() == []
    world.tick(0.2)
    assert sender.receipts() == ["u"] and sent(world) == 16


# --- limits.memory ----------------------------------------------------------------------------------------------------


def full(**options: int) -> tuple[World, Client, Client]:
    """A broker whose memory is taken by a queue of which a consumer holds the first message, and who has sent it."""
    world = World(MEMORY)
    sender, consumer = world.connect(), world.connect()
    consumer.subscribe("/queue/m.a", ack="client-individual")
    for _ in range(20):
        sender.publish("/queue/m.a", BODY)
        world.settle()
    assert sender.rest
    return world, sender, consumer


def test_a_send_to_full_memory_waits_and_nothing_grows() -> None:
    world, sender, _ = full()
    assert sent(world) <= 12
    another = world.connect()
    another.publish("/queue/m.b", "small")
    another.publish("/topic/m.t", "small")
    world.settle()
    assert len(another.rest) == 2
    assert world.broker.stats.memory_pauses == 1
    told = figures(world.broker)["now"]
    assert told["held_back"] == 2 and told["memory_full"] is True
    assert not sender.session.closing


def test_what_goes_to_files_goes_on_and_so_do_consumers() -> None:
    world, sender, consumer = full()
    other = world.connect()
    other.publish("/queue/file", "1", receipt="r")
    world.settle()
    assert other.receipts() == ["r"]
    taken = 0
    while taken < 20:
        world.settle()
        for message in consumer.messages():
            consumer.ack(message)
            taken += 1
    world.tick()
    assert not sender.rest and sent(world) == 21
    assert figures(world.broker)["now"]["memory_full"] is False


def test_full_memory_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world, _, consumer = full()
    for _ in range(5):
        world.tick()
    told = [record.message for record in caplog.records if record.message.startswith("memory:")]
    assert len(told) == 1 and "limits.memory" in told[0]
    for _ in range(30):
        world.settle()
        for message in consumer.messages():
            consumer.ack(message)
    world.tick()
    world.tick(11)
    told = [record.message for record in caplog.records if record.message.startswith("memory:")]
    assert len(told) == 2


def test_after_block_timeout_it_is_refused() -> None:
    world, sender, _ = full()
    world.tick(61)
    assert sender.error() == "full"


def test_a_commit_waits_for_memory_as_a_whole() -> None:
    world, _, consumer = full()
    other = world.connect()
    other.say("BEGIN", transaction="t")
    other.publish("/queue/file", "1", transaction="t")
    other.publish("/queue/m.b", "2", transaction="t")
    other.say("COMMIT", receipt="c", transaction="t")
    world.settle()
    assert other.receipts() == []
    for _ in range(25):
        world.settle()
        for message in consumer.messages():
            consumer.ack(message)
    assert other.receipts() == ["c"]


@pytest.mark.parametrize("on_full", ["reject", "block"])
def test_a_memory_partition_that_is_full_alone_refuses_unless_the_rule_says_block(on_full: str) -> None:
    limit = "max_messages: 1000, " if on_full == "reject" else ""
    world = World(
        f"destinations: [{{match: '/queue/m', store: memory, {limit}on_full: {on_full}, retention: {{size: 200KiB}}}}]"
    )
    sender, consumer = world.connect(), world.connect()
    consumer.subscribe("/queue/m", ack="client-individual")
    for _ in range(5):
        sender.publish("/queue/m", BODY)
        world.settle()
        if sender.session.closing:
            break
    if on_full == "reject":
        assert sender.error() == "storage"
    else:
        assert sender.rest and world.broker.stats.memory_pauses == 0


def test_replies_are_dropped_as_usual_and_do_not_wait_for_a_requester_that_does_not_read() -> None:
    world, _, _ = full()
    requester = world.connect()
    requester.subscribe("/temp-queue/r", ack="auto")
    requester.publish("/temp-queue/r", "x")
    world.settle()
    assert not requester.rest
    assert world.broker.stats.dropped_replies == 1


def asked(client: Client, times: int = 1) -> list[str]:
    """What the admin channel answers to one who asks so often for the list of destinations."""
    for _ in range(times):
        client.say("SEND", '{"do": "destinations.ls"}', destination="/radiator/admin", reply_to="/temp-queue/a")
        client.world.commit()
        client.world.pump()
    return client.bodies()


def test_the_log_names_the_queue_that_fills_the_memory() -> None:
    world, _, _ = full()
    (answer,) = asked(world.connect())
    (found,) = [each for each in json.loads(answer)["destinations"] if each["name"] == "/queue/m.a"]
    assert found["bytes"] > MIB * 3 // 4 and found["total"] == sent(world)


def test_answers_that_a_client_does_not_read_end_soon_while_memory_is_full() -> None:
    world, _, _ = full()
    world.broker.session_limits = replace(world.broker.session_limits, outbox=1)
    operator, before = world.connect(), world.store.facts()["memory_bytes"]
    pages = 3 * ANSWERS_BYTES_MAX // 400
    with patch.object(operator, "flush", lambda most=None: 0):
        asked(operator, pages)
    assert world.broker.stats.dropped_replies > 0
    assert world.store.facts()["memory_bytes"] - before < 3 * ANSWERS_BYTES_MAX
    heard = len(operator.messages())
    world.settle()
    assert heard + len(operator.messages()) == pages - world.broker.stats.dropped_replies
    assert len(asked(operator)) == 1


def test_readiness_reports_that_senders_are_held_back() -> None:
    world = World(MEMORY)
    assert held_back(world.broker) == []
    world, _, _ = full()
    (told,) = held_back(world.broker)
    assert "limits.memory (1048576 bytes)" in told
    assert reasons(world.broker) == []
