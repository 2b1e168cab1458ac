"""Send and receive in asyncio: connections, subscriptions, messages, transactions and requests.

Every method that waits may be cancelled. What a cancelled call leaves behind:

    send, send_many        the message may be stored; it is not sent again
    subscribe              no subscription
    fetch, async for       no message is lost: it is returned by the next call
    ack, nack              the frame is sent, or not
    commit                 the outcome is unknown
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any

from radiator.client import address as addresses
from radiator.client.aio.link import Link, Pending
from radiator.client.aio.producer import Producer
from radiator.client.aio.stream import open_stream
from radiator.client.base import CHUNK_MESSAGES, WINDOW_MESSAGES, BaseClient
from radiator.client.contents import MessageView
from radiator.client.errors import ClientError, Disconnected, StaleDelivery, TimedOut, copy_error
from radiator.client.producer import BATCH_MESSAGES, LINGER_SECONDS, MAX_PENDING, OnDelivery
from radiator.client.receipts import Receipt
from radiator.client.reconnect import Reconnect, policy_of
from radiator.client.sending import Body, Headers, Sendable
from radiator.client.session import (
    Hello,
    Inbox,
    OnLoss,
    Session,
    request_headers,
    run_encoder,
    sends_encoder,
    subscribe_values,
)
from radiator.client.transaction import BaseTransaction
from radiator.clock import now_ns
from radiator.stomp.frames import Frame
from radiator.stomp.spec import VERSIONS

if TYPE_CHECKING:
    from radiator.client.tracing import Tracing


class Connecting:
    """The result of ``connect``: ``await`` it, or use it in an ``async with`` block, to open the connection."""

    def __init__(self, open_client: Callable[[], Any]) -> None:
        self._open = open_client
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        opening: Generator[Any, None, Client] = self._open().__await__()
        return opening

    async def __aenter__(self) -> Client:
        self._client = await self
        return self._client

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None
        await self._client.close()


def connect(
    address: str | Sequence[str] = "127.0.0.1:61613",
    *,
    login: str | None = None,
    passcode: str | None = None,
    heart_beat: tuple[int, int] = (10_000, 10_000),
    timeout: float = 30.0,
    connect_timeout: float = 10.0,
    reconnect: bool | Reconnect = False,
    on_connect: Callable[[Client], object] | None = None,
    on_disconnect: Callable[[Client, ClientError], object] | None = None,
    version: str | None = None,
    host: str | None = None,
    headers: Mapping[str, str] | None = None,
    transmit_time: bool = True,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    tracing: Tracing | None = None,
) -> Connecting:
    """Connect to a broker. The arguments are those of ``radiator.client.connect``.

    Args:
        address: An address, or several: with commas between them, or as a list.
        login: The login; None uses the one in the address, if there is one.
        passcode: The passcode; None uses the one in the address, if there is one.
        heart_beat: The intervals to send and to expect heart-beats, in milliseconds; 0 is none.
        timeout: The default time limit for every call that waits for an answer, in seconds.
        connect_timeout: The time limit for one attempt to open the connection, in seconds.
        reconnect: Whether and how the client connects again after a lost connection.
        on_connect: Called with the client after each CONNECTED. May be a coroutine function.
        on_disconnect: Called with the client and the reason after each lost connection. May be a coroutine function.
        version: The only STOMP version to accept; None accepts all of them.
        host: The virtual host; None sends the host of the address.
        headers: More headers of the CONNECT frame.
        transmit_time: Add the time of sending to every message, as the ``transmit-time`` header.
        ca: The file with the certificate authorities to trust with TLS; None uses RADIATOR_CA, or those of the system.
        cert: The file with the certificate of the client; None uses RADIATOR_CERT.
        key: The file with the key of that certificate; None uses RADIATOR_KEY.
        tracing: Makes OpenTelemetry spans of every message that is sent, and of every one that is processed in a loop
            or by ``receive``. None makes no spans.

    Returns:
        An object for ``async with`` or ``await``, which give an open ``Client``.

    Raises:
        BadAddress: An address cannot be parsed.
        ValueError: ``version`` is unknown, or a header contains NUL.
        ConnectFailed: No broker answered (raised when it is awaited).
        BadTls: A TLS file cannot be read, or the certificate is not trusted (raised when it is awaited).
        ServerError: The broker answered ERROR (raised when it is awaited).

    Example:
        With a broker on this machine::

            async with connect("127.0.0.1:61613", reconnect=True) as client:
                await client.send("/queue/orders", b"one")
                async for message in client.subscribe("/queue/orders"):
                    await message.ack()
    """
    places = addresses.parse_all(address)
    hello = Hello(login, passcode, host, heart_beat, VERSIONS if version is None else (version,), headers or {})
    hello.check()
    policy = policy_of(reconnect)

    async def open_client() -> Client:
        link = Link(
            Session(hello, reconnects=policy is not None, transmit_time=transmit_time),
            places,
            lambda place, seconds: open_stream(place, seconds, ca, cert, key),
            policy,
            timeout,
            connect_timeout,
            None if on_connect is None else lambda _: on_connect(client),
            None if on_disconnect is None else lambda error: on_disconnect(client, error or Disconnected()),
        )
        client = Client(link, tracing)
        await link.open()
        return client

    return Connecting(open_client)


class Client(BaseClient[Link]):
    """An open connection. ``connect`` creates it. All calls belong to the event loop that opened it."""

    def __init__(self, link: Link, tracing: Tracing | None = None) -> None:
        super().__init__(link, tracing)
        self._requests: _Requests | None = None
        self._requesting = asyncio.Lock()

    # --- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        dedup_id: str | None = None,
        receipt: bool = True,
        timeout: float | None = None,
    ) -> Receipt | None:
        """Send one message, and return when the broker has stored it as the rule of its destination says.

        Args:
            destination: The destination, such as ``/queue/orders``.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers; integers are sent as decimal text.
            dedup_id: An id of the message. A message with the same id is stored once.
            receipt: Wait for the receipt. With False the call returns at once, and a later call raises the refusal.
            timeout: The time limit for the receipt, in seconds. None uses the time limit of the client.

        Returns:
            The receipt, or None with ``receipt=False``.

        Raises:
            ServerError: The broker refused the message.
            TimedOut: The receipt did not come in time. The message may be stored.
            Disconnected: The connection has ended. The message may be stored.
            ValueError: A header belongs to the frame, or contains NUL.
            TypeError: The body is neither bytes nor text.
        """
        if dedup_id is not None:
            headers = {**(headers or {}), "dedup-id": dedup_id}
        if self.tracing is None or self.tracing.has_context(headers):
            return await self._send((destination, body, headers), receipt, timeout)
        with self.tracing.sending(destination, headers) as traced:
            return await self._send((destination, body, traced), receipt, timeout)

    async def _send(self, message: Sendable, receipt: bool, timeout: float | None) -> Receipt | None:
        if not receipt:
            await self.write_sends([message], None)
            return None
        pending = self.send_nowait([message])
        await self.link.drain()
        return (await pending.wait(timeout))[0]

    def send_nowait(self, messages: Sequence[Sendable]) -> Pending:
        """Send messages with receipts, without a wait: now, or on the next connection.

        Args:
            messages: Tuples ``(destination, body)`` or ``(destination, body, headers)``; at least one.

        Returns:
            An object whose coroutine ``wait()`` returns the receipts.

        Raises:
            ServerError: The broker refused an earlier frame.
            Disconnected: The connection has ended.
            ValueError: There are no messages, or a header is not allowed.
            TypeError: A body is neither bytes nor text.
        """
        if not messages:
            raise ValueError("send_nowait: expected at least one message, got none")
        if self.tracing is not None:
            messages = self.tracing.created(messages)
        count = len(messages)
        return self.link.ask_now(count, run_encoder(self.link.session, messages, count, now_ns()))

    async def send_many(
        self, messages: Iterable[Sendable], *, transaction: bool = False, timeout: float | None = None
    ) -> list[Receipt]:
        """Send many messages in order, without a wait between them, and wait for all receipts at the end.

        Args:
            messages: Tuples ``(destination, body)`` or ``(destination, body, headers)``.
            transaction: Send the messages in one transaction: all are stored, or none.
            timeout: The time limit for each group of receipts, in seconds. None uses the time limit of the client.

        Returns:
            The receipts in the order of the messages. Empty with ``transaction``.

        Raises:
            ServerError: The broker refused a message.
            TimedOut: A receipt did not come in time. Messages without receipt may be stored.
            Disconnected: The connection has ended. Messages without receipt may be stored.
            ValueError: A header belongs to the frame, or contains NUL.
            TypeError: A body is neither bytes nor text.
        """
        if transaction:
            async with self.transaction() as opened:
                await opened.send_many(messages)
            return []
        receipts: list[Receipt] = []
        waiting: list[Pending] = []
        source = iter(messages)
        try:
            while chunk := list(islice(source, CHUNK_MESSAGES)):
                waiting.append(self.send_nowait(chunk))
                await self.link.drain()
                if len(waiting) * CHUNK_MESSAGES > WINDOW_MESSAGES:
                    receipts += await waiting.pop(0).wait(timeout)
            while waiting:
                receipts += await waiting.pop(0).wait(timeout)
        finally:
            for pending in waiting:
                self.link.session.forget(pending)
        return receipts

    async def write_sends(
        self, messages: Iterable[Sendable], transaction: str | None, generation: int | None = None
    ) -> None:
        """Send messages without receipts.

        Args:
            messages: Tuples ``(destination, body)`` or ``(destination, body, headers)``.
            transaction: The id of an open transaction that the messages belong to, or None.
            generation: The connection of the transaction, or None.

        Raises:
            StaleDelivery: The connection of the transaction was lost.
            ServerError: The broker refused an earlier frame.
            Disconnected: The connection has ended.
            ValueError: A header is not allowed.
            TypeError: A body is neither bytes nor text.
        """
        source = iter(messages)
        while chunk := list(islice(source, CHUNK_MESSAGES)):
            if self.tracing is not None:
                chunk = self.tracing.created(chunk)
            await self.link.write(sends_encoder(self.link.session, chunk, transaction, now_ns()), generation)

    def producer(
        self,
        *,
        linger: float = LINGER_SECONDS,
        batch: int = BATCH_MESSAGES,
        max_pending: int = MAX_PENDING,
        idempotent: bool = True,
        on_delivery: OnDelivery | None = None,
    ) -> Producer:
        """Return a producer, which sends messages in the background, in batches.

        Args:
            linger: How long a message waits for others to form a batch, in seconds.
            batch: The number of messages that is sent without waiting any longer.
            max_pending: The maximum number of messages without a result; above that ``send`` waits.
            idempotent: Give each message a ``dedup-id`` if the connection has reconnects, so that a message that is
                sent again is stored once. False is faster, and stores each message at least once.
            on_delivery: Called with each message (an ``Outgoing``), its receipt or None, and its error or None.

        Returns:
            The producer. Close it, or use it in an ``async with`` block.

        Raises:
            ValueError: ``batch`` or ``max_pending`` is less than 1.
        """
        return Producer(
            self.link,
            linger=linger,
            batch=batch,
            max_pending=max_pending,
            idempotent=idempotent,
            on_delivery=on_delivery,
            tracing=self.tracing,
        )

    def transaction(self) -> Transaction:
        """Return a new transaction for an ``async with`` block, whose end commits it. An exception aborts."""
        return Transaction(self, self.new_name("t"))

    async def request(
        self, destination: str, body: Body = b"", headers: Headers | None = None, *, timeout: float | None = None
    ) -> Message:
        """Send a request and return the reply. Any number of tasks may send requests at once.

        Args:
            destination: The destination that the replying program is subscribed to.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers.
            timeout: The time limit for the reply, in seconds. None uses the time limit of the client.

        Returns:
            The reply. The replying program sends it with ``Message.reply``.

        Raises:
            TimedOut: No reply came in time.
            ServerError: The broker refused the request.
            Disconnected: The connection was lost before the reply came. The request may be processed.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        async with self._requesting:
            requests = self._requests
            if requests is None or requests.error is not None:
                requests = _Requests(self)
                await requests
                self._requests = requests
        return await requests.call(destination, body, headers, self.link.timeout if timeout is None else timeout)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        destination: str | Iterable[str],
        *,
        ack: str | None = None,
        start_position: str | None = None,
        stop_position: str | None = None,
        prefetch: int | None = None,
        browser: bool = False,
        headers: Headers | None = None,
    ) -> Subscription:
        """Return a subscription. It subscribes when it is awaited, entered by ``async with``, or read.

        Args:
            destination: A destination or a pattern, or several of them.
            ack: ``auto``, ``client`` or ``client-individual``. None is ``client-individual`` if all names begin with
                ``/queue/`` and the subscription consumes, else ``auto``.
            start_position: Where a replay starts (``first``, ``last:10``, ``ago:1h``), or None.
            stop_position: Where a replay stops, or None.
            prefetch: The number of messages that the broker may send before they are acknowledged. None uses the
                default of the broker.
            browser: Read the messages of a queue without consuming them.
            headers: More headers of the SUBSCRIBE frame.

        Raises:
            ValueError: ``ack`` is unknown, or a header contains NUL.
        """
        names, ack, extra = subscribe_values(
            destination, ack, start_position, stop_position, prefetch, browser, headers
        )
        subscription = Subscription(self, self.new_name("s"), names, ack)
        subscription.set_headers(extra)
        return subscription

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float = 5.0) -> None:
        """Send DISCONNECT and close. Unacknowledged messages return to their queues. May be called twice.

        Args:
            timeout: The time limit for the receipt of DISCONNECT, in seconds.
        """
        await self.link.close(timeout)


class Message(MessageView):
    """One message as it was delivered to one subscription.

    Attributes:
        subscription: The subscription that received the message.
    """

    __slots__ = ("subscription",)

    def __init__(
        self,
        headers: Mapping[str, str],
        body: bytes,
        subscription: Subscription,
        raw: bytes = b"",
        generation: int = 0,
    ) -> None:
        super().__init__(headers, body, raw, generation)
        self.subscription = subscription

    async def ack(self, *, receipt: bool = False) -> None:
        """Acknowledge the message.

        Under ``ack="client"`` this acknowledges all earlier messages of the subscription too. Under ``auto`` it does
        nothing, and a second ack or nack of a message does nothing.

        Args:
            receipt: Wait until the broker has stored the acknowledgement.

        Raises:
            StaleDelivery: The connection that delivered the message was lost; it is delivered again.
            ServerError: The broker refused the acknowledgement.
            TimedOut: The receipt did not come in time.
            Disconnected: The connection has ended; the message returns to its queue.
        """
        await self.subscription.settle(self, "ACK", receipt=receipt)

    async def nack(self, *, delay_ms: int | None = None, receipt: bool = False) -> None:
        """Return the message to the queue, to be delivered again to any consumer.

        Args:
            delay_ms: The time before the next delivery, in milliseconds. None uses the rule of the queue.
            receipt: Wait until the broker has stored the refusal.

        Raises:
            StaleDelivery: The connection that delivered the message was lost; it is delivered again.
            ServerError: The broker refused the frame.
            TimedOut: The receipt did not come in time.
            Disconnected: The connection has ended; the message returns to its queue.
        """
        headers = {} if delay_ms is None else {"delay": str(delay_ms)}
        await self.subscription.settle(self, "NACK", receipt=receipt, headers=headers)

    async def reject(self, *, receipt: bool = False) -> None:
        """Move the message to the dead-letter queue of its queue, or discard it if there is none.

        Args:
            receipt: Wait until the broker has stored the refusal.

        Raises:
            StaleDelivery: The connection that delivered the message was lost; it is delivered again.
            ServerError: The broker refused the frame.
            TimedOut: The receipt did not come in time.
            Disconnected: The connection has ended; the message returns to its queue.
        """
        await self.subscription.settle(self, "NACK", receipt=receipt, headers={"requeue": "false"})

    async def touch(self) -> None:
        """Restart the ``ack_timeout`` of the message, because the consumer still works on it.

        Raises:
            StaleDelivery: The connection that delivered the message was lost; it is delivered again.
            ServerError: The broker refused an earlier frame.
            Disconnected: The connection has ended; the message returns to its queue.
        """
        if self.subscription.ack != "auto" and not self.settled:
            link = self.subscription.client.link
            await link.write(lambda: link.session.protocol.ack(self.headers, {"touch": "true"}), self.generation)

    async def reply(self, body: Body = b"", headers: Headers | None = None) -> None:
        """Send a reply to the ``reply-to`` destination, with the ``correlation-id`` of this message.

        Args:
            body: The body: bytes, or text that is sent as UTF-8.
            headers: More headers of the reply.

        Raises:
            ValueError: The message has no ``reply-to`` header, or a header of the reply is not allowed.
            TypeError: The body is neither bytes nor text.
            ServerError: The broker refused an earlier frame.
            Disconnected: The connection has ended.
        """
        target, extra = self.reply_headers(headers)
        await self.subscription.client.send(target, body, extra, receipt=False)


class Subscription(Inbox):
    """A subscription, created by ``Client.subscribe``. As a context manager it unsubscribes at the end.

    ``async for`` yields its messages until it ends. Leaving the loop does not unsubscribe.

    Args:
        client: The client that receives the messages.
        name: The subscription id.
        destination: The destination, or a comma-separated list of destinations and patterns.
        ack: ``auto``, ``client`` or ``client-individual``.

    Attributes:
        client: The client.
    """

    def __init__(self, client: Client, name: str, destination: str, ack: str) -> None:
        super().__init__(client.link.session, name, destination, ack)
        self.client = client
        self._arrival = asyncio.Event()
        self._opening = asyncio.Lock()

    def wake(self) -> None:
        """Wake the tasks that wait for a message."""
        self._arrival.set()

    # --- subscribing --------------------------------------------------------------------------------------------------

    async def open(self) -> Subscription:
        """Subscribe, if this was not done yet, and return this subscription when it is in effect.

        Raises:
            ServerError: The broker refused the subscription.
            TimedOut: The receipt did not come within the time limit of the client.
            Disconnected: The connection has ended.
        """
        async with self._opening:
            if self.opening is None:
                link = self.client.link
                pending = link.ask_now(1, lambda numbers, _: self.subscribe_frame(str(numbers.start)), inbox=self)
                try:
                    await pending.wait()
                except BaseException:
                    self.opening = None
                    if link.session.inboxes.pop(self.id, None) is not None:
                        link.write_now(lambda: link.session.protocol.unsubscribe(self.id))
                    raise
        return self

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self.open().__await__()

    async def __aenter__(self) -> Subscription:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except Disconnected:
            if kind is None:
                raise

    # --- taking -------------------------------------------------------------------------------------------------------

    async def fetch(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if none came in time or the subscription has ended.

        Args:
            timeout: The time limit in seconds; None waits without limit, 0 returns only a message that has come
                already.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        await self.open()
        try:
            async with asyncio.timeout(timeout):
                while not self.decided:
                    self._arrival.clear()
                    await self._arrival.wait()
        except TimeoutError:
            pass
        taken = self.take()
        if taken is None:
            return None
        frame, generation = taken
        self.client.link.taken()
        return Message(frame.headers, frame.body, self, frame.head.raw, generation)

    def receive(self, timeout: float | None = None) -> Delivery:
        """Return an async context manager for the next message, which is None if none came in time.

        The end of the block acknowledges the message. An exception in the block, cancellation included, returns it to
        its queue.

        Args:
            timeout: The time limit in seconds; None waits without limit.

        Raises:
            ServerError: The broker answered ERROR (raised at the begin or the end of the block).
            Disconnected: The connection has ended (raised at the begin or the end of the block).
        """
        return Delivery(self, timeout)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self if self.client.tracing is None else _TracedMessages(self)

    async def __anext__(self) -> Message:
        message = await self.fetch()
        if message is None:
            raise StopAsyncIteration
        return message

    # --- settling -----------------------------------------------------------------------------------------------------

    async def settle(
        self,
        message: Message,
        command: str,
        *,
        transaction: Transaction | None = None,
        receipt: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send ACK or NACK for a message. Does nothing under ``auto``, and for a settled message.

        Args:
            message: A message of this subscription.
            command: ``ACK`` or ``NACK``.
            transaction: An open transaction, or None.
            receipt: Wait for the receipt.
            headers: More headers of the frame.

        Raises:
            StaleDelivery: The connection that delivered the message was lost; it is delivered again.
            ServerError: The broker refused the frame, or an earlier one.
            TimedOut: The receipt did not come in time.
            Disconnected: The connection has ended.
        """
        encode = self.settle_encoder(message, command, headers or {}, transaction.id if transaction else None)
        if encode is None:
            return
        link = self.client.link
        message.mark_settled(True)
        try:
            if receipt:
                pending = await link.ask(encode, OnLoss.STALE, message.generation)
                await pending.wait()
            else:
                await link.write(lambda: encode(None), message.generation)
        except StaleDelivery:
            message.mark_settled(False)
            raise

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send UNSUBSCRIBE and wait for the receipt. May be called twice.

        Unacknowledged messages return to their queue.

        Raises:
            ServerError: The broker answered ERROR.
            TimedOut: The receipt did not come within the time limit of the client.
            Disconnected: The connection ended during the call.
        """
        link = self.client.link
        session = link.session
        due = self.close_inbox()
        link.taken()
        self.wake()
        if due:
            try:
                pending = await link.ask(
                    lambda receipt: session.protocol.unsubscribe(self.id, receipt=receipt),
                    OnLoss.DONE,
                    session.generation,
                )
                await pending.wait()
            except StaleDelivery:
                pass  # the subscription ended with its connection


class _TracedMessages:
    """The messages of a loop. The span of each is active until the next one is asked for, or the loop is left."""

    def __init__(self, subscription: Subscription) -> None:
        from radiator.client.tracing import Loop

        assert subscription.client.tracing is not None
        self._subscription = subscription
        self._loop = Loop(subscription.client.tracing)

    def __aiter__(self) -> _TracedMessages:
        return self

    async def __anext__(self) -> Message:
        self._loop.end()
        message = await anext(self._subscription)
        self._loop.begin(message)
        return message


class Delivery:
    """The async context manager for one message, returned by ``Subscription.receive``."""

    def __init__(self, subscription: Subscription, timeout: float | None) -> None:
        self._subscription = subscription
        self._timeout = timeout
        self._message: Message | None = None
        self._span = ExitStack()

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"receive() returns no message but the context of one, which has no attribute {name!r}: write `async "
                "with subscription.receive() as message:`, or take a message with `await fetch()` and await its `ack()`"
            )

    async def __aenter__(self) -> Message | None:
        self._message = message = await self._subscription.fetch(self._timeout)
        tracing = self._subscription.client.tracing
        if tracing is not None and message is not None:
            self._span.enter_context(tracing.processing(message))
        return message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._message is not None:
                await self._settle(self._message, kind)
        finally:
            self._span.__exit__(kind, error, trace)

    @staticmethod
    async def _settle(message: Message, kind: type[BaseException] | None) -> None:
        try:
            if kind is None:
                await message.ack()
            else:
                await message.nack()
        except StaleDelivery:
            pass  # a lost connection gives the message back, and it comes again
        except ClientError:
            if kind is None:
                raise


class Transaction(BaseTransaction):
    """A transaction, created by ``Client.transaction``: all of it takes effect at COMMIT, or none.

    The end of the ``async with`` block commits, an exception aborts. A transaction does not come back after a lost
    connection: every later call raises ``Disconnected``.

    Args:
        client: The client that the transaction belongs to.
        name: The transaction id, unique in the client.
    """

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(client.link.session, name)
        self._client = client
        self._link = client.link

    async def __aenter__(self) -> Transaction:
        self._generation = await self._link.write(lambda: self._session.protocol.begin(self.id))
        self._open = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._open:
            return
        if kind is None:
            await self.commit()
            return
        self._end(aborted=True)
        if self._generation == self._session.generation:
            self._link.write_now(lambda: self._session.protocol.abort(self.id))

    async def send(self, destination: str, body: Body = b"", headers: Headers | None = None) -> None:
        """Add a message to the transaction.

        Args:
            destination: The destination of the message.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers, or None.

        Raises:
            ClientError: The transaction is not open, or the connection was lost.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        await self.send_many([(destination, body, headers)])

    async def send_many(self, messages: Iterable[Sendable]) -> None:
        """Add messages to the transaction.

        Args:
            messages: Tuples ``(destination, body)`` or ``(destination, body, headers)``.

        Raises:
            ClientError: The transaction is not open, or the connection was lost.
            ValueError: A header is not allowed.
            TypeError: A body is neither bytes nor text.
        """
        self._check()
        try:
            await self._client.write_sends(messages, self.id, self._generation)
        except StaleDelivery:
            raise self._lost() from None

    async def ack(self, message: Message) -> None:
        """Add an acknowledgement: the message is settled when the transaction is committed.

        Args:
            message: A message of this client.

        Raises:
            ClientError: The transaction is not open, or the connection was lost.
        """
        await self._settle(message, "ACK")

    async def nack(self, message: Message) -> None:
        """Add a refusal: the message returns to its queue when the transaction is committed.

        Args:
            message: A message of this client.

        Raises:
            ClientError: The transaction is not open, or the connection was lost.
        """
        await self._settle(message, "NACK")

    async def commit(self, headers: Headers | None = None) -> None:
        """Commit, and return when the broker has stored the transaction.

        Args:
            headers: Headers of the COMMIT, such as ``audit-log``; None for none.

        Raises:
            ClientError: The transaction is not open.
            ServerError: The broker refused the transaction; none of it takes effect.
            TimedOut: The receipt did not come in time; the outcome is unknown.
            Disconnected: The connection ended first; the outcome is unknown.
        """
        self._check()
        self._end()
        protocol = self._session.protocol
        try:
            pending = await self._link.ask(
                lambda receipt: protocol.commit(self.id, headers, receipt=receipt),
                OnLoss.UNKNOWN,
                self._generation,
            )
        except StaleDelivery:
            raise self._lost() from None
        await pending.wait()

    async def _settle(self, message: Message, command: str) -> None:
        self._check()
        if not message.settled:
            await message.subscription.settle(message, command, transaction=self)
            self._settled.append(message)


class _Requests(Subscription):
    """The reply queue of a client: a subscription whose inbox is a table of waiting calls."""

    def __init__(self, client: Client) -> None:
        name = f"/temp-queue/{secrets.token_hex(12)}"
        super().__init__(client, name, name, "auto")
        self._replies: dict[str, asyncio.Future[Frame]] = {}

    def put(self, frame: Frame) -> None:
        waiting = self._replies.get(frame.headers.get("correlation-id", ""))
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)

    def interrupted(self) -> None:
        super().interrupted()
        self._fail(Disconnected("the connection was lost before the reply came; the request may be processed"))

    def wake(self) -> None:
        if self.problem is not None:
            self._fail(self.problem)

    def _fail(self, error: ClientError) -> None:
        for waiting in self._replies.values():
            if not waiting.done():
                waiting.set_exception(copy_error(error))

    async def call(self, destination: str, body: Body, headers: Headers | None, timeout: float) -> Message:
        key, extra = request_headers(self.destination, headers, timeout, now_ns())
        link = self.client.link
        waiting: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._replies[key] = waiting
        link.await_reply(1)
        try:
            async with asyncio.timeout(timeout):
                await self.client.send(destination, body, extra, receipt=False)
                frame = await waiting
        except TimeoutError as error:
            if isinstance(error, ClientError):
                raise
            raise TimedOut(
                f"no reply to the request to {destination} within {timeout:g} s; "
                "is the replying program subscribed, or does it need a longer timeout?"
            ) from None
        finally:
            del self._replies[key]
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # read, so that asyncio does not report it
            link.await_reply(-1)
        return Message(frame.headers, frame.body, self)
