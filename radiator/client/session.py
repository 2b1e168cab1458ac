"""The state of a client over any number of connections: receipts, subscriptions, and what is sent again.

The blocking client (``link``) and the asyncio client (``aio``) drive a ``Session``. It does no I/O, has no threads and
reads no clock: it takes received bytes and losses of connections, and returns bytes to send. The life of a connection:

    session.hello(address)      the bytes of CONNECT
    session.opened(data)        received bytes until CONNECTED; then ``connected`` is True
    session.resume()            the bytes that continue on a new connection: SUBSCRIBEs, then SENDs without a receipt
    session.receive(data)       received bytes: fills inboxes and completes requests, and returns the touched inboxes
    session.lost(error)         the connection has ended; returns whether another one may follow
    session.end(error)          no connection follows: everything that waits gets the error

What happens to a request without an answer when its connection is lost says its ``OnLoss``. An ERROR that names the
receipt of a request ends the connection too, as STOMP requires; with reconnects only that request gets the error.

Invariants: a receipt id is used once in the life of a session. A delivery belongs to one generation, which is the
number of its connection; frames that settle it are sent only on that connection.

Source: STOMP 1.2; ``docs/protocol.md``, "Replay" and "Repeats".
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from radiator.client.address import Address
from radiator.client.contents import MessageView
from radiator.client.errors import (
    ClientError,
    ConnectFailed,
    Disconnected,
    ServerError,
    StaleDelivery,
    TimedOut,
    copy_error,
)
from radiator.client.receipts import Receipt, receipt_of
from radiator.client.reconnect import TRANSIENT_CODES, may_return
from radiator.client.sending import Encoder, Headers, Sendable, checked
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.limits import MIB
from radiator.stomp.connection import ClientConnection
from radiator.stomp.frames import Frame
from radiator.stomp.parser import ParserLimits
from radiator.stomp.spec import VERSIONS

REPLY_BODY_BYTES_MAX = 256 * MIB  # the broker has its own, smaller limits; this one bounds a broken peer
FRAME_OVERHEAD_BYTES = 512  # memory of a buffered frame beside its body
START_AT_BYTES_MAX = 8_000  # of the header ``start-at``: partitions beyond are filtered here
ACK_MODES = ("auto", "client", "client-individual")
QUEUE_PREFIX = "/queue/"
CONSUMED_PREFIXES = (QUEUE_PREFIX, "/temp-queue/")
DURABLE_HEADERS = frozenset(
    {
        "subscription-name",
        "durable-subscription-name",
        "durable-subscriber-name",
        "activemq.subscriptionName",
        "durable",
        "group",
    }
)
POSITION_HEADERS = frozenset({"start-position", "stop-position", "start-at"})
READING_HEADERS = POSITION_HEADERS | {"browser"}


class OnLoss(Enum):
    """What becomes of a request that has no answer when its connection is lost."""

    REPEAT = "it is sent again on the next connection"
    DONE = "its effect has happened, because the connection has ended"
    UNKNOWN = "it raises Disconnected: whether it took effect is unknown"
    STALE = "it raises StaleDelivery: the message is delivered again"


@dataclass(frozen=True)
class Hello:
    """The contents of CONNECT, the same for every connection.

    Attributes:
        login: The login; None uses the one in the address.
        passcode: The passcode; None uses the one in the address.
        host: The virtual host; None sends the host of the address.
        heart_beat: The intervals to send and to expect heart-beats, in milliseconds.
        versions: The STOMP versions to accept.
        headers: More headers.
    """

    login: str | None = None
    passcode: str | None = None
    host: str | None = None
    heart_beat: tuple[int, int] = (10_000, 10_000)
    versions: Sequence[str] = VERSIONS
    headers: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise if CONNECT cannot be made of these values.

        Raises:
            ValueError: A version is unknown, or a header contains NUL.
        """
        for version in self.versions:
            if version not in VERSIONS:
                raise ValueError(f"version: expected one of {', '.join(VERSIONS)}, got {version!r}")
        checked([("host", self.host or ""), ("login", self.login or ""), *self.headers.items()])
        if self.passcode is not None and "\0" in self.passcode:
            raise ValueError("header 'passcode': expected no NUL, which ends a STOMP frame")  # never show a passcode


class Request:
    """Frames that were sent and are not answered yet.

    Args:
        first: The first receipt id.
        count: The number of receipts; their ids are consecutive.
        encode: Returns the encoded frames for the present connection that belong to the receipts with these indices.
        on_loss: What becomes of the request when its connection is lost.

    Attributes:
        first: The first receipt id.
        left: The number of receipts that have not come yet.
        error: The error of this request alone, or None: the first one, if several frames were refused.
        times: How often the frames were passed to a connection.
    """

    def __init__(self, first: int, count: int, encode: Callable[[Sequence[int]], bytes], on_loss: OnLoss) -> None:
        self.first = first
        self.left = count
        self.error: ClientError | None = None
        self.times = 0
        self.on_loss = on_loss
        self._encode = encode
        self._results: list[Receipt | ClientError | None] = [None] * count

    @property
    def numbers(self) -> range:
        """The receipt ids."""
        return range(self.first, self.first + len(self._results))

    @property
    def count(self) -> int:
        """The number of receipts, those that have come included."""
        return len(self._results)

    @property
    def decided(self) -> bool:
        """True if nothing more will come."""
        return not self.left

    def encoded(self, *, sent: bool = True) -> bytes:
        """Return the frames without an answer, for the present connection.

        Args:
            sent: The caller sends them.
        """
        self.times += sent
        return self._encode([index for index, result in enumerate(self._results) if result is None])

    def outcome(self, end: ClientError | None, seconds: float) -> list[Receipt]:
        """Return the receipts in order, or raise the error that stands for them.

        Args:
            end: The reason for the end of the link, or None.
            seconds: How long the caller has waited for them at most.

        Raises:
            TimedOut: A receipt did not come in time.
            ServerError: The broker refused a frame.
            Disconnected: The connection has ended.
        """
        error = self.error or (end if self.left else None)
        if error is not None:
            raise copy_error(error)
        if self.left:
            raise TimedOut(
                f"{self.left} of {self.count} receipts did not come within {seconds:g} s; "
                "the queue may be full, or the broker slow: see its log, or raise timeout"
            )
        return [result for result in self._results if isinstance(result, Receipt)]

    def results(self, error: ClientError | None = None) -> list[Receipt | ClientError]:
        """Return the receipt or the error of each frame, in order.

        Args:
            error: The error of the frames that have neither.
        """
        missing = error or Disconnected("the connection has ended before the receipt came")
        return [missing if result is None else result for result in self._results]

    def refuse(self, number: int, error: ClientError) -> None:
        """Note that the broker refused one of the frames.

        Args:
            number: The receipt id of the frame.
            error: The error to raise.
        """
        self.error = self.error or error
        self.arrived(number, error)

    def arrived(self, number: int, result: Receipt | ClientError) -> None:
        """Store the answer to one of the frames.

        Args:
            number: The receipt id.
            result: The receipt, or the error of a refused frame.
        """
        self._results[number - self.first] = result
        self.left -= 1
        if not self.left:
            self.wake()

    def fail(self, error: ClientError) -> None:
        """End the request without the receipts that have not come.

        Args:
            error: The error to raise.
        """
        if self.left:
            self.error = self.error or error
            self._fill(error)

    def complete(self) -> None:
        """End the request as if its receipts had come."""
        self._fill(Receipt())

    def _fill(self, result: Receipt | ClientError) -> None:
        self._results = [result if each is None else each for each in self._results]
        self.left = 0
        self.wake()

    def wake(self) -> None:
        """Wake the caller that waits for the receipts."""


class Inbox:
    """A subscription as the session sees it: its SUBSCRIBE frame, received frames, and the position in each partition.

    Args:
        session: The session that receives the messages.
        name: The subscription id.
        destination: The destination, or a comma-separated list of destinations and patterns.
        ack: ``auto``, ``client`` or ``client-individual``.

    Attributes:
        id: The subscription id.
        destination: The destination or the list.
        ack: The acknowledgement mode.
        ended: True when no more messages will come: the replay has ended, or the subscription was closed.
        error: The reason why the subscription could not come back after a lost connection, or None.
        opening: The request of its SUBSCRIBE, or None.
    """

    def __init__(self, session: Session, name: str, destination: str, ack: str) -> None:
        self.id = name
        self.destination = destination
        self.ack = ack
        self.ended = False
        self.error: ClientError | None = None
        self.opening: Request | None = None
        self._session = session
        self._lines: list[tuple[str, str]] = []
        self._durable = False
        self._replays = False
        self._positioned = False  # a browser without a position ends by itself, and would not with ``start-at``
        self._frames: deque[Frame] = deque()
        self._stale = 0  # of the frames: those of earlier connections
        self._last_ids: dict[str, tuple[int, str]] = {}  # by partition: the last offset and its message-id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} to {self.destination}, ack {self.ack}>"

    @property
    def pending(self) -> int:
        """The number of messages that were received and not read yet."""
        return len(self._frames)

    @property
    def problem(self) -> ClientError | None:
        """The reason why no more messages will come, or None."""
        return self._session.error or self.error

    @property
    def decided(self) -> bool:
        """True if ``take`` need not wait: a message has come, or none will."""
        return bool(self._frames) or self.ended or self.problem is not None

    def set_headers(self, headers: Headers) -> None:
        """Store the headers of the SUBSCRIBE frame.

        Args:
            headers: The headers, without destination, id and ack.

        Raises:
            ValueError: A header contains NUL.
        """
        self._lines = checked([(name, str(value)) for name, value in headers.items()])
        checked([("destination", self.destination)])
        names = {name for name, value in self._lines if value and value != "false"}
        self._durable = bool(names & DURABLE_HEADERS)
        self._replays = bool(names & READING_HEADERS) and not self._durable
        self._positioned = bool(names & POSITION_HEADERS)

    def subscribe_frame(self, receipt: str) -> bytes:
        """Return SUBSCRIBE for the present connection. A replay goes on behind the last received message.

        Args:
            receipt: The receipt id.
        """
        lines = self._lines
        if self._last_ids and self._positioned:
            ids: list[str] = []
            size = 0
            for _, text in sorted(self._last_ids.values(), reverse=True):
                size += len(text) + 1
                if size > START_AT_BYTES_MAX:
                    break
                ids.append(text)
            lines = [*(each for each in lines if each[0] != "start-at"), ("start-at", ",".join(ids))]
        elif self.opening is not None and self.opening.decided:  # a durable subscription is reset once
            lines = [each for each in lines if each[0] != "reset"]
        protocol = self._session.protocol
        return protocol.subscribe(self.destination, self.id, self.ack, lines, receipt=receipt)

    def settle_encoder(
        self, message: MessageView, command: str, headers: Mapping[str, str], transaction: str | None
    ) -> Callable[[str | None], bytes] | None:
        """Return the function that encodes ACK or NACK for a message with a receipt id; None if nothing is to be sent.

        Nothing is sent under ``auto``, for a settled message, and for a delivery of a lost connection that does not
        come again: the broker has forgotten it.

        Args:
            message: A message of this subscription.
            command: ``ACK`` or ``NACK``.
            headers: More headers of the frame.
            transaction: The id of an open transaction, or None.
        """
        session = self._session
        if self.ack == "auto" or message.settled:
            return None
        stale = message.generation != session.generation or not session.connected
        if stale and session.error is None and not self.comes_again(message.headers):
            message.mark_settled(True)
            return None

        def encode(receipt: str | None) -> bytes:
            make = session.protocol.ack if command == "ACK" else session.protocol.nack
            try:
                return make(message.headers, headers, receipt=receipt, transaction=transaction)
            except KeyError:
                raise ClientError(f"{command}: the broker sent the message without a message-id") from None

        return encode

    def put(self, frame: Frame) -> None:
        """Store a MESSAGE frame.

        Args:
            frame: The frame.
        """
        headers = frame.headers
        if headers.get("replay-end") == "true":
            self.ended = True
            return
        if self._replays and self._session.reconnects and not self._is_new(headers):
            return
        if not self.ended:
            self._frames.append(frame)
            self._session.buffered(frame)

    def _is_new(self, headers: Mapping[str, str]) -> bool:
        """Return whether the frame was not received before, and note its position."""
        partition, offset = headers.get("partition"), headers.get("offset")
        if partition is None or offset is None:
            return True
        last = self._last_ids.get(partition)
        if last is not None and int(offset) <= last[0]:
            return False
        self._last_ids[partition] = (int(offset), headers.get("message-id", ""))
        return True

    def take(self) -> tuple[Frame, int] | None:
        """Remove the oldest frame, and return it with its generation: 0 for a frame of an earlier connection.

        Returns:
            None if there is no frame.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended, and frames that came before do not count.
        """
        if self.problem is not None and not (self.ack == "auto" and self._frames) and not self.ended:
            raise copy_error(self.problem)
        if not self._frames:
            return None
        frame = self._frames.popleft()
        self._session.taken(frame)
        if self._stale:
            self._stale -= 1
            return frame, 0
        return frame, self._session.generation

    def close_inbox(self) -> bool:
        """End the subscription here, and return True if UNSUBSCRIBE is to be sent."""
        subscribed = self._session.inboxes.pop(self.id, None) is not None
        due = subscribed and not self.ended and self._session.error is None
        self.ended = True
        self.clear()
        return due

    def clear(self) -> None:
        """Drop all frames."""
        while self._frames:
            self._session.taken(self._frames.popleft())
        self._stale = 0

    def comes_again(self, headers: Mapping[str, str]) -> bool:
        """Return True if the broker delivers the message again when it is not acknowledged.

        Args:
            headers: The headers of the MESSAGE frame.
        """
        if self.ack == "auto" or self._replays:
            return False
        return self._durable or headers.get("destination", "").startswith(CONSUMED_PREFIXES)

    def interrupted(self) -> None:
        """Drop the frames that come again on the next connection, after one was lost."""
        frames = [*self._frames]
        self.clear()
        for frame in frames:
            if not self.comes_again(frame.headers):
                self._frames.append(frame)
                self._session.buffered(frame)
        self._stale = len(self._frames)

    def abandon(self, error: ClientError) -> None:
        """End the subscription, because it cannot come back on a later connection.

        Args:
            error: The error that reading raises.
        """
        self._session.inboxes.pop(self.id, None)
        if self.error is None:
            self.error = error
        self.wake()

    def forked(self) -> None:
        """End the subscription in a child process, in which no caller waits and the locks are those of the parent."""
        self.error = Disconnected("this subscription belongs to the parent process; subscribe again")

    def wake(self) -> None:
        """Wake the callers that wait for a message."""


def subscribe_values(
    destination: str | Iterable[str],
    ack: str | None,
    start_position: str | None,
    stop_position: str | None,
    prefetch: int | None,
    browser: bool,
    headers: Headers | None,
) -> tuple[str, str, Headers]:
    """Return destination, acknowledgement mode and headers of SUBSCRIBE for the arguments of ``subscribe``.

    Args:
        destination: A destination or a pattern, or several of them.
        ack: ``auto``, ``client``, ``client-individual``, or None for the default.
        start_position: Where a replay starts, or None.
        stop_position: Where a replay stops, or None.
        prefetch: The number of messages that the broker may send before they are acknowledged, or None.
        browser: Read the messages of a queue without consuming them.
        headers: More headers.

    Raises:
        ValueError: ``ack`` is unknown.
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
    return names, ack, extra


class Session:
    """What a client has sent and not received an answer to, over any number of connections.

    Args:
        hello: The contents of CONNECT.
        reconnects: True if a lost connection may be replaced.
        transmit_time: Add the ``transmit-time`` header to every message.

    Attributes:
        reconnects: True if a lost connection may be replaced.
        generation: The number of the present connection; 0 before the first.
        connected: True while a connection is open.
        error: The reason for the end of the session, or None.
        connected_headers: The headers of the last CONNECTED frame.
        protocol: The STOMP state of the present connection.
        encoder: The encoder of SEND frames of the present connection.
        inboxes: The inboxes by subscription id.
        buffered_bytes: The memory of the frames in all inboxes.
        progress: True if the present connection has brought a RECEIPT or a MESSAGE.
    """

    def __init__(self, hello: Hello, *, reconnects: bool, transmit_time: bool) -> None:
        self.hello_values = hello
        self.reconnects = reconnects
        self.generation = 0
        self.connected = False
        self.error: ClientError | None = None
        self.connected_headers: Mapping[str, str] = {}
        self.protocol = ClientConnection()
        self.encoder = Encoder("1.2", transmit_time)
        self.inboxes: dict[str, Inbox] = {}
        self.buffered_bytes = 0
        self.progress = False
        self._transmit_time = transmit_time
        self._receiving = True
        self._next_number = 1
        self._requests: dict[str, tuple[Request, int]] = {}

    # --- one connection -----------------------------------------------------------------------------------------------

    def hello(self, address: Address) -> bytes:
        """Begin a new connection, and return CONNECT.

        Args:
            address: The address of the broker, which may contain login and passcode.
        """
        values = self.hello_values
        limits = ParserLimits(body_bytes_max=REPLY_BODY_BYTES_MAX)
        self.protocol = ClientConnection(limits, values.heart_beat, values.versions)
        return self.protocol.connect_frame(
            values.host or address.host,
            login=values.login if values.login is not None else address.login,
            passcode=values.passcode if values.passcode is not None else address.passcode,
            headers=values.headers,
        )

    def opened(self, data: bytes, place: str) -> list[Frame] | None:
        """Take received bytes until CONNECTED, and return the frames behind it; None if it has not come yet.

        Args:
            data: The received bytes.
            place: The address of the broker, for error messages.

        Raises:
            ServerError: The broker answered ERROR.
            ConnectFailed: The peer does not speak STOMP.
        """
        frames = self.protocol.receive(data)
        if not frames and self.protocol.failed is None:
            return None
        if frames and frames[0].command == "ERROR":
            raise server_error(frames[0])
        if not self.protocol.connected:
            raise ConnectFailed(
                f"{place} does not speak STOMP: expected CONNECTED, got {self.protocol.failed or frames}"
            )
        self.connected_headers = frames[0].headers
        self.encoder = Encoder(self.protocol.version or "1.0", self._transmit_time)
        self.generation += 1
        self.connected = True
        self.progress = False
        return frames[1:]

    def resume(self) -> bytes:
        """Return the frames that continue the session on a new connection: SUBSCRIBEs, then requests without answer."""
        pieces = []
        openings = set()
        for inbox in self.inboxes.values():
            opening = inbox.opening
            if opening is None or opening.decided:
                opening = _Reopening(self.reserve(1), inbox)
                self.register(opening)
            openings.add(opening)
            pieces.append(opening.encoded())
        pieces += [request.encoded() for request in self._unanswered() if request not in openings]
        return b"".join(pieces)

    def receive(self, data: bytes) -> set[Inbox]:
        """Take received bytes, and return the inboxes that have got frames.

        Args:
            data: The received bytes.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The peer does not speak STOMP.
        """
        touched = self.dispatch(self.protocol.receive(data))
        if self.protocol.failed is not None:
            raise Disconnected(f"the broker does not speak STOMP: {self.protocol.failed}")
        return touched

    def dispatch(self, frames: Iterable[Frame]) -> set[Inbox]:
        """Put frames into inboxes, and complete requests. Returns the inboxes that have got frames.

        Args:
            frames: The frames.

        Raises:
            ServerError: The broker answered ERROR.
        """
        touched = set()
        for frame in frames:
            command = frame.head.command
            if command == "MESSAGE":
                inbox = self._inbox_of(frame)
                if inbox is not None and self._receiving:
                    inbox.put(frame)
                    touched.add(inbox)
            elif command == "RECEIPT":
                headers = frame.headers
                entry = self._requests.pop(headers.get("receipt-id", ""), None)
                if entry is not None:
                    entry[0].arrived(entry[1], receipt_of(headers))
            elif command == "ERROR":
                for inbox in touched:
                    inbox.wake()
                self._refused(server_error(frame))
        self.progress = self.progress or bool(frames)
        return touched

    def stop_receiving(self) -> None:
        """Drop the messages that come from now on."""
        self._receiving = False

    def _inbox_of(self, frame: Frame) -> Inbox | None:
        name = frame.headers.get("subscription")
        if name is not None:
            return self.inboxes.get(name)
        # in STOMP 1.0 the subscription header is optional
        return next(iter(self.inboxes.values()), None) if len(self.inboxes) == 1 else None

    def _refused(self, error: ServerError) -> None:
        """Raise an ERROR. With reconnects, a request that it names gets it, and the others go on."""
        entry = self._requests.get(error.receipt or "")
        if self.reconnects and entry is not None and error.code not in TRANSIENT_CODES:
            del self._requests[error.receipt or ""]
            entry[0].refuse(entry[1], error)
            for inbox in [*self.inboxes.values()]:
                if inbox.opening is entry[0]:
                    del self.inboxes[inbox.id]
            raise Disconnected(f"the broker refused a frame and closed the connection: {error}")
        raise error

    def lost(self, error: ClientError) -> bool:
        """End the present connection, and return True if another one may follow.

        Args:
            error: The reason.
        """
        self.connected = False
        if not self.reconnects or self.error is not None or not may_return(error):
            return False
        for request in self._unanswered():
            if request.on_loss is OnLoss.REPEAT:
                continue
            self.forget(request)
            if request.on_loss is OnLoss.DONE:
                request.complete()
            elif request.on_loss is OnLoss.STALE:
                request.fail(stale_delivery())
            else:
                request.fail(Disconnected(f"the connection was lost before the answer came: {error}"))
        for inbox in self.inboxes.values():
            inbox.interrupted()
            inbox.wake()
        return True

    def end(self, error: ClientError) -> None:
        """End the session. Only the first error is stored.

        Args:
            error: The error that all waiting and later calls raise.
        """
        self.connected = False
        if self.error is None:
            self.error = error
            for request in self._unanswered():
                request.wake()
            for inbox in self.inboxes.values():
                inbox.wake()

    def forked(self, error: ClientError | None = None) -> None:
        """Begin again in a child process. Subscriptions and requests stay with the parent.

        Args:
            error: The error of all calls in the child; None if the client can be used there.
        """
        self.error = self.error or error
        self.connected = False
        self.generation += 1  # deliveries and transactions belong to the parent
        self.inboxes, inboxes = {}, self.inboxes
        self._requests = {}
        self.buffered_bytes = 0
        for inbox in inboxes.values():
            inbox.forked()

    # --- requests -----------------------------------------------------------------------------------------------------

    def reserve(self, count: int) -> int:
        """Return the first of ``count`` consecutive receipt ids that were not used yet.

        Args:
            count: The number of ids.
        """
        first = self._next_number
        self._next_number += count
        return first

    def register(self, request: Request) -> None:
        """Expect the receipts of a request.

        Args:
            request: The request.
        """
        self._requests.update((str(number), (request, number)) for number in request.numbers)

    def register_subscribe(self, request: Request, inbox: Inbox) -> None:
        """Expect the receipt of a SUBSCRIBE, and messages for its inbox.

        Args:
            request: The request of the SUBSCRIBE frame.
            inbox: The inbox; its id must be new in this session.
        """
        self.register(request)
        self.inboxes[inbox.id] = inbox
        inbox.opening = request

    def forget(self, request: Request) -> None:
        """Drop a request whose receipts are not expected any more.

        Args:
            request: The request.
        """
        for number in request.numbers:
            self._requests.pop(str(number), None)

    @property
    def has_work(self) -> bool:
        """True if a new connection begins with frames of this session."""
        return bool(self.inboxes or self._requests)

    @property
    def expects_receipts(self) -> bool:
        """True while a request has no answer."""
        return bool(self._requests)

    def _unanswered(self) -> list[Request]:
        return list(dict.fromkeys(request for request, _ in self._requests.values()))

    def check(self) -> None:
        """Raise the error that ended the session, if it has ended.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        if self.error is not None:
            raise copy_error(self.error)

    # --- buffered frames ----------------------------------------------------------------------------------------------

    def buffered(self, frame: Frame) -> None:
        """Count a frame that was put into an inbox.

        Args:
            frame: The frame.
        """
        self.buffered_bytes += len(frame.body) + FRAME_OVERHEAD_BYTES

    def taken(self, frame: Frame) -> None:
        """Count a frame that was taken out of an inbox.

        Args:
            frame: The frame.
        """
        self.buffered_bytes -= len(frame.body) + FRAME_OVERHEAD_BYTES


def run_encoder(
    session: Session, messages: Sequence[Sendable], count: int, now_ns: int
) -> Callable[[range, Sequence[int]], bytes]:
    """Return the function that encodes SENDs with receipts for the last ``count`` of them, as ``ask_many`` calls it.

    Args:
        session: The session that sends the messages.
        messages: The messages.
        count: The number of receipts.
        now_ns: The time of sending, in nanoseconds since the epoch.
    """
    silent = len(messages) - count

    def encode(numbers: range, missing: Sequence[int]) -> bytes:
        encoder = session.encoder
        first = encoder.encode(messages[:silent], None, None, now_ns) if silent and missing[0] == 0 else []
        if len(missing) == count:
            return b"".join(first + encoder.encode(messages[silent:], numbers, None, now_ns))
        asking, receipts = [messages[silent + index] for index in missing], [numbers[index] for index in missing]
        return b"".join(first + encoder.encode(asking, receipts, None, now_ns))

    return encode


def sends_encoder(
    session: Session, messages: Sequence[Sendable], transaction: str | None, now_ns: int
) -> Callable[[], bytes]:
    """Return the function that encodes SENDs without receipts, as ``write`` calls it.

    Args:
        session: The session that sends the messages.
        messages: The messages.
        transaction: The id of the transaction, or None.
        now_ns: The time of sending, in nanoseconds since the epoch.
    """
    return lambda: b"".join(session.encoder.encode(messages, None, transaction, now_ns))


class _Reopening(Request):
    """A SUBSCRIBE that brings a subscription back. If the broker refuses it, only that subscription ends."""

    def __init__(self, first: int, inbox: Inbox) -> None:
        super().__init__(first, 1, lambda _: inbox.subscribe_frame(str(first)), OnLoss.DONE)
        self._inbox = inbox

    def refuse(self, number: int, error: ClientError) -> None:
        super().refuse(number, error)
        self._inbox.abandon(error)


def request_headers(
    reply_to: str, headers: Headers | None, seconds: float, now_ns: int
) -> tuple[str, dict[str, str | int]]:
    """Return a new correlation id, and the headers of a request with it.

    Args:
        reply_to: The destination for the reply.
        headers: More headers of the request. ``expires`` is set to the end of the time limit if it is missing.
        seconds: The time limit for the reply.
        now_ns: The current time in nanoseconds since the epoch.
    """
    key = secrets.token_hex(8)
    extra: dict[str, str | int] = {**(headers or {}), "reply-to": reply_to, "correlation-id": key}
    extra.setdefault("expires", (now_ns + int(seconds * NS_PER_SECOND)) // NS_PER_MS)
    return key, extra


def stale_delivery() -> StaleDelivery:
    """Return the exception for a frame that settles a delivery of an earlier connection."""
    return StaleDelivery(
        "the message was delivered on a connection that was lost since, so it cannot be acknowledged; it comes again"
    )


def server_error(frame: Frame) -> ServerError:
    """Return an ERROR frame as an exception.

    Args:
        frame: The ERROR frame.
    """
    headers = frame.headers
    message = headers.get("message") or "the broker answered ERROR"
    detail = frame.body.decode(errors="replace")
    end = headers.get("next-offset", "")
    next_offset = int(end) if end.isascii() and end.isdigit() else None
    return ServerError(headers.get("error-code", ""), message, detail, headers.get("receipt-id"), next_offset)
