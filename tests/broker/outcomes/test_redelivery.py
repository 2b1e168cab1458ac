"""Messages that come back: how often, how soon, and what ends it."""

from __future__ import annotations

import pytest

from radiator.broker.queues.policy import QueuePolicy
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.config import Settings
from radiator.stomp.spec import VERSIONS
from tests.broker.harness import Client, World


def rule(text: str, more: str = "") -> str:
    return f"destinations: [{{match: /queue/a, {text}}}{more}]"


def consumer(world: World, window: int = 1, ack: str = "client-individual") -> Client:
    client = world.connect()
    client.subscribe("/queue/a", ack=ack, prefetch_count=window)
    world.settle()
    return client


# --- back-off ---------------------------------------------------------------------------------------------------------


def test_a_back_off_delays_only_that_message_and_then_it_takes_its_place() -> None:
    world = World(rule("redeliver: {delay: 2s}"))
    client = consumer(world)
    client.publish("/queue/a", "1", "2", "3")
    world.settle()
    (first,) = client.messages()
    client.nack(first)
    world.settle()
    (second,) = client.messages()
    assert second.body == b"2"
    world.tick(2)
    client.ack(second)
    world.settle()
    (again,) = client.messages()
    assert again.body == b"1"
    assert again.headers["redelivered"] == "true" and again.headers["delivery-count"] == "2"


def pauses(world: World, most: int, step_ns: int = NS_PER_MS) -> list[int]:
    """How long each refusal of one message puts it off."""
    client = consumer(world)
    client.publish("/queue/a", "x")
    world.settle()
    found = []
    for _ in range(most):
        (message,) = client.messages()
        client.nack(message)
        world.settle()
        start = world.now
        if not client.inbox:
            world.until(world.broker.timing.next_ns)
            world.tick(0)
        found.append(round((world.now - start) / step_ns))
    return found


def test_a_fixed_back_off_is_the_same_each_time() -> None:
    assert pauses(World(rule("redeliver: {delay: 2s}")), 4, NS_PER_SECOND) == [2, 2, 2, 2]


def test_an_exponential_back_off_grows_up_to_its_most() -> None:
    world = World(rule("redeliver: {delay: 1s, backoff: 2, max_delay: 5s}"))
    assert pauses(world, 5, NS_PER_SECOND) == [1, 2, 4, 5, 5]


def test_a_jitter_spreads_and_never_goes_beyond_the_most() -> None:
    policy = QueuePolicy(
        Settings(
            redeliver_delay_ns=NS_PER_SECOND,
            redeliver_backoff=2.0,
            redeliver_max_delay_ns=3 * NS_PER_SECOND,
            redeliver_jitter=0.5,
        )
    )
    first = [policy.pause_ns(1, offset) / NS_PER_SECOND for offset in range(200)]
    assert all(0.5 <= pause <= 1.5 for pause in first) and max(first) - min(first) > 0.8
    third = [policy.pause_ns(3, offset) / NS_PER_SECOND for offset in range(200)]
    assert max(third) == 3.0 and min(third) < 2.5


def test_a_back_off_of_many_refusals_is_still_a_number() -> None:
    settings = Settings(redeliver_delay_ns=1, redeliver_backoff=100.0, redeliver_max_delay_ns=7)
    assert QueuePolicy(settings).pause_ns(1_000_000, 0) == 7
    assert QueuePolicy().pause_ns(1_000_000, 0) == NS_PER_SECOND


def test_without_a_word_the_first_refusals_are_at_once_and_then_it_slows_down() -> None:
    assert pauses(World(), 12) == [0, 0, 0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]


def test_a_back_off_of_nothing_is_always_at_once() -> None:
    assert pauses(World(rule("redeliver: {delay: 0ms}")), 20) == [0] * 20


@pytest.mark.parametrize(("delay", "seconds"), [("1500", 1.5), ("3s", 3), ("0", 0)])
def test_a_nack_may_say_itself_how_long(delay: str, seconds: float) -> None:
    world = World(rule("redeliver: {delay: 60s}"))
    client = consumer(world)
    client.publish("/queue/a", "x")
    world.settle()
    client.nack(client.messages()[0], delay=delay)
    world.settle()
    if seconds:
        world.tick(seconds - 0.001)
        assert client.bodies() == []
        world.tick(0.001)
    assert client.bodies() == ["x"]


def test_a_nack_with_a_delay_that_is_none_is_refused_and_what_it_held_goes_back() -> None:
    world = World()
    client, other = consumer(world), consumer(world)
    client.publish("/queue/a", "x")
    world.settle()
    client.nack(client.messages()[0], delay="soon")
    world.settle()
    assert client.error() == "bad-header"
    assert other.bodies() == ["x"]


def test_the_messages_of_a_consumer_that_leaves_are_requeued_at_once() -> None:
    world = World(rule("redeliver: {delay: 60s}"))
    client = consumer(world)
    client.publish("/queue/a", "x")
    world.settle()
    for count in range(2, 8):
        client.drop()
        client = consumer(world)
        (message,) = client.messages()
        assert message.headers["delivery-count"] == str(count)


# --- the count --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["kill", "restart"])
def test_the_count_outlives_the_broker_every_time(end: str) -> None:
    world = World()
    client = consumer(world)
    client.publish("/queue/a", "x", receipt="r")
    world.settle()
    assert client.bodies() == ["x"]
    for count in range(2, 8):
        getattr(world, end)()
        client = consumer(world)
        (message,) = client.messages()
        assert message.headers["redelivered"] == "true"
        assert message.headers["delivery-count"] == str(count)


def test_a_message_that_kills_the_broker_is_not_delivered_for_ever() -> None:
    world = World(rule("redeliver: {max: 3}, dead_letter: /queue/dead"))
    client = consumer(world)
    client.publish("/queue/a", "poison", "good")
    world.settle()
    for _ in range(3):
        assert client.bodies() == ["poison"]
        world.kill()
        client = consumer(world)
    assert client.bodies() == ["good"]
    client.subscribe("/queue/dead", id="d", prefetch_count=5)
    world.settle()
    (dead,) = client.messages()
    assert dead.body == b"poison" and dead.headers["dlq-deliveries"] == "3"


def test_a_delivery_that_kills_the_broker_at_once_is_counted() -> None:
    world = World(rule("redeliver: {max: 5}, dead_letter: /queue/dead"))
    client = consumer(world)
    client.publish("/queue/a", "poison", "good")
    world.settle()
    for count in range(2, 6):
        world.kill()
        client = world.connect()
        client.subscribe("/queue/a")
        while world.reads() | world.pump() | (client.flush() > 0):
            pass  # but nothing is written
        (message,) = client.messages()
        assert message.body == b"poison" and message.headers["delivery-count"] == str(count)
    world.kill()
    assert consumer(world).bodies() == ["good"]


def test_a_restart_alone_counts_nothing() -> None:
    world = World(rule("redeliver: {max: 2}"))
    client = consumer(world)
    client.publish("/queue/a", "x")
    world.settle()
    for _ in range(5):
        world.kill()
    assert [message.headers["delivery-count"] for message in consumer(world).messages()] == ["2"]


# --- the cap ----------------------------------------------------------------------------------------------------------


def test_a_message_that_was_delivered_often_enough_is_dropped_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(rule("redeliver: {max: 3}"))
    client = consumer(world)
    client.publish("/queue/a", "bad", "good")
    world.settle()
    for _ in range(3):
        (message,) = client.messages()
        assert message.body == b"bad"
        client.nack(message)
        world.settle()
    assert client.bodies() == ["good"]
    assert world.broker.stats.dropped_max_deliveries == 1
    assert "dead_letter" in caplog.text and "/queue/a" in caplog.text
    world.restart()
    assert [message.body for message in consumer(world).messages()] == [b"good"]


def test_a_finally_rejected_message_is_dropped_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    client = consumer(world)
    client.publish("/queue/a", "bad", "good")
    world.settle()
    client.nack(client.messages()[0], requeue="false", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]
    assert client.bodies() == ["good"]
    assert world.broker.stats.dropped_rejected == 1
    assert "dead_letter" in caplog.text


def test_requeue_true_is_a_plain_nack_and_anything_else_an_error() -> None:
    world = World()
    client = consumer(world)
    client.publish("/queue/a", "x")
    world.settle()
    client.nack(client.messages()[0], requeue="true")
    world.settle()
    client.nack(client.messages()[0], requeue="perhaps")
    world.settle()
    assert client.error() == "bad-header"


def never_written() -> World:
    """A consumer with ack:auto was handed the only delivery that the rule allows, and left before it was written."""
    world = World(rule("redeliver: {max: 1}"))
    client = world.connect()
    client.subscribe("/queue/a", ack="auto")
    client.publish("/queue/a", "x")
    world.commit()
    world.pump()
    client.drop()
    return world


def test_what_was_never_written_to_an_auto_consumer_is_no_attempt() -> None:
    world = never_written()
    assert consumer(world).bodies() == ["x"]


@pytest.mark.parametrize("again", ["restart", "kill"])
@pytest.mark.parametrize("before", [0, 1])
def test_nor_is_it_one_after_a_start(again: str, before: int) -> None:
    world = World(rule(f"redeliver: {{max: {before + 1}}}"))
    client = world.connect()
    client.publish("/queue/a", "x")
    for _ in range(before):
        consumer(world).drop()
    client.subscribe("/queue/a", ack="auto")
    world.commit()
    world.pump()
    client.drop()
    world.commit()
    for _ in range(2):
        getattr(world, again)()
    other = consumer(world)
    (message,) = other.messages()
    assert message.headers.get("delivery-count", "1") == str(before + 2)
    other.drop()
    assert consumer(world).bodies() == []
    assert world.broker.stats.dropped_max_deliveries == 1


def test_what_kills_the_broker_when_it_comes_again_is_not_spared_for_ever() -> None:
    """The journal has it that it was never written, the mapping that it went out once more since."""
    world = never_written()
    world.commit()
    world.connect().subscribe("/queue/a")
    world.pump()
    world.kill()
    assert consumer(world).bodies() == []


# --- deadlines --------------------------------------------------------------------------------------------------------

TIMEOUT = rule("ack_timeout: 10s")


def test_a_delivery_that_is_not_answered_goes_back_and_frees_the_window() -> None:
    world = World(TIMEOUT)
    client = consumer(world)
    client.publish("/queue/a", "1", "2")
    world.settle()
    (first,) = client.messages()
    other = consumer(world)
    (second,) = other.messages()
    other.ack(second)
    world.settle()
    world.tick(9.9)
    assert other.bodies() == []
    world.tick(0.1)
    (again,) = other.messages()
    assert again.body == b"1" and again.headers["delivery-count"] == "2"
    assert world.broker.stats.ack_timeouts == 1
    client.publish("/queue/a", "3")
    world.settle()
    assert client.bodies() == ["3"]
    client.ack(first, receipt="late")
    world.settle()
    assert client.receipts() == ["late"]
    assert world.broker.stats.late_acks == 1
    other.ack(again)
    world.settle()
    assert world.broker.stats.acks == 2


@pytest.mark.parametrize("by", ["ack", "message_id", "send"])
def test_touch_gives_a_delivery_its_time_again(by: str) -> None:
    world = World(TIMEOUT)
    client = consumer(world)
    client.publish("/queue/a", "1")
    world.settle()
    (message,) = client.messages()
    for _ in range(3):
        world.tick(9)
        if by == "ack":
            client.ack(message, touch="true", receipt="t")
        elif by == "message_id":
            client.say("ACK", id=message.headers["message-id"], touch="true", receipt="t")
        else:
            client.say("SEND", destination="/radiator/touch", id=message.headers["ack"], receipt="t")
        world.settle()
        assert client.receipts() == ["t"]
    assert client.bodies() == []
    world.tick(10)
    assert [each.headers["delivery-count"] for each in client.messages()] == ["2"]


def test_a_touch_that_comes_too_late_is_counted_and_one_of_nothing_is_an_error() -> None:
    world = World(TIMEOUT)
    client, other = consumer(world), consumer(world)
    client.publish("/queue/a", "1")
    world.settle()
    (message,) = client.messages()
    world.tick(10)
    assert other.bodies() == ["1"]
    client.ack(message, touch="true", receipt="t")
    world.settle()
    assert client.receipts() == ["t"] and world.broker.stats.late_acks == 1
    client.say("SEND", destination="/radiator/touch", id="nothing")
    world.settle()
    assert client.error() == "bad-ack"


def test_a_deadline_does_not_pass_for_what_a_transaction_has_acknowledged() -> None:
    world = World(TIMEOUT)
    client, other = consumer(world), consumer(world)
    client.publish("/queue/a", "1")
    world.settle()
    (message,) = client.messages()
    client.say("BEGIN", transaction="t")
    client.ack(message, transaction="t")
    world.tick(10)
    assert other.bodies() == []
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.receipts() == ["c"] and world.broker.stats.late_acks == 0
    world.tick(10)
    assert other.bodies() == [] and world.broker.stats.acks == 1


def test_deadlines_under_cumulative_acks_and_of_a_clock_set_back() -> None:
    world = World(TIMEOUT)
    client = consumer(world, window=10, ack="client")
    client.publish("/queue/a", "1", "2", "3")
    world.settle()
    messages = client.messages()
    client.ack(messages[1])
    world.settle()
    world.now -= 3600 * NS_PER_SECOND
    world.tick(0)
    world.tick(5)
    assert client.bodies() == []
    world.tick(5)
    assert client.bodies() == ["3"]
    (source,) = world.broker.destination("/queue/a").queue.sources
    assert len(source.timeouts) == 1


def test_a_delivery_under_auto_has_no_ack_timeout() -> None:
    world = World(TIMEOUT)
    client = world.connect()
    client.subscribe("/queue/a", ack="auto")
    client.publish("/queue/a", "1")
    world.settle()
    world.tick(30)
    assert client.bodies() == ["1"]
    assert world.broker.stats.ack_timeouts == 0


def test_a_consumer_that_never_answers_does_not_get_the_message_for_ever() -> None:
    world = World(rule("ack_timeout: 1s, redeliver: {max: 2}, dead_letter: /queue/dead"))
    client = consumer(world)
    client.publish("/queue/a", "1")
    world.settle()
    world.tick(1)
    world.tick(1)
    assert client.bodies() == ["1", "1"]
    client.subscribe("/queue/dead", id="d", prefetch_count=5)
    world.settle()
    assert [each.headers["dlq-reason"] for each in client.messages()] == ["max-deliveries"]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_delivery_says_how_many_there_were(ack: str, version: str) -> None:
    world = World()
    queue, named, group, topic = (world.connect(version) for _ in range(4))
    queue.subscribe("/queue/a", ack=ack, prefetch_count="10")
    named.subscribe("/topic/a", ack=ack, subscription_name="n")
    group.subscribe("/topic/a", ack=ack, group="g", prefetch_count="10")
    topic.subscribe("/topic/a", ack=ack)
    for name in ("/queue/a", "/topic/a"):
        queue.publish(name, "1", "2")
    world.settle()
    for client in (queue, named, group):
        assert [message.headers["delivery-count"] for message in client.messages()] == ["1", "1"]
    assert [message.headers.get("delivery-count") for message in topic.messages()] == [None, None]
    queue.drop()
    named.drop()
    world.settle()
    back = world.connect(version)
    back.subscribe("/queue/a", ack="client-individual", prefetch_count="10")
    back.subscribe("/topic/a", id="n", ack="client-individual", subscription_name="n")
    world.settle()
    counts = [message.headers["delivery-count"] for message in back.messages()]
    assert counts == ([] if ack == "auto" else ["2"] * 4)


def test_a_look_at_a_queue_counts_nothing() -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "1")
    client.subscribe("/queue/a", id="look", ack="auto", browser="true")
    world.settle()
    (message, *_) = client.messages()
    assert message.body == b"1" and "delivery-count" not in message.headers
