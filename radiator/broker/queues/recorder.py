"""Rows about the deliveries of queues whose rule has ``record: deliveries``.

    delivered()   a consumer gets messages: when, who, and which delivery of each message it is
    settled()     they are settled: a row with a final outcome, stored in one entry of the journal with the offsets
    ended()       their deliveries have ended without that: a row with another outcome

A ``SourceRecord`` belongs to one cursor of a queue, the ``Recorder`` to the broker. Rows wait here until the end of the
turn, when ``outcomes.delivery_log`` appends them to their log (``docs/reliability.md``, "Recorded deliveries").

If their log cannot be written, rows wait here. When they have ``limits.DELIVERY_ROWS_BYTES_MAX``, the recorder is
``full``: queues with recorded deliveries deliver nothing, and settle nothing by themselves, until rows are stored
(``Queue.held_by_record``).

This module knows offsets, outcomes and header lines. It does not know logs or stores.
Invariant: an offset in ``Recorder.settled`` is in ``QueueMessages.storing`` of its cursor, and has a row in
``Recorder.blocks``.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from radiator import limits
from radiator.broker.queues.offset_runs import RunMap
from radiator.clock import BEFORE
from radiator.stomp.headers import escape
from radiator.storage.batch import RECORD_OVERHEAD_BYTES
from radiator.storage.cursor import ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from radiator.broker.queues.consumer import Consumer
    from radiator.broker.timers.timing import Timing
    from radiator.clock import WallNs
    from radiator.storage.batch import RecordBatch

# Final outcomes: every settled message has one row with one of them.
ACKED: Final = b"acked"
EXPIRED: Final = b"expired"
DEAD_LETTERED: Final = b"dead_lettered"
DROPPED: Final = b"dropped"
PURGED: Final = b"purged"
# The others: the message is delivered again.
NACKED: Final = b"nacked"
TIMED_OUT: Final = b"timed_out"
REQUEUED: Final = b"requeued"

FINAL: Final = (ACKED, EXPIRED, DEAD_LETTERED, DROPPED, PURGED)

LINES_MAX: Final = 1_000  # destinations, and consumers, of one log whose lines are stored

RUN_MIN: Final = 8  # consecutive messages of one delivery: fewer are stored one by one

Span = tuple[int, int]  # consecutive offsets: (start, stop)
Settled = tuple[list[int], list[Span]]  # the same offsets twice: one by one, and as spans

_UNTIMED: Final = b"\nsettled-at:%d\n" % BEFORE.wall


class Settling(Protocol):
    """The messages of one cursor, as far as this module uses them (``queues.messages.QueueMessages``)."""

    storing: set[int]

    @property
    def newest_ns(self) -> WallNs:
        """The receive time of the newest message of the log."""

    def deliveries(self, offset: int) -> int:
        """Return how often a message was delivered."""

    def destination_of(self, offset: int) -> str:
        """Return the destination of a message; empty if it is not known."""


class Rows(NamedTuple):
    """Rows that are stored together.

    Attributes:
        blocks: The header block of each row.
        settled: The offsets that are settled with them, by cursor.
        waiters: The receipts that wait for them.
        size_bytes: The memory of these rows, estimated.
    """

    blocks: list[bytes]
    settled: dict[Any, Settled]
    waiters: list[Any]
    size_bytes: int


class Recorder:
    """The rows of one broker that are not in their log yet.

    Attributes:
        blocks: The header block of each row.
        settled: The offsets that are to be settled with these rows, by cursor (``QueueMessages``).
        waiters: Receipts that wait until these offsets are settled in the journal.
        under_way: The number of groups of rows that are being stored.
        full: True if the rows that wait, and those under way, take as much memory as they may.
        held: The queues with consumers that deliver nothing because of that.
    """

    __slots__ = (
        "_all_bytes",
        "_size_bytes",
        "_untimed_after",
        "blocks",
        "full",
        "held",
        "settled",
        "under_way",
        "waiters",
    )

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.settled: dict[Any, Settled] = {}
        self.waiters: list[Any] = []
        self.under_way = 0
        self.full = False
        self.held: dict[Any, None] = {}
        self._untimed_after: int | None = None  # not None: rows lack the time, which is not before this
        self._size_bytes = 0  # of ``blocks``
        self._all_bytes = 0  # the same with the rows that are under way

    @property
    def waiting(self) -> bool:
        """True if there are rows to store, or receipts to send."""
        return bool(self.blocks or self.waiters)

    @property
    def unsettled(self) -> bool:
        """True if there are settled offsets that the journal may not have."""
        return bool(self.settled or self.under_way)

    def take(self, now_ns: WallNs) -> Rows:
        """Remove and return all rows. ``stored`` or ``put_back`` follows."""
        rows = Rows(self.blocks, self.settled, self.waiters, self._size_bytes)
        self.blocks, self.settled, self.waiters, self._size_bytes = [], {}, [], 0
        if self._untimed_after is not None:
            time = b"\nsettled-at:%d\n" % max(now_ns, self._untimed_after)
            self._untimed_after = None
            rows.blocks[:] = [block.replace(_UNTIMED, time, 1) for block in rows.blocks]
        self.under_way += 1
        return rows

    def take_waiters(self) -> list[Any]:
        """Remove and return the receipts that wait."""
        waiters, self.waiters = self.waiters, []
        return waiters

    def stored(self, rows: Rows) -> list[Any]:
        """Note that rows that were taken are stored, and return the queues that may deliver again."""
        self.under_way -= 1
        self._all_bytes -= rows.size_bytes
        self.full = self._all_bytes >= limits.DELIVERY_ROWS_BYTES_MAX
        if self.full or not self.held:
            return []
        held, self.held = self.held, {}
        return list(held)

    def put_back(self, rows: Rows) -> None:
        """Note that rows could not be stored: they are taken again, before later ones."""
        self.under_way -= 1
        self.blocks = rows.blocks + self.blocks
        self._size_bytes += rows.size_bytes
        for source, (offsets, spans) in self.settled.items():
            before = rows.settled.get(source, ([], []))
            rows.settled[source] = before[0] + offsets, before[1] + spans
        self.settled = rows.settled
        self.waiters = rows.waiters + self.waiters

    def add(self, blocks: list[bytes], untimed_after: int | None) -> None:
        """Add rows.

        Args:
            blocks: The header block of each row.
            untimed_after: Not None if the time is not known yet: they get it when they are taken, and not before this.
        """
        self.blocks += blocks
        if untimed_after is not None:
            self._untimed_after = max(untimed_after, self._untimed_after or 0)
        size_bytes = sum(map(len, blocks)) + RECORD_OVERHEAD_BYTES * len(blocks)
        self._size_bytes += size_bytes
        self._all_bytes += size_bytes
        self.full = self._all_bytes >= limits.DELIVERY_ROWS_BYTES_MAX

    def settle(self, source: Settling, offsets: Sequence[int], spans: list[Span]) -> None:
        """Settle offsets, which are given twice, with the rows that were just added."""
        settled = self.settled.setdefault(source, ([], []))
        settled[0].extend(offsets)
        settled[1].extend(spans)
        source.storing.update(offsets)


class SourceRecord:
    """The deliveries of one cursor of a queue.

    Args:
        recorder: The recorder of the broker.
        timing: The present time.
        source: The messages of the cursor.
        queue_name: The name of the queue.
        partition_name: The name of the log.
    """

    __slots__ = (
        "_heads",
        "_middle",
        "_recorder",
        "_runs",
        "_single",
        "_source",
        "_subscription",
        "_timing",
        "_whose",
    )

    def __init__(
        self, recorder: Recorder, timing: Timing, source: Settling, queue_name: str, partition_name: str
    ) -> None:
        self._recorder = recorder
        self._timing = timing
        self._source = source
        # The lines of a row up to ``delivered-at``, as a format in which ``%d`` is the offset. It is in one of the two.
        self._runs = RunMap()
        self._single: dict[int, bytes] = {}
        self._heads: dict[str, bytes] = {}
        self._whose: dict[str, bytes] = {}
        self._middle = f"message-partition:{escape(partition_name, '1.2')}\nmessage-offset:"
        self._subscription = f"\nmessage-subscription:{escape(queue_name, '1.2')}"

    def _head(self, destination: str) -> bytes:
        head = self._heads.get(destination)
        if head is None:
            named = f"message-destination:{escape(destination, '1.2')}\n" if destination else ""
            if len(self._heads) >= LINES_MAX:
                self._heads.clear()
            head = self._heads[destination] = _literal(f"{named}{self._middle}") + b"%d"
        return head

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def delivered(
        self, batch: RecordBatch, indexes: range | list[int], offsets: Sequence[int], consumer: Consumer, number: int
    ) -> None:
        """Note that a consumer gets messages of one batch.

        Args:
            batch: The batch.
            indexes: Which of its messages.
            offsets: Their offsets.
            consumer: The consumer.
            number: The delivery count of each message.
        """
        tail = b"%b\ndelivery:%d\ndelivered-at:%d" % (self._consumer(consumer), number, self._timing.now.wall)
        if len(batch.names) == 1:
            form = self._head(batch.names[0]) + tail
            if isinstance(offsets, range) and len(offsets) >= RUN_MIN:
                # Messages that are delivered again come one by one, so nothing is known of these.
                self._runs.set(offsets.start, offsets.stop, form)
            else:
                self._set(offsets, form)
            return
        by_name: dict[int, list[int]] = {}
        for index, offset in zip(indexes, offsets, strict=True):
            by_name.setdefault(batch.destination_ids[index], []).append(offset)
        for name, found in by_name.items():
            self._set(found, self._head(batch.names[name]) + tail)

    def _set(self, offsets: Sequence[int], form: bytes) -> None:
        if offsets[0] < self._runs.end:  # delivered again
            for offset in offsets:
                self._runs.remove(offset, offset + 1)
        self._single.update(dict.fromkeys(offsets, form))

    def adopt(self, consumer: Consumer, offsets: Iterable[int]) -> None:
        """Note messages that a consumer had in flight when recording began: their time of delivery is not known."""
        source, whose = self._source, self._consumer(consumer)
        for offset in offsets:
            tail = b"%b\ndelivery:%d" % (whose, source.deliveries(offset))
            self._set([offset], self._head(source.destination_of(offset)) + tail)

    def _consumer(self, consumer: Consumer) -> bytes:
        name = consumer.full_name
        whose = self._whose.get(name)
        if whose is None:
            if len(self._whose) >= LINES_MAX:
                self._whose.clear()
            whose = self._whose[name] = _literal(f"{self._subscription}\nconsumer:{escape(name, '1.2')}")
        return whose

    # --- rows ---------------------------------------------------------------------------------------------------------

    def settled(self, offsets: Sequence[int], outcome: bytes, transaction: str = "") -> None:
        """Add the rows of messages that are settled, which the cursor gets with them.

        Args:
            offsets: The offsets.
            outcome: A final outcome.
            transaction: The id of the transaction that acknowledges or refuses them; empty outside of one.
        """
        spans = ranges(offsets)
        self._end(offsets, spans, outcome, transaction)
        self._recorder.settle(self._source, offsets, spans)

    def ended(self, offsets: Sequence[int], outcome: bytes, transaction: str = "") -> None:
        """Add the rows of deliveries that have ended. The arguments are those of ``settled``."""
        self._end(offsets, ranges(offsets), outcome, transaction)

    def _end(self, offsets: Sequence[int], spans: list[Span], outcome: bytes, transaction: str) -> None:
        untimed_after = self._source.newest_ns if self._timing.now is BEFORE else None
        behind = self._behind(outcome, transaction)
        blocks, single = self._in_runs(offsets, spans, behind)
        if single:
            blocks += self._alone(single, list(map(self._single.pop, single, repeat(None))), behind)
        self._recorder.add(blocks, untimed_after)
        if self._runs.end:
            for start, stop in spans:
                self._runs.remove(start, stop)

    def rows(self, offsets: Sequence[int], outcome: bytes, transaction: str = "") -> list[bytes]:
        """Return the rows of deliveries that end, without adding them. The arguments are those of ``settled``."""
        behind = self._behind(outcome, transaction)
        blocks, single = self._in_runs(offsets, ranges(offsets), behind)
        return blocks + self._alone(single, list(map(self._single.get, single)), behind)

    def _behind(self, outcome: bytes, transaction: str) -> bytes:
        """Return the lines behind those of the delivery, as a format."""
        now = self._timing.now
        # Never before the message was received, also if the clock has gone back: ``as_of_cursor`` relies on it.
        settled_ns = now.wall if now is BEFORE else max(now.wall, self._source.newest_ns)
        behind = b"\nsettled-at:%d\noutcome:%b" % (settled_ns, outcome)
        return behind + _literal(f"\ntransaction:{escape(transaction, '1.2')}") if transaction else behind

    def _in_runs(self, offsets: Sequence[int], spans: list[Span], behind: bytes) -> tuple[list[bytes], Sequence[int]]:
        """Return the rows of those offsets that are in runs, and the other offsets."""
        rows: list[bytes] = []
        if not self._runs.end:
            return rows, offsets
        others: list[int] = []
        for start, stop in spans:
            for first, end, lines in self._runs.within(start, stop):
                if lines is None:
                    others.extend(range(first, end))
                else:
                    form = lines + behind
                    rows += [form % offset for offset in range(first, end)]
        return rows, others

    def _alone(self, offsets: Sequence[int], found: list[bytes | None], behind: bytes) -> list[bytes]:
        """Return the rows of offsets whose lines were stored one by one."""
        if None in found:
            found = [lines or self._waiting(offset) for lines, offset in zip(found, offsets, strict=True)]
        forms = {lines: lines + behind for lines in set(found) if lines is not None}
        pairs: Any = zip(found, offsets, strict=True)
        return [forms[lines] % offset for lines, offset in pairs]

    def forget(self, offsets: Sequence[int]) -> None:
        """Forget deliveries whose rows are written."""
        self._forget(offsets, ranges(offsets))

    def _forget(self, offsets: Iterable[int], spans: list[Span]) -> None:
        if self._single:
            pop = self._single.pop
            for offset in offsets:
                pop(offset, None)
        if self._runs.end:
            for start, stop in spans:
                self._runs.remove(start, stop)

    def forget_range(self, start: int, stop: int) -> None:
        """Forget deliveries of messages in [start, stop), which have been removed from the log."""
        self._forget([offset for offset in self._single if start <= offset < stop], [(start, stop)])

    def _waiting(self, offset: int) -> bytes:
        source = self._source
        tail = b"%b\ndelivery:%d" % (_literal(self._subscription), source.deliveries(offset))
        return self._head(source.destination_of(offset)) + tail


def _literal(text: str) -> bytes:
    """Return a text as a part of a format."""
    return text.replace("%", "%%").encode()
