"""Messages that are delivered later: delay, deliver-at; the time in the core."""

from __future__ import annotations

from typing import Any

import pytest

from radiator import limits
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.timers import NEVER_NS
from tests.broker.harness import NOW, World

NOW_MS = NOW // NS_PER_MS


@pytest.mark.parametrize(
    "headers",
    [
        {"delay": "5000"},
        {"delay": "5s"},
        {"delay_ms": "5000"},
        {"AMQ_SCHEDULED_DELAY": "5000"},
        {"deliver_at": str(NOW_MS + 5_000)},
        {"deliver_at": "2023-11-14T22:13:25Z"},
    ],
)
def test_a_message_with_a_delay_comes_when_it_is_due_and_not_before(headers: dict[str, str]) -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    if "AMQ_SCHEDULED_DELAY" in headers:
        client.say_bytes(b"SEND\ndestination:/queue/a\nAMQ_SCHEDULED_DELAY:5000\n\nlater\0")
    else:
        client.publish("/queue/a", "later", **headers)
    client.publish("/queue/a", "now")
    world.settle()
    (first,) = client.messages()
    assert first.body == b"now"
    client.ack(first)
    world.settle()
    assert world.wall_at(world.broker.timing.next_ns) == NOW + 5 * NS_PER_SECOND
    world.now = NOW + 5 * NS_PER_SECOND - 1
    world.tick(0)
    assert client.bodies() == []
    world.now += 1
    world.tick(0)
    (message,) = client.messages()
    assert message.body == b"later"
    assert message.headers["deliver-at"] == str(NOW_MS + 5_000)
    assert "redelivered" not in message.headers and "delay" not in message.headers


def test_later_ones_come_in_the_order_of_their_times_and_else_in_that_of_the_queue() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    for body, delay in (("c", 3), ("b1", 2), ("a", 1), ("b2", 2)):
        client.publish("/queue/a", body, delay=f"{delay}s")
    seen = []
    for _ in range(3):
        world.tick(1)
        seen += client.bodies()
    assert seen == ["a", "b1", "b2", "c"]


def test_a_restart_forgets_no_delay_and_marks_no_undelivered_message() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    client.publish("/queue/a", "later", delay="1h")
    client.publish("/queue/a", "now")
    world.settle()
    assert client.bodies() == ["now"]
    for end in (world.restart, world.kill):
        end()
        client = world.connect()
        client.subscribe("/queue/a", prefetch_count=10)
        world.settle()
        (message,) = client.messages()
        assert message.body == b"now" and message.headers["redelivered"] == "true"
    world.tick(3600)
    (message,) = client.messages()
    assert message.body == b"later"
    assert "redelivered" not in message.headers
    world.kill()
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    counts = {message.body: message.headers["delivery-count"] for message in client.messages()}
    assert counts == {b"now": "4", b"later": "2"}


def test_a_delay_counts_from_the_commit_of_its_transaction() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.say("BEGIN", transaction="t")
    client.publish("/queue/a", "x", delay="1s", transaction="t")
    world.tick(10)
    client.say("COMMIT", transaction="t")
    world.settle()
    assert client.bodies() == []
    world.tick(1)
    assert client.bodies() == ["x"]


def test_a_clock_that_is_set_back_brings_nothing_too_early() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x", delay="60s")
    world.settle()
    world.now -= 3600 * NS_PER_SECOND
    world.tick(0)
    assert client.bodies() == []
    world.tick(3600)
    assert client.bodies() == []
    world.tick(60)
    (message,) = client.messages()
    assert message.body == b"x" and "redelivered" not in message.headers


@pytest.mark.parametrize(
    "header", ["delay:soon", "delay:-1", "delay:9999999999999999", "delay-ms:x", "AMQ_SCHEDULED_DELAY:", "delay:40000d"]
)
def test_a_delay_that_is_none_is_refused_by_name(header: str) -> None:
    world = World()
    client = world.connect()
    client.say_bytes(f"SEND\ndestination:/queue/a\n{header}\n\nx\0".encode())
    world.settle()
    (frame,) = client.take("ERROR")
    assert frame.headers["error-code"] == "bad-header"
    assert f"header {header.partition(':')[0]}:" in frame.headers["message"]


@pytest.mark.parametrize(
    "header", ["deliver-at:tomorrow", "deliver-at:1732082400000000000", "expires:soon", "expires:-1"]
)
def test_a_time_that_is_none_is_refused_by_name(header: str) -> None:
    world = World()
    client = world.connect()
    client.say_bytes(f"SEND\ndestination:/queue/a\n{header}\n\nx\0".encode())
    world.settle()
    (frame,) = client.take("ERROR")
    assert frame.headers["error-code"] == "bad-time"
    assert f"header {header.partition(':')[0]}:" in frame.headers["message"]


@pytest.mark.parametrize("header", ["delay:0", "delay-ms:0", "AMQ_SCHEDULED_DELAY:0", "delay:0s"])
@pytest.mark.parametrize("transaction", ["", "transaction:t\n"])
def test_no_delay_is_no_fault_on_a_topic(header: str, transaction: str) -> None:
    world = World()
    client = world.connect()
    client.subscribe("/topic/a", ack="auto")
    client.say("BEGIN", transaction="t")
    for _ in range(2):
        client.say_bytes(f"SEND\ndestination:/topic/a\nkind:k\n{header}\n{transaction}\nx\0".encode())
    client.say("COMMIT", transaction="t")
    world.settle()
    messages = client.messages()
    assert [each.body for each in messages] == [b"x", b"x"]
    assert messages[0].headers["kind"] == "k"
    assert not {header.partition(":")[0], "deliver-at"} & messages[0].headers.keys()


def test_a_topic_knows_no_delay() -> None:
    world = World()
    client = world.connect()
    client.publish("/topic/a", "x", delay="1s")
    world.settle()
    assert client.error() == "unsupported"


def test_what_is_not_due_is_bounded_and_messages_without_a_delay_go_on(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "DEFERRED_MAX", 3)
    monkeypatch.setattr(limits, "DEFERRED_OWN", 1)
    world = World()
    client, other = world.connect(), world.connect()
    other.publish("/queue/a", "1", "2", "3", "4", "5", delay="10s")  # nobody is there yet who would look at them
    other.publish("/queue/a", "now")
    world.settle()
    client.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    assert world.broker.timing.deferred == 3
    other.publish("/queue/b", "x", delay="1s")
    world.settle()
    assert other.error() == "full"
    world.tick(10)
    assert sorted(client.bodies()) == ["1", "2", "3", "4", "5", "now"]
    assert world.broker.timing.deferred == 0


def test_one_long_delay_and_many_short_ones_leave_nothing_behind(monkeypatch: Any) -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", ack="auto")
    client.publish("/queue/a", "far", delay="30d")
    for _ in range(100):
        client.publish("/queue/a", "near", delay="1ms")
        world.settle()
        world.tick(0.002)
    assert client.bodies() == ["near"] * 100
    assert len(world.broker.timing._wall._heap) <= 70
    world.tick(30 * 86_400)
    assert client.bodies() == ["far"]


def test_a_clock_that_goes_back_a_little_ends_no_pause() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x")
    world.settle()
    client.nack(client.messages()[0], delay="1h")
    client.publish("/queue/a", "late", delay="30m")
    world.settle()
    world.now -= NS_PER_MS
    world.tick(0)
    world.settle()
    assert client.messages() == []
    world.tick(1_800)
    assert client.messages() == [], "the moment of the wall clock has not come yet"
    world.tick(0.001)
    (late,) = client.messages()
    client.ack(late)
    world.tick(1_799.998)
    assert client.messages() == []
    world.tick(0.001)
    assert client.bodies() == ["x"], "the pause was an hour"


def test_nacks_with_long_delays_take_no_room_of_other_clients(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "DEFERRED_MAX", 40)
    monkeypatch.setattr(limits, "DEFERRED_OWN", 2)
    world = World()
    client, other = world.connect(), world.connect()
    other.publish("/queue/a", *["x"] * 100)
    client.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    for _ in range(20):
        for message in client.messages():
            client.nack(message, delay="10d")
        world.settle()
    waiting, stats = world.broker.timing, world.broker.stats
    assert waiting.deferred == 20
    assert stats.delays_not_kept == stats.nacks - 20 > 0
    other.publish("/queue/b", "late", delay="5s")
    world.settle()
    assert waiting.deferred == 20, "nobody is there to look at it"
    world.broker.timing.count(deferred=20)  # by others
    other.subscribe("/queue/b", prefetch_count=10)
    other.publish("/queue/b", "plain")
    world.settle()
    assert other.bodies() == ["plain"]
    world.tick(5)
    assert other.bodies() == ["late"]


def test_a_queue_in_a_shared_log_defers_its_own_messages_only() -> None:
    world = World("destinations: [{match: '/queue/*', partition: all}]")
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    client.publish("/queue/b", "b", delay="1s")
    client.publish("/queue/a", "a1", delay="2s")
    client.publish("/queue/a", "a2")
    world.settle()
    assert client.bodies() == ["a2"]
    world.tick(2)
    assert client.bodies() == ["a1"]
    client.subscribe("/queue/b", id="1", prefetch_count=10)
    world.settle()
    assert client.bodies() == ["b"]


def test_without_deadlines_nothing_is_planned() -> None:
    world = World("defaults: {store: memory}")
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x")
    world.settle()
    assert world.broker.next_deadline_ns(world.time) == NEVER_NS


def test_what_a_queue_that_is_gone_had_put_off_is_forgotten() -> None:
    world = World()
    for _ in range(300):
        client = world.connect()
        client.subscribe("/temp-queue/x", ack="client-individual")
        client.publish("/temp-queue/x", "later", delay="36500d", expires=NOW_MS + 10**14)
        world.settle()
        assert world.broker.timing.deferred == 1
        client.drop()
        world.clients.remove(client)
        assert world.broker.timing.deferred == 0
    assert len(world.broker.timing._wall._heap) < 100
