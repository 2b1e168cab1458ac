"""Cold reads and position look-ups: read jobs for the read thread, and the handling of their results.

    start(), look_up(), resolve() -> take() ... read thread: read.run() ... done(read)
    retry()  once a tick: reads that failed on the disk

A read that fails on the disk is repeated, because its messages still exist. Records in a damaged range are lost. Each
damaged range is logged once with its offsets, even if several readers meet it.

This module knows read jobs and the readers that wait for them. It knows no threads and no files.

Invariant: at most ``limits.DAMAGES_REPORTED_MAX`` damaged ranges are logged.
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

Ends = list[tuple[Any, int]]  # a partition and its end offset
READ_ATTEMPTS_MAX = 10  # attempts of one cold read, one a tick; then its topic readers get an ERROR


class ColdReads:
    """The cold reads and look-ups of one broker.

    Args:
        ready: The ready list; a finished read puts its readers and queues into it.
        stats: Counters of the broker.
        refuse: Sends an ERROR to a session and closes its connection.
    """

    def __init__(self, ready: Ready, stats: Stats, refuse: Callable[[Session, ProtocolError], None]) -> None:
        self._ready = ready
        self._stats = stats
        self._refuse = refuse
        self._reads: list[Read] = []
        self._stalled: list[tuple[Feed, int]] = []
        self._not_stored: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._retries: list[Callable[[], None]] = []  # look-ups that failed on the disk
        self._reported: set[tuple[str, int]] = set()  # path and end offset of each damaged range

    def start(self, feed: Feed, job: Any) -> None:
        """Start a cold read for a partition reader.

        Args:
            feed: The partition reader; ``read_done`` is called on success.
            job: The read job.
        """
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
        """Start a look-up in the log, off the event loop.

        Args:
            job: The look-up job.
            then: Called with the finished job. A job that failed has an ``error``.
            wanted: Called before the job starts; the job is dropped if this returns False.
        """
        self._reads.append(Read(job, then, wanted))

    def look_up_stored(
        self, ends: Ends, make: Callable[[], Any], then: Callable[[Any], None], wanted: Callable[[], bool]
    ) -> None:
        """Start a look-up once every record below some end offsets is stored or lost.

        Args:
            ends: Partitions and their end offsets.
            make: Makes the job when the records are stored. A job that is not ``finished`` runs again.
            then: Called with the finished job.
            wanted: The job is dropped if this returns False.
        """

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
        """Look up a position for readers of one subscription, off the event loop. The readers wait for the result.

        A failed look-up is an ERROR to the session of the subscription.

        Args:
            readers: The readers, at least one.
            make: Makes the look-up job.
            then: Called with the finished job, before the readers continue.
            ends: Partitions and end offsets below which everything has to be stored first; None if nothing has to.
        """
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
        """Count and log a failed look-up that must not be given up, and repeat it.

        Args:
            error: The error of the disk.
            again: Called at the next tick.
        """
        self._stats.count(read_errors=1)
        log.error("storage: %s", error)
        self._retries.append(again)

    def take(self) -> list[Read]:
        """Return the reads to run on a read thread, and forget them."""
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
        """Process the result of a read that has ended."""
        read.job.done()
        read.then(read.job)

    def retry(self) -> None:
        """Repeat failed reads and look-ups. Called once a tick."""
        stalled, self._stalled = self._stalled, []
        for feed, offset in stalled:
            feed.retry(offset)
        again, self._retries = self._retries, []
        for each in again:
            each()

    def _read_failed(self, feed: Feed, offset: int, error: StorageError) -> None:
        """Log a failed read and schedule its repetition.

        After READ_ATTEMPTS_MAX attempts topic readers get an ERROR. Queues try again without end, because their
        messages must not be dropped.
        """
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
        if key in self._reported or len(self._reported) >= limits.DAMAGES_REPORTED_MAX:
            return
        self._reported.add(key)
        self._stats.count(damaged_ranges=1)
        log.error("storage: %s: %s", partition, damage)
        if len(self._reported) == limits.DAMAGES_REPORTED_MAX:
            log.error(
                "storage: %d damaged ranges are logged, and further ones are not; `radiator fsck` lists all",
                len(self._reported),
            )
