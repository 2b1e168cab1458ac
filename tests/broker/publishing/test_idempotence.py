"""A message that says which one it is is stored once: repeats get the receipt of the first."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.broker.headers.send import identify, identity_of
from radiator.errors import ProtocolError
from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World

QUEUE = "/queue/a"
SPREAD = "destinations: [{match: '/queue/>', partitions: 4}]"


def stored(world: World, name: str = QUEUE) -> list[str]:
    """The bodies of everything that is kept, as a browser sees them."""
    client = world.connect()
    client.subscribe(name, ack="auto", browser="true", start_position="first")
    world.settle()
    return [frame.body.decode() for frame in client.messages() if "replay-end" not in frame.headers]


def send(client: Client, body: str, receipt: str | None = "r", **headers: Any) -> None:
    client.say("SEND", body, receipt, destination=headers.pop("destination", QUEUE), **headers)


def finish(world: World) -> None:
    """The group of disk work that was taken comes to its end, and all that follows."""
    world.write()
    world.sync()
    world.completed()
    world.settle()


def receipt(client: Client) -> Frame:
    (frame,) = client.take("RECEIPT")
    return frame


# --- a repeat ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [{"dedup_id": "order-7"}, {"producer_id": "p1", "sequence": 7}])
def test_a_repeat_is_not_stored_and_gets_the_offset_of_the_first(said: dict[str, Any]) -> None:
    world = World()
    client = world.connect()
    send(client, "other")
    send(client, "first", **said)
    world.settle()
    first = client.take("RECEIPT")[1]
    send(client, "again", "r2", **said)
    world.settle()
    again = receipt(client)
    assert again.headers["receipt-id"] == "r2" and again.headers["duplicate"] == "true"
    assert (again.headers["offset"], again.headers["partition"]) == ("1", QUEUE)
    assert first.headers["offset"] == "1" and "duplicate" not in first.headers
    assert stored(world) == ["other", "first"]
    assert world.broker.stats.duplicates == 1
    assert world.broker.stats.messages_in == 2


def test_a_repeat_on_another_connection_is_one_too() -> None:
    world = World()
    send(world.connect(), "first", None, dedup_id="x")
    other = world.connect("1.1")
    send(other, "again", dedup_id="x")
    world.settle()
    assert receipt(other).headers["duplicate"] == "true"
    assert stored(world) == ["first"]


def test_a_repeat_without_a_receipt_is_dropped_and_counted() -> None:
    world = World()
    client = world.connect()
    for _ in range(3):
        send(client, "x", None, dedup_id="x")
    world.settle()
    assert stored(world) == ["x"] and world.broker.stats.duplicates == 2


def test_other_ids_and_other_destinations_are_other_messages() -> None:
    world = World()
    client = world.connect()
    for said in (
        {"dedup_id": "7"},
        {"dedup_id": "8"},
        {"producer_id": "7", "sequence": 7},
        {"producer_id": "7", "sequence": 8},
        {"producer_id": "8", "sequence": 7},
        {"dedup_id": "7", "destination": "/queue/b"},
    ):
        send(client, "x", **said)
    world.settle()
    assert not any("duplicate" in frame.headers for frame in client.take("RECEIPT"))
    assert world.broker.stats.messages_in == 6


def test_destinations_that_share_a_partition_have_ids_of_their_own() -> None:
    world = World("destinations: [{match: '/queue/>', partition: all}]")
    client = world.connect()
    send(client, "a", dedup_id="x", destination="/queue/a")
    send(client, "b", dedup_id="x", destination="/queue/b")
    world.settle()
    assert world.broker.stats.messages_in == 2


def test_a_sequence_is_a_number_and_not_its_digits() -> None:
    world = World()
    client = world.connect()
    send(client, "x", None, producer_id="p", sequence="7")
    send(client, "x", producer_id="p", sequence="007")
    world.settle()
    assert receipt(client).headers["duplicate"] == "true"


@pytest.mark.parametrize("store", ["file", "memory"])
def test_a_queue_that_is_full_still_knows_what_it_has(store: str) -> None:
    world = World(f"destinations: [{{match: '/queue/>', store: {store}, max_messages: 1}}]")
    client = world.connect()
    send(client, "x", dedup_id="x")
    send(client, "x", "r2", dedup_id="x")
    world.settle()
    assert client.take("RECEIPT")[1].headers["duplicate"] == "true"
    send(client, "y", dedup_id="y")
    world.settle()
    assert client.error() == "full"
    consumer = world.connect()
    consumer.subscribe(QUEUE, ack="auto")
    world.settle()
    assert consumer.bodies() == ["x"]
    send(world.connect(), "y", dedup_id="y")  # what was refused was not remembered
    world.settle()
    assert consumer.bodies() == ["y"]


def test_a_full_disk_refuses_new_messages_and_knows_the_old_ones() -> None:
    world = World()
    client = world.connect()
    send(client, "x", dedup_id="x")
    world.settle()
    world.broker.files_refused = ProtocolError("storage", "full")
    client.take()
    send(client, "x", dedup_id="x")
    world.settle()
    assert receipt(client).headers["duplicate"] == "true"


def test_switched_off_the_headers_are_the_clients_own() -> None:
    world = World("defaults: {dedup: {window: none}}")
    client = world.connect()
    send(client, "1", sequence="first", dedup_id="")
    send(client, "2", dedup_id="x")
    send(client, "3", dedup_id="x")
    world.settle()
    assert stored(world) == ["1", "2", "3"]


# --- under way --------------------------------------------------------------------------------------------------------


def test_a_repeat_waits_for_the_batch_of_the_first() -> None:
    world = World()
    client, other = world.connect(), world.connect()
    send(client, "first", dedup_id="x")
    world.take()
    send(other, "again", "again", dedup_id="x")
    send(other, "more", "more")
    world.flush()
    assert not other.take("RECEIPT")
    world.write()
    world.sync()
    world.completed()
    world.flush()
    assert [(frame.headers["receipt-id"], frame.headers["offset"]) for frame in other.take()] == [("again", "0")]
    assert client.receipts() == ["r"]
    world.settle()
    assert other.receipts() == ["more"]
    assert world.broker.pending_bytes == 0


def test_receipts_of_repeats_keep_the_order_of_the_frames() -> None:
    world = World()
    client = world.connect()
    send(client, "x", None, dedup_id="x")
    world.settle()
    send(client, "a", "1")
    send(client, "x", "2", dedup_id="x")
    send(client, "b", "3", dedup_id="b")
    send(client, "b", "4", dedup_id="b")
    send(client, "b", "5", dedup_id="b")
    world.flush()
    assert client.receipts() == []
    world.settle()
    assert client.receipts() == ["1", "2", "3", "4", "5"]
    assert world.broker.pending_bytes == 0


def test_if_the_first_cannot_be_stored_the_repeat_gets_the_same_error() -> None:
    world = World()
    client, other = world.connect(), world.connect()
    send(client, "first", "r1", dedup_id="x")
    world.take()
    send(other, "again", "r2", dedup_id="x")
    world.fs.fail("pwritev")
    finish(world)
    errors = [each.take("ERROR")[0] for each in (client, other)]
    assert [frame.headers["error-code"] for frame in errors] == ["storage", "storage"]
    assert [frame.headers["receipt-id"] for frame in errors] == ["r1", "r2"]


def test_what_could_not_be_stored_is_not_remembered() -> None:
    world = World()
    client = world.connect()
    send(client, "kept", None, dedup_id="kept")
    world.settle()
    send(client, "lost", "r1", dedup_id="lost")
    world.take()
    send(world.connect(), "behind", dedup_id="behind")
    world.fs.fail("pwritev")
    finish(world)
    assert client.error() == "storage"
    world.tick(2)
    retry = world.connect()
    for name in ("kept", "lost", "behind"):
        send(retry, name, name, dedup_id=name)
    world.settle()
    said = {frame.headers["receipt-id"]: frame.headers.get("duplicate") for frame in retry.take("RECEIPT")}
    assert said == {"kept": "true", "lost": None, "behind": None}
    assert stored(world) == ["kept", "lost", "behind"]


# --- the window -------------------------------------------------------------------------------------------------------


def test_after_the_window_it_is_a_new_message() -> None:
    world = World("defaults: {dedup: {window: 10s}}")
    client = world.connect()
    send(client, "1", dedup_id="x")
    world.tick(9.999)
    send(client, "2", dedup_id="x")
    world.tick(0.001)
    send(client, "3", dedup_id="x")
    world.settle()
    assert [frame.headers.get("duplicate") for frame in client.take("RECEIPT")] == [None, "true", None]
    world.tick(5)
    send(client, "4", dedup_id="x")
    world.settle()
    assert receipt(client).headers["offset"] == "1"
    assert stored(world) == ["1", "3"]


def test_a_clock_that_is_set_back_forgets_nothing() -> None:
    world = World()
    client = world.connect()
    send(client, "1", dedup_id="x")
    world.tick(-3_600)
    send(client, "2", dedup_id="x")
    world.settle()
    assert client.take("RECEIPT")[1].headers["duplicate"] == "true"


def test_the_last_ones_are_remembered_up_to_the_count() -> None:
    world = World("defaults: {dedup: {count: 50}}")
    client = world.connect()
    for number in range(300):
        send(client, str(number), None, dedup_id=number)
    world.settle()
    for number in (299, 250, 0):
        send(client, "again", dedup_id=number)
    world.settle()
    assert [frame.headers.get("duplicate") for frame in client.take("RECEIPT")] == ["true", "true", None]


# --- partitions -------------------------------------------------------------------------------------------------------


def test_with_several_partitions_the_id_chooses_one() -> None:
    world = World(SPREAD)
    client = world.connect()
    for number in range(40):
        send(client, str(number), f"{number}", dedup_id=number)
    world.settle()
    first = {frame.headers["receipt-id"]: frame for frame in client.take("RECEIPT")}
    assert len({frame.headers["partition"] for frame in first.values()}) == 4
    for number in range(40):
        send(client, str(number), f"{number}", dedup_id=number)
    world.settle()
    for again in client.take("RECEIPT"):
        assert again.headers["duplicate"] == "true"
        for header in ("offset", "partition"):
            assert again.headers[header] == first[again.headers["receipt-id"]].headers[header]


def test_the_messages_of_one_producer_stay_in_one_partition() -> None:
    world = World(SPREAD)
    client = world.connect()
    for number in range(20):
        send(client, str(number), producer_id="p", sequence=number)
    world.settle()
    assert len({frame.headers["partition"] for frame in client.take("RECEIPT")}) == 1


def test_a_key_chooses_the_partition_as_ever() -> None:
    world = World(SPREAD)
    client = world.connect()
    send(client, "x", partition_key="k")
    send(client, "x", partition_key="k", dedup_id="another")
    send(client, "x", partition="2", dedup_id="a third")
    world.settle()
    plain, keyed, forced = (frame.headers["partition"] for frame in client.take("RECEIPT"))
    assert plain == keyed and forced == "/queue/a-2"


def test_two_destinations_of_one_partition_must_agree() -> None:
    with pytest.raises(Exception, match=r"dedup\.window, dedup\.count"):
        World(
            "destinations: [{match: /queue/a, partition: p}, "
            "{match: /queue/b, partition: p, dedup: {window: 1s, count: 7}}]"
        )


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_repeat_in_a_transaction_is_dropped_at_commit() -> None:
    world = World()
    client = world.connect()
    send(client, "before", None, dedup_id="b")
    world.settle()
    client.say("BEGIN", transaction="t")
    for body, said in (("before", "b"), ("1", "1"), ("2", "2"), ("1", "1")):
        send(client, body, None, dedup_id=said, transaction="t")
    client.say("COMMIT", receipt="done", transaction="t")
    world.settle()
    assert client.receipts() == ["done"]
    assert stored(world) == ["before", "1", "2"]
    assert world.broker.stats.duplicates == 2
    send(client, "2", dedup_id="2")
    world.settle()
    assert receipt(client).headers["offset"] == "2"


def test_what_was_aborted_was_never_remembered() -> None:
    world = World()
    client = world.connect()
    client.say("BEGIN", transaction="t")
    send(client, "x", None, dedup_id="x", transaction="t")
    client.say("ABORT", transaction="t")
    send(client, "x", dedup_id="x")
    world.settle()
    assert "duplicate" not in receipt(client).headers
    assert stored(world) == ["x"]


def test_a_commit_of_nothing_but_a_repeat_waits_for_the_first() -> None:
    world = World()
    client, other = world.connect(), world.connect()
    send(client, "x", dedup_id="x")
    world.take()
    other.say("BEGIN", transaction="t")
    send(other, "x", None, dedup_id="x", transaction="t")
    other.say("COMMIT", receipt="done", transaction="t")
    world.flush()
    assert other.receipts() == []
    finish(world)
    assert other.receipts() == ["done"]


def test_a_transaction_that_is_committed_again_after_a_lost_receipt_changes_nothing() -> None:
    world = World()
    for _ in range(2):
        client = world.connect()
        client.say("BEGIN", transaction="t")
        for number in range(5):
            send(client, str(number), None, producer_id="p", sequence=number, transaction="t")
        client.say("COMMIT", receipt="done", transaction="t")
        world.settle()
        assert client.receipts() == ["done"]
    assert stored(world) == ["0", "1", "2", "3", "4"]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [{"producer_id": "p"}, {"sequence": "one"}])
def test_one_header_of_the_pair_is_the_clients_own(own: dict[str, Any]) -> None:
    world = World()
    client = world.connect()
    send(client, "a", **own)
    send(client, "b", **own)
    send(client, "c", dedup_id="x", **own)
    send(client, "d", dedup_id="x", **own)
    world.settle()
    assert stored(world) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "said, words",
    [
        ({"producer_id": "", "sequence": "1"}, "producer-id"),
        ({"producer_id": "p", "sequence": "1.5"}, "number"),
        ({"producer_id": "p", "sequence": "-1"}, "number"),
        ({"producer_id": "p", "sequence": "\u0663"}, "number"),
        ({"producer_id": "p", "sequence": "1" * 21}, "number"),
        ({"dedup_id": ""}, "dedup-id"),
        ({"dedup_id": "x", "producer_id": "p", "sequence": "1"}, "dedup-id"),
    ],
)
def test_an_incomplete_message_id_is_refused_with_the_reason(said: dict[str, Any], words: str) -> None:
    world = World()
    client = world.connect()
    send(client, "x", **said)
    world.settle()
    (frame,) = client.take("ERROR")
    assert frame.headers["error-code"] == "bad-header"
    assert words in frame.headers["message"] + frame.body.decode()
    assert "dedup: {window: none}" in frame.body.decode()
    assert world.broker.stats.messages_in == 0


# --- headers and stored blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("text", ["plain", "with:colon", "with\\backslash", "ünï", "dedup-id:x"])
def test_the_log_and_the_headers_say_the_same_identity(version: str, text: str) -> None:
    world = World()
    client = world.connect(version)
    send(client, "x", dedup_id=text, z="last")
    send(client, "x", producer_id=text, sequence="0012", a="1")
    world.settle()
    partition: Any = world.store.partitions[QUEUE]
    batch = partition.read(0)
    for offset, block in enumerate(batch.blocks):
        found = identify(QUEUE, block)
        assert found is not None and partition.find_duplicate(found, world.now) == offset
    if version != "1.0":
        assert identify(QUEUE, batch.blocks[0]) == identity_of(QUEUE, {"dedup-id": text})


def test_a_block_that_says_nothing_has_no_identity() -> None:
    assert identify(QUEUE, b"") is None
    assert identify(QUEUE, b"content-type:text/plain\nx:dedup-id:1") is None
    assert identify(QUEUE, b"sequence:1") is None
    assert identify(QUEUE, b"producer-id:p\nsequence:x") is None
    assert identify(QUEUE, b"\xff\xfe\ndedup-id:") is None


def test_such_messages_fill_no_cache() -> None:
    world = World()
    client = world.connect()
    for number in range(100):
        send(client, "x", None, dedup_id=number)
        send(client, "x", None, producer_id="p", sequence=number)
    world.settle()
    assert world.broker.stats.messages_in == 200
    assert all(len(cache) == 0 for cache in world.caches.values())


# --- what says nothing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/queue/a", "/topic/a"])
@pytest.mark.parametrize("said", [{"sequence": 1}, {"producer_id": "p"}, {"sequence": ""}, {"producer_id": ""}])
def test_half_of_a_pair_means_nothing_where_there_are_several_partitions(said: dict[str, Any], name: str) -> None:
    world = World("destinations: [{match: '/*/>', partitions: 4}]")
    client = world.connect()
    for _ in range(4):
        send(client, "m", destination=name, **said)
    world.settle()
    answers = client.take("RECEIPT")
    assert len({each.headers["partition"] for each in answers}) == 4, "as without the header: each takes the next"


@pytest.mark.parametrize("other", [{"producer_id": "p"}, {"sequence": 3}])
def test_half_of_a_pair_beside_an_identity_does_not_choose_the_partition(other: dict[str, Any]) -> None:
    world = World(SPREAD)
    client = world.connect()
    send(client, "m", dedup_id="7", **other)
    send(client, "m", dedup_id="7")
    world.settle()
    first, again = client.take("RECEIPT")
    assert again.headers.get("duplicate") == "true" and again.headers["partition"] == first.headers["partition"]
