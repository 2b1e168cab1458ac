"""A session: what wakes its transport, how it ends, and a client that does not read."""

from __future__ import annotations

import pytest

from radiator.broker.clients.session import Session
from radiator.config import LimitsConfig
from radiator.errors import ProtocolError
from radiator.limits import MIB
from tests.broker.harness import Client, World


def new(outbox: int = 100) -> tuple[Session, list[Session]]:
    woken: list[Session] = []
    session = Session(
        "s1", "secret", LimitsConfig(outbox=outbox), woken.append, lambda each, error, receipt: each.fail(error)
    )
    return session, woken


def test_the_transport_is_woken_once_per_filled_outbox() -> None:
    session, woken = new()
    session.outbox.add(b"a")
    session.outbox.add(b"b")
    assert woken == [session]
    assert session.outbox.take() == [b"a", b"b"]
    session.outbox.add(b"c")
    assert woken == [session, session]


def test_a_closed_session_takes_no_bytes() -> None:
    session, woken = new()
    session.end()
    session.outbox.add(b"a")
    assert not session.outbox.pieces
    assert not woken


def test_failing_sends_one_error_and_closes() -> None:
    session, _ = new(outbox=10_000)
    session.fail(ProtocolError("bad-header", "first"), b"r-1")
    (frame,) = session.outbox.take()
    assert frame.startswith(b"ERROR\n")
    assert b"first" in frame
    assert b"receipt-id:r-1" in frame
    assert session.closing


# --- a client that does not read --------------------------------------------------------------------------------------

LONG = "r" * 60_000  # of a receipt


def ask(client: Client, how: str, number: int) -> None:
    """Something small that is answered by something large."""
    receipt = f"{number}-{LONG}"
    if how == "transactions":
        client.say("BEGIN", transaction="t")
        client.say("ABORT", transaction="t", receipt=receipt)
    elif how == "subscriptions":
        client.subscribe("/topic/a", receipt=receipt)
        client.say("UNSUBSCRIBE", id="0")
    elif how == "commits":
        client.say("BEGIN", transaction="t")
        client.publish("/topic/a", "m", transaction="t")
        client.say("COMMIT", transaction="t", receipt=receipt)
    else:
        client.publish(how, "m", receipt=receipt)


@pytest.mark.parametrize("commits", [False, True], ids=["slow disk", "quick disk"])
@pytest.mark.parametrize("how", ["/topic/a", "/topic/memory", "commits", "transactions", "subscriptions"])
def test_a_client_that_does_not_read_its_receipts_is_choked_until_it_does(how: str, commits: bool) -> None:
    world = World("destinations: [{match: /topic/memory, store: memory}]", limits=LimitsConfig(outbox=MIB))
    client = world.connect()
    asked = 0
    while not client.session.choked:
        assert asked < 400, "24 MB of answers are waiting, and it is still read"
        ask(client, how, asked)
        asked += 1
        if commits:
            world.commit()
    assert asked > 20  # a burst alone is no reason
    world.commit()
    assert client.session.choked  # that the disk is done does not help: it must read
    client.flush()
    assert not client.session.choked
    assert [receipt.partition("-")[0] for receipt in client.receipts()] == [str(number) for number in range(asked)]
    assert client.session.outbox.unsent_bytes == client.session.receipts.held_bytes == 0


def test_a_client_that_reads_is_never_choked(world: World) -> None:
    client = world.connect()
    for number in range(300):
        ask(client, "/topic/a", number)
        world.settle()
        assert not client.session.choked
    assert len(client.receipts()) == 300


def test_deliveries_alone_do_not_choke(world: World) -> None:
    """They stop at a full outbox by themselves, and acks must still be read."""
    client, sender = world.connect(), world.connect()
    client.subscribe("/topic/a", ack="auto")
    client.subscribe("/queue/a", id="q", ack="auto")
    for name in ("/topic/a", "/queue/a"):
        sender.publish(name, *["x" * 100_000] * 60)
    for _ in range(100):
        world.commit()
        world.pump()
    assert client.session.outbox.room() <= 0
    assert not client.session.choked


def test_what_a_failed_commit_took_from_the_line_weighs_nothing(world: World) -> None:
    client = world.connect()
    for number in range(20):
        ask(client, "/topic/a", number)
    assert client.session.receipts.held_bytes > 20 * len(LONG)
    world.fs.fail("pwritev")
    world.settle()
    assert client.session.receipts.held_bytes == 0
    assert client.error() == "storage"
