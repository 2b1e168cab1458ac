"""Durable subscriptions: a name whose place in the log stays when its subscriber goes."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.broker.headers.subscribe import NAME_HEADERS
from tests.broker.harness import Client, World
from tests.broker.queues.test_queue import drain, fill

T, U = "/topic/a", "/topic/b"
SHARED = "destinations: [{match: '/topic/*', partition: shared}]"
MEMORY = "defaults: {store: memory}"
ENDS = ["restart", "kill", "power_cut"]


def durable(
    world: World, topic: str = T, name: str = "me", *, id: str = "0", receipt: bool = True, **headers: Any
) -> Client:
    """A client that is subscribed under the name, and knows that it is."""
    client = world.connect()
    client.subscribe(topic, id, **{"subscription_name": name, **headers}, **({"receipt": "sub"} if receipt else {}))
    world.settle()
    if receipt and not client.session.closing:
        assert client.receipts() == ["sub"]
    return client


def again(world: World, topic: str = T, name: str = "me", **headers: Any) -> list[str]:
    """What a subscriber of that name gets, and acknowledges, now."""
    client = durable(world, topic, name, **headers)
    found = drain(client)
    client.say("DISCONNECT", receipt="bye")
    world.settle()
    client.drop()
    world.settle()
    return found


# --- what comes while nobody is there ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["drop", *ENDS])
def test_messages_that_came_meanwhile_are_delivered_in_order(world: World, end: str) -> None:
    client = durable(world)
    if end == "drop":
        client.drop()
    else:
        getattr(world, end)()
    sent = fill(world, 3, T)
    assert again(world) == sent
    assert again(world) == []


@pytest.mark.parametrize("end", ENDS)
def test_and_also_if_the_broker_ends_after_they_came(world: World, end: str) -> None:
    durable(world).drop()
    sent = fill(world, 3, T)
    getattr(world, end)()
    assert again(world) == sent


def test_it_begins_with_what_comes_after_it(world: World) -> None:
    fill(world, 2, T)
    sender = world.connect()
    sender.publish(T, "just before")  # and not stored yet
    client = world.connect()
    client.subscribe(T, subscription_name="me", ack="auto")
    sender.publish(T, "after")
    world.settle()
    assert client.bodies() == ["after"]


def test_what_is_not_acknowledged_comes_again_and_says_so(world: World) -> None:
    client = durable(world)
    fill(world, 3, T)
    messages = client.messages()
    assert len(messages) == 3
    client.ack(messages[1])
    world.settle()
    world.restart()
    client = durable(world)
    messages = client.messages()
    assert [(each.body, each.headers["redelivered"]) for each in messages] == [(b"m0", "true"), (b"m2", "true")]
    assert messages[0].headers["delivery-count"] == "2"


def test_under_ack_auto_what_was_written_is_done(world: World) -> None:
    client = durable(world, ack="auto")
    fill(world, 2, T)
    assert client.bodies() == ["m0", "m1"]
    client.drop()
    fill(world, 1, T)
    assert again(world) == ["m0"]


def test_others_get_their_messages_whatever_it_does(world: World) -> None:
    durable(world)
    other = world.connect()
    other.subscribe(T, ack="auto")
    assert fill(world, 3, T) == other.bodies()


def test_its_messages_are_kept_though_retention_would_take_them(world: World) -> None:
    world = World("defaults: {segment: {size: 64KiB}, retention: {size: 1B}}")
    durable(world).drop()
    sender = world.connect()
    for _ in range(20):
        sender.publish(T, "x" * 10_000)
        world.tick(20)
    assert world.store.partitions[T].log_start_offset == 0
    assert len(again(world)) == 20
    for _ in range(20):
        sender.publish(T, "x" * 10_000)
        world.tick(20)
    assert world.store.partitions[T].log_start_offset > 0


# --- windows ----------------------------------------------------------------------------------------------------------


def test_without_a_prefetch_count_it_flows_as_topics_do_and_with_one_it_is_bounded(world: World) -> None:
    free, bound = durable(world), durable(world, name="other", prefetch_count=1)
    fill(world, 5, T)
    assert len(free.messages()) == 5
    assert len(bound.messages()) == 1


def test_its_window_is_not_that_of_the_clients_queues(world: World) -> None:
    client = durable(world, prefetch_count=1)
    client.subscribe("/queue/a", "q")
    fill(world, 2, T)
    fill(world, 2, "/queue/a")
    assert len(client.messages()) == 2


def test_max_in_flight_binds_it_too(world: World) -> None:
    client = world.connect(**{"max-in-flight": "2"})
    client.subscribe(T, subscription_name="me")
    fill(world, 5, T)
    assert len(client.messages()) == 2


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"subscription-name": "n"},
        {"durable": "true", "durable-subscription-name": "n"},
        {"durable-subscriber-name": "n"},
        {"activemq.subscriptionName": "n"},
        {"durable": "true", "id": "n"},
        {"durable": "true", "auto-delete": "false", "id": "n"},
    ],
)
def test_each_way_of_naming_means_the_same_name(world: World, headers: dict[str, str]) -> None:
    client = world.connect()
    client.say("SUBSCRIBE", destination=T, **{"id": "0", **headers})
    world.settle()
    assert list(world.broker.durable.by_key) == ["sub:n"]
    client.drop()
    sent = fill(world, 2, T)
    assert again(world, name="n") == sent


def test_an_id_is_a_name_within_the_clients_own(world: World) -> None:
    for name in ("x", "y"):
        client = world.connect(**{"client-id": name})
        client.subscribe(T, "0", durable="true")
    world.settle()
    assert list(world.broker.durable.by_key) == ["sub:x.0", "sub:y.0"]


def test_on_a_queue_a_name_means_nothing(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a", durable="true", subscription_name="n", ack="auto")
    fill(world, 1, "/queue/a")
    assert client.bodies() == ["m0"]
    assert not world.broker.durable.by_key
    client.say("UNSUBSCRIBE", id="0", durable="true", subscription_name="n", receipt="1")
    world.settle()
    assert client.receipts() == ["1"]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"subscription_name": "n", "group": "g"}, "bad-header"),
        ({"subscription_name": "n", "durable_subscription_name": "m"}, "bad-header"),
        ({"subscription_name": "n", "durable": "false"}, "bad-header"),
        ({"durable": "yes"}, "bad-header"),
        ({"subscription_name": "n" * 300}, "bad-header"),
        ({"subscription_name": "n", "stop_position": "end"}, "bad-header"),
        ({"subscription_name": "n", "browser": "true"}, "bad-header"),
        ({"subscription_name": "n", "destination": "/topic/a,/queue/a"}, "bad-destination"),
        ({"group": "g", "destination": "/queue/a"}, "bad-destination"),
    ],
)
def test_contradictory_headers_are_an_error(world: World, headers: dict[str, str], code: str) -> None:
    client = world.connect()
    client.say("SUBSCRIBE", **{"destination": T, "id": "0", **headers})
    assert client.error() == code
    assert not world.broker.durable.by_key


def test_one_name_is_used_once_on_a_connection(world: World) -> None:
    client = durable(world)
    client.subscribe(T, "1", subscription_name="me")
    assert client.error() == "bad-subscription"


# --- the end of a name ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["kill", "power_cut"])
@pytest.mark.parametrize(
    "headers", [{"id": "0", "subscription_name": "me"}, {"subscription_name": "me"}, {"id": "0", "durable": "true"}]
)
def test_unsubscribe_with_the_name_deletes_it(world: World, headers: dict[str, str], end: str) -> None:
    client = durable(world)
    client.say("UNSUBSCRIBE", receipt="1", **headers)
    world.settle()
    assert client.receipts() == ["1"]
    getattr(world, end)()
    assert not world.broker.durable.by_key
    assert not [name for name, _ in world.store.cursors.names() if name.startswith("sub:")]
    fill(world, 1, T)
    assert again(world) == []


def test_an_unused_durable_subscription_can_be_deleted_from_another_connection(world: World) -> None:
    client = durable(world)
    other = world.connect()
    other.say("UNSUBSCRIBE", subscription_name="me")
    assert other.error() == "bad-subscription"
    client.drop()
    other = world.connect()
    other.say("UNSUBSCRIBE", subscription_name="me", receipt="1")
    world.settle()
    assert other.receipts() == ["1"]
    other.say("UNSUBSCRIBE", subscription_name="me")
    assert other.error() == "bad-subscription"


def test_plain_unsubscribe_keeps_it(world: World) -> None:
    client = durable(world)
    client.say("UNSUBSCRIBE", id="0")
    sent = fill(world, 2, T)
    assert client.messages() == []
    assert again(world) == sent


def test_a_deleted_name_holds_nothing_back_and_leaves_no_destination(world: World) -> None:
    client = durable(world)
    assert world.store.partitions[T].retain_from == 0
    client.say("UNSUBSCRIBE", subscription_name="me")
    world.settle()
    assert T not in world.broker.destinations


# --- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", ["", SHARED, MEMORY])
@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("first", ["m0", "m1", "m2", "m3"]),
        ("next", []),
        ("last", ["m3"]),
        ("last:2", ["m2", "m3"]),
        ("last:9", ["m0", "m1", "m2", "m3"]),
        ("time:1970-01-01T00:00:00Z", ["m0", "m1", "m2", "m3"]),
        ("ago:1s", ["m2", "m3"]),
    ],
)
def test_it_may_begin_where_any_replay_may(config: str, position: str, expected: list[str]) -> None:
    world = World(config)
    sender = world.connect()
    sender.publish(U, "other")
    sender.publish(T, "m0", "m1")
    world.tick(10)
    sender.publish(T, "m2", "m3")
    sender.publish(U, "other")
    world.settle()
    client = durable(world, start_position=position, ack="auto")
    assert client.bodies() == expected
    sender.publish(T, "live")
    world.settle()
    assert client.bodies() == ["live"]


def test_and_at_an_offset_also_one_to_come(world: World) -> None:
    fill(world, 3, T)
    assert again(world, start_position="offset:1") == ["m1", "m2"]
    client = durable(world, name="later", start_position="offset:5", ack="auto")
    client.drop()
    world.kill()
    fill(world, 3, T)
    client = durable(world, name="later", ack="auto")
    assert client.bodies() == ["m2"]


def test_and_at_a_time_to_come(world: World) -> None:
    client = durable(world, start_position=f"time:{world.now + 5 * 10**9}", ack="auto")
    fill(world, 1, T)
    world.tick(10)
    sender = world.connect()
    sender.publish(T, "then")
    world.settle()
    assert client.bodies() == ["then"]


def test_a_start_position_that_was_removed_is_reported_as_a_gap(world: World) -> None:
    world = World("defaults: {store: memory, retention: {count: 2}}")
    fill(world, 5, T)
    client = durable(world, start_position="offset:0")
    assert [each.headers.get("start-adjusted") for each in client.messages()] == ["true", None]


def test_a_position_counts_when_the_name_is_made_and_not_again(world: World) -> None:
    fill(world, 2, T)
    assert again(world, start_position="first") == ["m0", "m1"]
    assert again(world, start_position="first") == []


@pytest.mark.parametrize("position", ["first", "last:2", "ago:1h"])
def test_reset_moves_it(world: World, position: str) -> None:
    fill(world, 2, T)
    assert again(world, start_position="first") == ["m0", "m1"]
    assert again(world, start_position=position, reset="true") == ["m0", "m1"]
    world.kill()
    assert again(world) == []


def test_a_restart_after_a_reset_goes_on_from_there(world: World) -> None:
    fill(world, 2, T)
    again(world, start_position="first")
    durable(world, start_position="first", reset="true", prefetch_count=1)
    world.power_cut()
    assert again(world) == ["m0", "m1"]


# --- patterns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", ["", SHARED])
@pytest.mark.parametrize("end", [None, *ENDS])
def test_topics_that_are_created_while_the_subscriber_is_away_are_joined(config: str, end: str | None) -> None:
    world = World(config)
    durable(world, "/topic/*").drop()
    fill(world, 1, T)
    if end is not None:
        getattr(world, end)()
    fill(world, 1, U)
    fill(world, 1, "/topic/x.y")
    fill(world, 1, "/queue/a")
    if end is not None:
        getattr(world, end)()
    assert again(world, "/topic/*") == ["m0", "m0"]


def test_a_pattern_matches_topics_only(world: World) -> None:
    client = durable(world, "#", ack="auto")
    fill(world, 1, T)
    fill(world, 1, "/queue/a")
    assert client.bodies() == ["m0"]
    client.drop()
    other = world.connect()
    other.subscribe("/queue/a", ack="auto")
    world.settle()
    assert other.bodies() == ["m0"]


def test_with_another_pattern_it_lets_go_of_old_topics_and_joins_new_ones_at_their_end(world: World) -> None:
    fill(world, 2, U)
    durable(world, T).drop()
    fill(world, 1, T)
    durable(world, "/topic/b,/topic/c").drop()
    fill(world, 1, T)
    fill(world, 1, U)
    world.kill()
    assert world.store.partitions[T].retain_from is None
    assert again(world, "/topic/b,/topic/c") == ["m0"]


@pytest.mark.parametrize("end", [None, "kill"])
def test_the_same_within_one_log(end: str | None) -> None:
    world = World(SHARED)
    sender = world.connect()
    durable(world, T).drop()
    sender.publish(T, "a1")
    sender.publish(U, "b1")
    world.settle()
    durable(world, "/topic/a,/topic/b", prefetch_count=1).drop()
    sender.publish(U, "b2")
    world.settle()
    if end is not None:
        getattr(world, end)()
    assert again(world, "/topic/a,/topic/b") == ["a1", "b2"]


def test_a_new_topic_of_a_name_may_begin_at_a_position(world: World) -> None:
    fill(world, 2, U)
    durable(world, T).drop()
    assert again(world, "/topic/a,/topic/b", start_position="first") == ["m0", "m1"]


# --- takeover ---------------------------------------------------------------------------------------------------------


def test_the_newcomer_takes_over_what_the_older_one_held(world: World) -> None:
    older = durable(world)
    fill(world, 2, T)
    assert len(older.messages()) == 2
    newer = durable(world)
    assert older.error() == "taken-over"
    assert [each.headers["redelivered"] for each in newer.messages()] == ["true", "true"]
    assert world.broker.stats.taken_over == 1


def test_a_name_belongs_to_its_user(world: World) -> None:
    client = durable(world)
    world.broker.durable.by_key["sub:me"].user = "somebody"
    other = durable(world)
    assert other.error() == "denied"
    assert not client.session.closing
    other = world.connect()
    other.say("UNSUBSCRIBE", subscription_name="me")
    assert other.error() == "denied"


# --- memory -----------------------------------------------------------------------------------------------------------


def test_in_memory_it_lasts_as_the_messages_do_and_holds_nothing_back() -> None:
    world = World("defaults: {store: memory, retention: {count: 3}}")
    durable(world).drop()
    sent = fill(world, 2, T)
    assert again(world) == sent
    fill(world, 5, T)
    client = durable(world)
    messages = client.messages()
    assert [each.body.decode() for each in messages] == ["m2", "m3", "m4"]
    assert messages[0].headers["gap"] == "2"
    assert world.broker.stats.lost_to_retention == 2
    world.kill()
    assert list(world.broker.durable.by_key) == ["sub:me"]
    sent = fill(world, 1, T)
    assert again(world) == sent


# --- time and room ----------------------------------------------------------------------------------------------------


def test_a_durable_subscription_that_is_unused_for_too_long_is_deleted() -> None:
    world = World("defaults: {cursor_expiry: 2h}")
    durable(world).drop()
    used = durable(world, name="used")
    world.tick(1)
    world.tick(3_700)
    assert len(world.broker.durable.by_key) == 2
    world.tick(3_700)
    assert list(world.broker.durable.by_key) == ["sub:used"]
    assert world.broker.stats.names_expired == 1
    used.drop()
    world.kill()
    world.tick(7_300)
    world.tick(100)
    assert list(world.broker.durable.by_key) == ["sub:used"]  # it has time to come back
    world.tick(3_700)
    assert not world.broker.durable.by_key


def test_a_name_of_which_a_rule_says_none_stays() -> None:
    world = World("defaults: {cursor_expiry: 1m}\ndestinations: [{match: /topic/b, cursor_expiry: none}]")
    durable(world, "/topic/a,/topic/b").drop()
    world.tick(1)
    world.tick(10**6)
    world.tick(10**6)
    assert list(world.broker.durable.by_key) == ["sub:me"]


def test_there_is_a_limit_on_names(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radiator.limits.SUBSCRIPTION_NAMES_MAX", 1)
    durable(world)
    assert durable(world, name="two").error() == "too-many"
    assert not durable(world).session.closing


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_receipt_waits_until_the_name_is_on_disk(world: World) -> None:
    client = world.connect()
    client.subscribe(T, subscription_name="me", receipt="1")
    world.take()
    world.write()
    assert client.receipts() == []
    world.sync()
    world.completed()
    assert client.receipts() == ["1"]
    world.power_cut()
    assert list(world.broker.durable.by_key) == ["sub:me"]


@pytest.mark.parametrize("verb", ["pwritev", "fdatasync"])
def test_a_durable_subscription_that_the_disk_refuses_is_an_error_and_can_be_created_later(
    world: World, verb: str
) -> None:
    fill(world, 1, T)
    client = world.connect()
    client.subscribe(T, subscription_name="me", receipt="1")
    world.fs.fail(verb, under="/journal/")
    world.settle()
    assert client.error() == "storage"
    assert world.store.failures() and not world.broker.durable.by_key
    world.tick(3)
    world.tick(3)
    assert not world.store.failures()
    world.kill()
    assert not world.broker.durable.by_key
    durable(world)


def test_a_file_that_is_damaged_is_kept_and_no_cursor_is_lost(world: World) -> None:
    durable(world).drop()
    sent = fill(world, 2, T)
    world.stop()
    damage(world)
    world.start()
    assert any("subscriptions.damaged" in str(note) for note in world.notes)
    assert not world.broker.durable.by_key
    assert again(world) == sent


@pytest.mark.parametrize("end", ENDS)
def test_cursors_of_a_damaged_file_stay_until_an_operator_removes_it(world: World, end: str) -> None:
    for name in ("me", "you"):
        durable(world, name=name).drop()
    sent = fill(world, 2, T)
    world.stop()
    damage(world)
    world.start()
    for _ in range(2):
        getattr(world, end)()
        assert any("subscriptions.damaged: still exists" in str(note) for note in world.notes)
    assert again(world) == sent, "the first has come back, and the other has not"
    world.fs.remove(f"{world.root}/subscriptions.damaged")
    world.stop()
    world.start()
    assert not world.notes and {name for name, _ in world.store.cursors.names()} == {"sub:me"}


def damage(world: World) -> None:
    path = f"{world.root}/subscriptions"
    fd = world.fs.open(path)
    world.fs.pwritev(fd, [b"x"], 40)
    world.fs.close(fd)


def test_a_subscriber_that_comes_back_on_a_full_disk_is_accepted(world: World) -> None:
    durable(world).drop()
    sent = fill(world, 2, T)
    world.fs.fill(0)
    client = durable(world, ack="auto")
    assert not client.session.closing
    assert client.bodies() == sent


@pytest.mark.parametrize("destination", ["/topic/a", "/queue/a"])
@pytest.mark.parametrize("header", [*NAME_HEADERS, "group"])
@pytest.mark.parametrize("durable", [None, "true"])
def test_a_name_that_is_empty_is_refused(header: str, destination: str, durable: str | None) -> None:
    world = World()
    client = world.connect()
    more = {} if durable is None else {"durable": durable}
    client.say("SUBSCRIBE", destination=destination, id="0", **{header: ""}, **more)
    assert client.error() == "bad-header"


def test_messages_at_offsets_that_a_power_cut_has_freed_are_owed_although_they_are_below_an_old_start() -> None:
    """The topic joined the subscription at the end of the log, and the log lost its end, as its rule allows."""
    world = World("destinations: [{match: '/topic/*', partition: shared, fsync: never}]")
    fill(world, 1, T)
    fill(world, 1, U)
    durable(world, T).drop()
    fill(world, 5, U)
    durable(world, f"{T},{U}").drop()
    world.stop()
    world.fs.kill()
    for path in [each for each in world.fs.nodes if each.endswith((".rlog", "/head"))]:
        del world.fs.nodes[path]
    world.start()
    fill(world, 10, U)
    world.kill()
    assert again(world, f"{T},{U}") == [f"m{number}" for number in range(10)]
