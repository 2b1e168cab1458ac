"""A session: its outbox, its room, auto-acknowledged runs, and how it ends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from radiator.broker.clients.session import AutoAck, Session
from radiator.config import LimitsConfig
from radiator.errors import ProtocolError
from radiator.limits import MIB
from tests.broker.harness import Client, World


class Source:
    """What an AutoAck settles."""

    def __init__(self) -> None:
        self.settled: list[int] = []

    queue = SimpleNamespace(assignment=None)

    def settle(self, offsets: list[int]) -> None:
        self.settled += offsets


def new(outbox: int = 100) -> tuple[Session, list[Session]]:
    woken: list[Session] = []
    session = Session(
        "s1", "secret", LimitsConfig(outbox=outbox), woken.append, lambda each, error, receipt: each.fail(error)
    )
    return session, woken


def test_the_transport_is_woken_once_per_filled_outbox() -> None:
    session, woken = new()
    session.send(b"a")
    session.send(b"b")
    assert woken == [session]
    assert session.take_outbox() == [b"a", b"b"]
    session.send(b"c")
    assert woken == [session, session]


def test_bytes_count_against_the_room_until_they_have_left() -> None:
    session, _ = new(outbox=100)
    session.send(b"x" * 60)
    session.take_outbox()
    assert session.room() == 40
    session.flushed(50)
    assert session.room() == 90
    session.flushed(10)
    assert session.room() == 100
    assert session.outbox_bytes == 0


def test_a_closed_session_takes_no_bytes() -> None:
    session, woken = new()
    session.end()
    session.send(b"a")
    assert not session.outbox
    assert not woken


def test_an_auto_acked_run_settles_when_its_last_byte_has_left() -> None:
    session, _ = new()
    source = Source()
    session.send(b"x" * 10)
    session.auto_acks.append(AutoAck(session.queued_total, source, [3, 4], [5, 5]))
    session.flushed(9)
    assert source.settled == []
    session.flushed(1)
    assert source.settled == [3, 4]
    assert not session.auto_acks


def test_a_run_that_was_cut_off_is_split_where_the_bytes_end() -> None:
    run = AutoAck(30, Source(), [1, 2, 3], [10, 10, 10])
    assert run.unwritten(0) == ([], [1, 2, 3])
    assert run.unwritten(9) == ([], [1, 2, 3])
    assert run.unwritten(10) == ([1], [2, 3])
    assert run.unwritten(29) == ([1, 2], [3])
    assert run.unwritten(30) == ([1, 2, 3], [])


def test_failing_sends_one_error_and_closes() -> None:
    session, _ = new(outbox=10_000)
    session.fail(ProtocolError("bad-header", "first"), b"r-1")
    (frame,) = session.take_outbox()
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
    assert client.session.outbox_bytes == client.session.receipts.held_bytes == 0


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
    assert client.session.room() <= 0
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
