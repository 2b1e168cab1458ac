"""The connection: what a program holds. Every method may be called from any thread.

``connect`` opens the socket, says CONNECT and waits for CONNECTED; then a Link owns the socket. A Connection adds what
STOMP means: sends, subscriptions, transactions, requests. It keeps no messages and knows no threads.

Whatever can be refused is asked for with a receipt and waited for by default: ``send`` returns when the broker has kept
its promise about the message, ``subscribe`` when the subscription is in effect.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from radiator.client import address as addresses
from radiator.client.errors import ConnectFailed, ServerError
from radiator.client.link import RECV_BYTES, Link, Pending, server_error
from radiator.client.message import Message, Receipt
from radiator.client.requests import LazyRequests
from radiator.client.sending import Body, Encoder, Headers, Sendable, checked
from radiator.client.sockets import Socket, open_socket
from radiator.client.subscription import ACK_MODES, Subscription
from radiator.client.transaction import Transaction
from radiator.clock import now_ns
from radiator.limits import MIB
from radiator.stomp.connection import ClientConnection
from radiator.stomp.frames import Frame
from radiator.stomp.parser import ParserLimits
from radiator.stomp.spec import VERSIONS

CHUNK_MESSAGES = 500  # per write of send_many: enough to be cheap, few enough that the first leave early
WINDOW_MESSAGES = 20_000  # sends without receipt yet in send_many
REPLY_BODY_BYTES_MAX = 256 * MIB  # what the broker sends was accepted by the broker; this only bounds nonsense
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

    ``address`` is ``host:port``, a URL (``stomp``, ``stomp+tls``, ``ws``, ``wss``), which may carry login and passcode,
    or ``unix:PATH``.
    ``heart_beat`` is what we can send and wish to get, in milliseconds (0: none). ``timeout`` is the default for
    everything that waits for an answer, ``connect_timeout`` for the connection itself, in seconds. ``version`` insists
    on one STOMP version.
    ``host`` is the virtual host, ``headers`` are added to CONNECT (``max-in-flight``). ``transmit_time`` adds the time
    of sending to each message. With TLS ``ca`` is a file of the authorities to trust, instead of the system's, ``cert``
    and ``key`` are the files of our own certificate; left out, RADIATOR_CA, RADIATOR_CERT and RADIATOR_KEY in the
    environment name them.
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
        raise ValueError("header 'passcode': NUL ends a frame, and can be in no header")  # and it is not shown
    hello = protocol.connect_frame(host or place.host, login=login, passcode=passcode, headers=headers or {})
    try:
        sock = open_socket(place, connect_timeout, ca, cert, key)
    except socket.gaierror as error:
        told = f"no address is found for the host name {place.host!r} ({error.strerror})"
        raise ConnectFailed(f"cannot connect to {place}: {told}; is it spelt right?") from None
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
    """CONNECT, then CONNECTED: that frame, and those that came with it."""
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
        raise ConnectFailed(f"{place} does not speak STOMP as expected: {protocol.failed or frames}")
    return frames[0], frames[1:]


class Connection:
    """An open connection; as a context manager it closes at the end."""

    def __init__(
        self, link: Link, address: addresses.Address, connected: Mapping[str, str], transmit_time: bool
    ) -> None:
        self.link = link
        self.address = address
        self.version = link.protocol.version or "1.0"
        self.session = connected.get("session", "")
        self.server = connected.get("server", "")
        self._encoder = Encoder(self.version, transmit_time)
        self._names = itertools.count(1)
        self._requests = LazyRequests(self)

    def __repr__(self) -> str:
        return f"<Connection to {self.address}, STOMP {self.version}>"

    @property
    def closed(self) -> bool:
        """True once the connection has ended, by whoever's doing."""
        return self.link.error is not None

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        dedup_id: str | None = None,
        receipt: bool = True,
        timeout: float | None = None,
    ) -> Receipt | None:
        """Send one message and wait until the broker has kept its promise about it.

        Returns where it lies (``offset``, ``partition``) and how many subscriptions it met (``delivered_to``). With
        ``receipt=False`` it returns at once, None, and a refusal is raised by a later call. A message with a
        ``dedup_id`` may be sent again, on another connection too: it is stored once (``duplicate`` tells).
        """
        if dedup_id is not None:
            headers = {**(headers or {}), "dedup-id": dedup_id}
        message: Sendable = (destination, body, headers)
        if not receipt:
            self.write_sends([message], None)
            return None
        return self.send_nowait([message]).wait(timeout)[0]

    def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        receipt: bool = True,
        transaction: bool = False,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Send many messages, each ``(destination, body)`` or ``(destination, body, headers)``, and wait once.

        They leave in order without waiting for one another. Returns their receipts in order. ``transaction`` makes
        them all or nothing: the list is then empty, as the one receipt is COMMIT's; ``receipt=False`` waits for none.
        """
        if transaction:
            with self.transaction() as together:
                together.send_many(messages)
            return []
        found: list[Receipt] = []
        waiting: list[Pending] = []
        source = iter(messages)
        while chunk := list(islice(source, CHUNK_MESSAGES)):
            if not receipt:
                self.write_sends(chunk, None)
                continue
            waiting.append(self.send_nowait(chunk))
            if len(waiting) * CHUNK_MESSAGES > WINDOW_MESSAGES:
                found += waiting.pop(0).wait(timeout)
        for pending in waiting:
            found += pending.wait(timeout)
        return found

    def send_nowait(self, messages: Sequence[Sendable]) -> Pending:
        """Send messages with receipts and do not wait: ``wait()`` on what is returned does that, whenever it suits."""
        if not messages:
            raise ValueError("send_nowait needs at least one message")

        def encode(receipts: range) -> bytes:
            return b"".join(self._encoder.encode(messages, receipts, None, now_ns()))

        return self.link.ask_many(len(messages), encode)

    def write_sends(self, messages: Iterable[Sendable], transaction: str | None) -> None:
        """Send messages without receipts."""
        source = iter(messages)
        while chunk := list(islice(source, CHUNK_MESSAGES)):
            self.link.write(b"".join(self._encoder.encode(chunk, None, transaction, now_ns())))

    def transaction(self) -> Transaction:
        """For ``with``: what is sent through it happens together at the block's end, or not at all."""
        return Transaction(self, f"t{next(self._names)}")

    def request(
        self, destination: str, body: Body = b"", headers: Headers | None = None, *, timeout: float | None = None
    ) -> Message:
        """Send a request and wait for its reply; TimedOut if none comes. Any number of threads may ask at once."""
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

        ``destination`` may be a pattern, and several may be given. ``ack`` is ``auto``, ``client`` or
        ``client-individual``; left out it is ``client-individual`` when all names begin with ``/queue/`` and the
        subscription consumes, else ``auto``. ``start_position`` and ``stop_position`` follow the grammar of the header
        (``first``, ``last:10``, ``ago:1h``, ...); ``prefetch`` widens the window; ``browser`` looks at a queue without
        consuming.
        """
        names = destination if isinstance(destination, str) else ",".join(destination)
        looking = browser or start_position is not None
        if ack is None:
            queues = all(name.strip().startswith(QUEUE_PREFIX) for name in names.split(","))
            ack = "client-individual" if queues and not looking else "auto"
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
        subscription = Subscription(self, f"s{next(self._names)}", names, ack)
        self.open_subscription(subscription, extra)
        return subscription

    def open_subscription(self, subscription: Subscription, headers: Headers) -> None:
        """SUBSCRIBE for an inbox that is ready to take messages; waits for the receipt."""
        link = self.link
        lines = checked([(name, str(value)) for name, value in headers.items()])
        checked([("destination", subscription.destination)])
        with link.lock:
            link.inboxes[subscription.id] = subscription
        try:
            link.ask(
                lambda receipt: link.protocol.subscribe(
                    subscription.destination, subscription.id, subscription.ack, lines, receipt=receipt
                )
            ).wait()
        except BaseException:
            with link.lock:
                link.inboxes.pop(subscription.id, None)
            raise

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> None:
        """Say good-bye and close; unacknowledged messages go back to their queues. Never raises, may be repeated."""
        self.link.close(timeout)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Connection", "ServerError", "connect"]
