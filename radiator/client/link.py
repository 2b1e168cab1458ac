"""The link: one socket, one background thread that reads it and keeps the heart-beats, and all who wait on it.

Who does what. Any thread writes, one at a time, under ``_writing``. Only the reader thread reads; it hands frames to
inboxes and waiters under ``lock`` and wakes whoever waits there; it never runs a caller's code. A caller waits on a
condition over ``lock``, so it wakes at once, and time-outs need no polling. ``_writing`` is never taken under ``lock``.

What is bounded. Inboxes hold at most about INBOX_BYTES_MAX; above that the reader stops reading, and TCP makes the
broker wait. The one exception: while somebody waits for a receipt or a reply the reader goes on, because what he waits
for comes behind those messages.

How it ends. The first of ERROR, end of stream, a socket error, a silent broker or ``close`` sets ``error``; everyone
waiting is woken with it, and later calls raise it. Nothing reconnects.

Nothing here imports gevent; under its monkey patch the thread, the conditions and the socket are cooperative.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from radiator.client.errors import ClientError, Disconnected, ServerError, TimedOut, again
from radiator.client.message import Receipt, receipt_of
from radiator.client.sockets import Socket
from radiator.clock import monotonic_ns
from radiator.stomp.connection import ClientConnection
from radiator.stomp.frames import Frame

RECV_BYTES = 256 * 1024
INBOX_BYTES_MAX = 16 * 1024 * 1024
FRAME_OVERHEAD_BYTES = 512  # what a buffered frame costs beside its body
GRACE = 2.0
TICK_SECONDS_MAX = 30.0
FAREWELL_SECONDS = 1.0  # for the reader to find the ERROR that explains why a write failed


class Inbox(Protocol):
    """Whatever takes MESSAGE frames: a subscription. Called by the reader thread with ``lock`` held."""

    def put(self, frame: Frame) -> None: ...

    def wake(self) -> None: ...


class Pending:
    """Receipts that were asked for and are still to come, of one frame or of many."""

    def __init__(self, link: Link, first: int, count: int) -> None:
        self._link = link
        self._first = first
        self._left = count
        self._receipts: list[Receipt | None] = [None] * count
        self._done = threading.Condition(link.lock)

    @property
    def count(self) -> int:
        """How many receipts this stands for."""
        return len(self._receipts)

    @property
    def left(self) -> int:
        """How many of them are still to come."""
        return self._left

    def arrived(self, number: int, receipt: Receipt) -> None:
        """Called by the reader thread with the lock held."""
        self._receipts[number - self._first] = receipt
        self._left -= 1
        if not self._left:
            self._done.notify_all()

    def wake(self) -> None:
        """The link has failed."""
        self._done.notify_all()

    def wait(self, timeout: float | None = None) -> list[Receipt]:
        """All the receipts, in order. Raises what ended the connection, or TimedOut."""
        link = self._link
        limit = link.timeout if timeout is None else timeout
        with link.lock:
            complete = self._done.wait_for(lambda: not self._left or link.error is not None, limit)
            if self._left:
                link.forget_pending(self._first, len(self._receipts))
                if link.error is not None:
                    raise again(link.error)
            if not complete:
                raise TimedOut(f"{self._left} of {self.count} receipts did not come within {limit:g} s")
            return [receipt for receipt in self._receipts if receipt is not None]


class Link:
    """A connected socket after CONNECTED. ``timeout`` (seconds) is the default of everything that waits."""

    def __init__(self, sock: Socket, protocol: ClientConnection, timeout: float) -> None:
        self.lock = threading.RLock()
        self.timeout = timeout
        self.protocol = protocol
        self.error: ClientError | None = None
        self.closing = False
        self.inboxes: dict[str, Inbox] = {}
        self.awaited = 0  # replies that somebody waits for, beside the receipts
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
        """Begin to read; ``frames`` came together with CONNECTED."""
        self._dispatch(frames)
        self._reader.start()

    def _tick(self) -> float:
        """How often the reader looks at the heart-beats: twice per time limit that they set."""
        limits = [span for span in (self._beats.send_ns, self._beats.silence_ns) if span]
        return min(TICK_SECONDS_MAX, max(0.01, min(limits) / 2e9)) if limits else TICK_SECONDS_MAX

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send whole frames; raises what ended the link."""
        with self._writing:
            self.check()
            self._send_all(data)

    def ask(self, frame: Callable[[str], bytes]) -> Pending:
        """Send one frame with a receipt; ``frame`` makes its bytes from the receipt id."""
        return self.ask_many(1, lambda numbers: frame(str(numbers.start)))

    def ask_many(self, count: int, encode: Callable[[range], bytes]) -> Pending:
        """Send ``count`` frames with receipts of consecutive ids."""
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
        """Raise what ended the link, if it has ended."""
        if self.error is not None:
            raise again(self.error)

    def _send_all(self, data: bytes) -> None:
        view = memoryview(data)
        stalled_at = time.monotonic() + self.timeout
        while view:
            try:
                sent = self._sock.send(view)
            except TimeoutError:
                if time.monotonic() < stalled_at:
                    continue
                # part of a frame may be out: nothing can follow it
                self.fail(Disconnected(f"the broker took no bytes for {self.timeout:g} s"))
                self.check()
            except OSError as error:
                self._ended.wait(FAREWELL_SECONDS)
                self.fail(Disconnected(f"the connection broke while sending: {error}"))
                self.check()
            except BaseException:  # Ctrl-C, a task that is killed
                self.fail(Disconnected("a send was interrupted, and part of a frame may be out: nothing can follow it"))
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
            raise Disconnected(f"the broker does not speak STOMP as expected: {self.protocol.failed}")

    def _beat(self) -> None:
        now = monotonic_ns()
        if self._beats.is_dead(now):
            seconds = self._beats.silence_ns / 1e9
            raise Disconnected(f"the broker was silent for {seconds:g} s, and had promised heart-beats")
        if self._beats.should_send(now) and self._writing.acquire(blocking=False):  # busy writing is a beat as well
            try:
                self._sock.send(b"\n")
                self._beats.sent(now)
            except TimeoutError:
                pass  # full: the broker has bytes of ours to read
            finally:
                self._writing.release()

    def _has_room(self) -> bool:
        """False after waiting a tick in vain for somebody to take messages out of the inboxes."""
        if self._buffered_bytes < INBOX_BYTES_MAX:
            return True
        with self.lock:
            free = self._room.wait_for(self._may_read, self._tick_seconds)
        if not free:
            self._beats.received(monotonic_ns())  # it is we who do not listen
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
        return next(iter(self.inboxes.values()), None) if len(self.inboxes) == 1 else None  # 1.0 may leave it out

    # --- with the lock held ---------------------------------------------------------------------------------------

    def buffered(self, frame: Frame) -> None:
        """A frame was put into an inbox."""
        self._buffered_bytes += len(frame.body) + FRAME_OVERHEAD_BYTES

    def taken(self, frame: Frame) -> None:
        """A frame was taken out of an inbox."""
        before = self._buffered_bytes
        self._buffered_bytes = after = before - len(frame.body) - FRAME_OVERHEAD_BYTES
        if after < INBOX_BYTES_MAX // 2 <= before:
            self._room.notify_all()

    def await_reply(self, change: int) -> None:
        """Somebody begins (1) or ceases (-1) to wait for a reply."""
        self.awaited += change
        self._room.notify_all()

    def forget_pending(self, first: int, count: int) -> None:
        """Nobody waits for these receipts any more."""
        for number in range(first, first + count):
            self._pending.pop(str(number), None)

    # --- the end ----------------------------------------------------------------------------------------------------

    def fail(self, error: ClientError) -> None:
        """The link has ended; the first reason counts."""
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
        """Say DISCONNECT, wait for its receipt if the broker still answers, and end. Never raises."""
        with self.lock:
            self.closing = True
            self.timeout = min(self.timeout, timeout)
        if self.error is None and self._writing.acquire(timeout=timeout):  # in vain if somebody is stuck in a send
            try:
                farewell = self.ask(lambda receipt: self.protocol.disconnect(receipt=receipt))
            except ClientError:
                farewell = None
            finally:
                self._writing.release()
            try:
                if farewell is not None:
                    farewell.wait(timeout)
            except ClientError:
                pass  # it ends either way
        self.fail(Disconnected("this connection was closed"))
        if self._reader is not threading.current_thread() and self._reader.ident is not None:
            self._reader.join(timeout)
        self._sock.close()


def server_error(frame: Frame) -> ServerError:
    """An ERROR frame as an exception."""
    headers = frame.headers
    message = headers.get("message") or "the broker answered ERROR"
    detail = frame.body.decode(errors="replace")
    return ServerError(headers.get("error-code", ""), message, detail, headers.get("receipt-id"))
