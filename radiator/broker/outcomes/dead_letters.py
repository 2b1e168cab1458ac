"""Dead letters: messages that leave their queue for another one, with the reason.

A message is appended to the dead-letter destination and settled where it was in one transaction (``Store.together``),
so a crash finds it in one of the two places. Where one of them is in memory there is no transaction to have: then it is
settled once the other place has it.

    bury -> buried -> waiting -> (a cold read) -> appended -> the store has decided -> settled
                                              \\-> no room, no rule, no disk: held back, and tried again

Invariants: what is here is unsettled, in nobody's hands, and in no other list of its source; whatever happens, it is
settled here or stays a message of its queue; one turn moves a bounded number; of one log one cold read is under way.
What is held back is counted in ``Timing.deferred``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from radiator.broker.logs import cursor_names
from radiator.broker.logs.header_values import header_value
from radiator.broker.logs.moments import buried
from radiator.broker.queues import overflow
from radiator.clock import NS_PER_SECOND, Now, WallNs
from radiator.errors import ProtocolError, StorageError
from radiator.stomp.headers import escape, split_block
from radiator.storage.batch import RECORD_OVERHEAD_BYTES
from radiator.storage.format import MISSING
from radiator.storage.memory import MemoryPartition

if TYPE_CHECKING:
    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.outcomes.dropped import DroppedLog
    from radiator.broker.queues.queue import QueueSource
    from radiator.storage.batch import RecordBatch

log = logging.getLogger("radiator.broker")

HEADERS = ("dlq-reason", "dlq-destination", "dlq-deliveries", "dlq-time")
SUBSCRIPTION = "dlq-subscription"
RECEIVED = "dlq-received"
HOPS = "dlq-hops"
HOPS_MAX = 8  # from grave to grave, with nobody between who sends it on: then it goes in circles
RUN_MAX = 500  # are moved in one turn: 5 ms
LOOP_HINT = f"{HOPS_MAX} times from one dead-letter destination to the next; look at dead_letter: in the rules"
PAUSE_NS, PAUSE_MOST_NS = NS_PER_SECOND, 60 * NS_PER_SECOND

_OURS = tuple(name.encode() + b":" for name in (*HEADERS, SUBSCRIPTION, RECEIVED, HOPS))
_hops = header_value(HOPS)
_received = header_value(RECEIVED)


class DeadLetter(NamedTuple):
    """A message that is moved ``to`` another destination: the ``dead_letter`` of its queue when the move began.

    ``deliveries``: how often the message was delivered."""

    source: QueueSource
    offset: int
    reason: str
    deliveries: int
    to: str
    outcome: OutcomeWaiters | None = None

    def settle(self) -> None:
        """It is done with where it was, without a transaction: whoever waits has to wait for the cursor."""
        self.source.settle([self.offset])
        self.leave(True)

    def leave(self, by_cursor: bool = False) -> None:
        """It is no letter any more, and it is known what has become of it."""
        self.source.count_dead_letters(-1)
        self.end(by_cursor)

    def end(self, by_cursor: bool = False) -> None:
        """It is known what has become of it."""
        if self.outcome is not None:
            self.outcome.known(by_cursor)


class OutcomeWaiters:
    """Receipts that wait until it is known what has become of some letters; if a cursor has to tell, until it does."""

    __slots__ = ("_by_cursor", "_core", "_left", "_waiters")

    def __init__(self, core: Core, letters: int, waiters: list[Any]) -> None:
        self._core = core
        self._left = letters
        self._waiters = waiters
        self._by_cursor = False

    def known(self, by_cursor: bool) -> None:
        """One of them."""
        self._left -= 1
        self._by_cursor |= by_cursor
        if self._left:
            return
        for waiters in self._core.cursor_waiters(False) if self._by_cursor else []:
            waiters += self._waiters
            return
        for each in self._waiters:
            each.settle()


class DeadLetters:
    """All of one broker."""

    __slots__ = ("_new", "_core", "_dropped", "_held", "_loading", "_pauses", "_receiver", "_waiters",
                 "_waiting")  # fmt: skip

    def __init__(self, core: Core, receiver: Callable[[str], Destination], dropped: DroppedLog) -> None:
        """``receiver`` gives the destination of a name, created if need be, to which a message is about to be sent."""
        self._core = core
        self._receiver = receiver
        self._dropped = dropped
        self._new: list[DeadLetter] = []  # since the last run()
        self._waiters: list[Any] = []  # who waits for all of these; the next run() takes them along
        self._waiting: deque[DeadLetter] = deque()
        self._loading: dict[Feed, LetterRead] = {}
        self._held: dict[str, HeldBack] = {}  # by dead-letter destination
        self._pauses: dict[str, int] = {}  # the last ones of those that fail

    @property
    def waiting(self) -> bool:
        """True if ``run`` has something to do."""
        return bool(self._waiting or self._new)

    @property
    def crowded(self) -> bool:
        """True if more are waiting than one turn moves: who can wait with more of them should."""
        return len(self._waiting) + len(self._new) >= RUN_MAX

    def bury(self, letters: list[DeadLetter]) -> None:
        """These messages are no longer offered to consumers; their queues have a dead-letter destination."""
        for each in letters:
            each.source.count_dead_letters(1)
        self._new += letters

    def waited(self) -> list[list[Any]]:
        """Where the receipt of a frame waits that may have buried something; nowhere, if nothing is on its way."""
        return [self._waiters] if self._new else []

    def run(self) -> None:
        """Move what waits. What is appended here is taken by the store in this turn or the next."""
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
                self.gone(letter)
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
        """A cold read has ended, and the letter that it was for has been dealt with. Others in the batch may go too; of
        the rest it is asked again whether they have to be read."""
        del self._loading[feed]
        moved = 0
        for letter in others:
            if batch is not None and moved < RUN_MAX and batch.base_offset <= letter.offset < batch.next_offset:
                self.move(letter, batch)
                moved += 1
            else:
                self._waiting.append(letter)

    def move(self, letter: DeadLetter, batch: RecordBatch) -> None:
        """The message is in this batch."""
        source, offset = letter.source, letter.offset
        index = batch.index_at(offset)
        if index >= len(batch) or batch.offsets[index] != offset:
            letter.settle()  # removed on purpose
        elif not source.queue.filter.takes(source.feed.partition.name, batch, index):
            source.skip([offset])
            letter.leave()
        elif (hops := hops_of(batch, index)) > HOPS_MAX:
            self._core.stats.count(dropped_in_circles=1)
            self._dropped.add(source.queue.name, "dead letters in circles", 1, LOOP_HINT)
            letter.settle()
        else:
            try:
                self._append(letter, batch, index, hops)
            except (ProtocolError, StorageError) as error:
                self.hold(letter, str(error))

    def gone(self, letter: DeadLetter) -> None:
        """The log has lost it."""
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
            core.stats.count(dropped_oldest=overflow.bring(destination.queue, len(body)))
        partition = _choose_feed(destination, batch.blocks[index]).partition
        now_ns = WallNs(max(core.timing.now.wall, partition.last_receive_ns))
        block = stamp(batch.blocks[index], letter, origin, subscription, now_ns, received(batch, index), hops)
        partition.check()
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
            core.store.together([partition], acks, partial(self.decided, letter, True))
        else:
            partition.open_batch.waiters.append(AppendedLetter(self, letter))

    def decided(self, letter: DeadLetter, together: bool, holds: bool) -> None:
        """The message is safe at its new place, or will not be there; and so is the cursor if it went ``together``."""
        if not holds:
            self.hold(letter, "it could not be stored")
            return
        self._pauses.pop(letter.to, None)
        self._core.stats.count(dead_lettered=1)
        letter.source.settle([letter.offset])
        letter.source.flush()  # a snapshot of the cursors, which may replace what the journal has, must have it
        letter.leave(not together)

    def hold(self, letter: DeadLetter, why: str) -> None:
        """It stays where it is; what goes to the same place waits with it."""
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

    def again(self, held: HeldBack) -> None:
        """Try those that were held back."""
        del self._held[held.name]
        self._core.timing.freed(len(held.letters))
        self._waiting += held.letters


class HeldBack:
    """Those that cannot go to one destination now."""

    __slots__ = ("_owner", "letters", "name")

    def __init__(self, owner: DeadLetters, name: str) -> None:
        self._owner = owner
        self.name = name
        self.letters: list[DeadLetter] = []

    def add(self, letter: DeadLetter) -> None:
        """Nobody waits for a letter that may have to wait for ever; but it is stored that it is one."""
        letter.end(letter.source.note_end(letter.offset, letter.reason, letter.deliveries))
        self.letters.append(letter._replace(outcome=None))
        letter.source.queue.timing.count(deferred=1)

    def due(self, now: Now) -> None:
        """Their pause is over."""
        self._owner.again(self)


class LetterRead:
    """A message that has to be read from the disk first (``Waiter``); ``letters``: others of its log meanwhile."""

    __slots__ = ("_letter", "_owner", "letters", "waits")

    def __init__(self, owner: DeadLetters, letter: DeadLetter) -> None:
        self._owner = owner
        self._letter = letter
        self.letters: list[DeadLetter] = []
        self.waits = True

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """The cold read has ended."""
        found = batch if batch is not None and len(batch) and batch.next_offset > offset else None
        if found is not None:
            self._owner.move(self._letter, found)
        elif skip_to is not None and skip_to > offset:
            self._owner.gone(self._letter)
        else:
            self._owner.hold(self._letter, "it could not be read")
        self._owner.loaded(self._letter.source.feed, self.letters, found)


class AppendedLetter:
    """Waits for the batch that a message was appended to, as a receipt does."""

    __slots__ = ("_letter", "_owner")

    def __init__(self, owner: DeadLetters, letter: DeadLetter) -> None:
        self._owner = owner
        self._letter = letter

    def settle(self, failure: ProtocolError | None = None) -> None:
        """The batch is stored, or could not be."""
        self._owner.decided(self._letter, False, failure is None)


def hops_of(batch: RecordBatch, index: int) -> int:
    """How many moves in a row this one would be."""
    if not buried(batch, index):
        return 1
    return int(_hops(batch.blocks[index]) or 1) + 1


def received(batch: RecordBatch, index: int) -> bytes | None:
    """When the broker first had this message; not known of a letter that an earlier version has moved."""
    return _received(batch.blocks[index]) if buried(batch, index) else b"%d" % batch.receive_ns[index]


def stamp(
    block: bytes,
    letter: DeadLetter,
    origin: str,
    subscription: str | None,
    now_ns: WallNs,
    received: bytes | None,
    hops: int,
) -> bytes:
    """The message's header block with what happened to it. ``subscription``: the cursor's name, if it was one's."""
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
    """Of several partitions the one that the message's key chooses. A number that its sender forced was another's."""
    if len(destination.feeds) == 1 and not destination.policy.priority:
        return destination.feeds[0]
    headers = {name: value for name, value in split_block(block) if name != "partition"}
    try:
        return destination.choose(headers) or destination.next_feed()
    except ProtocolError:  # a priority that is none: nobody asked for one where it came from
        return destination.choose({}) or destination.next_feed()
