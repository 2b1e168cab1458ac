"""Connect one socket with its sans-IO STOMP connection and its session.

A transport runs in callbacks of the event loop. A watcher reports that bytes have arrived; they are parsed and passed
to the broker, and the driver's turn follows when all sockets of this round were read. The driver tries to send at once;
only bytes that the socket does not accept wait for a second watcher. So an idle connection needs no greenlet and no
buffer (``docs/adr/0004-transports-are-callbacks.md`` has the figures).

Closing: after an ERROR or the RECEIPT of DISCONNECT the sending side is shut down, and the peer's bytes are read and
dropped for a short time. Closing at once would reset the connection and could lose the last frame.

Invariant: ``close`` takes effect once; afterwards the broker, the driver and the event loop hold nothing of this
connection.
"""

from __future__ import annotations

import fcntl
import logging
import socket as std_socket
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gevent

from radiator import clock
from radiator.broker.access import too_late
from radiator.broker.publishing.sending import goes_to_disk
from radiator.errors import ProtocolError
from radiator.stomp.heartbeat import HeartBeat

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.server.driver import Driver
    from radiator.stomp.connection import ServerConnection
    from radiator.stomp.frames import Frame

log = logging.getLogger("radiator.server")

READ, WRITE = 1, 2  # libev's event bits
FRAME_OVERHEAD_BYTES = 128  # memory of a frame beside its bytes
LATE_SECONDS = 1.0  # more time for CONNECT if unread bytes have arrived
LINGER_SECONDS = 2.0  # a closing connection is read so long, so that its last frame arrives
UNSENT_SECONDS_MAX = 10.0  # how long a closing connection may take to accept its last bytes


class Transport:
    """The socket of one client.

    Args:
        sock: The socket, non-blocking.
        session: The session of the client.
        connection: The STOMP state of the connection.
        driver: The driver.
        connect_timeout_seconds: The time limit for CONNECT and the login.

    Attributes:
        sock: The socket.
        session: The session of the client.
        heart_beat: The heart-beats that were agreed, or None.
        peer_ended: True if the peer was found to have ended its side while it was not read.
        closed: True after ``close``.
    """

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
        self._shut = False  # the sending side is shut down; received bytes are dropped
        self._paused = False  # not read: see _may_read
        self._queued = False  # waiting in a queue of ReadScheduler
        self._busy_until = 0  # the round from which on it is not busy any more
        self._feeds_disk = False  # its last frames go to a disk that is behind
        self._unread = 0  # bytes in the kernel at the last check while paused
        self._rest: list[Frame] = []  # frames that are not processed yet
        self._rest_bytes = 0  # upper bound of their size
        self._pending_bytes = 0  # of the frame that is not complete
        self._reported_bytes = 0  # as last reported to ``PartialFrames``
        self._ending = False  # the last frames are being sent
        self._ended = False  # the peer sends no more, but may still read
        self.peer_ended = False  # the same, found while it was not read
        self.closed = False
        self.session = session
        self.heart_beat: HeartBeat | None = None
        loop = gevent.get_hub().loop
        self._timer: Any = loop.timer(connect_timeout_seconds)
        self._timer.start(self._connect_timed_out)
        self._reader: Any = loop.io(sock.fileno(), READ)
        self._reader.start(self._readable)
        driver.transports[session] = self

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        """The origin with whose connections it shares time: the user, or before the login the address."""
        return self.session.identity.user or self.session.origin

    def _readable(self) -> None:
        session = self.session
        if self._driver.scheduler.try_begin(session.identity.user or session.origin, self._busy_until):
            self._read_slice()
        else:
            self._enqueue()

    def run_slice(self) -> None:
        """Read on after waiting in the queue of the scheduler."""
        self._queued = False
        if not (self.closed or self._paused):
            self._driver.scheduler.begin(self.origin)
            self._read_slice()
            self._read_on()

    def _enqueue(self) -> None:
        """Stop reading until ``run_slice``."""
        if not (self._queued or self.closed):
            self._queued = True
            self._reader.stop()
            self._driver.scheduler.enqueue(self)
            self._driver.wake()

    def _read_slice(self) -> None:
        """Process the frames that were left, and read until the slice is over or nothing more has arrived."""
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
        """Watch the socket again, unless there is a reason not to read."""
        if not (self.closed or self._paused or self._queued or self._ended or self._reader.active):
            self._reader.start(self._readable)

    def _received(self, data: bytes) -> None:
        session, connection, driver = self.session, self._connection, self._driver
        if session.closing:  # further frames are ignored
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
                if len(left) < len(frames) or session.command.at_once:
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
        """Process frames that were left. Return False if they still wait for an event that has not happened."""
        session, driver = self.session, self._driver
        if session.closing or not driver.has_room:
            self._handled()
            return False
        before = len(self._rest)
        rest, self._rest = self._rest, []  # no frame is processed twice, even after an exception
        self._rest = driver.broker.handle(session, rest, clock.now())
        if not self._rest:
            self._rest_bytes = 0
        moved = len(self._rest) < before or session.command.at_once or session.closing
        if moved:
            self._report(finished=True)
            self._enqueue_rest()
        if moved or not self._paused:  # else nothing has changed
            self._handled()
        return moved

    def _enqueue_rest(self) -> None:
        """Enqueue the connection if the frames that are left wait only for their turn."""
        session = self.session
        if self._rest and session.hold is None and not (session.undecided or session.closing):
            self._paused = False
            self._driver.paused.pop(self, None)
            self._enqueue()

    def _buffered_bytes(self) -> int:
        """Return the number of bytes of frames that are not processed."""
        return self._pending_bytes + self._rest_bytes

    def _report(self, finished: bool) -> None:
        """Report the buffered bytes for ``limits.memory``, which may close the connection."""
        self._reported_bytes = self._buffered_bytes()
        self._driver.partial_frames.report(self, self._reported_bytes, finished)

    def note_peer_ended(self) -> None:
        """Note that the peer has ended its side while it was not read."""
        self.peer_ended = True

    def could_read(self) -> bool:
        """Return True if only a lack of memory can prevent reading.

        A connection is not read while it sends to a disk that is behind, does not read its own messages, has
        unprocessed frames or no decision on its login, or while the broker stops. Acknowledgements, and messages that
        stay in memory, do not wait for the disk.
        """
        driver, session = self._driver, self.session
        has_room = driver.has_room or not self._feeds_disk
        return has_room and not (session.choked or self._rest or session.undecided or driver.stopping)

    def is_stalled(self) -> bool:
        """Return True if the connection holds part of a frame, could be read, and nothing more has arrived."""
        if self.closed or not self._pending_bytes or not self.could_read():
            return False
        try:
            return unread_bytes(self.sock) == 0
        except OSError:
            return True

    def _may_read(self) -> bool:
        return self.could_read() and not (self._reported_bytes and self._driver.partial_frames.waits(self))

    def pause(self) -> None:
        """Stop reading until ``resume`` finds no reason left."""
        if not self._paused and not self.closed:
            self._paused = True
            self._reader.stop()
            self._driver.paused[self] = None

    def _reject_bytes(self, error: ProtocolError) -> None:
        """Answer bytes that are not a frame, in the protocol of the peer if it speaks another one, and close."""
        if error.code == "not-stomp":
            self._driver.broker.stats.count(not_stomp=1)
            self._log("connections that do not speak STOMP", error.message)
            self.session.outbox.add(self._connection.refusal())
            self.session.begin_closing()
        else:
            self._driver.broker.refuse(self.session, error, self._connection.failed_receipt)

    def _log(self, kind: str, what: str) -> None:
        session = self.session
        self._driver.broker.peer_log.line(
            logging.INFO,
            kind,
            session.origin,
            "session %s %s: %s",
            session.id,
            session.address,
            what,
            logger=log,
            peer=session,
        )

    def _opened(self) -> None:
        connection, session = self._connection, self.session
        if connection.version is None:
            return
        session.open(connection.version, connection.offered_heart_beat)
        send_ms, expect_ms = connection.heart_beat
        if send_ms or expect_ms:
            grace = self._driver.broker.config.heart_beat.grace
            self.heart_beat = HeartBeat(send_ms, expect_ms, grace, clock.monotonic_ns())
            self._driver.heartbeats.add(self)

    def resume(self) -> bool:
        """Process the frames that were left, and read on if no reason to pause is left. Called each turn.

        Returns:
            True if frames were processed.
        """
        acted = False
        if self._rest and self._driver.has_room and not self.session.closing:
            self._driver.scheduler.begin(self.origin)
            acted = self._act_on_rest()
            self._driver.scheduler.end()
            if not acted:
                return False
            if self._rest and self._paused:  # to the end, so that others come first next time
                del self._driver.paused[self]
                self._driver.paused[self] = None
        if self._paused and (self.session.closing or self._may_read()):
            self._paused = False
            del self._driver.paused[self]
            self._read_on()
        return acted

    def _connect_timed_out(self) -> None:
        late = unread_bytes(self.sock) and not self._paused  # the broker is late, not the client
        self._set_timer(LATE_SECONDS if late else 0.0, self._too_late)

    def _too_late(self) -> None:
        if not self.session.connected:  # the login may have been decided meanwhile
            self.refuse(too_late(self.session))

    def refuse(self, error: ProtocolError) -> None:
        """Answer ERROR and close."""
        if not self.session.closing:
            self._driver.broker.refuse(self.session, error)
            self._start_closing()

    # --- writing ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send the outbox of the session. What the socket does not accept now is sent when it does."""
        session = self.session
        pieces = session.outbox.take()
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
        """Count bytes that the socket has accepted, possibly outside of a turn."""
        driver = self._driver
        driver.broker.flushed(self.session, size)
        if self.heart_beat is not None:
            self.heart_beat.sent(clock.monotonic_ns())
        if self._paused or driver.broker.ready.busy:
            driver.wake()

    def check_heartbeat(self, now_ns: clock.MonoNs) -> None:
        """Send a heart-beat if one is due, or close the connection if the peer is silent for too long."""
        heart_beat = self.heart_beat
        assert heart_beat is not None
        if self.session.closing:
            return  # closing has timers of its own
        if (self._paused or self._queued) and self._may_send_heartbeat():
            heart_beat.received(now_ns)
        if heart_beat.is_dead(now_ns) and not self._paused and unread_bytes(self.sock):
            heart_beat.received(now_ns)  # the broker is late, not the peer
        if heart_beat.is_dead(now_ns):
            self._close_silent(heart_beat)
        elif heart_beat.should_send(now_ns) and not self._backlog and self.session.connected:
            self.session.outbox.add(b"\n")

    def _close_silent(self, heart_beat: HeartBeat) -> None:
        """Close the connection of a silent peer, with an ERROR if it reads what it is sent."""
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
                f"Nothing came for {milliseconds} ms: the agreed interval times heart_beat.grace in the YAML file.",
            )
        )

    def _may_send_heartbeat(self) -> bool:
        """Return True if a peer that is not read may be sending heart-beats.

        It is not if it has ended its side. If it does not read its own messages, new bytes in the kernel show that it
        is.
        """
        if self.peer_ended or not self.session.choked:
            return not self.peer_ended
        before, self._unread = self._unread, unread_bytes(self.sock)
        return self._unread != before

    # --- closing ------------------------------------------------------------------------------------------------------

    def _peer_ended(self) -> None:
        """Handle the end of the peer's side.

        Its unacknowledged messages return at once. Receipts that it is owed are still sent, because ``printf ... | nc
        -N`` ends its side before it reads.
        """
        session = self.session
        owed = session.closing or not session.receipts.empty or bool(session.outbox.pieces or self._backlog)
        if not owed or self._shut or session.outbox.auto_acks:  # unwritten messages must not count as delivered
            self.close()
            return
        self._ended = True
        self._reader.stop()
        if not session.closing:
            session.begin_closing()
            self._driver.broker.release(session)
            self._start_closing()

    def _start_closing(self) -> None:
        """Wait until the last frames of the session are sent, for a bounded time, then shut down the sending side."""
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
        """Shut down the sending side if all is sent. The peer's bytes are dropped until it closes."""
        session = self.session
        if self._shut or self._backlog or session.outbox.pieces or not session.receipts.empty:
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
        """True while closing, if bytes have not arrived at the peer and could be lost when the socket is closed."""
        if self.closed or not self._shut:
            return not self.closed
        try:
            return unsent_bytes(self.sock) > 0
        except OSError:
            return False

    def try_finish(self) -> None:
        """Shut down the sending side if all is sent. Called by the driver after each turn while the session closes."""
        if not self.closed and not self.session.outbox.pieces:
            self._finish()

    def fail(self, error: Exception) -> None:
        """Close the connection after an unexpected exception, which is logged as a bug. Other connections continue."""
        self._driver.broker.internal_errors.found(error)
        self.close()

    def close(self) -> None:
        """Release the socket and everything that the session holds."""
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


def unread_bytes(sock: std_socket.socket) -> int:
    """Return the number of received bytes that were not read.

    Raises:
        OSError: The socket is closed.
    """
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


def unsent_bytes(sock: std_socket.socket) -> int:
    """Return the number of sent bytes that the peer has not acknowledged.

    Raises:
        OSError: The socket is closed.
    """
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
