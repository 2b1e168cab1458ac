"""The driver: once per turn of the loop it moves everything that is ready one hop on.

A turn takes what all connections brought, hands it to the disk thread as one group, delivers what commits have made
visible, and sends. It runs as a callback of the loop, after the readers of this turn, and never blocks. While the disk
thread is at work new messages gather, and the next group takes them all: that is the group commit.
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
from radiator.broker.logs.feed import Read
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

DELAY_SECONDS = 0.001  # how long nothing may come until a group that waits for more is looked at again
PUMPS_PER_TURN = 4  # then the sockets have their turn
DEADLINE_SECONDS_MIN, DEADLINE_SECONDS_MAX = 0.001, 5.0  # a wall clock that steps forward is met after that


class Driver:
    """Joins a broker, the two disk threads and the transports."""

    def __init__(self) -> None:
        self.broker: Broker
        self.partial_frames: PartialFrames
        self.transports: dict[Session, Any] = {}
        self.has_room = True  # new messages may be appended
        self._checkpoints_behind = False  # as the last group left it
        self.paused: dict[Any, None] = {}  # transports that are not read for now
        self.stopping = False  # nobody is read any more
        self.heartbeats = HeartbeatTimers()  # when which transport is looked at for its heart-beats
        self.idle = Event()  # set when nothing is on its way to the disk
        self._closing: dict[Any, None] = {}
        self._loop = gevent.get_hub().loop
        self.scheduler = ReadScheduler()
        self.handshakes = Handshakes(self._loop)
        interval = SETTLE_INTERVAL_NS / clock.NS_PER_SECOND
        self._settle_timer = self._loop.timer(interval, interval)
        self._settling = False
        self._delay = CommitDelay()
        self._delay_timer = self._loop.timer(DELAY_SECONDS, DELAY_SECONDS)
        self._deadline_ns = clock.MonoNs(NEVER_NS)  # what the timer below is set to
        self._deadline_timer: Any = None
        self.scheduled = False  # there will be a turn
        self._turning = False
        self._again = self._loop.async_()  # a turn behind the next poll: callbacks that make callbacks run before it
        self._again.start(self._turn)
        self._committing = False
        self._outgoing: dict[Session, None] = {}
        self._disk = Worker("radiator-disk")
        self._inline = InlineCommit()
        self._reads = Worker("radiator-read")
        self._maintenance = Worker("radiator-care")
        self._checkpoints = Worker("radiator-checkpoint")
        self._throttle = BackgroundThrottle()
        self._maintaining = False

    def attach(self, broker: Broker, check_seconds: float) -> None:
        """Drive this broker; ``check_seconds``: how often ``check_paused`` is called."""
        self.broker = broker
        self._checkpoints_behind = broker.store.checkpoints_behind
        self.partial_frames = PartialFrames(broker.memory_watch, broker.config, check_seconds)

    def wake(self) -> None:
        """Have a turn at the end of this round of the loop."""
        if not self.scheduled:
            self.scheduled = True
            if self._turning:
                self._again.send()
            else:
                self._loop.run_callback(self._turn)

    def outgoing(self, session: Session) -> None:
        """A session has bytes to send (``Broker``'s wake)."""
        self._outgoing[session] = None
        if not (self.scheduled or self._turning):  # a turn sends what it brings
            self.wake()

    def begin_stop(self) -> None:
        """Read from no connection any more."""
        self.stopping = True
        for transport in list(self.transports.values()):
            transport.pause()

    def watch_closing(self, transport: Any) -> None:
        """Look after each turn whether this transport's last frames are out."""
        self._closing[transport] = None
        self.wake()

    def connection_closed(self, transport: Any) -> None:
        """This connection has ended: nothing of it is left here or in the broker."""
        with self.broker.internal_errors:
            self.broker.disconnect(transport.session)
        self.transports.pop(transport.session, None)
        self.paused.pop(transport, None)
        self.partial_frames.forget(transport)
        if transport.heart_beat is not None:
            self.heartbeats.drop()
        self.wake()

    def check_heartbeats(self) -> None:
        """Send the heart-beats that are due and close the peers that have gone silent."""
        with self.measured():
            self.heartbeats.check(clock.monotonic_ns())

    def check_paused(self) -> None:
        """Once a tick: those that are not read cannot be judged by what comes."""
        dead_peers.close_dead(self.broker, self.paused)
        self.partial_frames.check()
        now_ns = clock.monotonic_ns()
        for transport in list(self.paused):
            if transport.heart_beat is not None:
                transport.check_heartbeat(now_ns)

    def run_in_background(self, work: Callable[[], Any]) -> None:
        """Something small that reads files: on the thread of reads. What it raises is our bug, and is logged."""
        self._reads.submit(partial(run_logged, work), lambda _: None)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """For a callback of the loop that does broker work: how long it takes is measured."""
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
        start_ns = now.mono
        broker = self.broker
        brought = False  # it did something that may have brought work for the disk
        if self._committing:
            broker.take_finished(now)
        elif self._delay.wanted(broker.pending_bytes, now.mono):
            broker.take_finished(now)
            self._delay_timer.again(self._delay_over)
        else:
            try:
                jobs = broker.take(now)
            except Exception:
                abort_process()  # some of them would wait for ever
            if broker.dirty_sources and not self._settling:
                self._settling = True
                self._settle_timer.again(self._settle)
            if not jobs:
                if self._disk.idle and not self.idle.is_set():
                    self.idle.set()
            elif self._disk.idle and self._inline.allows(jobs, len(self.transports)):
                now = self._complete(self._inline.run(jobs))  # what it brings leaves in this very turn
                brought = True
            else:
                self._committing = True
                self.idle.clear()
                self._delay.started(jobs, now.mono)
                self._disk.submit(partial(self._run_group, jobs), self._committed)
        more = False
        if broker.ready.busy:
            for _ in range(PUMPS_PER_TURN):
                more = broker.ready.pump()
                if not more or broker.budget.exhausted:
                    break
                brought = self._flush() or brought  # what a run has made is freed before the next one is made
        for read in broker.take_reads():
            if read.job.finished:
                self._read_done(read)
            else:
                self._reads.submit(partial(run_read, read), self._read_done)
        if not self._maintaining and (care := broker.store.maintenance.take()) is not None:
            self._maintaining = True
            self._maintenance.submit(partial(run_maintenance, care, self._throttle), self._maintenance_done)
        if (checkpoint := broker.store.checkpoints.take()) is not None:
            self._checkpoints.submit(partial(run_checkpoint, checkpoint), self._checkpointed)
        brought = self._flush() or brought
        if self._closing:
            for transport in list(self._closing):
                try:
                    transport.try_finish()
                except Exception as error:
                    transport.fail(error)
                if transport.closed:
                    del self._closing[transport]
        self.has_room = broker.pending_bytes <= limits.PENDING_APPEND_BYTES_MAX and not self._checkpoints_behind
        self.scheduler.begin_queued(start_ns)
        for transport in list(self.paused):
            try:
                if transport.resume() and self.scheduler.round_over:
                    self.wake()
                    break
            except Exception as error:
                transport.fail(error)
        more |= self.scheduler.run_queued()
        broker.budget.took(self.scheduler.next_round())
        # By what has just left. Otherwise the timer, or the end of the group that is under way, brings a turn.
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

    def _flush(self) -> bool:
        """Send what sessions have. Returns whether there was something."""
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
        """No more messages came for a while."""
        self._delay_timer.stop()
        self.wake()

    def _settle(self) -> None:
        """Acks that were gathered are due."""
        self._settling = False
        self._settle_timer.stop()  # it repeats: libev cannot start a one-shot timer twice
        self.wake()

    def _run_group(self, jobs: list[Any]) -> list[Any]:
        """On the disk thread."""
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
        """Let what these jobs have done take effect. Returns the present time."""
        now = clock.now()
        try:
            self.broker.completed(jobs, now)
        except Exception:
            abort_process()  # some of the group would wait for ever
        self._checkpoints_behind = self.broker.store.checkpoints_behind
        self._meet_deadline(now)
        return now

    def _meet_deadline(self, now: clock.Now) -> None:
        """An interval sync is due when its rule says, and not at the next tick: the interval is what may be lost. The
        same for a message that is to be delivered at a moment."""
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
        self.broker.care_done(job, clock.now())
        self.wake()

    def _checkpointed(self, checkpoint: Checkpoint) -> None:
        self.broker.store.checkpoints.done(checkpoint)
        self.wake()

    def stop(self) -> None:
        """End the threads; the caller has seen to it that nothing is under way."""
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
    """On the read thread."""
    read.run()
    return read


def run_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """On the thread of checkpoints."""
    checkpoint.run()
    return checkpoint


def run_logged(work: Callable[[], Any]) -> None:
    """On the read thread."""
    try:
        work()
    except Exception:
        log.exception("a bug of the broker, beside its work")
