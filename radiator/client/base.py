"""Base classes of the blocking client and the asyncio client: limits, addresses, names, and the end after a fork.

Neither class waits or does I/O. ``link`` and ``aio.link`` add the sockets, ``core`` and ``aio.client`` the calls.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from radiator.client.address import Address
from radiator.client.errors import ClientError
from radiator.client.reconnect import ONCE, Attempts, Reconnect
from radiator.client.session import Inbox, Session
from radiator.stomp.frames import Frame
from radiator.stomp.heartbeat import HeartBeat

if TYPE_CHECKING:
    from radiator.client.tracing import Tracing

INBOX_BYTES_MAX = 16 * 1024 * 1024
GRACE = 2.0  # times the promised heart-beat interval before the broker counts as dead
TICK_SECONDS_MAX = 30.0
CHUNK_MESSAGES = 500  # per write of send_many: enough to be cheap, few enough that the first leave early
WINDOW_MESSAGES = 20_000  # sends without receipt yet in send_many

OnEvent = Callable[[ClientError | None], object]
Dial = TypeVar("Dial")


class BaseLink(Generic[Dial]):
    """A session and the way to its brokers.

    Args:
        session: The state of the client.
        addresses: The addresses of the brokers.
        dial: Opens a socket, or a stream, to an address within a number of seconds.
        policy: The policy of reconnects, or None.
        timeout: The default time limit of all calls that wait, in seconds.
        connect_timeout: The time limit of one attempt to connect, in seconds.
        on_connect: Called after each CONNECTED; or None.
        on_disconnect: Called after each lost connection; or None.

    Attributes:
        session: The state of the client.
        timeout: The default time limit of all calls that wait, in seconds.
        awaited: The number of replies, beside the receipts, that callers wait for.
    """

    def __init__(
        self,
        session: Session,
        addresses: Sequence[Address],
        dial: Dial,
        policy: Reconnect | None,
        timeout: float,
        connect_timeout: float,
        on_connect: OnEvent | None = None,
        on_disconnect: OnEvent | None = None,
    ) -> None:
        self.session = session
        self.timeout = timeout
        self.awaited = 0
        self._addresses = addresses
        self._policy = policy or ONCE
        self._dial = dial
        self._connect_timeout = connect_timeout
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._begin()
        _LINKS.add(self)

    def _begin(self) -> None:
        """Set everything that a child process may not share with its parent."""
        self._attempts = Attempts(self._addresses, self._policy)
        self._first_frames: list[Frame] = []  # those that came with CONNECTED
        self._broken: ClientError | None = None  # why the present connection was given up

    @property
    def error(self) -> ClientError | None:
        """The reason for the end of the link, or None while it can be used."""
        return self.session.error

    @property
    def address(self) -> Address:
        """The address of the present connection, or of the next attempt."""
        return self._attempts.address

    @staticmethod
    def _wake(inboxes: set[Inbox]) -> None:
        for inbox in inboxes:
            inbox.wake()

    def forked(self) -> None:
        """Leave the connection to the parent process. Called in a child process."""


_LINKS: weakref.WeakSet[BaseLink[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for link in [*_LINKS]:
        link.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def tick_seconds(beats: HeartBeat) -> float | None:
    """Return the seconds between two checks of the heart-beats: half of the shortest limit. None without limits.

    Args:
        beats: The heart-beats that the two ends agreed on.
    """
    limits = [span for span in (beats.send_ns, beats.silence_ns) if span]
    return min(TICK_SECONDS_MAX, max(0.01, min(limits) / 2e9)) if limits else None


AnyLink = TypeVar("AnyLink", bound=BaseLink[Any])


class BaseClient(Generic[AnyLink]):
    """The properties of an open connection; subclasses add the calls that wait.

    Args:
        link: The link that owns the socket.
        tracing: Makes spans of what is sent and processed, or None.

    Attributes:
        link: The link that owns the socket.
        tracing: Makes spans of what is sent and processed, or None.
    """

    def __init__(self, link: AnyLink, tracing: Tracing | None = None) -> None:
        self.link = link
        self.tracing = tracing
        self._names = itertools.count(1)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.address}, STOMP {self.version}>"

    @property
    def address(self) -> Address:
        """The address of the broker; after a lost connection that of the next attempt."""
        return self.link.address

    @property
    def version(self) -> str:
        """The STOMP version of the present connection."""
        return self.link.session.protocol.version or "1.0"

    @property
    def session(self) -> str:
        """The ``session`` header of the last CONNECTED, or empty."""
        return self.link.session.connected_headers.get("session", "")

    @property
    def server(self) -> str:
        """The ``server`` header of the last CONNECTED, or empty."""
        return self.link.session.connected_headers.get("server", "")

    @property
    def connected(self) -> bool:
        """True while a connection is open; False before a reconnect, and after the end."""
        return self.link.session.connected

    @property
    def closed(self) -> bool:
        """True after the connection has ended for any reason, and no other one follows."""
        return self.link.error is not None

    def new_name(self, prefix: str) -> str:
        """Return a name that no subscription or transaction of this connection has had.

        Args:
            prefix: The text before the number.
        """
        return f"{prefix}{next(self._names)}"
