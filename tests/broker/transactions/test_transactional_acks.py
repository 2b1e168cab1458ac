"""What an open transaction has acknowledged: it is acknowledged with it, or nothing of the transaction happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World

Q, RESULTS, T = "/queue/a", "/queue/results", "/topic/a"
TIMED = "destinations: [{match: '/queue/a', ack_timeout: 10s, partitions: 1}]"
TWO = "destinations: [{match: '/queue/a,/queue/b', ack_timeout: 10s}]"
VERSIONS = ["1.0", "1.1", "1.2"]


def holding(
    number: int = 1, version: str = "1.2", config: str = TIMED, destination: str = Q, **headers: Any
) -> tuple[World, Client, list[Frame]]:
    """A client that holds so many messages, and has a transaction open."""
    world = World(config)
    sender, client = world.connect(), world.connect(version)
    client.subscribe(destination, **{"prefetch_count": number, **headers})
    world.settle()
    sender.publish(destination, *map(str, range(number)))
    world.settle()
    messages = client.messages()
    assert len(messages) == number
    client.say("BEGIN", transaction="t")
    return world, client, messages


def work(client: Client, *messages: Frame, command: str = "ACK", **headers: Any) -> None:
    """The fruit of these messages, and that they are done."""
    client.publish(RESULTS, "fruit", transaction="t")
    for message in messages:
        client.ack(message, command, transaction="t", **headers)


def commit(client: Client) -> None:
    client.say("COMMIT", transaction="t", receipt="c")
    client.world.settle()


def results(world: World) -> list[str]:
    return kept(world, RESULTS)


def kept(world: World, name: str) -> list[str]:
    """What a new consumer of this queue gets."""
    client = world.connect()
    client.subscribe(name, ack="auto")
    world.settle()
    return client.bodies()


def assert_done(world: World, client: Client) -> None:
    assert client.take("ERROR") == [] and client.receipts() == ["c"]
    client.drop()
    assert results(world) == ["fruit"]


def assert_refused(world: World, client: Client) -> None:
    assert client.receipts() == [] and client.error() == "bad-ack"
    client.drop()
    assert results(world) == []


# --- the time to answer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_the_ack_timeout_stops_until_commit(version: str, ack: str) -> None:
    world, client, messages = holding(2, version, ack=ack)
    work(client, *(messages if ack == "client-individual" else messages[-1:]))
    world.tick(11)
    world.tick(100)
    assert client.messages() == [] and world.broker.stats.ack_timeouts == 0
    commit(client)
    world.tick(11)
    assert_done(world, client)
    assert kept(world, Q) == []


def test_what_the_transaction_has_not_answered_goes_back_in_time() -> None:
    world, client, messages = holding(3, ack="client")
    work(client, messages[0])
    world.tick(11)
    assert [each.body for each in client.messages()] == [b"1", b"2"] and world.broker.stats.ack_timeouts == 2
    commit(client)
    assert_done(world, client)


def test_a_touch_does_not_make_the_time_run_again() -> None:
    world, client, (message,) = holding()
    work(client, message)
    client.ack(message, touch="true")
    world.tick(11)
    assert world.broker.stats.ack_timeouts == 0
    commit(client)
    assert_done(world, client)


def test_after_abort_there_is_the_whole_time_again() -> None:
    world, client, (message,) = holding()
    work(client, message)
    world.tick(60)
    client.say("ABORT", transaction="t")
    world.tick(9)
    assert client.messages() == []
    world.tick(2)
    assert [each.headers["delivery-count"] for each in client.messages()] == ["2"]


def test_a_nack_that_waits_for_commit_keeps_its_delivery_too() -> None:
    world, client, (message,) = holding()
    work(client, message, command="NACK", requeue="false")
    world.tick(11)
    assert client.messages() == []
    commit(client)
    assert world.broker.stats.dropped_rejected == 1
    assert_done(world, client)


def test_what_two_transactions_acknowledge_goes_back_when_none_of_them_is_open() -> None:
    world, client, (message,) = holding()
    client.say("BEGIN", transaction="u")
    for name in "tu":
        client.ack(message, transaction=name)
    client.say("ABORT", transaction="t")
    client.say("ABORT", transaction="u")
    world.tick(11)
    assert world.broker.stats.ack_timeouts == 1


# --- what is not held any more ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_the_time_runs_for_what_was_given_back_outside_of_the_transaction_and_comes_again(ack: str) -> None:
    world, client, (message,) = holding(ack=ack)
    work(client, message)
    client.nack(message)
    world.settle()
    (again,) = client.messages()
    assert again.headers["delivery-count"] == "2"
    world.tick(11)
    (third,) = client.messages()
    assert third.headers["delivery-count"] == "3"


def unsubscribes(world: World, client: Client) -> None:
    client.say("UNSUBSCRIBE", id="0")


def comes_again(world: World, client: Client) -> None:
    client.say("UNSUBSCRIBE", id="0")
    client.subscribe(Q)
    world.settle()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("loses", [unsubscribes, comes_again])
@pytest.mark.parametrize("first", ["lost", "acknowledged"])
def test_a_commit_that_acknowledges_what_went_back_does_nothing(
    version: str, loses: Callable[[World, Client], None], first: str
) -> None:
    world, client, (message,) = holding(version=version)
    if first == "lost":
        loses(world, client)
    work(client, message)
    if first == "acknowledged":
        loses(world, client)
    commit(client)
    if first == "lost" and loses is comes_again and version != "1.2":
        assert_done(world, client)  # its id means the delivery of now
        return
    assert_refused(world, client)
    assert kept(world, Q) == ["0"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("settled", [True, False])
def test_an_ack_whose_time_had_run_out_when_it_came_refuses_the_commit(version: str, settled: bool) -> None:
    world, client, (message,) = holding(version=version)
    other = world.connect()
    other.subscribe(Q)
    world.tick(11)
    (taken,) = other.messages()
    if settled:
        other.ack(taken)
        world.settle()
    work(client, message)
    commit(client)
    assert_refused(world, client)


def test_what_comes_to_it_again_after_the_late_ack_does_not_make_the_ack_good() -> None:
    world, client, (message,) = holding()
    other = world.connect()
    other.subscribe(Q)
    world.tick(11)
    assert len(other.messages()) == 1
    work(client, message)
    other.drop()
    world.settle()
    assert len(client.messages()) == 1
    commit(client)
    assert_refused(world, client)


def test_an_ack_of_all_before_it_is_late_for_one_of_them() -> None:
    world, client, _ = holding(ack="client", prefetch_count=5)
    sender, other = world.connect(), world.connect()
    world.tick(6)
    sender.publish(Q, "second")
    world.settle()
    (second,) = client.messages()
    other.subscribe(Q, prefetch_count=5)
    world.tick(5)
    assert other.bodies() == ["0"] and client.messages() == []
    work(client, second)
    commit(client)
    assert_refused(world, client)


def test_an_ack_of_all_before_it_is_late_for_one_of_another_queue() -> None:
    world = World(TWO)
    sender, client, other = world.connect(), world.connect(), world.connect()
    client.subscribe(f"{Q},/queue/b", ack="client", prefetch_count=5)
    sender.publish(Q, "0")
    world.settle()
    assert client.bodies() == ["0"]
    client.say("BEGIN", transaction="t")
    world.tick(6)
    sender.publish("/queue/b", "second")
    world.settle()
    (second,) = client.messages()
    other.subscribe(f"{Q},/queue/b", prefetch_count=5)
    world.tick(5)
    assert other.bodies() == ["0"]
    work(client, second)
    commit(client)
    assert_refused(world, client)


def test_an_answer_to_what_came_before_a_lost_message_does_not_stand_for_that() -> None:
    world, client, (first,) = holding(ack="client", prefetch_count=5)
    sender, other = world.connect(), world.connect()
    sender.publish(Q, "second")
    world.settle()
    world.tick(6)
    client.ack(first, touch="true")
    sender.publish(Q, "third")
    world.settle()
    _, third = client.messages()
    other.subscribe(Q, prefetch_count=5)
    world.tick(5)
    assert other.bodies() == ["second"]
    client.ack(first)
    work(client, third)
    commit(client)
    assert_refused(world, client)


def test_a_later_cumulative_ack_covers_a_late_message_before_it() -> None:
    world, client, _ = holding(ack="client", prefetch_count=5)
    sender, other = world.connect(), world.connect()
    world.tick(6)
    sender.publish(Q, "second", "third")
    world.settle()
    second, third = client.messages()
    other.subscribe(Q, prefetch_count=5)
    world.tick(5)
    assert other.bodies() == ["0"]
    client.ack(second)
    work(client, third)
    commit(client)
    assert_done(world, client)


# --- what is repeated -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_that_is_repeated_in_its_transaction_is_harmless(version: str) -> None:
    world, client, (message,) = holding(version=version)
    work(client, message, message)
    commit(client)
    assert_done(world, client)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_ack_of_what_another_ack_has_settled_is_harmless(version: str, when: str) -> None:
    world, client, (message,) = holding(version=version)
    if when == "before":
        client.ack(message)
    work(client, message)
    if when == "after":
        client.ack(message)
    client.say("UNSUBSCRIBE", id="0")
    commit(client)
    assert_done(world, client)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_an_ack_of_a_delivery_that_went_back_is_not_taken_for_one_of_the_next_delivery(ack: str) -> None:
    world, client, (message,) = holding(ack=ack)
    world.tick(11)
    (again,) = client.messages()
    assert again.headers["message-id"] == message.headers["message-id"]
    work(client, message)
    commit(client)
    assert_refused(world, client)
    assert kept(world, Q) == ["0"]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_message_id_means_the_delivery_that_is_held_when_the_ack_comes(version: str) -> None:
    world, client, (message,) = holding(version=version)
    world.tick(11)
    assert len(client.messages()) == 1
    work(client, message)
    commit(client)
    assert_done(world, client)
    assert kept(world, Q) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_of_a_delivery_that_went_back_refuses_the_commit_though_the_next_one_was_acknowledged(
    version: str,
) -> None:
    world, client, (message,) = holding(version=version)
    world.tick(11)
    (again,) = client.messages()
    client.ack(again)
    work(client, message)
    commit(client)
    assert_refused(world, client)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_ack_refuses_the_commit_after_a_later_delivery_went_back(version: str) -> None:
    """Which of the two it was is not remembered, and a COMMIT that is refused has done no harm."""
    world, client, (message,) = holding(version=version)
    client.ack(message)
    world.connect().publish(Q, "1")
    world.settle()
    world.tick(11)
    work(client, message)
    commit(client)
    assert_refused(world, client)


def test_a_repeated_ack_is_harmless_after_an_earlier_delivery_went_back() -> None:
    world, client, _ = holding()
    world.tick(11)
    (again,) = client.messages()
    client.ack(again)
    work(client, again)
    commit(client)
    assert_done(world, client)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_delivered_by_a_replay_that_has_ended_can_be_acknowledged_in_a_transaction(version: str) -> None:
    world = World()
    world.connect().publish(T, "0", "1")
    world.settle()
    client = world.connect(version)
    client.subscribe(T, start_position="first", stop_position="end")
    world.settle()
    messages = client.messages()
    assert len(messages) == 3 and not client.session.subscriptions.by_id
    client.say("BEGIN", transaction="t")
    work(client, *messages)
    commit(client)
    assert_done(world, client)


def test_a_nack_that_is_late_in_a_transaction_has_what_it_asked_for() -> None:
    world, client, (message,) = holding()
    work(client, message, command="NACK")
    client.say("UNSUBSCRIBE", id="0")
    commit(client)
    assert_done(world, client)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_of_a_topic_has_nowhere_to_go_back_to(version: str) -> None:
    world, client, (message,) = holding(version=version, destination=T)
    work(client, message)
    client.say("UNSUBSCRIBE", id="0")
    commit(client)
    assert_done(world, client)


def test_a_late_ack_outside_of_transactions_is_counted_and_ignored() -> None:
    world, client, (message,) = holding()
    client.say("UNSUBSCRIBE", id="0")
    client.ack(message, receipt="c")
    world.settle()
    assert client.receipts() == ["c"] and world.broker.stats.late_acks == 1 and not client.session.closing


# --- memory -----------------------------------------------------------------------------------------------------------


def test_what_is_answered_leaves_nothing_behind() -> None:
    _, client, (message,) = holding(ack="client")
    subscription = client.session.subscriptions.by_id["0"]
    work(client, message)
    assert subscription.transactional
    commit(client)
    assert not subscription.transactional


def test_the_end_of_a_replay_is_never_late() -> None:
    world, client, _ = holding()
    client.publish(T, "x")
    world.tick(11)
    assert world.broker.stats.ack_timeouts == 1
    client.subscribe(T, "1", start_position="first", stop_position="end")
    world.settle()
    end = client.messages()[-1]
    assert end.headers["replay-end"] == "true"
    work(client, end)
    commit(client)
    assert_done(world, client)


def test_what_a_transaction_refuses_and_then_acknowledges_has_to_be_held_too() -> None:
    _, client, (message,) = holding()
    client.nack(message, transaction="t")
    work(client, message)
    client.say("UNSUBSCRIBE", id="0")
    client.world.settle()
    commit(client)
    assert client.error() == "bad-ack"
