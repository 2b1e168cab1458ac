"""Sessions, subscriptions, topic readers and open transactions: the state of a client in the broker.

A *session* is one connection. It has an ``outbox`` with bytes to send, and ``receipts``, the line of receipts that wait
for their effect. It has no socket.

A *subscription* is one SUBSCRIBE, whatever its pattern matches. It has the deliveries in flight to the client, in the
order of delivery, and computes its credit: how many messages may be sent now. ACK, NACK and requeue restore credit.

A *reader* is the cursor of one subscription over one partition of a topic, from history into live. A live subscriber is
a reader that starts at the end, a replay is the same reader started earlier, and a slow consumer is a reader that lags:
it stores an offset, not messages. A reader delivers one bounded run per ``pump`` and stops at the high watermark. It is
pumped again when the partition commits, the client's outbox has room, credit returns, or a cold read ends.

Invariants: ``window.held`` counts the unacknowledged queue messages of subscriptions without a window of their own (of
a capped window: all unacknowledged messages). A closed session has no subscription. ``in_flight`` is ordered by
delivery number and is empty under ``ack:auto``. A closed subscription holds nothing and is in no feed, queue or
session. ``next_offset`` of a reader only grows. Every offset below it was delivered, did not match, was reported as
``gap``, or lies in an offset gap within a batch, where a message was removed on purpose. ``batch`` of a reader is a
cache and may be dropped at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, cast

from radiator import limits
from radiator.broker.budget import LongCommand
from radiator.broker.clients.delivery_numbers import DeliveryNumbers
from radiator.broker.clients.identity import UNKNOWN, Identity
from radiator.broker.clients.joined import JOINED_BYTES, Joined, JoinedOfAll
from radiator.broker.clients.outbox import NO_RUNS, AutoAck, Outbox
from radiator.broker.clients.receipts import ReceiptLine
from radiator.broker.clients.session_states import TRANSITIONS, Event, State
from radiator.broker.clients.shared_window import SharedWindow
from radiator.broker.clients.temporary_queues import TemporaryQueues
from radiator.broker.headers.subscribe import AUTO, CLIENT
from radiator.broker.logs import wire
from radiator.broker.logs.selection import YES
from radiator.broker.logs.wire import fits, run_length
from radiator.broker.queues.consumer import Number
from radiator.errors import ProtocolError
from radiator.routing.rights import Permitted, Rights
from radiator.routing.rules import TEMPORARY
from radiator.stomp.encoder import error as encode_error

if TYPE_CHECKING:
    from radiator.broker.admission import Bucket, Hold
    from radiator.broker.clients.receipts import AllOf
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.headers.subscribe import SubscribeHeaders
    from radiator.broker.logs.feed import Feed
    from radiator.broker.logs.selection import Selection
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.clock import Now, WallNs
    from radiator.config import LimitsConfig
    from radiator.memory import MemoryShare
    from radiator.routing.pattern import PatternSet
    from radiator.stomp.frames import Frame
    from radiator.storage.batch import RecordBatch
    from radiator.storage.file_partition import FilePartition

MESSAGE_IDS_SPARE = 64  # stale entries of MessageIds before it is built again
RUN_BYTES = 256 * limits.KIB  # the most that one reader delivers in one turn

InFlight = tuple["QueueSource | None", int, bytes]  # source (None: a topic), offset, prefix of the log's message ids
Delivery = tuple["Subscription", Number]


class Transaction:
    """The frames of one open transaction, and its timeout as a subject of ``Timing``.

    Args:
        name: The id of the transaction on its connection.
        on_timeout: Called with the transaction when neither COMMIT nor ABORT came in time.

    Attributes:
        acked: The deliveries to settle.
        answers: The delivery that each ACK and NACK names, in their order; None if it is late or repeated.
        answered: The deliveries in ``answers``.
        late: True if a delivery to settle was returned before COMMIT.
        transactional_in: Subscriptions whose ``transactional`` may have a delivery of this transaction.
        waited: Logs whose files are created or synced, one by one, before COMMIT.
        repeated: The syncs of repeated messages that COMMIT waits for.
        size_bytes: The memory of the frames.
    """

    __slots__ = (
        "_on_timeout",
        "acked",
        "answered",
        "answers",
        "frames",
        "late",
        "name",
        "transactional_in",
        "repeated",
        "size_bytes",
        "waited",
    )

    def __init__(self, name: str, on_timeout: Callable[[Transaction], None]) -> None:
        self._on_timeout = on_timeout
        self.name = name
        self.acked: list[Delivery] = []
        self.answers: list[Delivery | None] = []
        self.answered: set[Delivery] = set()
        self.late = False
        self.transactional_in: dict[Subscription, None] = {}
        self.waited: list[FilePartition] = []
        self.repeated: AllOf | None = None
        self.frames: list[Frame] = []
        self.size_bytes = 0

    def due(self, now: Now) -> None:
        """Time out: neither COMMIT nor ABORT came in time."""
        self._on_timeout(self)

    def note_late(self) -> None:
        """Note that a delivery that COMMIT settles was returned before."""
        self.late = True

    def wait_for_repeats(self, repeated: AllOf | None) -> None:
        """Let COMMIT wait for the syncs of messages that it repeats; None: wait no more."""
        self.repeated = repeated

    def wait_for_files(self, partitions: list[FilePartition]) -> None:
        """Let COMMIT wait until each of these logs has a file."""
        self.waited = partitions


class OpenTransactions:
    """The open transactions of one session.

    Args:
        limits: The limits of the session.

    Attributes:
        by_name: The transactions by the ids that the client gave them.
        size_bytes: The memory of their frames.
    """

    __slots__ = ("by_name", "limits", "size_bytes")

    def __init__(self, limits: LimitsConfig) -> None:
        self.limits = limits
        self.by_name: dict[str, Transaction] = {}
        self.size_bytes = 0

    def check_begin(self, name: str) -> None:
        """Check that a transaction may be opened.

        Raises:
            ProtocolError: The id is in use (bad-transaction), or there are too many transactions (too-many).
        """
        if name in self.by_name:
            raise ProtocolError("bad-transaction", f"transaction {name[:100]!r} is already open on this connection")
        if len(self.by_name) >= self.limits.transactions:
            raise ProtocolError(
                "too-many",
                "too many open transactions on this connection",
                f"limits.transactions in the YAML file is {self.limits.transactions}; COMMIT or ABORT one first.",
            )

    def begin(self, name: str, on_timeout: Callable[[Transaction], None]) -> Transaction:
        """Open a transaction; ``on_timeout`` is called with it if neither COMMIT nor ABORT comes in time."""
        transaction = self.by_name[name] = Transaction(name, on_timeout)
        return transaction

    def find(self, name: str) -> Transaction:
        """Return the open transaction with this id.

        Raises:
            ProtocolError: There is none (bad-transaction).
        """
        transaction = self.by_name.get(name)
        if transaction is None:
            raise ProtocolError(
                "bad-transaction",
                f"transaction {name[:100]!r} is not open on this connection",
                "Open it with BEGIN; COMMIT and ABORT end it.",
            )
        return transaction

    def check_add(self, size_bytes: int) -> None:
        """Check that a frame of this size may be added to a transaction.

        Raises:
            ProtocolError: The transactions would be too large (too-large).
        """
        if self.size_bytes + size_bytes > self.limits.transaction:
            raise ProtocolError(
                "too-large",
                "the open transactions of this connection are too large",
                f"limits.transaction in the YAML file is {self.limits.transaction} bytes; COMMIT more often.",
            )

    def add(self, transaction: Transaction, frame: Frame, size_bytes: int) -> None:
        """Store a frame until COMMIT."""
        self.size_bytes += size_bytes
        transaction.size_bytes += size_bytes
        transaction.frames.append(frame)

    def end(self, name: str) -> Transaction:
        """Remove and return a transaction.

        Raises:
            ProtocolError: There is none (bad-transaction).
        """
        transaction = self.find(name)
        del self.by_name[name]
        self.size_bytes -= transaction.size_bytes
        return transaction

    def take_all(self) -> list[Transaction]:
        """Remove and return all transactions."""
        taken = list(self.by_name.values())
        self.by_name.clear()
        self.size_bytes = 0
        return taken


class SubscriptionTable:
    """The subscriptions of one session.

    Args:
        limits: The limits of the session.

    Attributes:
        by_id: The subscriptions by the ids that the client gave them.
        by_tag: The subscriptions by the tags of their ack ids.
        patterns: The number of patterns in all subscriptions.
    """

    __slots__ = ("_ended_replays", "by_id", "by_tag", "limits", "patterns")

    def __init__(self, limits: LimitsConfig) -> None:
        self._ended_replays: dict[str, None] = {}  # ids
        self.by_id: dict[str, Subscription] = {}
        self.by_tag: dict[str, Subscription] = {}
        self.limits = limits
        self.patterns = 0

    def check_add(self, subscription_id: str, patterns: int) -> None:
        """Check that a subscription with this id and number of patterns may be added.

        Raises:
            ProtocolError: The id is in use (bad-subscription), or there are too many patterns (too-many).
        """
        if subscription_id in self.by_id:
            raise ProtocolError("bad-subscription", f"id {subscription_id[:200]!r} is in use on this connection")
        if self.patterns + patterns > self.limits.subscriptions:
            raise ProtocolError(
                "too-many",
                "too many subscriptions",
                f"limits.subscriptions in the YAML file is {self.limits.subscriptions}; "
                "each entry of a comma list counts as one.",
            )

    def add(self, subscription: Subscription) -> None:
        """Add a subscription that has no readers or queues yet."""
        self._ended_replays.pop(subscription.id, None)
        self.by_id[subscription.id] = subscription
        self.by_tag[subscription.tag] = subscription
        self.patterns += len(subscription.patterns.patterns)

    def remove(self, subscription: Subscription) -> None:
        """Remove a closed subscription."""
        self.by_id.pop(subscription.id, None)
        self.by_tag.pop(subscription.tag, None)
        self.patterns -= len(subscription.patterns.patterns)

    def note_replay_ended(self, subscription_id: str) -> None:
        """Note that the broker has ended a bounded replay. Its client may still send UNSUBSCRIBE."""
        self._ended_replays[subscription_id] = None
        if len(self._ended_replays) > self.limits.subscriptions:
            del self._ended_replays[next(iter(self._ended_replays))]

    def forget_replay(self, subscription_id: str) -> bool:
        """Return True if the id is that of an ended replay, once."""
        if subscription_id not in self._ended_replays:
            return False
        del self._ended_replays[subscription_id]
        return True


class Session:
    """One connected client.

    Args:
        session_id: The id in lists, logs and ack ids.
        secret: A random string in the addresses of the session's temporary queues, and nowhere else.
        limits: The limits of a session.
        wake: Called with the session when its outbox is not empty any more.
        refuse: Called with the session when a message with a receipt could not be stored.
        address: The address of the peer.
        origin: The group of connections that count as one peer: the address without its port, or a subnet.
        joined: The counter of joined destinations.
        missed: Called with a reader and the number of records that were removed before the reader reached them.

    Attributes:
        window: The window of the subscriptions that have none of their own.
        certificate_name: The name in a verified certificate of the client; empty without one.
        client_id: The header ``client-id`` of CONNECT.
        identity: The user, with the authentication method and the rights. It has no rights before the login.
        rights: The rights of ``identity``.
        undecided: True from CONNECT until the authenticator has decided.
        since_ns: The wall time of CONNECT.
        command: The command that continues in the next visit, if any.
        listing: The names of a list that the client requests from the admin channel, page by page.
        heart_beat: (send_ms, expect_ms) that the broker offers in CONNECTED.
        stays: True if a drain of the broker does not end the session.
        closing: True if no more frames are read; the outbox is still sent.
        closed: True if the connection is gone and its subscriptions are released.
        numbers: The numbers of deliveries under the client ack modes.
        hold: What the session's frames wait for.
        buckets: Tokens for rules with a ``rate_limit``, by the index of the rule.
    """

    __slots__ = (
        "address",
        "buckets",
        "certificate_name",
        "client_id",
        "closed",
        "closing",
        "command",
        "connected",
        "heart_beat",
        "hold",
        "id",
        "identity",
        "limits",
        "numbers",
        "missed",
        "joined",
        "listing",
        "origin",
        "outbox",
        "receipts",
        "rights",
        "since_ns",
        "state",
        "stays",
        "subscriptions",
        "temporary",
        "transactions",
        "undecided",
        "version",
        "window",
    )

    def __init__(
        self,
        session_id: str,
        secret: str,
        limits: LimitsConfig,
        wake: Callable[[Session], None],
        refuse: Callable[[Session, ProtocolError, bytes | None], None],
        address: str = "",
        origin: str = "",
        joined: Joined | None = None,
        missed: Callable[[Reader, int], None] | None = None,
    ) -> None:
        self.id = session_id
        self.limits = limits
        self.address = address
        self.origin = origin or address
        self.certificate_name = ""
        self.client_id = ""
        self.identity = UNKNOWN
        self.rights: Rights = UNKNOWN.rights
        self.state = State.NEW
        self.undecided = False
        self.since_ns = 0
        self.command = LongCommand()
        self.listing: tuple[str, list[str]] = ("", [])
        self.version = "1.2"
        self.heart_beat: tuple[int, int] = (0, 0)
        self.connected = False
        self.closing = False
        self.closed = False
        self.stays = False
        self.outbox: Outbox[Subscription] = Outbox(limits.outbox, partial(wake, self))
        self.receipts = ReceiptLine(self.outbox.add, lambda error, receipt: refuse(self, error, receipt))
        self.subscriptions = SubscriptionTable(limits)
        self.window: SharedWindow[Subscription] = SharedWindow()
        self.numbers = DeliveryNumbers(session_id)
        self.joined = joined or JoinedOfAll(limits.joined_total, limits.subscriptions).of_one(limits.joined)
        self.transactions = OpenTransactions(limits)
        self.temporary = TemporaryQueues(session_id, secret)
        self.missed = missed or (lambda reader, count: None)
        self.hold: Hold | None = None
        self.buckets: dict[int, Bucket] = {}

    def remove(self, subscription: Subscription) -> None:
        """Remove a closed subscription."""
        self.subscriptions.remove(subscription)
        self.outbox.waiting.pop(subscription, None)
        self.joined.remove(len(subscription.destinations))

    def wait_for(self, hold: Hold | None) -> None:
        """Let the frames of the session wait; None: wait no more."""
        self.hold = hold

    def renumber_rules(self, numbers: Mapping[int, int]) -> None:
        """Take over the tokens of rules that have other indexes now: ``numbers`` has the new one by the old one."""
        self.buckets = {numbers[index]: bucket for index, bucket in self.buckets.items() if index in numbers}

    def identify(self, identity: Identity) -> None:
        """Give the session the rights of this user."""
        self.identity = identity
        self.rights = identity.rights

    def begin_login(self) -> None:
        """Handle no frame until the authenticator has decided."""
        self._on(Event.LOGIN)

    def welcome(self, client_id: str, now_ns: WallNs) -> None:
        """Accept the CONNECT."""
        self.client_id = client_id
        self._on(Event.WELCOME)
        self.connected = True
        self.since_ns = now_ns

    def _on(self, event: Event) -> None:
        """Go on to the state that follows, and set what the hot path asks for."""
        state = self.state = TRANSITIONS.after(self.state, event)
        self.undecided = state is State.LOGGING_IN
        self.closing = state in (State.CLOSING, State.CLOSED)
        self.closed = state is State.CLOSED

    def open(self, version: str, heart_beat: tuple[int, int]) -> None:
        """Set the results of the CONNECT frame.

        Args:
            version: The STOMP version.
            heart_beat: The intervals that the broker offers in CONNECTED: (send_ms, expect_ms).
        """
        self.version, self.heart_beat = version, heart_beat

    def set_certificate_name(self, name: str) -> None:
        """Set the name in the verified certificate of the client."""
        self.certificate_name = name

    def begin_closing(self) -> None:
        """Read no more frames; the outbox is still sent."""
        self._on(Event.CLOSE)

    def list_for(self, verb: str, names: list[str]) -> None:
        """Store the sorted names of a list that an admin client requests page by page."""
        self.listing = (verb, names)

    def end(self) -> None:
        """Discard the outbox and the receipts: the connection is gone."""
        self._on(Event.GONE)
        self.outbox.close()
        self.receipts.close()

    @property
    def choked(self) -> bool:
        """True while the client does not read. Then its frames are not read either, or its answers would accumulate."""
        return self.outbox.unsent_bytes + self.receipts.held_bytes > self.limits.outbox + limits.CHOKED_BYTES

    @property
    def user(self) -> str:
        """The name of the user; empty for anonymous, and before the login."""
        return self.identity.user

    def stay(self) -> None:
        """Stay connected while the broker is drained."""
        self.stays = True

    @property
    def holds_nothing(self) -> bool:
        """True if all is sent and acknowledged, no receipt is owed and no transaction is open."""
        return (
            not (self.outbox.unsent_bytes or self.transactions.by_name or self.command.at_once)
            and self.receipts.empty
            and not any(each.in_flight for each in self.subscriptions.by_id.values())
        )

    def fail(self, error: ProtocolError, receipt: bytes | None = None) -> None:
        """Send ERROR after all receipts before it, then close."""
        first = not self.closing
        self._on(Event.CLOSE)
        if first or self.receipts.empty:  # empty: a failed commit took the place of the last receipt or ERROR
            self.receipts.final(encode_error(error, receipt, self.version if self.connected else None))


class MessageIds:
    """Finds deliveries in flight by message id, for clients that acknowledge by it (STOMP 1.0, 1.1, and some in 1.2).

    ``first`` has the oldest delivery of each message, ``more`` those of the same message from other queues. Deliveries
    that are not in flight any more are removed when there are too many.

    Args:
        in_flight: The deliveries of the subscription; the same object for as long as the subscription exists.
    """

    __slots__ = ("_in_flight", "first", "more")

    def __init__(self, in_flight: Mapping[Number, InFlight]) -> None:
        self._in_flight = in_flight
        self.first: dict[str, Number] = {}
        self.more: dict[str, list[Number]] = {}
        self._build()

    def add(self, log: bytes, offsets: Iterable[int], numbers: Iterable[Number]) -> None:
        """Add deliveries of one log that are in flight already."""
        first = self.first
        if len(first) > 2 * len(self._in_flight) + MESSAGE_IDS_SPARE:
            self._build()
            return
        prefix = log.decode()
        message_ids = [f"{prefix}{offset}" for offset in offsets]
        if first.keys().isdisjoint(message_ids):
            first.update(zip(message_ids, numbers, strict=True))
            return
        for message_id, number in zip(message_ids, numbers, strict=True):
            self._add(message_id, number)

    def _build(self) -> None:
        self.first.clear()
        self.more.clear()
        for number, (_, offset, log) in self._in_flight.items():
            self._add(f"{log.decode()}{offset}", number)

    def _add(self, message_id: str, number: Number) -> None:
        more = [each for each in self.more.pop(message_id, ()) if each in self._in_flight]
        if more or self.first.get(message_id) in self._in_flight:
            self.more[message_id] = [*more, number]
        else:
            self.first[message_id] = number


class Subscription:
    """One SUBSCRIBE.

    Args:
        session: The session.
        headers: The headers of the SUBSCRIBE.
        memory: The memory share that it counts against.

    Raises:
        ProtocolError: The user may not read a destination that the patterns name.

    Attributes:
        asked: The patterns of the SUBSCRIBE.
        patterns: The same, limited to what the user may read.
        prefetch: The window that the client requested, if any. Without it topics have no window.
        window: The number of unacknowledged messages allowed; None: it shares the session's window on queues.
        right: The right that a message requires.
        alone: True for an exclusive consumer.
        selection: The selector; None: all messages.
        left: True if nothing refers to the subscription any more.
        joining: True until all destinations have joined. Until then nothing is delivered.
        since_ns: A start position in the future: earlier messages are not delivered.
        message_ids: The index by message id, once the client has acknowledged by it.
        lost: Under ``client``, the lowest and highest number of deliveries that timed out.
        transactional: Deliveries with an ack timeout that open transactions settle.
        reading: The number of readers that have not reached their stop position.
        awaited: Queues with a partition whose next consumer waits for this one.
        destinations: The destinations whose ``subscribers`` counts this subscription.
    """

    __slots__ = (
        "_memory",
        "_memory_bytes",
        "_prefixes",
        "alone",
        "ack",
        "asked",
        "awaited",
        "browser",
        "closed",
        "destinations",
        "id",
        "in_flight",
        "joining",
        "left",
        "lost",
        "message_ids",
        "patterns",
        "transactional",
        "prefetch",
        "queues",
        "readers",
        "reading",
        "right",
        "selection",
        "session",
        "since_ns",
        "tag",
        "reported_slow",
        "window",
    )

    def __init__(self, session: Session, headers: SubscribeHeaders, memory: MemoryShare) -> None:
        self.session = session
        self._memory = memory
        self._memory_bytes = 0
        self.id = headers.id
        self.right = headers.right
        self.asked = headers.patterns
        self.permit(session.rights)
        for name in self.asked.names:
            if not self.patterns.matches(name):
                raise session.identity.denied(self.right, f"over {name[:200]!r}")
        self.tag = session.numbers.new_tag()
        self.ack = headers.ack
        if self.ack == AUTO:
            session.outbox.expect_runs()
        self.prefetch = session.limits.in_flight if headers.prefetch == 0 else headers.prefetch
        self.window = self.window_over([])
        self.browser = headers.browses
        self.alone = headers.exclusive
        self.selection = headers.selection
        self.closed = False
        self.left = False
        self.joining = False
        self.reported_slow = False
        self.since_ns = headers.since_ns
        self.in_flight: dict[Number, InFlight] = {}
        self.message_ids: MessageIds | None = None
        self.lost: tuple[int, int] | None = None
        self.transactional: dict[Number, Transaction] = {}
        self.readers: dict[Feed, Reader] = {}
        self.reading = 0
        self.queues: list[Queue] = []
        self.awaited: dict[Queue, None] = {}
        self.destinations: dict[Destination, None] = {}
        self._prefixes: dict[bytes, bytes] = {}

    def window_over(self, destinations: Iterable[Destination]) -> int | None:
        """Return the window over destinations whose consumers share work; None: the session's shared window.

        The number that the client requested takes precedence over the rules.

        Args:
            destinations: Queues, or the topics of a consumer group.
        """
        window = self.prefetch
        if window is None and self.ack != AUTO:
            most = self.session.limits.in_flight
            prefetches = (each.policy.settings.prefetch for each in destinations)
            window = max((most if each is None else each for each in prefetches), default=1)
        return None if window == 1 else window  # a window of one: share the session's window, which is one by default

    def check_unlimited(self, destinations: Iterable[Destination]) -> None:
        """Check that the rules allow a window without a limit, which the client requests with 0.

        0 elsewhere means no limit. A client with an unexpected limit may wait for messages that do not come.

        Args:
            destinations: Queues, or the topics of a consumer group.

        Raises:
            ProtocolError: A rule sets a limit (bad-header).
        """
        for each in destinations if self.ack != AUTO else ():
            prefetch = each.policy.settings.prefetch
            if prefetch is not None and not each.name.startswith(TEMPORARY):
                raise ProtocolError(
                    "bad-header",
                    f"header prefetch-count: 0, which means no limit, is not allowed for {each.name[:200]!r}",
                    f"Expected a number from 1 to {self.session.limits.in_flight} (limits.in_flight), or prefetch: "
                    f"none in the rule of the destination in the YAML file, where prefetch is {prefetch}.",
                )

    @property
    def full_name(self) -> str:
        """The client id, or the id of the session without one, a slash, and the id of the subscription."""
        return f"{self.session.client_id or self.session.id}/{self.id}"

    def permit(self, rights: Rights) -> None:
        """Limit the patterns to what the user may read, also for future destinations."""
        self.patterns: PatternSet | Permitted = (
            self.asked if rights.covers_all(self.right) else Permitted(self.asked, rights, self.right)
        )

    def enter(self, destination: Destination) -> None:
        """Join a destination and count as its subscriber, unless the subscription has ended."""
        if destination not in self.destinations and not self.closed:
            self.destinations[destination] = None
            self.session.joined.add()
            destination.count_subscribers(1)
            self.charge(JOINED_BYTES)

    def take_selection(self) -> Selection | None:
        """Remove and return the selector, which the queue of a durable subscription applies from now on."""
        selection, self.selection = self.selection, None
        return selection

    def begin_joining(self) -> None:
        """Deliver nothing until ``end_joining``."""
        self.joining = True

    def end_joining(self) -> None:
        """Start deliveries: all destinations have joined."""
        self.joining = False

    def close(self) -> None:
        """Deliver nothing any more."""
        self.closed = True

    def note_left(self) -> None:
        """Note that nothing refers to the subscription any more, and free its memory share."""
        self.left = True
        self.discharge()

    def note_slow(self) -> None:
        """Note that the subscription was reported as slow."""
        self.reported_slow = True

    def consume(self, queue: Queue) -> None:
        """Add a queue that the subscription consumes from."""
        self.queues.append(queue)
        if self.shares_window:
            self.session.window.queues.add(self, queue)

    def begin(self, reader: Reader) -> None:
        """Add a reader."""
        self.readers[reader.feed] = reader
        self.reading += 1

    def reader_done(self) -> None:
        """Note that a reader has reached its stop position."""
        self.reading -= 1

    def charge(self, size: int) -> None:
        """Count ``size`` more bytes of memory until the subscription ends."""
        self._memory_bytes += size
        self._memory.add(size)

    def discharge(self) -> None:
        """Free the counted memory."""
        self.charge(-self._memory_bytes)

    def prefix(self, extra: bytes = b"") -> bytes:
        """Return the prefix of this subscription's MESSAGE frames, with the header lines ``extra``."""
        prefix = self._prefixes.get(extra)
        if prefix is None:
            prefix = wire.prefix(self.id, self.session.version, extra, None if self.ack == AUTO else self.tag)
            if len(self._prefixes) < 16:
                self._prefixes[extra] = prefix
        return prefix

    def topic_credit(self) -> int:
        """Return how many messages of topics the window allows now."""
        if self.ack == AUTO:
            return self.session.limits.in_flight
        session, shared = self.session, self.session.window
        own = (self.prefetch or session.limits.in_flight) - len(self.in_flight)
        return min(own, shared.size - shared.held) if shared.capped else own

    @property
    def shares_window(self) -> bool:
        """True if deliveries count against the session's window."""
        return self.ack != AUTO and (self.window is None or self.session.window.capped)

    def widen(self, window: int) -> None:
        """Give the subscription a window of its own, set by a rule."""
        shared = self.session.window
        if self.shares_window and not shared.capped:
            shared.give_back(sum(source is not None for source, _, _ in self.in_flight.values()))
            for queue in self.queues:
                shared.queues.remove(self, queue)
        self.window = window

    def queue_credit(self) -> int:
        """Return how many messages of queues may be sent now.

        If only the outbox is full, the subscription waits for room in it.
        """
        session = self.session
        if session.closing or self.joining or self.closed:
            return 0
        outbox = session.outbox
        if outbox.room() <= 0:
            outbox.waiting[self] = None
            return 0
        if self.ack == AUTO:
            return session.limits.in_flight
        shared = session.window
        if self.window is None:
            left = shared.size - shared.held
            return left if self.prefetch is None else min(left, self.prefetch - len(self.in_flight))
        own = self.window - len(self.in_flight)
        return min(own, shared.size - shared.held) if shared.capped else own

    def deliver(
        self,
        feed: Feed,
        source: QueueSource | None,
        offsets: list[int] | range,
        tails: list[bytes],
        extra: bytes = b"",
    ) -> None:
        """Put a run of messages into the session's outbox and, under a client ack mode, in flight.

        Args:
            feed: The feed of the log.
            source: The source of the queue; None for a topic.
            offsets: The offset of each message.
            tails: The tail of each message (``logs.wire``).
            extra: Header lines for each message, each of which ends in a line feed.
        """
        session = self.session
        prefix = self.prefix(extra)
        if self.ack == AUTO:
            outbox = session.outbox
            outbox.add(wire.frames(prefix, tails, None))
            if source is not None:
                head = len(prefix)
                lengths = [head + len(tail) for tail in tails]
                ends_at = outbox.written_total + outbox.unsent_bytes
                assert outbox.auto_acks is not NO_RUNS
                outbox.auto_acks.append(AutoAck(ends_at, source, list(offsets), lengths))
            return
        assert not self.closed and not session.closed
        count, log = len(tails), feed.wire.id_prefix
        first = session.numbers.assign_run(count, log, offsets[-1])
        numbers = list(map(str, range(first, first + count)))
        self.in_flight.update(zip(numbers, zip(repeat(source), offsets, repeat(log)), strict=False))
        if self.message_ids is not None:
            self.message_ids.add(log, offsets, numbers)
        if source is not None and source.timeouts is not None:
            source.timeouts.start(self, offsets, numbers)
        shared = session.window
        if shared.capped or (self.window is None and source is not None):
            shared.take(count)
        session.outbox.add(wire.frames(prefix, tails, first))

    def await_turn(self, queue: Queue) -> None:
        """Note that the next consumer of a partition of ``queue`` waits until this consumer holds nothing of it."""
        self.awaited[queue] = None

    def find(self, message_id: str, answered: Container[Delivery] = ()) -> Number | None:
        """Return the oldest delivery of a message in flight; None if there is none.

        Args:
            message_id: The message id.
            answered: Deliveries to leave out.
        """
        if self.message_ids is None:
            self.message_ids = MessageIds(self.in_flight)
        first = self.message_ids.first.get(message_id)
        if first is None or (first in self.in_flight and (self, first) not in answered):
            return first
        more = self.message_ids.more.get(message_id, ())
        return next((each for each in more if each in self.in_flight and (self, each) not in answered), None)

    def take(self, numbers: Sequence[Number]) -> list[InFlight]:
        """Remove and return those of these deliveries that are in flight: an answer ``covered`` them."""
        in_flight = self.in_flight
        if self.transactional:
            for number in numbers:
                self.transactional.pop(number, None)
        if self.lost is not None and self.ack == CLIENT and int(numbers[-1]) > self.lost[1]:
            self.lost = None
        return self._release([in_flight.pop(number) for number in numbers if number in in_flight])

    def take_one(self, number: Number) -> InFlight:
        """Do the same for one delivery in flight under ``client-individual``."""
        delivery, shared = self.in_flight.pop(number), self.session.window
        if shared.capped or (self.window is None and delivery[0] is not None):
            shared.give_back(1)
        return delivery

    def is_timed(self, number: Number) -> bool:
        """Return True if a delivery in flight has an ack timeout."""
        source = self.in_flight[number][0]
        return source is not None and source.timeouts is not None

    def covered(self, number: Number) -> list[Number]:
        """Return the deliveries that an answer to ``number`` covers.

        Under ``client`` it covers all earlier deliveries too (STOMP 1.2, "ACK" and "NACK").
        """
        if self.ack != CLIENT:
            return [number]
        numbers = []
        for each in self.in_flight:
            numbers.append(each)
            if each == number:
                break
        return numbers

    def take_back(self, numbers: Iterable[Number]) -> list[InFlight]:
        """Remove and return deliveries that timed out: those in flight that no open transaction has answered."""
        lost = [number for number in numbers if number in self.in_flight and number not in self.transactional]
        if lost:
            lowest, highest = min(map(int, lost)), max(map(int, lost))
            self.session.numbers.note_lost(highest)
            if self.ack == CLIENT:
                before = self.lost or (lowest, highest)
                self.lost = (min(lowest, before[0]), max(highest, before[1]))
        return self._release([self.in_flight.pop(number) for number in lost])

    def take_some(self, most: int) -> list[InFlight]:
        """Remove and return up to ``most`` deliveries in flight, the oldest first: the subscription has ended."""
        taken = [(number, self.in_flight.pop(number)) for number in list(islice(self.in_flight, most))]
        lost = [int(number) for number, (source, _, _) in taken if source is not None and not source.closed]
        if lost:
            self.session.numbers.note_lost(lost[-1])
        return self._release([delivery for _, delivery in taken])

    def _release(self, settled: list[InFlight]) -> list[InFlight]:
        if self.shares_window:
            shared = self.session.window
            shared.give_back(sum(shared.capped or source is not None for source, _, _ in settled))
        return settled


class Reader:
    """The cursor of one subscription over one partition.

    Args:
        subscription: The subscription.
        feed: The feed of the partition.
        start: The first offset to deliver.
        live_from: Offsets below are history and marked ``replayed``.
        stop: The offset before which it stops; None: it does not stop, or the offset is looked up.

    Attributes:
        starts: By destination, the first offset to deliver (``last:N`` in a partition of several destinations).
        stops: By destination, the first offset not to deliver.
        queue: In a log of a fan-out source, the bound queue that is shown.
        skip_settled: True for a browser: only unsettled messages of the queue are shown.
        resolving: The number of positions that are still being looked up.
        since_ns: A start time in the future: earlier messages are not delivered.
        gap: Offsets that were lost since the last message.
        removed: The part of ``gap`` that the log has removed on purpose.
    """

    __slots__ = (
        "_extra",
        "_matched_names",
        "_matched_patterns",
        "batch",
        "done",
        "feed",
        "gap",
        "live_from",
        "loading",
        "next_offset",
        "queue",
        "removed",
        "resolving",
        "since_ns",
        "skip_settled",
        "starts",
        "stop_offset",
        "stops",
        "subscription",
    )

    def __init__(
        self, subscription: Subscription, feed: Feed, start: int, live_from: int, stop: int | None = None
    ) -> None:
        self.subscription = subscription
        self.feed = feed
        self.next_offset = start
        self.live_from = live_from
        self.stop_offset = stop
        self.starts: dict[str, int] | None = None
        self.stops: dict[str, int] | None = None
        self.queue: Queue | None = None
        self.skip_settled = False
        self.batch: RecordBatch | None = None
        self.loading = False
        self.resolving = 0
        self.since_ns = subscription.since_ns
        self.done = False
        self.gap = 0
        self.removed = 0
        self._extra = b""
        self._matched_names: list[str] | None = None  # the destinations of the last batch wanted as a whole
        self._matched_patterns: object = None

    def start_at(self, offset: int) -> None:
        """Start at ``offset``; if the log starts later, start there and report that with the first message."""
        first = self.feed.partition.log_start_offset
        self.next_offset = max(offset, first)
        if offset < first:
            self._extra = b"start-adjusted:true\n"

    def place_at(self, offset: int) -> None:
        """Start at an offset that was looked up."""
        self.next_offset = offset

    def start_at_each(self, starts: dict[str, int]) -> None:
        """Start at these offsets, by destination."""
        self.next_offset = min(starts.values())
        self.starts = starts if len(starts) > 1 else None

    def stop_before(self, offset: int) -> None:
        """Stop before ``offset``."""
        self.stop_offset = offset

    def stop_at_each(self, stops: dict[str, int]) -> None:
        """Stop before these offsets, by destination."""
        self.stop_offset = max(stops.values())
        self.stops = stops if len(stops) > 1 else None

    def show_only(self, queue: Queue | None) -> None:
        """Show only the messages of this queue, in a log of a fan-out source."""
        self.queue = queue

    def browse(self) -> None:
        """Show only messages of the queue that are not settled."""
        floors = [source.cursor.floor for source in self.browsed()]
        self.next_offset = min(floors, default=self.feed.partition.log_start_offset)
        self.skip_settled = True

    def wait_for_place(self) -> None:
        """Deliver nothing until a position was looked up."""
        self.resolving += 1

    def place_found(self) -> None:
        """Note that a position was looked up."""
        self.resolving -= 1

    @property
    def waits(self) -> bool:
        """False if the result of a cold read is not needed any more (``Waiter``)."""
        return not self.subscription.closed

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """Handle the end of a cold read (``Waiter``)."""
        self.loading = False
        if offset != self.next_offset:
            return
        if batch is not None and len(batch) and batch.next_offset > offset:
            self.batch = batch
        elif skip_to is not None and skip_to > offset:
            self._skip(skip_to)

    def _skip(self, offset: int) -> None:
        self.gap += offset - self.next_offset
        self.removed += max(0, min(offset, self.feed.partition.log_start_offset) - self.next_offset)
        self.subscription.session.missed(self, offset - self.next_offset)
        self.next_offset = offset

    def take_back(self, high_watermark: int) -> None:
        """Handle a failed write: offsets from ``high_watermark`` on will be assigned again."""
        if self.next_offset > high_watermark and self.next_offset <= self.live_from:
            self.next_offset = high_watermark
        if self.stop_offset is not None and high_watermark < self.stop_offset <= self.live_from:
            self.stop_offset = high_watermark
        self.live_from = min(self.live_from, high_watermark)

    def pump(self) -> bool:
        """Deliver at most one run. Return True if more could follow at once."""
        subscription = self.subscription
        if subscription.closed or self.loading or self.resolving or self.done or subscription.joining:
            return False
        partition = self.feed.partition
        if self.next_offset < partition.log_start_offset:
            self._skip(partition.log_start_offset)
        offset = self.next_offset
        end = partition.high_watermark
        stop = self.stop_offset
        if stop is not None and stop <= end:
            end = stop
            if offset >= end:
                self.done = True
                return False
        if offset >= end:
            self.batch = None
            return False
        session = subscription.session
        if session.closing:
            return False
        outbox = session.outbox
        room = outbox.room()
        if room <= 0:
            outbox.waiting[subscription] = None
            self.batch = None
            return False
        credit = subscription.topic_credit()
        if credit <= 0:
            self.batch = None
            return False
        batch = self.batch
        if batch is None or not batch.base_offset <= offset < batch.next_offset:
            batch = self.batch = partition.read(offset)
            if batch is None:
                self.loading = True
                self.feed.load(offset, self)
                return False
        self._deliver(batch, end, min(room, RUN_BYTES), credit)
        return self.next_offset < end or self.next_offset == stop

    def _deliver(self, batch: RecordBatch, end: int, room: int, credit: int) -> None:
        subscription = self.subscription
        if (
            batch.base_offset == self.next_offset >= self.live_from
            and batch.next_offset <= end
            and len(batch.blocks) <= credit
            and fits(batch, room)
            and self._matches_all(batch)
            and not (self.gap or self._extra)
        ):  # the usual case: a whole commit goes to readers that are up to date
            self.next_offset = batch.next_offset
            tails = self.feed.wire.tails(batch, subscription.session.version)
            self.feed.sent_first[0] += len(tails)
            if subscription.ack == "auto":
                subscription.session.outbox.add(self.feed.wire.whole.frames(subscription.prefix(), tails))
            else:
                subscription.deliver(self.feed, None, batch.offsets, tails)  # type: ignore[arg-type]
            return
        start = batch.index_at(self.next_offset)
        if batch.offsets[start] > self.next_offset:
            self.next_offset = min(batch.offsets[start], end)
            if self.next_offset == end:
                return
        boundary = self.live_from if self.next_offset < self.live_from < end else end
        stop = len(batch) if boundary >= batch.next_offset else batch.index_at(boundary)
        selection = subscription.selection
        if selection is None:
            stop = start + min(run_length(batch, start, stop, room), credit)
        else:
            stop = start + min(run_length(batch, start, stop, min(room, limits.SELECTOR_RUN_BYTES)), selection.run)
            stop = selection.cut(self.feed.wire, batch, start, stop, credit)
        picked = self._pick(batch, start, stop)
        replayed = self.next_offset < self.live_from
        # Go past a following offset gap, so that a bounded replay that ends in it needs no more credit to end.
        self.next_offset = min(batch.offsets[stop], end) if stop < len(batch) else batch.next_offset
        if picked is not None and not picked:
            return
        offsets: Sequence[int] = batch.offsets[start:stop]
        tails = self.feed.wire.tails(batch, subscription.session.version)[start:stop]
        if picked is not None:
            offsets = [batch.offsets[index] for index in picked]
            tails = [tails[index - start] for index in picked]
        self.feed.sent_first[0] += len(tails)
        extra = b"replayed:true\n" if replayed else b""
        if self.gap or self._extra:
            subscription.deliver(self.feed, None, [offsets[0]], tails[:1], extra + self._take_extra())
            offsets, tails = offsets[1:], tails[1:]
        if tails:
            subscription.deliver(self.feed, None, offsets, tails, extra)  # type: ignore[arg-type]

    def _take_extra(self) -> bytes:
        """Return the header lines that only the next message has, and forget them."""
        lines = self._extra + (b"gap:%d\n" % self.gap if self.gap else b"")
        lines += b"gap-removed:%d\n" % self.removed if self.removed else b""
        self.gap = self.removed = 0
        self._extra = b""
        return lines

    def browsed(self) -> list[QueueSource]:
        """Return the sources whose cursors decide which messages a browser shows: of ``queue``, or of all queues."""
        own = self.queue
        return [each for each in self.feed.sources if each.queue.filter.owned and (own is None or each.queue is own)]

    def _matches_all(self, batch: RecordBatch) -> bool:
        """Return True if the whole batch is known to match. False means unknown."""
        subscription = self.subscription
        return (
            batch.names == self._matched_names
            and subscription.patterns is self._matched_patterns
            and subscription.selection is None
            and self.queue is None
            and not (subscription.queues or self._bounded)
        )

    @property
    def _bounded(self) -> bool:
        """True if records with a wanted name may be left out, whatever the selector says."""
        return self.starts is not None or self.stops is not None or bool(self.since_ns) or self.skip_settled

    def _pick(self, batch: RecordBatch, start: int, stop: int) -> list[int] | None:
        """Return the indexes of the matching records; None for all of them."""
        wanted = self._wanted(batch.names)
        selection = self.subscription.selection
        if all(wanted) and not self._bounded:
            self._matched_names, self._matched_patterns = batch.names, self.subscription.patterns
            return None if selection is None else self._selected(selection, batch, start, stop)
        ids = batch.destination_ids
        picked = [index for index in range(start, stop) if wanted[ids[index]]]
        if self._bounded:
            picked = self._within_bounds(batch, picked, stop)
        if selection is not None:
            verdicts = selection.verdicts(self.feed.wire, batch, start, stop)
            picked = [index for index in picked if verdicts[index] == YES]
        return picked

    def _wanted(self, names: list[str]) -> list[bool]:
        """Return for each destination of a batch whether its records are wanted."""
        if self.queue is not None:
            return [self.queue.filter.has(name) for name in names]
        matches = self.subscription.patterns.matches
        consumed = [queue.name for queue in self.subscription.queues]  # in the same log, with matching names
        return [matches(name) and name not in consumed for name in names]

    def _within_bounds(self, batch: RecordBatch, picked: list[int], stop: int) -> list[int]:
        """Return those of the picked records that ``starts``, ``stops``, ``since_ns`` and ``skip_settled`` let pass.

        Bounds that the records up to ``stop`` have passed are forgotten.
        """
        ids = batch.destination_ids
        if self.starts is not None:
            starts = [self.starts.get(name, 0) for name in batch.names]
            picked = [index for index in picked if batch.offsets[index] >= starts[ids[index]]]
            if batch.offsets[stop - 1] >= max(self.starts.values(), default=0):
                self.starts = None
        if self.stops is not None:
            stops = [self.stops.get(name, 0) for name in batch.names]
            picked = [index for index in picked if batch.offsets[index] < stops[ids[index]]]
        if self.since_ns:
            picked = [index for index in picked if batch.receive_ns[index] >= self.since_ns]
            if batch.receive_ns[stop - 1] >= self.since_ns:
                self.since_ns = 0
        if self.skip_settled:
            settled = [source.cursor for source in self.browsed()]
            picked = [i for i in picked if not all(cursor.is_acked(batch.offsets[i]) for cursor in settled)]
        return picked

    def _selected(self, selection: Selection, batch: RecordBatch, start: int, stop: int) -> list[int] | None:
        """Return the same where only the selector decides."""
        verdicts = selection.verdicts(self.feed.wire, batch, start, stop)
        count = verdicts.count(YES, start, stop)
        if count == stop - start:
            return None
        return [index for index in range(start, stop) if verdicts[index] == YES] if count else []


def by_source(settled: Iterable[InFlight]) -> dict[QueueSource, list[int]]:
    """Group settled messages by their queue source, without those of topics."""
    groups: dict[QueueSource, list[int]] = {}
    for source, offset, _ in settled:
        if source is not None:
            groups.setdefault(source, []).append(offset)
    return groups


def subscriptions_of(queue: Queue) -> list[Subscription]:
    """Return the consumers of a queue as subscriptions."""
    return cast("list[Subscription]", list(queue.consumers))
