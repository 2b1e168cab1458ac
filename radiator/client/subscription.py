"""A subscription: an inbox that the reader thread fills, and four ways to empty it.

    for message in subscription            until it ends (``stop-position``, ``close``) or the connection is lost
    with subscription.receive(5) as m      acknowledges when the block ends well, gives back when it raises
    subscription.fetch(5)                  one message or None
    subscription.listen(callback)          a loop around ``receive`` that SIGINT and SIGTERM end after a message

Every waiting time is in seconds; None waits for ever, 0 takes only what has come already. Several threads may take
from one subscription. When the connection is lost, messages under ``auto`` that have come are still handed out, while
those to be acknowledged are not: the broker has taken them back.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from radiator.client.errors import ClientError, Disconnected, again
from radiator.client.message import Message
from radiator.stomp.frames import Frame

if TYPE_CHECKING:
    from radiator.client.connection import Connection

ACK_MODES = ("auto", "client", "client-individual")
LATEST_SECONDS = 1.0  # how long ``receive_latest`` waits for a message that is known to be there


class Subscription:
    """Made by ``Connection.subscribe``. As a context manager it unsubscribes at the end."""

    def __init__(self, connection: Connection, name: str, destination: str, ack: str) -> None:
        self.connection = connection
        self.id = name
        self.destination = destination
        self.ack = ack
        self.ended = False  # the broker said replay-end, or it was closed: nothing more will come
        self._link = connection.link
        self._frames: deque[Frame] = deque()
        self._arrival = threading.Condition(self._link.lock)

    def __repr__(self) -> str:
        return f"<Subscription {self.id} to {self.destination}, ack {self.ack}>"

    # --- the reader thread's side, with the lock held ----------------------------------------------------------------

    def put(self, frame: Frame) -> None:
        """Take in a MESSAGE."""
        if frame.headers.get("replay-end") == "true":
            self.ended = True
        elif not self.ended:
            self._frames.append(frame)
            self._link.buffered(frame)

    def wake(self) -> None:
        """Something has changed for those who wait."""
        self._arrival.notify_all()

    # --- taking -------------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """How many messages have come and were not taken yet."""
        return len(self._frames)

    def fetch(self, timeout: float | None = None) -> Message | None:
        """The next message; None when the time is over or the subscription has ended."""
        return self._take(timeout, None)

    def _take(self, timeout: float | None, stop: _Stop | None) -> Message | None:
        link = self._link

        def decided() -> bool:
            return bool(self._frames) or self.ended or link.error is not None or (stop is not None and stop.asked)

        with link.lock:
            if not decided():
                self._arrival.wait_for(decided, timeout)
            if stop is not None and stop.asked:
                return None
            if link.error is not None and not (self.ack == "auto" and self._frames) and not self.ended:
                raise again(link.error)
            if not self._frames:
                return None
            frame = self._frames.popleft()
            link.taken(frame)
        return Message(frame.headers, frame.body, self, frame.head.raw)

    def receive_latest(self, timeout: float | None = None) -> Message | None:
        """The newest message, for those who have no use for what is older: that is acknowledged, for this subscription
        only. None when none came within ``timeout``, or when others have taken the newest.

        What is newest is looked up by a replay of the last message of each destination, so they must keep some history.
        """
        message = self.fetch(timeout)
        if message is None:
            return None
        last = self.connection.subscribe(self.destination, ack="auto", start_position="last", stop_position="end")
        newest = max(last, key=_received_at, default=message)
        while message is not None and message.id != newest.id and _received_at(message) <= _received_at(newest):
            message.ack()
            message = self.fetch(LATEST_SECONDS)
        return message

    def receive(self, timeout: float | None = None) -> Delivery:
        """For ``with``: the next message, or None. Acknowledged if the block ends well, given back if it raises."""
        return Delivery(self, timeout, None)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        message = self._take(None, None)
        if message is None:
            raise StopIteration
        return message

    def listen(
        self, callback: Callable[[Message], Any], *, timeout: float | None = None, count: int | None = None
    ) -> int:
        """Call ``callback`` with each message; returns how many there were.

        Ends when ``count`` messages are done, when none comes for ``timeout`` seconds, when the subscription ends, or,
        in the main thread, on SIGINT or SIGTERM, after the message in hand; their handlers are restored. An exception
        of the callback gives its message back to the queue and is passed on.
        """
        done = 0
        with _Stop(self) as stop:
            while (count is None or done < count) and not stop.asked:
                with Delivery(self, timeout, stop) as message:
                    if message is None:
                        break
                    callback(message)
                done += 1
        return done

    # --- settling -----------------------------------------------------------------------------------------------------

    def settle(
        self,
        message: Message,
        command: str,
        *,
        transaction: str | None = None,
        receipt: bool = False,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Send ACK or NACK for a message; nothing to do under ``auto`` or the second time."""
        if self.ack == "auto" or message.settled:
            return
        protocol = self._link.protocol
        make = protocol.ack if command == "ACK" else protocol.nack
        if receipt:
            pending = self._link.ask(
                lambda number: make(message.headers, headers, receipt=number, transaction=transaction)
            )
            message.settled = True
            pending.wait()
        else:
            self._link.write(make(message.headers, headers, transaction=transaction))
            message.settled = True

    def touch(self, message: Message) -> None:
        """Have the time that the broker gives for an acknowledgement begin anew."""
        if self.ack != "auto" and not message.settled:
            self._link.write(self._link.protocol.ack(message.headers, {"touch": "true"}))

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """UNSUBSCRIBE and wait for the receipt. What was not acknowledged goes back to its queue. May be repeated."""
        link = self._link
        with link.lock:
            known = link.inboxes.pop(self.id, None) is not None
            over = self.ended
            self.ended = True
            while self._frames:
                link.taken(self._frames.popleft())
            self._arrival.notify_all()
        if known and not over and link.error is None:
            link.ask(lambda receipt: link.protocol.unsubscribe(self.id, receipt=receipt)).wait()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Disconnected:
            if kind is None:
                raise


def _received_at(message: Message) -> int:
    return message.receive_time or 0


class Delivery:
    """What ``receive`` returns: the context of one message."""

    def __init__(self, subscription: Subscription, timeout: float | None, stop: _Stop | None) -> None:
        self._subscription = subscription
        self._timeout = timeout
        self._stop = stop
        self._message: Message | None = None

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"receive() returns no message but the context of one, which has no attribute {name!r}: write `with "
                "subscription.receive() as message:`, or take a message with `fetch()` and call its `ack()`"
            )

    def __enter__(self) -> Message | None:
        self._message = self._subscription._take(self._timeout, self._stop)
        return self._message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        message = self._message
        if message is None:
            return
        if kind is None:
            message.ack()
            return
        try:
            message.nack()
        except ClientError:
            pass  # the caller's own exception matters more; a lost connection gives the message back anyway


class _Stop:
    """SIGINT and SIGTERM as a wish to stop, while in ``with``; only the main thread can take signals."""

    def __init__(self, subscription: Subscription) -> None:
        self.asked = False
        self._subscription = subscription
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        # a handler runs between two instructions of this very thread, perhaps inside a condition; another thread
        # takes the lock properly, so the wake-up cannot fall between the look and the wait
        self.asked = True
        threading.Thread(target=self._wake, daemon=True).start()

    def _wake(self) -> None:
        with self._subscription._link.lock:
            self._subscription.wake()
