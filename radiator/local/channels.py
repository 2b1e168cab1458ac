"""Publish, fetch, subscribe and call by channel name.

The name of a channel is the name of a destination. A name without a leading ``/`` is a topic: ``news.sport`` is
``/topic/news.sport``. In a pattern ``=`` is one segment and ``+`` is any number of segments (as are ``*`` and
``*.#``). A name with a leading ``/`` is used unchanged: ``/queue/jobs`` is a queue, which stores messages until they
are consumed and gives each to one consumer.

When the connection has ended (the broker answers some errors by closing it, or was killed), the next call reconnects,
and so does a call that is waiting. A message is sent again with the same ``dedup-id``, so it is stored once. A waiting
consumer subscribes again. A request is not repeated, because another program may have processed it.

Invariants: there is one connection at a time. Each channel that is fetched from has one subscription, which its first
``fetch`` creates.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from radiator.client import ClientError, ConnectFailed, Connection, Disconnected, Message, ServerError, Subscription
from radiator.client import connect as connect_client
from radiator.local import home as homes

if TYPE_CHECKING:
    from radiator.client.sending import Body, Headers

TOPIC_PREFIX = "/topic/"
SHORTHANDS = {"=": "*", "+": "*.#"}
SENDS_MAX = 5  # attempts per message, so that a message that crashes the broker does not start it again without end
IDENTITIES = ("dedup-id", "producer-id")  # headers by which the broker detects duplicates
FETCHED_MAX = 256  # channels with a subscription; the least recently fetched one is closed


def connect(home: str | os.PathLike[str] | None = None, *, idle: float = 10.0, timeout: float = 10.0) -> Channels:
    """Connect to the private broker of ``home``, and start the broker if it does not run.

    Args:
        home: The directory of the broker. None uses the environment variable ``RADIATOR_HOME``, or else a directory in
            memory, which is lost at the next boot.
        idle: The time after which a broker without connections ends, in seconds. Used if this call starts the broker.
        timeout: The time limit for the whole call, in seconds.

    Returns:
        The channels. Close them, or use them in a ``with`` block.

    Raises:
        HomeError: The directory cannot be used, or the broker did not start in time; the message says why.
        ServerError: The broker answered ERROR.

    Example:
        >>> with connect() as channels:  # doctest: +SKIP
        ...     channels.publish("news.sport", "1:0")
        0
    """
    channels = Channels(homes.prepare(os.fspath(home) if home is not None else homes.default_home()), idle, timeout)
    channels.connection  # noqa: B018 - the property connects
    return channels


def destination(name: str) -> str:
    """Return the destination, or the pattern of destinations, for a channel name.

    Args:
        name: The name or the pattern of a channel.

    Example:
        >>> destination("news.="), destination("/queue/jobs")
        ('/topic/news.*', '/queue/jobs')
    """
    if name.startswith("/"):
        return name
    return TOPIC_PREFIX + ".".join(SHORTHANDS.get(segment, segment) for segment in name.split("."))


class Channels:
    """All channels of a home. As a context manager it disconnects at the end. Several threads may use it at once.

    ``connect`` creates it.

    Args:
        home: The directory of the broker, as ``radiator.local.home.prepare`` returns it.
        idle: The time after which a broker without connections ends, in seconds.
        timeout: The time limit for finding or starting the broker, in seconds.

    Attributes:
        home: The directory of the broker.
    """

    def __init__(self, home: str, idle: float, timeout: float) -> None:
        self.home = home
        self._idle = idle
        self._timeout = timeout
        self._closed = False
        self._connecting = threading.Lock()
        self._subscribing = threading.Lock()
        self._connection: Connection | None = None
        self._fetching: dict[str, Subscription] = {}

    @property
    def connection(self) -> Connection:
        """The ``radiator.client`` connection, for operations that channels do not have. Reconnects if necessary.

        Raises:
            HomeError: The broker does not answer, or did not start in time.
            Disconnected: These channels were closed.
        """
        with self._connecting:
            if self._closed:
                raise Disconnected("these channels were closed; call radiator.local.connect() again")
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Connection:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return connect_client(homes.address(self.home), host="localhost")
            except ConnectFailed as error:
                if time.monotonic() > deadline:
                    raise homes.HomeError(
                        f"{self.home}: the broker did not answer within {self._timeout:g} s: {error}; "
                        f"see {os.path.join(self.home, homes.LOG)}"
                    ) from None
            homes.start(self.home, self._idle, max(0.0, deadline - time.monotonic()))

    def publish(self, name: str, body: Body = b"", headers: Headers | None = None) -> int:
        """Send a message, and return when it is stored.

        Args:
            name: The name of the channel.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers. Without ``dedup-id`` and ``producer-id`` the message gets a random ``dedup-id``, so
                that it is stored once even if it is sent again after a reconnect.

        Returns:
            The number of subscriptions that matched.

        Raises:
            ServerError: The broker refused the message.
            TimedOut: The receipt did not come in time.
            Disconnected: The connection was lost at each of SENDS_MAX attempts, or these channels were closed.
            HomeError: The broker does not run and cannot be started.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        has_identity = headers is not None and any(each in headers for each in IDENTITIES)
        identity = None if has_identity else secrets.token_hex(8)
        left = SENDS_MAX
        while True:
            connection, left = self.connection, left - 1
            try:
                receipt = connection.send(destination(name), body, headers, dedup_id=identity)
            except Disconnected:
                if self._closed or not left:
                    raise
            else:
                return (receipt.delivered_to if receipt is not None else None) or 0

    def fetch(self, name: str, timeout: float | None = 0.0) -> Message | None:
        """Return the next message of a channel, or None if none came in time.

        The first call subscribes, so it does not return messages that were published to a topic earlier. A message of a
        queue is acknowledged before it is returned. Use ``connection.subscribe`` to acknowledge it later.

        Args:
            name: The name or the pattern of a channel.
            timeout: The time limit in seconds; None waits without limit, 0 returns only a message that has come
                already.

        Raises:
            TimedOut: The receipt of the subscription did not come in time.
            Disconnected: These channels were closed.
            HomeError: The broker does not run and cannot be started.
        """
        return self._next(lambda: self._fetched(name), timeout, settle=True)

    def _next(
        self, subscribed: Callable[[], Subscription], timeout: float | None, *, settle: bool = False
    ) -> Message | None:
        """Return the next message of a subscription; subscribe again if its connection ends meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            subscription = subscribed()
            try:
                message = subscription.fetch(None if deadline is None else max(0.0, deadline - time.monotonic()))
                if message is not None and settle:
                    message.ack()
                return message
            except (Disconnected, ServerError):
                if self._closed:
                    raise

    def _fetched(self, name: str) -> Subscription:
        """Return the subscription of a channel. Threads that call this at once share one subscription."""
        connection = self.connection
        with self._subscribing:
            subscription = self._fetching.pop(name, None)
            if subscription is None or subscription.connection is not connection:
                subscription = connection.subscribe(destination(name))
                if len(self._fetching) >= FETCHED_MAX:
                    self._fetching.pop(next(iter(self._fetching))).close()
            self._fetching[name] = subscription
            return subscription

    def subscribe(self, name: str, timeout: float | None = None) -> Iterator[Message]:
        """Yield the messages of a channel as they come, until none comes for ``timeout`` seconds.

        The subscription is in effect when this call returns. A message of a queue is acknowledged when the next message
        is requested. If the loop ends early, the current message returns to its queue.

        Args:
            name: The name or the pattern of a channel.
            timeout: The time limit for each message, in seconds; None waits without limit.

        Raises:
            ServerError: The broker refused the subscription.
            TimedOut: The receipt of the subscription did not come in time.
            Disconnected: These channels were closed.
            HomeError: The broker does not run and cannot be started.
        """
        return self._messages(name, self.connection.subscribe(destination(name)), timeout)

    def _messages(self, name: str, subscription: Subscription, timeout: float | None) -> Iterator[Message]:
        def subscribed() -> Subscription:
            nonlocal subscription
            if subscription.connection.closed:
                subscription = self.connection.subscribe(destination(name))
            return subscription

        try:
            while (message := self._next(subscribed, timeout)) is not None:
                yield message
                with contextlib.suppress(Disconnected, ServerError):  # the broker delivers the message again
                    message.ack()
        finally:
            with contextlib.suppress(ClientError):  # the subscription ended with its connection
                subscription.close()

    def call(self, name: str, body: Body = b"", headers: Headers | None = None, timeout: float = 10.0) -> Message:
        """Publish a request and return the reply. The other program replies with ``message.reply(...)``.

        Args:
            name: The name of the channel.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers.
            timeout: The time limit for the reply, in seconds.

        Raises:
            TimedOut: No reply came in time.
            ServerError: No program is subscribed to the channel (``no-route``), or the broker refused the request.
            Disconnected: The broker ended before the reply came. The other program may have received the request.
            HomeError: The broker does not run and cannot be started.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        mandatory = {"mandatory": "true", **(headers or {})}
        return self.connection.request(destination(name), body, mandatory, timeout=timeout)

    def close(self) -> None:
        """Disconnect. May be called twice."""
        with self._connecting:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def __enter__(self) -> Channels:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
