"""A queue: consumers, and named cursors over logs, one per partition, whose window is spread over the consumers.

Which records of a log are the queue's own says its claim (``destinations.claim``), so a queue that people send to, a
child of a ``fan_out`` and a named subscription are the same here. A source (``queues.source``) knows which
messages are ready; a queue decides who gets them. Between consumers the one served longest ago comes first; between the
queues of one client see ``QueueRing``.

Invariants: nobody is sent more than its credit, and credit that subscriptions share is given once. What was lost is
told by ``gap`` on the next message that goes out, to whichever consumer, and by no other; if that message comes again,
then again.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.broker.destinations import lanes
from radiator.broker.queues import selective
from radiator.broker.queues.owners import Owners
from radiator.broker.queues.rewound import bound
from radiator.broker.queues.rota import Rota
from radiator.broker.queues.selectors import Selectors
from radiator.broker.queues.shares import CONSUMERS_MAX, Shares, in_turn
from radiator.broker.queues.skipped import take_lowest
from radiator.broker.queues.source import QueueSource
from radiator.broker.wire import run_length

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from radiator.broker.destinations.claim import Claim
    from radiator.broker.due.timing import Timing
    from radiator.broker.queues.policy import QueuePolicy
    from radiator.broker.queues.selection import Selection
    from radiator.broker.session import Session
    from radiator.broker.subscriptions.subscription import Subscription
    from radiator.storage.batch import RecordBatch
    from radiator.storage.partition import Partition

RUN_BYTES = 256 * limits.KIB  # one turn's share of one queue
TOLD_MAX = 100  # messages that told of a loss and may have to tell it again
FIRST_TIME = b"delivery-count:1\n"  # of a message that was not delivered before


class Queue:
    """The consumers and sources of one queue. ``name`` is for people. ``on_lost`` is told what was lost, in words, and
    how many."""

    __slots__ = (
        "_on_lost",
        "claim",
        "consumers",
        "gap",
        "name",
        "note",
        "ordered",
        "policy",
        "selection",
        "selectors",
        "owners",
        "rota",
        "settings",
        "shares",
        "sources",
        "timing",
        "told",
    )

    def __init__(
        self, name: str, claim: Claim, on_lost: Callable[[str, int], None], timing: Timing, policy: QueuePolicy
    ) -> None:
        self.name = name
        self.claim = claim
        self.timing = timing
        self.policy, self.settings = policy, policy.settings
        self.sources: list[QueueSource] = []
        self.rota = Rota()  # those of them that have something
        self.consumers: OrderedDict[Subscription, None] = OrderedDict()  # the one that was served longest ago first
        self.selectors: Selectors | None = None  # while a consumer has one, or messages were skipped
        self.owners: Owners | None = None  # where not everybody may take from every source
        self.ordered = False  # its sources are looked at in their order: priorities
        self.selection: Selection | None = None  # what it does not take is settled: a named subscription's selector
        self.shares: Shares | None = None  # once there were several consumers
        self.gap = 0  # messages that were lost, and no consumer has been told yet
        self.note = b""  # header lines that go out with the next message
        self.told: dict[tuple[QueueSource, int], tuple[int, bytes]] = {}  # gap and note, by the message that had them
        self._on_lost = on_lost

    def join(self, consumer: Subscription, alone: bool, wake: Callable[[], None]) -> None:
        """One more consumer; ``alone``: an exclusive one. ``wake`` is called when somebody's turn comes by that."""
        self.consumers[consumer] = None
        for source in self.sources:  # what was others' may be its own now
            self.rota.rouse(source)
        if self.selectors is not None:
            new = self.selectors.join(consumer)
            for source in self.sources:
                if new is not None and source.skipped is not None:
                    source.skipped.begin(new)
            self.credited(consumer)
        elif consumer.selection is not None:
            self.select()
        if self.shares is not None:
            self.shares.joined(consumer)
            if len(self.consumers) > CONSUMERS_MAX:
                self.timing.forget(self.shares)
                self.shares = None
        if alone:
            self._own(wake)
        if self.owners is not None:
            self.owners.joined(consumer, alone)

    def share_out(self, source: QueueSource, wake: Callable[[], None]) -> None:
        """This source is for one consumer at a time, so that the order of its messages is kept. ``wake``: as above."""
        self._own(wake).add(source)

    def _own(self, wake: Callable[[], None]) -> Owners:
        if self.owners is None:
            self.owners = Owners(wake)
            for each in self.consumers:
                self.owners.joined(each, False)
        return self.owners

    def leave(self, consumer: Subscription) -> None:
        """A consumer is gone."""
        del self.consumers[consumer]
        if self.selectors is not None:
            gone = self.selectors.leave(consumer)
            for source in self.sources:
                if gone is not None and source.skipped is not None:
                    source.skipped.forget(gone)
            self.unselect()
        if self.shares is not None:
            self.shares.left(consumer)
        if self.owners is not None:
            self.owners.left(consumer)

    def check(self, selection: Selection | None) -> None:
        """Raises ProtocolError (too-many) unless one more consumer may have this selector."""
        if self.selectors is not None:
            self.selectors.check(selection, self.name)

    def select(self) -> Selectors:
        """The selectors of its consumers: from now on messages are handed out by these."""
        if self.selectors is None:
            self.selectors = Selectors(self.consumers)
            for source in self.sources:
                if source.skipped is not None:
                    source.skipped.joined(self.selectors)
        return self.selectors

    def unselect(self) -> None:
        """Hand messages out without asking who wants which, if all want all and none was skipped."""
        if self.selectors is None or not self.selectors.plain:
            return
        if not self.consumers or all(source.skipped is None for source in self.sources):
            self.selectors = None

    def credited(self, consumer: Subscription) -> None:
        """What held this consumer back is gone."""
        if self.selectors is not None:
            group = self.selectors.credited(consumer)
            for source in self.sources:
                if source.skipped is not None:
                    source.skipped.wake(group)

    def add(self, source: QueueSource) -> None:
        """One more."""
        self.sources.append(source)
        self.rota.rouse(source)

    def drop(self, sources: Collection[QueueSource]) -> None:
        """It reads these no more."""
        self.sources = [source for source in self.sources if source not in sources]
        for source in sources:
            self.release(source)

    def release(self, source: QueueSource) -> None:
        """Nothing more is handed out of this one, which is about to be dropped."""
        self.rota.drop(source)
        if self.owners is not None:
            self.owners.remove(source)

    def replaced(self, old: QueueSource, new: QueueSource) -> None:
        """Another cursor takes the place of this one."""
        self.sources[self.sources.index(old)] = new
        self.rota.drop(old)
        self.rota.rouse(new)
        if self.owners is not None:
            self.owners.replaced(old, new)

    def lost(self, source: QueueSource, count: int, first: int, last: int) -> None:
        """``count`` messages of this queue were gone from the log before they could be delivered."""
        self.gap += count
        where = f"offsets {first} to {last} of {source.feed.partition.name}"
        self._on_lost(
            f"{self.name}: {count} messages were gone from the log before they were settled, among {where}", count
        )

    def appended(self, partition: Any, messages: int) -> None:
        """So many more messages wait. Called only where a rule limits that: nobody else asks for ``backlog``."""
        for source in self.sources:
            if source.feed.partition is partition:
                source.waiting += messages

    @property
    def fresh(self) -> int:
        """How many messages were never handed out."""
        return sum(source.fresh for source in self.sources if not source.fed)

    @property
    def backlog(self) -> int:
        """Messages not settled: waiting or in flight. In a partition that several destinations share, after a restart,
        a lower bound until the queue has been read once: nothing is refused for the sake of others."""
        return sum(source.backlog for source in self.sources if not source.fed)

    @property
    def backlog_bytes(self) -> int:
        """About what these messages take in the log."""
        size = 0
        for source in [each for each in self.sources if not each.fed]:
            partition = source.feed.partition
            stored = partition.next_offset - partition.log_start_offset
            size += partition.size_bytes * source.backlog // max(1, stored)
        return size

    def drop_oldest(self, newest_in: Partition | None = None) -> bool:
        """Settle the oldest message that no consumer holds, to make room, but not the last one in ``newest_in`` if it
        was never handed out; False if there is none."""
        for source in lanes.given_up(self):
            lowest = take_lowest(source)
            if lowest is not None:
                source.settle([lowest])
                return True
            if source.fresh > (source.feed.partition is newest_in):
                source.drop_next()
                return True
        return False

    def takers(self, source: QueueSource) -> Collection[Subscription]:
        """Which consumers may take from this source, the one that was served longest ago first."""
        if self.owners is None:
            return self.consumers
        takers = self.owners.takers(source, self.consumers)
        if not takers and (holder := self.owners.holder(source)) is not None:
            holder.awaited[self] = None
        return takers

    def pump(
        self,
        only: Subscription | None = None,
        count_max: int = limits.BATCH_RECORDS_MAX,
        but: Session | None = None,
    ) -> int:
        """Hand out one run from each source, in turn or in order. Returns how many messages went out, or else 1 if
        there was progress of another kind (something was skipped), so that 0 means: nothing to do until something
        happens."""
        if self.selectors is not None and only is not None:
            self.credited(only)  # also if there is nothing for it now
        handed = 0
        for source in tuple(self.sources) if self.ordered else self.rota.turns():
            first = source.first
            if source.loading or not (source.ready or source.skipped is not None):
                if first and source.loading:
                    break
                continue
            consumers = self.consumers if self.owners is None else self.takers(source)
            if only is not None:
                consumers = (only,) if self.owners is None or only in consumers else ()
            one = only
            if self.selectors is not None or source.skipped is not None:
                one = only if consumers is self.consumers else next(iter(consumers), None)
                if one is None and consumers is not self.consumers:
                    continue
                handed += selective.hand_out(self, source, one, but, count_max - handed)
                if source.skipped is not None and (only is not None or but is not None):
                    self.timing.wake(self)  # others may want what these did not
            else:
                if but is not None:
                    consumers = [consumer for consumer in consumers if consumer.session is not but]
                credits = _credits(consumers)
                if not credits:
                    if self.owners is None or first:
                        break
                    continue
                if self.owners is None and 1 < len(self.consumers) <= CONSUMERS_MAX:
                    self.shares = self.shares or Shares(self, self.timing)
                    credits = self.shares.limit(credits, only is None and but is None, but)
                    if not credits:
                        break
                handed += self._hand_out(source, credits, count_max - handed)
            source.rest()
            if handed >= count_max or (first and lanes.holds(source, one)):
                break
        return handed

    def _hand_out(self, source: QueueSource, credits: list[tuple[Subscription, int]], count_max: int) -> int:
        if source.returned:
            return self._hand_out_returned(source, credits[0][0])
        offset = source.next_offset
        batch = source.batch_at(offset)
        if batch is None:
            return 0 if source.loading else 1
        high_watermark = source.feed.partition.high_watermark
        start = batch.index_at(offset)
        stop = len(batch.blocks) if batch.next_offset <= high_watermark else batch.index_at(high_watermark)
        alone, credit = credits[0]
        room = alone.session.room()
        if len(credits) > 1:
            room = min([consumer.session.room() for consumer, _ in credits])
            credit = sum([credit for _, credit in credits])
        room = min(RUN_BYTES, room)
        chosen = self.selection is not None
        whole = not source.rewound and self.claim.whole(source.feed.partition.name, batch)
        if chosen or not whole or source.timed(batch, start):
            stop = bound(source, batch, start, start + run_length(batch, start, stop, room))
            if self.selection is not None:
                stop = min(stop, start + self.selection.run)
            return self._hand_out_slow(source, batch, start, stop, credits, count_max)
        count = run_length(batch, start, min(stop, start + count_max, start + credit), room)
        indexes = range(start, start + count)
        source.move(batch, start, start + count)
        self._spread(source, batch, indexes, credits)
        return count

    def _hand_out_slow(
        self,
        source: QueueSource,
        batch: RecordBatch,
        start: int,
        stop: int,
        credits: list[tuple[Subscription, int]],
        count_max: int,
    ) -> int:
        """As above, where each record has to be looked at: others' are settled, and so is what has expired; what is not
        due is put off."""
        count = min(count_max, sum(credit for _, credit in credits))
        picked: list[int] = []
        firsts = self.claim.firsts(source.feed.partition.name, batch)
        index = start
        while len(picked) < count:
            index = source.pass_over(batch, firsts, index, stop)
            if index == stop or source.stuck:
                break
            picked.append(index)
            index += 1
        if index == start:
            return 0
        source.move(batch, start, index)
        if picked:
            self._spread(source, batch, picked, credits)
        return max(1, len(picked))

    def _spread(
        self,
        source: QueueSource,
        batch: RecordBatch,
        indexes: range | list[int],
        credits: list[tuple[Subscription, int]],
    ) -> None:
        """Deal fresh messages out, one to each consumer while it has credit, in turn or to whom it makes equal."""
        source.cursor.delivered = source.next_offset
        if len(credits) == 1:
            self.send(source, batch, credits[0][0], indexes)
            return
        shares: list[list[int]] = [[] for _ in credits]
        turns = in_turn(credits) if self.shares is None else self.shares.turns(credits)
        for index, place in zip(indexes, turns, strict=False):
            shares[place].append(index)
        for (consumer, _), share in zip(credits, shares, strict=True):
            if share:
                self.send(source, batch, consumer, share)
        served = [(share[-1], consumer) for (consumer, _), share in zip(credits, shares, strict=True) if share]
        for _, consumer in sorted(served, key=lambda pair: pair[0]):
            self.served(consumer)

    def send(self, source: QueueSource, batch: RecordBatch, consumer: Subscription, indexes: range | list[int]) -> None:
        """Fresh messages for one consumer, whose credit was asked for."""
        tails = source.feed.wire.tails(batch, consumer.session.version)
        count = len(indexes)
        if self.gap or self.note:
            first, indexes = indexes[0], indexes[1:]
            lines = self._tell(source, batch.offsets[first])
            consumer.deliver(source.feed, source, [batch.offsets[first]], [tails[first]], FIRST_TIME + lines)
        if not indexes:
            pass
        elif isinstance(indexes, range):
            run = slice(indexes.start, indexes.stop)
            consumer.deliver(source.feed, source, batch.offsets[run], tails[run], FIRST_TIME)  # type: ignore[arg-type]
        else:
            offsets = [batch.offsets[index] for index in indexes]
            consumer.deliver(source.feed, source, offsets, [tails[index] for index in indexes], FIRST_TIME)
        consumer.session.queue_ring.served(consumer, self)
        if self.shares is not None:
            self.shares.served(consumer, count)

    def _tell(self, source: QueueSource, offset: int) -> bytes:
        """The header lines by which this message tells what was lost, if anything was. Whoever gets it may die before
        it has read them, so they are the message's until that is settled."""
        if not (self.gap or self.note or self.told):
            return b""
        gap, note = self.told.pop((source, offset), (0, b""))
        gap, note, self.gap, self.note = gap + self.gap, note or self.note, 0, b""
        if gap or note:
            self.told[source, offset] = gap, note
            if len(self.told) > TOLD_MAX:  # nearly all of them are settled by then
                del self.told[next(iter(self.told))]
        return b"%bgap:%d\n" % (note, gap) if gap else note

    def _hand_out_returned(self, source: QueueSource, consumer: Subscription) -> int:
        offset = source.returned[0]
        batch = source.batch_at(offset)
        if batch is None:
            return 0 if source.loading else 1
        index = batch.index_at(offset)
        heappop(source.returned)
        if self.passes(source, batch, index):
            self.send_again(source, batch, index, consumer)
        return 1

    def passes(self, source: QueueSource, batch: RecordBatch, index: int) -> bool:
        """Whether a message that came back may be delivered now; if not, it has been dealt with."""
        if not self.claim.takes(source.feed.partition.name, batch, index):
            source.skip([batch.offsets[index]])
            return False
        if self.selection is not None and not self.selection.takes(source.feed.wire, batch, index):
            source.settle([batch.offsets[index]])
            return False
        return not source.timed(batch, index) or source.may_go(batch, index)

    def send_again(self, source: QueueSource, batch: RecordBatch, index: int, consumer: Subscription) -> None:
        """One message that came back."""
        offset = batch.offsets[index]
        count = source.deliveries(offset) + 1
        source.cursor.set_count(offset, count)
        tail = source.feed.wire.tails(batch, consumer.session.version)[index]
        extra = b"delivery-count:%d\n%b" % (count, self._tell(source, offset))
        if count > 1:
            extra = b"redelivered:true\n" + extra
        consumer.deliver(source.feed, source, [offset], [tail], extra)
        consumer.session.queue_ring.served(consumer, self)
        self.served(consumer)
        if self.shares is not None:
            self.shares.served(consumer, 1)

    def served(self, consumer: Subscription) -> None:
        """Least recently served first: move to the end."""
        if consumer in self.consumers:
            self.consumers.move_to_end(consumer)


def _credits(consumers: Collection[Subscription]) -> list[tuple[Subscription, int]]:
    """The consumers that may be sent something, and how much; what subscriptions of one session share is given once."""
    credits: list[tuple[Subscription, int]] = []
    given: dict[Session, int] = {}
    for consumer in consumers:
        credit = consumer.queue_credit()
        if credit > 0 and len(consumers) > 1 and consumer.shares_window:
            session = consumer.session
            credit = min(credit, session.window - session.held - given.get(session, 0))
            given[session] = given.get(session, 0) + credit
        if credit > 0:
            credits.append((consumer, credit))
    return credits
