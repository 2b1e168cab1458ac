"""Sums by rule, and the values of single destinations: what ``/metrics`` and ``/metrics/detailed`` are made of."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from radiator import limits
from radiator.broker.admin import by_rule, detail
from radiator.errors import ProtocolError
from tests.broker.harness import World

CONFIG = """
destinations:
  - {match: "/queue/orders.>", dead_letter: /queue/dead, redeliver: {max: 2, delay: 0s}}
  - {match: "/topic/prices.>"}
  - {match_regex: "/topic/shared/.*", partition: shared}
"""
ORDERS, PRICES, SHARED = "/queue/orders.>", "/topic/prices.>", "regex /topic/shared/.*"


def run(steps: Generator[int, None, Any]) -> Any:
    while True:
        try:
            assert next(steps) > 0
        except StopIteration as end:
            return end.value


def sums(world: World) -> dict[str, dict[str, int]]:
    """The sums that are not 0, by rule."""
    found = run(by_rule.sums(world.broker))
    return {label: {name: count for name, count in row.items() if count} for label, row in found.items()}


def of(world: World, rule: str, *names: str) -> dict[str, int]:
    return {name: count for name, count in sums(world)[rule].items() if name in names}


def select(world: World, family: str, match: str = "#") -> detail.Found:
    found: detail.Found = run(detail.select(world.broker, family, match))
    return found


def test_every_rule_has_sums_before_anything_happens() -> None:
    assert sums(World(CONFIG)) == {ORDERS: {}, PRICES: {}, SHARED: {}, "(defaults)": {}, "(temporary)": {}}


def test_messages_count_for_the_rule_of_their_destination() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.publish("/queue/orders.a", "1", "2")
    client.publish("/queue/orders.b", "3")
    client.publish("/queue/other", "4")
    client.subscribe("/topic/prices.x", ack="auto")
    world.settle()
    client.publish("/topic/prices.x", "5")
    world.settle()
    counted = ("published", "delivered", "redelivered", "acknowledged", "destinations", "consumers")
    assert of(world, ORDERS, *counted) == {"published": 3, "destinations": 2}
    assert of(world, PRICES, *counted) == {"published": 1, "delivered": 1, "destinations": 1, "consumers": 1}
    assert of(world, "(defaults)", *counted) == {"published": 1, "destinations": 1}


@pytest.mark.parametrize("ack", ["client-individual", "client"])
@pytest.mark.parametrize("transaction", [False, True], ids=["alone", "transaction"])
def test_an_acknowledgement_counts_once_in_every_ack_mode(ack: str, transaction: bool) -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/queue/orders.a", ack=ack, prefetch_count="10")
    client.publish("/queue/orders.a", "1", "2", "3")
    world.settle()
    *_, last = messages = client.messages()
    more = {"transaction": "t"} if transaction else {}
    if transaction:
        client.say("BEGIN", transaction="t")
    for message in [last] if ack == "client" else messages:
        client.ack(message, **more)
    if transaction:
        client.say("COMMIT", transaction="t")
    world.settle()
    assert of(world, ORDERS, "acknowledged", "delivered") == {"delivered": 3, "acknowledged": 3}
    assert world.broker.stats.acks == 3


def test_a_redelivery_and_a_dead_letter_count_with_their_kind_and_reason() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/queue/orders.a", prefetch_count="10")
    client.publish("/queue/orders.a", "1", "2")
    world.settle()
    first, second = client.messages()
    client.nack(first)
    client.nack(second, requeue="false")
    world.settle()
    (again,) = client.messages()
    client.nack(again)
    world.settle()
    stats = world.broker.stats.as_dict()
    assert (stats["delivered"], stats["redelivered"]) == (2, 1)
    assert (stats["dead_lettered_rejected"], stats["dead_lettered_max_deliveries"]) == (1, 1)
    assert world.broker.stats.dead_lettered == 2
    assert of(world, "(defaults)", "published", "ready") == {"published": 2, "ready": 2}, "the dead letters"


def test_messages_of_queues_are_ready_or_unacknowledged_or_delayed() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.publish("/queue/orders.a", "1", "2", "3")
    client.publish("/queue/orders.b", "4")
    client.publish("/queue/orders.b", "5", delay="1h")
    client.subscribe("/queue/orders.a", prefetch_count="2")
    world.settle()
    names = ("ready", "ready_without_consumer", "unacknowledged", "delayed", "lag")
    expected = {"ready": 2, "ready_without_consumer": 1, "unacknowledged": 2, "delayed": 1, "lag": 5}
    assert of(world, ORDERS, *names) == expected
    client.drop()
    world.settle()
    assert of(world, ORDERS, *names) == {"ready": 4, "ready_without_consumer": 4, "delayed": 1, "lag": 5}


def test_a_durable_subscription_lags_in_the_rule_of_its_topics() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/topic/prices.x", subscription_name="d", prefetch_count="10")
    world.settle()
    client.publish("/topic/prices.x", "1", "2")
    world.settle()
    assert of(world, PRICES, "lag", "delivered") == {"lag": 2, "delivered": 2}
    client.ack(client.messages()[0])
    world.settle()
    assert of(world, PRICES, "lag", "acknowledged") == {"lag": 1, "acknowledged": 1}


def test_a_log_of_several_destinations_counts_its_bytes_once() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.publish("/topic/shared/a", "1")
    client.publish("/topic/shared/b", "2")
    world.settle()
    row = sums(world)[SHARED]
    assert row["destinations"] == 2 and row["log_bytes"] == world.store.partitions["shared"].size_bytes


def test_queues_of_connections_have_an_entry_of_their_own() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/temp-queue/mine", ack="auto")
    world.settle()
    assert of(world, "(temporary)", "destinations", "consumers") == {"destinations": 1, "consumers": 1}


def test_counters_of_a_rule_do_not_decrease_when_a_destination_goes() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/temp-queue/mine", ack="auto")
    client.publish("/temp-queue/mine", "1")
    world.settle()
    before = of(world, "(temporary)", "published", "delivered")
    client.drop()
    world.settle()
    assert of(world, "(temporary)", "published", "delivered", "destinations") == before == {
        "published": 1,
        "delivered": 1,
    }  # fmt: skip


def test_the_sums_of_many_destinations_take_many_steps() -> None:
    world = World(CONFIG)
    client = world.connect()
    for number in range(100):
        client.publish(f"/queue/orders.{number}", "x")
    world.settle()
    steps = list(by_rule.sums(world.broker))
    assert len(steps) >= 100 / by_rule.LOOKED_TOGETHER


# --- single destinations ----------------------------------------------------------------------------------------------


def test_a_pattern_selects_the_queues_that_are_shown() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.publish("/queue/orders.a", "1", "2")
    client.publish("/queue/orders.b", "3")
    client.publish("/topic/prices.x", "4")
    world.settle()
    (row,) = select(world, "queue", "/queue/*.a").rows
    labels, values = row
    assert labels == {"destination": "/queue/orders.a", "rule": ORDERS}
    assert values.pop("log_bytes") > 0
    assert (values.pop("delivered"), values.pop("settled")) == (0, 0)
    assert values == {"messages": 2, "ready": 2, "unacknowledged": 0, "delayed": 0, "lag": 2, "consumers": 0}
    assert [labels["destination"] for labels, _ in select(world, "queue").rows] == [
        "/queue/orders.a",
        "/queue/orders.b",
    ]
    assert [labels["destination"] for labels, _ in select(world, "topic").rows] == ["/topic/prices.x"]


def test_the_values_of_partitions_and_durable_subscriptions_are_shown() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/topic/prices.x", subscription_name="d")
    world.settle()
    client.publish("/topic/prices.x", "1")
    world.settle()
    ((labels, values),) = select(world, "partition", "/topic/>").rows
    assert labels == {"partition": "/topic/prices.x"}
    assert values.pop("bytes") > 0
    assert values == {"first_offset": 0, "next_offset": 1, "segments": 1, "failed": False}
    for match in ("#", "/topic/prices.*"):
        ((labels, values),) = select(world, "durable", match).rows
        assert labels["destination"] == "/topic/prices.x" and "d" in labels["subscription"]
        assert (values.pop("delivered"), values.pop("settled")) == (1, 0)
        assert values == {"ready": 0, "unacknowledged": 1, "delayed": 0, "lag": 1, "consumers": 1}
    assert select(world, "durable", "/topic/other").rows == []


def test_series_over_the_limit_are_counted_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(CONFIG)
    client = world.connect()
    for number in range(5):
        client.publish(f"/queue/orders.{number}", "x")
    world.settle()
    table = len(detail.FAMILIES["queue"].table)
    monkeypatch.setattr(limits, "METRICS_SERIES_MAX", 2 * table + 1)
    found = select(world, "queue")
    assert len(found.rows) == 2 and found.series_left_out == 3 * table


def test_queues_of_connections_are_not_shown() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/temp-queue/mine", ack="auto")
    world.settle()
    assert select(world, "queue").rows == []


@pytest.mark.parametrize(
    ("family", "match"), [("connection", "#"), ("queue", ""), ("queue", "x" * 1_001), ("queue", "a,,b")]
)
def test_a_filter_without_meaning_is_refused(family: str, match: str) -> None:
    with pytest.raises(ProtocolError):
        select(World(), family, match)


@pytest.mark.parametrize("seed", range(6))
def test_the_sums_are_those_of_a_closer_look_at_every_queue(seed: int) -> None:
    random = Random(seed)
    world = World(CONFIG)
    for _ in range(60):
        client = random.choice(world.clients or [world.connect()])
        queue = f"/queue/orders.{random.randrange(3)}"
        held = client.messages()
        match random.randrange(8):
            case 0 | 1:
                client.publish(queue, "x", "y", **({"delay": "1h"} if random.random() < 0.2 else {}))
            case 2:
                client.subscribe(queue, id=str(random.getrandbits(60)), prefetch_count="3")
            case 3 if held:
                client.ack(held[0])
            case 4 if held:
                client.nack(held[0], requeue=random.choice(["true", "false"]))
            case 5 if len(world.clients) < 4:
                world.connect()
            case 6 if not client.session.closed:
                client.drop()
                world.clients.remove(client)
            case 7 if random.random() < 0.2:
                world.settle()
                world.restart()
        world.settle()
        queues = [each.queue for name, each in world.broker.destinations.items() if name.startswith("/queue/orders.")]
        looks = [by_rule.Waiting(queue, world.broker.timing.shown_ns) for queue in queues if queue is not None]
        names = ("ready", "unacknowledged", "delayed", "lag")
        expected = {name: count for name in names if (count := sum(getattr(look, name) for look in looks))}
        assert of(world, ORDERS, *names) == expected
        held_by_clients = sum(
            len(each.in_flight)
            for session in world.broker.sessions.values()
            for each in session.subscriptions.by_id.values()
        )
        assert expected.get("unacknowledged", 0) == held_by_clients
