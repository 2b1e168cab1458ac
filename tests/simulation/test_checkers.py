"""Tests of the checkers, for cases in which right and wrong look alike."""

from __future__ import annotations

from random import Random

import pytest

from radiator import limits
from tests.broker.harness import World
from tests.simulation import dead_letters
from tests.simulation.casts import CASTS
from tests.simulation.checkers import DEAD, Checkers, Violation, stored

WEAK, BODY = "/queue/capped-weak", b"p0:1::x"


@pytest.fixture(autouse=True)
def nothing_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write all batches to their segments only: the journal is synced with later messages under another rule."""
    monkeypatch.setattr(limits, "JOURNAL_PASSED_BYTES_MIN", 1)


def outlived() -> tuple[World, Checkers]:
    """A power failure has taken a message, and not its dead letter; its producer has sent it again."""
    for seed in range(100):
        checkers = Checkers(lambda partition: "weak" not in partition)
        checkers.partition_of[BODY] = WEAK
        world = World(CASTS["plain"].config)
        world.fs.random = Random(seed)
        client = world.connect()
        client.subscribe(WEAK)
        client.publish(WEAK, BODY)
        world.settle()
        (message,) = client.messages()
        client.nack(message, requeue="false")
        world.settle()
        world.power_cut()
        checkers.died(power_cut=True)
        checkers.started(world.store, power_cut=True)
        if checkers.outlived:
            checkers.sent_again.add(BODY)
            world.connect().publish(WEAK, BODY)
            world.settle()
            return world, checkers
    raise AssertionError("it never comes to that")


def again(world: World, checkers: Checkers) -> int:
    """Kill the broker, check the store, and return the number of dead letters."""
    world.kill()
    checkers.died(power_cut=False)
    checkers.started(world.store)
    return dead_letters.check(world.store, checkers)


def test_a_dead_letter_that_outlived_its_message_and_what_is_sent_again_are_two() -> None:
    world, checkers = outlived()
    client = world.connect("1.2")
    client.subscribe(f"{WEAK},{DEAD}", prefetch_count=5)
    world.settle()
    messages = client.messages()
    assert [message.body for message in messages] == [BODY, BODY]
    assert len({checkers.of(message) for message in messages}) == 2
    assert again(world, checkers) == 1


def test_both_may_become_dead_letters_and_neither_twice() -> None:
    world, checkers = outlived()
    client = world.connect()
    client.subscribe(WEAK)
    world.settle()
    client.nack(client.messages()[0], requeue="false")
    world.settle()
    assert again(world, checkers) == 2
    partition = world.store.partitions[DEAD]
    assert list(stored(partition).values()) == [BODY, BODY]
    world.connect().publish(DEAD, BODY)  # as a broker would that buries it once more
    world.settle()
    with pytest.raises(Violation, match="stored twice"):
        again(world, checkers)
