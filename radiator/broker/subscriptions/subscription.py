"""A subscription: one SUBSCRIBE of one session, whatever its pattern matches.

It holds what is in flight to the client, in the order of delivery, and answers one question for those who deliver:
how many messages may go out now (``credit``). Credit comes back only by ack, nack or requeue.

Each delivery under a client ack mode has a number, which its session counts and never uses again
(``docs/adr/0036-delivery-numbers.md``). A message that is delivered twice has two numbers.

Invariants: ``in_flight`` is ordered by delivery number and is empty under ``ack:auto``; a subscription that is closed
holds nothing and is in no feed, queue or session.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, TypeAlias

from radiator.broker import wire
from radiator.broker.session import AutoAck
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
MESSAGE_IDS_SPARE = 64  # entries of MessageIds that may be out of date before it is built anew

Number: TypeAlias = str  # a delivery number, as it stands in the ack id
InFlight = tuple["QueueSource | None", int, bytes]  # None: of a topic; offset; prefix of the log's message ids


class MessageIds:
    """Find deliveries in flight by message id, for clients that acknowledge by it (STOMP 1.0 and 1.1, and some in 1.2).

    ``first`` has the oldest delivery of each message, ``more`` those of the same message that several queues have
    handed out. What is not in flight any more is removed when there is too much of it.

    Args:
        in_flight: what the subscription holds; the same object for as long as the subscription lasts.
    """

    __slots__ = ("_in_flight", "first", "more")

    def __init__(self, in_flight: Mapping[Number, InFlight]) -> None:
        self._in_flight = in_flight
        self.first: dict[str, Number] = {}
        self.more: dict[str, list[Number]] = {}
        self._build()

    def add(self, log: bytes, offsets: Iterable[int], numbers: Iterable[Number]) -> None:
        """Add deliveries of one log, which are in flight already."""
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
        "lost",
        "message_ids",
        "patterns",
        "pledged",
        "prefetch",
        "queues",
        "readers",
        "reading",
        "right",
        "selection",
        "session",
        "since_ns",
        "tag",
        "told_slow",
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
        self.in_flight: dict[Number, InFlight] = {}
        self.message_ids: MessageIds | None = None  # once the client has acknowledged by message id
        self.lost: tuple[int, int] | None = None  # ``client``: the lowest and highest number that timed out
        self.pledged: dict[Number, Transaction] = {}  # what open transactions are to settle, of what may time out
        self.readers: dict[Feed, Reader] = {}
        self.reading = 0  # readers that have not reached their stop position
        self.queues: list[Queue] = []
        self.awaited: dict[Queue, None] = {}  # those whose next owner waits until this one holds nothing of them
        self.destinations: dict[Destination, None] = {}  # those whose ``subscribers`` counts this one
        self._prefixes: dict[bytes, bytes] = {}

    def permit(self, rights: Rights) -> None:
        """What was asked for, as far as the user may have it: also of destinations that are born later."""
        self.patterns: PatternSet | Permitted = (
            self.asked if rights.covers_all(self.right) else Permitted(self.asked, rights, self.right)
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
            session.held -= sum(source is not None for source, _, _ in self.in_flight.values())
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
        first = session.deliveries
        session.deliveries += len(tails)
        numbers = list(map(str, range(first, session.deliveries)))
        log = feed.wire.id_prefix
        self.in_flight.update(zip(numbers, zip(repeat(source), offsets, repeat(log)), strict=False))
        if session.reached is not None and session.reached.get(log, -1) < offsets[-1]:
            session.reach(log, offsets[-1])
        if self.message_ids is not None:
            self.message_ids.add(log, offsets, numbers)
        if source is not None and source.timeouts is not None:
            source.timeouts.start(self, offsets, numbers)
        if self.shares_window and (source is not None or session.capped):
            session.held += len(tails)
        session.send(wire.frames(prefix, tails, first))

    def find(self, message_id: str, answered: Container[Delivery] = ()) -> Number | None:
        """The oldest delivery of this message that is in flight here, and not among those ``answered``."""
        if self.message_ids is None:
            self.message_ids = MessageIds(self.in_flight)
        first = self.message_ids.first.get(message_id)
        if first is None or (first in self.in_flight and (self, first) not in answered):
            return first
        more = self.message_ids.more.get(message_id, ())
        return next((each for each in more if each in self.in_flight and (self, each) not in answered), None)

    def take(self, numbers: Sequence[Number]) -> list[InFlight]:
        """Remove those of these deliveries that are in flight here: an answer ``covered`` them."""
        in_flight = self.in_flight
        if self.pledged:
            for number in numbers:
                self.pledged.pop(number, None)
        if self.lost is not None and self.ack == CLIENT and int(numbers[-1]) > self.lost[1]:
            self.lost = None
        return self._release([in_flight.pop(number) for number in numbers if number in in_flight])

    def take_one(self, number: Number) -> InFlight | None:
        """The same under ``client-individual``; None if it is not in flight here."""
        delivery = self.in_flight.pop(number, None)
        if delivery is not None and self.shares_window and (delivery[0] is not None or self.session.capped):
            self.session.held -= 1
        return delivery

    def is_timed(self, number: Number) -> bool:
        """Whether this, which is in flight here, has to be answered in time."""
        source = self.in_flight[number][0]
        return source is not None and source.timeouts is not None

    def covered(self, number: Number) -> list[Number]:
        """The deliveries that an answer to this one answers: under ``client`` it is everything delivered before it too
        (STOMP 1.2, "ACK" and "NACK")."""
        if self.ack != CLIENT:
            return [number]
        numbers = []
        for each in self.in_flight:
            numbers.append(each)
            if each == number:
                break
        return numbers

    def take_back(self, numbers: Iterable[Number]) -> list[InFlight]:
        """Remove those of these deliveries that are in flight here and that no open transaction has answered: they were
        not answered in time."""
        lost = [number for number in numbers if number in self.in_flight and number not in self.pledged]
        if lost:
            lowest, highest = min(map(int, lost)), max(map(int, lost))
            self.session.lost = max(self.session.lost, highest)
            if self.ack == CLIENT:
                before = self.lost or (lowest, highest)
                self.lost = (min(lowest, before[0]), max(highest, before[1]))
        return self._release([self.in_flight.pop(number) for number in lost])

    def take_some(self, most: int) -> list[InFlight]:
        """Remove up to ``most`` deliveries that are in flight, the oldest first: the subscription has ended."""
        taken = [(number, self.in_flight.pop(number)) for number in list(islice(self.in_flight, most))]
        lost = [int(number) for number, (source, _, _) in taken if source is not None and not source.closed]
        self.session.lost = max([self.session.lost, *lost[-1:]])
        return self._release([delivery for _, delivery in taken])

    def _release(self, settled: list[InFlight]) -> list[InFlight]:
        if self.shares_window:
            counts = self.session.capped
            self.session.held -= sum(counts or source is not None for source, _, _ in settled)
        return settled


Delivery = tuple[Subscription, Number]


def by_source(settled: Iterable[InFlight]) -> dict[QueueSource, list[int]]:
    """Group settled messages by the queue source they belong to; those of topics belong to none."""
    groups: dict[QueueSource, list[int]] = {}
    for source, offset, _ in settled:
        if source is not None:
            groups.setdefault(source, []).append(offset)
    return groups
