"""The heap of heart-timers: looks cost what is due, and what is closed does not stay."""

from __future__ import annotations

from radiator.server.heartbeats import SPARE, HeartbeatTimers
from radiator.stomp.heartbeat import HeartBeat

MS = 1_000_000


class Fake:
    """A transport that sends when it should, and closes when its peer is dead."""

    def __init__(self, timers: HeartbeatTimers, send_ms: int, expect_ms: int, grace: float = 2.0) -> None:
        self.heart_beat = HeartBeat(send_ms, expect_ms, grace, 0)
        self.closed = False
        self.sent: list[int] = []
        self._beats = timers
        timers.add(self)

    def check_heartbeat(self, now_ns: int) -> None:
        if self.heart_beat.is_dead(now_ns):
            self.close()
        elif self.heart_beat.should_send(now_ns):
            self.sent.append(now_ns // MS)
            self.heart_beat.sent(now_ns)

    def close(self) -> None:
        self.closed = True
        self._beats.drop()


def run(timers: HeartbeatTimers, upto_ms: int, step_ms: int = 20, begin_ms: int = 0) -> int:
    return sum(timers.check(now_ms * MS) for now_ms in range(begin_ms, upto_ms, step_ms))


def test_a_beat_is_sent_at_half_the_interval_for_as_long_as_the_connection_lives() -> None:
    timers = HeartbeatTimers()
    fake = Fake(timers, 1_000, 0)
    run(timers, 3_000)
    assert fake.sent == [500, 1_000, 1_500, 2_000, 2_500]


def test_a_connection_with_other_traffic_gets_no_beats() -> None:
    timers = HeartbeatTimers()
    fake = Fake(timers, 1_000, 0)
    for now_ms in range(0, 5_000, 100):
        fake.heart_beat.sent(now_ms * MS)
        timers.check(now_ms * MS)
    assert fake.sent == []
    assert len(timers) == 1


def test_a_silent_peer_is_found_at_its_time_and_is_forgotten() -> None:
    timers = HeartbeatTimers()
    dead, alive = Fake(timers, 0, 1_000), Fake(timers, 0, 1_000)
    run(timers, 1_900)
    alive.heart_beat.received(1_900 * MS)
    run(timers, 2_040, begin_ms=1_900)
    assert dead.closed and not alive.closed
    assert run(timers, 3_880, begin_ms=2_040) == 0
    run(timers, 4_000, begin_ms=3_880)
    assert alive.closed and len(timers) == 0


def test_a_beat_that_is_sent_puts_off_no_death() -> None:
    timers = HeartbeatTimers()
    fake = Fake(timers, 8_000, 2_100)
    run(timers, 4_240)
    assert fake.sent == [4_000] and fake.closed


def test_looks_are_as_many_as_are_due_and_not_as_many_as_are_connected() -> None:
    timers = HeartbeatTimers()
    fakes = [Fake(timers, 10_000, 10_000) for _ in range(1_000)]
    looks = 0
    for now_ms in range(0, 20_000, 20):  # a thousand ticks
        if now_ms % 9_000 == 0:
            for fake in fakes:
                fake.heart_beat.received(now_ms * MS)
        looks += timers.check(now_ms * MS)
    assert all(fake.sent == [5_000, 10_000, 15_000] for fake in fakes)
    assert looks <= 4_000


def test_closed_connections_do_not_gather_however_far_their_time_is() -> None:
    timers = HeartbeatTimers()
    alive = [Fake(timers, 86_400_000, 0) for _ in range(10)]
    for _ in range(10_000):
        Fake(timers, 86_400_000, 0).close()
        assert len(timers) <= 2 * (len(alive) + SPARE)
    assert sum(not entry[2].closed for entry in timers._heap) == len(alive)


def test_a_close_during_a_pass_skips_no_connection() -> None:
    timers = HeartbeatTimers()
    fakes = [Fake(timers, 0, 100 + number % 3) for number in range(500)]
    keeper = Fake(timers, 100, 0)
    run(timers, 300)
    assert all(fake.closed for fake in fakes)
    assert keeper.sent == list(range(60, 300, 60))
    assert len(timers) <= 1 + 2 * SPARE
