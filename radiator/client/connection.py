"""Connect to a broker, send, subscribe, and make requests. Every method may be called from any thread.

``connect`` opens the socket, sends CONNECT and waits for CONNECTED. Then a Link owns the socket, and a Connection adds
the STOMP operations: sends, subscriptions, transactions and requests. A Connection stores no messages and starts no
threads. The operations that do not create other objects are in ``core``.

Operations that the broker can refuse ask for a receipt and wait for it by default. ``send`` returns when the broker
has stored the message, ``subscribe`` when the subscription is in effect.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from itertools import islice

from radiator.client import address as addresses
from radiator.client.core import CHUNK_MESSAGES, BaseConnection
from radiator.client.errors import ConnectFailed, ServerError
from radiator.client.link import RECV_BYTES, Link, Pending, server_error
from radiator.client.message import Message
from radiator.client.receipts import Receipt
from radiator.client.requests import LazyRequests
from radiator.client.sending import Body, Headers, Sendable, checked
from radiator.client.sockets import Socket, open_socket
from radiator.client.subscription import ACK_MODES, Subscription
from radiator.client.transaction import Transaction
from radiator.limits import MIB
from radiator.stomp.connection import ClientConnection
from radiator.stomp.frames import Frame
from radiator.stomp.parser import ParserLimits
from radiator.stomp.spec import VERSIONS

WINDOW_MESSAGES = 20_000  # sends without receipt yet in send_many
REPLY_BODY_BYTES_MAX = 256 * MIB  # the broker has its own, smaller limits; this one bounds a broken peer
QUEUE_PREFIX = "/queue/"


def connect(
    address: str = "127.0.0.1:61613",
    *,
    login: str | None = None,
    passcode: str | None = None,
    heart_beat: tuple[int, int] = (10_000, 10_000),
    timeout: float = 30.0,
    connect_timeout: float = 10.0,
    version: str | None = None,
    host: str | None = None,
    headers: Mapping[str, str] | None = None,
    transmit_time: bool = True,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
) -> Connection:
    """Connect to a broker.

    Args:
        address: ``host:port``, a URL (``stomp``, ``stomp+tls``, ``ws``, ``wss``) that may contain login and passcode,
            or ``unix:PATH``.
        login: The login; None uses the one in the address, if there is one.
        passcode: The passcode; None uses the one in the address, if there is one.
        heart_beat: The interval at which the client can send heart-beats, and the interval at which it wishes to
            receive them, in milliseconds; 0 is none.
        timeout: The default time limit for every call that waits for an answer, in seconds.
        connect_timeout: The time limit for opening the connection, in seconds.
        version: The only STOMP version to accept (``1.0``, ``1.1`` or ``1.2``); None accepts all of them.
        host: The virtual host; None sends the host of the address.
        headers: More headers of the CONNECT frame, such as ``max-in-flight``.
        transmit_time: Add the time of sending to every message, as the ``transmit-time`` header.
        ca: The file with the certificate authorities to trust with TLS. None uses the environment variable RADIATOR_CA,
            or the authorities of the system.
        cert: The file with the certificate of the client. None uses RADIATOR_CERT.
        key: The file with the key of that certificate. None uses RADIATOR_KEY.

    Returns:
        An open connection. Close it, or use it in a ``with`` block.

    Raises:
        BadAddress: The address cannot be parsed.
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
    place = addresses.parse(address)
    versions = VERSIONS if version is None else (version,)
    if version is not None and version not in VERSIONS:
        raise ValueError(f"version: expected one of {', '.join(VERSIONS)}, got {version!r}")
    protocol = ClientConnection(ParserLimits(body_bytes_max=REPLY_BODY_BYTES_MAX), heart_beat, versions)
    login = login if login is not None else place.login
    passcode = passcode if passcode is not None else place.passcode
    checked([("host", host or ""), ("login", login or ""), *(headers or {}).items()])
    if passcode is not None and "\0" in passcode:
        raise ValueError("header 'passcode': expected no NUL, which ends a STOMP frame")  # never show a passcode
    hello = protocol.connect_frame(host or place.host, login=login, passcode=passcode, headers=headers or {})
    try:
        sock = open_socket(place, connect_timeout, ca, cert, key)
    except socket.gaierror as error:
        reason = f"no address is found for the host name {place.host!r} ({error.strerror})"
        raise ConnectFailed(f"cannot connect to {place}: {reason}; is it spelt right?") from None
    except OSError as error:
        raise ConnectFailed(f"cannot connect to {place}: {error}; is a broker running there?") from None
    try:
        opening, frames = _shake_hands(sock, protocol, hello, place, connect_timeout)
    except BaseException:
        sock.close()
        raise
    link = Link(sock, protocol, timeout)
    connection = Connection(link, place, opening.headers, transmit_time)
    link.start(frames)
    return connection


def _shake_hands(
    sock: Socket, protocol: ClientConnection, hello: bytes, place: addresses.Address, seconds: float
) -> tuple[Frame, list[Frame]]:
    """Send CONNECT and return the CONNECTED frame and the frames that came with it."""
    deadline = time.monotonic() + seconds
    try:
        sock.sendall(hello)
        frames: list[Frame] = []
        while not frames and protocol.failed is None:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(RECV_BYTES)
            if not data:
                raise ConnectFailed(f"{place} closed the connection instead of answering CONNECT")
            frames = protocol.receive(data)
    except TimeoutError:
        raise ConnectFailed(f"{place} did not answer CONNECT within {seconds:g} s") from None
    except OSError as error:
        raise ConnectFailed(f"the connection to {place} broke before CONNECTED: {error}") from None
    if frames and frames[0].command == "ERROR":
        raise server_error(frames[0])
    if not protocol.connected:
        raise ConnectFailed(f"{place} does not speak STOMP: expected CONNECTED, got {protocol.failed or frames}")
    return frames[0], frames[1:]


class Connection(BaseConnection):
    """An open connection. As a context manager it closes at the end of the block.

    ``connect`` creates it.

    Args:
        link: The link that owns the socket.
        address: The address of the broker.
        connected: The headers of the CONNECTED frame.
        transmit_time: Add the ``transmit-time`` header to every message.
    """

    def __init__(
        self, link: Link, address: addresses.Address, connected: Mapping[str, str], transmit_time: bool
    ) -> None:
        super().__init__(link, address, connected, transmit_time)
        self._requests = LazyRequests(self)

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
        return self._requests.get().call(destination, body, headers, self.link.timeout if timeout is None else timeout)

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
        names = destination if isinstance(destination, str) else ",".join(destination)
        reading_only = browser or start_position is not None
        if ack is None:
            queues = all(name.strip().startswith(QUEUE_PREFIX) for name in names.split(","))
            ack = "client-individual" if queues and not reading_only else "auto"
        if ack not in ACK_MODES:
            raise ValueError(f"ack: expected one of {', '.join(ACK_MODES)}, got {ack!r}")
        extra: dict[str, str | int] = dict(headers or {})
        options: dict[str, str | int | None] = {
            "start-position": start_position,
            "stop-position": stop_position,
            "prefetch-count": prefetch,
            "browser": "true" if browser else None,
        }
        extra.update((name, value) for name, value in options.items() if value is not None)
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


__all__ = ["Connection", "ServerError", "connect"]
