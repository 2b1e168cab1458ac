"""SEND of a reply: whoever asked may not read, or may be gone; that is no fault of whoever answers."""

from __future__ import annotations

import pytest

from radiator.broker.headers.send import without_secret
from radiator.limits import KIB
from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World

REPLY = "y" * 4_000


def asked(world: World) -> tuple[Client, Client, str]:
    """A requester, a responder, and where the reply goes."""
    responder, requester = world.connect(), world.connect()
    responder.subscribe("/queue/requests", ack="auto")
    requester.publish("/queue/requests", "q", reply_to="/temp-queue/answers")
    world.settle()
    (request,) = responder.messages()
    return requester, responder, request.headers["reply-to"]


def turn(world: World, *readers: Client) -> None:
    """One in which only ``readers`` read."""
    world.commit()
    world.reads()
    world.pump()
    for client in readers:
        client.flush()


def receipts(client: Client) -> list[Frame]:
    return client.take("RECEIPT")


def fill(world: World, responder: Client, name: str) -> list[Frame]:
    """Replies that nobody takes, until some are dropped; their receipts."""
    for number in range(100):
        responder.publish(name, REPLY, receipt=str(number))
        turn(world, responder)
    return receipts(responder)


def unread() -> tuple[World, Client, Client, str]:
    """As ``asked``, and the requester holds a reply that it does not acknowledge, so no other is sent."""
    world = World()
    requester, responder, name = asked(world)
    requester.say("UNSUBSCRIBE", id="/temp-queue/answers")
    requester.subscribe("/temp-queue/answers", id="slow", ack="client")
    world.settle()
    world.store.partitions[without_secret(name)].bytes_max = 64 * KIB  # type: ignore[attr-defined]
    return world, requester, responder, name


def test_replies_without_a_reader_are_dropped_and_counted_and_the_receipt_says_so() -> None:
    world, requester, responder, name = unread()
    found = fill(world, responder, name)
    assert [frame.headers["receipt-id"] for frame in found] == [str(number) for number in range(100)]
    dropped = [frame for frame in found if frame.headers.get("dropped") == "true"]
    assert 50 < len(dropped) < 100
    assert world.broker.stats.dropped_replies == len(dropped)
    assert not any("offset" in frame.headers for frame in dropped)
    assert not responder.session.closing and not responder.take("ERROR")
    responder.publish("/topic/other", "m", receipt="r")
    world.settle()
    assert [frame.headers["receipt-id"] for frame in receipts(responder)] == ["r"]
    assert world.broker.pending_bytes == 0
    assert not requester.session.closing


def test_a_requester_that_reads_again_gets_what_was_kept_and_what_comes_then() -> None:
    world, requester, responder, name = unread()
    found = fill(world, responder, name)
    kept = [frame.headers["receipt-id"] for frame in found if "dropped" not in frame.headers]
    got = 0
    while messages := requester.messages():
        for message in messages:
            requester.ack(message)
            got += 1
        world.settle()
    assert got == len(kept)
    responder.publish(name, "after", receipt="r")
    world.settle()
    assert requester.bodies() == ["after"]
    assert ["dropped" in frame.headers for frame in receipts(responder)] == [False]


@pytest.mark.parametrize("receipt", [None, "late"])
def test_a_reply_to_a_requester_that_has_left_is_dropped(world: World, receipt: str | None) -> None:
    requester, responder, name = asked(world)
    requester.drop()
    responder.publish(name, "pong", receipt=receipt)
    world.settle()
    assert [frame.headers.get("dropped") for frame in receipts(responder)] == (["true"] if receipt else [])
    assert world.broker.stats.dropped_replies == 1
    assert not responder.session.closing
    assert name not in world.broker.destinations


def test_a_reply_to_a_requester_that_has_unsubscribed_waits_for_it(world: World) -> None:
    requester, responder, name = asked(world)
    requester.say("UNSUBSCRIBE", id="/temp-queue/answers")
    responder.publish(name, "pong", receipt="r")
    world.settle()
    (receipt,) = receipts(responder)
    requester.subscribe("/temp-queue/answers", ack="auto")
    world.settle()
    # Kept, or dropped and said so; a receipt that promises more than what happened is neither.
    assert (requester.bodies(), receipt.headers.get("dropped")) in ([["pong"], None], ([], "true"), (["pong"], None))


def test_replies_without_a_reader_in_a_transaction_do_not_end_the_connection() -> None:
    world, _, responder, name = unread()
    fill(world, responder, name)
    world.broker.stats.dropped_replies = 0
    responder.say("BEGIN", transaction="t")
    responder.publish("/topic/before", "m", transaction="t")
    responder.publish(name, REPLY, transaction="t")
    responder.publish("/topic/after", "m", transaction="t")
    responder.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert not responder.take("ERROR")
    assert [frame.headers["receipt-id"] for frame in receipts(responder)] == ["c"]
    assert world.broker.stats.dropped_replies == 1
    assert [world.store.partitions[f"/topic/{each}"].high_watermark for each in ("before", "after")] == [1, 1]


def test_a_reply_in_a_transaction_to_a_requester_that_has_left_is_dropped_and_the_rest_is_stored(world: World) -> None:
    requester, responder, name = asked(world)
    requester.drop()
    responder.say("BEGIN", transaction="t")
    responder.publish(name, "pong", transaction="t", receipt="held")
    responder.publish("/topic/a", "m", transaction="t")
    responder.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert [frame.headers["receipt-id"] for frame in receipts(responder)] == ["held", "c"]
    assert world.broker.stats.dropped_replies == 1
    assert world.store.partitions["/topic/a"].high_watermark == 1


def test_another_full_log_in_memory_refuses_as_ever() -> None:
    """Only replies are dropped: who sends to a queue that is full is told."""
    world = World("destinations: [{match: /queue/a, store: memory, retention: {size: 64KiB}}]")
    sender = world.connect()
    for _ in range(100):
        sender.publish("/queue/a", REPLY, receipt="r")
        world.settle()
    assert sender.error() == "storage"
    assert world.broker.stats.dropped_replies == 0
