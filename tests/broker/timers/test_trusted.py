"""A step forward of the wall clock destroys nothing until it is confirmed, by time or by an operator."""

from __future__ import annotations

import pytest

from radiator.broker.admin.readiness import figures, held_back, reasons
from radiator.broker.timers.trusted import HOLD_NS_MAX, STEP_NS, TrustedClock
from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs
from tests.broker.harness import NOW, World
from tests.clocks import both, stepped

HOUR = 3_600
YEAR = 365 * 24 * HOUR
RULES = """
destinations:
  - match: /queue/short
    message_ttl: 10m
  - match: /topic/aged
    segment: {size: 64KiB}
    retention: {age: 1h}
  - match: /topic/named
    cursor_expiry: 1d
  - match: /topic/once
    dedup: {window: 1h}
"""


def test_drift_and_slewing_are_followed() -> None:
    clock = TrustedClock()
    for number in range(100):
        drift = number * STEP_NS // 2
        now = stepped(NOW + number * NS_PER_SECOND, drift)
        assert clock.see(now) is now
    assert clock.ahead_ns == 0


def test_a_step_back_is_followed_at_once() -> None:
    clock = TrustedClock()
    clock.see(both(NOW))
    now = stepped(NOW, -HOUR * NS_PER_SECOND)
    assert clock.see(now) is now


@pytest.mark.parametrize("step", [2, 120, HOUR, YEAR])
def test_a_step_forward_is_followed_when_it_is_as_old_as_it_is_long_or_an_hour(step: int) -> None:
    clock = TrustedClock()
    clock.see(both(NOW))
    step_ns = step * NS_PER_SECOND
    hold_ns = min(step_ns, HOLD_NS_MAX)
    assert clock.see(stepped(NOW, step_ns)) == both(NOW)
    assert clock.ahead_ns == step_ns and clock.confirmed_in_ns(both(NOW).mono) == hold_ns
    assert clock.see(stepped(NOW + hold_ns - 1, step_ns)) == both(NOW + hold_ns - 1)
    now = stepped(NOW + hold_ns, step_ns)
    assert clock.see(now) == now and clock.ahead_ns == 0
    assert clock.see(stepped(NOW + hold_ns + 1, step_ns)) == stepped(NOW + hold_ns + 1, step_ns)


def test_a_second_step_begins_the_wait_again() -> None:
    clock = TrustedClock()
    clock.see(both(NOW))
    minute = 60 * NS_PER_SECOND
    clock.see(stepped(NOW, 10 * minute))
    clock.see(stepped(NOW + 9 * minute, 20 * minute))
    assert clock.see(stepped(NOW + 28 * minute, 20 * minute)) == both(NOW + 28 * minute)
    assert clock.see(stepped(NOW + 29 * minute, 20 * minute)) == stepped(NOW + 29 * minute, 20 * minute)


def test_a_step_that_is_taken_back_leaves_nothing_behind() -> None:
    clock = TrustedClock()
    clock.see(both(NOW))
    clock.see(stepped(NOW, YEAR * NS_PER_SECOND))
    assert clock.see(both(NOW + 1)) == both(NOW + 1) and clock.ahead_ns == 0
    assert clock.accept() == 0


def test_an_operator_confirms_a_step() -> None:
    clock = TrustedClock()
    clock.see(both(NOW))
    step_ns = 120 * NS_PER_SECOND
    clock.see(stepped(NOW, step_ns))
    assert clock.accept() == step_ns
    assert clock.see(stepped(NOW + 1, step_ns)) == stepped(NOW + 1, step_ns)


def test_a_machine_that_slept_is_like_one_whose_clock_stepped() -> None:
    """CLOCK_MONOTONIC stands still meanwhile."""
    clock = TrustedClock()
    clock.see(Now(WallNs(NOW), MonoNs(5)))
    assert clock.see(Now(WallNs(NOW + 8 * HOUR * NS_PER_SECOND), MonoNs(6))) == Now(WallNs(NOW + 1), MonoNs(6))


# --- what it keeps ----------------------------------------------------------------------------------------------------


def test_messages_expire_neither_at_the_head_nor_at_delivery_until_the_step_is_confirmed() -> None:
    world = World(RULES)
    client = world.connect()
    client.publish("/queue/short", "rule")
    client.publish("/queue/a", "header", expires=NOW // 10**6 + 600_000)
    world.settle()
    world.step(YEAR)
    for _ in range(9):
        world.tick(60)
    assert world.broker.stats.expired == 0
    client.subscribe("/queue/short", ack="auto")
    client.subscribe("/queue/a", id="1", ack="auto")
    world.settle()
    assert sorted(client.bodies()) == ["header", "rule"]
    world.tick(120)
    client.publish("/queue/short", "later")
    world.settle()
    assert client.bodies() == ["later"]


@pytest.mark.parametrize("confirmed", ["by time", "by an operator"])
def test_messages_expire_once_the_step_is_confirmed(confirmed: str) -> None:
    world = World(RULES)
    client = world.connect()
    client.publish("/queue/short", "x")
    world.settle()
    world.step(300)
    world.tick(1)
    world.tick(280)
    if confirmed == "by time":
        world.tick(20)  # 301 s have passed, and 601 s by the wall clock
    else:
        world.tick(1)
        assert world.broker.stats.expired == 0
        assert world.broker.timing.clock.accept() == 300 * NS_PER_SECOND
        world.tick(18)
    assert world.broker.stats.expired == 1


def test_retention_by_age_waits_for_the_step_to_be_confirmed_and_goes_on_then() -> None:
    world = World(RULES)
    client = world.connect()
    partition = world.broker.destination("/topic/aged").feeds[0].partition
    for number in range(8):
        client.publish("/topic/aged", b"x" * 20_000, b"%d" % number)
        world.settle()
    assert len(partition.segments) > 2
    world.step(YEAR)
    for _ in range(9):
        world.tick(300)
    assert partition.log_start_offset == 0
    world.tick(HOUR)
    world.tick(11)
    assert partition.log_start_offset > 0


def test_ids_and_names_are_forgotten_only_after_the_step_is_confirmed() -> None:
    world = World(RULES)
    client = world.connect()
    client.publish("/topic/once", "x", dedup_id="1")
    client.subscribe("/topic/named", durable="true", subscription_name="n")
    world.settle()
    client.drop()
    client = world.connect()
    world.tick(1)
    world.step(YEAR)
    world.tick(70)
    world.tick(70)
    client.publish("/topic/once", "x", dedup_id="1")
    world.settle()
    assert world.broker.stats.duplicates == 1
    assert world.broker.stats.names_expired == 0 and len(world.broker.durable.by_key) == 1


def test_a_short_wrong_time_leaves_no_receive_time_in_the_future() -> None:
    world = World(RULES)
    client = world.connect()
    client.publish("/topic/t", "before")
    world.settle()
    world.step(YEAR)
    world.tick(1)
    client.publish("/topic/t", "meanwhile")
    world.settle()
    world.step(-YEAR)
    world.tick(1)
    client.publish("/topic/t", "after")
    world.settle()
    client.subscribe("/topic/t", ack="auto", start_position="first")
    world.settle()
    times = [int(each.headers["receive-time"]) for each in client.messages()]
    assert times == [NOW, NOW + NS_PER_SECOND, NOW + 2 * NS_PER_SECOND]


def test_a_dead_letter_moved_meanwhile_has_no_time_in_the_future() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /queue/dead}]")
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x")
    world.settle()
    world.step(YEAR)
    world.tick(1)
    client.nack(client.messages()[0], requeue="false")
    world.settle()
    client.subscribe("/queue/dead", id="1")
    world.settle()
    (letter,) = client.messages()
    assert letter.headers["receive-time"] == letter.headers["dlq-time"] == str(NOW + NS_PER_SECOND)


def test_a_message_with_a_delay_and_an_expiry_costs_no_turns_meanwhile() -> None:
    """Its expiry has passed by the wall clock and not by the trusted one."""
    world = World()
    client = world.connect()
    client.subscribe("/queue/a", ack="auto")
    client.publish("/queue/a", "x", delay="2h", expires=NOW // 10**6 + 60_000)
    world.settle()
    world.step(HOUR)
    world.tick(1)
    assert world.broker.timing.deferred == 1
    assert world.broker.timing.next_ns > world.time.mono
    world.tick(60)
    assert world.broker.timing.deferred == 0 and world.broker.stats.expired == 1


def test_readiness_and_the_log_report_a_step(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.tick(1)
    assert held_back(world.broker) == [] and figures(world.broker)["now"]["clock_ahead_seconds"] == 0
    world.step(120)
    for _ in range(5):
        world.tick(1)
    (told,) = held_back(world.broker)
    assert "stepped forward by 120 s" in told and "`radiator clock --accept`" in told
    assert figures(world.broker)["now"]["clock_ahead_seconds"] == 120 and reasons(world.broker) == []
    world.tick(120)
    assert held_back(world.broker) == []
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("clock:")]
    assert len(lines) == 2 and "stepped forward by 120 s" in lines[0] and "confirmed by time" in lines[1]
