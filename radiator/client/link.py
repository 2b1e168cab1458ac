"""Own the socket of a connection: write frames, read them in a thread, send heart-beats, and wake the waiting callers.

Threads: any thread may write, one at a time, under ``_writing``. Only the reader thread reads. It puts frames into
inboxes and completes receipts under ``lock``, and wakes the threads that wait there; it never runs a callback. A caller
waits on a condition of ``lock``, so it wakes at once, and time limits need no polling. ``_writing`` is never acquired
while ``lock`` is held.

Limits: inboxes buffer about INBOX_BYTES_MAX at most. Above that the reader stops reading, and TCP makes the broker
wait. One exception: while a caller waits for a receipt or a reply, the reader continues, because the receipt comes
behind those messages.

End: the first of ERROR, end of stream, a socket error, a missed heart-beat and ``close`` sets ``error``. All waiting
threads raise that error, and so do later calls. The link does not reconnect.

This module does not import gevent. Under gevent's monkey patch the thread, the conditions and the socket are
cooperative.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from radiator.client.errors import ClientError, Disconnected, ServerError, TimedOut, copy_error
from radiator.client.receipts import Receipt, receipt_of
from radiator.client.sockets import Socket
from radiator.clock import monotonic_ns
from radiator.stomp.connection import ClientConnection
from radiator.stomp.frames import Frame

RECV_BYTES = 256 * 1024
INBOX_BYTES_MAX = 16 * 1024 * 1024
FRAME_OVERHEAD_BYTES = 512  # memory of a buffered frame beside its body
GRACE = 2.0  # times the promised heart-beat interval before the broker counts as dead
TICK_SECONDS_MAX = 30.0
ERROR_WAIT_SECONDS = 1.0  # time for the reader to find the ERROR that explains a failed write


class Inbox(Protocol):
    """Receive MESSAGE frames. The reader thread calls the methods with ``lock`` held."""

    def put(self, frame: Frame) -> None:
        """Store a frame.

        Args:
            frame: A MESSAGE frame.
        """

    def wake(self) -> None:
        """Wake the threads that wait for a frame, because one was stored or the link has failed."""


class Pending:
    """The outstanding receipts of one or more frames.

    Args:
        link: The link that sent the frames.
        first: The first receipt id.
        count: The number of receipts; their ids are consecutive.
    """

    def __init__(self, link: Link, first: int, count: int) -> None:
        self._link = link
        self._first = first
        self._left = count
        self._receipts: list[Receipt | None] = [None] * count
        self._done = threading.Condition(link.lock)

    @property
    def count(self) -> int:
        """The number of receipts, those that have come included."""
        return len(self._receipts)

    @property
    def left(self) -> int:
        """The number of receipts that have not come yet."""
        return self._left

    def arrived(self, number: int, receipt: Receipt) -> None:
        """Store a receipt. Called by the reader thread with the lock held.

        Args:
            number: The receipt id.
            receipt: The receipt.
        """
        self._receipts[number - self._first] = receipt
        self._left -= 1
        if not self._left:
            self._done.notify_all()

    def wake(self) -> None:
        """Wake the waiting thread, because the link has failed."""
        self._done.notify_all()

    def wait(self, timeout: float | None = None) -> list[Receipt]:
        """Wait for all receipts and return them in order.

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
            complete = self._done.wait_for(lambda: not self._left or link.error is not None, limit)
            if self._left:
                link.forget_pending(self._first, len(self._receipts))
                if link.error is not None:
                    raise copy_error(link.error)
            if not complete:
                raise TimedOut(
                    f"{self._left} of {self.count} receipts did not come within {limit:g} s; "
                    "the queue may be full, or the broker slow: see its log, or raise timeout"
                )
            return [receipt for receipt in self._receipts if receipt is not None]


class Link:
    """A connected socket after CONNECTED.

    Args:
        sock: The socket.
        protocol: The STOMP state of the connection.
        timeout: The default time limit of all calls that wait, in seconds.

    Attributes:
        lock: Protects the inboxes, the receipts and the end of the link.
        timeout: The default time limit of all calls that wait, in seconds.
        protocol: The STOMP state of the connection.
        error: The reason for the end of the link, or None while it is open.
        closing: True after ``close`` began.
        inboxes: The inboxes by subscription id.
        awaited: The number of replies, beside the receipts, that callers wait for.
    """

    def __init__(self, sock: Socket, protocol: ClientConnection, timeout: float) -> None:
        self.lock = threading.RLock()
        self.timeout = timeout
        self.protocol = protocol
        self.error: ClientError | None = None
        self.closing = False
        self.inboxes: dict[str, Inbox] = {}
        self.awaited = 0
        self._sock = sock
        self._beats = protocol.heart_beat_clock(GRACE, monotonic_ns())
        self._writing = threading.RLock()
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[Pending, int]] = {}
        self._buffered_bytes = 0
        self._room = threading.Condition(self.lock)
        self._tick_seconds = self._tick()
        sock.settimeout(self._tick_seconds)
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, name="radiator-client-reader", daemon=True)

    def start(self, frames: list[Frame]) -> None:
        """Start the reader thread.

        Args:
            frames: The frames that came together with CONNECTED.
        """
        self._dispatch(frames)
        self._reader.start()

    def _tick(self) -> float:
        """Return the interval between two checks of the heart-beats: half of the shortest limit, in seconds."""
        limits = [span for span in (self._beats.send_ns, self._beats.silence_ns) if span]
        return min(TICK_SECONDS_MAX, max(0.01, min(limits) / 2e9)) if limits else TICK_SECONDS_MAX

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write whole frames to the socket.

        Args:
            data: The encoded frames.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        with self._writing:
            self.check()
            self._send_all(data)

    def ask(self, frame: Callable[[str], bytes]) -> Pending:
        """Send one frame with a receipt, and return without a wait.

        Args:
            frame: Returns the encoded frame for a receipt id.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        return self.ask_many(1, lambda numbers: frame(str(numbers.start)))

    def ask_many(self, count: int, encode: Callable[[range], bytes]) -> Pending:
        """Send frames with receipts of consecutive ids, and return without a wait.

        Args:
            count: The number of receipts.
            encode: Returns the encoded frames for the receipt ids.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        with self._writing:
            self.check()
            first = next(self._numbers)
            for _ in range(count - 1):
                next(self._numbers)
            numbers = range(first, first + count)
            data = encode(numbers)
            pending = Pending(self, first, count)
            with self.lock:
                self._pending.update((str(number), (pending, number)) for number in numbers)
                self._room.notify_all()
            self._send_all(data)
        return pending

    def check(self) -> None:
        """Raise the error that ended the link, if the link has ended.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        if self.error is not None:
            raise copy_error(self.error)

    def _send_all(self, data: bytes) -> None:
        view = memoryview(data)
        stalled_at = time.monotonic() + self.timeout
        while view:
            try:
                sent = self._sock.send(view)
            except TimeoutError:
                if time.monotonic() < stalled_at:
                    continue
                # part of a frame may be sent, so no other frame can follow
                self.fail(Disconnected(f"the broker received no bytes for {self.timeout:g} s"))
                self.check()
            except OSError as error:
                self._ended.wait(ERROR_WAIT_SECONDS)
                self.fail(Disconnected(f"the connection broke while sending: {error}"))
                self.check()
            except BaseException:  # Ctrl-C, or a killed greenlet
                self.fail(Disconnected("a send was interrupted inside a frame; open a new connection"))
                raise
            else:
                view = view[sent:]
                stalled_at = time.monotonic() + self.timeout
        self._beats.sent(monotonic_ns())

    # --- reading (the reader thread) --------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while self.error is None:
                self._beat()
                if self._has_room():
                    self._receive()
        except ClientError as error:
            self.fail(error)
        except OSError as error:
            self.fail(Disconnected(f"the connection broke: {error}"))
        finally:
            self._ended.set()

    def _receive(self) -> None:
        try:
            data = self._sock.recv(RECV_BYTES)
        except TimeoutError:
            return
        if not data:
            raise Disconnected("the broker closed the connection")
        self._beats.received(monotonic_ns())
        self._dispatch(self.protocol.receive(data))
        if self.protocol.failed is not None:
            raise Disconnected(f"the broker does not speak STOMP: {self.protocol.failed}")

    def _beat(self) -> None:
        now = monotonic_ns()
        if self._beats.is_dead(now):
            seconds = self._beats.silence_ns / 1e9
            raise Disconnected(f"the broker was silent for {seconds:g} s, although heart-beats were agreed")
        # while another thread writes, its bytes serve as the heart-beat
        if self._beats.should_send(now) and self._writing.acquire(blocking=False):
            try:
                self._sock.send(b"\n")
                self._beats.sent(now)
            except TimeoutError:
                pass  # the send buffer is full, so the broker has bytes to read
            finally:
                self._writing.release()

    def _has_room(self) -> bool:
        """Return False after a wait of one tick in which no message was taken out of the full inboxes."""
        if self._buffered_bytes < INBOX_BYTES_MAX:
            return True
        with self.lock:
            free = self._room.wait_for(self._may_read, self._tick_seconds)
        if not free:
            self._beats.received(monotonic_ns())  # the client stopped reading, so silence is not the broker's fault
        return free

    def _may_read(self) -> bool:
        waited_for = self._pending or self.awaited
        return self._buffered_bytes < INBOX_BYTES_MAX // 2 or bool(waited_for) or self.error is not None

    def _dispatch(self, frames: Iterable[Frame]) -> None:
        with self.lock:
            touched = set()
            for frame in frames:
                command = frame.head.command
                if command == "MESSAGE":
                    inbox = self._inbox_of(frame)
                    if inbox is not None and not self.closing:
                        inbox.put(frame)
                        touched.add(inbox)
                elif command == "RECEIPT":
                    headers = frame.headers
                    entry = self._pending.pop(headers.get("receipt-id", ""), None)
                    if entry is not None:
                        entry[0].arrived(entry[1], receipt_of(headers))
                elif command == "ERROR":
                    self.fail(server_error(frame))
            for inbox in touched:
                inbox.wake()

    def _inbox_of(self, frame: Frame) -> Inbox | None:
        name = frame.headers.get("subscription")
        if name is not None:
            return self.inboxes.get(name)
        # in STOMP 1.0 the subscription header is optional
        return next(iter(self.inboxes.values()), None) if len(self.inboxes) == 1 else None

    # --- with the lock held ---------------------------------------------------------------------------------------

    def buffered(self, frame: Frame) -> None:
        """Count a frame that was put into an inbox.

        Args:
            frame: The frame.
        """
        self._buffered_bytes += len(frame.body) + FRAME_OVERHEAD_BYTES

    def taken(self, frame: Frame) -> None:
        """Count a frame that was taken out of an inbox, and let the reader continue when there is room again.

        Args:
            frame: The frame.
        """
        before = self._buffered_bytes
        self._buffered_bytes = after = before - len(frame.body) - FRAME_OVERHEAD_BYTES
        if after < INBOX_BYTES_MAX // 2 <= before:
            self._room.notify_all()

    def await_reply(self, change: int) -> None:
        """Change the number of callers that wait for a reply.

        Args:
            change: 1 when a caller begins to wait, -1 when it ends.
        """
        self.awaited += change
        self._room.notify_all()

    def forget_pending(self, first: int, count: int) -> None:
        """Drop receipts that no caller waits for any more.

        Args:
            first: The first receipt id.
            count: The number of consecutive ids.
        """
        for number in range(first, first + count):
            self._pending.pop(str(number), None)

    # --- the end ----------------------------------------------------------------------------------------------------

    def fail(self, error: ClientError) -> None:
        """End the link. Only the first error is stored.

        Args:
            error: The error that all waiting and later calls raise.
        """
        with self.lock:
            if self.error is None:
                self.error = error
                pendings = {pending for pending, _ in self._pending.values()}
                for pending in pendings:
                    pending.wake()
                for inbox in self.inboxes.values():
                    inbox.wake()
                self._room.notify_all()
        self._shut()

    def _shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the reader
        except OSError:
            pass

    def close(self, timeout: float) -> None:
        """Send DISCONNECT, wait for its receipt if the broker still answers, and close the socket. Never raises.

        Args:
            timeout: The time limit of each step, in seconds.
        """
        with self.lock:
            self.closing = True
            self.timeout = min(self.timeout, timeout)
        if self.error is None and self._writing.acquire(timeout=timeout):  # False if another thread is stuck in a send
            try:
                disconnecting = self.ask(lambda receipt: self.protocol.disconnect(receipt=receipt))
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
        if self._reader is not threading.current_thread() and self._reader.ident is not None:
            self._reader.join(timeout)
        self._sock.close()


def server_error(frame: Frame) -> ServerError:
    """Return an ERROR frame as an exception.

    Args:
        frame: The ERROR frame.
    """
    headers = frame.headers
    message = headers.get("message") or "the broker answered ERROR"
    detail = frame.body.decode(errors="replace")
    return ServerError(headers.get("error-code", ""), message, detail, headers.get("receipt-id"))
