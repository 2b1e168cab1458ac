"""A session: one client as the broker sees it.

It knows its protocol version, its subscriptions, what it holds unacknowledged, its transactions, and two lists for
its transport: ``outbox``, bytes to send, and ``receipts``, the line of promises. It knows nothing of sockets: the
transport takes the outbox, and tells with ``flushed`` how many bytes have left, since a message under ``ack:auto``
counts as acknowledged when it was written to the socket (RabbitMQ and ActiveMQ do the same).

Invariants: ``held`` counts the unacknowledged queue messages of subscriptions without a window of their own (of a
capped session: all unacknowledged messages), and is never above ``window`` (``docs/protocol.md``, "Flow control"); a
closed session holds no subscription.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.broker.receipts import ReceiptLine
from radiator.broker.subscriptions.joined import Joined, JoinedOfAll
from radiator.errors import ProtocolError
from radiator.routing.rights import NOTHING, Rights
from radiator.stomp.encoder import error as encode_error

if TYPE_CHECKING:
    from radiator.broker.access import Identity
    from radiator.broker.budget import Steps
    from radiator.broker.publishing.throttle import Bucket, Hold
    from radiator.broker.queues.queue import Queue
    from radiator.broker.subscriptions.reader import Reader
    from radiator.broker.subscriptions.subscription import Subscription
    from radiator.broker.transactions import Transaction
    from radiator.config import LimitsConfig

Entry = tuple["Subscription", "Queue"]  # of a QueueRing

DEFAULT_WINDOW = 1
REACHED_MAX = 10_000  # logs of which a session knows how far it was sent messages
OFFSET_DIGITS_MAX = 19  # of 63 bits


class QueueRing:
    """The queues that share a session's window, in the order in which they are served: those that were never served as
    they came, then the one that was served longest ago.

    Each entry is a subscription and one of its queues. An entry keeps its place while it is the only one.
    """

    __slots__ = ("_latest", "_new", "_served")

    def __init__(self) -> None:
        self._new: dict[Entry, None] = {}
        self._served: OrderedDict[Entry, None] = OrderedDict()
        self._latest: Entry | None = None  # the last of ``_served``

    def __len__(self) -> int:
        return len(self._new) + len(self._served)

    def entries(self) -> list[Entry]:
        """All of them, in that order."""
        return [*self._new, *self._served]

    def add(self, subscription: Subscription, queue: Queue) -> None:
        """Add an entry that was never served."""
        self._new[subscription, queue] = None

    def remove(self, subscription: Subscription, queue: Queue) -> None:
        """Remove an entry; without effect if it is not there."""
        entry = (subscription, queue)
        self._new.pop(entry, None)
        self._served.pop(entry, None)
        if entry == self._latest:
            self._latest = None

    def served(self, subscription: Subscription, queue: Queue) -> None:
        """Serve all other entries before this one; without effect if it is not there."""
        latest = self._latest
        if latest is not None and latest[0] is subscription and latest[1] is queue:
            return
        entry = (subscription, queue)
        if entry in self._new:
            del self._new[entry]
        elif entry not in self._served:
            return
        self._served[entry] = None
        self._served.move_to_end(entry)
        self._latest = entry


class Session:
    """One connected client. ``wake`` is called with the session whenever its outbox stops being empty, ``refuse`` when
    something it was promised could not be stored.
    """

    __slots__ = (
        "_wake",
        "address",
        "auto_acks",
        "buckets",
        "capped",
        "certificate_name",
        "client_id",
        "closed",
        "closing",
        "connected",
        "deliveries",
        "ended",
        "heart_beat",
        "held",
        "hold",
        "id",
        "identity",
        "limits",
        "lost",
        "missed",
        "joined",
        "listing",
        "next_tag",
        "origin",
        "outbox",
        "outbox_bytes",
        "patterns",
        "queue_ring",
        "queued_total",
        "reached",
        "receipts",
        "rights",
        "secret",
        "since_ns",
        "steps",
        "subscriptions",
        "tags",
        "temporary",
        "topic_served",
        "topics_turn",
        "transactions",
        "transaction_bytes",
        "undecided",
        "unfinished",
        "user",
        "version",
        "waiting",
        "window",
        "written_total",
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
    ) -> None:
        self.id = session_id  # in lists and logs
        self.secret = secret  # in addresses of its temporary queues, and nowhere else
        self.limits = limits
        self.address = address
        self.origin = origin or address  # whose connections count as those of one peer: the address without its port
        self.certificate_name = ""  # the name in a certificate of the client that was verified
        self.client_id = ""  # what it says it is called
        self.user = ""  # "" is anonymous
        self.identity: Identity  # once it is decided
        self.rights: Rights = NOTHING
        self.undecided = False  # CONNECT has come, and it is not known yet whose it is
        self.since_ns = 0  # when it was connected
        self.unfinished = False  # the frame whose turn it is was begun, and goes on in the next visit
        self.steps: Steps | None = None  # of the command whose turn it is, and which is not done yet
        self.listing: tuple[str, list[str]] = ("", [])  # what it is asking the admin channel for, page by page
        self.version = "1.2"
        self.heart_beat: tuple[int, int] = (0, 0)  # (send_ms, expect_ms) that we offer in CONNECTED
        self.connected = False
        self.closing = False  # nothing more is read; what is in the outbox still goes out
        self.closed = False  # gone: its subscriptions are released
        self._wake = wake
        self.outbox: list[bytes] = []
        self.outbox_bytes = 0
        self.queued_total = 0  # bytes ever put into the outbox
        self.written_total = 0  # bytes that have left it
        self.receipts = ReceiptLine(self.send, lambda error, receipt: refuse(self, error, receipt))
        self.subscriptions: dict[str, Subscription] = {}
        self.tags: dict[str, Subscription] = {}
        self.next_tag = 0
        self.window = DEFAULT_WINDOW
        self.capped = False  # the client set max-in-flight: it binds every subscription
        self.held = 0
        self.queue_ring = QueueRing()
        self.auto_acks: deque[AutoAck] = deque()
        self.waiting: dict[Subscription, None] = {}  # subscriptions that stopped because the outbox was full
        self.deliveries = 0  # under the client ack modes: the next one has this number
        self.lost = -1  # the highest number of a queue's delivery that went back unanswered
        self.reached: dict[bytes, int] | None = {}  # the highest offset of each log among them; None: too many logs
        self.ended: dict[str, None] = {}  # ids of bounded replays that have come to their end
        self.patterns = 0  # in all subscriptions together
        self.joined = joined or JoinedOfAll(limits.joined_total, limits.subscriptions).of_one(limits.joined)
        self.transactions: dict[str, Transaction] = {}
        self.transaction_bytes = 0
        self.temporary: dict[str, None] = {}
        self.topic_served: Reader | None = None  # the last one of them
        self.topics_turn = 0  # under max-in-flight: who comes first, topics or queues
        self.missed: Callable[[Reader, int], None] = lambda reader, count: None  # told what a reader came too late for
        self.hold: Hold | None = None  # what its frames wait for
        self.buckets: dict[int, Bucket] = {}  # of the rules with a rate_limit, by their index

    def end(self) -> None:
        """The connection is gone: what is still to be told is told to nobody."""
        self.closed = True
        self.outbox.clear()
        self.receipts.close()

    def reach(self, log: bytes, offset: int) -> None:
        """A message of this log was delivered, the highest so far. ``log``: the prefix of its message ids."""
        if self.reached is not None:
            self.reached[log] = offset
            if len(self.reached) > REACHED_MAX:
                self.reached = None

    def was_delivered(self, name: str) -> bool:
        """Return True if ``name`` is the ack id of a delivery to this connection, or the message id of a message.

        Of messages only the highest offset of each log is remembered, so any message id below that counts.
        """
        log, at, offset = name.rpartition("@")
        if at:
            most = None if self.reached is None else self.reached.get(f"{log}@".encode(), -1)
            return _is_decimal(offset) and (most is None or int(offset) <= most)
        tag, _, number = name.rpartition("-")
        session_id, _, tag_number = tag.rpartition("-")
        numbers = ((tag_number, self.next_tag), (number, self.deliveries))
        return session_id == self.id and all(_is_decimal(each) and int(each) < stop for each, stop in numbers)

    def may_have_lost(self, name: str) -> bool:
        """Return False if the delivery with this ack id or message id was answered, or was one of a topic; True if it
        may have gone back unanswered. The caller has found that it is not in flight."""
        return self.lost >= (0 if "@" in name else int(name.rpartition("-")[2]))

    def send(self, data: bytes) -> None:
        """Put bytes into the outbox and have the transport woken."""
        if self.closed:
            return
        if not self.outbox:
            self._wake(self)
        self.outbox.append(data)
        size = len(data)
        self.outbox_bytes += size
        self.queued_total += size

    @property
    def choked(self) -> bool:
        """True while the client does not read what it is sent: then it is not read either, or its answers would pile
        up without bound."""
        return self.outbox_bytes + self.receipts.held_bytes > self.limits.outbox + limits.CHOKED_BYTES

    def require(self, right: str, name: str) -> None:
        """Raises ProtocolError ``denied`` unless the user has the right over this destination."""
        if not self.rights.may(right, name):
            raise self._denied(right, f"over {name[:200]!r}")

    def require_some(self, right: str) -> None:
        """The same, unless the user has the right over something."""
        if not self.rights.has(right):
            raise self._denied(right, "over any destination")

    def require_all(self, right: str) -> None:
        """The same, unless the user has the right over everything."""
        if not self.rights.covers_all(right):
            raise self._denied(right, "over all destinations")

    def _denied(self, right: str, what: str) -> ProtocolError:
        who = f"user {self.user[:100]!r}" if self.user else "anonymous"
        detail = "Rights stand in the users file that auth.users_file in the YAML file names, as patterns."
        return ProtocolError("denied", f"{who} has no {right} right {what}", detail)

    def room(self) -> int:
        """Bytes that deliveries may still add to the outbox; zero or less means stop."""
        return self.limits.outbox - self.outbox_bytes

    def take_outbox(self) -> list[bytes]:
        """All bytes waiting to be sent; they count against ``room`` until ``flushed`` says that they left."""
        taken = self.outbox
        self.outbox = []
        return taken

    def flushed(self, size: int) -> None:
        """``size`` bytes were handed to the operating system."""
        self.outbox_bytes -= size
        self.written_total += size
        acks = self.auto_acks
        while acks and acks[0].ends_at <= self.written_total:
            acks.popleft().settle()

    def fail(self, error: ProtocolError, receipt: bytes | None = None) -> None:
        """Answer ERROR after all receipts before it, then close."""
        first = not self.closing
        self.closing = True
        if first or self.receipts.empty:  # empty: a failed commit took the receipt (or ERROR) that was to be the last
            self.receipts.final(encode_error(error, receipt, self.version if self.connected else None))


def _is_decimal(text: str) -> bool:
    """Whether this is how a number is written in an id: ASCII digits without zeros ahead."""
    return text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS_MAX and (text == "0" or text[0] != "0")


class AutoAck:
    """A run of queue messages under ``ack:auto`` in the outbox, settled once their last byte is written."""

    __slots__ = ("ends_at", "lengths", "offsets", "queue_source")

    def __init__(self, ends_at: int, queue_source: object, offsets: list[int], lengths: list[int]) -> None:
        self.ends_at = ends_at
        self.queue_source = queue_source
        self.offsets = offsets
        self.lengths = lengths

    def settle(self) -> None:
        """Every message of the run was written: who waits for the source (``Owners``) may have its turn."""
        source: Any = self.queue_source
        source.settle(self.offsets)
        if source.queue.owners is not None:
            source.queue.timing.wake(source.queue)

    def unwritten(self, written_total: int) -> tuple[list[int], list[int]]:
        """Split the offsets into those wholly written and those not, for a connection that died in between."""
        end = self.ends_at - sum(self.lengths)
        for index, length in enumerate(self.lengths):
            end += length
            if end > written_total:
                return self.offsets[:index], self.offsets[index:]
        return self.offsets, []
