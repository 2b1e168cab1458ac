"""Drive the broker: one turn per round of the event loop moves everything that is ready by one step.

A turn collects what all connections have sent, submits it to the disk thread as one group, delivers what commits have
made visible, and sends. It runs as a callback of the event loop, after the sockets of this round were read, and never
blocks. New messages collect while the disk thread works, and the next group takes all of them: that is the group
commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gevent
from gevent.event import Event

from radiator import clock, limits
from radiator.broker.broker import SETTLE_INTERVAL_NS, Broker
from radiator.broker.clients.session import Session
from radiator.broker.delivery.cold_reads import Read
from radiator.server import dead_peers
from radiator.server.background import BackgroundThrottle, run_maintenance
from radiator.server.group_commit import CommitDelay, InlineCommit, run_group
from radiator.server.handshakes import Handshakes
from radiator.server.heartbeats import HeartbeatTimers
from radiator.server.partial_frames import PartialFrames
from radiator.server.scheduler import ReadScheduler
from radiator.server.worker import Worker, abort_process
from radiator.storage.journal.checkpoint import Checkpoint
from radiator.timers import NEVER_NS

log = logging.getLogger("radiator.server")

DELAY_SECONDS = 0.001  # without messages, until a delayed group is submitted
PUMPS_PER_TURN = 4  # then sockets are read again
DEADLINE_SECONDS_MIN, DEADLINE_SECONDS_MAX = 0.001, 5.0  # a step of the wall clock is noticed after that


class Driver:
    """Connect a broker with the disk threads and the transports.

    Attributes:
        broker: The broker; set by ``attach``.
        partial_frames: The connections with unfinished frames; set by ``attach``.
        transports: The open connections.
        has_room: True while new messages may be appended.
        paused: The transports that are not read for now.
        stopping: True when no connection is read any more.
        heartbeats: The timers of heart-beats.
        idle: Set while no group is on its way to the disk.
        scheduler: Decides which connection is read when.
        handshakes: Limits the TLS handshakes of a round.
        scheduled: True if a turn will follow.
    """

    def __init__(self) -> None:
        self.broker: Broker
        self.partial_frames: PartialFrames
        self.transports: dict[Session, Any] = {}
        self.has_room = True  # new messages may be appended
        self._checkpoints_behind = False  # after the last group
        self.paused: dict[Any, None] = {}  # transports that are not read for now
        self.stopping = False  # no connection is read any more
        self.heartbeats = HeartbeatTimers()  # when each transport is checked
        self.idle = Event()  # set while no group is submitted
        self._closing: dict[Any, None] = {}
        self._loop = gevent.get_hub().loop
        self.scheduler = ReadScheduler()
        self.handshakes = Handshakes(self._loop)
        interval = SETTLE_INTERVAL_NS / clock.NS_PER_SECOND
        self._settle_timer = self._loop.timer(interval, interval)
        self._settling = False
        self._delay = CommitDelay()
        self._delay_timer = self._loop.timer(DELAY_SECONDS, DELAY_SECONDS)
        self._deadline_ns = clock.MonoNs(NEVER_NS)  # the time of the timer below
        self._deadline_timer: Any = None
        self.scheduled = False  # a turn will follow
        self._turning = False
        self._again = (
            self._loop.async_()
        )  # a turn after the next poll; a callback made by a callback would run before it
        self._again.start(self._turn)
        self._committing = False
        self._outgoing: dict[Session, None] = {}
        self._disk = Worker("radiator-disk")
        self._inline = InlineCommit()
        self._reads = Worker("radiator-read")
        self._maintenance = Worker("radiator-maintenance")
        self._checkpoints = Worker("radiator-checkpoint")
        self._throttle = BackgroundThrottle()
        self._maintaining = False

    def attach(self, broker: Broker, check_seconds: float) -> None:
        """Drive this broker.

        Args:
            broker: The broker.
            check_seconds: The interval at which ``check_paused`` is called.
        """
        self.broker = broker
        self._checkpoints_behind = broker.store.checkpoints_behind
        self.partial_frames = PartialFrames(broker.memory_watch, broker.config, check_seconds)

    def wake(self) -> None:
        """Schedule a turn at the end of this round of the event loop."""
        if not self.scheduled:
            self.scheduled = True
            if self._turning:
                self._again.send()
            else:
                self._loop.run_callback(self._turn)

    def outgoing(self, session: Session) -> None:
        """Note that a session has bytes to send. The ``wake`` callback of the broker."""
        self._outgoing[session] = None
        if not (self.scheduled or self._turning):  # the present turn sends it
            self.wake()

    def begin_stop(self) -> None:
        """Read from no connection any more."""
        self.stopping = True
        for transport in list(self.transports.values()):
            transport.pause()

    def watch_closing(self, transport: Any) -> None:
        """Check after each turn whether the last frames of this transport are sent."""
        self._closing[transport] = None
        self.wake()

    def connection_closed(self, transport: Any) -> None:
        """Remove a connection that has ended from the driver and the broker."""
        with self.broker.internal_errors:
            self.broker.disconnect(transport.session)
        self.transports.pop(transport.session, None)
        self.paused.pop(transport, None)
        self.partial_frames.forget(transport)
        if transport.heart_beat is not None:
            self.heartbeats.drop()
        self.wake()

    def check_heartbeats(self) -> None:
        """Send the heart-beats that are due, and close the peers that are silent for too long."""
        with self.measured():
            self.heartbeats.check(clock.monotonic_ns())

    def check_paused(self) -> None:
        """Check the connections that are not read, once per tick."""
        dead_peers.close_dead(self.broker, self.paused)
        self.partial_frames.check()
        now_ns = clock.monotonic_ns()
        for transport in list(self.paused):
            if transport.heart_beat is not None:
                transport.check_heartbeat(now_ns)

    def run_in_background(self, work: Callable[[], Any]) -> None:
        """Run a function that reads small files on the read thread. An exception is logged as a bug."""
        self._reads.submit(partial(run_logged, work), lambda _: None)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a callback of the event loop that does broker work, as a context manager."""
        start_ns = clock.monotonic_ns()
        try:
            yield
        finally:
            self.broker.budget.took(clock.monotonic_ns() - start_ns)

    def _turn(self) -> None:
        self._turning = True
        now = clock.now()
        try:
            self._run_turn(now)
        finally:
            if self._outgoing:
                self.wake()
            self._turning = False
            self.broker.budget.took(clock.monotonic_ns() - now.mono)

    def _run_turn(self, now: clock.Now) -> None:
        self.scheduled = False
        broker = self.broker
        brought = self._commit(now)  # this turn may have created work for the disk
        more, sent = self._pump()
        self._submit_other_work()
        brought |= self._flush() or sent
        self._finish_closing()
        self.has_room = broker.pending_bytes <= limits.PENDING_APPEND_BYTES_MAX and not self._checkpoints_behind
        more |= self._read_on(now.mono)
        # Acknowledgements by what was just sent. Otherwise the timer, or the end of the group, causes a turn.
        settled = broker.dirty_sources and not (self._settling or self._committing)
        if (
            more
            or broker.ready.busy
            or broker.dead_letters.waiting
            or broker.background.waiting
            or (brought and (settled or broker.store.dirty))
        ):
            self.wake()
        if min(broker.timing.next_ns, broker.throttle.next_ns) < self._deadline_ns:
            self._meet_deadline(clock.now())

    def _commit(self, now: clock.Now) -> bool:
        """Submit what has collected to the disk thread, or wait. Return True if the group was done in this turn."""
        broker = self.broker
        if self._committing:
            broker.take_finished(now)
            return False
        if self._delay.wanted(broker.pending_bytes, now.mono):
            broker.take_finished(now)
            self._delay_timer.again(self._delay_over)
            return False
        try:
            jobs = broker.take(now)
        except Exception:
            abort_process()  # some jobs would wait for ever
        if broker.dirty_sources and not self._settling:
            self._settling = True
            self._settle_timer.again(self._settle)
        if not jobs:
            if self._disk.idle and not self.idle.is_set():
                self.idle.set()
            return False
        if self._disk.idle and self._inline.allows(jobs, len(self.transports)):
            self._complete(self._inline.run(jobs))  # its results are sent in this turn
            return True
        self._committing = True
        self.idle.clear()
        self._delay.started(jobs, now.mono)
        self._disk.submit(partial(self._run_group, jobs), self._committed)
        return False

    def _pump(self) -> tuple[bool, bool]:
        """Deliver what is ready. Return whether more is ready, and whether bytes were sent."""
        broker = self.broker
        more = sent = False
        if broker.ready.busy:
            for _ in range(PUMPS_PER_TURN):
                more = broker.ready.pump()
                if not more or broker.budget.exhausted:
                    break
                sent = self._flush() or sent  # frees the bytes of a run before the next run
        return more, sent

    def _submit_other_work(self) -> None:
        """Submit cold reads, a rewrite of a segment, and a checkpoint to their threads."""
        store = self.broker.store
        for read in self.broker.take_reads():
            if read.job.finished:
                self._read_done(read)
            else:
                self._reads.submit(partial(run_read, read), self._read_done)
        if not self._maintaining and (rewrite := store.maintenance.take()) is not None:
            self._maintaining = True
            self._maintenance.submit(partial(run_maintenance, rewrite, self._throttle), self._maintenance_done)
        if (checkpoint := store.checkpoints.take()) is not None:
            self._checkpoints.submit(partial(run_checkpoint, checkpoint), self._checkpointed)

    def _finish_closing(self) -> None:
        """Shut down the sending side of the closing transports that have sent all."""
        for transport in list(self._closing):
            try:
                transport.try_finish()
            except Exception as error:
                transport.fail(error)
            if transport.closed:
                del self._closing[transport]

    def _read_on(self, start_ns: clock.MonoNs) -> bool:
        """Resume the paused transports, and read the busy ones. Return True if some of these have more."""
        self.scheduler.begin_queued(start_ns)
        for transport in list(self.paused):
            try:
                if transport.resume() and self.scheduler.round_over:
                    self.wake()
                    break
            except Exception as error:
                transport.fail(error)
        more = self.scheduler.run_queued()
        self.broker.budget.took(self.scheduler.next_round())
        return more

    def _flush(self) -> bool:
        """Send the bytes of all sessions that have some. Return True if there were any."""
        if not self._outgoing:
            return False
        outgoing, self._outgoing = self._outgoing, {}
        transports = self.transports
        for session in outgoing:
            transport = transports.get(session)
            if transport is not None:
                try:
                    transport.flush()
                except Exception as error:
                    transport.fail(error)
        return True

    def _delay_over(self) -> None:
        """Schedule a turn, because no more messages came for a while."""
        self._delay_timer.stop()
        self.wake()

    def _settle(self) -> None:
        """Schedule a turn that writes the acknowledgements collected so far."""
        self._settling = False
        self._settle_timer.stop()  # it repeats: libev cannot start a one-shot timer twice
        self.wake()

    def _run_group(self, jobs: list[Any]) -> list[Any]:
        """Run a group of disk jobs. Runs on the disk thread."""
        return run_group(jobs, partial(self._disk.post, self._completed))

    def _committed(self, jobs: list[Any]) -> None:
        self._committing = False
        pending_bytes = self.broker.pending_bytes
        self._completed(jobs)
        self._delay.finished(pending_bytes, clock.monotonic_ns())

    def _completed(self, jobs: list[Any]) -> None:
        now = self._complete(jobs)
        self.broker.budget.took(clock.monotonic_ns() - now.mono)
        self.wake()

    def _complete(self, jobs: list[Any]) -> clock.Now:
        """Apply the results of these jobs, and return the present time."""
        now = clock.now()
        try:
            self.broker.completed(jobs, now)
        except Exception:
            abort_process()  # some of the group would wait for ever
        behind = self.broker.store.checkpoints_behind
        if behind and not self._checkpoints_behind:
            self.broker.stats.count(journal_pauses=1)
        self._checkpoints_behind = behind
        self._meet_deadline(now)
        return now

    def _meet_deadline(self, now: clock.Now) -> None:
        """Set the timer to the broker's next deadline, if it is earlier than the present one.

        The deadline of an interval sync must not wait for the next tick, because the interval is what a crash may lose.
        The same applies to scheduled messages.
        """
        deadline_ns = self.broker.next_deadline_ns(now)
        if deadline_ns >= self._deadline_ns:
            return
        seconds = min((deadline_ns - now.mono) / clock.NS_PER_SECOND, DEADLINE_SECONDS_MAX)
        self._stop_deadline_timer()
        self._deadline_ns = deadline_ns
        self._deadline_timer = self._loop.timer(max(seconds, DEADLINE_SECONDS_MIN))
        self._deadline_timer.start(self._deadline)

    def _deadline(self) -> None:
        self._deadline_ns = clock.MonoNs(NEVER_NS)
        now = clock.now()
        with self.measured(), self.broker.internal_errors:
            self.broker.tick(now)
        self._meet_deadline(now)
        self.wake()

    def _stop_deadline_timer(self) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.stop()
            self._deadline_timer.close()
            self._deadline_timer = None

    def _read_done(self, read: Read) -> None:
        with self.measured(), self.broker.internal_errors:
            self.broker.read_done(read)
        self.wake()

    def _maintenance_done(self, job: Any) -> None:
        self._maintaining = False
        self.broker.maintenance_done(job, clock.now())
        self.wake()

    def _checkpointed(self, checkpoint: Checkpoint) -> None:
        self.broker.store.checkpoints.done(checkpoint)
        self.wake()

    def stop(self) -> None:
        """End the threads. The caller has waited until no job is under way."""
        self._settle_timer.stop()
        self._settle_timer.close()
        self._delay_timer.stop()
        self._delay_timer.close()
        self._again.stop()
        self._again.close()
        self.handshakes.stop()
        self._stop_deadline_timer()
        self._disk.stop()
        self._reads.stop()
        self._throttle.stop()
        self._maintenance.stop()
        self._checkpoints.stop()


def run_read(read: Read) -> Read:
    """Run a read and return it. Runs on the read thread."""
    read.run()
    return read


def run_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Run a checkpoint and return it. Runs on the checkpoint thread."""
    checkpoint.run()
    return checkpoint


def run_logged(work: Callable[[], Any]) -> None:
    """Run a function, and log an exception as a bug. Runs on the read thread."""
    try:
        work()
    except Exception:
        log.exception("a bug in the broker, outside of a frame")
