"""The broker: frames, finished disk jobs and the time go in; bytes for sessions and disk jobs come out.

The broker is deterministic. It opens no socket, starts no thread and reads no clock, so a simulator can replay years of
faults from one seed. The server (``radiator.server``) calls it from one thread::

    handle(session, frames, now)     frames that a client sent
    take(now) -> jobs                the open batches of all dirty partitions, to write and sync off the event loop
    completed(job, now)              a job has ended: the high watermark moves, receipts leave, readers become ready
    next_deadline_ns(now)            the latest time for the next tick
    take_reads() -> reads            cold reads and look-ups, to run off the event loop; then read_done(read)
    ready.pump() -> bool             deliver one bounded run to each ready reader; True if there is more to do
    flushed(session, size)           bytes were sent; disconnect(session): the connection is gone
    tick(now)                        about once a second

Invariants: no reader gets a message above the high watermark. A receipt leaves after its commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from radiator.broker.admission import Dropped, Wait
from radiator.broker.budget import Unfinished
from radiator.broker.clients.session import Session
from radiator.broker.destinations.registry import BeingRemoved
from radiator.broker.frames import audited, commands
from radiator.broker.publishing import sending
from radiator.broker.schedules import Schedules
from radiator.broker.services import Services
from radiator.broker.subscribing import leaving, subscribing
from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs, Now
from radiator.errors import ProtocolError, StorageError
from radiator.storage.batch import RECORD_OVERHEAD_BYTES

if TYPE_CHECKING:
    from radiator.broker.admission import Hold
    from radiator.broker.clients.session import Reader, Subscription
    from radiator.broker.delivery.cold_reads import Read
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.rule_hooks import RuleHooks
    from radiator.routing.policy import Policy
    from radiator.routing.rules import Rules
    from radiator.stomp.frames import Frame
    from radiator.storage.store import Store

log = logging.getLogger("radiator.broker")

ADVANCE_EVERY_NS = 10 * NS_PER_SECOND
LOOK_EVERY = 8  # frames, or runs of SENDs; a call of ``late`` costs a hundredth of a SEND
SETTLE_INTERVAL_NS = 2 * NS_PER_MS  # how long acks without a receipt are gathered under load


class Broker(Services):
    """A broker over a store. The arguments are those of ``Core``."""

    _settled_ns = _advanced_ns = MonoNs(0)

    def __init__(
        self,
        rules: Rules,
        store: Store,
        wake: Callable[[Session], None],
        *,
        hooks: Mapping[int, RuleHooks] = MappingProxyType({}),
        late: Callable[[], bool] = bool,
    ) -> None:
        super().__init__(rules, store, wake, hooks=hooks, late=late)
        self.schedules = Schedules(self)

    def use(self, rules: Rules, hooks: Mapping[int, RuleHooks], policies: dict[Destination, Policy]) -> None:
        """Use another configuration from now on (``Core.use``), and its schedules."""
        super().use(rules, hooks, policies)
        self.schedules.use(rules.config.schedules)

    # --- sessions ---------------------------------------------------------------------------------------------------

    def connect(self, session_id: str, secret: str, address: str = "", origin: str = "") -> Session:
        """Create the session of a new connection. Its CONNECT frame comes through ``handle``.

        Args:
            session_id: Unique over all runs of the broker. It appears in lists, logs and ack ids and has no ``@``.
            secret: A random string. A client that has it may send to the temporary queues of this connection.
            address: The address of the peer, for log lines.
            origin: The group of connections that count as one peer: the address without its port, or a subnet.

        Returns:
            The session.
        """
        joined = self.joined.of_one(self.session_limits.joined)
        session = Session(
            session_id, secret, self.session_limits, self._wake, self.refuse, address, origin, joined, self.slow.missed
        )
        self.sessions[session_id] = session
        self.stats.count(connections=1)
        return session

    def handle(self, session: Session, frames: list[Frame], now: Now) -> list[Frame]:
        """Handle frames in their order. A frame that breaks a rule is answered with ERROR, and the rest are ignored.

        Args:
            session: The session.
            frames: The frames that its client sent.
            now: The present time.

        Returns:
            The frames that remain when the budget of the turn is used up, other connections are to be served, or a
            frame has to wait (``radiator.broker.admission``). The caller passes them again.
        """
        session.command.begin_visit()
        if self.displaced is not None and frames and not session.closing:
            self.refuse(session, self.displaced, frames[0].receipt)
        if session.undecided:
            return frames
        hold = session.hold
        if hold is not None and not self.throttle.lets(session, hold, now.mono):
            return frames
        send, send_plain, steps = sending.send, sending.send_plain, session.command.steps
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
                    session.command.run(budget, begun)
                elif (plan := frame.head.memo) is None:  # not a SEND, or one without a plan
                    commands.dispatch(self, session, frame, now)
                elif sent := send_plain(self, session, frames, index, now):
                    index += sent
                    continue
                elif plan.generation == self.generation:
                    send(self, session, plan, frame, now)
                else:
                    commands.dispatch(self, session, frame, now)
            except Exception as error:
                again = self._not_done(session, frame, error, hold if index == 0 else None, now)
                if again is not None:
                    return [again, *frames[index + 1 :]]
            index += 1
        return []

    def _not_done(self, session: Session, frame: Frame, why: Exception, hold: Hold | None, now: Now) -> Frame | None:
        """Handle the exception of a frame: the frame waits, its message is dropped, or it is refused.

        Args:
            session: The session.
            frame: The frame.
            why: The exception.
            hold: The wait of this frame that ended before; None if it did not wait.
            now: The present time.

        Returns:
            The frame to handle in the next visit; None if it is settled.
        """
        if isinstance(why, Unfinished):
            session.command.end_visit(why.at_once)
            return frame
        if isinstance(why, Wait):
            if self.throttle.hold(session, why, hold, now.mono):
                return why.frame or frame
            audited.refused(self, session, frame, why.refusal)
            self.refuse(session, why.refusal, frame.receipt)
        elif isinstance(why, Dropped):
            self.stats.count(**{why.counter: 1})
            if frame.receipt is not None:
                session.receipts.now(frame.receipt + b"\ndropped:true")
        elif isinstance(why, BeingRemoved) and why.waits:
            session.command.end_visit(False)
            return frame
        elif isinstance(why, ProtocolError):
            self.refuse(session, why, frame.receipt)
        elif isinstance(why, StorageError):
            self.storage_failures.refused(str(why))
            refusal = ProtocolError("storage", "the message could not be stored", str(why))
            self.refuse(session, refusal, frame.receipt)
        else:
            self.internal_errors.found(why)
            what = f"It is unknown whether this {frame.head.command} had an effect; see the log of the broker."
            self.refuse(session, ProtocolError("internal", "the broker failed on this frame", what), frame.receipt)
        return None

    def release(self, session: Session) -> None:
        """Return everything that a session holds. The session may still have bytes to send."""
        leaving.release(self, session)

    def disconnect(self, session: Session) -> None:
        """Remove a session whose connection is gone."""
        if session.closed:
            return
        session.begin_closing()
        leaving.release(self, session)
        outbox = session.outbox
        while outbox.auto_acks:
            run = outbox.auto_acks.popleft()
            source = run.source
            written, unwritten = run.unwritten(outbox.written_total)
            with self.internal_errors:
                source.settle(written)
                self.returns.back(source, unwritten, attempted=False)
        session.end()
        self.sessions.pop(session.id, None)

    def flushed(self, session: Session, size: int) -> None:
        """Note that ``size`` bytes of the outbox were sent: messages under ``ack:auto`` settle, deliveries go on."""
        outbox = session.outbox
        outbox.flushed(size)
        if outbox.waiting and outbox.room() > 0:
            for subscription in outbox.take_waiting():
                self.ready.credit(subscription)

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. Its unacknowledged messages return to their queues until ``left`` is True."""
        leaving.unsubscribe(self, subscription)

    # --- the turn ---------------------------------------------------------------------------------------------------

    def take(self, now: Now) -> list[Any]:
        """Return the disk jobs of this turn. Memory partitions commit at once and leave no job."""
        now = self._begin_turn(now)
        if (self.dirty_sources or self.recorder.waiting) and self._settle_now(now.mono):
            self._settled_ns = now.mono
            for source in self.dirty_sources:
                source.flush()
            self.dirty_sources.clear()
            if self.recorder.waiting:
                self.delivery_log.write()
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
            with self.internal_errors:
                self.dead_letters.run()
        return now

    def take_finished(self, now: Now) -> None:
        """Commit batches that need no disk, in a turn in which the disk thread is busy."""
        now = self._begin_turn(now)
        for job in self.store.take_finished(now):
            self._completed(job, now)

    def _settle_now(self, now_ns: MonoNs) -> bool:
        """Return True if acks go to the journal in this turn.

        Acks that come so fast that each would cost a disk job, and that no receipt waits for, are gathered for
        ``SETTLE_INTERVAL_NS``.
        """
        return now_ns - self._settled_ns >= SETTLE_INTERVAL_NS or self.store.dirty or bool(self.store.cursors.waiters)

    def completed(self, jobs: Iterable[Any], now: Now) -> None:
        """Handle disk jobs that have ended: written and synced according to their policies, or failed."""
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
            self.storage_failures.failed(job, now.mono)
        elif job.note:
            log.warning("storage: %s", job.note)
        for first, last in job.lost:
            self.stats.count(lost_to_failures=last - first + 1)
            log.error("storage: %s: offsets %d to %d are lost", job.partition.name, first, last)
        batch = job.batch
        if batch is not None and not job.again:  # a postponed batch must not stop the reading of sockets
            self.pending_bytes -= batch.size_bytes + len(batch.blocks) * RECORD_OVERHEAD_BYTES
            self.stats.add_commit()
            feed = self.registry.feed_of(job.partition)
            if feed is not None:
                self.ready.feed(feed, feed.committed(batch, failure is not None))
                if failure is None:
                    count = len(batch.blocks)
                    feed.traffic.stored(count)
                    if batch.receive_ns:
                        self.stats.histograms.receipt.observe(now.wall - batch.receive_ns[0], count)
        assert batch is None or failure is not None or job.partition.high_watermark >= batch.next_offset
        for each in job.waiters:
            each.settle(failure)
        if job.place is not None:
            turn = job.place.turn
            for each in turn.ends(job.place, failure):
                self.pending_bytes -= each.weight_bytes
                each.stored(turn)

    def take_reads(self) -> list[Read]:
        """Return the cold reads and look-ups to run on a read thread."""
        return self.reading.take()

    def read_done(self, read: Read) -> None:
        """Handle the end of a read."""
        self.reading.done(read)

    def maintenance_done(self, job: Any, now: Now) -> None:
        """Handle the end of a maintenance job."""
        note = self.store.maintenance.done(job, self.timing.see(now))
        if note:
            log.error("storage: %s", note)

    def reader_done(self, reader: Reader) -> None:
        """Handle the end of a reader that has reached its stop position: the last one ends a bounded replay."""
        subscription = reader.subscription
        if subscription.closed or reader not in reader.feed.readers:
            return
        reader.feed.readers.pop(reader, None)
        subscription.reader_done()
        if subscription.reading == 0:
            subscribing.replay_end(self, subscription)

    # --- time -------------------------------------------------------------------------------------------------------

    def next_deadline_ns(self, now: Now) -> MonoNs:
        """Return the monotonic time of the next planned work of ``tick``; NEVER_NS if none is planned."""
        now = self.timing.see(now)
        return min(self.store.next_deadline_ns(now), self.timing.next_ns, self.throttle.next_ns)

    def tick(self, now: Now) -> None:
        """Do the work that is due: timers, interval syncs, rolls, retention, read retries, timed stops of readers."""
        self.budget.begin()
        now = self.timing.see(now)
        self.timing.fire_due()
        self.store.tick(now)
        self.throttle.retry_due(now.mono)
        self.memory_watch.look(now.mono)
        self.draining.tick(now.mono)
        self.reading.retry()
        self.storage_failures.tick(now.mono)
        self.future_logs.tick(now)
        self.durable.tick(now)
        self.monitor.tick(now)
        if now.mono - self._advanced_ns >= ADVANCE_EVERY_NS:
            self._advanced_ns = now.mono
            self.registry.advance_idle_queues()
            self.orphaned.look()
        for time_ns, reader in self.take_timed_stops(now.wall):
            self.reading.stop_at(reader, time_ns)
