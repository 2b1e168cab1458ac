r"""Dead letters: messages that move from their queue to a dead-letter destination, with the reason.

A message is appended to the dead-letter destination and settled in its queue in one transaction (``Store.together``),
so after a crash it is in one of the two places. If one of them is in memory, no transaction is possible; then the
message is settled once it is stored at its new place.

    bury -> waiting -> (a cold read) -> appended -> the store has decided -> settled
                                    \-> no room, no rule, no disk: held back, and tried again later

Invariants: a dead letter that waits here is BURIED in its queue (``queues.message_states``) until it is settled here.
One turn moves a bounded number. Each log has at most one cold read in progress. Letters that are held back are counted
in ``Timing.deferred``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from radiator.broker import admission
from radiator.broker.clients.receipts import AllOf
from radiator.broker.logs import cursor_names
from radiator.broker.logs.delivery_times import is_dead_letter
from radiator.broker.logs.header_values import header_value
from radiator.broker.queues import end_reasons
from radiator.broker.queues.recorder import DEAD_LETTERED, DROPPED
from radiator.clock import NS_PER_SECOND, Now, WallNs
from radiator.errors import ProtocolError, StorageError
from radiator.stomp.headers import escape, split_block
from radiator.storage.batch import RECORD_OVERHEAD_BYTES
from radiator.storage.header import MISSING
from radiator.storage.memory import MemoryPartition

if TYPE_CHECKING:
    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.outcomes.delivery_log import DeliveryLog
    from radiator.broker.outcomes.dropped import DroppedLog
    from radiator.broker.queues.queue import QueueSource
    from radiator.storage.batch import RecordBatch

log = logging.getLogger("radiator.broker")

COUNTERS = {
    end_reasons.REJECTED: "dead_lettered_rejected",
    end_reasons.MAX_DELIVERIES: "dead_lettered_max_deliveries",
    end_reasons.EXPIRED: "dead_lettered_expired",
    end_reasons.UNACKED: "dead_lettered_unacked",
}
HEADERS = ("dlq-reason", "dlq-destination", "dlq-deliveries", "dlq-time")
SUBSCRIPTION = "dlq-subscription"
RECEIVED = "dlq-received"
HOPS = "dlq-hops"
HOPS_MAX = 8  # moves in a row without a consumer in between; more are taken for a circle
RUN_MAX = 500  # moves in one turn: 5 ms
LOOP_HINT = f"{HOPS_MAX} moves from one dead-letter destination to the next; check dead_letter: in the rules"
PAUSE_NS, PAUSE_MOST_NS = NS_PER_SECOND, 60 * NS_PER_SECOND

_OURS = tuple(name.encode() + b":" for name in (*HEADERS, SUBSCRIPTION, RECEIVED, HOPS))
_hops = header_value(HOPS)
_received = header_value(RECEIVED)


class DeadLetter(NamedTuple):
    """A message that moves to a dead-letter destination.

    Attributes:
        source: The source of its queue.
        offset: Its offset.
        reason: Why it moves, for the header ``dlq-reason``.
        deliveries: Its delivery count.
        to: The dead-letter destination of its queue at the time when the move began.
        transaction: The id of the transaction that refused it; empty if there was none.
        outcome: The receipts that wait for the move; None if there are none.
    """

    source: QueueSource
    offset: int
    reason: str
    deliveries: int
    to: str
    transaction: str = ""
    outcome: OutcomeWaiters | None = None

    def settle(self) -> None:
        """Settle the message, which is not moved, in its queue. Receipts then wait for the cursor."""
        self.source.settle([self.offset], DROPPED, self.transaction)
        self.end(True)

    def end(self, by_cursor: bool = False) -> None:
        """Report the outcome to the receipts that wait. If ``by_cursor``, they go on to wait for the cursor."""
        if self.outcome is not None:
            self.outcome.known(by_cursor)


class OutcomeWaiters:
    """Receipts that wait for the outcome of dead letters, and then for the cursors if an outcome is only in a cursor.

    Args:
        core: The core of the broker.
        letters: The number of dead letters.
        waiters: The receipts.
    """

    __slots__ = ("_by_cursor", "_core", "_left", "_waiters")

    def __init__(self, core: Core, letters: int, waiters: list[Any]) -> None:
        self._core = core
        self._left = letters
        self._waiters = waiters
        self._by_cursor = False

    def known(self, by_cursor: bool) -> None:
        """Count one dead letter whose outcome is known, and settle the receipts after the last one."""
        self._left -= 1
        self._by_cursor |= by_cursor
        if self._left:
            return
        done = AllOf(self._waiters)
        if self._by_cursor:
            done.wait_for(self._core.cursor_waiters(False))
        done.settle()


class DeadLetters:
    """The dead letters of one broker that are being moved.

    Args:
        core: The core of the broker.
        receiver: Returns the destination of a name, created if need be, for a message that is about to be sent to it.
        dropped: The log of dropped messages.
        delivery_log: The log of deliveries.
    """

    __slots__ = ("_new", "_core", "_delivery_log", "_dropped", "_held", "_loading", "_pauses", "_receiver",
                 "_waiters", "_waiting")  # fmt: skip

    def __init__(
        self,
        core: Core,
        receiver: Callable[[str], Destination],
        dropped: DroppedLog,
        delivery_log: DeliveryLog,
    ) -> None:
        self._core = core
        self._receiver = receiver
        self._dropped = dropped
        self._delivery_log = delivery_log
        self._new: list[DeadLetter] = []  # since the last run()
        self._waiters: list[Any] = []  # receipts that wait for all of these; the next run() takes them along
        self._waiting: deque[DeadLetter] = deque()
        self._loading: dict[Feed, LetterRead] = {}
        self._held: dict[str, HeldBack] = {}  # by dead-letter destination
        self._pauses: dict[str, int] = {}  # the last pause in ns, by dead-letter destination that fails

    @property
    def waiting(self) -> bool:
        """True if ``run`` has something to do."""
        return bool(self._waiting or self._new)

    @property
    def crowded(self) -> bool:
        """True if more dead letters wait than one turn moves. Other work that adds dead letters should then wait."""
        return len(self._waiting) + len(self._new) >= RUN_MAX

    def bury(self, letters: list[DeadLetter]) -> None:
        """Move messages to their dead-letter destinations. In their queues they are buried already."""
        self._new += letters

    def waiter_lists(self) -> list[list[Any]]:
        """Return the lists to which a receipt adds itself to wait for the messages that its frame has buried."""
        return [self._waiters] if self._new else []

    def run(self) -> None:
        """Move waiting messages, at most RUN_MAX. The store takes the appended messages in this turn or the next."""
        buried, self._new = self._new, []
        if self._waiters:
            outcome = OutcomeWaiters(self._core, len(buried), self._waiters)
            buried, self._waiters = [each._replace(outcome=outcome) for each in buried], []
        self._waiting += buried
        for _ in range(min(RUN_MAX, len(self._waiting))):
            letter = self._waiting.popleft()
            held = self._held.get(letter.to)
            if held is not None:
                held.add(letter)
                continue
            partition = letter.source.feed.partition
            batch = partition.read(letter.offset) if letter.offset >= partition.log_start_offset else None
            if batch is not None:
                self.move(letter, batch)
            elif letter.offset < partition.log_start_offset or isinstance(partition, MemoryPartition):
                self.settle_lost(letter)
            else:
                self._load(letter)

    def _load(self, letter: DeadLetter) -> None:
        feed = letter.source.feed
        loading = self._loading.get(feed)
        if loading is not None:
            loading.letters.append(letter)
            return
        self._loading[feed] = loading = LetterRead(self, letter)
        feed.load(letter.offset, loading)

    def loaded(self, feed: Feed, others: list[DeadLetter], batch: RecordBatch | None) -> None:
        """Continue after a cold read whose own letter is dealt with.

        Letters in the same batch move at once; the others wait for the next run.

        Args:
            feed: The partition reader.
            others: Letters of the same log.
            batch: The batch that was read; None if there is none.
        """
        del self._loading[feed]
        moved = 0
        for letter in others:
            if batch is not None and moved < RUN_MAX and batch.base_offset <= letter.offset < batch.next_offset:
                self.move(letter, batch)
                moved += 1
            else:
                self._waiting.append(letter)

    def move(self, letter: DeadLetter, batch: RecordBatch) -> None:
        """Move a message that is in this batch."""
        source, offset = letter.source, letter.offset
        index = batch.index_at(offset)
        if index >= len(batch) or batch.offsets[index] != offset:
            letter.settle()  # maintenance has removed it
        elif not source.queue.filter.takes(source.feed.partition.name, batch, index):
            source.settle_foreign([offset])
            letter.end()
        elif (hops := hops_of(batch, index)) > HOPS_MAX:
            self._core.stats.count(dropped_in_circles=1)
            self._dropped.add(source.queue.name, "dead letters in circles", 1, LOOP_HINT)
            letter.settle()
        else:
            try:
                self._append(letter, batch, index, hops)
            except (ProtocolError, StorageError) as error:
                self.hold_back(letter, str(error))

    def settle_lost(self, letter: DeadLetter) -> None:
        """Settle a message that its log has lost."""
        letter.settle()
        letter.source.queue.lost(letter.source, 1, letter.offset, letter.offset)

    def _append(self, letter: DeadLetter, batch: RecordBatch, index: int, hops: int) -> None:
        core, source = self._core, letter.source
        destination = self._receiver(letter.to)
        if core.files_refused is not None and destination.policy.settings.store == "file":
            raise core.files_refused
        origin, subscription = source.queue.name, None
        owner = core.destinations.get(origin)
        if owner is None or owner.queue is not source.queue:
            subscription = origin if origin.startswith((cursor_names.SUBSCRIPTION, cursor_names.GROUP)) else None
            origin = batch.names[batch.destination_ids[index]]
        body = batch.bodies[index]
        if destination.queue is not None:
            core.stats.count(dropped_oldest=admission.bring(destination.queue, len(body)))
        partition = _choose_feed(destination, batch.blocks[index]).partition
        now_ns = WallNs(max(core.timing.now.wall, partition.last_receive_ns))
        block = stamp(batch.blocks[index], letter, origin, subscription, now_ns, received(batch, index), hops)
        partition.check()
        self._delivery_log.check([source])
        partition.make_room(1, len(body) + len(block))
        event_ns = MISSING if batch.event_ns is None else batch.event_ns[index]
        transmit_ns = MISSING if batch.transmit_ns is None else batch.transmit_ns[index]
        partition.append(
            destination.name,
            block,
            body,
            now_ns,
            None if event_ns == MISSING else event_ns,
            None if transmit_ns == MISSING else transmit_ns,
        )
        core.count_pending(len(body) + len(block) + RECORD_OVERHEAD_BYTES)
        if destination.queue is not None and destination.limited:
            destination.queue.appended(partition, 1)
        if source.cursor.stored and not isinstance(partition, MemoryPartition):
            acks = [(source.cursor, [letter.offset])]
            self._delivery_log.add({source: [letter.offset]}, DEAD_LETTERED, letter.transaction)
            core.store.together([partition], acks, partial(self.decided, letter, True))
        else:
            partition.open_batch.waiters.append(AppendedLetter(self, letter))

    def decided(self, letter: DeadLetter, together: bool, holds: bool) -> None:
        """Process the result of an append.

        Args:
            letter: The dead letter.
            together: True if the append and the cursor were one transaction.
            holds: True if the message is stored at its new place.
        """
        if not holds:
            self.hold_back(letter, "it could not be stored")
            return
        self._pauses.pop(letter.to, None)
        self._core.stats.count(**{COUNTERS[letter.reason]: 1})
        if together:
            letter.source.settled_in_journal([letter.offset])
        else:
            letter.source.settle([letter.offset], DEAD_LETTERED, letter.transaction)
            letter.source.flush()
        letter.end(not together)

    def hold_back(self, letter: DeadLetter, why: str) -> None:
        """Keep a message in its queue and try again after a pause. Later ones for its destination wait with it."""
        name = letter.to
        held = self._held.get(name)
        if held is None:
            pause_ns = min(2 * self._pauses.get(name, PAUSE_NS // 2), PAUSE_MOST_NS)
            self._pauses[name] = pause_ns
            held = self._held[name] = HeldBack(self, name)
            self._core.timing.after(pause_ns, held)
            self._core.peer_log.line(
                logging.WARNING,
                "dead letters that stay in their queue",
                name,
                "%s: dead letters for %s stay in their queue for now: %s (tried again in %d s)",
                letter.source.queue.name,
                name,
                why,
                pause_ns // NS_PER_SECOND,
                logger=log,
            )
        held.add(letter)

    def retry(self, held: HeldBack) -> None:
        """Move the messages that were held back."""
        del self._held[held.name]
        self._core.timing.freed(len(held.letters))
        self._waiting += held.letters


class HeldBack:
    """Dead letters for one destination that cannot take them now."""

    __slots__ = ("_owner", "letters", "name")

    def __init__(self, owner: DeadLetters, name: str) -> None:
        self._owner = owner
        self.name = name
        self.letters: list[DeadLetter] = []

    def add(self, letter: DeadLetter) -> None:
        """Add a dead letter.

        Receipts do not wait for it any longer, because it may never move. The reason is stored, so it is a dead letter
        after a restart as well.
        """
        letter.end(letter.source.note_end(letter.offset, letter.reason, letter.deliveries))
        self.letters.append(letter._replace(outcome=None))
        letter.source.queue.timing.count(deferred=1)

    def due(self, now: Now) -> None:
        """Try again: the pause is over (``Timer``)."""
        self._owner.retry(self)


class LetterRead:
    """A cold read for a dead letter (``Waiter``).

    Attributes:
        letters: Other dead letters of the same log, which wait for the same read.
    """

    __slots__ = ("_letter", "_owner", "letters", "waits")

    def __init__(self, owner: DeadLetters, letter: DeadLetter) -> None:
        self._owner = owner
        self._letter = letter
        self.letters: list[DeadLetter] = []
        self.waits = True

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """Process the result of the cold read."""
        found = batch if batch is not None and len(batch) and batch.next_offset > offset else None
        if found is not None:
            self._owner.move(self._letter, found)
        elif skip_to is not None and skip_to > offset:
            self._owner.settle_lost(self._letter)
        else:
            self._owner.hold_back(self._letter, "it could not be read")
        self._owner.loaded(self._letter.source.feed, self.letters, found)


class AppendedLetter:
    """A dead letter that waits for the batch to which it was appended, as a receipt does."""

    __slots__ = ("_letter", "_owner")

    def __init__(self, owner: DeadLetters, letter: DeadLetter) -> None:
        self._owner = owner
        self._letter = letter

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Process the result: the batch is stored, or storing it has failed."""
        self._owner.decided(self._letter, False, failure is None)


def hops_of(batch: RecordBatch, index: int) -> int:
    """Return how many moves in a row the next move of this message makes."""
    if not is_dead_letter(batch, index):
        return 1
    return int(_hops(batch.blocks[index]) or 1) + 1


def received(batch: RecordBatch, index: int) -> bytes | None:
    """Return when the broker first received this message, in nanoseconds since 1970, as digits.

    Returns:
        None for a dead letter that an earlier version has moved without the time.
    """
    return _received(batch.blocks[index]) if is_dead_letter(batch, index) else b"%d" % batch.receive_ns[index]


def stamp(
    block: bytes,
    letter: DeadLetter,
    origin: str,
    subscription: str | None,
    now_ns: WallNs,
    received: bytes | None,
    hops: int,
) -> bytes:
    """Return the header block of a dead letter: the message's own headers and the ``dlq-`` headers.

    Args:
        block: The message's header block.
        letter: The dead letter.
        origin: The destination that the message was sent to.
        subscription: The cursor name of its durable subscription; None for a queue.
        now_ns: The time of the move, in nanoseconds since 1970.
        received: The first receive time (``received``).
        hops: The number of moves in a row (``hops_of``).
    """
    lines = [line for line in block.split(b"\n") if line and not line.startswith(_OURS)]
    values = (letter.reason, origin, letter.deliveries, now_ns)
    lines += [f"{name}:{escape(str(value), '1.2')}".encode() for name, value in zip(HEADERS, values, strict=True)]
    if subscription is not None:
        lines.append(f"{SUBSCRIPTION}:{escape(subscription, '1.2')}".encode())
    if received is not None:
        lines.append(b"%b:%b" % (RECEIVED.encode(), received))
    if hops > 1:
        lines.append(f"{HOPS}:{hops}".encode())
    return b"\n".join(lines)


def _choose_feed(destination: Destination, block: bytes) -> Feed:
    """Return the partition of a dead-letter destination that the message's key chooses.

    The ``partition`` header is ignored, because it was meant for another destination.
    """
    if len(destination.feeds) == 1 and not destination.policy.priority:
        return destination.feeds[0]
    headers = {name: value for name, value in split_block(block) if name != "partition"}
    try:
        return destination.choose(headers) or destination.next_feed()
    except ProtocolError:  # a bad priority: its own destination has no priority levels and did not check it
        return destination.choose({}) or destination.next_feed()
