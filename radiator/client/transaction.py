"""A transaction: sends and acknowledgements that happen together at COMMIT, or not at all.

    with connection.transaction() as transaction:
        transaction.send("/queue/done", body)
        transaction.ack(message)

The block's end commits and waits for the receipt, which carries the broker's promise; an exception aborts. What was
sent before a lost connection is discarded by the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.client.errors import ClientError
from radiator.client.sending import Body, Headers, Sendable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from radiator.client.connection import Connection
    from radiator.client.message import Message


class Transaction:
    """Made by ``Connection.transaction``; to be used in ``with``."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.id = name
        self._connection = connection
        self._link = connection.link
        self._open = False
        self._settled: list[Message] = []

    def __enter__(self) -> Transaction:
        self._link.write(self._link.protocol.begin(self.id))
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._open:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except ClientError:
            pass  # the caller's own exception matters more; a lost connection aborts anyway

    def send(self, destination: str, body: Body = b"", headers: Headers | None = None) -> None:
        """Add a message."""
        self.send_many([(destination, body, headers)])

    def send_many(self, messages: Iterable[Sendable]) -> None:
        """Add many messages."""
        self._check()
        self._connection.write_sends(messages, self.id)

    def ack(self, message: Message) -> None:
        """Add an acknowledgement: the message is done if, and only if, the transaction is committed."""
        self._settle(message, "ACK")

    def nack(self, message: Message) -> None:
        """Add a refusal: the message goes back at COMMIT."""
        self._settle(message, "NACK")

    def commit(self) -> None:
        """Make it all happen; returns when the broker has stored it. The end of ``with`` does this."""
        self._check()
        self._open = False
        self._link.ask(lambda receipt: self._link.protocol.commit(self.id, receipt=receipt)).wait()

    def abort(self) -> None:
        """Make it as if nothing had been sent. An exception in ``with`` does this."""
        self._check()
        self._open = False
        for message in self._settled:
            message.settled = False
        self._link.ask(lambda receipt: self._link.protocol.abort(self.id, receipt=receipt)).wait()

    def _settle(self, message: Message, command: str) -> None:
        self._check()
        if not message.settled:
            message.subscription.settle(message, command, transaction=self.id)
            self._settled.append(message)

    def _check(self) -> None:
        if not self._open:
            raise ClientError("the transaction is not open: it was committed or aborted, or its `with` not entered")
