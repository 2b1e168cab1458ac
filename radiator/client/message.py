"""Represent a received message that can be acknowledged.

A message refers to its subscription. The subscription does not refer to the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from radiator.client.contents import MessageView
from radiator.client.core import BaseConnection
from radiator.client.session import Inbox, OnLoss

if TYPE_CHECKING:
    from radiator.client.sending import Body, Headers


class Receiver(Inbox):
    """A subscription as far as its messages use it.

    Args:
        connection: The connection that receives the messages.
        name: The subscription id.
        destination: The destination, or a comma-separated list of destinations and patterns.
        ack: ``auto``, ``client`` or ``client-individual``.

    Attributes:
        connection: The connection.
    """

    def __init__(self, connection: BaseConnection, name: str, destination: str, ack: str) -> None:
        super().__init__(connection.link.session, name, destination, ack)
        self.connection = connection
        self._link = connection.link

    def settle(
        self,
        message: Message,
        command: str,
        *,
        transaction: str | None = None,
        receipt: bool = False,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Send ACK or NACK for a message. Does nothing under ``auto``, and for a settled message.

        Args:
            message: A message of this subscription.
            command: ``ACK`` or ``NACK``.
            transaction: The id of an open transaction, or None.
            receipt: Wait for the receipt.
            headers: More headers of the frame.

        Raises:
            ServerError: The broker refused the frame, or an earlier one.
            TimedOut: The receipt did not come in time.
            StaleDelivery: The connection that delivered the message was lost; it is delivered again.
            Disconnected: The connection has ended.
        """
        encode = self.settle_encoder(message, command, headers, transaction)
        if encode is None:
            return
        if receipt:
            pending = self._link.ask(encode, OnLoss.STALE, message.generation)
            message.mark_settled(True)
            pending.wait()
        else:
            self._link.write(lambda: encode(None), message.generation)
            message.mark_settled(True)


class Message(MessageView):
    """One message as it was delivered to one subscription.

    Attributes:
        subscription: The subscription that received the message.

    Source: STOMP 1.2, "MESSAGE"; ``docs/protocol.md`` for the headers that this broker adds.
    """

    __slots__ = ("subscription",)

    def __init__(
        self, headers: Mapping[str, str], body: bytes, subscription: Receiver, raw: bytes = b"", generation: int = 0
    ) -> None:
        super().__init__(headers, body, raw, generation)
        self.subscription = subscription

    # --- acknowledging and replying -------------------------------------------------------------------------------

    def ack(self, *, receipt: bool = False) -> None:
        """Acknowledge the message.

        Under ``ack="client"`` this acknowledges all earlier messages of the subscription too. Under ``auto`` it does
        nothing, and a second ack or nack of a message does nothing.

        Args:
            receipt: Wait until the broker has stored the acknowledgement.

        Raises:
            ServerError: The broker refused the acknowledgement.
            TimedOut: The receipt did not come within the time limit of the connection.
            StaleDelivery: The connection that delivered the message was lost, and the client has reconnects. The
                message is delivered again.
            Disconnected: The connection has ended; the message returns to its queue.

        Source: STOMP 1.2, "ACK".
        """
        self.subscription.settle(self, "ACK", receipt=receipt)

    def nack(self, *, delay_ms: int | None = None, receipt: bool = False) -> None:
        """Return the message to the queue, to be delivered again to any consumer.

        Args:
            delay_ms: The time before the next delivery, in milliseconds. None uses the rule of the queue.
            receipt: Wait until the broker has stored the refusal.

        Raises:
            ServerError: The broker refused the frame.
            TimedOut: The receipt did not come within the time limit of the connection.
            StaleDelivery: The connection that delivered the message was lost, and the client has reconnects. The
                message is delivered again.
            Disconnected: The connection has ended; the message returns to its queue.

        Source: STOMP 1.2, "NACK"; the ``delay`` header is an extension (``docs/protocol.md``).
        """
        headers = {} if delay_ms is None else {"delay": str(delay_ms)}
        self.subscription.settle(self, "NACK", receipt=receipt, headers=headers)

    def reject(self, *, receipt: bool = False) -> None:
        """Move the message to the dead-letter queue of its queue, or discard it if there is none.

        Args:
            receipt: Wait until the broker has stored the refusal.

        Raises:
            ServerError: The broker refused the frame.
            TimedOut: The receipt did not come within the time limit of the connection.
            StaleDelivery: The connection that delivered the message was lost, and the client has reconnects. The
                message is delivered again.
            Disconnected: The connection has ended; the message returns to its queue.

        Source: STOMP 1.2, "NACK"; the ``requeue`` header is an extension (``docs/protocol.md``).
        """
        self.subscription.settle(self, "NACK", receipt=receipt, headers={"requeue": "false"})

    def touch(self) -> None:
        """Restart the ``ack_timeout`` of the message, because the consumer still works on it.

        Does nothing under ``auto``, or if the message is settled.

        Raises:
            ServerError: The broker refused an earlier frame.
            StaleDelivery: The connection that delivered the message was lost, and the client has reconnects. The
                message is delivered again.
            Disconnected: The connection has ended; the message returns to its queue.
        """
        subscription = self.subscription
        if subscription.ack != "auto" and not self.settled:
            link = subscription.connection.link
            link.write(lambda: link.session.protocol.ack(self.headers, {"touch": "true"}), self.generation)

    def reply(self, body: Body = b"", headers: Headers | None = None) -> None:
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
        self.subscription.connection.send(target, body, extra, receipt=False)
