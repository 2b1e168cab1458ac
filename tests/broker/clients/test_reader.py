"""A reader: history into live with neither gap nor repeat, bounded replays, browsers, and what is lost on the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.config import LimitsConfig
from radiator.routing.rights import Rights
from radiator.storage import layout
from radiator.storage.files import FileSystem
from tests.broker.harness import NOW, Client, World

T = "/topic/a"


def fill(world: World, count: int = 10, destination: str = T, seconds: int = 1) -> list[str]:
    """``count`` messages, one a second, each in a batch of its own."""
    sender = world.connect()
    for number in range(count):
        sender.publish(destination, f"m{number}")
        world.settle()
        world.now += seconds * NS_PER_SECOND
    sender.drop()
    return [f"m{number}" for number in range(count)]


def replay(world: World, destination: str = T, ack: str = "auto", **headers: str) -> Client:
    client = world.connect()
    client.subscribe(destination, ack=ack, **headers)
    world.settle()
    return client


# --- where it starts --------------------------------------------------------------------------------------------------

STARTS = {
    "first": range(10),
    "next": range(0),
    "last": range(9, 10),
    "last:0": range(0),
    "last:3": range(7, 10),
    "last:10": range(10),
    "last:9999": range(10),
    "offset:0": range(10),
    "offset:4": range(4, 10),
    "offset:9": range(9, 10),
    "offset:10": range(0),
    f"time:{NOW}": range(10),
    f"time:{NOW + 1}": range(1, 10),
    f"time:{NOW + 5 * NS_PER_SECOND}": range(5, 10),
    "time:2001-01-01T00:00:00Z": range(10),
    "ago:5s": range(5, 10),
    "ago:1d": range(10),
    "ago:0s": range(0),
}


@pytest.mark.parametrize("cold", [False, True], ids=["memory", "files"])
@pytest.mark.parametrize("start", STARTS)
def test_where_a_replay_starts(start: str, cold: bool) -> None:
    world = World(tail_bytes_max=1) if cold else World()
    bodies = fill(world)
    if cold:
        world.restart()
    client = replay(world, start_position=start)
    assert client.bodies() == [bodies[number] for number in STARTS[start]]
    client.publish(T, "live")
    world.settle()
    assert client.bodies() == ["live"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("first", range(10)),
        ("last", range(9, 10)),
        ("next", range(0)),
        ("offset=7", range(7, 10)),
        (f"timestamp={NOW // NS_PER_SECOND + 4}", range(4, 10)),
    ],
)
def test_the_alias_of_streams_starts_there_too(world: World, value: str, expected: range) -> None:
    bodies = fill(world)
    assert replay(world, x_stream_offset=value).bodies() == [bodies[number] for number in expected]


def test_history_is_marked_and_live_is_not(world: World) -> None:
    fill(world, 3)
    client = replay(world, start_position="offset:1")
    client.publish(T, "live")
    world.settle()
    assert [(each.body, each.headers.get("replayed")) for each in client.messages()] == [
        (b"m1", "true"),
        (b"m2", "true"),
        (b"live", None),
    ]


def test_a_start_in_the_future_waits_for_its_offset(world: World) -> None:
    fill(world, 3)
    client = replay(world, start_position="offset:5")
    fill(world, 4)
    assert [message.headers["offset"] for message in client.messages()] == ["5", "6"]


def test_a_start_in_the_future_waits_until_then(world: World) -> None:
    fill(world, 3)
    client = replay(world, start_position=f"time:{world.now + 3 * NS_PER_SECOND}")
    by_pattern = replay(world, "/topic/*", start_position=f"time:{world.now + 3 * NS_PER_SECOND}")
    fill(world, 6)
    fill(world, 1, "/topic/born-later")
    assert client.bodies() == ["m3", "m4", "m5"]
    assert by_pattern.bodies() == ["m3", "m4", "m5", "m0"]


def test_last_n_counts_per_destination_in_a_shared_log() -> None:
    world = World("destinations: [{match: '/topic/w.*', partition: shared}]")
    sender = world.connect()
    for number in range(12):
        sender.publish(f"/topic/w.{'aab'[number % 3]}", f"{number}")
        world.settle()
    client = replay(world, "/topic/w.*", start_position="last:2")
    assert sorted(client.bodies(), key=int) == ["8", "9", "10", "11"]
    assert replay(world, "/topic/w.b", start_position="last:2").bodies() == ["8", "11"]
    sender.publish("/topic/w.c", "born later")
    world.settle()
    assert client.bodies() == ["born later"]


def test_a_pattern_replays_every_topic_once_and_in_its_order(world: World) -> None:
    for name in ("x", "y", "z"):
        fill(world, 5, f"/topic/p.{name}")
    client = replay(world, "/topic/p.*,/topic/p.x", start_position="first")
    found = [(message.headers["destination"], message.body) for message in client.messages()]
    for name in ("x", "y", "z"):
        mine = [body for destination, body in found if destination == f"/topic/p.{name}"]
        assert mine == [b"m%d" % number for number in range(5)]
    assert len(found) == 15


@pytest.mark.parametrize("bad", ["offset", "last:x", "end", "2013", "time:tomorrow"])
def test_a_position_that_is_none_is_refused_and_nothing_is_subscribed(world: World, bad: str) -> None:
    client = world.connect()
    client.subscribe(T, start_position=bad)
    assert client.error() == "bad-position"
    assert not client.session.subscriptions.by_id


# --- hand-over --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cold", [False, True], ids=["memory", "files"])
@pytest.mark.parametrize("window", [None, "1", "3"])
def test_history_joins_live_with_neither_gap_nor_repeat(cold: bool, window: str | None) -> None:
    """A producer never stops while a client catches up through a small window and a small outbox."""
    world = World(limits=LimitsConfig(outbox=700), **({"tail_bytes_max": 1} if cold else {}))
    fill(world, 30)
    client = world.connect()
    headers = {"prefetch_count": window} if window else {}
    client.subscribe(T, ack="client-individual" if window else "auto", start_position="first", **headers)
    sender = world.connect()
    found: list[int] = []
    for number in range(60):
        sender.publish(T, f"n{number}")
        world.take()
        world.pump()
        world.write()
        world.sync()
        world.reads()
        world.completed()
        world.pump()
        client.flush(400)
        for message in [frame for frame in client.inbox if frame.command == "MESSAGE"]:
            client.inbox.remove(message)
            found.append(int(message.headers["offset"]))
            assert message.headers.get("replayed") == ("true" if found[-1] < 30 else None)
            if window:
                client.ack(message)
    for _ in range(300):
        world.settle()
        for message in client.messages():
            found.append(int(message.headers["offset"]))
            if window:
                client.ack(message)
    assert found == list(range(90))


def test_what_was_sent_but_not_committed_before_subscribe_is_not_for_next(world: World) -> None:
    sender, client = world.connect(), world.connect()
    sender.publish(T, "before")
    client.subscribe(T, ack="auto")
    sender.publish(T, "after")
    world.settle()
    assert client.bodies() == ["after"]


@pytest.mark.parametrize("start", [f"time:{NOW + 4 * NS_PER_SECOND}", "last:6"])
def test_nothing_live_is_sent_while_the_start_is_still_being_looked_up(start: str) -> None:
    world = World("destinations: [{match: '/topic/*', partition: shared}]")
    fill(world, 10)
    fill(world, 1, "/topic/other")
    world.restart()
    client, sender = world.connect(), world.connect()
    client.subscribe(T, ack="auto", start_position=start, stop_position=f"time:{world.now + 50 * NS_PER_SECOND}")
    sender.publish(T, "live")
    world.commit()
    world.pump()
    assert client.messages() == []
    world.settle()
    assert client.bodies() == [*(f"m{number}" for number in range(4, 10)), "live"]
    world.now += 60 * NS_PER_SECOND
    world.broker.tick(world.time)  # and so is the end
    sender.publish(T, "after the end")
    world.commit()
    world.pump()
    world.settle()
    assert ["replay-end" in message.headers for message in client.messages()] == [True]


def test_readers_side_by_side_share_one_cold_read() -> None:
    world = World(tail_bytes_max=1)
    bodies = fill(world)
    world.restart()
    clients = [world.connect() for _ in range(5)]
    before = world.fs.calls["open_read"]
    for client in clients:
        client.subscribe(T, ack="auto", start_position="first")
    world.settle()
    assert [client.bodies() for client in clients] == [bodies] * 5
    assert world.fs.calls["open_read"] - before <= 4


# --- where it stops ---------------------------------------------------------------------------------------------------

STOPS = {
    ("first", "end"): range(10),
    ("first", "next"): range(10),
    ("first", "first"): range(0),
    ("first", "last"): range(9),
    ("first", "last:3"): range(7),
    ("first", "offset:0"): range(1),
    ("first", "offset:6"): range(7),
    ("offset:3", "offset:6"): range(3, 7),
    ("offset:6", "offset:3"): range(0),
    ("first", f"time:{NOW + 4 * NS_PER_SECOND}"): range(4),
    ("ago:5s", "end"): range(5, 10),
    ("offset:99", "end"): range(0),
    ("last:2", "end"): range(8, 10),
    ("next", "end"): range(0),
}


@pytest.mark.parametrize("cold", [False, True], ids=["memory", "files"])
@pytest.mark.parametrize(("start", "stop"), STOPS, ids=lambda value: str(value).replace(str(NOW)[:8], "…"))
def test_a_bounded_replay_ends_with_a_message_that_says_so(start: str, stop: str, cold: bool) -> None:
    world = World(tail_bytes_max=1) if cold else World()
    bodies = fill(world)
    if cold:
        world.restart()
    client = world.connect()
    client.subscribe(T, ack="auto", start_position=start, stop_position=stop, receipt="r")
    client.publish(T, "too late")
    world.settle()
    *messages, end = client.messages()
    assert [message.body.decode() for message in messages] == [bodies[number] for number in STOPS[start, stop]]
    assert end.headers["replay-end"] == "true"
    assert end.headers["subscription"] == "0"
    assert end.body == b""
    assert client.receipts() == ["r"]
    assert not client.session.subscriptions.by_id
    client.publish(T, "later still")
    world.settle()
    assert client.messages() == []
    client.subscribe(T, ack="auto")  # the id is free again
    assert not client.session.closing


def test_a_stop_that_has_not_come_yet_lets_live_messages_through_until_then(world: World) -> None:
    fill(world, 3)
    client = replay(world, start_position="first", stop_position="offset:4")
    assert client.bodies() == ["m0", "m1", "m2"]
    fill(world, 5)
    *messages, end = client.messages()
    assert [message.body.decode() for message in messages] == ["m0", "m1"]
    assert end.headers["replay-end"] == "true"


def test_a_stop_in_the_future_stops_then(world: World) -> None:
    client = replay(world, stop_position=f"time:{world.now + 10 * NS_PER_SECOND}")
    fill(world, 5)
    assert len(client.messages()) == 5
    world.tick(10)
    (end,) = client.messages()
    assert end.headers["replay-end"] == "true"
    assert not client.session.subscriptions.by_id


def test_a_bounded_replay_of_a_pattern_ends_once_after_all_of_it(world: World) -> None:
    for name in "xyz":
        fill(world, 4, f"/topic/p.{name}")
    client = replay(world, "/topic/p.*", start_position="first", stop_position="end")
    *messages, end = client.messages()
    assert len(messages) == 12
    assert end.headers["replay-end"] == "true"


def test_a_bounded_replay_of_a_pattern_that_matches_nothing_ends_at_once(world: World) -> None:
    client = replay(world, "/topic/none.*", start_position="first", stop_position="end")
    (end,) = client.messages()
    assert end.headers["replay-end"] == "true"
    assert not client.session.subscriptions.by_id


def test_a_bounded_replay_through_a_window_ends_after_the_last_message_was_sent(world: World) -> None:
    bodies = fill(world, 4)
    client = replay(world, ack="client-individual", prefetch_count="1", start_position="first", stop_position="end")
    found = []
    for _ in range(4):
        message, *rest = client.messages()
        found.append(message.body.decode())
        client.ack(message)
        world.settle()
    assert found == bodies
    end = [*rest, *client.messages()][-1]
    assert end.headers["replay-end"] == "true"


def test_an_unsubscribe_that_crosses_the_end_of_a_replay_is_no_fault(world: World) -> None:
    fill(world, 1)
    client = replay(world, start_position="first", stop_position="end")
    client.say("UNSUBSCRIBE", id="0", receipt="u")
    world.settle()
    assert client.receipts() == ["u"]
    client.say("UNSUBSCRIBE", id="0", receipt="again")
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-subscription"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_end_of_a_replay_may_be_acknowledged_like_any_message(world: World, version: str) -> None:
    fill(world, 1)
    client = world.connect(version)
    client.subscribe(T, ack="client-individual", start_position="first", stop_position="end")
    world.settle()
    for message in client.messages():
        client.ack(message, receipt=message.headers["ack"])
    world.settle()
    assert len(client.receipts()) == 2


# --- queues, looked at ------------------------------------------------------------------------------------------------


def test_a_browser_sees_what_waits_and_consumes_nothing(world: World) -> None:
    consumer = world.connect()
    consumer.publish("/queue/a", *"012345")
    consumer.subscribe("/queue/a", prefetch_count=3)
    world.settle()
    consumer.ack(consumer.messages()[1])
    world.settle()
    client = world.connect()
    client.subscribe("/queue/a", browser="true", ack="auto")
    world.settle()
    *messages, end = client.messages()
    assert [message.body.decode() for message in messages] == ["0", "2", "3", "4", "5"]
    assert end.headers["replay-end"] == "true"
    consumer.drop()
    other = world.connect()
    other.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    assert other.bodies() == ["0", "2", "3", "4", "5"]


def test_a_browser_of_an_empty_queue_ends_at_once(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a", browser="true")
    world.settle()
    assert [message.headers.get("replay-end") for message in client.messages()] == ["true"]


def test_a_start_position_on_a_queue_shows_its_history_and_consumes_nothing(world: World) -> None:
    consumer = world.connect()
    consumer.publish("/queue/a", *"0123")
    consumer.subscribe("/queue/a", ack="auto")
    world.settle()
    assert consumer.bodies() == list("0123")
    client = world.connect()
    client.subscribe("/queue/a", start_position="offset:1", ack="client-individual")
    world.settle()
    messages = client.messages()
    assert [message.body.decode() for message in messages] == ["1", "2", "3"]
    for message in messages:
        client.nack(message) if "ack" in message.headers else None
    consumer.publish("/queue/a", "4")
    world.settle()
    assert consumer.bodies() == ["4"]
    assert client.bodies() == ["4"]


# --- gaps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_what_follows_a_gap_in_the_same_run_is_whole(ack: str) -> None:
    """The first message after a gap has a head of its own; those behind it in the batch must not be lost or doubled."""
    config = "destinations: [{match: '/topic/a', store: memory, retention: {count: 4}}]"
    world = World(config, limits=LimitsConfig(outbox=1))
    client = world.connect()
    client.subscribe(T, ack=ack)
    sender = world.connect()
    sender.publish(T, *[f"m{number}" for number in range(10)])  # one batch
    world.commit()
    world.pump()
    sender.publish(T, *[f"m{number}" for number in range(10, 20)])
    world.commit()
    client.session.limits = LimitsConfig()
    messages = []
    for _ in range(12):
        world.settle()
        messages += client.messages()
    found = [int(message.headers["offset"]) for message in messages]
    gaps = sum(int(message.headers.get("gap", 0)) for message in messages)
    assert found == sorted(set(found))
    assert found[-4:] == [16, 17, 18, 19]
    assert len(found) + gaps == 20
    assert [message.body.decode() for message in messages] == [f"m{number}" for number in found]
    if ack != "auto":
        for message in messages:
            client.ack(message)
        assert not client.session.closing
        assert not next(iter(client.session.subscriptions.by_id.values())).in_flight


def segments(root: Path) -> World:
    config = "destinations: [{match: '/topic/a', segment: {size: 64KiB}}]"
    world = World(config, FileSystem(), str(root), tail_bytes_max=1)
    sender = world.connect()
    for number in range(12):
        sender.publish(T, f"m{number}".ljust(30_000))
        world.settle()
    world.stop()
    return world


def test_a_start_that_is_gone_is_adjusted_and_says_so(tmp_path: Path) -> None:
    world = segments(tmp_path)
    directory = layout.partition_path(str(tmp_path), T)
    names = sorted(name for name in os.listdir(directory) if name.endswith(".rlog"))
    os.remove(f"{directory}/{names[0]}")
    first = int(names[1].split(".")[0])
    world.start()
    client = replay(world, start_position="offset:0")
    for _ in range(12):
        world.settle()
    messages = client.messages()
    assert [int(message.headers["offset"]) for message in messages] == list(range(first, 12))
    assert [message.headers.get("start-adjusted") for message in messages] == ["true"] + [None] * (11 - first)


def test_damaged_records_are_reported_as_a_gap(tmp_path: Path) -> None:
    world = segments(tmp_path)
    with open(layout.segment_path(layout.partition_path(str(tmp_path), T), 0), "r+b") as file:
        file.seek(30_300)
        file.write(b"DAMAGE")
    world.start()
    client = replay(world, start_position="first")
    messages = client.messages()
    assert not any("gap-removed" in message.headers for message in messages)
    found = [(int(message.headers["offset"]), message.headers.get("gap")) for message in messages]
    assert found == [(0, None), (2, "1"), *((number, None) for number in range(3, 12))]


def test_a_slow_reader_that_retention_overtakes_gets_the_number_of_missed_messages() -> None:
    world = World(
        "destinations: [{match: '/topic/a', store: memory, retention: {count: 5}}]", limits=LimitsConfig(outbox=300)
    )
    client = world.connect()
    client.subscribe(T, ack="auto")
    sender = world.connect()
    for number in range(40):
        sender.publish(T, f"m{number}")
        world.commit()
        world.pump()
    world.settle()
    messages = client.messages()
    seen = 0
    for message in messages:
        gap = int(message.headers.get("gap", 0))
        assert int(message.headers["offset"]) == seen + gap
        assert message.headers.get("gap-removed") == message.headers.get("gap")
        seen += gap + 1
    assert seen == 40
    assert any("gap" in message.headers for message in messages)


def test_a_cold_read_that_fails_is_tried_again(world: World) -> None:
    world = World(tail_bytes_max=1)
    bodies = fill(world)
    client = world.connect()
    world.fs.fail("open_read")
    client.subscribe(T, ack="auto", start_position="first")
    world.settle()
    assert client.messages() == []
    world.tick()
    assert client.bodies() == bodies


def test_a_slow_reader_costs_no_memory(world: World) -> None:
    """Its outbox is bounded, and what it has not read stays in the log."""
    world = World(limits=LimitsConfig(outbox=10_000), tail_bytes_max=1)
    slow, fast = world.connect(), world.connect()
    slow.subscribe(T, ack="auto")
    fast.subscribe(T, ack="auto")
    sender = world.connect()
    for number in range(200):
        sender.publish(T, f"m{number}".ljust(1_000))
        world.commit()
        world.reads()
        world.pump()
        fast.flush()
        assert slow.session.outbox.unsent_bytes < 10_000 + 2_000
    for _ in range(50):
        world.commit()
        world.reads()
        world.pump()
        fast.flush()
    assert len(fast.messages()) == 200
    for _ in range(50):
        world.settle()
    assert [body.strip() for body in slow.bodies()] == [f"m{number}" for number in range(200)]


def test_subscribers_of_the_same_id_share_the_bytes_of_a_batch_and_others_have_their_own() -> None:
    world = World("destinations: [{match: '/topic/>', store: memory}]")
    ids = ["0", "0", "1"]
    producer, clients = world.connect(), [world.connect() for _ in ids]
    for client, id in zip(clients, ids, strict=True):
        client.subscribe("/topic/>", id=id, ack="auto")
    for number in range(3):
        producer.publish("/topic/a", f"a{number}", f"b{number}")
        producer.publish("/topic/b", f"c{number}")
        world.take()
        world.pump()
        outboxes = [client.session.outbox.take() for client in clients]
        assert [len(outbox) for outbox in outboxes] == [2, 2, 2]
        if number:  # before that it is not known yet that all of the topic is wanted
            assert all(one is other for one, other in zip(outboxes[0], outboxes[1], strict=True))
        for client, outbox, id in zip(clients, outboxes, ids, strict=True):
            heard = client.end.receive(b"".join(outbox))
            assert [frame.body.decode() for frame in heard] == [f"a{number}", f"b{number}", f"c{number}"]
            assert {frame.headers["subscription"] for frame in heard} == {id}


def test_a_reader_asks_its_patterns_again_when_the_rights_have_changed() -> None:
    world = World("destinations: [{match: '/topic/>', store: memory}]")
    producer, client = world.connect(), world.connect()
    client.subscribe("/topic/*", id="0", ack="auto")
    producer.publish("/topic/a", "1")
    world.settle()
    assert [message.body for message in client.take("MESSAGE")] == [b"1"]
    client.session.subscriptions.by_id["0"].permit(Rights({"read": ("/topic/b",)}))
    producer.publish("/topic/a", "2")
    producer.publish("/topic/b", "3")
    world.settle()
    assert [message.body for message in client.take("MESSAGE")] == [b"3"]
