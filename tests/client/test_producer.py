"""Producers: batches, results, limits and errors, with threads and in asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from radiator.client import ClientError, Disconnected, Outgoing, Receipt, Reconnect, ServerError, TimedOut, aio, connect
from radiator.client.producer import PENDING_BYTES_MAX, Batches
from radiator.stomp.frames import Frame
from tests.client.chaos import killing
from tests.client.fake import FakeBroker, Peer
from tests.running import BrokerProcess

WAIT_SECONDS = 20.0
FAST = Reconnect(delay=0.01, delay_max=0.05, timeout=20.0)


def sends(fake: FakeBroker) -> list[Frame]:
    return [frame for frame in fake.frames if frame.command == "SEND"]


def refuse_bad(fake: FakeBroker) -> Callable[[Peer, Frame], None]:
    def refuse(peer: Peer, frame: Frame) -> None:
        if frame.body == b"bad":
            assert frame.receipt is not None
            peer.send("ERROR", {"error-code": "rejected", "message": "no", "receipt-id": frame.receipt.decode()})
            peer.close()
            peer.broker.on["SEND"] = drop_of(peer)
        else:
            fake.default(peer, frame)

    def drop_of(dead: Peer) -> Callable[[Peer, Frame], None]:
        """As a real broker, read nothing more from a connection that got an ERROR."""
        return lambda peer, frame: None if peer is dead else fake.default(peer, frame)

    return refuse


def test_a_batch_is_complete_by_count_or_by_bytes_and_pending_messages_are_bounded() -> None:
    batches: Batches[int] = Batches(3, 5, with_ids=False)
    message = Outgoing("/a", b"x")
    assert [batches.add(message, number) for number in range(3)] == [False, False, True]
    first = batches.take()
    assert batches.has_room(message)
    batches.add(message, 3)
    batches.add(message, 4)
    assert not batches.has_room(message)
    batches.settled(first)
    assert batches.has_room(message)
    assert not batches.has_room(Outgoing("/a", b"x" * (PENDING_BYTES_MAX + 1)))
    batches.settled(batches.take())
    assert batches.has_room(Outgoing("/a", b"x" * (PENDING_BYTES_MAX + 1)))
    assert batches.add(Outgoing("/a", b"x" * (PENDING_BYTES_MAX + 1)), 5)


def test_every_message_has_an_id_of_its_own_unless_the_caller_gave_one() -> None:
    batches: Batches[int] = Batches(3, 5, with_ids=True)
    headers = [
        batches.prepare("/a", b"", None, None).headers,
        batches.prepare("/a", b"", None, None).headers,
        batches.prepare("/a", b"", {"producer-id": "p", "sequence": 1}, None).headers,
        batches.prepare("/a", b"", {"x": "y"}, "mine").headers,
    ]
    assert headers[0] != headers[1]
    assert [*(headers[0] or {})] == ["dedup-id"]
    assert headers[2:] == [{"producer-id": "p", "sequence": 1}, {"x": "y", "dedup-id": "mine"}]


def test_each_message_gets_its_receipt_and_the_callback_sees_all_in_order(fake: FakeBroker) -> None:
    seen: list[tuple[bytes, Receipt | None, ClientError | None]] = []
    with connect(fake.address) as connection:
        with connection.producer(
            batch=10,
            on_delivery=lambda message, receipt, error: seen.append((message.body, receipt, error)),  # type: ignore[arg-type]
        ) as producer:
            futures = [producer.send("/queue/a", b"%d" % number) for number in range(25)]
            assert futures[0].result(WAIT_SECONDS) == Receipt(0, "/queue/a", 0)
            producer.flush(WAIT_SECONDS)
            assert producer.pending == 0
            assert [future.result(0).offset for future in futures] == list(range(25))
        with pytest.raises(ClientError, match="closed"):
            producer.send("/queue/a", b"late")
    assert seen == [(b"%d" % number, Receipt(number, "/queue/a", 0), None) for number in range(25)]
    assert "dedup-id" not in sends(fake)[0].headers  # without reconnects nothing is sent again


def test_a_message_waits_for_others_no_longer_than_linger(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.producer(linger=0.02, batch=1_000) as producer:
        producer.send("/queue/a", b"alone")
        fake.wait_for("SEND")
    with connect(fake.address) as connection:
        producer = connection.producer(linger=1_000.0, batch=3)
        for number in range(4):
            producer.send("/queue/a", b"%d" % number)
        fake.wait_for("SEND", 4)
        producer.close(WAIT_SECONDS)
    assert len(sends(fake)) == 5


def test_a_full_producer_makes_its_caller_wait(fake: FakeBroker) -> None:
    held: list[tuple[Peer, Frame]] = []
    fake.on["SEND"] = lambda peer, frame: held.append((peer, frame))
    with connect(fake.address) as connection:
        producer = connection.producer(max_pending=2, linger=0.0)
        producer.send("/queue/a", b"1")
        producer.send("/queue/a", b"2")
        with pytest.raises(TimedOut, match="pending"):
            producer.send("/queue/a", b"3", timeout=0)
        with pytest.raises(TimedOut):
            producer.flush(0.01)
        waiting = threading.Thread(target=producer.send, args=("/queue/a", b"3"))
        waiting.start()
        fake.wait_for("SEND", 2)
        del fake.on["SEND"]
        for peer, frame in held:
            peer.receipt(frame)
        waiting.join(WAIT_SECONDS)
        producer.close(WAIT_SECONDS)
    assert [frame.body for frame in sends(fake)] == [b"1", b"2", b"3"]


def test_a_bad_header_is_refused_at_once(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.producer() as producer:
        with pytest.raises(ValueError, match="receipt"):
            producer.send("/queue/a", b"x", {"receipt": "1"})
        with pytest.raises(ValueError, match="NUL"):
            producer.send("/queue/a", b"x", {"a": "\0"})
        assert producer.send("/queue/a", b"y").result(WAIT_SECONDS).offset == 0


def test_a_refused_message_has_an_error_of_its_own_and_flush_raises_it(fake: FakeBroker) -> None:
    fake.on["SEND"] = refuse_bad(fake)
    errors: list[tuple[Any, ClientError]] = []

    def on_delivery(message: Outgoing, receipt: Receipt | None, error: ClientError | None) -> None:
        if error is not None:
            errors.append((message.body, error))
            raise KeyError("callbacks may fail")

    with connect(fake.address, reconnect=FAST) as connection:
        producer = connection.producer(linger=1_000.0, on_delivery=on_delivery)
        first = producer.send("/queue/a", b"first")
        bad = producer.send("/queue/a", b"bad")
        behind = producer.send("/queue/a", b"behind")
        with pytest.raises(ServerError, match="rejected"):
            producer.flush(WAIT_SECONDS)
        assert first.result(0).offset == 0
        assert behind.result(0).offset == 1
        with pytest.raises(ServerError):
            bad.result(0)
        producer.close(WAIT_SECONDS)  # the error was raised once
    assert [body for body, _ in errors] == [b"bad"]


def test_without_reconnects_a_lost_connection_is_the_error_of_all_pending_messages(fake: FakeBroker) -> None:
    fake.on["SEND"] = lambda peer, frame: peer.close()
    with connect(fake.address) as connection:
        producer = connection.producer()
        future = producer.send("/queue/a", b"x")
        with pytest.raises(Disconnected):
            producer.close(WAIT_SECONDS)
        with pytest.raises(Disconnected):
            future.result(0)


def test_messages_survive_a_lost_connection_with_their_ids(fake: FakeBroker) -> None:
    def lose(peer: Peer, frame: Frame) -> None:
        if frame.body == b"3":
            del fake.on["SEND"]
            peer.close()
        else:
            fake.default(peer, frame)

    fake.on["SEND"] = lose
    with connect(fake.address, reconnect=FAST) as connection, connection.producer(batch=2) as producer:
        for number in range(6):
            producer.send("/queue/a", b"%d" % number)
        with connection.producer(idempotent=False) as plain:
            plain.send("/queue/b", b"plain")
    assert "dedup-id" not in sends(fake)[-1].headers
    ids: dict[bytes, set[str]] = {}
    for frame in sends(fake)[:-1]:
        ids.setdefault(frame.body, set()).add(frame.headers["dedup-id"])
    assert [*ids] == [b"%d" % number for number in range(6)]
    assert all(len(each) == 1 for each in ids.values())


def test_a_producer_of_the_parent_is_refused_in_a_child(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.producer() as producer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send("/queue/a", b"x")
            except ClientError:
                with connection.producer() as own:
                    own.send("/queue/a", b"child").result(WAIT_SECONDS)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0


def test_the_asyncio_producer_does_the_same(fake: FakeBroker) -> None:
    fake.on["SEND"] = refuse_bad(fake)
    seen: list[Any] = []

    async def work() -> None:
        async with asyncio.timeout(WAIT_SECONDS), aio.connect(fake.address, reconnect=FAST) as client:
            producer = client.producer(
                linger=0.001, max_pending=3, on_delivery=lambda message, receipt, error: seen.append(message.body)
            )
            futures = [await producer.send("/queue/a", b"%d" % number) for number in range(8)]
            assert [(await future).offset for future in futures] == list(range(8))
            bad = await producer.send("/queue/a", b"bad")
            behind = await producer.send("/queue/a", b"behind")
            with pytest.raises(ServerError, match="rejected"):
                await producer.flush()
            assert (await behind).offset == 8
            with pytest.raises(ServerError):
                await bad
            fake.on["SEND"] = lambda peer, frame: None
            for number in range(3):
                await producer.send("/queue/b", b"%d" % number)
            with pytest.raises(TimedOut):
                await producer.send("/queue/b", b"full", timeout=0.01)
            with pytest.raises(TimedOut):
                await producer.close(0.01)
            with pytest.raises(ClientError, match="closed"):
                await producer.send("/queue/b", b"late")

    asyncio.run(work())
    assert seen[:8] == [b"%d" % number for number in range(8)]


@pytest.mark.thorough
def test_a_broker_that_is_killed_again_and_again_stores_what_a_producer_sends_once(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    count = 0
    patient = Reconnect(delay=0.02, delay_max=0.2, timeout=60.0)
    with killing(broker, 6, 0.6) as killed_enough:
        with (
            connect(broker.address, reconnect=patient) as connection,
            connection.producer(batch=50, max_pending=500) as producer,
        ):
            while not killed_enough.is_set():
                producer.send("/queue/produced", b"%d" % count)
                count += 1
        with connect(broker.address) as connection:
            stored = connection.subscribe("/queue/produced", start_position="first", stop_position="end")
            assert [int(message.body) for message in stored] == list(range(count))
    assert count > 500
