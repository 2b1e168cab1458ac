"""A destination: which partition takes a message, who may use it, what a wildcard reaches."""

from __future__ import annotations

import contextlib
import zlib
from random import Random

import pytest

from tests.broker.harness import World
from tests.storage.faults import Crash
from tests.tiers import sampled

KEYED = "destinations: [{match: '/topic/a', partitions: 4, partition_by: 'header:user'}]"


def partitions(world: World, **headers: str) -> list[str]:
    """Where each of eight messages with these headers went."""
    sender = world.connect()
    sender.publish("/topic/a", *"12345678", receipt="r", **headers)
    world.settle()
    found = sender.take("RECEIPT")
    assert len(found) == 8
    return [receipt.headers["partition"] for receipt in found]


def test_the_same_key_goes_to_the_same_partition_for_ever() -> None:
    world = World(KEYED)
    expected = f"/topic/a-{zlib.crc32(b'ann') % 4}"
    assert set(partitions(world, user="ann")) == {expected}
    world.restart()
    assert set(partitions(world, user="ann")) == {expected}


def test_the_header_partition_key_comes_before_the_rules() -> None:
    assert set(partitions(World(KEYED), user="ann", partition_key="bob")) == {f"/topic/a-{zlib.crc32(b'bob') % 4}"}


def test_without_a_key_the_partitions_take_turns() -> None:
    found = partitions(World(KEYED))
    assert sorted(found) == sorted([f"/topic/a-{number}" for number in range(4)] * 2)


@pytest.mark.parametrize("text", ["2", "/topic/a-2"])
def test_the_header_partition_has_the_last_word(text: str) -> None:
    assert set(partitions(World(KEYED), user="ann", partition=text)) == {"/topic/a-2"}


@pytest.mark.parametrize("text", ["4", "-1", "x", "", "/topic/a", "/topic/a-4"])
def test_a_partition_that_is_not_there_is_refused(text: str) -> None:
    world = World(KEYED)
    sender = world.connect()
    sender.publish("/topic/a", "x", partition=text)
    assert sender.error() == "bad-header"


def test_a_subscriber_of_a_partitioned_topic_sees_every_message_once_and_each_key_in_order() -> None:
    world = World(KEYED)
    client = world.connect()
    client.subscribe("/topic/a", ack="auto")
    sender = world.connect()
    for number in range(40):
        sender.publish("/topic/a", f"{number}", user=f"u{number % 7}")
    world.settle()
    messages = client.messages()
    assert sorted(int(message.body) for message in messages) == list(range(40))
    for user in range(7):
        mine = [int(message.body) for message in messages if message.headers["user"] == f"u{user}"]
        assert mine == sorted(mine)


def test_topics_that_share_a_log_keep_one_order_and_their_own_names() -> None:
    world = World("destinations: [{match: '/topic/w.>', partition: weather}]")
    client = world.connect()
    client.subscribe("/topic/w.>", ack="auto")
    only = world.connect()
    only.subscribe("/topic/w.b", ack="auto")
    sender = world.connect()
    for number in range(12):
        sender.publish(f"/topic/w.{'abc'[number % 3]}", f"{number}")
    world.settle()
    messages = client.messages()
    assert [message.body.decode() for message in messages] == [str(number) for number in range(12)]
    assert [message.headers["destination"][-1] for message in messages] == list("abc" * 4)
    assert {message.headers["partition"] for message in messages} == {"weather"}
    assert only.bodies() == ["1", "4", "7", "10"]


def test_two_rules_cannot_keep_one_log_in_two_ways() -> None:
    """Or a receipt would promise what only one of them says."""
    config = """
        destinations:
          - {match: '/topic/a.*', partition: 'p-{1}', fsync: never}
          - {match: '/topic/b.*', partition: 'p-{1}'}
          - {match: '/topic/c.*', partition: 'p-{1}', store: memory}
    """
    world = World(config)
    world.connect().publish("/topic/a.x", "m")
    for name in ("/topic/b.x", "/topic/c.x"):
        client = world.connect()
        client.publish(name, "m", receipt="r")
        world.settle()
        (error,) = client.take("ERROR")
        assert error.headers["error-code"] == "bad-destination" and b"fsync" in error.body
        assert error.headers["receipt-id"] == "r"
    client = world.connect()
    client.publish("/topic/b.y", "m", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]


def test_a_destination_that_no_rule_creates_is_not_found() -> None:
    world = World("destinations: [{match: '/queue/known'}, {match: '#', create: deny}]")
    for command in ("SEND", "SUBSCRIBE"):
        client = world.connect()
        client.say(command, destination="/queue/unknown", id="0")
        (error,) = client.take("ERROR")
        assert error.headers["error-code"] == "not-found"
        assert b"create: deny" in error.body
    client = world.connect()
    client.subscribe("/queue/known")
    client.publish("/queue/known", "m")
    world.settle()
    assert client.bodies() == ["m"]


def test_a_pattern_creates_nothing(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/*")
    world.settle()
    assert not world.broker.destinations


@pytest.mark.parametrize(
    "name",
    ["/topic/ü☃", "/topic/a b", "/topic/a:b", "/topic/..", "/topic/a/../b", "..", ".", "/", "a", "/topic/\t", "%2F"],
)
def test_any_text_is_a_name_and_stays_in_its_place(world: World, name: str) -> None:
    client = world.connect()
    client.subscribe(name, ack="auto")
    client.publish(name, "m", receipt="r")
    world.settle()
    (message,) = client.messages()
    assert message.headers["destination"] == name
    (receipt,) = client.take("RECEIPT")
    assert receipt.headers["partition"] == name
    assert all(path.startswith("/data/") and "/../" not in path for path in world.fs.nodes)
    world.restart()
    client = world.connect()
    client.subscribe(name, ack="auto", start_position="first")
    world.settle()
    assert client.bodies() == ["m"]


@pytest.mark.parametrize(
    ("version", "name"), [("1.2", "/topic/a:\r\n\\b"), ("1.1", "/topic/a:\n\\b"), ("1.0", "/topic/a:\\b")]
)
def test_names_are_escaped_as_the_version_of_the_client_says(world: World, version: str, name: str) -> None:
    client = world.connect(version)
    client.subscribe(name, ack="auto")
    client.publish(name, "m", receipt="r")
    world.settle()
    (receipt,) = client.take("RECEIPT")
    assert receipt.headers["partition"] == name
    (message,) = client.messages()
    assert message.headers["destination"] == message.headers["partition"] == name


@pytest.mark.parametrize("name", ["/topic/" + "x" * 300, "/topic/" + "ü" * 60])
def test_a_name_too_long_for_a_directory_is_refused(world: World, name: str) -> None:
    client = world.connect()
    client.publish(name, "m")
    assert client.error() == "bad-destination"


@pytest.mark.parametrize("name", ["/topic/*", "/topic/>", "#", "/topic/a,/topic/b", "/topic/a.*.c"])
def test_a_message_cannot_be_sent_to_a_pattern(world: World, name: str) -> None:
    client = world.connect()
    client.publish(name, "m")
    assert client.error() == "bad-destination"


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_reserved_names_are_refused(world: World, command: str) -> None:
    client = world.connect()
    client.say(command, destination="/radiator/stats", id="0")
    assert client.error() == "bad-destination"


def test_destinations_of_an_earlier_run_match_patterns_before_their_first_message(world: World) -> None:
    sender = world.connect()
    sender.publish("/topic/old.one", "1")
    sender.publish("/queue/old", "2")
    world.settle()
    world.kill()
    client = world.connect()
    client.subscribe("/topic/old.*", id="t", ack="auto", start_position="first")
    client.subscribe("/queue/*", id="q", ack="auto")
    world.settle()
    assert sorted(client.bodies()) == ["1", "2"]


# --- temporary queues -------------------------------------------------------------------------------------------------


def test_a_request_gets_its_reply_through_the_requesters_own_queue(world: World) -> None:
    server, client = world.connect(), world.connect()
    server.subscribe("/queue/requests", ack="auto")
    client.publish("/queue/requests", "ping", reply_to="/temp-queue/answers", correlation_id="7")
    world.settle()
    (request,) = server.messages()
    server.publish(request.headers["reply-to"], "pong", correlation_id=request.headers["correlation-id"])
    world.settle()
    (reply,) = client.messages()
    assert reply.body == b"pong"
    assert reply.headers["correlation-id"] == "7"
    assert reply.headers["subscription"] == "/temp-queue/answers"


def test_the_same_temporary_name_of_two_clients_is_two_queues(world: World) -> None:
    clients = [world.connect(), world.connect()]
    for client in clients:
        client.subscribe("/temp-queue/mine", ack="auto")
    clients[0].publish("/temp-queue/mine", "m")
    world.settle()
    assert [client.bodies() for client in clients] == [["m"], []]


def test_a_temporary_queue_goes_with_its_connection(world: World) -> None:
    client, other = world.connect(), world.connect()
    client.subscribe("/temp-queue/x", ack="auto")
    name = next(iter(client.session.temporary.names))
    client.drop()
    assert name not in world.broker.destinations
    other.publish(name, "late", receipt="r")
    world.settle()
    assert other.receipts() == ["r"]
    assert world.broker.stats.dropped_replies == 1
    assert name not in world.broker.destinations
    assert not [path for path in world.fs.nodes if "temp-queue" in path]


@pytest.mark.parametrize("how", ["{name}", "{name},/queue/a", "/queue/a,{name}", "{name},/topic/*"])
def test_no_other_client_can_subscribe_to_a_temporary_queue(world: World, how: str) -> None:
    owner, thief = world.connect(), world.connect()
    owner.subscribe("/temp-queue/x", ack="auto")
    name = next(iter(owner.session.temporary.names))
    thief.subscribe(how.format(name=name), ack="auto")
    assert thief.error() == "denied"


@pytest.mark.parametrize("pattern", ["#", ">", "/temp-queue/*", "/temp-queue/>", "/*/*"])
def test_no_pattern_reaches_a_temporary_queue(world: World, pattern: str) -> None:
    early, owner, late = world.connect(), world.connect(), world.connect()
    early.subscribe(pattern, ack="auto")
    owner.subscribe("/temp-queue/x", ack="auto")
    late.subscribe(pattern, ack="auto")
    owner.publish("/temp-queue/x", "1", "2", "3", receipt="r")
    world.settle()
    assert owner.bodies() == ["1", "2", "3"]
    assert early.messages() == late.messages() == []
    assert owner.take("RECEIPT")[0].headers["delivered-to"] == "1"


def test_a_temporary_name_in_a_list_is_the_clients_own(world: World) -> None:
    client, other = world.connect(), world.connect()
    client.subscribe("/temp-queue/x,/queue/a", ack="auto")
    if client.take("ERROR"):
        return  # refused is as good
    client.publish("/temp-queue/x", "m")
    world.settle()
    assert client.bodies() == ["m"]
    other.subscribe("/temp-queue/x", ack="auto")
    client.publish("/temp-queue/x", "m")
    world.settle()
    assert other.messages() == []
    client.drop()
    assert not [name for name in world.broker.destinations if name.startswith("/temp-queue/x") and "@" not in name]


# --- mandatory --------------------------------------------------------------------------------------------------------


def test_a_mandatory_message_without_a_receiver_is_refused(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/a", ack="auto")
    client.publish("/topic/a", "1", mandatory="true", receipt="r")
    world.settle()
    assert client.bodies() == ["1"]
    client.say("UNSUBSCRIBE", id="0")
    client.publish("/topic/a", "2", mandatory="true")
    world.settle()
    assert client.error() == "no-route"
    assert world.store.partitions["/topic/a"].next_offset == 1


# --- after a crash ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", sampled(range(1, 30), 8))
def test_a_log_in_which_a_power_cut_left_nothing_is_no_destination_of_that_name(call: int) -> None:
    """It was a topic's, whose options are others: that topic could never be made again."""
    for seed in range(5):
        world = World("destinations: [{match: '/topic/a', partitions: 2, retention: {acked: keep}}]")
        world.fs.random = Random(seed)
        world.connect().publish("/topic/a", "1", "2")
        world.fs.crash_at(call)
        with contextlib.suppress(Crash):
            world.commit()
        world.power_cut()
        assert set(world.broker.destinations) <= {"/topic/a"}, seed
        client = world.connect()
        client.publish("/topic/a", "3", "4")
        world.settle()
        assert not client.session.closing
