"""Prepare a COMMIT: compute its effects before any of them is applied, in as many turns as necessary.

The messages to one log become a run, which is appended as a whole. Acknowledged deliveries are grouped by the logs that
they came from. Other clients can change little meanwhile: rights, destinations, new message ids, returned deliveries.
``holds`` compares these without looking at each message.

This module knows transactions, plans and deliveries. It does not know limits.

Invariant: preparation changes nothing, except that destinations exist afterwards.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from radiator.broker import admission
from radiator.broker.admission import Dropped
from radiator.broker.budget import PORTION, PORTION_A_UNIT
from radiator.broker.headers import refusals
from radiator.broker.headers.subscribe import CLIENT
from radiator.broker.publishing.sending import Plan, plan_for, read_headers
from radiator.broker.transactions import transactional_acks
from radiator.errors import ProtocolError
from radiator.routing.rules import TEMPORARY
from radiator.storage.batch import Run

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Delivery, InFlight, Session, Subscription, Transaction
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.headers.refusals import Refusal
    from radiator.broker.queues.consumer import Number
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame, Head
    from radiator.storage.partition import Partition

PLAN_UNITS = 8  # per distinct header block of a SEND
FRAME_UNITS = 2


class Messages:
    """The messages of a transaction to one log.

    Args:
        plan: The plan of the first message.

    Attributes:
        run: The messages.
        expected: The offset that the first message must get, or None.
        copies: The number of copies by ``archive:`` rules among them.
        copied_bytes: The bytes of the bodies of these copies.
        waiting: The number of messages for each queue with a limit.
        dues: For each queue with scheduled messages, their numbers in the run and their due times, in nanoseconds since
            1970.
    """

    __slots__ = ("copied_bytes", "copies", "dues", "expected", "plan", "run", "waiting")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.run = Run()
        self.expected: int | None = None
        self.copies = self.copied_bytes = 0
        self.waiting: dict[Queue, int] = {}
        self.dues: dict[Queue, tuple[array[int], array[int]]] = {}

    def add(self, plan: Plan, body: bytes) -> None:
        """Add a message with this plan and body."""
        run, number = self.run, len(self.run)
        if plan.expected is not None:
            self._expect(plan.expected - number)
        run.add(plan.name, plan.block, body, plan.event_ns, plan.transmit_ns)
        run.request_sync(plan.sync)
        if plan.identity is not None:
            run.ids.add(plan.identity, number)
        if plan.counted is not None:
            self.waiting[plan.counted] = self.waiting.get(plan.counted, 0) + 1
        queue = plan.destination.queue
        if plan.due_ns and queue is not None:
            numbers, dues = self.dues.setdefault(queue, (array("q"), array("q")))
            numbers.append(number)
            dues.append(plan.due_ns)

    def add_copy(self, plan: Plan, body: bytes) -> None:
        """Add a copy of a message by an ``archive:`` rule."""
        self.add(plan, body)
        self.copies += 1
        self.copied_bytes += len(body)

    def _expect(self, first: int) -> None:
        """Note the offset that the first message must get.

        Raises:
            ProtocolError: Another message of the transaction contradicts it.
        """
        if first < 0 or self.expected not in (None, first):
            raise ProtocolError(
                "conflict",
                "two messages of the transaction contradict each other in expected-offset",
                "Nothing was stored. Each message of a transaction counts the messages before it to the same log.",
            )
        self.expected = first

    def remove(self, left_out: Container[int]) -> None:
        """Remove the messages with these numbers."""
        kept = [number for number in range(len(self.run)) if number not in left_out]
        self.run = self.run.select(kept)
        for each, (numbers, dues) in self.dues.items():
            there = dict(zip(numbers, dues, strict=True))
            still = [(number, there[before]) for number, before in enumerate(kept) if before in there]
            self.dues[each] = (array("q", [number for number, _ in still]), array("q", [due for _, due in still]))


class Acked:
    """The deliveries of one subscription that a transaction acknowledges.

    Attributes:
        keys: The delivery numbers.
        found: Their entries in ``in_flight``.
    """

    __slots__ = ("found", "keys")

    def __init__(self) -> None:
        self.keys: list[Number] = []
        self.found: list[InFlight] = []


class Prepared:
    """The prepared effects of a transaction.

    Args:
        broker: The services of the broker.
        session: The session.

    Attributes:
        messages: The messages by log.
        sent: For each destination with a limit or a rate, the number of messages and the bytes of their bodies.
        dropping: For each queue that drops on overflow, its messages in order: log, and number in the run.
        mandatory: The destinations that need a subscriber.
        repeated: For each log, the offset of the last stored message that the transaction repeats.
        repeats: The number of repeated messages.
        acked: The acknowledged deliveries by subscription.
        settled: The acknowledged offsets by source.
        refused: The NACKs in order, equal ones together.
        late: The number of answers whose delivery is not in flight.
        acked_late: True if an ACK is among these.
    """

    __slots__ = (
        "_answered",
        "_broker",
        "_destinations",
        "_generation",
        "_ids",
        "_rights",
        "_rules",
        "_session",
        "_temporary",
        "_walks",
        "acked",
        "acked_late",
        "dropping",
        "late",
        "mandatory",
        "messages",
        "refused",
        "repeated",
        "repeats",
        "sent",
        "settled",
    )

    def __init__(self, broker: Services, session: Session) -> None:
        self._broker = broker
        self._session = session
        self._generation = broker.generation
        self._rules = broker.rules
        self._rights = session.rights
        self._destinations: dict[str, Destination] = {}
        self._temporary: dict[str, Destination] = {}
        self._ids: dict[Partition, tuple[int, int]] = {}  # ids added and taken back there when ours were compared
        self._answered: dict[Subscription, set[Number]] = {}
        self._walks: dict[Subscription, Iterator[Number]] = {}  # over in_flight, for cumulative answers
        self.messages: dict[Partition, Messages] = {}
        self.sent: dict[Destination, tuple[int, int]] = {}
        self.dropping: dict[Queue, list[tuple[Partition, int]]] = {}
        self.mandatory: dict[Destination, None] = {}
        self.repeated: dict[Partition, int] = {}
        self.repeats = 0
        self.acked: dict[Subscription, Acked] = {}
        self.settled: dict[QueueSource, list[int]] = {}
        self.refused: list[tuple[Subscription, list[Number], Refusal]] = []
        self.late = 0
        self.acked_late = False

    def __len__(self) -> int:
        answered = [*(each.keys for each in self.acked.values()), *(keys for _, keys, _ in self.refused)]
        return sum(len(each.run) for each in self.messages.values()) + sum(map(len, answered))

    # --- preparation --------------------------------------------------------------------------------------------------

    def steps(self, transaction: Transaction) -> Steps:
        """Compute the effects of each frame, in steps.

        Raises:
            ProtocolError: A frame is refused.
        """
        budget = self._broker.budget
        yield from transactional_acks.check(self._broker, self._session, transaction)
        plans: dict[Head, Plan] = {}
        answers = iter(list(transaction.answers))
        for frame in list(transaction.frames):
            budget.spend(FRAME_UNITS)
            yield True
            if frame.head.command == "SEND":
                if self._broker.store.removals.names:
                    yield from self._broker.until_removed(frame.head.headers.get("destination", ""))
                self._send(frame, plans)
            else:
                yield from self._answer(frame, next(answers))

    def _send(self, frame: Frame, plans: dict[Head, Plan]) -> None:
        head = frame.head
        plan = plans.get(head)
        if plan is None:
            self._broker.budget.spend(PLAN_UNITS)
            headers = read_headers(self._broker, self._session, head)
            try:
                plan = plan_for(self._broker, self._session, head, headers)
            except Dropped as dropped:
                self._broker.stats.count(**{dropped.counter: 1})
                return
            for each in (plan, *plan.copies):
                self._destinations[each.name] = each.destination
            if plan.name.startswith(TEMPORARY):
                self._temporary[plan.name] = plan.destination
            elif "reply-to" not in head.headers and not plan.due_ns:
                plans[head] = plan
        feed = plan.feed or plan.destination.next_feed()
        partition = feed.partition
        messages = self.messages.get(partition)
        if messages is None:
            messages = self.messages[partition] = Messages(plan)
        if plan.identity is not None and self._is_repeat(partition, messages, plan.identity):
            self.repeats += 1
            return
        number = len(messages.run)
        messages.add(plan, frame.body)
        for copy in plan.copies:
            there = (copy.feed or copy.destination.next_feed()).partition
            if there not in self.messages:
                self.messages[there] = Messages(copy)
            self.messages[there].add_copy(copy, frame.body)
        if plan.mandatory:
            self.mandatory[plan.destination] = None
        if plan.rated or plan.counted is not None:
            count, size = self.sent.get(plan.destination, (0, 0))
            self.sent[plan.destination] = (count + 1, size + len(frame.body))
        if plan.counted is not None and plan.counted.settings.on_full in admission.DROPS:
            self.dropping.setdefault(plan.counted, []).append((partition, number))

    def _is_repeat(self, partition: Partition, messages: Messages, identity: bytes) -> bool:
        if partition not in self._ids:
            dedup = partition.dedup
            self._ids[partition] = (0, 0) if dedup is None else (dedup.added, dedup.taken_back)
        if identity in messages.run.ids:
            return True
        first = partition.find_duplicate(identity, self._broker.timing.now.wall)
        if first is None:
            return False
        self.repeated[partition] = max(first, self.repeated.get(partition, 0))
        return True

    def _answer(self, frame: Frame, answer: Delivery | None) -> Steps:
        keys: list[Number] = []
        found: list[InFlight] = []
        if answer is not None:
            yield from self._cover(keys, found, *answer)
        acks = frame.head.command == "ACK"
        if answer is None or not keys:
            self.late += 1
            self.acked_late |= acks
            return
        subscription = answer[0]
        if not acks:
            refusal = refusals.read_refusal(frame)
            last = self.refused[-1] if self.refused else None
            if last is not None and last[0] is subscription and last[2] == refusal:
                last[1].extend(keys)
            else:
                self.refused.append((subscription, keys, refusal))
            return
        acked = self.acked.get(subscription)
        if acked is None:
            acked = self.acked[subscription] = Acked()
        acked.keys += keys
        acked.found += found
        for part in self._broker.budget.portions(found):
            for source, offset, _ in part:
                if source is not None:
                    self.settled.setdefault(source, []).append(offset)
            yield True

    def _cover(self, keys: list[Number], found: list[InFlight], subscription: Subscription, key: Number) -> Steps:
        """Add the deliveries that an answer covers and that no earlier answer of the transaction covers, in steps."""
        answered = self._answered.setdefault(subscription, set())
        if subscription.closed or key not in subscription.in_flight or key in answered:
            return
        if subscription.ack != CLIENT:
            answered.add(key)
            keys.append(key)
            found.append(subscription.in_flight[key])
            return
        walk = self._walks.get(subscription)
        if walk is None:
            walk = self._walks[subscription] = iter(list(subscription.in_flight))
        for number, each in enumerate(walk, 1):
            delivery = subscription.in_flight.get(each)
            if delivery is not None:
                answered.add(each)
                keys.append(each)
                found.append(delivery)
            if each == key:
                return
            if number % PORTION == 0:
                self._broker.budget.spend(PORTION // PORTION_A_UNIT)
                yield True

    # --- validity -----------------------------------------------------------------------------------------------------

    def holds(self) -> bool:
        """Return False if another client has changed the basis of the prepared effects."""
        there = self._broker.destinations
        concerned = self._temporary if self._generation == self._broker.generation else self._destinations
        gone = any(there.get(name) is not each for name, each in concerned.items())
        changed = self._rights is not self._session.rights or self._rules is not self._broker.rules
        if gone or changed:
            return False
        self._generation = self._broker.generation
        return all(map(self._same_ids, self._ids)) and all(map(self._is_held, self.acked))

    def _same_ids(self, partition: Partition) -> bool:
        """Return False if another client has sent one of our message ids, or a repeated message may be gone."""
        ids, dedup, (added, taken_back) = self.messages[partition].run.ids, partition.dedup, self._ids[partition]
        if dedup is None:
            return True
        if partition in self.repeated and dedup.taken_back != taken_back:
            return False
        if dedup.added == added:
            return True
        self._broker.budget.spend((dedup.added - added) // PORTION_A_UNIT)
        self._ids[partition] = dedup.added, taken_back
        return not any(identity in ids for identity in dedup.since(added))

    def _is_held(self, subscription: Subscription) -> bool:
        acked = self.acked[subscription]
        return not subscription.closed and list(map(subscription.in_flight.get, acked.keys)) == acked.found
