"""Orphaned logs in reports and metrics, and the invariants of any sequence of rules."""

from __future__ import annotations

import logging
from random import Random

import pytest

from tests.broker.durable.orphaned import NAME, change, drained, figures, rows, rule, take_all
from tests.broker.harness import Client, World
from tests.tiers import sampled

# --- what cannot be drained, and how it is seen --------------------------------------------------------------------


def test_an_orphaned_log_without_a_reader_is_reported_at_the_start_and_by_admin_commands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(rule(""))
    world.connect().publish(NAME, "1", "2")
    with caplog.at_level(logging.WARNING, "radiator.broker"):
        change(world, rule(", kind: topic"))
    assert any(
        "queue:/queue/a" in text and "topic now" in text and "2 unsettled messages" in text for text in caplog.messages
    )
    assert figures(world) == (0, 1)
    client = world.connect()
    client.subscribe("/radiator/reply", id="r", ack="auto")
    (row,) = (each for each in rows(world) if each["undelivered"])
    assert row["cursor"] == "queue:/queue/a" and row["lag"] == 2 and "topic now" in row["undelivered"]
    caplog.clear()
    change(world, rule(""))
    assert not caplog.messages
    assert take_all(world) == ["1", "2"]


def test_an_orphaned_log_is_in_the_list_of_cursors() -> None:
    world = World(rule(""))
    world.connect().publish(NAME, "1", "2")
    change(world, rule(", partitions: 2"))
    found = {row["partition"]: (row["orphaned"], row["lag"], row["undelivered"]) for row in rows(world)}
    assert found == {NAME: (True, 2, None), f"{NAME}-0": (False, 0, None), f"{NAME}-1": (False, 0, None)}


def test_a_settled_log_is_neither_reported_nor_read(caplog: pytest.LogCaptureFixture) -> None:
    world = World(rule(""))
    world.connect().publish(NAME, "1")
    take_all(world)
    with caplog.at_level(logging.INFO, "radiator.broker"):
        change(world, rule(", partitions: 3"))
    assert not caplog.messages and figures(world) == (0, 0)


def test_messages_of_other_queues_in_a_shared_log_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    world = World("destinations: [{match: '/queue/*', partition: all}]")
    client = world.connect()
    client.subscribe("/queue/a")
    world.settle()
    client.publish("/queue/b", "1")
    world.restart()
    assert not caplog.messages and figures(world) == (0, 0)


def test_a_delay_on_a_fan_out_source_is_refused_with_a_fitting_message() -> None:
    world = World("destinations: [{match: /queue/a, fan_out: [/queue/b]}]")
    client = world.connect()
    client.publish("/queue/a", "1", delay="1s")
    world.settle()
    (error,) = client.take("ERROR")
    assert "fan_out" in error.headers["message"]


# --- any changes ------------------------------------------------------------------------------------------------------

RULES = ["", ", partitions: 2", ", partitions: 3", ", priority: true", ", partition: other", ", partition: shared"]
NEIGHBOUR = ", {match: /queue/n, partition: shared}"


@pytest.mark.parametrize("seed", sampled(range(60), 10))
def test_whatever_rules_follow_one_another_nothing_is_lost_and_nothing_acknowledged_comes_again(seed: int) -> None:
    random = Random(seed)
    world = World(rule("", others=NEIGHBOUR))
    sent: list[str] = []
    acked: set[str] = set()
    known: set[str] = set()

    def consume(client: Client, most: int) -> None:
        world.settle()
        for frame in client.messages():
            body = frame.body.decode()
            assert body not in acked, body
            known.add(body)
            if most and random.random() < 0.8:
                most -= 1
                acked.add(body)
                client.ack(frame)
            elif random.random() < 0.3:
                client.nack(frame)
        world.settle()

    for _ in range(8):
        client = world.connect()
        client.subscribe(NAME, prefetch_count=random.choice([1, 3, 50]))
        for _ in range(random.randrange(4)):
            for _ in range(random.randrange(6)):
                sent.append(str(len(sent)))
                world.connect().publish(
                    NAME, sent[-1], priority=random.randrange(10), partition_key=random.choice("ab")
                )
                world.connect().publish("/queue/n", "n")
            consume(client, random.randrange(8))
            if random.random() < 0.3:
                world.tick(11)
        if random.random() < 0.3:
            take_all(world, "/queue/n")
        world.tick(1)  # acks without a receipt are synced: a power cut could undo them
        change(world, rule(random.choice(RULES), others=NEIGHBOUR), random.choice(["stop", "kill", "power_cut"]))
    client = world.connect()
    client.subscribe(NAME, prefetch_count=1000)
    for _ in range(30):
        world.settle()
        for frame in client.messages():
            assert frame.body.decode() not in acked
            acked.add(frame.body.decode())
            client.ack(frame)
        world.tick(2)
    assert acked == set(sent)
    assert drained(world)
