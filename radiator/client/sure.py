"""Many messages, each of them stored when ``flush`` returns, over as many connections as it takes.

A ``SureSender`` sends without waiting, asks for one receipt per run of messages (a RECEIPT speaks for everything sent
before it), and keeps what has none yet. When the connection is lost, or the broker is being stopped, it connects again,
for as long as its patience lasts since the last receipt, and sends what it keeps once more, in order. Messages with a
``dedup-id`` (or ``producer-id`` and ``sequence``) are then stored once; others at least once.

What does not become better by trying again is raised: an ERROR of the broker, receipts that do not come on a good
connection (a queue that is full and blocks), a login that is wrong, a certificate that is not trusted.

Bounded: what is kept is WINDOW_MESSAGES or WINDOW_BYTES at most, and the run being gathered.

Not for several threads. Time and waiting are arguments.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from radiator.client.connection import Connection
from radiator.client.errors import BadTls, ConnectFailed, Disconnected, ServerError
from radiator.client.link import Pending
from radiator.client.message import Receipt
from radiator.client.sending import Outgoing, body_bytes
from radiator.errors import ClientError
from radiator.limits import MIB

RUN_MESSAGES = 1_000  # per receipt, if nothing else is said: a receipt costs as much as a small message
RUN_BYTES = 1 * MIB  # so large bodies have their receipts sooner
WINDOW_MESSAGES = 20_000  # without receipt yet: a broker that syncs slowly still has work
WINDOW_BYTES = 8 * MIB  # kept to be sent again
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 1.0  # between two attempts to connect

PASSING = frozenset({"shutting-down"})  # ERRORs after which the same message may be taken: a broker being restarted

T = TypeVar("T")
OnReceipts = Callable[[int, list[Receipt]], None]  # how many messages, and the receipts that were asked for


class _Run:
    """Messages under one receipt; ``pending`` while they are on their way."""

    __slots__ = ("messages", "pending", "size_bytes")

    def __init__(self, messages: list[Outgoing], size_bytes: int) -> None:
        self.messages = messages
        self.size_bytes = size_bytes
        self.pending: Pending | None = None


class SureSender:
    """``connect`` makes a connection; ``patience_seconds`` is how long a broker may be away, and a receipt take.

    ``receipt_each`` asks for a receipt of every message, at half the speed: for whoever counts the repeats.
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
        self.stored = 0  # messages that a receipt speaks for
        self.sent_again = 0  # messages that were sent once more, since their receipt had not come
        self._connect = connect
        self._patience_seconds = patience_seconds
        self._per_run = messages_per_receipt
        self._receipt_each = receipt_each
        self._on_receipts = on_receipts
        self._monotonic = monotonic
        self._sleep = sleep
        self._connection: Connection | None = None
        self._gathering: list[Outgoing] = []
        self._gathering_bytes = 0
        self._under_way: deque[_Run] = deque()
        self._under_way_messages = 0
        self._under_way_bytes = 0

    def send(self, message: Outgoing) -> None:
        """Take a message; it may wait for receipts of earlier ones. Raises ClientError."""
        self._gathering.append(message)
        self._gathering_bytes += _size_bytes(message)
        if len(self._gathering) >= self._per_run or self._gathering_bytes >= RUN_BYTES:
            self.push()

    def push(self) -> None:
        """Send what was gathered, without waiting for its receipt. Raises ClientError."""
        if not self._gathering:
            return
        run = _Run(self._gathering, self._gathering_bytes)
        self._gathering, self._gathering_bytes = [], 0
        self._under_way.append(run)
        self._under_way_messages += len(run.messages)
        self._under_way_bytes += run.size_bytes
        self._surely(lambda: self._launch(run))
        self._settle_what_came()
        while self._under_way_messages > WINDOW_MESSAGES or self._under_way_bytes > WINDOW_BYTES:
            self._settle_first()

    def flush(self) -> None:
        """Return when every message is stored as its rule says. Raises ClientError."""
        self.push()
        while self._under_way:
            self._settle_first()

    def open(self) -> None:
        """Connect now, and not with the first messages. Raises ClientError."""
        self._surely(lambda: None)

    def close(self) -> None:
        """End the connection; what was not flushed may or may not be stored. Never raises."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """End it at once, and say nothing: a frame may be half out, and a farewell would become part of it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.link.fail(Disconnected("this connection was given up"))
            connection.close(0.0)

    # --- one connection -----------------------------------------------------------------------------------------------

    def _launch(self, run: _Run) -> None:
        if run.pending is not None:  # a new connection has taken it along
            return
        connection = self._connection
        assert connection is not None
        asking = 0 if self._receipt_each else len(run.messages) - 1
        connection.write_sends(run.messages[:asking], None)
        run.pending = connection.send_nowait(run.messages[asking:])

    def _settle_what_came(self) -> None:
        while self._under_way and (pending := self._under_way[0].pending) is not None and not pending.left:
            self._settle_first()

    def _settle_first(self) -> None:
        receipts = self._surely(self._receipts_of_first)
        run = self._under_way.popleft()
        self._under_way_messages -= len(run.messages)
        self._under_way_bytes -= run.size_bytes
        self.stored += len(run.messages)
        if self._on_receipts is not None:
            self._on_receipts(len(run.messages), receipts)

    def _receipts_of_first(self) -> list[Receipt]:
        run = self._under_way[0]
        self._launch(run)
        assert run.pending is not None
        return run.pending.wait(self._patience_seconds)

    # --- several ------------------------------------------------------------------------------------------------------

    def _surely(self, step: Callable[[], T]) -> T:
        """What the step gives, on this connection or on a later one. Raises what stood in the way last."""
        deadline: float | None = None
        pause = PAUSE_SECONDS
        while True:
            try:
                if self._connection is None:
                    self._open()
                return step()
            except ClientError as error:
                if not passes(error):
                    raise
                self.abandon()
                now = self._monotonic()
                deadline = now + self._patience_seconds if deadline is None else deadline
                if now + pause > deadline:
                    raise
            self._sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _open(self) -> None:
        """A new connection, and on it all that has no receipt."""
        self._connection = self._connect()
        for run in self._under_way:
            if run.pending is not None:
                self.sent_again += len(run.messages)
                run.pending = None
        for run in self._under_way:
            self._launch(run)


def _size_bytes(message: Outgoing) -> int:
    """Of its body and of the text of its headers, about."""
    headers = sum(len(name) + len(str(value)) for name, value in message.headers.items()) if message.headers else 0
    return len(body_bytes(message.body)) + headers


def passes(error: ClientError) -> bool:
    """True if the same may work on another connection."""
    if isinstance(error, ServerError):
        return error.code in PASSING
    return isinstance(error, ConnectFailed | Disconnected) and not isinstance(error, BadTls)
