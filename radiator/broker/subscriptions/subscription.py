"""A subscription: one SUBSCRIBE of one session, whatever its pattern matches.

It holds what is in flight to the client, in the order of delivery, and answers one question for those who deliver:
how many messages may go out now (``credit``). Credit comes back only by ack, nack or requeue.

Invariants: ``in_flight`` maps message ids to (queue source or None, offset) and is empty under ``ack:auto``; a message
that several queues have handed out here is there several times, with TWIN behind its id; a subscription that is closed
holds nothing and is in no feed, queue or session.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING

from radiator.broker import wire
from radiator.broker.session import AutoAck
from radiator.broker.subscriptions import returned
from radiator.broker.subscriptions.delivered import Delivered, delivered_in
from radiator.broker.subscriptions.joined import JOINED_BYTES
from radiator.routing.rights import Permitted

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.destinations.feed import Feed
    from radiator.broker.queues.queue import Queue
    from radiator.broker.queues.selection import Selection
    from radiator.broker.queues.source import QueueSource
    from radiator.broker.session import Session
    from radiator.broker.subscriptions.reader import Reader
    from radiator.broker.transactions import Transaction
    from radiator.memory import MemoryShare
    from radiator.routing.pattern import PatternSet
    from radiator.routing.rights import Rights

AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
ACK_MODES = (AUTO, CLIENT, INDIVIDUAL)
TWIN = b"+"  # behind the id of a message that is in flight here already, from another queue
END_ID = "end"  # after the tag: the id of the message that ends a bounded replay

InFlight = tuple["QueueSource | None", int]


class Subscription:
    """One SUBSCRIBE. ``window`` None means: shares the session's window on queues. ``prefetch`` is what the client
    asked for, if it did; without it topics flow freely."""

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
        "patterns",
        "pledged",
        "prefetch",
        "queues",
        "readers",
        "reading",
        "right",
        "seen",
        "selection",
        "session",
        "since_ns",
        "tag",
        "told_slow",
        "twins",
        "window",
    )

    def __init__(
        self,
        session: Session,
        subscription_id: str,
        tag: str,
        patterns: PatternSet,
        ack: str,
        window: int | None,
        memory: MemoryShare,
        right: str = "read",
    ) -> None:
        self.session = session
        self._memory = memory  # where what it holds is counted, roughly
        self._memory_bytes = 0
        self.id = subscription_id
        self.tag = tag
        self.right = right  # that it takes to be sent a message here
        self.asked = patterns
        self.permit(session.rights)
        self.ack = ack
        self.window = window
        self.prefetch: int | None = None
        self.browser = False
        self.alone = False  # of the consumers of a queue only this one is served, while it is there
        self.selection: Selection | None = None  # the messages that it wants; None: all of them
        self.closed = False
        self.left = False  # nothing refers to it any more
        self.joining = False  # it has not joined all destinations yet: nothing is delivered (``joining``)
        self.told_slow = False
        self.since_ns = 0  # a start-position in the future: nothing received before it is wanted
        self.in_flight: dict[bytes, InFlight] = {}
        self.twins = 0  # how many deliveries of one message were in flight here at a time, beside the first
        self.pledged: dict[bytes, Transaction] = {}  # what open transactions are to settle, of what may time out
        self.seen: dict[bytes, Delivered] = {}  # per partition's id prefix
        self.readers: dict[Feed, Reader] = {}
        self.reading = 0  # readers that have not reached their stop position
        self.queues: list[Queue] = []
        self.awaited: dict[Queue, None] = {}  # those whose next owner waits until this one holds nothing of them
        self.destinations: dict[Destination, None] = {}  # those whose ``subscribers`` counts this one
        self._prefixes: dict[bytes, bytes] = {}

    def permit(self, rights: Rights) -> None:
        """What was asked for, as far as the user may have it: also of destinations that are born later."""
        self.patterns: PatternSet | Permitted = (
            self.asked if rights.over_all(self.right) else Permitted(self.asked, rights, self.right)
        )

    def enter(self, destination: Destination) -> None:
        """Take part in a destination, and be counted there, unless the subscription has ended."""
        if destination not in self.destinations and not self.closed:
            self.destinations[destination] = None
            self.session.joined.add()
            destination.subscribers += 1
            self.charge(JOINED_BYTES)

    def charge(self, size: int) -> None:
        """Count ``size`` bytes more for it, until it ends."""
        self._memory_bytes += size
        self._memory.add(size)

    def discharge(self) -> None:
        """Count nothing for it any more: all that it held is free."""
        self.charge(-self._memory_bytes)

    def prefix(self, extra: bytes = b"") -> bytes:
        """The head of this subscription's MESSAGE frames."""
        prefix = self._prefixes.get(extra)
        if prefix is None:
            prefix = wire.prefix(self.id, self.session.version, extra, None if self.ack == AUTO else self.tag)
            if len(self._prefixes) < 16:
                self._prefixes[extra] = prefix
        return prefix

    def topic_credit(self) -> int:
        """How many messages of topics may be sent now, by the window alone."""
        if self.ack == AUTO:
            return self.session.limits.in_flight
        session = self.session
        own = (self.prefetch or session.limits.in_flight) - len(self.in_flight)
        return min(own, session.window - session.held) if session.capped else own

    @property
    def shares_window(self) -> bool:
        """True if what is in flight here counts against the session's window."""
        return self.ack != AUTO and (self.window is None or self.session.capped)

    def widen(self, window: int) -> None:
        """A rule lets a consumer hold so many: from now on, a window of its own."""
        session = self.session
        if self.shares_window and not session.capped:
            session.held -= sum(source is not None for source, _ in self.in_flight.values())
            for queue in self.queues:
                session.queue_ring.remove(self, queue)
        self.window = window

    def queue_credit(self) -> int:
        """How many messages of queues may be sent now; registers for a wake-up when only the outbox is in the way."""
        session = self.session
        if session.closing or self.joining or self.closed:
            return 0
        if session.room() <= 0:
            session.waiting[self] = None
            return 0
        if self.ack == AUTO:
            return session.limits.in_flight
        if self.window is None:
            shared = session.window - session.held
            return shared if self.prefetch is None else min(shared, self.prefetch - len(self.in_flight))
        own = self.window - len(self.in_flight)
        return min(own, session.window - session.held) if session.capped else own

    def deliver(
        self,
        feed: Feed,
        source: QueueSource | None,
        offsets: list[int] | range,
        tails: list[bytes],
        extra: bytes = b"",
    ) -> None:
        """Put a run of messages into the session's outbox and, unless acked automatically, in flight."""
        session = self.session
        prefix = self.prefix(extra)
        if self.ack == AUTO:
            session.send(wire.frames(prefix, tails, None))
            if source is not None:
                head = len(prefix)
                lengths = [head + len(tail) for tail in tails]
                session.auto_acks.append(AutoAck(session.queued_total, source, list(offsets), lengths))
            return
        ids = feed.wire.message_ids(offsets)
        apart = source.fed if source is not None else bool(self.queues)  # another queue may hand out the same message
        if apart:
            ids = self._apart(ids)
        self.in_flight.update(zip(ids, zip(repeat(source), offsets), strict=False))
        seen = self.seen.get(feed.wire.id_prefix)
        if seen is None:
            seen = self.seen[feed.wire.id_prefix] = Delivered()
        seen.add(offsets)
        if session.returned:
            returned.again(self, feed.wire.id_prefix, offsets)
        if self.shares_window and (source is not None or session.capped):
            session.held += len(tails)
        session.send(wire.frames(prefix, tails, ids))

    def _apart(self, ids: list[bytes]) -> list[bytes]:
        """Ids that tell deliveries of one message apart."""
        keys = []
        for message_id in ids:
            key, twins = message_id, 0
            while key in self.in_flight:
                key, twins = key + TWIN, twins + 1
            self.twins = max(self.twins, twins)
            keys.append(key)
        return keys

    def _keys_of(self, message_id: bytes) -> list[bytes]:
        """Of all deliveries of this message that are in flight here."""
        return [key for each in range(self.twins + 1) if (key := message_id + TWIN * each) in self.in_flight]

    def find(self, message_id: bytes, answered: Container[Delivery] = ()) -> bytes | None:
        """The id of a delivery of this message that is in flight here, and not among those ``answered``."""
        if message_id in self.in_flight and (self, message_id) not in answered:
            return message_id
        if not self.twins:
            return None
        return next((key for key in self._keys_of(message_id) if (self, key) not in answered), None)

    def take(self, keys: Sequence[bytes]) -> list[InFlight]:
        """Remove those of these deliveries that are in flight here: an answer ``covered`` them."""
        in_flight = self.in_flight
        if self.pledged:
            for key in keys:
                self.pledged.pop(key, None)
        if self.ack == CLIENT:
            returned.answered_for(self)
        return self._release([in_flight.pop(key) for key in keys if key in in_flight])

    def take_one(self, message_id: bytes) -> InFlight | None:
        """The same under ``client-individual``; None if it is not in flight here."""
        delivery = self.in_flight.pop(message_id, None)
        if delivery is not None and self.shares_window and (delivery[0] is not None or self.session.capped):
            self.session.held -= 1
        return delivery

    def is_timed(self, key: bytes) -> bool:
        """Whether this, which is in flight here, has to be answered in time."""
        source = self.in_flight[key][0]
        return source is not None and source.timeouts is not None

    def covered(self, message_id: bytes) -> list[bytes]:
        """The ids of the deliveries that an answer to this one answers: under ``client`` it is everything delivered
        before it too (STOMP 1.2, "ACK" and "NACK")."""
        if self.ack != CLIENT:
            return [message_id]
        keys = []
        for key in self.in_flight:
            keys.append(key)
            if key == message_id:
                break
        return keys

    def take_back(self, source: QueueSource, offset: int) -> bool:
        """Remove one delivery of a queue that was not answered in time; False if it is not in flight here, or an open
        transaction has answered it."""
        for key in self._keys_of(source.feed.wire.id_prefix + b"%d" % offset):
            if self.in_flight[key] == (source, offset) and key not in self.pledged:
                self._release([self.in_flight.pop(key)])
                return True
        return False

    def take_some(self, most: int) -> list[InFlight]:
        """Remove up to ``most`` deliveries that are in flight, the oldest first."""
        in_flight = self.in_flight
        return self._release([in_flight.pop(key) for key in list(islice(in_flight, most))])

    def was_delivered(self, message_id: bytes) -> bool:
        """True if this message went out here once: its ack is late or repeated, not wrong."""
        return delivered_in(self.seen, message_id)

    def _release(self, settled: list[InFlight]) -> list[InFlight]:
        if self.shares_window:
            counts = self.session.capped
            self.session.held -= sum(counts or source is not None for source, _ in settled)
        return settled


Delivery = tuple[Subscription, bytes]  # and its key in ``in_flight``


def by_source(settled: Iterable[InFlight]) -> dict[QueueSource, list[int]]:
    """Group settled messages by the queue source they belong to; those of topics belong to none."""
    groups: dict[QueueSource, list[int]] = {}
    for source, offset in settled:
        if source is not None:
            groups.setdefault(source, []).append(offset)
    return groups
