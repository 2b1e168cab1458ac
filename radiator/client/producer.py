"""Send messages in the background, in batches, with a result for each of them.

``Batches`` has the rules and no I/O: which messages form a batch, how many may be pending, and their ids. Both
producers use it. ``Producer`` runs it in two threads: one sends a batch when it is complete or its first message has
waited for ``linger`` seconds, the other waits for receipts and calls back. ``aio.Producer`` does the same in tasks.

A batch is one write and one group of receipts. On a connection with reconnects every message has a ``dedup-id`` (unless
``idempotent`` is False), and what has no receipt is sent again with it. So a message is stored once where the rule of
its destination has a ``dedup.window``, which is the default.

Invariants: messages are sent in the order of ``send``, and results come in that order. At most ``max_pending`` messages
and PENDING_BYTES_MAX bytes have no result, or a single larger message.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from radiator.client.core import BaseConnection
from radiator.client.errors import ClientError, Disconnected, TimedOut, copy_error
from radiator.client.link import Pending
from radiator.client.receipts import Receipt
from radiator.client.sending import Body, Headers, Outgoing, body_bytes, check_headers, checked
from radiator.limits import MIB

log = logging.getLogger("radiator.client")

LINGER_SECONDS = 0.005
BATCH_MESSAGES = 500
BATCH_BYTES = MIB
MAX_PENDING = 20_000
PENDING_BYTES_MAX = 32 * MIB
IDENTITIES = ("dedup-id", "producer-id")  # headers by which the broker detects duplicates
CLOSED = "the producer is closed"

OnDelivery = Callable[[Outgoing, Receipt | None, ClientError | None], object]
F = TypeVar("F")


class Batch(Generic[F]):
    """Messages that are sent together, with the object that gets the result of each."""

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []
        self.futures: list[F] = []
        self.size_bytes = 0


class Batches(Generic[F]):
    """Form batches of messages, and count what is pending.

    Args:
        batch: The number of messages that completes a batch; BATCH_BYTES completes it too.
        max_pending: The maximum number of messages without a result.
        with_ids: Give each message a ``dedup-id`` that has no id.

    Attributes:
        collected: The batch that is not complete yet.
        pending: The number of messages without a result.
    """

    def __init__(self, batch: int, max_pending: int, with_ids: bool) -> None:
        if batch < 1 or max_pending < 1:
            raise ValueError(f"batch and max_pending: expected at least 1, got {batch} and {max_pending}")
        self.collected: Batch[F] = Batch()
        self.pending = 0
        self._batch = batch
        self._max_pending = max_pending
        self._pending_bytes = 0
        self._prefix = f"{secrets.token_hex(8)}-" if with_ids else ""
        self._number = 0

    def prepare(self, destination: str, body: Body, headers: Headers | None, dedup_id: str | None) -> Outgoing:
        """Return a message with its id, after a check that it can be sent.

        Args:
            destination: The destination.
            body: The body.
            headers: More headers, or None.
            dedup_id: The id of the message, or None.

        Raises:
            ValueError: A header is not allowed, or contains NUL.
            TypeError: The body is neither bytes nor text.
        """
        extra = dict(headers or {})
        if dedup_id is not None:
            extra["dedup-id"] = dedup_id
        check_headers(extra)
        checked([("destination", destination), *((name, str(value)) for name, value in extra.items())])
        if self._prefix and not any(each in extra for each in IDENTITIES):
            self._number += 1
            extra["dedup-id"] = f"{self._prefix}{self._number}"
        return Outgoing(destination, body_bytes(body), extra)

    def has_room(self, message: Outgoing) -> bool:
        """Return True if a message can be added within the limits.

        Args:
            message: The message.
        """
        if not self.pending:
            return True
        return self.pending < self._max_pending and self._pending_bytes + len(message.body) <= PENDING_BYTES_MAX

    def add(self, message: Outgoing, future: F) -> bool:
        """Add a message, and return True if it completes a batch.

        Args:
            message: The message.
            future: The object that gets its result.
        """
        batch = self.collected
        batch.messages.append(message)
        batch.futures.append(future)
        batch.size_bytes += len(message.body)
        self.pending += 1
        self._pending_bytes += len(message.body)
        return self.is_complete

    @property
    def is_complete(self) -> bool:
        """True if the collected batch need not wait for more messages."""
        return len(self.collected.messages) >= self._batch or self.collected.size_bytes >= BATCH_BYTES

    def take(self) -> Batch[F]:
        """Return the collected batch, and begin a new one."""
        batch, self.collected = self.collected, Batch()
        return batch

    def settled(self, batch: Batch[F]) -> None:
        """Note that all messages of a batch have a result.

        Args:
            batch: The batch.
        """
        self.pending -= len(batch.messages)
        self._pending_bytes -= batch.size_bytes


class Producer:
    """Send messages in the background. ``Connection.producer`` creates it. Several threads may use it at once.

    As a context manager it closes at the end of the block.

    Args:
        connection: The connection that sends the messages.
        linger: How long a message waits for others to form a batch, in seconds.
        batch: The number of messages that is sent without waiting any longer.
        max_pending: The maximum number of messages without a result.
        idempotent: Give each message a ``dedup-id`` if the connection has reconnects.
        on_delivery: Called with each message and its receipt or its error, in a thread of the producer; or None.

    Example:
        With an open connection::

            with connection.producer() as producer:
                for number in range(100_000):
                    producer.send("/queue/jobs", f"job {number}")
    """

    def __init__(
        self,
        connection: BaseConnection,
        *,
        linger: float = LINGER_SECONDS,
        batch: int = BATCH_MESSAGES,
        max_pending: int = MAX_PENDING,
        idempotent: bool = True,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        self._connection = connection
        self._linger = linger
        self._on_delivery = on_delivery
        self._batches: Batches[Future[Receipt]] = Batches(
            batch, max_pending, idempotent and connection.link.session.reconnects
        )
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # something for the threads to do
        self._settled = threading.Condition(self._lock)  # results have come
        self._first_at = 0.0  # when the first message of the collected batch came
        self._flushing = False
        self._closed = False
        self._sent: deque[tuple[Batch[Future[Receipt]], Pending | ClientError]] = deque()
        self._error: ClientError | None = None
        self._pid = os.getpid()
        for run, name in ((self._send_batches, "sender"), (self._settle_batches, "receipts")):
            threading.Thread(target=run, name=f"radiator-producer-{name}", daemon=True).start()

    @property
    def pending(self) -> int:
        """The number of messages without a result."""
        return self._batches.pending

    def send(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        dedup_id: str | None = None,
        timeout: float | None = None,
    ) -> Future[Receipt]:
        """Add a message. Waits while ``max_pending`` messages have no result.

        Args:
            destination: The destination, such as ``/queue/orders``.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers; integers are sent as decimal text.
            dedup_id: An id of the message. None uses one of this producer, if the connection has reconnects.
            timeout: The time limit of the wait for room, in seconds; None waits without limit, 0 does not wait.

        Returns:
            A future with the receipt, or with the error of this message.

        Raises:
            TimedOut: There was no room in time.
            ClientError: The producer is closed, or belongs to the parent process.
            ValueError: A header is not allowed, or contains NUL.
            TypeError: The body is neither bytes nor text.
        """
        if os.getpid() != self._pid:
            raise ClientError("the producer belongs to the parent process; call connection.producer() in the child")
        future: Future[Receipt] = Future()
        batches = self._batches
        if self._connection.tracing is not None:
            headers = self._connection.tracing.create(destination, headers)
        with self._lock:
            message = batches.prepare(destination, body, headers, dedup_id)
            if not self._settled.wait_for(lambda: self._closed or batches.has_room(message), timeout):
                raise TimedOut(
                    f"{batches.pending} messages are pending; the broker is slow or away, or raise max_pending"
                )
            if self._closed:
                raise ClientError(CLOSED)
            is_first = not batches.collected.messages
            if is_first:
                self._first_at = time.monotonic()
            if batches.add(message, future) or is_first:
                self._changed.notify_all()
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Send the collected messages, and return when every message has a result.

        Args:
            timeout: The time limit in seconds; None waits without limit.

        Raises:
            TimedOut: Messages have no result yet.
            ClientError: The first error of a message since the last call. Callbacks and futures have all of them.
        """
        with self._lock:
            self._flushing = True
            self._changed.notify_all()
            try:
                if not self._settled.wait_for(lambda: not self._batches.pending, timeout):
                    raise TimedOut(f"{self._batches.pending} messages have no receipt yet")
            finally:
                self._flushing = False
            error, self._error = self._error, None
        if error is not None:
            raise copy_error(error)

    def close(self, timeout: float | None = None) -> None:
        """Flush, and end the threads. The connection stays open. May be called twice.

        Args:
            timeout: The time limit in seconds; None waits without limit. Messages without a result may be stored.

        Raises:
            TimedOut: Messages have no result yet.
            ClientError: The first error of a message since the last ``flush``.
        """
        try:
            self.flush(timeout)
        finally:
            with self._lock:
                self._closed = True
                self._changed.notify_all()
                self._settled.notify_all()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except ClientError:
            if kind is None:
                raise

    # --- the threads --------------------------------------------------------------------------------------------------

    def _send_batches(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._batches.collected.messages or self._closed)
                if not self._batches.collected.messages:
                    return
                left = self._first_at + self._linger - time.monotonic()
                self._changed.wait_for(
                    lambda: self._batches.is_complete or self._flushing or self._closed, max(0.0, left)
                )
                batch = self._batches.take()
            pending: Pending | ClientError
            try:
                pending = self._connection.send_nowait(batch.messages)
            except (ClientError, ValueError) as error:  # a header that this version of STOMP cannot have
                pending = error if isinstance(error, ClientError) else ClientError(str(error))
            with self._lock:
                self._sent.append((batch, pending))
                self._changed.notify_all()

    def _settle_batches(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._sent or (self._closed and not self._batches.pending))
                if not self._sent or os.getpid() != self._pid:
                    return
                batch, pending = self._sent.popleft()
            results = settle(batch, pending)
            for message, future, result in zip(batch.messages, batch.futures, results, strict=True):
                receipt, error = (result, None) if isinstance(result, Receipt) else (None, result)
                if future.set_running_or_notify_cancel():
                    if receipt is not None:
                        future.set_result(receipt)
                    else:
                        future.set_exception(copy_error(error or Disconnected()))
                report(self._on_delivery, message, receipt, error)
            with self._lock:
                self._error = self._error or next((each for each in results if isinstance(each, ClientError)), None)
                self._batches.settled(batch)
                self._settled.notify_all()


def settle(batch: Batch[Future[Receipt]], pending: Pending | ClientError) -> list[Receipt | ClientError]:
    """Wait until a batch has its results, and return the receipt or the error of each message.

    Args:
        batch: The batch.
        pending: Its receipts, or the error of its sending.
    """
    if isinstance(pending, ClientError):
        return [pending] * len(batch.messages)
    try:
        pending.wait(threading.TIMEOUT_MAX)
    except ClientError as error:
        return pending.results(error)
    return pending.results()


def report(
    on_delivery: OnDelivery | None, message: Outgoing, receipt: Receipt | None, error: ClientError | None
) -> None:
    """Call the callback of a producer. An exception that it raises is logged.

    Args:
        on_delivery: The callback, or None.
        message: The message.
        receipt: The receipt, or None.
        error: The error, or None.
    """
    if on_delivery is None:
        return
    try:
        on_delivery(message, receipt, error)
    except Exception:
        log.exception("on_delivery of the producer raised")
