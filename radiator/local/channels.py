"""Channels: publish, fetch, subscribe, call, by name.

A channel's name is that of a destination. One without a ``/`` in front is a topic: ``news.sport`` is
``/topic/news.sport``. In a pattern ``=`` is one segment and ``+`` is any number of them (as are ``*`` and ``*.#``).
Names that begin with ``/`` are taken as they are: ``/queue/jobs`` is a queue, whose messages go to one taker each and
wait for it.

A connection that has ended (the broker answers some mistakes so, or was killed) is made anew by the next call, and by
one that is under way: a message is sent again, with the same ``dedup-id``, so that it is stored once; who waits for
messages subscribes again. A request is not repeated: somebody may have answered it.

Invariants: one connection at a time; a channel that is fetched from has one subscription, made by its first ``fetch``.
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
SENDS_MAX = 5  # of one message: a broker that dies of each of them is not started for ever
IDENTITIES = ("dedup-id", "producer-id")  # headers by which the broker knows a message again
FETCHED_MAX = 256  # names with a subscription of their own; the one that was fetched from longest ago is closed


def connect(home: str | os.PathLike[str] | None = None, *, idle: float = 10.0, timeout: float = 10.0) -> Channels:
    """Connect to the private broker of ``home``, which is started if it does not run.

    Without ``home``: the environment's ``RADIATOR_HOME``, else a directory in memory, which the next boot
    empties. ``idle``: the broker that this starts ends when nobody has been connected for so many seconds. ``timeout``
    in seconds, for all of it. Raises HomeError where there can be no broker.
    """
    channels = Channels(homes.prepare(os.fspath(home) if home is not None else homes.default_home()), idle, timeout)
    channels.connection  # noqa: B018 - it is made by being asked for
    return channels


def destination(name: str) -> str:
    """What the broker calls a channel, or the pattern of several."""
    if name.startswith("/"):
        return name
    return TOPIC_PREFIX + ".".join(SHORTHANDS.get(segment, segment) for segment in name.split("."))


class Channels:
    """All channels of a home. As a context manager it disconnects at the end. Threads may share one."""

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
        """The connection of ``radiator.client``, for what channels do not offer. Raises HomeError, Disconnected."""
        with self._connecting:
            if self._closed:
                raise Disconnected("these channels were closed")
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
                    raise homes.HomeError(f"{self.home}: its broker does not answer: {error}") from None
            homes.start(self.home, self._idle, max(0.0, deadline - time.monotonic()))

    def publish(self, name: str, body: Body = b"", headers: Headers | None = None) -> int:
        """Send a message, and return when it is stored: how many subscriptions matched."""
        known = headers is not None and any(each in headers for each in IDENTITIES)
        identity = None if known else secrets.token_hex(8)
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
        """The next message of a channel (or of a pattern), or None when the time, in seconds, is over.

        The first call subscribes: what was published to a topic before is not seen. A message of a queue counts as done
        when it is handed out; ``connection.subscribe`` is for those who want to acknowledge.
        """
        return self._next(lambda: self._fetched(name), timeout, settle=True)

    def _next(
        self, subscribed: Callable[[], Subscription], timeout: float | None, *, settle: bool = False
    ) -> Message | None:
        """The next message of a subscription, which is made again if its connection ends meanwhile."""
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
        """The subscription of a channel that is fetched from; threads that begin together share one."""
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
        """The messages of a channel (or of a pattern) as they come; ends when none came for ``timeout`` seconds.

        The subscription is in effect when this returns. A message of a queue is acknowledged when the next one is asked
        for; one that was in hand when the loop was left goes back.
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
                with contextlib.suppress(Disconnected, ServerError):  # then it comes again
                    message.ack()
        finally:
            with contextlib.suppress(ClientError):  # the connection has ended, and the subscription with it
                subscription.close()

    def call(self, name: str, body: Body = b"", headers: Headers | None = None, timeout: float = 10.0) -> Message:
        """Publish a request and return its reply, which the other side gives by ``message.reply(...)``.

        Raises TimedOut if none comes, ServerError at once if nobody is subscribed, and Disconnected if the broker dies
        before the reply has come: whether the other side has got the request is not known.
        """
        wanted = {"mandatory": "true", **(headers or {})}
        return self.connection.request(destination(name), body, wanted, timeout=timeout)

    def close(self) -> None:
        """Disconnect. May be repeated."""
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
