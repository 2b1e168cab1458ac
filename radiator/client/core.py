"""Send frames on an open connection: the operations that subscriptions, transactions and requests are built on.

``BaseConnection`` has no method that creates one of those, so this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from radiator.client.base import CHUNK_MESSAGES, BaseClient
from radiator.client.link import Link, Pending
from radiator.client.receipts import Receipt
from radiator.client.sending import Body, Headers, Sendable
from radiator.client.session import Inbox, run_encoder, sends_encoder
from radiator.clock import now_ns


class BaseConnection(BaseClient[Link]):
    """An open connection, without the methods that create subscriptions, transactions and requests."""

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(
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
            dedup_id: An id of the message. A message with the same id is stored once, also when it is sent again on
                another connection; ``duplicate`` of its receipt is then True.
            receipt: Wait for the receipt. With False the call returns at once, and a later call raises the refusal.
            timeout: The time limit for the receipt, in seconds. None uses the time limit of the connection.

        Returns:
            The receipt: partition, offset, and the number of matching subscriptions. None with ``receipt=False``.

        Raises:
            ServerError: The broker refused the message, or an earlier frame.
            TimedOut: The receipt did not come in time. The message may be stored.
            Disconnected: The connection has ended. The message may be stored.
            ValueError: A header belongs to the frame, or contains NUL.
            TypeError: The body is neither bytes nor text.

        Source: STOMP 1.2, "SEND"; ``docs/reliability.md`` for what the receipt promises.
        """
        if dedup_id is not None:
            headers = {**(headers or {}), "dedup-id": dedup_id}
        if self.tracing is None or self.tracing.has_context(headers):
            return self._send((destination, body, headers), receipt, timeout)
        with self.tracing.sending(destination, headers) as traced:
            return self._send((destination, body, traced), receipt, timeout)

    def _send(self, message: Sendable, receipt: bool, timeout: float | None) -> Receipt | None:
        if not receipt:
            self.write_sends([message], None)
            return None
        return self.send_nowait([message]).wait(timeout)[0]

    def send_nowait(self, messages: Sequence[Sendable]) -> Pending:
        """Send messages with receipts, and return without a wait.

        Args:
            messages: Tuples ``(destination, body)`` or ``(destination, body, headers)``; at least one.

        Returns:
            An object whose ``wait()`` returns the receipts.

        Raises:
            ServerError: The broker refused an earlier frame.
            Disconnected: The connection has ended.
            ValueError: There are no messages, or a header is not allowed.
            TypeError: A body is neither bytes nor text.
        """
        if not messages:
            raise ValueError("send_nowait: expected at least one message, got none")

        return self.send_run(messages, len(messages))

    def send_run(self, messages: Sequence[Sendable], count: int) -> Pending:
        """Send messages with receipts for the last ``count`` of them, and return without a wait.

        A receipt says that all messages before it are stored too. After a lost connection the messages without a
        receipt are sent again, with the time of the first sending.

        Args:
            messages: Tuples ``(destination, body)`` or ``(destination, body, headers)``; at least one.
            count: The number of receipts, at least one.

        Raises:
            ServerError: The broker refused an earlier frame.
            Disconnected: The connection has ended.
            ValueError: A header is not allowed.
            TypeError: A body is neither bytes nor text.
        """
        if self.tracing is not None:
            messages = self.tracing.created(messages)
        return self.link.ask_many(count, run_encoder(self.link.session, messages, count, now_ns()))

    def write_sends(self, messages: Iterable[Sendable], transaction: str | None, generation: int | None = None) -> None:
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
            encode = sends_encoder(self.link.session, chunk, transaction, now_ns())
            self.link.write(encode, generation, repeat=len(chunk) == 1 and transaction is None)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def open_subscription(self, inbox: Inbox, headers: Headers) -> None:
        """Send SUBSCRIBE for an inbox that can receive messages, and wait for the receipt.

        Args:
            inbox: The inbox; its id must be new in this connection.
            headers: More headers of the SUBSCRIBE frame.

        Raises:
            ServerError: The broker refused the subscription.
            TimedOut: The receipt did not come in time.
            Disconnected: The connection has ended.
            ValueError: A header contains NUL.
        """
        link = self.link
        inbox.set_headers(headers)
        try:
            link.subscribe(inbox).wait()
        except BaseException:
            with link.lock:
                link.session.inboxes.pop(inbox.id, None)
            raise
