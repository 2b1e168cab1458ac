"""Receive messages: an inbox that the reader thread fills, and four ways to read it.

    for message in subscription            until it ends (``stop-position``, ``close``) or the connection is lost
    with subscription.receive(5) as m      acknowledges at the end of the block; returns the message if the block raises
    subscription.fetch(5)                  one message or None
    subscription.listen(callback)          a loop around ``receive`` that SIGINT and SIGTERM end after a message

Time limits are in seconds; None waits without limit, 0 returns only a message that has come already. Several threads
may read one subscription. When the connection is lost, received messages are still returned under ``auto``. Under
other modes they are not, because the broker has put them back into their queues. With reconnects the subscription goes
on with the next connection, and the calls above wait meanwhile (``session`` has the rules).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from radiator.client.errors import ClientError, Disconnected, StaleDelivery
from radiator.client.message import Message, Receiver
from radiator.client.session import OnLoss

if TYPE_CHECKING:
    from radiator.client.core import BaseConnection

LATEST_SECONDS = 1.0  # how long ``receive_latest`` waits for a message that the broker has


class Subscription(Receiver):
    """A subscription, created by ``Connection.subscribe``. As a context manager it unsubscribes at the end."""

    def __init__(self, connection: BaseConnection, name: str, destination: str, ack: str) -> None:
        super().__init__(connection, name, destination, ack)
        self._arrival = threading.Condition(self._link.lock)

    def wake(self) -> None:
        """Wake the threads that wait for a message. Called with the lock held."""
        self._arrival.notify_all()

    # --- taking -------------------------------------------------------------------------------------------------------

    def fetch(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if none came in time or the subscription has ended.

        Args:
            timeout: The time limit in seconds; None waits without limit.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
        """
        return self._take(timeout, None)

    def _take(self, timeout: float | None, stop: _Stop | None) -> Message | None:
        link = self._link

        def decided() -> bool:
            return self.decided or (stop is not None and stop.asked)

        with link.lock:
            if not decided():
                self._arrival.wait_for(decided, timeout)
            if stop is not None and stop.asked:
                return None
            taken = self.take()
            if taken is None:
                return None
            link.taken()
        frame, generation = taken
        return Message(frame.headers, frame.body, self, frame.head.raw, generation)

    def receive_latest(self, timeout: float | None = None) -> Message | None:
        """Return the newest message, and acknowledge the older ones for this subscription.

        The newest message is found by a replay of the last message of each destination, so the destinations must retain
        some history.

        Args:
            timeout: The time limit for the first message, in seconds; None waits without limit.

        Returns:
            The newest message. None if no message came in time, or another consumer received the newest one.

        Raises:
            ServerError: The broker refused the replay or an acknowledgement.
            TimedOut: The receipt of the replay did not come in time.
            Disconnected: The connection has ended.
        """
        message = self.fetch(timeout)
        if message is None:
            return None
        last = Subscription(self.connection, self.connection.new_name("s"), self.destination, "auto")
        self.connection.open_subscription(last, {"start-position": "last", "stop-position": "end"})
        newest = max(iter(last.fetch, None), key=_received_at, default=message)
        while message is not None and message.id != newest.id and _received_at(message) <= _received_at(newest):
            message.ack()
            message = self.fetch(LATEST_SECONDS)
        return message

    def receive(self, timeout: float | None = None) -> Delivery:
        """Return a context manager for the next message, which is None if none came in time.

        The end of the block acknowledges the message. An exception in the block returns it to its queue.

        Args:
            timeout: The time limit in seconds; None waits without limit.

        Raises:
            ServerError: The broker answered ERROR (raised at the begin or the end of the block).
            Disconnected: The connection has ended (raised at the begin or the end of the block).
        """
        return Delivery(self, timeout, None)

    def __iter__(self) -> Iterator[Message]:
        return self if self.connection.tracing is None else _TracedMessages(self)

    def __next__(self) -> Message:
        message = self._take(None, None)
        if message is None:
            raise StopIteration
        return message

    def listen(
        self, callback: Callable[[Message], Any], *, timeout: float | None = None, count: int | None = None
    ) -> int:
        """Call ``callback`` with each message, acknowledge it, and return the number of messages.

        The loop ends after ``count`` messages, when no message comes for ``timeout`` seconds, when the subscription
        ends, and, in the main thread, on SIGINT or SIGTERM after the current message. The signal handlers are restored.
        An exception of the callback returns its message to the queue and is raised.

        Args:
            callback: The function to call; its result is ignored.
            timeout: The time limit for each message, in seconds; None waits without limit.
            count: The maximum number of messages; None has no limit.

        Raises:
            ServerError: The broker answered ERROR.
            Disconnected: The connection has ended.
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

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Send UNSUBSCRIBE and wait for the receipt. May be called twice.

        Unacknowledged messages return to their queue.

        Raises:
            ServerError: The broker answered ERROR.
            TimedOut: The receipt did not come within the time limit of the connection.
            Disconnected: The connection ended during the call.

        Source: STOMP 1.2, "UNSUBSCRIBE".
        """
        link = self._link
        session = link.session
        with link.lock:
            due = self.close_inbox()
            link.taken()
            self._arrival.notify_all()
            generation = session.generation
        if due:
            try:
                link.ask(
                    lambda receipt: session.protocol.unsubscribe(self.id, receipt=receipt), OnLoss.DONE, generation
                ).wait()
            except StaleDelivery:
                pass  # the subscription ended with its connection

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Disconnected:
            if kind is None:
                raise


class _TracedMessages:
    """The messages of a loop. The span of each is active until the next one is asked for, or the loop is left."""

    def __init__(self, subscription: Subscription) -> None:
        from radiator.client.tracing import Loop

        assert subscription.connection.tracing is not None
        self._subscription = subscription
        self._loop = Loop(subscription.connection.tracing)

    def __iter__(self) -> _TracedMessages:
        return self

    def __next__(self) -> Message:
        self._loop.end()
        message = next(self._subscription)
        self._loop.begin(message)
        return message


def _received_at(message: Message) -> int:
    return message.receive_time or 0


class Delivery:
    """The context manager for one message, returned by ``Subscription.receive``."""

    def __init__(self, subscription: Subscription, timeout: float | None, stop: _Stop | None) -> None:
        self._subscription = subscription
        self._timeout = timeout
        self._stop = stop
        self._message: Message | None = None
        self._span = ExitStack()

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"receive() returns no message but the context of one, which has no attribute {name!r}: write `with "
                "subscription.receive() as message:`, or take a message with `fetch()` and call its `ack()`"
            )

    def __enter__(self) -> Message | None:
        self._message = message = self._subscription._take(self._timeout, self._stop)
        tracing = self._subscription.connection.tracing
        if tracing is not None and message is not None:
            self._span.enter_context(tracing.processing(message))
        return message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._message is not None:
                self._settle(self._message, kind is None)
        finally:
            self._span.__exit__(kind, error, trace)

    @staticmethod
    def _settle(message: Message, done: bool) -> None:
        if done:
            try:
                message.ack()
            except StaleDelivery:
                pass  # a lost connection gives the message back, and it comes again
            return
        try:
            message.nack()
        except ClientError:
            pass  # the caller's own exception matters more; a lost connection gives the message back anyway


class _Stop:
    """Turn SIGINT and SIGTERM into a request to stop, inside ``with``. Python allows this in the main thread only."""

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
        # A handler runs between two instructions of the main thread, perhaps inside a condition. Another thread
        # acquires the lock, so the wake-up cannot come between the check and the wait.
        self.asked = True
        threading.Thread(target=self._wake, daemon=True).start()

    def _wake(self) -> None:
        with self._subscription._link.lock:
            self._subscription.wake()
