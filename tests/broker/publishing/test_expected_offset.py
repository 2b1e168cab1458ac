"""``expected-offset``: a message is stored only if the log ends there."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.client.sending import Outgoing
from tests.broker.harness import Client, World

TOPIC = "/topic/account.7"
CONFIG = """
defaults: {fsync: always}
destinations:
  - {match: /topic/spread, partitions: 4}
  - {match: /topic/joint.>, partition: joint}
  - {match: /queue/source, fan_out: [/queue/bound]}
  - {match: /queue/memory, store: memory}
  - {match: /queue/drops, max_messages: 1, on_full: drop_newest}
  - {match: /queue/blocks, max_messages: 1, on_full: block}
"""


@pytest.fixture
def world() -> World:
    return World(CONFIG)


def send(client: Client, expected: int | str, name: str = TOPIC, **headers: Any) -> None:
    client.say("SEND", f"at {expected}", f"r{expected}", destination=name, expected_offset=expected, **headers)


def conflict(client: Client) -> tuple[str, str]:
    """The log and the real offset of the ERROR that was heard."""
    (frame,) = client.take("ERROR")
    assert frame.headers["error-code"] == "conflict"
    assert client.session.closing
    return frame.headers["partition"], frame.headers["next-offset"]


def stored(world: World, name: str = TOPIC) -> list[str]:
    client = world.connect()
    client.subscribe(name, ack="auto", start_position="first", **({"browser": "true"} if "queue" in name else {}))
    world.settle()
    return [frame.body.decode() for frame in client.messages() if "replay-end" not in frame.headers]


def test_messages_are_stored_one_behind_the_other_and_the_header_is_not_delivered(world: World) -> None:
    client = world.connect()
    for expected in range(3):
        send(client, expected)
    world.settle()
    assert [frame.headers["offset"] for frame in client.take("RECEIPT")] == ["0", "1", "2"]
    reader = world.connect()
    reader.subscribe(TOPIC, start_position="first")
    world.settle()
    assert all("expected-offset" not in frame.headers for frame in reader.messages())


@pytest.mark.parametrize("expected", [0, 1, 3, 99])
def test_another_end_is_a_conflict_that_names_the_real_offset_and_stores_nothing(world: World, expected: int) -> None:
    client = world.connect()
    client.publish(TOPIC, "a", "b")
    world.settle()
    send(client, expected)
    world.settle()
    assert conflict(client) == (TOPIC, "2")
    assert stored(world) == ["a", "b"]


def test_of_two_writers_in_one_group_commit_one_wins_before_anything_is_on_the_disk(world: World) -> None:
    clients = [world.connect() for _ in range(5)]
    for client in clients:
        send(client, 0)
    world.settle()
    assert [len(client.take("RECEIPT")) for client in clients] == [1, 0, 0, 0, 0]
    assert [conflict(client) for client in clients[1:]] == [(TOPIC, "1")] * 4
    assert stored(world) == ["at 0"]


def test_a_write_that_fails_frees_its_offset(world: World) -> None:
    first, second = world.connect(), world.connect()
    world.fs.fail("fdatasync")
    send(first, 0)
    world.settle()
    assert first.error() == "storage"
    world.tick(5)
    send(second, 0)
    world.settle()
    assert second.receipts() == ["r0"]


@pytest.mark.parametrize("end", ["restart", "kill", "power_cut"])
def test_the_end_of_the_log_survives(world: World, end: str) -> None:
    client = world.connect()
    send(client, 0)
    send(client, 1)
    world.settle()
    getattr(world, end)()
    late, right = world.connect(), world.connect()
    send(late, 1)
    send(right, 2)
    world.settle()
    assert conflict(late) == (TOPIC, "2")
    assert right.receipts() == ["r2"]


def test_a_message_in_between_without_the_header_counts(world: World) -> None:
    client = world.connect()
    send(client, 0)
    client.publish(TOPIC, "another")
    send(client, 1)
    world.settle()
    assert conflict(client) == (TOPIC, "2")


def test_a_header_block_that_is_sent_twice_is_checked_twice(world: World) -> None:
    client = world.connect()
    for _ in range(2):
        client.say("SEND", "x", destination=TOPIC, expected_offset=0)
    world.settle()
    assert conflict(client) == (TOPIC, "1")


def test_a_repeat_is_answered_as_one_whatever_it_expects(world: World) -> None:
    client = world.connect()
    send(client, 0, dedup_id="x")
    client.publish(TOPIC, "later")
    world.settle()
    client.take("RECEIPT")
    send(client, 0, dedup_id="x")
    world.settle()
    (receipt,) = client.take("RECEIPT")
    assert (receipt.headers["offset"], receipt.headers["duplicate"]) == ("0", "true")
    send(client, 0, dedup_id="y")
    world.settle()
    assert conflict(client) == (TOPIC, "2")


def test_a_transaction_counts_its_own_messages(world: World) -> None:
    client = world.connect()
    client.publish(TOPIC, "before")
    client.say("BEGIN", transaction="t")
    send(client, 1, transaction="t")
    client.publish(TOPIC, "plain", transaction="t")
    send(client, 3, transaction="t")
    send(client, 0, "/topic/other", transaction="t")
    client.say("COMMIT", receipt="c", transaction="t")
    world.settle()
    assert client.receipts()[-1] == "c"
    assert stored(world) == ["before", "at 1", "plain", "at 3"]
    assert stored(world, "/topic/other") == ["at 0"]


def test_one_conflict_refuses_the_whole_commit_with_its_acknowledgements(world: World) -> None:
    client = world.connect()
    client.publish("/queue/work", "job")
    client.subscribe("/queue/work")
    world.settle()
    (job,) = client.messages()
    client.say("BEGIN", transaction="t")
    client.ack(job, transaction="t")
    send(client, 0, "/topic/other", transaction="t")
    send(client, 0, transaction="t")
    world.settle()
    world.connect().publish(TOPIC, "another")  # after the SEND of the transaction, before its COMMIT
    client.say("COMMIT", receipt="c", transaction="t")
    world.settle()
    assert conflict(client) == (TOPIC, "1")
    assert stored(world, "/topic/other") == []
    again = world.connect()
    again.subscribe("/queue/work")
    world.settle()
    assert again.bodies() == ["job"]


def test_a_transaction_that_is_sent_again_is_a_repeat(world: World) -> None:
    for _ in range(2):
        client = world.connect()
        client.say("BEGIN", transaction="t")
        send(client, 0, transaction="t", dedup_id="a")
        send(client, 1, transaction="t", dedup_id="b")
        client.say("COMMIT", receipt="c", transaction="t")
        world.settle()
        assert client.receipts()[-1] == "c"
    assert stored(world) == ["at 0", "at 1"]


@pytest.mark.parametrize("pair", [(0, 0), (0, 2), (1, 1), (5, 0)])
def test_offsets_that_contradict_each_other_in_a_transaction_are_a_conflict(
    world: World, pair: tuple[int, int]
) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    for expected in pair:
        send(client, expected, transaction="t")
    client.say("COMMIT", receipt="c", transaction="t")
    world.settle()
    assert client.error() == "conflict"
    assert stored(world) == []


def test_with_partitions_the_log_of_the_key_counts(world: World) -> None:
    client = world.connect()
    for key in ("a", "b", "c", "d"):
        client.say("SEND", key, key, destination="/topic/spread", partition=ord(key) - ord("a"), expected_offset=0)
    client.say("SEND", "e", "e", destination="/topic/spread", partition=0, expected_offset=1)
    world.settle()
    assert client.receipts() == ["a", "b", "c", "d", "e"]
    send(client, 0, "/topic/spread")
    world.settle()
    assert client.error() == "unsupported"


def test_destinations_of_one_log_count_together(world: World) -> None:
    client = world.connect()
    send(client, 0, "/topic/joint.a")
    send(client, 1, "/topic/joint.b")
    send(client, 1, "/topic/joint.a")
    world.settle()
    assert client.receipts() == ["r0", "r1"]
    assert conflict(client) == ("joint", "2")


@pytest.mark.parametrize("name", ["/queue/memory", "/queue/work"])
def test_queues_take_it_too_and_acknowledged_messages_count(world: World, name: str) -> None:
    client = world.connect()
    client.subscribe(name, ack="auto")
    send(client, 0, name)
    world.settle()
    assert client.bodies() == ["at 0"]
    client.take("RECEIPT")
    send(client, 1, name)
    world.settle()
    assert client.receipts() == ["r1"]
    send(client, 0, name)
    world.settle()
    assert conflict(client)[1] == "2"


def test_a_message_that_waits_for_room_is_checked_when_there_is_room(world: World) -> None:
    client, consumer = world.connect(), world.connect()
    client.publish("/queue/blocks", "1")
    world.settle()
    send(client, 1, "/queue/blocks")
    world.settle()
    assert client.take("RECEIPT") == []
    consumer.subscribe("/queue/blocks", ack="auto")
    world.tick(1)
    assert client.receipts() == ["r1"]


@pytest.mark.parametrize(
    ("name", "headers", "code"),
    [
        ("/queue/source", {}, "unsupported"),
        ("/queue/work", {"delay": "5s"}, "unsupported"),
        ("/queue/work", {"deliver_at": "99999999999999"}, "unsupported"),
        ("/topic/*", {}, "bad-destination"),
    ],
)
def test_it_is_refused_where_it_has_no_meaning(world: World, name: str, headers: dict[str, str], code: str) -> None:
    client = world.connect()
    send(client, 0, name, **headers)
    world.settle()
    assert client.error() == code


@pytest.mark.parametrize("value", ["", "-1", "one", "1.0", "١", "9" * 21])
def test_a_value_that_is_no_offset_is_a_bad_header(world: World, value: str) -> None:
    client = world.connect()
    client.say("SEND", "x", destination=TOPIC, expected_offset=value)
    world.settle()
    assert client.error() == "bad-header"


def test_a_queue_that_drops_new_messages_takes_it_alone_and_not_in_a_transaction(world: World) -> None:
    client = world.connect()
    send(client, 0, "/queue/drops")
    send(client, 1, "/queue/drops")
    world.settle()
    assert [frame.headers.get("dropped") for frame in client.take("RECEIPT")] == [None, "true"]
    client.say("BEGIN", transaction="t")
    send(client, 1, "/queue/drops", transaction="t")
    client.say("COMMIT", transaction="t")
    world.settle()
    assert client.error() == "unsupported"


def test_the_python_client_can_send_it() -> None:
    assert Outgoing(TOPIC, b"x", {"expected-offset": "0"}).headers == {"expected-offset": "0"}
