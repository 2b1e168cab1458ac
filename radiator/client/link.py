"""Drive a ``Session`` over sockets: write frames, read them in a thread, connect again, and wake the waiting callers.

Threads: any thread may write, one at a time, under ``_writing``. Only the reader thread reads. It puts frames into
inboxes and completes receipts under ``lock``, and wakes the threads that wait there; it never runs a callback. A caller
waits on a condition of ``lock``, so it wakes at once, and time limits need no polling. ``_writing`` is never acquired
while ``lock`` is held.

Limits: inboxes buffer about INBOX_BYTES_MAX at most. Above that the reader stops reading, and TCP makes the broker
wait. One exception: while a caller waits for a receipt or a reply, the reader continues, because the receipt comes
behind those messages.

Losses: the first of ERROR, end of stream, a socket error, a missed heart-beat and ``close`` ends a connection. Without
a policy it ends the link: all waiting threads raise that error, and so do later calls. With a policy the reader thread
connects again, another thread sends what the session continues with, and callers that write wait meanwhile.

Fork: a child process closes its copy of the socket without a word on the wire, and connects at its first use.

This module does not import gevent. Under gevent's monkey patch the threads, the conditions and the sockets are
cooperative.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence

from radiator.client.address import Address
from radiator.client.base import GRACE, INBOX_BYTES_MAX, TICK_SECONDS_MAX, BaseLink, OnEvent, tick_seconds
from radiator.client.errors import ClientError, ConnectFailed, Disconnected, TimedOut, reason
from radiator.client.receipts import Receipt
from radiator.client.session import Inbox, OnLoss, Request, stale_delivery
from radiator.client.sockets import Socket, disown
from radiator.clock import monotonic_ns
from radiator.stomp.frames import Frame

log = logging.getLogger("radiator.client")

RECV_BYTES = 256 * 1024
ERROR_WAIT_SECONDS = 1.0  # time for the reader to find the ERROR that explains a failed write

Dial = Callable[[Address, float], Socket]


class Pending(Request):
    """The outstanding receipts of one or more frames.

    Args:
        link: The link that sends the frames.
        first: The first receipt id.
        count: The number of receipts; their ids are consecutive.
        encode: Returns the encoded frames that belong to the receipts with these indices.
        on_loss: What becomes of the request when its connection is lost.
    """

    def __init__(
        self,
        link: Link,
        first: int,
        count: int,
        encode: Callable[[Sequence[int]], bytes],
        on_loss: OnLoss = OnLoss.REPEAT,
    ) -> None:
        super().__init__(first, count, encode, on_loss)
        self._link = link
        self._done = threading.Condition(link.lock)

    def wake(self) -> None:
        """Wake the waiting thread. Called with the lock held."""
        self._done.notify_all()

    def poll(self, timeout: float) -> bool:
        """Wait for all receipts or for the end of the link, and return whether ``wait`` would return or raise at once.

        Args:
            timeout: The time limit in seconds.
        """
        link = self._link
        with link.lock:
            return self._done.wait_for(lambda: self.decided or link.error is not None, timeout)

    def wait(self, timeout: float | None = None) -> list[Receipt]:
        """Wait for all receipts and return them in order.

        A request whose ``wait`` is interrupted, or takes too long, is not sent again after a lost connection.

        Args:
            timeout: The time limit in seconds. None uses the time limit of the link.

        Raises:
            TimedOut: A receipt did not come in time.
            ServerError: The broker refused a frame.
            Disconnected: The connection has ended.
        """
        link = self._link
        limit = link.timeout if timeout is None else timeout
        with link.lock:
            try:
                self._done.wait_for(lambda: self.decided or link.error is not None, limit)
            finally:  # also after Ctrl-C: what has no caller is not sent again
                if self.left:
                    link.session.forget(self)
            return self.outcome(link.error, limit)


class Link(BaseLink[Dial]):
    """A session and the socket of its present connection.

    ``on_connect`` and ``on_disconnect`` are called in a thread of their own.

    Attributes:
        lock: Protects the session, the inboxes, the receipts and the end of the link.
        closing: True after ``close`` began.
    """

    def _begin(self) -> None:
        super()._begin()
        self.closing = False
        self.lock = threading.RLock()
        self._writing = threading.RLock()
        self._room = threading.Condition(self.lock)
        self._ready = threading.Condition(self.lock)  # the link can be written to, or has ended
        self._sock: Socket | None = None
        self._inherited: Socket | None = None  # of the parent process; closed when gevent's hub is its own again
        self._writable = False
        self._tick_seconds = TICK_SECONDS_MAX
        self._ended = threading.Event()
        self._events: queue.SimpleQueue[tuple[OnEvent, ClientError | None] | None] | None = None
        self._reader: threading.Thread | None = None

    # --- connecting ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, and start the reader thread.

        Raises:
            ConnectFailed: No broker answered within the limits of the policy.
            ServerError: The broker answered ERROR.
        """
        if not self._connect(None):
            self.session.check()
        self._start()

    def _start(self) -> None:
        with self.lock:
            if self._reader is None:
                self._inherited = None
                self._reader = threading.Thread(target=self._run, name="radiator-client-reader", daemon=True)
                self._reader.start()

    def _connect(self, error: ClientError | None) -> bool:
        """Connect as the policy says, and return True; end the link and return False if that fails.

        Args:
            error: The reason for the end of the last connection, or None.
        """
        attempts = self._attempts
        pause = attempts.begin(time.monotonic(), error)
        while pause is not None:
            with self.lock:
                if self._ready.wait_for(lambda: self.error is not None or self.closing, pause):
                    return False
            try:
                self._connect_to(attempts.address, attempts.limit(time.monotonic(), self._connect_timeout))
            except ClientError as problem:
                pause = attempts.failed(time.monotonic(), problem)
            else:
                attempts.connected(time.monotonic())
                return True
        self.fail(attempts.error())
        return False

    def _connect_to(self, place: Address, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        try:
            sock = self._dial(place, seconds)
        except socket.gaierror as error:
            problem = f"no address is found for the host name {place.host!r} ({error.strerror})"
            raise ConnectFailed(f"cannot connect to {place}: {problem}; is it spelt right?") from None
        except OSError as error:
            raise ConnectFailed(f"cannot connect to {place}: {reason(error)}; is a broker running there?") from None
        try:
            self._shake_hands(sock, place, deadline, seconds)
        except BaseException:
            sock.close()
            raise

    def _shake_hands(self, sock: Socket, place: Address, deadline: float, seconds: float) -> None:
        """Send CONNECT and wait for CONNECTED, then use the socket."""
        session = self.session
        with self._writing:  # no writer still encodes for the last connection
            hello = session.hello(place)
        try:
            sock.sendall(hello)
            frames = None
            while frames is None:
                sock.settimeout(max(0.001, deadline - time.monotonic()))
                data = sock.recv(RECV_BYTES)
                if not data:
                    raise ConnectFailed(f"{place} closed the connection instead of answering CONNECT")
                with self._writing, self.lock:
                    frames = session.opened(data, str(place))
                    if frames is not None:
                        self._use(sock, frames)
        except TimeoutError:
            raise ConnectFailed(f"{place} did not answer CONNECT within {seconds:g} s") from None
        except OSError as error:
            raise ConnectFailed(f"the connection to {place} broke before CONNECTED: {reason(error)}") from None
        self._report(self._on_connect, None)

    def _use(self, sock: Socket, frames: list[Frame]) -> None:
        """Make a socket the present connection, with both locks held."""
        before, self._sock = self._sock, sock
        if before is not None:
            before.close()
        self._first_frames = frames
        self._broken = None
        self._beats = self.session.protocol.heart_beat_clock(GRACE, monotonic_ns())
        self._tick_seconds = tick_seconds(self._beats) or TICK_SECONDS_MAX
        sock.settimeout(self._tick_seconds)
        if not self.session.has_work:
            self._writable = True
            self._ready.notify_all()
        else:  # another thread, because the broker may stop reading until this one reads
            threading.Thread(target=self._resume, name="radiator-client-resume", daemon=True).start()

    def _resume(self) -> None:
        with self._writing:
            with self.lock:
                if not self.session.connected or self._writable:
                    return
                data = self.session.resume()
            try:
                self._send_all(data)
            except ClientError:
                return  # the reader connects again
            with self.lock:
                self._writable = self.session.connected
                self._ready.notify_all()

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, encode: Callable[[], bytes], generation: int | None = None, *, repeat: bool = False) -> int:
        """Write whole frames to the socket, and return the generation of the connection.

        Args:
            encode: Returns the encoded frames for the present connection.
            generation: The only connection for which the frames make sense, or None for any.
            repeat: Write to the next connection if this one breaks meanwhile. For one frame that is safe: the broker
                has not received it whole.

        Raises:
            StaleDelivery: The connection of ``generation`` was lost.
            ServerError: The broker answered ERROR.
            TimedOut: There was no connection within the time limit of the link.
            Disconnected: The connection has ended.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            with self._writing:
                self._check(generation)
                if self._writable:
                    try:
                        self._send_all(encode())
                    except Disconnected:
                        self._check(generation, sending=True)
                        if not repeat:
                            raise
                    else:
                        return self.session.generation
            self._wait_until_writable(deadline)

    def ask(
        self, frame: Callable[[str], bytes], on_loss: OnLoss = OnLoss.UNKNOWN, generation: int | None = None
    ) -> Pending:
        """Send one frame with a receipt, and return without a wait for it.

        Args:
            frame: Returns the encoded frame for a receipt id.
            on_loss: What becomes of the request when its connection is lost.
            generation: The only connection for which the frame makes sense, or None for any.

        Raises:
            StaleDelivery: The connection of ``generation`` was lost.
            ServerError: The broker answered ERROR.
            TimedOut: There was no connection within the time limit of the link.
            Disconnected: The connection has ended.
        """
        return self.ask_many(1, lambda numbers, _: frame(str(numbers.start)), on_loss, generation)

    def ask_many(
        self,
        count: int,
        encode: Callable[[range, Sequence[int]], bytes],
        on_loss: OnLoss = OnLoss.REPEAT,
        generation: int | None = None,
    ) -> Pending:
        """Send frames with receipts of consecutive ids, and return without a wait for them.

        Args:
            count: The number of receipts.
            encode: Returns the encoded frames for the receipt ids, of the receipts with these indices.
            on_loss: What becomes of the request when its connection is lost.
            generation: The only connection for which the frames make sense, or None for any.

        Raises:
            StaleDelivery: The connection of ``generation`` was lost.
            ServerError: The broker answered ERROR.
            TimedOut: There was no connection within the time limit of the link.
            Disconnected: The connection has ended.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            with self._writing:
                self._check(generation)
                if self._writable or on_loss is OnLoss.REPEAT:
                    return self._ask(count, encode, on_loss)
            self._wait_until_writable(deadline)

    def subscribe(self, inbox: Inbox) -> Pending:
        """Send SUBSCRIBE for an inbox that can receive messages, and return without a wait for the receipt.

        Args:
            inbox: The inbox; its id must be new in this link.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        with self._writing:
            self._check(None)
            return self._ask(1, lambda numbers, _: inbox.subscribe_frame(str(numbers.start)), OnLoss.REPEAT, inbox)

    def _ask(
        self, count: int, encode: Callable[[range, Sequence[int]], bytes], on_loss: OnLoss, inbox: Inbox | None = None
    ) -> Pending:
        session = self.session
        first = session.reserve(count)
        numbers = range(first, first + count)
        pending = Pending(self, first, count, lambda missing: encode(numbers, missing), on_loss)
        data = pending.encoded(sent=self._writable)  # also without a connection, because it raises for bad headers
        with self.lock:
            if inbox is None:
                session.register(pending)
            else:
                session.register_subscribe(pending, inbox)
            self._room.notify_all()
        if self._writable:
            try:
                self._send_all(data)
            except Disconnected:
                self.session.check()
                if on_loss is OnLoss.STALE:
                    raise stale_delivery() from None
                if on_loss is not OnLoss.REPEAT:
                    raise
            except BaseException:  # Ctrl-C: what has no caller is not sent again
                with self.lock:
                    session.forget(pending)
                raise
        return pending

    def _check(self, generation: int | None, *, sending: bool = False) -> None:
        """Raise if the link has ended, or if it has lost the connection of ``generation``."""
        session = self.session
        session.check()
        if generation is not None and (sending or generation != session.generation or not session.connected):
            raise stale_delivery() from None
        if self._reader is None and not self.closing:  # after a fork
            self._start()

    def _wait_until_writable(self, deadline: float) -> None:
        with self.lock:
            seconds = max(0.0, deadline - time.monotonic())
            if not self._ready.wait_for(lambda: self._writable or self.error is not None, seconds):
                raise TimedOut(f"no connection to a broker within {self.timeout:g} s; the client continues to try")

    def _send_all(self, data: bytes) -> None:
        sock = self._sock
        assert sock is not None
        view = memoryview(data)
        stalled_at = time.monotonic() + self.timeout
        while view:
            try:
                sent = sock.send(view)
            except TimeoutError:
                if time.monotonic() < stalled_at:
                    continue
                # part of a frame may be sent, so no other frame can follow
                self._give_up(Disconnected(f"the broker received no bytes for {self.timeout:g} s"))
            except OSError as error:
                if not self.session.reconnects:
                    self._ended.wait(ERROR_WAIT_SECONDS)
                self._give_up(Disconnected(f"the connection broke while sending: {reason(error)}"))
            except BaseException:  # Ctrl-C, or a killed greenlet
                interrupted = Disconnected("a send was interrupted inside a frame; open a new connection")
                if self.session.reconnects:
                    self._break(interrupted)
                else:
                    self.fail(interrupted)
                raise
            else:
                view = view[sent:]
                stalled_at = time.monotonic() + self.timeout
        self._beats.sent(monotonic_ns())

    def _give_up(self, error: Disconnected) -> None:
        """Raise the error of a failed write: that of the link, or of this connection if another one follows."""
        if self.session.reconnects:
            self._break(error)
            raise error
        self.fail(error)
        self.session.check()

    def _break(self, error: ClientError) -> None:
        """End the present connection. The reader thread opens another one."""
        with self.lock:
            self._writable = False
            self._broken = self._broken or error
        self._shut()

    # --- reading (the reader thread) ----------------------------------------------------------------------------------

    def _run(self) -> None:
        more = self.session.connected or self._connect(None)
        while more:
            error = self._read()
            if self._reader is not threading.current_thread():
                return  # a greenlet of the parent process, which runs in the child too
            with self.lock:
                self._writable = False
                if self.session.progress:
                    self._attempts.succeeded()
                more = self.session.lost(error) and not self.closing
            self._shut()
            if not more:
                self.fail(error)
            if not self.closing:
                self._report(self._on_disconnect, error)
            more = more and self._connect(error)
        if self.closing and self._sock is not None:
            self._sock.close()
        self._ended.set()
        if self._events is not None:
            self._events.put(None)

    def _read(self) -> ClientError:
        """Read until the connection ends, and return the reason."""
        try:
            frames, self._first_frames = self._first_frames, []
            with self.lock:
                self._wake(self.session.dispatch(frames))
            sock = self._sock
            while self._sock is sock and self.error is None and self.session.connected:
                self._beat()
                if self._has_room():
                    self._receive()
        except ClientError as error:
            return self._broken or error
        except OSError as error:
            return self._broken or Disconnected(f"the connection broke: {reason(error)}")
        return self.error or Disconnected("the connection has ended")

    def _receive(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(RECV_BYTES)
        except TimeoutError:
            return
        if not data:
            raise Disconnected("the broker closed the connection")
        self._beats.received(monotonic_ns())
        with self.lock:
            self._wake(self.session.receive(data))

    def _beat(self) -> None:
        now = monotonic_ns()
        if self._beats.is_dead(now):
            seconds = self._beats.silence_ns / 1e9
            raise Disconnected(f"the broker was silent for {seconds:g} s, although heart-beats were agreed")
        # while another thread writes, its bytes serve as the heart-beat
        if self._beats.should_send(now) and self._writing.acquire(blocking=False):
            try:
                assert self._sock is not None
                self._sock.send(b"\n")
                self._beats.sent(now)
            except TimeoutError:
                pass  # the send buffer is full, so the broker has bytes to read
            finally:
                self._writing.release()

    def _has_room(self) -> bool:
        """Return False after a wait of one tick in which no message was taken out of the full inboxes."""
        if self.session.buffered_bytes < INBOX_BYTES_MAX:
            return True
        with self.lock:
            free = self._room.wait_for(self._may_read, self._tick_seconds)
        if not free:
            self._beats.received(monotonic_ns())  # the client stopped reading, so silence is not the broker's fault
        return free

    def _may_read(self) -> bool:
        waited_for = self.session.expects_receipts or self.awaited
        return self.session.buffered_bytes < INBOX_BYTES_MAX // 2 or bool(waited_for) or self.error is not None

    # --- with the lock held -------------------------------------------------------------------------------------------

    def taken(self) -> None:
        """Let the reader continue if there is room again, after a frame was taken out of an inbox."""
        if self.session.buffered_bytes < INBOX_BYTES_MAX // 2:
            self._room.notify_all()

    def await_reply(self, change: int) -> None:
        """Change the number of callers that wait for a reply.

        Args:
            change: 1 when a caller begins to wait, -1 when it ends.
        """
        self.awaited += change
        self._room.notify_all()

    # --- events -------------------------------------------------------------------------------------------------------

    def _report(self, callback: OnEvent | None, error: ClientError | None) -> None:
        """Call a callback of the user, in a thread that may block."""
        if callback is None:
            return
        if self._events is None:
            self._events = queue.SimpleQueue()
            events = self._events

            def call() -> None:
                while (event := events.get()) is not None:
                    try:
                        event[0](event[1])
                    except Exception:
                        log.exception("a callback of the client raised")

            threading.Thread(target=call, name="radiator-client-callbacks", daemon=True).start()
        self._events.put((callback, error))

    # --- the end ------------------------------------------------------------------------------------------------------

    def fail(self, error: ClientError) -> None:
        """End the link. Only the first error is stored.

        Args:
            error: The error that all waiting and later calls raise.
        """
        with self.lock:
            self._writable = False
            self.session.end(error)
            self._room.notify_all()
            self._ready.notify_all()
        self._shut()

    def _shut(self) -> None:
        sock = self._sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)  # wakes the reader
            except OSError:
                pass

    def close(self, timeout: float) -> None:
        """Send DISCONNECT, wait for its receipt if the broker still answers, and close the socket. Never raises.

        Args:
            timeout: The time limit of each step, in seconds.
        """
        with self.lock:
            self.closing = True
            self.session.stop_receiving()
            self.timeout = min(self.timeout, timeout)
            self._ready.notify_all()
        if self._writable and self._writing.acquire(timeout=timeout):  # False if another thread is stuck in a send
            try:
                disconnecting = self.ask(lambda receipt: self.session.protocol.disconnect(receipt=receipt), OnLoss.DONE)
            except ClientError:
                disconnecting = None
            finally:
                self._writing.release()
            try:
                if disconnecting is not None:
                    disconnecting.wait(timeout)
            except ClientError:
                pass  # the socket is closed anyway
        self.fail(Disconnected("this connection was closed"))
        reader = self._reader
        if reader is not None and reader is not threading.current_thread():
            reader.join(timeout)
        if self._sock is not None:
            self._sock.close()

    def forked(self) -> None:
        """Begin again in a child process: the next use opens a connection of its own."""
        sock = self._sock
        if sock is not None:
            disown(sock)
        self._begin()
        self._inherited = sock
        if self.error is None:
            self.session.forked()
