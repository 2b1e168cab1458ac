"""A transport: one socket, the sans-IO connection on it, and the session behind it.

It lives in callbacks of the loop: a watcher says that bytes have come, they are parsed and handed to the broker, and
the driver's turn follows when every socket of this round has been read. Sending is tried at once by the driver; only
what the socket does not take waits for a second watcher. So an idle connection costs no greenlet and no buffer (an ADR,
``docs/adr/``, has the figures).

Closing: after an ERROR or the RECEIPT of DISCONNECT our side is shut down and the peer's bytes are read and dropped for
a moment, since closing at once would reset the connection and could take the last frame with it.

Invariants: ``close`` runs once, and then nothing of this connection is left in the broker, the driver or the loop.
"""

from __future__ import annotations

import logging
import socket as std_socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gevent

from radiator import clock
from radiator.broker.access import too_late
from radiator.broker.publishing.sending import goes_to_disk
from radiator.errors import ProtocolError
from radiator.server import kernel
from radiator.stomp.heartbeat import HeartBeat

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.server.driver import Driver
    from radiator.stomp.connection import ServerConnection
    from radiator.stomp.frames import Frame

log = logging.getLogger("radiator.server")

READ, WRITE = 1, 2  # libev's event bits
FRAME_OVERHEAD_BYTES = 128  # of a frame in memory beside its bytes
LATE_SECONDS = 1.0  # more for CONNECT, where something has come that is not read yet
LINGER_SECONDS = 2.0  # how long a closing connection is read, so that its last frame arrives
UNSENT_SECONDS_MAX = 10.0  # how long a closing connection may take to accept its last bytes


class Transport:
    """One client's socket, a plain non-blocking one."""

    __slots__ = (
        "_backlog",
        "_busy_until",
        "_connection",
        "_driver",
        "_ended",
        "_ending",
        "_feeds_disk",
        "_reported_bytes",
        "_queued",
        "_paused",
        "_pending_bytes",
        "_rest",
        "_rest_bytes",
        "_reader",
        "_shut",
        "_timer",
        "_unread",
        "_writer",
        "closed",
        "peer_ended",
        "heart_beat",
        "session",
        "sock",
    )

    def __init__(
        self,
        sock: std_socket.socket,
        session: Session,
        connection: ServerConnection,
        driver: Driver,
        connect_timeout_seconds: float,
    ) -> None:
        self.sock = sock
        self._connection = connection
        self._driver = driver
        self._backlog: list[memoryview] = []
        self._writer: Any = None
        self._shut = False  # our side has been shut down; what still comes is dropped
        self._paused = False  # not read: see _may_read
        self._queued = False  # not read until its turn has come: see ReadScheduler
        self._busy_until = 0  # the round in which it counts no more as busy
        self._feeds_disk = False  # it has just sent something that goes to a disk that is behind
        self._unread = 0  # bytes in the kernel when a paused peer was last looked at
        self._rest: list[Frame] = []  # frames whose turn has not come: those before them were much work
        self._rest_bytes = 0  # what these hold, at most
        self._pending_bytes = 0  # of the frame that has not come whole
        self._reported_bytes = 0  # all that was last reported to ``PartialFrames``
        self._ending = False  # its last frames are on their way out
        self._ended = False  # the peer sends no more, but may still read
        self.peer_ended = False  # the same, found out while it is not read
        self.closed = False
        self.session = session
        self.heart_beat: HeartBeat | None = None
        loop = gevent.get_hub().loop
        self._timer: Any = loop.timer(connect_timeout_seconds)
        self._timer.start(self._connect_timed_out)
        self._reader: Any = loop.io(sock.fileno(), READ)
        self._reader.start(self._readable)
        driver.transports[session] = self

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        """With whose connections it shares the time of the loop: the user's, or before the login the address's."""
        return self.session.user or self.session.origin

    def _readable(self) -> None:
        session = self.session
        if self._driver.scheduler.try_begin(session.user or session.origin, self._busy_until):
            self._read_slice()
        else:
            self._enqueue()

    def run_slice(self) -> None:
        """Go on after standing in line."""
        self._queued = False
        if not (self.closed or self._paused):
            self._driver.scheduler.begin(self.origin)
            self._read_slice()
            self._read_on()

    def _enqueue(self) -> None:
        """Read no more until ``run_slice``."""
        if not (self._queued or self.closed):
            self._queued = True
            self._reader.stop()
            self._driver.scheduler.enqueue(self)
            self._driver.wake()

    def _read_slice(self) -> None:
        """Act on the frames that were left, and read on, until the visit that has begun is over or nothing more is
        there."""
        scheduler = self._driver.scheduler
        try:
            if self._rest:
                self._act_on_rest()
            while not (self.closed or self._paused or self._queued):
                size = scheduler.recv_bytes
                data = self.sock.recv(size)
                if not data:
                    self._peer_ended()
                    break
                if self._shut:
                    break
                self._received(data)
                if len(data) < size:
                    break
                if scheduler.count(len(data)):
                    self._enqueue()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            log.debug("session %s %s: %s", self.session.id, self.session.address, error)
            self.close()
        except Exception as error:
            self.fail(error)
        finally:
            scheduler.end()
        if self._queued:
            self._busy_until = scheduler.busy_until

    def _read_on(self) -> None:
        """Watch the socket again, unless something stands against it."""
        if not (self.closed or self._paused or self._queued or self._ended or self._reader.active):
            self._reader.start(self._readable)

    def _received(self, data: bytes) -> None:
        session, connection, driver = self.session, self._connection, self._driver
        if session.closing:  # nothing more is acted on
            self._handled()
            return
        if self.heart_beat is not None:
            self.heart_beat.received(clock.monotonic_ns())
        frames = connection.receive(data)
        pending_bytes = connection.pending_bytes
        if frames:
            opening = not session.connected
            if opening:
                self._opened()
            left = driver.broker.handle(session, frames, clock.now())
            if left:
                self._rest += left
                if len(left) < len(frames) or session.unfinished:
                    self._enqueue_rest()
            if opening and session.connected:
                self._stop_timer()
            self._feeds_disk = not driver.has_room and any(map(goes_to_disk, frames))
            if self._rest:
                came = self._pending_bytes + len(data) - pending_bytes
                self._rest_bytes += came + len(self._rest) * FRAME_OVERHEAD_BYTES
        self._pending_bytes = pending_bytes
        if pending_bytes or self._reported_bytes or self._rest:
            self._report(bool(frames))
        self._handled()

    def _handled(self) -> None:
        session, connection, driver = self.session, self._connection, self._driver
        if connection.failed is not None and not session.closing and not self._rest:
            self._reject_bytes(connection.failed)
        if not driver.scheduled:
            driver.wake()
        if session.closing:
            self._start_closing()
        elif not (self._queued or self._may_read()):
            self.pause()

    def _act_on_rest(self) -> bool:
        """Act on frames that were left. False if they wait, as before, for something that has not happened."""
        session, driver = self.session, self._driver
        if session.closing or not driver.has_room:
            self._handled()
            return False
        before = len(self._rest)
        rest, self._rest = self._rest, []  # whatever happens, no frame is acted on twice
        self._rest = driver.broker.handle(session, rest, clock.now())
        if not self._rest:
            self._rest_bytes = 0
        moved = len(self._rest) < before or session.unfinished or session.closing
        if moved:
            self._report(finished=True)
            self._enqueue_rest()
        if moved or not self._paused:  # else nothing has changed, and another turn would find that again
            self._handled()
        return moved

    def _enqueue_rest(self) -> None:
        """Frames were acted on: those that are left, if they wait for nothing but time, go on in their turn."""
        session = self.session
        if self._rest and session.hold is None and not (session.undecided or session.closing):
            self._paused = False
            self._driver.paused.pop(self, None)
            self._enqueue()

    def _buffered_bytes(self) -> int:
        """Bytes of frames that are not done with."""
        return self._pending_bytes + self._rest_bytes

    def _report(self, finished: bool) -> None:
        """Have what is held counted in ``limits.memory``; it may be refused there."""
        self._reported_bytes = self._buffered_bytes()
        self._driver.partial_frames.report(self, self._reported_bytes, finished)

    def note_peer_ended(self) -> None:
        """Note that the peer has ended its side, which was found out while it was not read."""
        self.peer_ended = True

    def could_read(self) -> bool:
        """Whether nothing but memory stands against reading it.

        It is not read while it feeds a disk that is behind, does not read what it is sent, has frames that are not done
        with or is not known yet; nor while the broker is being stopped. Acks, and what stays in memory, wait for no
        disk.
        """
        driver, session = self._driver, self.session
        has_room = driver.has_room or not self._feeds_disk
        return has_room and not (session.choked or self._rest or session.undecided or driver.stopping)

    def is_stalled(self) -> bool:
        """Whether it holds a part of a frame, could be read, and nothing more of that has come."""
        if self.closed or not self._pending_bytes or not self.could_read():
            return False
        try:
            return kernel.unread_bytes(self.sock) == 0
        except OSError:
            return True

    def _may_read(self) -> bool:
        return self.could_read() and not (self._reported_bytes and self._driver.partial_frames.waits(self))

    def pause(self) -> None:
        """Read no more until ``resume`` finds that nothing stands against it."""
        if not self._paused and not self.closed:
            self._paused = True
            self._reader.stop()
            self._driver.paused[self] = None

    def _reject_bytes(self, error: ProtocolError) -> None:
        """The bytes are no frame: answer in the peer's language if it is another one, and close."""
        if error.code == "not-stomp":
            self._driver.broker.stats.count(not_stomp=1)
            self._log("connections that do not speak STOMP", error.message)
            self.session.send(self._connection.refusal())
            self.session.begin_closing()
        else:
            self._driver.broker.refuse(self.session, error, self._connection.failed_receipt)

    def _log(self, kind: str, what: str) -> None:
        session = self.session
        self._driver.broker.peer_log.line(
            logging.INFO, kind, session.origin, "session %s %s: %s", session.id, session.address, what, logger=log
        )

    def _opened(self) -> None:
        connection, session = self._connection, self.session
        if connection.version is None:
            return
        offered = self._driver.broker.config.heart_beat
        session.open(connection.version, (offered.send_ms, offered.expect_ms))
        send_ms, expect_ms = connection.heart_beat
        if send_ms or expect_ms:
            grace = self._driver.broker.config.heart_beat.grace
            self.heart_beat = HeartBeat(send_ms, expect_ms, grace, clock.monotonic_ns())
            self._driver.heartbeats.add(self)

    def resume(self) -> bool:
        """Each turn while paused: act on the frames that were left, and read on when nothing stands against it.

        Returns:
            True if frames were acted on.
        """
        acted = False
        if self._rest and self._driver.has_room and not self.session.closing:
            self._driver.scheduler.begin(self.origin)
            acted = self._act_on_rest()
            self._driver.scheduler.end()
            if not acted:
                return False
            if self._rest and self._paused:  # who waits longer for the same comes first the next time
                del self._driver.paused[self]
                self._driver.paused[self] = None
        if self._paused and (self.session.closing or self._may_read()):
            self._paused = False
            del self._driver.paused[self]
            self._read_on()
        return acted

    def _connect_timed_out(self) -> None:
        late = kernel.unread_bytes(self.sock) and not self._paused  # it is we who are
        self._set_timer(LATE_SECONDS if late else 0.0, self._too_late)

    def _too_late(self) -> None:
        if not self.session.connected:  # else the login was decided later than CONNECT came
            self.refuse(too_late(self.session))

    def refuse(self, error: ProtocolError) -> None:
        """Answer ERROR and close."""
        if not self.session.closing:
            self._driver.broker.refuse(self.session, error)
            self._start_closing()

    # --- writing ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what the session has; what the socket does not take now is sent when it can."""
        session = self.session
        pieces = session.take_outbox()
        if not pieces or self.closed:
            return
        if session.closing:
            self._start_closing()
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._backlog:
            self._backlog.append(memoryview(data))
            return
        try:
            sent = self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        if sent:
            self._driver.broker.flushed(session, sent)
            if self.heart_beat is not None:
                self.heart_beat.sent(clock.monotonic_ns())
        if sent < len(data):
            self._backlog.append(memoryview(data)[sent:])
            self._writer = gevent.get_hub().loop.io(self.sock.fileno(), WRITE)
            self._writer.start(self._writable)
        elif session.closing:
            self._finish()

    def _writable(self) -> None:
        backlog = self._backlog
        try:
            while backlog:
                sent = self.sock.send(backlog[0])
                self._flushed(sent)
                if sent < len(backlog[0]):
                    backlog[0] = backlog[0][sent:]
                    return
                del backlog[0]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        self._stop_writer()
        if self.session.closing:
            self._finish()

    def _flushed(self, size: int) -> None:
        """These bytes have left, maybe outside of a turn."""
        driver = self._driver
        driver.broker.flushed(self.session, size)
        if self.heart_beat is not None:
            self.heart_beat.sent(clock.monotonic_ns())
        if self._paused or driver.broker.ready.busy:
            driver.wake()

    def check_heartbeat(self, now_ns: clock.MonoNs) -> None:
        """Look at the heart-beats: send one, or give a silent peer up."""
        heart_beat = self.heart_beat
        assert heart_beat is not None
        if self.session.closing:
            return  # that has timers of its own
        if (self._paused or self._queued) and self._may_send_heartbeat():
            heart_beat.received(now_ns)
        if heart_beat.is_dead(now_ns) and not self._paused and kernel.unread_bytes(self.sock):
            heart_beat.received(now_ns)  # it is we who were late
        if heart_beat.is_dead(now_ns):
            self._close_silent(heart_beat)
        elif heart_beat.should_send(now_ns) and not self._backlog and self.session.connected:
            self.session.send(b"\n")

    def _close_silent(self, heart_beat: HeartBeat) -> None:
        """Tell a peer that was silent for too long, if it takes what it is sent, and close."""
        self._driver.broker.stats.count(silent=1)
        if self._backlog:
            self._log("silent connections", "silent for too long; closed")
            self.close()
            return
        milliseconds = heart_beat.silence_ns // clock.NS_PER_MS
        self.refuse(
            ProtocolError(
                "timeout",
                "no heart-beat came in time",
                f"Nothing came for {milliseconds} ms: the agreed heart-beat, times heart_beat.grace of the YAML file.",
            )
        )

    def _may_send_heartbeat(self) -> bool:
        """Whether a peer that we do not read may beat: not if it has ended, and if it is deaf only if more has come."""
        if self.peer_ended or not self.session.choked:
            return not self.peer_ended
        before, self._unread = self._unread, kernel.unread_bytes(self.sock)
        return self._unread != before

    # --- closing ----------------------------------------------------------------------------------------------------

    def _peer_ended(self) -> None:
        """The peer sends no more. What it holds goes back at once; receipts that it is owed still go out, since
        ``printf ... | nc -N`` ends its side before it reads."""
        session = self.session
        owed = session.closing or not session.receipts.empty or bool(session.outbox or self._backlog)
        if not owed or self._shut or session.auto_acks:  # what is not written yet of those must not count as delivered
            self.close()
            return
        self._ended = True
        self._reader.stop()
        if not session.closing:
            session.begin_closing()
            self._driver.broker.release(session)
            self._start_closing()

    def _start_closing(self) -> None:
        """The session has ended: let its last frames go out, then shut our side down. The time for that is bounded."""
        if self._ending:
            return
        self._ending = True
        self._rest.clear()
        self._connection.discard()
        self._pending_bytes = self._rest_bytes = self._reported_bytes = 0
        self._driver.partial_frames.forget(self)
        self._set_timer(UNSENT_SECONDS_MAX, self.close)
        self._driver.watch_closing(self)

    def _finish(self) -> None:
        """Everything was handed to the socket; go on to drop what the peer still sends until it closes."""
        session = self.session
        if self._shut or self._backlog or session.outbox or not session.receipts.empty:
            return
        self._shut = True
        if self._ended:
            self.close()
            return
        try:
            self.sock.shutdown(std_socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self._set_timer(LINGER_SECONDS, self.close)

    @property
    def unsent(self) -> bool:
        """While closing: something is not at the peer's end yet, and could be lost if the socket were closed now."""
        if self.closed or not self._shut:
            return not self.closed
        try:
            return kernel.unsent_bytes(self.sock) > 0
        except OSError:
            return False

    def try_finish(self) -> None:
        """Called by the driver after each turn while the session is closing."""
        if not self.closed and not self.session.outbox:
            self._finish()

    def fail(self, error: Exception) -> None:
        """Nobody foresaw this: it costs this connection, and no other."""
        self._driver.broker.internal_errors.found(error)
        self.close()

    def close(self) -> None:
        """Release the socket and everything the session held."""
        if self.closed:
            return
        self.closed = True
        self._stop_timer()
        self._stop_writer()
        self._reader.stop()
        self._reader.close()
        self._backlog.clear()
        self._driver.connection_closed(self)
        self.sock.close()

    def _set_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = gevent.get_hub().loop.timer(seconds)
        self._timer.start(then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _stop_writer(self) -> None:
        if self._writer is not None:
            self._writer.stop()
            self._writer.close()
            self._writer = None
