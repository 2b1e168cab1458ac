"""Send many messages reliably: reconnect, and send again what has no receipt.

A ``ReliableSender`` sends without a wait and asks for one receipt per run of messages, because a RECEIPT covers every
frame before it. It stores the messages without receipt. When the connection is lost, or the broker shuts down, it
connects again and sends the stored messages copy_error, in order. Messages with a ``dedup-id`` (or ``producer-id`` and
``sequence``) are stored once; others at least once.

Errors that another attempt cannot cure are raised: an ERROR of the broker, receipts that do not come on a working
connection (a full queue that blocks), a wrong login, an untrusted certificate.

The stored messages are bounded by WINDOW_MESSAGES, WINDOW_BYTES and the run that is being collected. A sender is not
thread-safe. The clock and the sleep function are arguments.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from radiator.client.connection import Connection
from radiator.client.errors import BadTls, ConnectFailed, Disconnected, ServerError
from radiator.client.link import Pending
from radiator.client.receipts import Receipt
from radiator.client.sending import Outgoing, body_bytes
from radiator.errors import ClientError
from radiator.limits import MIB

RUN_MESSAGES = 1_000  # messages per receipt: a receipt costs as much as a small message
RUN_BYTES = 1 * MIB  # of a run: large bodies get their receipts sooner
WINDOW_MESSAGES = 20_000  # messages without receipt: enough work for a broker that syncs slowly
WINDOW_BYTES = 8 * MIB  # bytes of messages without receipt
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 1.0  # between two attempts to connect

TRANSIENT_CODES = frozenset(
    {"draining", "shutting-down"}
)  # ERROR codes of a broker that restarts: another attempt may succeed

T = TypeVar("T")
OnReceipts = Callable[[int, list[Receipt]], None]  # number of messages, and the receipts that were asked for


class _Run:
    """Messages with one receipt; ``pending`` is set while they are sent and not acknowledged."""

    __slots__ = ("messages", "pending", "size_bytes")

    def __init__(self, messages: list[Outgoing], size_bytes: int) -> None:
        self.messages = messages
        self.size_bytes = size_bytes
        self.pending: Pending | None = None


class ReliableSender:
    """Send messages reliably over as many connections as necessary.

    Args:
        connect: Opens a connection.
        patience_seconds: The time for which a broker may be unavailable, and for which a receipt may take, in seconds.
        messages_per_receipt: The number of messages per receipt.
        receipt_each: Ask for a receipt of every message, at half the speed, to count duplicates.
        on_receipts: Called with the number of messages that were stored and the receipts that were asked for.
        monotonic: The monotonic clock, in seconds.
        sleep: Waits for a number of seconds.

    Attributes:
        stored: The number of messages with a receipt.
        sent_again: The number of messages that were sent again because their receipt had not come.

    Example:
        With a broker on 127.0.0.1:61613::

            sender = ReliableSender(lambda: connect("127.0.0.1:61613"))
            for number in range(100_000):
                sender.send(Outgoing("/queue/jobs", b"...", {"dedup-id": f"job-{number}"}))
            sender.flush()
            sender.close()
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        patience_seconds: float = 30.0,
        messages_per_receipt: int = RUN_MESSAGES,
        receipt_each: bool = False,
        on_receipts: OnReceipts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.stored = 0
        self.sent_again = 0
        self._connect = connect
        self._patience_seconds = patience_seconds
        self._per_run = messages_per_receipt
        self._receipt_each = receipt_each
        self._on_receipts = on_receipts
        self._monotonic = monotonic
        self._sleep = sleep
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
        run = _Run(self._collected, self._collected_bytes)
        self._collected, self._collected_bytes = [], 0
        self._in_flight.append(run)
        self._in_flight_messages += len(run.messages)
        self._in_flight_bytes += run.size_bytes
        self._retry(lambda: self._launch(run))
        self._settle_complete()
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
        self._retry(lambda: None)

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

    # --- one connection -----------------------------------------------------------------------------------------------

    def _launch(self, run: _Run) -> None:
        if run.pending is not None:  # _open has sent it
            return
        connection = self._connection
        assert connection is not None
        asking = 0 if self._receipt_each else len(run.messages) - 1
        connection.write_sends(run.messages[:asking], None)
        run.pending = connection.send_nowait(run.messages[asking:])

    def _settle_complete(self) -> None:
        while self._in_flight and (pending := self._in_flight[0].pending) is not None and not pending.left:
            self._settle_first()

    def _settle_first(self) -> None:
        receipts = self._retry(self._receipts_of_first)
        run = self._in_flight.popleft()
        self._in_flight_messages -= len(run.messages)
        self._in_flight_bytes -= run.size_bytes
        self.stored += len(run.messages)
        if self._on_receipts is not None:
            self._on_receipts(len(run.messages), receipts)

    def _receipts_of_first(self) -> list[Receipt]:
        run = self._in_flight[0]
        self._launch(run)
        assert run.pending is not None
        return run.pending.wait(self._patience_seconds)

    # --- reconnecting -------------------------------------------------------------------------------------------------

    def _retry(self, step: Callable[[], T]) -> T:
        """Run ``step`` on this connection or on a later one, and return its result. Raises the last error."""
        deadline: float | None = None
        pause = PAUSE_SECONDS
        while True:
            try:
                if self._connection is None:
                    self._open()
                return step()
            except ClientError as error:
                if not is_transient(error):
                    raise
                self.abandon()
                now = self._monotonic()
                deadline = now + self._patience_seconds if deadline is None else deadline
                if now + pause > deadline:
                    raise
            self._sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _open(self) -> None:
        """Connect, and send all messages without receipt."""
        self._connection = self._connect()
        for run in self._in_flight:
            if run.pending is not None:
                self.sent_again += len(run.messages)
                run.pending = None
        for run in self._in_flight:
            self._launch(run)


def _size_bytes(message: Outgoing) -> int:
    """Return the approximate size of a message: its body and the text of its headers."""
    headers = sum(len(name) + len(str(value)) for name, value in message.headers.items()) if message.headers else 0
    return len(body_bytes(message.body)) + headers


def is_transient(error: ClientError) -> bool:
    """Return True if the same call may succeed on another connection.

    Args:
        error: The error of the call.
    """
    if isinstance(error, ServerError):
        return error.code in TRANSIENT_CODES
    return isinstance(error, ConnectFailed | Disconnected) and not isinstance(error, BadTls)
