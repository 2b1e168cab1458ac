"""Who has the loop, and for how long: many small frames of some are work in portions, and others have their turn."""

from __future__ import annotations

import json
import selectors
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from statistics import median

import pytest

from radiator import clock, limits
from radiator.server.scheduler import (
    BUSY_ROUNDS,
    CROWD,
    CROWD_RECV_BYTES,
    ROUND_NS,
    ROUND_NS_MAX,
    SLICE_NS,
    ReadScheduler,
)
from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
# Two heads in turns, so that each message is sent by itself: a run with one head costs little more than one message.
SMALL = b"SEND\ndestination:/topic/m\n\n\0SEND\ndestination:/topic/m\na:b\n\n\0" * 5_000


# --- a flood at a real broker -----------------------------------------------------------------------------------------


def published(wire: Wire) -> int:
    """How many messages the broker has taken until it looked at this question."""
    wire.say("SEND", b'{"do": "stats"}', destination="/radiator/admin", reply_to="/temp-queue/x")
    return int(json.loads(wire.hear("MESSAGE").body)["stats"]["messages_in"])


@contextmanager
def flood(wires: list[Wire]) -> Iterator[None]:
    """Send as many small frames as the broker takes, over each of these connections."""
    ended = threading.Event()

    def send() -> None:
        rest = dict.fromkeys(wires, memoryview(SMALL))
        with selectors.DefaultSelector() as selector:
            for wire in wires:
                wire.socket.setblocking(False)
                selector.register(wire.socket, selectors.EVENT_WRITE, wire)
            while not ended.is_set():
                for key, _ in selector.select(0.1):
                    wire = key.data
                    with suppress(BlockingIOError):
                        rest[wire] = rest[wire][wire.socket.send(rest[wire]) :] or memoryview(SMALL)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for wire in wires:
            wire.close()


@pytest.mark.thorough
@pytest.mark.parametrize("crowd", [1, 200])
def test_clients_that_flood_count_as_one_and_leave_others_their_turn(start_broker: StartBroker, crowd: int) -> None:
    """What is counted is the work that is done for others while one question is answered, so no clock has a say."""
    broker = start_broker("destinations: [{match: '/topic/m', store: memory}]")
    with Wire(broker) as bystander:
        bystander.open()
        bystander.say("SUBSCRIBE", destination="/temp-queue/x", id="0", receipt="s")
        bystander.hear("RECEIPT")
        with flood([Wire(broker).open() for _ in range(crowd)]):
            while published(bystander) < 20_000:
                pass
            counts = [published(bystander) for _ in range(21)]
    between = median(after - before for before, after in pairwise(counts))
    assert 0 < between < 40_000  # 3,000 to 12,000, however many they are; in equal shares for 200 it was 85,000


# --- one visit --------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        monkeypatch.setattr(clock, "monotonic_ns", lambda: self.now)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_visit_ends_by_time_or_by_bytes(now: Clock) -> None:
    scheduler = ReadScheduler()
    scheduler.begin("10.0.0.1")
    assert not scheduler.slice_over() and not scheduler.count(limits.RECV_VISIT_BYTES_MAX - 1)
    assert scheduler.count(1)
    scheduler.begin("10.0.0.1")
    now.now += SLICE_NS + 1
    assert scheduler.slice_over() and scheduler.count(1)


# --- rounds -----------------------------------------------------------------------------------------------------------


class Busy:
    """A connection that always has more to do; each visit takes ``cost_ns``."""

    def __init__(self, scheduler: ReadScheduler, now: Clock, origin: str, cost_ns: int = SLICE_NS) -> None:
        self.scheduler = scheduler
        self.now = now
        self.origin = origin
        self.cost_ns = cost_ns
        self.turns = 0
        scheduler.enqueue(self)

    def run_slice(self) -> None:
        self.turns += 1
        self.now.now += self.cost_ns
        self.scheduler.enqueue(self)


def rounds(scheduler: ReadScheduler, count: int) -> None:
    for _ in range(count):
        scheduler.begin_queued(clock.monotonic_ns())
        assert scheduler.run_queued()
        scheduler.next_round()


def test_a_round_takes_no_longer_however_many_are_busy(now: Clock) -> None:
    scheduler = ReadScheduler()
    crowd = [Busy(scheduler, now, f"10.0.{number % 50}.1") for number in range(1_000)]
    rounds(scheduler, 1)
    assert sum(each.turns for each in crowd) == ROUND_NS // SLICE_NS


def test_origins_have_the_same_time_however_many_connections_they_have(now: Clock) -> None:
    scheduler = ReadScheduler()
    crowd = [Busy(scheduler, now, "10.0.0.1") for _ in range(200)]
    one = Busy(scheduler, now, "10.0.0.2")
    other = Busy(scheduler, now, "10.0.0.3")
    rounds(scheduler, 240)
    assert abs(one.turns - 400) <= 2 and abs(other.turns - 400) <= 2
    assert Counter(each.turns for each in crowd) == {2: 200}  # they take turns among themselves


def test_an_origin_that_takes_longer_has_fewer_turns(now: Clock) -> None:
    scheduler = ReadScheduler()
    short = Busy(scheduler, now, "10.0.0.1", SLICE_NS // 4)
    long = Busy(scheduler, now, "10.0.0.2", 10 * SLICE_NS)
    rounds(scheduler, 200)
    assert short.turns * short.cost_ns == pytest.approx(long.turns * long.cost_ns, rel=0.05)


def test_an_idle_connection_does_not_wait_for_busy_ones_of_its_address(now: Clock) -> None:
    scheduler = ReadScheduler()
    for _ in range(200):
        Busy(scheduler, now, "10.0.0.1")
    for _ in range(20):
        rounds(scheduler, 1)
        assert scheduler.try_begin("10.0.0.1", 0)


def test_a_recently_busy_connection_waits_in_the_queue(now: Clock) -> None:
    scheduler = ReadScheduler()
    busy_until = scheduler.busy_until
    for _ in range(BUSY_ROUNDS):
        assert not scheduler.try_begin("10.0.0.1", busy_until)
        scheduler.next_round()
    assert scheduler.try_begin("10.0.0.1", busy_until)


def test_short_visits_of_one_origin_take_no_more_than_a_round(now: Clock) -> None:
    scheduler = ReadScheduler()
    admitted = 0
    while scheduler.try_begin("10.0.0.1", 0):
        now.now += SLICE_NS // 2
        scheduler.end()
        admitted += 1
    assert admitted == 2 * ROUND_NS // SLICE_NS
    assert scheduler.try_begin("10.0.0.2", 0)
    scheduler.next_round()
    assert scheduler.try_begin("10.0.0.1", 0)


@pytest.mark.parametrize(("turn_ns", "round_ns"), [(ROUND_NS // 2, ROUND_NS), (2 * ROUND_NS, 2 * ROUND_NS)])
def test_a_round_is_as_long_as_its_turns_where_these_are_long(now: Clock, turn_ns: int, round_ns: int) -> None:
    scheduler = ReadScheduler()
    busy = Busy(scheduler, now, "10.0.0.1")
    turn(scheduler, now, turn_ns)
    assert busy.turns == round_ns // SLICE_NS
    admitted = 0
    while scheduler.try_begin("10.0.0.2", 0):
        now.now += SLICE_NS
        scheduler.end()
        admitted += 1
    assert admitted == round_ns // SLICE_NS


def test_a_long_turn_makes_rounds_no_longer_than_the_most_and_is_forgotten(now: Clock) -> None:
    scheduler = ReadScheduler()
    busy = Busy(scheduler, now, "10.0.0.1")
    turn(scheduler, now, 1_000 * ROUND_NS)
    assert busy.turns == ROUND_NS_MAX // SLICE_NS
    for _ in range(100):
        turn(scheduler, now, 0)
    before = busy.turns
    turn(scheduler, now, 0)
    assert busy.turns - before == ROUND_NS // SLICE_NS


def turn(scheduler: ReadScheduler, now: Clock, turn_ns: int) -> None:
    """A turn of the driver: something else for ``turn_ns``, and then the lines."""
    began_ns = now.now
    now.now += turn_ns
    scheduler.begin_queued(began_ns)
    scheduler.run_queued()
    scheduler.next_round()


def test_one_that_waits_has_its_turn_in_any_case(now: Clock) -> None:
    scheduler = ReadScheduler()
    waiting = Busy(scheduler, now, "10.0.0.1")
    scheduler.begin_queued(clock.monotonic_ns())
    now.now += 2 * ROUND_NS  # others had all the time
    assert scheduler.round_over
    scheduler.run_queued()
    assert waiting.turns == 1


def test_many_that_are_busy_are_read_in_smaller_pieces(now: Clock) -> None:
    scheduler = ReadScheduler()
    for number in range(CROWD + 1):
        assert scheduler.recv_bytes == limits.RECV_BYTES
        Busy(scheduler, now, f"10.0.0.{number}")
        scheduler.next_round()
    assert scheduler.recv_bytes == CROWD_RECV_BYTES
