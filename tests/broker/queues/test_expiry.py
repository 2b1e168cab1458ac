"""Messages whose time is over: expires, message_ttl."""

from __future__ import annotations

from typing import Any

import pytest

from radiator import limits
from radiator.broker.logs import delivery_times
from radiator.clock import NS_PER_MS
from radiator.timers import NEVER_NS
from tests.broker.harness import NOW, World

NOW_MS = NOW // NS_PER_MS
TTL = "destinations: [{match: /queue/ttl, message_ttl: 10s}]"


def test_an_expired_message_is_never_delivered_and_is_counted() -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "never")
    client.publish("/queue/a", "old", expires=NOW_MS + 1_000)
    client.publish("/queue/a", "zero", expires=0)
    client.publish("/queue/a", "new", expires=NOW_MS + 100_000)
    world.tick(1)
    client.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    assert client.bodies() == ["never", "zero", "new"]
    assert world.broker.stats.expired == 1


def test_a_message_that_comes_back_may_have_expired_meanwhile() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x", expires=NOW_MS + 1_000)
    world.settle()
    (message,) = client.messages()
    world.tick(1)
    client.nack(message)
    world.settle()
    assert client.bodies() == []
    assert world.broker.stats.expired == 1
    world.restart()
    client = world.connect()
    client.subscribe("/queue/a")
    world.settle()
    assert client.bodies() == []
    assert world.broker.stats.expired == 0


def test_message_ttl_counts_from_the_receipt() -> None:
    world = World(TTL)
    client = world.connect()
    client.publish("/queue/ttl", "old")
    world.tick(9)
    client.publish("/queue/ttl", "new", expires=0)
    world.tick(1)
    client.subscribe("/queue/ttl", prefetch_count=10)
    world.settle()
    assert client.bodies() == ["new"]
    assert world.broker.stats.expired == 1


def test_a_message_that_expires_before_it_is_due_is_never_delivered() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x", expires=NOW_MS + 1_000, delay="5s")
    world.tick(1)
    assert world.broker.stats.expired == 1
    world.tick(10)
    assert client.bodies() == []


def unsettled(world: World, name: str) -> int:
    queue = world.broker.destination(name).queue
    assert queue is not None
    return sum(len(list(each.cursor.unacked(each.feed.partition.high_watermark))) for each in queue.sources)


def test_expired_messages_are_removed_without_consumers_or_senders() -> None:
    world = World(TTL)
    client = world.connect()
    client.publish("/queue/ttl", "1", "2")
    client.publish("/queue/b", "3", expires=NOW_MS + 5_000)
    client.publish("/queue/b", "4", expires=NOW_MS + 8_000)
    client.publish("/queue/b", "5", expires=0)
    world.settle()
    assert world.wall_at(world.broker.timing.next_ns) == NOW + 5_000 * NS_PER_MS
    world.tick(5)
    assert unsettled(world, "/queue/b") == 2
    world.tick(5)
    assert unsettled(world, "/queue/b") == 1
    assert unsettled(world, "/queue/ttl") == 0
    assert world.broker.stats.expired == 4


def test_what_a_consumer_that_holds_enough_is_not_sent_expires_too() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "held")
    client.publish("/queue/a", "old", expires=NOW_MS + 1_000)
    world.settle()
    world.tick(1)
    assert unsettled(world, "/queue/a") == 1
    assert client.bodies() == ["held"]


def test_what_was_given_back_expires_too() -> None:
    world = World(TTL)
    client = world.connect()
    client.subscribe("/queue/ttl", prefetch_count=5)
    client.publish("/queue/ttl", "1", "2")
    world.settle()
    client.drop()
    world.tick(10)
    assert unsettled(world, "/queue/ttl") == 0


def test_after_a_restart_the_heads_are_looked_at_in_their_time() -> None:
    world = World(TTL, tail_bytes_max=1)
    client = world.connect()
    client.publish("/queue/ttl", "1")
    client.publish("/queue/b", "2", expires=NOW_MS + 5_000)
    client.publish("/queue/b", "3")
    world.settle()
    world.restart()
    world.tick(0)
    for _ in range(700):
        world.tick(1)
    assert unsettled(world, "/queue/ttl") == 0
    assert unsettled(world, "/queue/b") == 1


def test_queues_that_share_a_log_expire_their_own() -> None:
    world = World("destinations: [{match: '/queue/*', partition: all}]")
    client = world.connect()
    client.publish("/queue/a", "1", expires=NOW_MS + 1_000)
    client.publish("/queue/b", "2", expires=NOW_MS + 1_000)
    client.publish("/queue/a", "3")
    world.settle()
    world.tick(1)
    assert world.broker.stats.expired == 2
    client.subscribe("/queue/*", prefetch_count=9)
    world.settle()
    assert client.bodies() == ["3"]


def test_a_queue_whose_messages_never_expire_plans_nothing() -> None:
    world = World("defaults: {store: memory}")
    client = world.connect()
    client.publish("/queue/a", "1")
    world.settle()
    assert world.broker.next_deadline_ns(world.time) == NEVER_NS


def test_a_skipped_message_expires_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SKIPPED_RUNS_MAX", 1)
    world = World(TTL)
    client = world.connect()
    client.subscribe("/queue/ttl", selector="kind = 'b'")
    client.publish("/queue/ttl", *[str(number) for number in range(10)], kind="a")
    client.publish("/queue/ttl", "wanted", kind="b")
    world.settle()
    assert client.bodies() == []  # no more is skipped than that
    client.publish("/queue/ttl", "late", kind="b")
    world.tick(5)
    client.publish("/queue/ttl", "later", kind="b")
    world.tick(6)
    assert client.bodies() == ["later"]
    assert world.broker.stats.expired == 12


def test_what_was_passed_over_goes_by_its_own_time_and_leaves_its_neighbours() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", selector="kind = 'b'")
    client.publish("/queue/a", "stays", kind="a")
    client.publish("/queue/a", "first", kind="a", expires=NOW_MS + 1_000)
    client.publish("/queue/a", "second", kind="a", expires=NOW_MS + 8_000)
    world.settle()
    world.tick(1)
    assert unsettled(world, "/queue/a") == 2
    world.tick(8)
    assert unsettled(world, "/queue/a") == 1
    client.subscribe("/queue/a", id="all")
    world.settle()
    assert client.bodies() == ["stays"]
    assert world.broker.stats.expired == 2


@pytest.mark.parametrize("kinds", ["a", "b", "ab", "ba"])
def test_a_message_ttl_and_a_selector_go_together_to_the_last_record(kinds: str) -> None:
    world = World(TTL)
    client = world.connect()
    client.subscribe("/queue/ttl", selector="kind = 'b'", prefetch_count=10)
    for kind in kinds:
        client.publish("/queue/ttl", kind, kind=kind)
    world.settle()
    assert client.bodies() == ["b"] * kinds.count("b")
    client.publish("/queue/ttl", "more", kind="b")
    world.settle()
    assert client.bodies() == ["more"]


def test_a_batch_is_searched_once_for_its_first_expiry_whatever_the_number_of_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0
    expires = delivery_times._expires

    def counting(block: bytes) -> bytes | None:
        nonlocal looked
        looked += 1
        return expires(block)

    world = World()
    for number in range(20):
        client = world.connect()
        client.subscribe("/topic/t", subscription_name=f"n{number}")
        world.settle()
        client.drop()
    monkeypatch.setattr(delivery_times, "_expires", counting)
    sender = world.connect()
    for number in range(10):
        sender.publish("/topic/t", "x", expires=NOW_MS + 60_000 - number, n=number)
    world.take()
    world.write()
    world.sync()
    world.completed()
    assert world.wall_at(world.broker.timing.next_ns) == NOW + 59_991 * NS_PER_MS
    assert looked == 10


def test_a_batch_of_dead_letters_alone_plans_no_expiry() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /queue/dead}]")
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x", expires=NOW_MS + 60_000)
    world.settle()
    client.nack(*client.messages(), requeue="false")
    world.tick(100)
    assert unsettled(world, "/queue/dead") == 1
    assert world.broker.timing.next_ns >= NEVER_NS


def test_much_that_expires_at_once_is_judged_in_several_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radiator.broker.queues.queue.RUN", 100)
    world = World(TTL)
    client = world.connect()
    client.publish("/queue/ttl", *["x"] * 250)
    world.settle()
    world.tick(10)
    assert world.broker.stats.expired == 100
    world.tick(0.001)
    assert world.broker.stats.expired == 200
    world.tick(0.001)
    assert world.broker.stats.expired == 250
    assert world.broker.timing.next_ns > world.time.mono


def test_the_selector_of_a_name_looks_at_no_more_in_a_visit_than_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SELECTOR_RUN_CHARS", 100)
    world = World()
    client = world.connect()
    client.subscribe("/topic/t", subscription_name="n", selector="kind = 'b'")
    world.settle()
    client.drop()
    sender = world.connect()
    for number in range(30):
        sender.publish("/topic/t", "x", kind="b", n=number, expires=NOW_MS + 1_000)
    world.settle()
    world.tick(1)
    assert 0 < world.broker.stats.expired <= 10
    for _ in range(10):
        world.tick(0.001)
    assert world.broker.stats.expired == 30


def reads_of(world: World, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """All cold reads from now on."""
    reads: list[object] = []
    take = world.broker.take_reads

    def counting() -> list[Any]:
        taken = take()
        reads.extend(taken)
        return taken

    monkeypatch.setattr(world.broker, "take_reads", counting)
    return reads


def test_after_a_restart_a_head_that_lives_for_ever_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COLD_BYTES_MAX", 1)
    world = World()
    client = world.connect()
    for number in range(5):
        client.publish(f"/queue/{number}", "x", "y")
    world.settle()
    world.restart()
    reads = reads_of(world, monkeypatch)
    for _ in range(400):
        world.tick(10)
    assert len(reads) == 5
    assert world.broker.timing.next_ns >= NEVER_NS


def test_a_head_that_expires_late_is_not_read_again_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COLD_BYTES_MAX", 1)
    world = World("destinations: [{match: /queue/ttl, message_ttl: 1h}]")
    client = world.connect()
    client.publish("/queue/ttl", "x")
    world.settle()
    world.restart()
    reads = reads_of(world, monkeypatch)
    for _ in range(350):
        world.tick(10)
    assert len(reads) == 1 and world.broker.stats.expired == 0
    world.tick(101)
    world.tick(1)
    assert world.broker.stats.expired == 1


def test_what_comes_to_the_head_behind_one_that_lives_expires_there() -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "lives")
    client.publish("/queue/a", "old", expires=NOW_MS + 1_000)
    world.tick(2)
    assert unsettled(world, "/queue/a") == 2
    client.subscribe("/queue/a")
    world.settle()
    assert client.bodies() == ["lives"]
    world.tick(60)
    assert unsettled(world, "/queue/a") == 1
