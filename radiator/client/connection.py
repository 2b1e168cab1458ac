"""Connect to a broker, send, subscribe, and make requests. Every method may be called from any thread.

``connect`` makes a Link, which opens the socket, sends CONNECT and waits for CONNECTED. A Connection adds the STOMP
operations: sends, subscriptions, transactions and requests. A Connection stores no messages and starts no threads. The
operations that do not create other objects are in ``core``.

Operations that the broker can refuse ask for a receipt and wait for it by default. ``send`` returns when the broker
has stored the message, ``subscribe`` when the subscription is in effect.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from radiator.client import address as addresses
from radiator.client.base import CHUNK_MESSAGES, WINDOW_MESSAGES
from radiator.client.core import BaseConnection
from radiator.client.errors import ClientError, Disconnected, TimedOut, copy_error
from radiator.client.link import Link, Pending
from radiator.client.message import Message
from radiator.client.producer import BATCH_MESSAGES, LINGER_SECONDS, MAX_PENDING, OnDelivery, Producer
from radiator.client.receipts import Receipt
from radiator.client.reconnect import Reconnect, policy_of
from radiator.client.sending import Body, Headers, Sendable
from radiator.client.session import Hello, Session, request_headers, subscribe_values
from radiator.client.sockets import open_socket
from radiator.client.subscription import Subscription
from radiator.client.transaction import Transaction
from radiator.clock import now_ns
from radiator.stomp.frames import Frame
from radiator.stomp.spec import VERSIONS

if TYPE_CHECKING:
    from radiator.client.tracing import Tracing


def connect(
    address: str | Sequence[str] = "127.0.0.1:61613",
    *,
    login: str | None = None,
    passcode: str | None = None,
    heart_beat: tuple[int, int] = (10_000, 10_000),
    timeout: float = 30.0,
    connect_timeout: float = 10.0,
    reconnect: bool | Reconnect = False,
    on_connect: Callable[[Connection], object] | None = None,
    on_disconnect: Callable[[Connection, ClientError], object] | None = None,
    version: str | None = None,
    host: str | None = None,
    headers: Mapping[str, str] | None = None,
    transmit_time: bool = True,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    tracing: Tracing | None = None,
) -> Connection:
    """Connect to a broker.

    Args:
        address: ``host:port``, a URL (``stomp``, ``stomp+tls``, ``ws``, ``wss``) that may contain login and passcode,
            or ``unix:PATH``. Several addresses, with commas between them or as a list, are tried in their order.
        login: The login; None uses the one in the address, if there is one.
        passcode: The passcode; None uses the one in the address, if there is one.
        heart_beat: The interval at which the client can send heart-beats, and the interval at which it wishes to
            receive them, in milliseconds; 0 is none.
        timeout: The default time limit for every call that waits for an answer, in seconds.
        connect_timeout: The time limit for one attempt to open the connection, in seconds: name resolution, TLS and
            CONNECTED included.
        reconnect: Whether and how the client connects again after a lost connection: True, False or a ``Reconnect``.
            The policy holds for the first connection too. Subscriptions come back, and messages without a receipt are
            sent again.
        on_connect: Called with the connection after each CONNECTED. A thread of its own makes the calls, one at a time.
        on_disconnect: Called with the connection and the reason after each lost connection, in the same thread.
        version: The only STOMP version to accept (``1.0``, ``1.1`` or ``1.2``); None accepts all of them.
        host: The virtual host; None sends the host of the address.
        headers: More headers of the CONNECT frame, such as ``max-in-flight``.
        transmit_time: Add the time of sending to every message, as the ``transmit-time`` header.
        ca: The file with the certificate authorities to trust with TLS. None uses the environment variable RADIATOR_CA,
            or the authorities of the system.
        cert: The file with the certificate of the client. None uses RADIATOR_CERT.
        key: The file with the key of that certificate. None uses RADIATOR_KEY.
        tracing: Makes OpenTelemetry spans of every message that is sent, and of every one that is processed in a loop,
            by ``receive`` or by ``listen``. None makes no spans.

    Returns:
        An open connection. Close it, or use it in a ``with`` block.

    Raises:
        BadAddress: An address cannot be parsed.
        ValueError: ``version`` is unknown, or a header contains NUL.
        ConnectFailed: No broker answered at the address, or not within ``connect_timeout``.
        BadTls: A TLS file cannot be read, or the certificate of the broker is not trusted.
        ServerError: The broker answered ERROR, for example because the passcode is wrong.

    Example:
        With a broker on this machine::

            with connect("127.0.0.1:61613", login="ann", passcode="secret") as connection:
                connection.send("/queue/orders", b"one")

    Source: STOMP 1.2, "Connecting" and "Heart-beating".
    """
    places = addresses.parse_all(address)
    hello = Hello(login, passcode, host, heart_beat, VERSIONS if version is None else (version,), headers or {})
    hello.check()
    policy = policy_of(reconnect)
    link = Link(
        Session(hello, reconnects=policy is not None, transmit_time=transmit_time),
        places,
        lambda place, seconds: open_socket(place, seconds, ca, cert, key),
        policy,
        timeout,
        connect_timeout,
        None if on_connect is None else lambda _: on_connect(connection),
        None if on_disconnect is None else lambda error: on_disconnect(connection, error or Disconnected()),
    )
    connection = Connection(link, tracing)
    link.open()
    return connection


class Connection(BaseConnection):
    """An open connection. As a context manager it closes at the end of the block.

    ``connect`` creates it.

    Args:
        link: The link that owns the socket.
        tracing: Makes spans, or None.
    """

    def __init__(self, link: Link, tracing: Tracing | None = None) -> None:
        super().__init__(link, tracing)
        self._requests: Requests | None = None  # from the first request on
        self._requesting = threading.Lock()

    # --- sending ------------------------------------------------------------------------------------------------------

    def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        receipt: bool = True,
        transaction: bool = False,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Send many messages in order, without a wait between them, and wait for all receipts at the end.

        Args:
            messages: Tuples ``(destination, body)`` or ``(destination, body, headers)``.
            receipt: Wait for the receipts. With False the call returns when the messages are written to the socket.
            transaction: Send the messages in one transaction: all are stored, or none.
            timeout: The time limit for each group of receipts, in seconds. None uses the time limit of the connection.
                With ``transaction`` it is not used.

        Returns:
            The receipts in the order of the messages. Empty with ``receipt=False``, and with ``transaction``, where the
            only receipt is that of COMMIT.

        Raises:
            ServerError: The broker refused a message.
            TimedOut: A receipt did not come in time. Messages without receipt may be stored.
            Disconnected: The connection has ended. Messages without receipt may be stored.
            ValueError: A header belongs to the frame, or contains NUL.
            TypeError: A body is neither bytes nor text.
        """
        if transaction:
            with self.transaction() as opened:
                opened.send_many(messages)
            return []
        receipts: list[Receipt] = []
        waiting: list[Pending] = []
        source = iter(messages)
        while chunk := list(islice(source, CHUNK_MESSAGES)):
            if not receipt:
                self.write_sends(chunk, None)
                continue
            waiting.append(self.send_nowait(chunk))
            if len(waiting) * CHUNK_MESSAGES > WINDOW_MESSAGES:
                receipts += waiting.pop(0).wait(timeout)
        for pending in waiting:
            receipts += pending.wait(timeout)
        return receipts

    def producer(
        self,
        *,
        linger: float = LINGER_SECONDS,
        batch: int = BATCH_MESSAGES,
        max_pending: int = MAX_PENDING,
        idempotent: bool = True,
        on_delivery: OnDelivery | None = None,
    ) -> Producer:
        """Return a producer, which sends messages in the background, in batches.

        Args:
            linger: How long a message waits for others to form a batch, in seconds.
            batch: The number of messages that is sent without waiting any longer.
            max_pending: The maximum number of messages without a result; above that ``send`` waits.
            idempotent: Give each message a ``dedup-id`` if the connection has reconnects, so that a message that is
                sent again is stored once. False is faster, and stores each message at least once.
            on_delivery: Called with each message (an ``Outgoing``), its receipt or None, and its error or None, in a
                thread of the producer.

        Returns:
            The producer. Close it, or use it in a ``with`` block.

        Raises:
            ValueError: ``batch`` or ``max_pending`` is less than 1.
        """
        return Producer(
            self,
            linger=linger,
            batch=batch,
            max_pending=max_pending,
            idempotent=idempotent,
            on_delivery=on_delivery,
        )

    def transaction(self) -> Transaction:
        """Return a new transaction for a ``with`` block, whose end commits it."""
        return Transaction(self, self.new_name("t"))

    def request(
        self, destination: str, body: Body = b"", headers: Headers | None = None, *, timeout: float | None = None
    ) -> Message:
        """Send a request and return the reply. Any number of threads may send requests at once.

        Args:
            destination: The destination that the replying program is subscribed to.
            body: Bytes, or text that is sent as UTF-8.
            headers: More headers.
            timeout: The time limit for the reply, in seconds. None uses the time limit of the connection.

        Returns:
            The reply. The replying program sends it with ``Message.reply``.

        Raises:
            TimedOut: No reply came in time.
            ServerError: The broker refused the request.
            Disconnected: The connection has ended.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        with self._requesting:
            requests = self._requests
            if requests is None or requests.error is not None:
                requests = Requests(self)
                self.open_subscription(requests, {})
                self._requests = requests
        return requests.call(destination, body, headers, self.link.timeout if timeout is None else timeout)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        destination: str | Iterable[str],
        *,
        ack: str | None = None,
        start_position: str | None = None,
        stop_position: str | None = None,
        prefetch: int | None = None,
        browser: bool = False,
        headers: Headers | None = None,
    ) -> Subscription:
        """Subscribe, and return when the subscription is in effect.

        Args:
            destination: A destination or a pattern, or several of them.
            ack: ``auto``, ``client`` or ``client-individual``. None is ``client-individual`` if all names begin with
                ``/queue/`` and the subscription consumes, else ``auto``.
            start_position: Where a replay starts (``first``, ``last:10``, ``ago:1h``), or None.
            stop_position: Where a replay stops, or None.
            prefetch: The number of messages that the broker may send before they are acknowledged. None uses the
                default of the broker.
            browser: Read the messages of a queue without consuming them.
            headers: More headers of the SUBSCRIBE frame.

        Returns:
            The subscription. Close it, or use it in a ``with`` block.

        Raises:
            ServerError: The broker refused the subscription.
            TimedOut: The receipt did not come within the time limit of the connection.
            Disconnected: The connection has ended.
            ValueError: ``ack`` is unknown, or a header contains NUL.

        Source: STOMP 1.2, "SUBSCRIBE"; ``docs/protocol.md`` for positions, patterns and ``prefetch-count``.
        """
        names, ack, extra = subscribe_values(
            destination, ack, start_position, stop_position, prefetch, browser, headers
        )
        subscription = Subscription(self, self.new_name("s"), names, ack)
        self.open_subscription(subscription, extra)
        return subscription

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> None:
        """Send DISCONNECT and close. Unacknowledged messages return to their queues. May be called twice; never raises.

        Args:
            timeout: The time limit for the receipt of DISCONNECT, in seconds.

        Source: STOMP 1.2, "DISCONNECT".
        """
        self.link.close(timeout)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Requests(Subscription):
    """The reply queue of a connection: a subscription whose inbox is a table of waiting calls.

    Its name is random, and the broker deletes it with the connection. Each request has a ``correlation-id`` of its own,
    and expires when its call times out. A reply goes to the call that waits for its id. Late and unexpected replies are
    counted and dropped.

    Args:
        connection: The connection that sends the requests.

    Attributes:
        dropped: The number of replies for which no call waited.
    """

    def __init__(self, connection: BaseConnection) -> None:
        name = f"/temp-queue/{secrets.token_hex(12)}"
        super().__init__(connection, name, name, "auto")
        self.dropped = 0
        self._replies: dict[str, Frame | None] = {}
        self._lost: set[str] = set()  # calls whose connection was lost

    def interrupted(self) -> None:
        """Fail the calls that wait, after a lost connection: their requests may have been processed."""
        super().interrupted()
        self._lost.update(key for key, frame in self._replies.items() if frame is None)

    def put(self, frame: Frame) -> None:
        """Store a reply for the call that waits for it. Called by the reader thread with the lock held.

        Args:
            frame: A MESSAGE frame of the reply queue.
        """
        key = frame.headers.get("correlation-id", "")
        if key in self._replies and self._replies[key] is None:
            self._replies[key] = frame
        else:
            self.dropped += 1

    def call(self, destination: str, body: Body, headers: Headers | None, timeout: float) -> Message:
        """Send a request and return the reply.

        Args:
            destination: The destination of the request.
            body: The body of the request.
            headers: More headers of the request. ``expires`` is set to the end of the time limit if it is missing.
            timeout: The time limit for the reply, in seconds.

        Raises:
            TimedOut: No reply came within the time limit.
            ServerError: The broker refused the request.
            Disconnected: The connection ended first.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        link = self._link
        key, extra = request_headers(self.destination, headers, timeout, now_ns())
        with link.lock:
            self._replies[key] = None
            link.await_reply(1)
        try:
            self.connection.send(destination, body, extra, receipt=False)
            with link.lock:
                self._arrival.wait_for(
                    lambda: self._replies[key] is not None or key in self._lost or self.problem, timeout
                )
                frame = self._replies[key]
                if frame is None and self.problem is not None:
                    raise copy_error(self.problem)
                if frame is None and key in self._lost:
                    raise Disconnected("the connection was lost before the reply came; the request may be processed")
        finally:
            with link.lock:
                del self._replies[key]
                self._lost.discard(key)
                link.await_reply(-1)
        if frame is None:
            raise TimedOut(
                f"no reply to the request to {destination} within {timeout:g} s; "
                "is the replying program subscribed, or does it need a longer timeout?"
            )
        return Message(frame.headers, frame.body, self)


__all__ = ["Connection", "connect"]
