"""Cold reads and look-ups of positions: read jobs for the read thread, and the handling of their results.

    start(), look_up(), place(), stop_at() -> take() ... read thread: read.run() ... done(read)
    retry()  once a tick: reads that failed on the disk

A read that fails on the disk is repeated, because its messages still exist. Records in a damaged range are lost. Each
damaged range is logged once with its offsets, even if several readers meet it.

A position by time is looked up in each log. The position ``last:N`` counts the messages of a destination, stored or
not, that were sent before the SUBSCRIBE; a look-up starts once they are stored. A destination may have several logs,
and a log may have several destinations:

    one log, not shared, without gaps      the offsets give the answer, without a read
    one log                                one look-up counts backwards, for all destinations of the log
    several logs                           one look-up walks them backwards together, by receive time

This module knows read jobs and the readers that wait for them. It knows no threads and no files.

Invariants: at most ``limits.DAMAGES_REPORTED_MAX`` damaged ranges are logged. Destinations with a common log are
looked up together, so each reader is placed once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.broker.clients.session import Reader
from radiator.broker.headers.positions import NEXT
from radiator.broker.logs.feed import Feed
from radiator.clock import WallNs
from radiator.errors import ProtocolError, StorageError
from radiator.storage.damage import Damage
from radiator.storage.last_messages import LastJob, Wanted

if TYPE_CHECKING:
    from radiator.broker.budget import Budget, Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.delivery.ready import Ready
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.headers.subscribe import SubscribeHeaders
    from radiator.broker.peer_log import PeerLog
    from radiator.broker.stats import Stats

log = logging.getLogger("radiator.broker")

Ends = Sequence[tuple[Any, int]]  # partitions and their end offsets
Keys = dict[str, str]  # the names in a log that count, each with the destination that they count for
Part = dict[Feed, Keys]
Found = dict[str, int]  # destination name -> offset
PART_UNITS = 2  # per log: grouping it with logs of the same destinations
PLACE_UNITS = 10  # per log: placing a reader, or starting a look-up
DAMAGE_NAMES_MAX = 20  # destinations of a damaged log that are remembered
READ_ATTEMPTS_MAX = 10  # attempts of one cold read, one a tick; then its topic readers get an ERROR


class Read:
    """A cold read or look-up: ``run`` on a read thread, then ``Broker.read_done`` on the event loop.

    Args:
        job: The job of the partition.
        then: Called with the job when it has ended.
        wanted: Returns False if the result is not needed any more; then the job is not run.
    """

    __slots__ = ("_wanted", "job", "then")

    def __init__(self, job: Any, then: Callable[[Any], None], wanted: Callable[[], bool] | None = None) -> None:
        self.job = job
        self.then = then
        self._wanted = wanted

    def run(self) -> None:
        """Run the job on a read thread. The job stores its errors."""
        if self._wanted is None or self._wanted():
            self.job.run()


class ColdReads:
    """The cold reads and look-ups of one broker.

    Args:
        ready: The ready list; a finished read puts its readers and queues into it.
        stats: Counters of the broker.
        peer_log: The limited log lines of the broker.
        refuse: Sends an ERROR to a session and closes its connection.
    """

    def __init__(
        self, ready: Ready, stats: Stats, peer_log: PeerLog, refuse: Callable[[Session, ProtocolError], None]
    ) -> None:
        self._ready = ready
        self._stats = stats
        self._peer_log = peer_log
        self._refuse = refuse
        self._reads: list[Read] = []
        self._stalled: list[tuple[Feed, int]] = []
        self._not_stored: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._retries: list[Callable[[], None]] = []  # look-ups that failed on the disk
        self._reported: set[tuple[str, int]] = set()  # path and end offset of each damaged range
        self.damages: list[tuple[str, list[str], Damage]] = []  # partition, some of its destinations, damaged range

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
                self._report_damage(feed.partition, done.damage)
            feed.read_done(offset, done)
            self._ready.feed(feed)

        self._reads.append(Read(job, then))

    def look_up(
        self, make: Callable[[], Any], then: Callable[[Any], None], wanted: Callable[[], bool], ends: Ends = ()
    ) -> None:
        """Start a look-up in the log, off the event loop, once every record below some end offsets is stored or lost.

        Args:
            make: Makes the job when the records are stored. A job that is not ``finished`` runs again.
            then: Called with the finished job. A job that failed has an ``error``.
            wanted: The job is dropped if this returns False.
            ends: The end offsets, with their partitions.
        """

        def is_stored() -> bool:
            return all(each.high_watermark >= end or each.next_offset < end for each, end in ends)

        def begin() -> None:
            self._reads.append(Read(make(), done, wanted))

        def done(job: Any) -> None:
            if job.finished or not wanted():
                then(job)
            else:
                self._reads.append(Read(job, done, wanted))

        if is_stored():
            begin()
        else:
            self._not_stored.append((is_stored, begin))

    def place(
        self,
        budget: Budget,
        subscription: Subscription,
        destinations: list[Destination],
        headers: SubscribeHeaders,
        now_ns: WallNs,
    ) -> Steps:
        """Look up the positions by time and ``last:N`` of a SUBSCRIBE, and place its readers there, in steps.

        Args:
            budget: The budget of the turn.
            subscription: The subscription; it has a reader for each log of the destinations.
            destinations: The destinations.
            headers: The headers of the SUBSCRIBE.
            now_ns: The time of the SUBSCRIBE. A stop position after it is not looked up.
        """
        start, stop, starts = headers.start or NEXT, headers.stop or NEXT, headers.starts
        if stop.kind == "time" and stop.value > now_ns:
            stop = NEXT
        for reader in list(subscription.readers.values()) if "time" in (start.kind, stop.kind) else ():
            if subscription.closed:
                return
            if stop.kind == "time":
                self._place_by_time(reader, stop.value, reader.stop_before)
            if start.kind == "time" and reader.feed.partition.name not in starts:
                self._place_by_time(reader, start.value, reader.place_at)
            budget.spend(PLACE_UNITS)
            yield True
        for part in (yield from parts(budget, destinations)) if "last" in (start.kind, stop.kind) else ():
            if subscription.closed:
                return
            budget.spend(PLACE_UNITS * len(part))
            yield True
            readers = {feed: subscription.readers[feed] for feed in part}
            if stop.kind == "last":
                self._place_last(part, readers, stop.value, Reader.stop_at_each)
            readers = {feed: reader for feed, reader in readers.items() if feed.partition.name not in starts}
            if start.kind == "last" and readers:
                self._place_last({feed: part[feed] for feed in readers}, readers, start.value, Reader.start_at_each)

    def stop_at(self, reader: Reader, time_ns: int) -> None:
        """Let a reader stop before the first record that was received at ``time_ns`` or later. The time has passed.

        Args:
            reader: The reader; it waits for the look-up.
            time_ns: The time, in nanoseconds since 1970.
        """
        if not reader.subscription.closed:
            self._place_by_time(reader, time_ns, reader.stop_before)

    def _place_by_time(self, reader: Reader, time_ns: int, then: Callable[[int], None]) -> None:
        make = partial(reader.feed.partition.offset_for_time, WallNs(time_ns))
        self._resolve([reader], make, lambda found: then(found.offset))

    def _place_last(
        self, part: Part, readers: dict[Feed, Reader], number: int, then: Callable[[Reader, Found], None]
    ) -> None:
        at_once = from_offsets(part, number)
        if at_once is not None:
            for feed, reader in readers.items():
                then(reader, at_once[feed.partition.name])
            return

        def placed(finished: Any) -> None:
            for feed, reader in readers.items():
                then(reader, found_in(finished, feed, part[feed]))

        make, ends = last_job(part, number)
        self._resolve(list(readers.values()), make, placed, ends)

    def _resolve(
        self, readers: list[Reader], make: Callable[[], Any], then: Callable[[Any], None], ends: Ends = ()
    ) -> None:
        """Look up a position for readers of one subscription. The readers wait for the result.

        A failed look-up is an ERROR to the session of the subscription.

        Args:
            readers: The readers, at least one.
            make: Makes the look-up job.
            then: Called with the finished job, before the readers continue.
            ends: End offsets below which everything has to be stored first, with their partitions.
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

        self.look_up(make, done, lambda: not subscription.closed, ends)

    def failed_look_up(self, error: StorageError, again: Callable[[], None]) -> None:
        """Count and log a failed look-up that must not be given up, and repeat it.

        Args:
            error: The error of the disk.
            again: Called at the next tick.
        """
        self._log_failed("", error)
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
        self._log_failed(feed.partition.name, error)
        if feed.failed(offset) > READ_ATTEMPTS_MAX:
            refusal = ProtocolError("storage", "the log cannot be read", str(error))
            for waiter in list(feed.loading.get(offset, ())):
                if isinstance(waiter, Reader) and waiter.waits:
                    self._refuse(waiter.subscription.session, refusal)
        self._stalled.append((feed, offset))

    def _log_failed(self, partition: str, error: StorageError) -> None:
        self._stats.count(read_errors=1)
        self._peer_log.line(logging.ERROR, "failed reads", partition, "storage: %s", error, logger=log)

    def _report_damage(self, partition: Any, damage: Damage) -> None:
        key = (damage.path, damage.end_offset)
        if key in self._reported or len(self._reported) >= limits.DAMAGES_REPORTED_MAX:
            return
        self._reported.add(key)
        self._stats.count(damaged_ranges=1)
        self.damages.append((partition.name, list(islice(partition.destinations, DAMAGE_NAMES_MAX)), damage))
        log.error("storage: %s: %s", partition.name, damage)
        if len(self._reported) == limits.DAMAGES_REPORTED_MAX:
            log.error(
                "storage: %d damaged ranges are logged, and further ones are not; `radiator fsck` lists all",
                len(self._reported),
            )


# --- the position last:N ----------------------------------------------------------------------------------------------


def parts(budget: Budget, destinations: Iterable[Destination]) -> Generator[bool, None, list[Part]]:
    """Group the logs of destinations and of their fan-out sources. Destinations with a common log are in one group.

    Args:
        budget: The budget of the turn; each step spends some of it.
        destinations: The destinations.

    Returns:
        The groups, once all steps are done.
    """
    of: dict[Feed, Part] = {}
    for destination in destinations:
        budget.spend(PART_UNITS * len(destination.feeds))
        yield True
        part: Part = {feed: {destination.name: destination.name} for feed in destination.feeds}
        for parent in destination.parents:
            for feed in parent.feeds:
                part.setdefault(feed, {})[parent.name] = destination.name
        feeds = list(part)
        for other in {id(of[feed]): of[feed] for feed in feeds if feed in of}.values():
            small, part = sorted((part, other), key=len)
            for feed, keys in small.items():
                part.setdefault(feed, {}).update(keys)
                of[feed] = part
        of.update(dict.fromkeys(feeds, part))
    return list({id(part): part for part in of.values()}.values())


def from_offsets(part: Part, number: int) -> dict[str, Found] | None:
    """Return the offsets of ``last:number`` by partition and destination, if no look-up is necessary for them.

    Returns:
        None if a look-up is necessary.
    """
    feed, names = next(iter(part.items()))
    partition = feed.partition
    first, end, dense = partition.log_start_offset, partition.next_offset, partition.dense_from
    if len(part) > 1 or feed.destinations > 1 or not (dense <= first or end - number >= dense):
        return None
    return {partition.name: dict.fromkeys(names, max(first, end - number))}


def last_job(part: Part, number: int) -> tuple[Callable[[], Any], Ends]:
    """Return a function that makes the look-up job, and the end offsets below which everything has to be stored first.

    Args:
        part: A group of logs (``parts``).
        number: N of ``last:N``.
    """
    feed = next(iter(part))
    if len(part) == 1 and feed.destinations == 1:
        partition, end = feed.partition, feed.partition.next_offset
        # Some of the last messages may not be stored yet. More of them are if the look-up is repeated.
        return lambda: partition.offset_of_last(max(0, number + partition.high_watermark - end)), []
    wanted = [Wanted(feed.partition, feed.partition.next_offset, keys) for feed, keys in part.items()]
    return partial(LastJob, wanted, number), [(each.partition, each.end_offset) for each in wanted]


def found_in(finished: Any, feed: Feed, names: Iterable[str]) -> Found:
    """Return the offsets that a finished look-up has found in one log, by destination."""
    if isinstance(finished, LastJob):
        return finished.starts[feed.partition.name]
    return dict.fromkeys(names, finished.offset)
