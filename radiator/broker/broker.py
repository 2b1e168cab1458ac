"""The broker: frames, finished disk work and the time go in; bytes for sessions and disk work come out.

It is the deterministic core. It opens no socket, starts no thread and asks no clock, so a simulator can drive it
through years of faults from one seed. The shell (``radiator.server``) calls it from one thread only::

    handle(session, frames, now)     what a client sent
    take(now) -> jobs                the open batches of all dirty partitions, to be written and synced off the loop
    completed(job, now)              a job has ended: the high watermark moves, receipts go out, readers become ready
    next_deadline_ns(now)            when tick should come at the latest
    take_reads() -> reads            cold reads and look-ups, to be run off the loop; then read_done(read)
    ready.pump() -> bool             deliver one bounded run to each that is ready; True if there is more to do
    flushed(session, size)           bytes have left; disconnect(session): the client is gone
    tick(now)                        once a second or so

Invariants: nothing is shown to a reader above the high watermark; a receipt leaves after its commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from radiator import __version__
from radiator.broker import commands
from radiator.broker.access import Access
from radiator.broker.budget import Background, Budget, Unfinished, go_on
from radiator.broker.bugs import Bugs
from radiator.broker.destinations import lanes
from radiator.broker.destinations.births import Births
from radiator.broker.destinations.destination import Destination
from radiator.broker.destinations.feed import Feed, Read
from radiator.broker.destinations.former import FormerLogs
from radiator.broker.destinations.keys import header_value
from radiator.broker.destinations.registry import Registry
from radiator.broker.due.ahead_logs import AheadLogs
from radiator.broker.due.timing import Timing
from radiator.broker.memory_watch import MemoryWatch
from radiator.broker.named.names import Names
from radiator.broker.peer_log import PeerLog
from radiator.broker.publishing import sending
from radiator.broker.publishing.hooks import RuleHooks
from radiator.broker.publishing.throttle import Throttle, Wait
from radiator.broker.queues.queue import Queue
from radiator.broker.queues.ready import Ready
from radiator.broker.queues.returning import Returns
from radiator.broker.queues.skipped import Skipping
from radiator.broker.queues.source import QueueSource
from radiator.broker.session import Session
from radiator.broker.stats import Stats
from radiator.broker.subscriptions import joining, leaving, subscribing
from radiator.broker.subscriptions.joined import JoinedOfAll
from radiator.broker.subscriptions.reader import Reader
from radiator.broker.subscriptions.reading import Reading
from radiator.broker.subscriptions.slow import Slow
from radiator.broker.subscriptions.subscription import Subscription
from radiator.broker.troubles import Troubles
from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.config import Config
from radiator.errors import ProtocolError, StorageError, printable
from radiator.routing.rules import Rules
from radiator.stomp.frames import Frame
from radiator.storage.batch import RECORD_OVERHEAD_BYTES
from radiator.storage.store import Store

log = logging.getLogger("radiator.broker")

SERVER_NAME = f"radiator/{__version__}"
ADVANCE_EVERY_NS = 10 * NS_PER_SECOND
LOOK_EVERY = 8  # frames, or runs of SENDs: asking whether it is late takes a hundredth of the time of a SEND
SETTLE_INTERVAL_NS = 2 * NS_PER_MS  # how long acks without a receipt may be gathered under load


class Broker:
    """One broker over one store.

    Args:
        config: The configuration.
        rules: The rules of the configuration.
        store: The open store.
        wake: Called with a session when it has bytes to send.
        hooks: The middleware and schemas of rules, by the index of the rule.
        late: Returns True when the frames that are left should wait, since other connections are to be served.
    """

    def __init__(
        self,
        config: Config,
        rules: Rules,
        store: Store,
        wake: Callable[[Session], None],
        *,
        hooks: Mapping[int, RuleHooks] = MappingProxyType({}),
        late: Callable[[], bool] = bool,
    ) -> None:
        self.config = config
        self.rules = rules
        self.store = store
        self.server_name = SERVER_NAME
        self.session_limits = config.limits
        self.stats = Stats()
        self.bugs = Bugs(self.stats)
        self.memory = store.memory
        self.memory_watch = MemoryWatch(self.memory, self.stats)
        self.peer_log = PeerLog()
        self.throttle = Throttle(self.stats)
        self.slow = Slow(self.stats, self.peer_log)
        self.access = Access(self)
        self.generation = 0  # of the rules; a plan made under another one is made again
        self.sessions: dict[str, Session] = {}
        self.pending_bytes = 0  # appended, not yet committed
        self.budget = Budget()
        self.joined = JoinedOfAll(config.limits.joined_total, config.limits.subscriptions)
        self.background = Background(self.budget, lambda: self.bugs)
        self.stopping = False
        self.late = late
        self.hooks = hooks
        self.files_refused: ProtocolError | None = None  # why nothing is stored in files now
        self.displaced: ProtocolError | None = None  # why nothing at all is done
        self._wake = wake
        self._settled_ns = self._advanced_ns = MonoNs(0)
        self.births = Births(self)
        self.reading = Reading(self)
        self.troubles = Troubles()
        self._timed_stops: list[tuple[WallNs, Reader]] = []
        self.ready = Ready(self._reader_done, lambda error: self.bugs.found(error), self.budget)
        self.timing = Timing(self.ready.queue, self.bugs.found, Skipping(self.stats))
        self.ahead_logs = AheadLogs(store)
        self.returns = self.timing.returns = Returns(self)
        self.dead_letters = self.returns.dead_letters
        watch = partial(lanes.watch, self)
        self.registry = Registry(rules, store, self.reading.start, self.births.born, self.lost, watch, self.timing)
        self.destinations = self.registry.destinations
        self.dirty_sources = self.registry.dirty_sources
        store.care.key_of = header_value
        self.names = Names(self)
        self.names.load()
        self.registry.revive()
        self.names.loaded()
        self.former = FormerLogs(self)

    def begin_stop(self) -> None:
        """Stop giving messages back to queues: after the next start they are delivered again anyway."""
        self.stopping = True

    def set_disk_faults(self, displaced: ProtocolError | None, files_refused: ProtocolError | None) -> None:
        """Refuse commands while the disk has a fault.

        Args:
            displaced: The ERROR for all frames, or None: the data directory was moved or replaced.
            files_refused: The ERROR for messages that are stored in files, or None: the disk is too full.
        """
        self.displaced, self.files_refused = displaced, files_refused

    def destination(self, name: str) -> Destination:
        """The destination of that name, created if its rule allows it. Raises ProtocolError."""
        return self.destinations.get(name) or self.registry.create(name)

    def lost(self, what: str, count: int) -> None:
        """Messages were gone before a queue could deliver them."""
        self.stats.lost_to_retention += count
        log.warning("%s", what)

    # --- sessions ---------------------------------------------------------------------------------------------------

    def connect(self, session_id: str, secret: str, address: str = "", origin: str = "") -> Session:
        """A new connection; its CONNECT frame comes through ``handle``.

        Args:
            session_id: Unique over all runs of the broker; shown in lists, logs and ack ids, so it has no ``@``.
            secret: Cannot be guessed; who knows it may send to the temporary queues of this connection.
            address: Of the peer, for log lines.
            origin: Whose connections count as those of one peer: the address without its port, or a subnet.
        """
        joined = self.joined.of_one(self.session_limits.joined)
        session = Session(session_id, secret, self.session_limits, self._wake, self.refuse, address, origin, joined)
        session.missed = self.slow.missed
        self.sessions[session_id] = session
        self.stats.connections += 1
        return session

    def handle(self, session: Session, frames: list[Frame], now: Now) -> list[Frame]:
        """Act on frames in their order. A frame that breaks a rule is answered ERROR, and the rest are ignored.

        Returns the frames that are left when some have been so much work that others should have their turn first, or
        when one has to wait (``radiator.broker.publishing.throttle``).
        """
        session.unfinished = False
        if self.displaced is not None and frames and not session.closing:
            self.refuse(session, self.displaced, frames[0].receipt)
        if session.undecided:
            return frames
        hold = session.hold
        if hold is not None and not self.throttle.lets(session, hold, now.mono):
            return frames
        send, send_plain, steps = sending.send, sending.send_plain, session.steps
        budget = self.budget
        if budget.left != budget.most:
            budget.begin()
        now = self.timing.see(now)
        index, count, look_at = 0, len(frames), LOOK_EVERY - 1
        while index < count and not session.closing:
            frame = frames[index]
            if index >= look_at:
                look_at = index + LOOK_EVERY
                if self.late():
                    return frames[index:]
            if budget.left <= 0:
                return frames[index:]
            try:
                if steps is not None:
                    begun, steps = steps, None
                    go_on(budget, session, begun)
                elif frame.head.command == "SEND":
                    sent = send_plain(self, session, frames, index, now)
                    if sent:
                        index += sent
                        continue
                    send(self, session, frame, now)
                else:
                    commands.dispatch(self, session, frame, now)
            except Unfinished as more:
                session.unfinished = more.at_once
                return frames[index:]
            except Wait as wait:
                if self.throttle.hold(session, wait, hold if index == 0 else None, now.mono):
                    return [wait.frame or frame, *frames[index + 1 :]]
                self.refuse(session, wait.refusal, frame.receipt)
            except ProtocolError as error:
                self.refuse(session, error, frame.receipt)
            except StorageError as error:
                self.troubles.refused(str(error))
                refusal = ProtocolError("storage", "the message could not be stored", str(error))
                self.refuse(session, refusal, frame.receipt)
            except Exception as error:
                self.bugs.found(error)
                what = f"Whether this {frame.head.command} had an effect is not known; the broker's log says more."
                self.refuse(session, ProtocolError("internal", "the broker failed on this frame", what), frame.receipt)
            index += 1
        return []

    def refuse(self, session: Session, error: ProtocolError, receipt: bytes | None = None) -> None:
        """Log why, answer ERROR and end the session: its work goes back to others at once."""
        self.peer_log.line(
            logging.INFO,
            f"refused ({error.code})",
            session.origin,
            "session %s %s: %s: %s",
            session.id,
            session.address,
            error.code,
            printable(error.message),
            logger=log,
        )
        self.end(session, error, receipt)

    def end(self, session: Session, error: ProtocolError, receipt: bytes | None = None) -> None:
        """Answer ERROR and end the session, where the log has a line about it already."""
        self.stats.refused += 1
        session.fail(error, receipt)
        self.release(session)

    def release(self, session: Session) -> None:
        """Give back everything that a session holds; it may still have bytes to send."""
        if session.steps is not None:
            session.steps.close()
            session.steps = None
        if not self.stopping:  # then what its consumers held is not settled: that is all the next start has to know
            self.background.add(leaving.all_of(self, session))
        self.ready.forget_session(session)
        self.throttle.forget(session)

    def disconnect(self, session: Session) -> None:
        """The connection is gone."""
        if session.closed:
            return
        session.closing = True
        self.release(session)
        while session.auto_acks:
            run = session.auto_acks.popleft()
            source: Any = run.queue_source
            written, unwritten = run.unwritten(session.written_total)
            with self.bugs:
                source.settle(written)
                self.returns.back(source, unwritten, attempted=False)
        session.end()
        self.sessions.pop(session.id, None)

    def flushed(self, session: Session, size: int) -> None:
        """``size`` bytes of the outbox have left: auto-acked messages settle, and deliveries may go on."""
        session.flushed(size)
        if session.waiting and session.room() > 0:
            waiting, session.waiting = session.waiting, {}
            for subscription in waiting:
                self.ready.credit(subscription)

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def consume(self, subscription: Subscription, destination: Destination) -> None:
        """Make a subscription a consumer of a queue."""
        queue = destination.queue
        assert queue is not None
        for each in (destination, *destination.parents):
            subscription.enter(each)
        self.take_part(subscription, queue, subscription.alone or destination.policy.settings.exclusive)

    def take_part(self, subscription: Subscription, queue: Queue, alone: bool) -> None:
        """Let a subscription be handed out what a queue has."""
        queue.join(subscription, alone, partial(self.ready.queue, queue))
        subscription.queues.append(queue)
        if subscription.shares_window:
            subscription.session.queue_ring.add(subscription, queue)
        self.ready.queue(queue)

    def read(self, subscription: Subscription, feed: Feed, reader: Reader) -> None:
        """Start a reader."""
        subscription.readers[feed] = reader
        subscription.reading += 1
        feed.readers[reader] = None
        if not subscription.joining:
            self.ready.reader(reader)

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription: what it holds goes back to its queues, in the original places, once ``left`` says so."""
        leaving.close(self, subscription)
        self.background.add(leaving.steps(self, subscription))

    def return_to(self, source: QueueSource, offsets: list[int]) -> None:
        """These were in flight and are not settled: they go back to their queue."""
        self.returns.back(source, offsets)

    # --- the turn ---------------------------------------------------------------------------------------------------

    def take(self, now: Now) -> list[Any]:
        """Disk work of this turn. Memory partitions commit at once and leave nothing to do."""
        now = self._begin_turn(now)
        if self.dirty_sources and self._settle_now(now.mono):
            self._settled_ns = now.mono
            for source in self.dirty_sources:
                source.flush()
            self.dirty_sources.clear()
        jobs = []
        for job in self.store.take(now):
            if job.finished:
                self._completed(job, now)
            else:
                jobs.append(job)
        return jobs

    def _begin_turn(self, now: Now) -> Now:
        self.budget.begin()
        now = self.timing.see(now)
        if self.background.waiting:
            self.background.go_on()
        if self.dead_letters.waiting:
            with self.bugs:
                self.dead_letters.run()
        return now

    def take_finished(self, now: Now) -> None:
        """Commit what needs no disk, in a turn in which the disk is at work."""
        now = self._begin_turn(now)
        for job in self.store.take_finished(now):
            self._completed(job, now)

    def _settle_now(self, now_ns: MonoNs) -> bool:
        """Acks go to the journal at once, unless they come so fast that each would cost a disk job of its own and
        nobody waits for them: then they are gathered for ``SETTLE_INTERVAL_NS``."""
        return now_ns - self._settled_ns >= SETTLE_INTERVAL_NS or self.store.dirty or bool(self.store.cursors.waiters)

    def completed(self, jobs: Iterable[Any], now: Now) -> None:
        """Jobs were written and synced as their policies say, or have failed."""
        now = self.timing.see(now)
        for job in jobs:
            self._completed(job, now)

    def _completed(self, job: Any, now: Now) -> None:
        job.done(now)
        failure = None
        if job.error is not None:
            if not job.postponed:
                what = job.what if job.batch is None else "message"
                failure = ProtocolError("storage", f"the {what} could not be stored", str(job.error))
            self.troubles.failed(job, now.mono)
        elif job.note:
            log.warning("storage: %s", job.note)
        for first, last in job.lost:
            self.stats.lost_to_failures += last - first + 1
            log.error("storage: %s: offsets %d to %d are lost", job.partition.name, first, last)
        batch = job.batch
        if batch is not None and not job.again:  # what is postponed must not keep everybody's sockets from being read
            self.pending_bytes -= batch.size_bytes + len(batch.blocks) * RECORD_OVERHEAD_BYTES
            self.stats.commits += 1
            feed = self.registry.feed_of(job.partition)
            if feed is not None:
                self.ready.feed(feed, feed.committed(batch, failure is not None))
        for each in job.waiters:
            each.settle(failure)
        if job.place is not None:
            turn = job.place.turn
            for each in turn.ends(job.place, failure):
                self.pending_bytes -= each.weight_bytes
                each.stored(turn)

    def cursor_waiters(self, late: bool) -> list[list[Any]]:
        """Where the receipt of an ACK waits: for the cursors, if any of them changes in this turn, or if the ACK is
        ``late``: then an earlier one has settled the message, and may not be stored yet."""
        if late or any(source.cursor.stored for source in self.dirty_sources):
            return [self.store.cursors.waiters]
        return []

    def take_reads(self) -> list[Read]:
        """Cold reads and look-ups to run on a read thread."""
        return self.reading.take()

    def read_done(self, read: Read) -> None:
        """A read has ended."""
        self.reading.done(read)

    def care_done(self, job: Any, now: Now) -> None:
        """Background work has ended."""
        note = self.store.care.done(job, self.timing.see(now))
        if note:
            log.error("storage: %s", note)

    def _reader_done(self, reader: Reader) -> None:
        subscription = reader.subscription
        if subscription.closed or reader not in reader.feed.readers:
            return
        reader.feed.readers.pop(reader, None)
        subscription.reading -= 1
        if subscription.reading == 0:
            subscribing.replay_end(self, subscription)

    # --- time -------------------------------------------------------------------------------------------------------

    def stop_at(self, time_ns: WallNs, reader: Reader) -> None:
        """Let a reader stop at a moment that has not come yet."""
        self._timed_stops.append((time_ns, reader))

    def stop_as(self, reader: Reader, new: Reader) -> None:
        """Let a reader stop at the moment at which another one does, if that does at a moment to come."""
        self._timed_stops += [(time_ns, new) for time_ns, each in self._timed_stops if each is reader]

    def next_deadline_ns(self, now: Now) -> MonoNs:
        """When ``tick`` has something to do; NEVER_NS if nothing is planned."""
        now = self.timing.see(now)
        return min(self.store.next_deadline_ns(now), self.timing.next_ns, self.throttle.next_ns)

    def tick(self, now: Now) -> None:
        """Time passes: interval syncs, rolls, retention; retries of failed reads; stops whose moment has come."""
        self.budget.begin()
        now = self.timing.see(now)
        self.timing.meet()
        self.store.tick(now)
        self.throttle.meet(now.mono)
        self.memory_watch.look(now.mono)
        self.reading.retry()
        self.troubles.tick(now.mono)
        self.ahead_logs.tick(now)
        self.names.tick(now)
        if now.mono - self._advanced_ns >= ADVANCE_EVERY_NS:
            self._advanced_ns = now.mono
            self.registry.advance_idle_queues()
            self.former.look()
        due = [pair for pair in self._timed_stops if pair[0] <= now.wall or pair[1].subscription.closed]
        if due:
            self._timed_stops = [pair for pair in self._timed_stops if pair not in due]
            for time_ns, reader in due:
                joining.stop_at(self, reader, time_ns)
