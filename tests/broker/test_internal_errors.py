"""What nobody foresaw costs one connection, or one step, and is told: bugs are put in here by hand."""

from __future__ import annotations

import logging

import pytest

from radiator.broker.delivery import dispatch
from radiator.broker.destination_creation import DestinationCreation
from radiator.broker.destinations.registry import Registry
from radiator.broker.internal_errors import InternalErrors
from radiator.broker.publishing import sending
from radiator.broker.queues.deferred import Deferred
from radiator.broker.queues.queue import Queue
from radiator.broker.stats import Stats
from radiator.clock import NS_PER_SECOND, Now
from tests.broker.harness import World


def bug(*_: object, **__: object) -> None:
    raise KeyError("a bug")


def test_a_frame_on_which_the_broker_fails_costs_its_connection(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.forgiving()
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/held", id="1")
    other.publish("/queue/held", "m")
    world.settle()
    assert client.bodies() == ["m"]
    with monkeypatch.context() as patch:
        patch.setattr(sending, "send", bug)
        client.say("SEND", "x", destination="/queue/q", receipt="7")
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "internal"
    assert error.headers["receipt-id"] == "7"
    assert b"is unknown" in error.body
    assert world.broker.stats.internal_errors == 1
    assert "KeyError: 'a bug'" in caplog.text
    other.subscribe("/queue/held", id="1")
    world.settle()
    assert other.bodies() == ["m"]


def test_what_a_connection_held_goes_back_though_a_part_of_its_end_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.forgiving()
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/a", id="1")
    client.subscribe("/queue/b", id="2", prefetch_count="5")
    other.publish("/queue/a", "a")
    other.publish("/queue/b", "b")
    world.settle()
    assert sorted(client.bodies()) == ["a", "b"]
    client.subscribe("/topic/t", id="3")
    with monkeypatch.context() as patch:
        patch.setattr(DestinationCreation, "forget", bug)
        patch.setattr(Registry, "drop_unused", bug)
        client.drop()
    assert client.session.id not in world.broker.sessions
    assert world.broker.stats.internal_errors == 4
    other.subscribe("/queue/a", id="1", ack="auto")
    other.subscribe("/queue/b", id="2", ack="auto")
    world.settle()
    assert sorted(other.bodies()) == ["a", "b"]


def test_a_queue_that_fails_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.forgiving()
    client, sender = world.connect(), world.connect()
    client.subscribe("/queue/a", id="1", ack="auto")
    client.subscribe("/queue/b", id="2", ack="auto")
    world.settle()
    honest = dispatch.pump

    def pump(queue: Queue, *more: object, **named: object) -> int:
        if queue.name == "/queue/a":
            bug()
        return honest(queue, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatch, "pump", pump)
    sender.publish("/queue/a", "a")
    sender.publish("/queue/b", "b")
    world.settle()
    assert client.bodies() == ["b"]
    assert world.broker.stats.internal_errors >= 1
    monkeypatch.undo()
    sender.publish("/queue/a", "a2")
    world.settle()
    assert client.bodies() == ["a", "a2"]


def test_a_timer_that_fails_keeps_no_other_from_running(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.forgiving()
    client = world.connect()
    client.subscribe("/queue/a", id="1", ack="auto")
    client.subscribe("/queue/b", id="2", ack="auto")
    client.publish("/queue/a", "a", delay="1s")
    client.publish("/queue/b", "b", delay="1s")
    world.settle()
    honest = Deferred.due
    failed: list[Deferred] = []

    def fails_first(deferred: Deferred, now: Now) -> None:
        failed.append(deferred)
        if deferred is failed[0]:
            bug()
        honest(deferred, now)

    monkeypatch.setattr(Deferred, "due", fails_first)
    world.now += NS_PER_SECOND
    world.broker.tick(world.time)
    world.settle()
    assert len(set(failed)) == 2
    assert world.broker.stats.internal_errors == 1
    assert client.bodies() == ["b"]


def test_a_repeated_internal_error_is_logged_ever_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    stats = Stats()
    bugs = InternalErrors(stats)
    with caplog.at_level(logging.ERROR):
        for _ in range(100):
            with bugs:
                bug()
    assert stats.internal_errors == 100
    assert [record.exc_info is not None for record in caplog.records] == [True] * 7
    with pytest.raises(KeyboardInterrupt), bugs:
        raise KeyboardInterrupt
