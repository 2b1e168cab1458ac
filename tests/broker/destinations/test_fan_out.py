"""fan_out: queues that get the messages of another destination, without a copy of them."""

from __future__ import annotations

import pytest

from radiator.config import load_text
from radiator.errors import ConfigError
from radiator.routing.rules import Rules
from tests.broker.harness import World
from tests.broker.queues.test_queue import drain, fill

P, A, B = "/queue/events", "/queue/events.billing", "/queue/events.audit"
FAN = "destinations: [{match: /queue/events, fan_out: [/queue/events.billing, /queue/events.audit]}]"
PLAIN = "destinations: []"
ONE = "destinations: [{match: /queue/events, fan_out: [/queue/events.billing]}]"


def world_of(config: str = FAN) -> World:
    return World(config)


def under(world: World, config: str) -> World:
    """The broker starts again with another configuration."""
    world.stop()
    world.config = load_text(config)
    world.start()
    return world


def all_of(world: World, name: str, **headers: int) -> list[str]:
    client = world.connect()
    client.subscribe(name, **headers)
    found = drain(client)
    client.drop()
    world.settle()
    return found


def test_every_bound_queue_gets_every_message_in_order_and_the_log_has_it_once() -> None:
    world = world_of()
    sent = fill(world, 5, P)
    assert all_of(world, A) == sent
    assert all_of(world, B) == sent
    assert all_of(world, A) == []
    assert world.store.partitions[P].high_watermark == 5
    assert world.store.partitions[A].high_watermark == 0


def test_bound_queues_get_messages_while_they_have_consumers() -> None:
    world = world_of()
    one, two = world.connect(), world.connect()
    one.subscribe(A, ack="auto")
    two.subscribe(B, ack="auto")
    sent = fill(world, 3, P)
    assert one.bodies() == two.bodies() == sent


@pytest.mark.parametrize("options", [{}, {"browser": "true", "start_position": "first"}])
def test_bound_queues_that_are_created_with_their_source_are_found_by_a_pattern(options: dict[str, str]) -> None:
    world = world_of(FAN.replace("/queue/events,", "/topic/events,"))
    client = world.connect()
    client.subscribe("/queue/>,/topic/events", ack="auto", **options)
    assert fill(world, 1, A) == client.bodies()


@pytest.mark.parametrize("end", ["restart", "kill", "power_cut"])
def test_without_consumers_and_over_a_restart_nothing_is_lost(end: str) -> None:
    world = world_of()
    sent = fill(world, 4, P)
    getattr(world, end)()
    assert all_of(world, A) == sent
    getattr(world, end)()
    assert all_of(world, B) == sent
    if end != "power_cut":  # which may take acknowledgements that nobody asked a receipt for
        assert all_of(world, A) == []


def test_a_power_cut_right_after_the_first_receipt_takes_no_message_of_a_bound_queue() -> None:
    world = world_of()
    client = world.connect()
    client.publish(P, "first", receipt="1")
    world.commit()
    assert client.receipts() == ["1"]
    world.power_cut()
    assert all_of(world, A) == ["first"]
    assert all_of(world, B) == ["first"]


def test_a_message_that_one_bound_queue_has_not_acknowledged_comes_again_only_there() -> None:
    world = world_of()
    fill(world, 2, P)
    client = world.connect()
    client.subscribe(A)
    world.settle()
    assert client.bodies() == ["m0"]
    client.drop()
    world.restart()
    client = world.connect()
    client.subscribe(A)
    world.settle()
    (message,) = client.messages()
    assert message.headers["redelivered"] == "true"
    other = world.connect()
    other.subscribe(B)
    world.settle()
    (message,) = other.messages()
    assert "redelivered" not in message.headers


def test_the_rule_of_a_bound_queue_applies_to_its_deliveries() -> None:
    world = World(
        "destinations: [{match: /queue/events, fan_out: [/queue/events.billing]},"
        " {match: '/queue/events.*', prefetch: 3}]"
    )
    fill(world, 5, P)
    client = world.connect()
    client.subscribe(A)
    world.settle()
    assert client.bodies() == ["m0", "m1", "m2"]


def test_a_message_sent_to_a_bound_queue_is_in_that_queue_only() -> None:
    world = world_of()
    fill(world, 1, P)
    fill(world, 1, A)
    assert all_of(world, B) == ["m0"]
    assert len(all_of(world, A)) == 2


def test_a_fan_out_source_has_no_consumers() -> None:
    world = world_of()
    client = world.connect()
    client.subscribe(P)
    assert client.error() == "bad-destination"
    client = world.connect()
    client.subscribe("/queue/>", ack="auto")
    fill(world, 1, P)
    assert client.bodies() == ["m0", "m0"]  # as consumer of both children


def test_a_fan_out_source_can_be_browsed() -> None:
    world = world_of()
    fill(world, 2, P)
    client = world.connect()
    client.subscribe(P, browser="true")
    world.settle()
    assert client.bodies() == ["m0", "m1", ""]


def test_a_bound_queue_can_be_browsed() -> None:
    world = world_of()
    fill(world, 3, P)
    fill(world, 1, A)
    taker = world.connect()
    taker.subscribe(A, ack="client-individual", prefetch_count=9)
    world.settle()
    taker.ack(next(each for each in taker.messages() if each.body == b"m1"))
    world.settle()
    for name, expected in ((A, ["m0", "m0", "m2"]), (B, ["m0", "m1", "m2"])):
        client = world.connect()
        client.subscribe(name, browser="true")
        world.settle()
        messages = client.messages()
        assert messages[-1].headers["replay-end"] == "true"
        assert sorted(each.body.decode() for each in messages[:-1]) == expected
    client = world.connect()
    client.subscribe(B, start_position="offset:1", stop_position="end", ack="auto")
    world.settle()
    assert client.bodies() == ["m1", "m2", ""]


def test_the_receipt_counts_the_consumers_of_the_bound_queues() -> None:
    world = world_of()
    client = world.connect()
    client.subscribe(A)
    client.publish(P, "a", receipt="1")
    world.settle()
    (receipt,) = client.take("RECEIPT")
    assert receipt.headers["delivered-to"] == "1"
    client.say("UNSUBSCRIBE", id="0")
    client.publish(P, "b", receipt="2")
    world.settle()
    (receipt,) = client.take("RECEIPT")
    assert receipt.headers["delivered-to"] == "0"


def test_a_bound_queue_that_is_new_in_the_rule_starts_at_the_end() -> None:
    world = world_of(ONE)
    fill(world, 2, P)
    under(world, FAN)
    client = world.connect()
    client.publish(P, "new")
    assert all_of(world, A) == ["m0", "m1", "new"]
    assert all_of(world, B) == ["new"]


def test_a_queue_that_becomes_a_source_passes_on_its_unsettled_messages() -> None:
    world = world_of(PLAIN)
    fill(world, 3, P)
    client = world.connect()
    client.subscribe(P, prefetch_count=3)
    world.settle()
    client.ack(client.messages()[1])
    under(world, FAN)
    assert all_of(world, A) == ["m0", "m2"]
    assert all_of(world, B) == ["m0", "m2"]


def test_a_source_that_becomes_a_queue_begins_where_the_slowest_bound_queue_was() -> None:
    world = world_of()
    fill(world, 3, P)
    client = world.connect()
    client.subscribe(B, prefetch_count=3)
    world.settle()
    client.ack(client.messages()[0])
    world.settle()
    assert len(all_of(world, A)) == 3
    under(world, PLAIN)
    assert all_of(world, P) == ["m1", "m2"]


def test_a_bound_queue_that_leaves_the_rule_holds_back_no_retention() -> None:
    world = world_of()
    fill(world, 2, P)
    assert len(all_of(world, A)) == 2
    under(world, ONE)
    assert world.store.partitions[P].retain_from == 2
    assert all_of(world, B) == []


def test_messages_are_reclaimed_when_all_bound_queues_have_settled_them_and_not_before() -> None:
    world = World(f"defaults: {{store: memory}}\n{FAN}")
    fill(world, 3, P)
    partition = world.store.partitions[P]
    all_of(world, A)
    assert partition.log_start_offset == 0
    all_of(world, B)
    assert partition.log_start_offset == 3


def test_a_source_and_its_bound_queues_may_share_a_log() -> None:
    world = World(
        "destinations: [{match: /queue/events, partition: all, fan_out: [/queue/events.billing, /queue/events.audit]},"
        " {match: '/queue/events.*', partition: all}]"
    )
    fill(world, 2, P)
    client = world.connect()
    client.publish(A, "direct")
    world.settle()
    world.kill()
    assert all_of(world, A) == ["m0", "m1", "direct"]
    assert all_of(world, B) == ["m0", "m1"]


def test_a_topic_may_feed_queues_and_keeps_its_subscribers() -> None:
    world = World("destinations: [{match: /topic/news, fan_out: [/queue/news.mail]}]")
    client = world.connect()
    client.subscribe("/topic/news", ack="auto")
    sent = fill(world, 3, "/topic/news")
    assert client.bodies() == sent
    assert all_of(world, "/queue/news.mail") == sent


def test_the_names_of_bound_queues_may_contain_that_of_the_source() -> None:
    world = World("destinations: [{match: '/queue/in.*', fan_out: ['/queue/out.{1}', '{name}.log']}]")
    fill(world, 1, "/queue/in.x")
    assert all_of(world, "/queue/out.x") == ["m0"]
    assert all_of(world, "/queue/in.x.log") == ["m0"]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("[{match: /queue/a, fan_out: [/topic/b]}]", "'/topic/b' is a topic"),
        ("[{match: /queue/a, fan_out: [/queue/a]}]", "has fan_out itself"),
        ("[{match: /queue/a, fan_out: ['/queue/*']}]", "got the pattern"),
        ("[{match: /queue/a, fan_out: ['/queue/{1}']}]", "fan_out: expected {name}"),
        ("[{match: /queue/a, fan_out: [/queue/b], max_messages: 3}]", "set it for the bound queues"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rules: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("{", r"\{")):
        Rules(load_text(f"destinations: {rules}", "radiator.yaml"))


def test_a_fan_out_to_a_topic_is_an_error_for_the_sender() -> None:
    world = World("destinations: [{match: '/queue/in.*', fan_out: ['/topic/{1}']}]")
    client = world.connect()
    client.publish("/queue/in.x", "a")
    assert client.error() == "bad-destination"
    assert "/queue/in.x" not in world.broker.destinations
