"""Drive a ``Session`` in an asyncio event loop: one task reads, connects again, and wakes the waiting tasks.

Writing is a call without a wait that puts whole frames into the send buffer, so a task may be cancelled at every
``await`` and the connection stays usable. A caller that writes more than the socket takes waits for room.

Limits: inboxes buffer about INBOX_BYTES_MAX at most. Above that the task stops reading, and TCP makes the broker wait.
One exception: while a caller waits for a receipt or a reply, reading continues, because the receipt comes behind those
messages.

All methods are called in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence

from radiator.client.address import Address
from radiator.client.aio.stream import Stream
from radiator.client.base import GRACE, INBOX_BYTES_MAX, BaseLink, OnEvent, tick_seconds
from radiator.client.errors import ClientError, ConnectFailed, Disconnected, TimedOut, reason
from radiator.client.receipts import Receipt
from radiator.client.session import Inbox, OnLoss, Request, stale_delivery
from radiator.clock import monotonic_ns
from radiator.stomp.frames import Frame

UNSENT_BYTES_MAX = 1024 * 1024  # of the send buffer, above which a writer waits

Dial = Callable[[Address, float], Awaitable[Stream]]


class Pending(Request):
    """The outstanding receipts of one or more frames. ``await pending.wait()`` returns them.

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
        self._done = asyncio.Event()

    def wake(self) -> None:
        """Wake the waiting task."""
        self._done.set()

    async def wait(self, timeout: float | None = None) -> list[Receipt]:
        """Wait for all receipts and return them in order.

        A request whose ``wait`` is cancelled, or takes too long, is not sent again after a lost connection.

        Args:
            timeout: The time limit in seconds. None uses the time limit of the client.

        Raises:
            TimedOut: A receipt did not come in time.
            ServerError: The broker refused a frame.
            Disconnected: The connection has ended.
        """
        link = self._link
        limit = link.timeout if timeout is None else timeout
        try:
            if self.left and link.error is None:
                async with asyncio.timeout(limit):
                    await self._done.wait()
        except TimeoutError:
            pass
        finally:
            if self.left:
                link.session.forget(self)
        return self.outcome(link.error, limit)


class Link(BaseLink[Dial]):
    """A session and the stream of its present connection.

    ``on_connect`` and ``on_disconnect`` may return an awaitable, which becomes a task.
    """

    def _begin(self) -> None:
        super()._begin()
        self._stream: Stream | None = None
        self._ready = asyncio.Event()  # the link can be written to, or has ended
        self._room = asyncio.Event()
        self._paused = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._callbacks: set[asyncio.Future[object]] = set()

    # --- connecting ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and start the task.

        Raises:
            ConnectFailed: No broker answered within the limits of the policy.
            ServerError: The broker answered ERROR.
        """
        if not await self._connect(None):
            self.session.check()
        self._task = asyncio.create_task(self._run(), name="radiator-client")
        self._task.add_done_callback(self._finished)

    async def _connect(self, error: ClientError | None) -> bool:
        """Connect as the policy says, and return True; end the link and return False if that fails."""
        attempts = self._attempts
        now = asyncio.get_running_loop().time
        pause = attempts.begin(now(), error)
        while pause is not None:
            if pause:
                await asyncio.sleep(pause)
            try:
                await self._connect_to(attempts.address, attempts.limit(now(), self._connect_timeout))
            except ClientError as problem:
                pause = attempts.failed(now(), problem)
            else:
                attempts.connected(now())
                return True
        self.fail(attempts.error())
        return False

    async def _connect_to(self, place: Address, seconds: float) -> None:
        session = self.session
        stream: Stream | None = None
        try:
            async with asyncio.timeout(seconds):
                stream = await self._dial(place, seconds)
                stream.write(session.hello(place))
                frames = None
                while frames is None:
                    data = await stream.read()
                    if not data:
                        raise ConnectFailed(f"{place} closed the connection instead of answering CONNECT")
                    frames = session.opened(data, str(place))
        except BaseException as error:
            if stream is not None:
                stream.abort()
            if isinstance(error, TimeoutError):
                raise ConnectFailed(f"{place} did not answer CONNECT within {seconds:g} s") from None
            if isinstance(error, OSError):
                raise ConnectFailed(f"cannot connect to {place}: {reason(error)}; is a broker running there?") from None
            raise
        self._use(stream, frames)

    def _use(self, stream: Stream, frames: list[Frame]) -> None:
        self._stream = stream
        self._first_frames = frames
        self._broken = None
        self._beats = self.session.protocol.heart_beat_clock(GRACE, monotonic_ns())
        seconds = tick_seconds(self._beats)
        if seconds is not None:
            self._tick(seconds)
        if self.session.has_work:
            self._write(self.session.resume())
        self._ready.set()
        self._report(self._on_connect, None)

    def _tick(self, seconds: float) -> None:
        """Send a heart-beat if it is time, and give the connection up if the broker is silent."""
        self._stop_timer()
        if not self.session.connected:
            return
        now = monotonic_ns()
        if self._paused:
            self._beats.received(now)  # the client stopped reading, so silence is not the broker's fault
        elif self._beats.is_dead(now):
            silence = self._beats.silence_ns / 1e9
            self._break(Disconnected(f"the broker was silent for {silence:g} s, although heart-beats were agreed"))
            return
        if self._beats.should_send(now):
            self._write(b"\n")
        self._timer = asyncio.get_running_loop().call_later(seconds, self._tick, seconds)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- writing ------------------------------------------------------------------------------------------------------

    async def write(self, encode: Callable[[], bytes], generation: int | None = None) -> int:
        """Write whole frames, and return the generation of the connection.

        Args:
            encode: Returns the encoded frames for the present connection.
            generation: The only connection for which the frames make sense, or None for any.

        Raises:
            StaleDelivery: The connection of ``generation`` was lost.
            ServerError: The broker answered ERROR.
            TimedOut: There was no connection within the time limit of the client.
            Disconnected: The connection has ended.
        """
        await self._wait_until_writable(generation)
        self._write(encode())
        used = self.session.generation
        await self._drain()
        return used

    def write_now(self, encode: Callable[[], bytes]) -> None:
        """Write whole frames without a wait, if there is a connection.

        Args:
            encode: Returns the encoded frames for the present connection.
        """
        if self.session.connected:
            self._write(encode())

    async def ask(
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
            TimedOut: There was no connection within the time limit of the client.
            Disconnected: The connection has ended.
        """
        await self._wait_until_writable(generation)
        return self.ask_now(1, lambda numbers, _: frame(str(numbers.start)), on_loss)

    def ask_now(
        self,
        count: int,
        encode: Callable[[range, Sequence[int]], bytes],
        on_loss: OnLoss = OnLoss.REPEAT,
        inbox: Inbox | None = None,
    ) -> Pending:
        """Send frames with receipts of consecutive ids, now or on the next connection, and return without a wait.

        Args:
            count: The number of receipts.
            encode: Returns the encoded frames for the receipt ids, of the receipts with these indices.
            on_loss: What becomes of the request when its connection is lost.
            inbox: The inbox that the frame subscribes, or None.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        session = self.session
        session.check()
        first = session.reserve(count)
        numbers = range(first, first + count)
        pending = Pending(self, first, count, lambda missing: encode(numbers, missing), on_loss)
        data = pending.encoded(sent=session.connected)  # also without a connection, because it raises for bad headers
        if inbox is None:
            session.register(pending)
        else:
            session.register_subscribe(pending, inbox)
        self._room.set()
        if session.connected:
            self._write(data)
        return pending

    def _write(self, data: bytes) -> None:
        assert self._stream is not None
        self._stream.write(data)
        self._beats.sent(monotonic_ns())

    async def drain(self) -> None:
        """Return when the send buffer has room again, or the connection is lost.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        await self._drain()
        self.session.check()

    async def _drain(self) -> None:
        stream = self._stream
        if stream is None or stream.unsent_bytes <= UNSENT_BYTES_MAX:
            return
        try:
            async with asyncio.timeout(self.timeout):
                await stream.drain()
        except TimeoutError:
            if stream is self._stream:
                self._break(Disconnected(f"the broker received no bytes for {self.timeout:g} s"))
        except OSError:
            pass  # the reading task finds out, too

    async def _wait_until_writable(self, generation: int | None) -> None:
        session = self.session
        session.check()
        if not session.connected and generation is None:
            try:
                async with asyncio.timeout(self.timeout):
                    while not session.connected and session.error is None:
                        await self._ready.wait()
            except TimeoutError:
                raise TimedOut(
                    f"no connection to a broker within {self.timeout:g} s; the client continues to try"
                ) from None
            session.check()
        if generation is not None and (generation != session.generation or not session.connected):
            raise stale_delivery()

    def _break(self, error: ClientError) -> None:
        """End the present connection. The task opens another one, if the policy says so."""
        self._broken = self._broken or error
        if self._stream is not None:
            self._stream.abort()

    # --- the task -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        more = True
        while more:
            error = await self._read()
            self._ready.clear()
            self._stop_timer()
            if self.session.progress:
                self._attempts.succeeded()
            if self._stream is not None:
                self._stream.abort()
            more = self.session.lost(error)
            if not more:
                self.fail(error)
            self._report(self._on_disconnect, error)
            more = more and await self._connect(error)

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:  # a bug: nobody may wait for ever
            self.fail(Disconnected(f"the client failed: {task.exception()!r}"))

    async def _read(self) -> ClientError:
        """Read until the connection ends, and return the reason."""
        stream = self._stream
        assert stream is not None
        try:
            frames, self._first_frames = self._first_frames, []
            self._wake(self.session.dispatch(frames))
            while True:
                while not self._may_read():
                    self._room.clear()
                    self._paused = True
                    await self._room.wait()
                self._paused = False
                data = await stream.read()
                if not data:
                    return self._broken or Disconnected("the broker closed the connection")
                self._beats.received(monotonic_ns())
                self._wake(self.session.receive(data))
        except ClientError as error:
            return self._broken or error
        except OSError as error:
            return self._broken or Disconnected(f"the connection broke: {reason(error)}")

    def _may_read(self) -> bool:
        session = self.session
        if session.buffered_bytes < (INBOX_BYTES_MAX // 2 if self._paused else INBOX_BYTES_MAX):
            return True
        return session.expects_receipts or bool(self.awaited) or self._broken is not None

    def taken(self) -> None:
        """Let the task read on if there is room again, after a frame was taken out of an inbox."""
        if self._paused:
            self._room.set()

    def await_reply(self, change: int) -> None:
        """Change the number of callers that wait for a reply.

        Args:
            change: 1 when a caller begins to wait, -1 when it ends.
        """
        self.awaited += change
        self._room.set()

    def _report(self, callback: OnEvent | None, error: ClientError | None) -> None:
        """Call a callback of the user; what it returns may be awaited."""
        if callback is None:
            return

        def call() -> None:
            result = callback(error)
            if inspect.isawaitable(result):
                task = asyncio.ensure_future(result)
                self._callbacks.add(task)
                task.add_done_callback(self._callbacks.discard)

        asyncio.get_running_loop().call_soon(call)

    # --- the end ------------------------------------------------------------------------------------------------------

    def fail(self, error: ClientError) -> None:
        """End the link. Only the first error is stored.

        Args:
            error: The error that all waiting and later calls raise.
        """
        self.session.end(error)
        self._stop_timer()
        self._ready.set()
        self._room.set()

    async def close(self, timeout: float) -> None:
        """Send DISCONNECT, wait for its receipt if the broker still answers, and close the socket.

        Args:
            timeout: The time limit for the receipt, in seconds.
        """
        session = self.session
        session.stop_receiving()
        try:
            if session.connected and session.error is None:
                pending = self.ask_now(
                    1, lambda numbers, _: session.protocol.disconnect(receipt=str(numbers.start)), OnLoss.DONE
                )
                await pending.wait(timeout)
        except ClientError:
            pass  # the socket is closed anyway
        finally:
            self.fail(Disconnected("this connection was closed"))
            task, self._task = self._task, None
            if task is not None:
                task.cancel()
            if self._stream is not None:
                self._stream.close()

    def forked(self) -> None:
        """End the link in a child process, which has no event loop of its parent."""
        self.session.forked(Disconnected("this client belongs to the parent process; call connect in the child"))
