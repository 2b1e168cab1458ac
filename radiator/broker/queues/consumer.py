"""The interface of a consumer that a queue uses.

``clients.session.Subscription`` is the consumer of a broker. These protocols state what a queue uses of it, so that
queues do not import sessions.
"""

from __future__ import annotations

from collections.abc import Reversible
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from radiator.broker.logs.feed import Feed
    from radiator.broker.logs.selection import Selection

Number: TypeAlias = str  # a delivery number, as written in the ack id


class UnwrittenRun(Protocol):
    """A run of messages under ``ack:auto`` that may not be written to the socket yet."""

    @property
    def ends_at(self) -> int:
        """The position in the session's outgoing bytes at which the run ends."""

    @property
    def source(self) -> Any:
        """The cursor of the queue that the messages came from."""


class ServedQueues(Protocol):
    """The queues that share the window of a session."""

    def served(self, subscription: Any, queue: Any) -> None:
        """Serve all other queues of the session before this one."""


class ConsumerWindow(Protocol):
    """The window that consumers of one session share."""

    size: int
    held: int

    @property
    def queues(self) -> ServedQueues:
        """The queues that share the window."""


class ConsumerOutbox(Protocol):
    """The outbox of a session."""

    written_total: int

    @property
    def auto_acks(self) -> Reversible[UnwrittenRun]:
        """Runs under ``ack:auto``, the oldest first."""

    def room(self) -> int:
        """Return how many bytes deliveries may still add."""


class ConsumerSession(Protocol):
    """The session of a consumer."""

    closed: bool
    version: str

    @property
    def outbox(self) -> ConsumerOutbox:
        """The bytes to send to the client."""

    @property
    def window(self) -> ConsumerWindow:
        """The window that consumers without one of their own share."""


class Consumer(Protocol):
    """A subscription that consumes from queues."""

    ack: str
    window: int | None
    selection: Selection | None

    @property
    def full_name(self) -> str:
        """The client id, or the id of the session without one, a slash, and the id of the subscription."""

    @property
    def session(self) -> ConsumerSession:
        """The session that the subscription belongs to."""

    @property
    def in_flight(self) -> dict[Number, Any]:
        """Deliveries that are not acknowledged, the oldest first: (cursor, offset, prefix of the log's message ids)."""

    @property
    def shares_window(self) -> bool:
        """True if deliveries count against the session's window."""

    def queue_credit(self) -> int:
        """Return how many messages of queues may be sent now."""

    def deliver(
        self, feed: Feed, source: Any, offsets: list[int] | range, tails: list[bytes], extra: bytes = b""
    ) -> None:
        """Send a run of messages."""

    def enter(self, destination: Any) -> None:
        """Take part in a destination."""

    def await_turn(self, queue: Any) -> None:
        """Note that the next owner of a partition of ``queue`` waits until this consumer holds nothing of it."""
