"""Send many messages reliably: one receipt per run of messages, over as many connections as necessary.

A ``ReliableSender`` sends without a wait and asks for one receipt per run of messages, because a RECEIPT covers every
frame before it. Its connection has reconnects, so the session sends the runs without a receipt again, in order, after
a lost connection or a restart of the broker. Messages with a ``dedup-id`` (or ``producer-id`` and ``sequence``) are
stored once; others at least once.

Errors that another attempt cannot cure are raised: an ERROR of the broker, receipts that do not come on a working
connection (a full queue that blocks), a wrong login, an untrusted certificate.

The stored messages are bounded by WINDOW_MESSAGES, WINDOW_BYTES and the run that is being collected. A sender is not
thread-safe. ``Connection.producer`` is for threads, and gives each message its own receipt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from radiator.client.connection import Connection
from radiator.client.errors import Disconnected, TimedOut
from radiator.client.link import Pending
from radiator.client.receipts import Receipt
from radiator.client.reconnect import Reconnect
from radiator.client.sending import Outgoing, body_bytes
from radiator.limits import MIB

RUN_MESSAGES = 1_000  # messages per receipt: a receipt costs as much as a small message
RUN_BYTES = 1 * MIB  # of a run: large bodies get their receipts sooner
WINDOW_MESSAGES = 20_000  # messages without receipt: enough work for a broker that syncs slowly
WINDOW_BYTES = 8 * MIB  # bytes of messages without receipt
DELAY_SECONDS, DELAY_SECONDS_MAX = 0.05, 1.0  # between two attempts to connect

OnReceipts = Callable[[int, list[Receipt]], None]  # number of messages, and the receipts that were asked for


class _Run:
    """Messages with one receipt."""

    __slots__ = ("messages", "pending", "size_bytes")

    def __init__(self, messages: list[Outgoing], size_bytes: int, pending: Pending) -> None:
        self.messages = messages
        self.size_bytes = size_bytes
        self.pending = pending


class ReliableSender:
    """Send messages reliably over as many connections as necessary.

    Args:
        connect: Opens a connection with a policy of reconnects.
        patience_seconds: The time for which a broker may be unavailable, and for which a receipt may take, in seconds.
        messages_per_receipt: The number of messages per receipt.
        receipt_each: Ask for a receipt of every message, at half the speed, to count duplicates.
        on_receipts: Called with the number of messages that were stored and the receipts that were asked for.

    Attributes:
        stored: The number of messages with a receipt.
        sent_again: The number of messages that were sent again because their receipt had not come.

    Example:
        With a broker on 127.0.0.1:61613::

            sender = ReliableSender(lambda policy: connect("127.0.0.1:61613", reconnect=policy))
            for number in range(100_000):
                sender.send(Outgoing("/queue/jobs", b"...", {"dedup-id": f"job-{number}"}))
            sender.flush()
            sender.close()
    """

    def __init__(
        self,
        connect: Callable[[Reconnect], Connection],
        *,
        patience_seconds: float = 30.0,
        messages_per_receipt: int = RUN_MESSAGES,
        receipt_each: bool = False,
        on_receipts: OnReceipts | None = None,
    ) -> None:
        self.stored = 0
        self.sent_again = 0
        self._connect = connect
        self._patience_seconds = patience_seconds
        self._per_run = messages_per_receipt
        self._receipt_each = receipt_each
        self._on_receipts = on_receipts
        self._connection: Connection | None = None
        self._collected: list[Outgoing] = []
        self._collected_bytes = 0
        self._in_flight: deque[_Run] = deque()
        self._in_flight_messages = 0
        self._in_flight_bytes = 0

    def send(self, message: Outgoing) -> None:
        """Add a message, and send the run that it completes. May wait for receipts of earlier messages.

        Args:
            message: The message.

        Raises:
            ServerError: The broker refused a message.
            TimedOut: A receipt did not come in time.
            ConnectFailed: No broker was available for ``patience_seconds``.
            Disconnected: The connection was lost for ``patience_seconds``.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        self._collected.append(message)
        self._collected_bytes += _size_bytes(message)
        if len(self._collected) >= self._per_run or self._collected_bytes >= RUN_BYTES:
            self.push()

    def push(self) -> None:
        """Send the collected messages without a wait for their receipt.

        Raises:
            ServerError: The broker refused a message.
            TimedOut: A receipt did not come in time.
            ConnectFailed: No broker was available for ``patience_seconds``.
            Disconnected: The connection was lost for ``patience_seconds``.
        """
        if not self._collected:
            return
        messages, size_bytes = self._collected, self._collected_bytes
        self.open()
        assert self._connection is not None
        pending = self._connection.send_run(messages, len(messages) if self._receipt_each else 1)
        self._collected, self._collected_bytes = [], 0
        self._in_flight.append(_Run(messages, size_bytes, pending))
        self._in_flight_messages += len(messages)
        self._in_flight_bytes += size_bytes
        while self._in_flight and not self._in_flight[0].pending.left:
            self._settle_first()
        while self._in_flight_messages > WINDOW_MESSAGES or self._in_flight_bytes > WINDOW_BYTES:
            self._settle_first()

    def flush(self) -> None:
        """Send the collected messages, and return when every message has its receipt.

        Raises:
            ServerError: The broker refused a message.
            TimedOut: A receipt did not come in time.
            ConnectFailed: No broker was available for ``patience_seconds``.
            Disconnected: The connection was lost for ``patience_seconds``.
        """
        self.push()
        while self._in_flight:
            self._settle_first()

    def open(self) -> None:
        """Connect now instead of with the first messages.

        Raises:
            ServerError: The broker refused the connection.
            ConnectFailed: No broker was available for ``patience_seconds``.
        """
        if self._connection is None:
            self._connection = self._connect(
                Reconnect(delay=DELAY_SECONDS, delay_max=DELAY_SECONDS_MAX, timeout=self._patience_seconds)
            )

    def close(self) -> None:
        """Close the connection. Messages that were not flushed may or may not be stored. Never raises."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """Close the connection without DISCONNECT, because part of a frame may have been sent. Never raises."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.link.fail(Disconnected("this connection is closed"))
            connection.close(0.0)

    def _settle_first(self) -> None:
        run = self._in_flight[0]
        receipts = self._receipts(run)
        self._in_flight.popleft()
        self._in_flight_messages -= len(run.messages)
        self._in_flight_bytes -= run.size_bytes
        self.stored += len(run.messages)
        self.sent_again += (run.pending.times - 1) * len(run.messages)
        if self._on_receipts is not None:
            self._on_receipts(len(run.messages), receipts)

    def _receipts(self, run: _Run) -> list[Receipt]:
        """Return the receipts of a run. Their time limit counts on one connection, and not while there is none."""
        assert self._connection is not None
        session = self._connection.link.session
        while True:
            generation = session.generation
            if run.pending.poll(self._patience_seconds):
                return run.pending.wait()
            if session.connected and session.generation == generation:
                raise TimedOut(
                    f"the receipt of {len(run.messages)} messages did not come within {self._patience_seconds:g} s; "
                    "the queue may be full, or the broker slow: see its log, or raise timeout"
                )


def _size_bytes(message: Outgoing) -> int:
    """Return the approximate size of a message: its body and the text of its headers."""
    headers = sum(len(name) + len(str(value)) for name, value in message.headers.items()) if message.headers else 0
    return len(body_bytes(message.body)) + headers
