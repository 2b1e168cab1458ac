"""The outbox of a session: bytes to send, how many of them were sent, and the subscriptions that wait for room.

The transport takes the bytes and reports with ``flushed`` how many the operating system has accepted, because a message
under ``ack:auto`` counts as acknowledged when it was written to the socket (as in RabbitMQ and ActiveMQ). Bytes count
against ``room`` until then. Only deliveries stop without room; answers to frames are added all the same.

The module does not know sessions, subscriptions or sockets.
Invariants: ``unsent_bytes`` plus ``written_total`` is the number of bytes ever added. ``auto_acks`` is ordered by
``ends_at``. A closed outbox takes no bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from radiator.broker.queues.queue import QueueSource

NO_RUNS: Final[deque[AutoAck]] = deque(maxlen=0)  # of most outboxes: an empty deque takes 760 bytes

Waiting = TypeVar("Waiting")


def _ignore() -> None:
    pass


class AutoAck:
    """A run of queue messages under ``ack:auto`` in the outbox, settled once its last byte is written.

    Args:
        ends_at: The position in the session's outgoing bytes at which the run ends.
        source: The source of the messages.
        offsets: The offset of each message.
        lengths: The length of each frame in bytes.
    """

    __slots__ = ("ends_at", "lengths", "offsets", "source")

    def __init__(self, ends_at: int, source: QueueSource, offsets: list[int], lengths: list[int]) -> None:
        self.ends_at = ends_at
        self.source = source
        self.offsets = offsets
        self.lengths = lengths

    def settle(self) -> None:
        """Settle the run: every message was written. A consumer that waits for a partition of the queue may get it."""
        source = self.source
        source.settle(self.offsets)
        if source.queue.assignment is not None:
            source.queue.timing.wake(source.queue)

    def unwritten(self, written_total: int) -> tuple[list[int], list[int]]:
        """Split the offsets into wholly written ones and others, for a connection that died in between."""
        end = self.ends_at - sum(self.lengths)
        for index, length in enumerate(self.lengths):
            end += length
            if end > written_total:
                return self.offsets[:index], self.offsets[index:]
        return self.offsets, []


class Outbox(Generic[Waiting]):
    """The outbox of one session.

    Args:
        most_bytes: The number of unsent bytes from which on deliveries stop (``limits.outbox``).
        wake: Called when the outbox is not empty any more.

    Attributes:
        pieces: The bytes that the transport has not taken.
        unsent_bytes: The number of bytes that were added and not sent, taken or not.
        written_total: The number of bytes ever sent.
        auto_acks: The runs under ``ack:auto`` that are not wholly sent, the oldest first. See ``expect_runs``.
        waiting: Subscriptions that stopped because there was no room.
    """

    __slots__ = (
        "_closed",
        "_most_bytes",
        "_room_bytes",
        "_wake",
        "auto_acks",
        "pieces",
        "unsent_bytes",
        "waiting",
        "written_total",
    )

    def __init__(self, most_bytes: int, wake: Callable[[], None]) -> None:
        self._closed = False
        self._most_bytes = most_bytes
        self._room_bytes = most_bytes
        self._wake = wake
        self.pieces: list[bytes] = []
        self.unsent_bytes = 0
        self.written_total = 0
        self.auto_acks = NO_RUNS
        self.waiting: dict[Waiting, None] = {}

    def add(self, data: bytes) -> None:
        """Add bytes, and wake the transport if there were none."""
        if self._closed:
            return
        if not self.pieces:
            self._wake()
        self.pieces.append(data)
        self.unsent_bytes += len(data)

    def expect_runs(self) -> None:
        """Take runs under ``ack:auto`` from now on."""
        if self.auto_acks is NO_RUNS:
            self.auto_acks = deque()

    def room(self) -> int:
        """Return how many bytes deliveries may still add; zero or less means none."""
        return self._room_bytes - self.unsent_bytes

    def take(self) -> list[bytes]:
        """Remove and return all bytes to send. They count against ``room`` until ``flushed``."""
        taken, self.pieces = self.pieces, []
        return taken

    def flushed(self, size: int) -> None:
        """Note that ``size`` bytes were passed to the operating system, and settle messages under ``ack:auto``."""
        self.unsent_bytes -= size
        self.written_total += size
        acks = self.auto_acks
        while acks and acks[0].ends_at <= self.written_total:
            acks.popleft().settle()

    def take_waiting(self) -> dict[Waiting, None]:
        """Remove and return the subscriptions that stopped because there was no room."""
        waiting, self.waiting = self.waiting, {}
        return waiting

    def pause_deliveries(self) -> None:
        """Leave deliveries no room until ``resume_deliveries``. Answers to frames are sent."""
        self._room_bytes = 0

    def resume_deliveries(self) -> dict[Waiting, None]:
        """Give deliveries room again. Return the subscriptions that waited for it."""
        self._room_bytes = self._most_bytes
        return self.take_waiting()

    def close(self) -> None:
        """Discard the bytes, and those that are added later: the connection is gone."""
        self._closed = True
        self._wake = _ignore
        self.pieces.clear()
