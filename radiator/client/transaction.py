"""Send and acknowledge messages in a transaction: all at COMMIT, or none.

The broker discards an open transaction when the connection is lost. It does not come back with the next connection:
every later call raises ``Disconnected``, and the program repeats the transaction as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.client.errors import ClientError, Disconnected, StaleDelivery
from radiator.client.sending import Body, Headers, Sendable
from radiator.client.session import OnLoss, Session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from radiator.client.contents import MessageView
    from radiator.client.core import BaseConnection
    from radiator.client.message import Message


class BaseTransaction:
    """The state of a transaction, for the blocking client and the asyncio client.

    Args:
        session: The state of the client.
        name: The transaction id, unique in the client.

    Attributes:
        id: The transaction id.
    """

    def __init__(self, session: Session, name: str) -> None:
        self.id = name
        self._session = session
        self._open = False
        self._generation = 0
        self._settled: list[MessageView] = []

    def _end(self, *, aborted: bool = False) -> None:
        """End the transaction. Messages of an aborted one can be acknowledged again."""
        self._open = False
        for message in self._settled if aborted else ():
            message.mark_settled(False)

    def _check(self) -> None:
        if not self._open:
            raise ClientError(
                "the transaction is not open: expected a call inside its `with` block, before commit() or abort()"
            )
        session = self._session
        session.check()
        if self._generation != session.generation or not session.connected:
            raise self._lost()

    @staticmethod
    def _lost() -> Disconnected:
        return Disconnected("the connection was lost with the transaction: none of it takes effect; repeat it")


class Transaction(BaseTransaction):
    """A transaction, created by ``Connection.transaction`` and used in a ``with`` block.

    The end of the block commits and waits for the receipt. An exception in the block aborts.

    Args:
        connection: The connection that the transaction belongs to.
        name: The transaction id, unique in the connection.

    Example:
        With an open connection and a received ``message``::

            with connection.transaction() as transaction:
                transaction.send("/queue/done", b"result")
                transaction.ack(message)

    Source: STOMP 1.2, "BEGIN", "COMMIT" and "ABORT".
    """

    def __init__(self, connection: BaseConnection, name: str) -> None:
        super().__init__(connection.link.session, name)
        self._connection = connection
        self._link = connection.link

    def __enter__(self) -> Transaction:
        self._generation = self._link.write(lambda: self._session.protocol.begin(self.id))
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
        """Add a message to the transaction.

        Args:
            destination: The destination of the message.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers, or None.

        Raises:
            ClientError: The transaction is not open, or the connection has ended.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        self.send_many([(destination, body, headers)])

    def send_many(self, messages: Iterable[Sendable]) -> None:
        """Add messages to the transaction.

        Args:
            messages: Tuples ``(destination, body)`` or ``(destination, body, headers)``.

        Raises:
            ClientError: The transaction is not open, or the connection has ended.
            ValueError: A header is not allowed.
            TypeError: A body is neither bytes nor text.
        """
        self._check()
        try:
            self._connection.write_sends(messages, self.id, self._generation)
        except StaleDelivery:
            raise self._lost() from None

    def ack(self, message: Message) -> None:
        """Add an acknowledgement: the message is settled when the transaction is committed.

        Args:
            message: A message of this connection.

        Raises:
            ClientError: The transaction is not open, or the connection has ended.
        """
        self._settle(message, "ACK")

    def nack(self, message: Message) -> None:
        """Add a refusal: the message returns to its queue when the transaction is committed.

        Args:
            message: A message of this connection.

        Raises:
            ClientError: The transaction is not open, or the connection has ended.
        """
        self._settle(message, "NACK")

    def commit(self, headers: Headers | None = None) -> None:
        """Commit, and return when the broker has stored the transaction. The end of ``with`` does this.

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
        self._link.ask(
            lambda receipt: protocol.commit(self.id, headers, receipt=receipt), OnLoss.UNKNOWN, self._generation
        ).wait()

    def abort(self) -> None:
        """Discard the transaction. An exception in ``with`` does this. Its messages can be acknowledged again.

        Raises:
            ClientError: The transaction is not open.
            TimedOut: The receipt did not come in time.
            Disconnected: The connection ended first; the broker discards the transaction too.
        """
        self._check()
        self._end(aborted=True)
        protocol = self._session.protocol
        self._link.ask(lambda receipt: protocol.abort(self.id, receipt=receipt), OnLoss.DONE, self._generation).wait()

    def _settle(self, message: Message, command: str) -> None:
        self._check()
        if not message.settled:
            message.subscription.settle(message, command, transaction=self.id)
            self._settled.append(message)
