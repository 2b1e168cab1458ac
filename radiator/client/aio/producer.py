"""Send messages in the background, in batches, in an asyncio event loop. The rules are those of ``client/producer``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from radiator.client.aio.link import Link, Pending
from radiator.client.errors import ClientError, Disconnected, TimedOut, copy_error
from radiator.client.producer import (
    BATCH_MESSAGES,
    CLOSED,
    LINGER_SECONDS,
    MAX_PENDING,
    Batch,
    Batches,
    OnDelivery,
    report,
)
from radiator.client.receipts import Receipt
from radiator.client.sending import Body, Headers
from radiator.client.session import run_encoder
from radiator.clock import now_ns

if TYPE_CHECKING:
    from radiator.client.tracing import Tracing

WITHOUT_LIMIT = 1e9  # seconds


class Producer:
    """Send messages in the background. ``Client.producer`` creates it.

    As an async context manager it closes at the end of the block.

    Args:
        link: The link of the client that sends the messages.
        linger: How long a message waits for others to form a batch, in seconds.
        batch: The number of messages that is sent without waiting any longer.
        max_pending: The maximum number of messages without a result.
        idempotent: Give each message a ``dedup-id`` if the connection has reconnects.
        on_delivery: Called with each message and its receipt or its error; or None.
        tracing: Makes spans, or None.
    """

    def __init__(
        self,
        link: Link,
        *,
        linger: float = LINGER_SECONDS,
        batch: int = BATCH_MESSAGES,
        max_pending: int = MAX_PENDING,
        idempotent: bool = True,
        on_delivery: OnDelivery | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._link = link
        self._tracing = tracing
        self._linger = linger
        self._on_delivery = on_delivery
        self._batches: Batches[asyncio.Future[Receipt]] = Batches(
            batch, max_pending, idempotent and link.session.reconnects
        )
        self._settled = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._error: ClientError | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        """The number of messages without a result."""
        return self._batches.pending

    async def send(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        dedup_id: str | None = None,
        timeout: float | None = None,
    ) -> asyncio.Future[Receipt]:
        """Add a message. Waits while ``max_pending`` messages have no result.

        Args:
            destination: The destination, such as ``/queue/orders``.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers; integers are sent as decimal text.
            dedup_id: An id of the message. None uses one of this producer, if the client has reconnects.
            timeout: The time limit of the wait for room, in seconds; None waits without limit.

        Returns:
            A future with the receipt, or with the error of this message. It need not be awaited.

        Raises:
            TimedOut: There was no room in time.
            ClientError: The producer is closed.
            ValueError: A header is not allowed, or contains NUL.
            TypeError: The body is neither bytes nor text.
        """
        batches = self._batches
        if self._tracing is not None:
            headers = self._tracing.create(destination, headers)
        message = batches.prepare(destination, body, headers, dedup_id)
        if not batches.has_room(message):
            try:
                async with asyncio.timeout(timeout):
                    while not self._closed and not batches.has_room(message):
                        self._settled.clear()
                        await self._settled.wait()
            except TimeoutError:
                raise TimedOut(
                    f"{batches.pending} messages are pending; the broker is slow or away, or raise max_pending"
                ) from None
        if self._closed:
            raise ClientError(CLOSED)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipt] = loop.create_future()
        future.add_done_callback(_read)
        if batches.add(message, future):
            self._push()
        elif self._timer is None:
            self._timer = loop.call_later(self._linger, self._push)
        return future

    def _push(self) -> None:
        """Send the collected batch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._batches.collected.messages:
            batch = self._batches.take()
            pending: Pending | ClientError
            try:
                count = len(batch.messages)
                pending = self._link.ask_now(count, run_encoder(self._link.session, batch.messages, count, now_ns()))
            except (ClientError, ValueError) as error:  # a header that this version of STOMP cannot have
                pending = error if isinstance(error, ClientError) else ClientError(str(error))
            task = asyncio.create_task(self._settle(batch, pending), name="radiator-producer")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _settle(self, batch: Batch[asyncio.Future[Receipt]], pending: Pending | ClientError) -> None:
        if isinstance(pending, ClientError):
            results: list[Receipt | ClientError] = [pending] * len(batch.messages)
        else:
            try:
                await pending.wait(WITHOUT_LIMIT)
                results = pending.results()
            except ClientError as error:
                results = pending.results(error)
        for message, future, result in zip(batch.messages, batch.futures, results, strict=True):
            receipt, problem = (result, None) if isinstance(result, Receipt) else (None, result)
            self._error = self._error or problem
            if not future.done():
                if receipt is not None:
                    future.set_result(receipt)
                else:
                    future.set_exception(copy_error(problem or Disconnected()))
            report(self._on_delivery, message, receipt, problem)
        self._batches.settled(batch)
        self._settled.set()

    async def flush(self, timeout: float | None = None) -> None:
        """Send the collected messages, and return when every message has a result.

        Args:
            timeout: The time limit in seconds; None waits without limit.

        Raises:
            TimedOut: Messages have no result yet.
            ClientError: The first error of a message since the last call. Callbacks and futures have all of them.
        """
        self._push()
        try:
            async with asyncio.timeout(timeout):
                while self._batches.pending:
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            raise TimedOut(f"{self._batches.pending} messages have no receipt yet") from None
        error, self._error = self._error, None
        if error is not None:
            raise copy_error(error)

    async def close(self, timeout: float | None = None) -> None:
        """Flush, and accept no more messages. The client stays open. May be called twice.

        Args:
            timeout: The time limit in seconds; None waits without limit. Messages without a result may be stored.

        Raises:
            TimedOut: Messages have no result yet.
            ClientError: The first error of a message since the last ``flush``.
        """
        try:
            await self.flush(timeout)
        finally:
            self._closed = True
            self._settled.set()
            for task in self._tasks:
                task.cancel()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except ClientError:
            if kind is None:
                raise


def _read(future: asyncio.Future[Receipt]) -> None:
    """Read the exception of a future, so that asyncio does not report one that the caller did not await."""
    if not future.cancelled():
        future.exception()
