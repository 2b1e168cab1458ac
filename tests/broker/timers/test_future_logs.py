"""A log with receive times in the future is reported at a start, after a step back, and in what /ready shows."""

from __future__ import annotations

import pytest

from radiator.broker.admin.readiness import figures, held_back, reasons
from radiator.broker.timers.future_logs import NAMED_MAX
from tests.broker.harness import World

DAY = 86_400
YEAR = 365 * DAY


def poisoned(*destinations: str) -> World:
    """A broker that took a message while the clock was a year ahead, and whose clock has been put right since."""
    world = World()
    world.tick(1)
    world.step(YEAR)
    world.tick(1)
    world.broker.timing.clock.accept()
    client = world.connect()
    for destination in destinations:
        client.publish(destination, "x")
    world.settle()
    world.tick(1)
    return world


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if text.startswith("clock:") and "in the future" in text]


def test_a_step_back_reports_the_logs_that_are_ahead_and_so_does_each_start(caplog: pytest.LogCaptureFixture) -> None:
    world = poisoned("/topic/t")
    assert held_back(world.broker) == [] and lines(caplog) == []
    world.step(-YEAR)
    for _ in range(3):
        world.tick(1)
    (line,) = lines(caplog)
    assert "/topic/t (by 364 days)" in line and "radiator fsck --repair --latest now" in line
    assert held_back(world.broker) == [line.removeprefix("clock: ")]
    assert reasons(world.broker) == [] and figures(world.broker)["now"]["logs_ahead"] == 1
    caplog.clear()
    world.restart()
    world.tick(1)
    (line,) = lines(caplog)
    assert "/topic/t (by 364 days)" in line and len(held_back(world.broker)) == 1


def test_many_logs_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    world = poisoned(*(f"/topic/{number}" for number in range(NAMED_MAX + 20)))
    world.step(-YEAR)
    world.tick(1)
    (line,) = lines(caplog)
    assert f"in {NAMED_MAX + 20} logs" in line and "and 20 more" in line and line.count("/topic/") == NAMED_MAX


def test_it_is_over_when_the_clock_has_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    world = poisoned("/topic/t")
    world.step(-600)
    world.tick(1)
    assert "(by 9 minutes)" in held_back(world.broker)[0]
    world.tick(600)
    assert held_back(world.broker) == [] and figures(world.broker)["now"]["logs_ahead"] == 0
    assert len(lines(caplog)) == 1


def test_a_small_step_back_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    world = poisoned("/topic/t")
    world.step(-30)
    world.tick(1)
    world.restart()
    world.tick(1)
    assert held_back(world.broker) == [] and lines(caplog) == []


def test_a_name_that_was_last_used_in_the_future_expires_all_the_same() -> None:
    world = World("destinations: [{match: /topic/named, cursor_expiry: 1d}]")
    world.tick(1)
    world.step(YEAR)
    world.tick(1)
    world.broker.timing.clock.accept()
    client = world.connect()
    client.subscribe("/topic/named", durable="true", subscription_name="n")
    client.publish("/topic/named", "x")
    world.settle()
    world.tick(120)
    client.drop()
    world.step(-YEAR)
    world.restart()
    for _ in range(16):
        world.tick(2 * 3_600)
    assert world.broker.stats.names_expired == 1 and len(world.broker.durable.by_key) == 0
