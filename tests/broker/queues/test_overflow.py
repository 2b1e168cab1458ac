"""A queue that is full: who waits, for how long, who goes on, and what is given up."""

from __future__ import annotations

import pytest

from tests.broker.harness import Client, World

BLOCK = "destinations: [{match: '/queue/a', max_messages: 2, on_full: block, block_timeout: 10s}]"
LAST = "destinations: [{match: '/queue/a', max_messages: 1, on_full: drop_oldest}]"
Q = "/queue/a"


def blocked(world: World, *bodies: str) -> Client:
    """A producer whose last messages wait: two have found room."""
    sender = world.connect()
    sender.publish(Q, *bodies)
    world.settle()
    assert sender.rest
    return sender


def waiting(world: World) -> list[str]:
    """What is in the queue, for a reader who takes nothing."""
    looker = world.connect()
    looker.subscribe(Q, ack="auto", start_position="first", stop_position="end")
    world.settle()
    found = [body for body in looker.bodies() if body]
    looker.drop()
    return found


# --- on_full: block ---------------------------------------------------------------------------------------------------


def test_a_sender_waits_until_there_is_room_and_loses_nothing() -> None:
    world = World(BLOCK)
    sender = blocked(world, "1", "2", "3", "4", "5")
    assert waiting(world) == ["1", "2"]
    assert world.broker.stats.blocked == 1
    client = world.connect()
    client.subscribe(Q)
    heard: list[str] = []
    for _ in range(5):
        world.settle()
        (message,) = client.messages()
        heard.append(message.body.decode())
        client.ack(message)
    assert heard == ["1", "2", "3", "4", "5"]
    assert not sender.rest and not sender.session.closing
    assert not world.broker.throttle.held


def test_the_frames_behind_it_wait_and_those_of_other_clients_do_not() -> None:
    world = World(BLOCK)
    sender = world.connect()
    sender.subscribe("/queue/other")
    other = world.connect()
    other.publish("/queue/other", "work", "more")
    world.settle()
    (message,) = sender.messages()
    sender.publish(Q, "1", "2", "3")
    sender.ack(message)
    other.publish("/queue/b", "free", receipt="r")
    world.settle()
    assert other.receipts() == ["r"]
    assert sender.messages() == []  # its ACK has not been heard
    client = world.connect()
    client.subscribe(Q, ack="auto")
    world.settle()
    assert sender.bodies() == ["more"]


def test_after_its_time_a_waiting_send_is_refused_because_the_queue_is_full() -> None:
    world = World(BLOCK)
    sender = blocked(world, "1", "2", "3")
    assert world.broker.throttle.next_ns == world.time.mono + 10 * 10**9
    world.tick(9.9)
    assert not sender.session.closing
    world.tick(0.2)
    (error,) = sender.take("ERROR")
    assert error.headers["error-code"] == "full"
    assert b"max_messages: 2" in error.body and b"block_timeout" in error.body
    assert not world.broker.throttle.held


def test_the_time_of_each_message_is_its_own() -> None:
    world = World(BLOCK)
    sender = blocked(world, "1", "2", "3", "4")
    client = world.connect()
    client.subscribe(Q)
    world.tick(8)
    client.ack(*client.messages())
    world.settle()
    assert world.broker.stats.messages_in == 3
    world.tick(8)
    assert not sender.session.closing and sender.rest
    world.tick(3)
    assert sender.error() == "full"


def test_without_block_timeout_it_waits_for_ever() -> None:
    world = World(BLOCK.replace("10s", "none"))
    sender = blocked(world, "1", "2", "3")
    for _ in range(100):
        world.tick(3_600)
    assert not sender.session.closing and sender.rest


def test_a_clock_that_is_set_back_makes_no_send_wait_longer() -> None:
    world = World(BLOCK)
    sender = blocked(world, "1", "2", "3")
    world.tick(5)
    world.tick(-3_600)
    world.tick(6)
    assert sender.error() == "full"


@pytest.mark.parametrize("how", ["unsubscribe and drain", "expiry"])
def test_room_comes_back_in_every_way(how: str) -> None:
    world = World(BLOCK)
    sender = world.connect()
    sender.publish(Q, "1", "2", expires=(world.now // 10**6) + 5_000)
    sender.publish(Q, "3")
    world.settle()
    assert sender.rest
    client = world.connect()
    if how == "expiry":
        world.tick(6)
        client.subscribe(Q, ack="auto")
    else:
        client.subscribe(Q, ack="auto")
    world.tick(0)
    assert not sender.rest
    assert client.bodies()[-1] == "3"


def test_a_client_that_leaves_while_it_waits_is_forgotten() -> None:
    world = World(BLOCK)
    sender = blocked(world, "1", "2", "3")
    sender.drop()
    world.clients.remove(sender)
    assert not world.broker.throttle.held
    world.tick(20)
    assert waiting(world) == ["1", "2"]
    world.holds_nothing()


def test_what_can_never_fit_is_refused_at_once() -> None:
    world = World("destinations: [{match: '/queue/a', max_bytes: 1KiB, on_full: block}]")
    sender = world.connect()
    sender.publish(Q, "x" * 2_000)
    world.settle()
    assert sender.error() == "full"


# --- transactions -----------------------------------------------------------------------------------------------------


def transaction(client: Client, *bodies: str) -> None:
    client.say("BEGIN", transaction="t")
    client.publish(Q, *bodies, transaction="t")
    client.say("COMMIT", receipt="c", transaction="t")


def test_a_commit_waits_as_a_whole() -> None:
    world = World(BLOCK)
    sender = world.connect()
    sender.publish(Q, "0")
    transaction(sender, "1", "2")
    world.settle()
    assert waiting(world) == ["0"]
    assert sender.receipts() == []
    client = world.connect()
    client.subscribe(Q, ack="auto")
    world.settle()
    assert client.bodies() == ["0", "1", "2"]
    assert sender.receipts() == ["c"]


def test_a_commit_that_waited_too_long_has_done_nothing() -> None:
    world = World(BLOCK)
    sender = world.connect()
    sender.publish(Q, "0")
    transaction(sender, "1", "2")
    world.tick(11)
    assert sender.error() == "full"
    assert waiting(world) == ["0"]


def test_a_commit_that_can_never_fit_is_refused_at_once() -> None:
    world = World(BLOCK)
    sender = world.connect()
    transaction(sender, "1", "2", "3")
    world.settle()
    assert sender.error() == "full"
    assert waiting(world) == []


# --- max_messages: 1 and drop_oldest: the last value ------------------------------------------------------------------


def test_a_last_value_replaces_the_one_in_flight_without_an_error() -> None:
    world = World(LAST)
    sender, client = world.connect(), world.connect()
    client.subscribe(Q)
    sender.publish(Q, "1")
    world.settle()
    (first,) = client.messages()
    sender.publish(Q, "2", "3", "4")
    world.settle()
    assert not sender.session.closing
    client.ack(first)
    world.settle()
    assert client.bodies() == ["4"]
    assert world.broker.stats.dropped_oldest == 2


@pytest.mark.parametrize("how", ["nack", "lost"])
def test_what_was_replaced_in_flight_does_not_come_back(how: str) -> None:
    world = World(LAST)
    sender, client = world.connect(), world.connect()
    client.subscribe(Q)
    sender.publish(Q, "1")
    world.settle()
    (first,) = client.messages()
    sender.publish(Q, "2")
    world.settle()
    if how == "nack":
        client.nack(first)
    else:
        client.drop()
        client = world.connect()
        client.subscribe(Q)
    world.settle()
    assert client.bodies() == ["2"]
    assert world.broker.stats.dropped_oldest == 1


def test_a_transaction_into_a_last_value_leaves_its_last() -> None:
    world = World(LAST)
    sender, client = world.connect(), world.connect()
    transaction(sender, "1", "2", "3")
    world.settle()
    assert sender.receipts() == ["c"]
    client.subscribe(Q, ack="auto")
    world.settle()
    assert client.bodies() == ["3"]


# --- what is not due --------------------------------------------------------------------------------------------------

TEN = "destinations: [{match: '/queue/a', max_messages: 10, on_full: drop_oldest}]"


def test_what_is_not_due_is_the_oldest_as_any_other_and_counts() -> None:
    world = World(TEN)
    client = world.connect()
    client.subscribe(Q, prefetch_count=50)
    for number in range(500):
        client.publish(Q, f"{number}", delay="1h" if number % 2 else "2h")
        world.settle()
    queue = world.broker.destination(Q).queue
    assert queue is not None
    assert queue.backlog == 10 and world.broker.stats.dropped_oldest == 490
    assert len(queue.sources[0].deferred) == 10 == world.broker.timing.deferred
    world.tick(3_601)
    assert client.bodies() == ["491", "493", "495", "497", "499"]
    world.tick(3_600)
    assert client.bodies() == ["490", "492", "494", "496", "498"]
    assert world.broker.timing.deferred == 0


def test_nacks_with_a_delay_do_not_make_a_queue_grow() -> None:
    world = World(TEN)
    client = world.connect()
    client.subscribe(Q, prefetch_count=5)
    for number in range(100):
        client.publish(Q, f"{number}")
        world.settle()
        for message in client.messages():
            client.nack(message, delay="1h")
    world.settle()
    queue = world.broker.destination(Q).queue
    assert queue is not None and queue.backlog == 10
    for _ in range(20):
        world.tick(3_601)
        messages = client.messages()
        if not messages:
            break
        for message in messages:
            client.ack(message)
    world.settle()
    assert queue.backlog == 0 == world.broker.timing.deferred


def test_what_was_given_up_stays_away_while_others_come_and_go() -> None:
    world = World(TEN)
    client = world.connect()
    client.publish(Q, *[f"{number}" for number in range(6)])
    client.subscribe(Q, prefetch_count=50)
    world.settle()
    for message in client.messages():
        client.nack(message, delay="10s")
    client.publish(Q, *["x"] * 6, delay="5s")  # two of those that were refused have to go
    world.settle()
    world.tick(6)
    assert client.bodies() == ["x"] * 6
    world.tick(5)
    assert client.bodies() == ["2", "3", "4", "5"]
    world.tick(100)
    assert client.bodies() == [] and world.broker.timing.deferred == 0


def test_no_error_text_is_built_for_a_send_that_goes_on_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(BLOCK)
    sender = blocked(world, "1", "2", "3")
    asked = []
    monkeypatch.setattr("radiator.broker.admission._shortage", lambda *_: asked.append(1) or "full")
    for _ in range(100):
        assert not sender.go_on()
    assert not asked
