"""Cold reads and look-ups of one broker: what is to be run off the loop, what came of it, what goes wrong.

    start(), look_up(), resolve() -> take() ... read thread: read.run() ... done(read)
    retry()  once a tick: reads that the disk failed

A failed read is tried again, as the messages are still there; what a read finds damaged is lost, and told in the log
of the broker, once for each stretch and with its offsets, however often and by whomever it is met.

Knows: reads as jobs, who is told. Must not know: threads, files.
Invariant: what is told is bounded; what was not told was counted, or is of a broker that has told too much already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.broker.clients.session import Reader
from radiator.broker.logs.feed import Feed, Read
from radiator.errors import ProtocolError, StorageError
from radiator.storage.damage import Damage

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.broker.delivery.ready import Ready
    from radiator.broker.stats import Stats

log = logging.getLogger("radiator.broker")

Ends = list[tuple[Any, int]]  # partitions, and an offset of each
READ_ATTEMPTS_MAX = 10  # of a cold read that the disk fails, one a tick


class ColdReads:
    """See the top of the file."""

    def __init__(self, ready: Ready, stats: Stats, refuse: Callable[[Session, ProtocolError], None]) -> None:
        self._ready = ready
        self._stats = stats
        self._refuse = refuse
        self._reads: list[Read] = []
        self._stalled: list[tuple[Feed, int]] = []
        self._not_stored: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._retries: list[Callable[[], None]] = []  # look-ups that the disk failed
        self._reported: set[tuple[str, int]] = set()  # (path, where it ends) of damage

    def start(self, feed: Feed, job: Any) -> None:
        """A feed wants this read."""
        offset = job.offset

        def then(done: Any) -> None:
            if done.error is not None and done.result is None and done.skip_to is None:
                self._read_failed(feed, offset, done.error)
                return
            if done.damage is not None:
                self._report_damage(feed.partition.name, done.damage)
            feed.read_done(offset, done)
            self._ready.feed(feed)

        self._reads.append(Read(job, then))

    def look_up(self, job: Any, then: Callable[[Any], None], wanted: Callable[[], bool]) -> None:
        """Have a position looked up in the log, off the loop, if it is still ``wanted`` when its turn comes."""
        self._reads.append(Read(job, then, wanted))

    def look_up_stored(
        self, ends: Ends, make: Callable[[], Any], then: Callable[[Any], None], wanted: Callable[[], bool]
    ) -> None:
        """The same, once everything below these ends is stored, or was lost; the job is made then, and may take several
        goes (``finished``)."""

        def is_stored() -> bool:
            return all(each.high_watermark >= end or each.next_offset < end for each, end in ends)

        def begin() -> None:
            self.look_up(make(), done, wanted)

        def done(job: Any) -> None:
            if job.finished or not wanted():
                then(job)
            else:
                self.look_up(job, done, wanted)

        if is_stored():
            begin()
        else:
            self._not_stored.append((is_stored, begin))

    def resolve(
        self, readers: list[Reader], make: Callable[[], Any], then: Callable[[Any], None], ends: Ends | None = None
    ) -> None:
        """Look a position of these readers of one subscription up, off the loop; they wait for it. ``then`` is given
        the finished job. With ``ends`` it is made once all below them is stored."""
        subscription = readers[0].subscription
        for reader in readers:
            reader.wait_for_place()

        def done(finished: Any) -> None:
            if subscription.closed:
                return
            if finished.error is not None:
                error = ProtocolError("storage", "the position could not be looked up", str(finished.error))
                self._refuse(subscription.session, error)
                return
            for reader in readers:
                reader.place_found()
            then(finished)
            for reader in readers:
                self._ready.reader(reader)

        def wanted() -> bool:
            return not subscription.closed

        if ends is None:
            self.look_up(make(), done, wanted)
        else:
            self.look_up_stored(ends, make, done, wanted)

    def failed_look_up(self, error: StorageError, again: Callable[[], None]) -> None:
        """The disk failed one that must not be given up: ``again`` is called at the next tick."""
        self._stats.count(read_errors=1)
        log.error("storage: %s", error)
        self._retries.append(again)

    def take(self) -> list[Read]:
        """What is to be run on a read thread."""
        if self._not_stored:
            waiting, self._not_stored = self._not_stored, []
            for is_stored, begin in waiting:
                if is_stored():
                    begin()
                else:
                    self._not_stored.append((is_stored, begin))
        reads, self._reads = self._reads, []
        return reads

    def done(self, read: Read) -> None:
        """A read has ended."""
        read.job.done()
        read.then(read.job)

    def retry(self) -> None:
        """Once a tick: failed reads that are still wanted."""
        stalled, self._stalled = self._stalled, []
        for feed, offset in stalled:
            feed.retry(offset)
        again, self._retries = self._retries, []
        for each in again:
            each()

    def _read_failed(self, feed: Feed, offset: int, error: StorageError) -> None:
        """The disk did not give what it has: readers are told in the end, queues go on trying, as their messages must
        not be given up."""
        self._stats.count(read_errors=1)
        log.error("storage: %s", error)
        if feed.failed(offset) > READ_ATTEMPTS_MAX:
            refusal = ProtocolError("storage", "the log cannot be read", str(error))
            for waiter in list(feed.loading.get(offset, ())):
                if isinstance(waiter, Reader) and waiter.waits:
                    self._refuse(waiter.subscription.session, refusal)
        self._stalled.append((feed, offset))

    def _report_damage(self, partition: str, damage: Damage) -> None:
        key = (damage.path, damage.end_offset)
        if key in self._reported or len(self._reported) >= limits.DAMAGES_TOLD_MAX:
            return
        self._reported.add(key)
        self._stats.count(damaged_ranges=1)
        log.error("storage: %s: %s", partition, damage)
        if len(self._reported) == limits.DAMAGES_TOLD_MAX:
            log.error("storage: %d damaged ranges were told; of others see `radiator fsck`", len(self._reported))
