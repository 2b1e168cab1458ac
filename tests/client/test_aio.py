"""The asyncio client: the same behaviour as the blocking one, and cancellation at any await."""

from __future__ import annotations

import asyncio
import functools
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from radiator.client import (
    ClientError,
    ConnectFailed,
    Disconnected,
    Receipt,
    Reconnect,
    ServerError,
    StaleDelivery,
    TimedOut,
)
from radiator.client.aio import Client, Message, Subscription, connect
from radiator.client.aio.link import INBOX_BYTES_MAX
from radiator.stomp.frames import Frame
from tests.client.chaos import CuttingProxy, killing
from tests.client.fake import FakeBroker, Peer
from tests.running import BrokerProcess

WAIT_SECONDS = 20.0
FAST = Reconnect(delay=0.01, delay_max=0.05, timeout=20.0)


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a coroutine function as a test; no task may be left at its end."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(*args, **named)
            await asyncio.sleep(0)
            assert [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

        asyncio.run(bounded())

    return run


async def cut(fake: FakeBroker, client: Client) -> None:
    """End the connection on the side of the broker, and wait until the client has a new one."""
    session = client.link.session
    before = session.generation
    fake.peers[-1].close()
    while session.generation == before or not session.connected:
        await asyncio.sleep(0.005)


async def taken(subscription: Subscription) -> Message:
    message = await subscription.fetch(WAIT_SECONDS)
    assert message is not None
    return message


def test_the_asyncio_client_needs_no_gevent() -> None:
    code = "import sys, radiator.client.aio\nassert not {'gevent', 'yaml', 'radiator.broker'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent.parent, timeout=60)


@in_loop
async def test_messages_are_sent_received_and_acknowledged(shared_broker: BrokerProcess) -> None:
    async with connect(shared_broker.address) as client:
        assert await client.send("/queue/a", "one", dedup_id="x") == Receipt(0, "/queue/a", 0)
        again = await client.send("/queue/a", "one", dedup_id="x")
        assert again is not None
        assert again.duplicate
        assert len(await client.send_many([("/queue/a", b"%d" % n) for n in range(1_200)])) == 1_200
        seen = 0
        async with client.subscribe("/queue/a", prefetch=100) as subscription:
            async for message in subscription:
                await message.ack(receipt=seen % 100 == 0)
                seen += 1
                if seen == 1_201:
                    break
            assert await subscription.fetch(0.05) is None


@in_loop
async def test_the_end_of_a_block_acknowledges_and_an_exception_requeues(shared_broker: BrokerProcess) -> None:
    async with connect(shared_broker.address) as client:
        await client.send("/queue/b", b"one")
        subscription = await client.subscribe("/queue/b")
        with pytest.raises(KeyError):
            async with subscription.receive(WAIT_SECONDS) as message:
                raise KeyError
        async with subscription.receive(WAIT_SECONDS) as message:
            assert message is not None
            assert message.redelivered
        async with subscription.receive(0.05) as message:
            assert message is None


@in_loop
async def test_a_delivery_without_async_with_says_how_to_take_a_message(shared_broker: BrokerProcess) -> None:
    async with connect(shared_broker.address) as client:
        delivery: Any = (await client.subscribe("/queue/c")).receive(0)
        with pytest.raises(AttributeError, match="'body': write `async with subscription.receive\\(\\) as message:`"):
            delivery.body  # noqa: B018
        assert not hasattr(delivery, "ack")


@in_loop
async def test_a_replay_ends_at_its_stop_position(shared_broker: BrokerProcess) -> None:
    async with connect(shared_broker.address) as client:
        await client.send_many([("/topic/history", b"%d" % n) for n in range(10)])
        history = client.subscribe("/topic/history", start_position="first", stop_position="end")
        assert [message.offset async for message in history] == list(range(10))


@in_loop
async def test_a_transaction_takes_effect_as_a_whole_or_not_at_all(shared_broker: BrokerProcess) -> None:
    async with connect(shared_broker.address) as client:
        await client.send("/queue/in", b"raw")
        async with client.subscribe("/queue/in") as subscription:
            message = await taken(subscription)
            with pytest.raises(KeyError):
                async with client.transaction() as transaction:
                    await transaction.send("/queue/out", b"no")
                    await transaction.ack(message)
                    raise KeyError
            assert not message.settled
            async with client.transaction() as transaction:
                await transaction.send("/queue/out", b"yes")
                await transaction.ack(message)
            with pytest.raises(ClientError, match="not open"):
                await transaction.send("/queue/out", b"late")
        out = client.subscribe("/queue/out", browser=True)
        assert [message.body async for message in out] == [b"yes"]


@in_loop
async def test_requests_are_answered_each_with_its_own_reply(shared_broker: BrokerProcess) -> None:
    async with connect(shared_broker.address) as client, connect(shared_broker.address) as service:

        async def answer() -> None:
            async for question in service.subscribe("/queue/square"):
                await question.reply(str(int(question.text) ** 2))
                await question.ack()

        answering = asyncio.create_task(answer())
        replies = await asyncio.gather(*(client.request("/queue/square", str(n), timeout=20) for n in range(20)))
        assert [int(reply.text) for reply in replies] == [n**2 for n in range(20)]
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        with pytest.raises(TimedOut, match="no reply"):
            await client.request("/queue/nobody", b"", timeout=0.05)


@in_loop
async def test_an_error_of_the_broker_is_raised(shared_broker: BrokerProcess) -> None:
    async with connect(shared_broker.address) as client:
        with pytest.raises(ServerError) as caught:
            await client.send("/topic/*", b"to a pattern")
        assert caught.value.code == "bad-destination"
        with pytest.raises(ServerError):
            await client.send("/topic/a", b"x")
        assert client.closed


@in_loop
async def test_a_header_that_is_not_allowed_is_refused_and_the_client_goes_on(fake: FakeBroker) -> None:
    async with connect(fake.address) as client:
        with pytest.raises(ValueError, match="receipt"):
            await client.send("/topic/a", b"x", {"receipt": "1"})
        assert await client.send("/topic/a", b"x") is not None


@in_loop
async def test_no_broker_a_silent_one_and_a_slow_name_server_are_errors_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *args: Any, **named: Any) -> Any:
        if host == "slow.example":
            release.wait(WAIT_SECONDS)
        return real("127.0.0.1", *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(ConnectFailed, match=r"no broker answers at any of slow.example:1, 127.0.0.1"):
            await connect(["slow.example:1", f"127.0.0.1:{port}"], connect_timeout=0.1)
        assert time.monotonic() - began < 5
    release.set()
    with pytest.raises(ConnectFailed, match=": Connection refused; is a broker running there"):
        await connect(f"127.0.0.1:{port}")


# --- cancellation -----------------------------------------------------------------------------------------------------


@in_loop
async def test_a_cancelled_fetch_loses_no_message(shared_broker: BrokerProcess) -> None:
    bodies = [b"%d" % number for number in range(300)]
    found: list[bytes] = []
    async with connect(shared_broker.address) as client, connect(shared_broker.address) as sender:
        subscription = await client.subscribe("/topic/cancelled")
        sending = asyncio.create_task(sender.send_many([("/topic/cancelled", body) for body in bodies]))
        chance = random.Random(5)
        while len(found) < len(bodies):
            fetching = asyncio.create_task(subscription.fetch(WAIT_SECONDS))
            await asyncio.sleep(chance.choice([0, 0, 0.0005]))
            fetching.cancel()
            try:
                message = await fetching
            except asyncio.CancelledError:
                continue
            assert message is not None
            found.append(message.body)
        await sending
    assert found == bodies


@in_loop
async def test_sends_that_are_cancelled_at_random_leave_a_connection_that_works(fake: FakeBroker) -> None:
    chance = random.Random(6)
    async with connect(fake.address) as client:
        for number in range(100):
            sending = asyncio.create_task(client.send("/queue/a", b"%d" % number * 50_000))
            await asyncio.sleep(chance.choice([0, 0.0002, 0.001]))
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        assert await client.send("/queue/a", b"last") is not None
    assert len(client.link.session._requests) == 0
    bodies = [frame.body for frame in fake.frames if frame.command == "SEND"]
    assert bodies[-1] == b"last"
    assert all(body == body[: len(body) // 50_000] * 50_000 for body in bodies[:-1])


@in_loop
async def test_a_cancelled_send_is_not_sent_again(fake: FakeBroker) -> None:
    fake.on["SEND"] = lambda peer, frame: None
    async with connect(fake.address, reconnect=FAST) as client:
        sending = asyncio.create_task(client.send("/queue/a", b"cancelled"))
        await asyncio.to_thread(fake.wait_for, "SEND")
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        del fake.on["SEND"]
        await cut(fake, client)
        await client.send("/queue/a", b"next")
    assert [frame.body for frame in fake.frames if frame.command == "SEND"] == [b"cancelled", b"next"]


@in_loop
async def test_a_cancelled_subscribe_is_taken_back(fake: FakeBroker) -> None:
    fake.on["SUBSCRIBE"] = lambda peer, frame: None
    async with connect(fake.address) as client:
        subscribing = asyncio.create_task(client.subscribe("/topic/a").open())
        await asyncio.to_thread(fake.wait_for, "SUBSCRIBE")
        subscribing.cancel()
        await asyncio.gather(subscribing, return_exceptions=True)
        await asyncio.to_thread(fake.wait_for, "UNSUBSCRIBE")
        assert not client.link.session.inboxes


@in_loop
async def test_a_cancelled_transaction_is_aborted(fake: FakeBroker) -> None:
    async with connect(fake.address) as client:

        async def work() -> None:
            async with client.transaction() as transaction:
                await transaction.send("/queue/a", b"x")
                await asyncio.sleep(WAIT_SECONDS)

        working = asyncio.create_task(work())
        await asyncio.to_thread(fake.wait_for, "SEND")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await asyncio.to_thread(fake.wait_for, "ABORT")
    assert "COMMIT" not in [frame.command for frame in fake.frames]


# --- limits -----------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_slow_reader_makes_the_broker_wait(fake: FakeBroker) -> None:
    body = b"x" * 500_000
    sent = 0

    def flood(peer: Peer, name: str) -> None:
        nonlocal sent
        for _ in range(100):
            peer.message(name, body)
            sent += 1

    async with connect(fake.address) as client:
        subscription = await client.subscribe("/topic/flood")
        flooding = threading.Thread(target=flood, args=(fake.peers[-1], subscription.id))
        flooding.start()
        while not client.link._paused:
            await asyncio.sleep(0.01)
        assert INBOX_BYTES_MAX <= client.link.session.buffered_bytes < 2 * INBOX_BYTES_MAX
        assert sent < 100
        for _ in range(100):
            await taken(subscription)
        flooding.join()


@in_loop
async def test_heart_beats_are_sent_and_a_silent_broker_is_given_up() -> None:
    beating = FakeBroker(heart_beat=(0, 40))
    async with connect(beating.address, heart_beat=(40, 0)):
        while not beating.peers[-1].beats:
            await asyncio.sleep(0.01)
    beating.close()
    silent = FakeBroker(heart_beat=(40, 0))
    async with connect(silent.address, heart_beat=(0, 40)) as client:
        with pytest.raises(Disconnected, match="silent"):
            await (await client.subscribe("/topic/a")).fetch(WAIT_SECONDS)
    silent.close()


# --- reconnects -------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_lost_connection_is_replaced(fake: FakeBroker) -> None:
    events: list[str] = []

    async def on_connect(client: Client) -> None:
        await client.send("/topic/events", b"here")
        events.append("connected")

    def lose(peer: Peer, frame: Frame) -> None:
        if frame.body == b"one":
            del fake.on["SEND"]
            peer.close()
        else:
            fake.default(peer, frame)

    async with connect(
        fake.address,
        reconnect=FAST,
        on_connect=on_connect,
        on_disconnect=lambda client, error: events.append(type(error).__name__),
    ) as client:
        subscription = await client.subscribe("/topic/a")
        fake.on["SEND"] = lose
        assert await client.send("/topic/a", b"one", dedup_id="n1") is not None
        assert (await taken(subscription)).body == b"one"
        while len(events) < 3:
            await asyncio.sleep(0.005)
    assert events == ["connected", "Disconnected", "connected"]
    sends = [frame for frame in fake.frames if frame.command == "SEND" and frame.body == b"one"]
    assert len(sends) == 2
    assert sends[0].headers == sends[1].headers


@in_loop
async def test_what_belongs_to_a_lost_connection_raises(fake: FakeBroker) -> None:
    async with connect(fake.address, reconnect=FAST) as client:
        subscription = await client.subscribe("/queue/a")
        await client.send("/queue/a", b"one")
        message = await taken(subscription)
        with pytest.raises(Disconnected, match="repeat it"):
            async with client.transaction() as transaction:
                await cut(fake, client)
                await transaction.send("/queue/b", b"x")
        with pytest.raises(StaleDelivery):
            await message.ack()
        fake.on["SEND"] = lambda peer, frame: peer.close()
        with pytest.raises(Disconnected, match="may be processed"):
            await client.request("/queue/q", b"lost", timeout=WAIT_SECONDS)
        del fake.on["SEND"]
    assert "ACK" not in [frame.command for frame in fake.frames]


@in_loop
async def test_a_client_without_reconnects_ends_with_its_connection(fake: FakeBroker) -> None:
    async with connect(fake.address) as client:
        subscription = await client.subscribe("/topic/a")
        fake.peers[-1].close()
        with pytest.raises(Disconnected):
            await subscription.fetch(WAIT_SECONDS)
        with pytest.raises(Disconnected):
            await client.send("/topic/a", b"x")
        assert client.closed


@pytest.mark.thorough
@in_loop
async def test_connections_that_are_cut_at_random_bytes_lose_and_repeat_nothing(shared_broker: BrokerProcess) -> None:
    proxy = CuttingProxy(shared_broker.port, 4, 6_000)
    bodies = [b"%d" % number for number in range(300)]
    patient = Reconnect(delay=0.02, delay_max=0.2)
    async with (
        connect(proxy.address, reconnect=patient) as producer,
        connect(proxy.address, reconnect=patient) as consumer,
    ):
        follow = await consumer.subscribe("/topic/cut", start_position="first")
        work = await consumer.subscribe("/queue/cut", prefetch=10)

        async def following() -> list[bytes]:
            return [(await taken(follow)).body for _ in bodies]

        async def working() -> set[bytes]:
            seen: set[bytes] = set()
            while len(seen) < len(bodies):
                async with work.receive(WAIT_SECONDS) as message:
                    assert message is not None
                    seen.add(message.body)
            return seen

        async def sending() -> None:
            for begin in range(0, len(bodies), 20):
                for destination in ("/topic/cut", "/queue/cut"):
                    chunk = bodies[begin : begin + 20]
                    await producer.send_many([(destination, body, {"dedup-id": body.decode()}) for body in chunk])

        followed, worked, _ = await asyncio.gather(following(), working(), sending())
        proxy.calm = True
    assert proxy.cuts > 5
    assert followed == bodies
    assert worked == set(bodies)
    async with connect(shared_broker.address) as client:
        history = client.subscribe("/topic/cut", start_position="first", stop_position="end")
        assert [message.body async for message in history] == bodies
    proxy.close()


@pytest.mark.thorough
@in_loop
async def test_a_broker_that_is_killed_again_and_again_stores_what_was_sent_once(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = await asyncio.to_thread(start_broker)
    patient = Reconnect(delay=0.02, delay_max=0.2)
    count = 0
    with killing(broker, 4, 0.5) as killed_enough:
        async with connect(broker.address, reconnect=patient) as client:
            follow = await client.subscribe("/topic/killed", start_position="first")
            async with client.producer(batch=50, max_pending=500) as producer:
                while not killed_enough.is_set():
                    await producer.send("/topic/killed", str(count))
                    count += 1
            assert [int((await taken(follow)).body) for _ in range(count)] == list(range(count))
    assert count > 500
