"""Send requests and match replies to them: many calls at once over one private reply queue.

The first request subscribes to a ``/temp-queue/`` with a random name, which the broker deletes with the connection.
Each request has a ``correlation-id`` of its own, and expires when its call times out. A reply goes to the call that
waits for its id. Late and unexpected replies are counted and dropped.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from radiator.client.errors import Disconnected, TimedOut, copy_error
from radiator.client.message import Message
from radiator.client.sending import Body, Headers
from radiator.client.session import request_headers
from radiator.client.subscription import Subscription
from radiator.clock import now_ns
from radiator.stomp.frames import Frame

if TYPE_CHECKING:
    from radiator.client.core import BaseConnection


class Requests(Subscription):
    """The reply queue of a connection: a subscription whose inbox is a table of waiting calls.

    Args:
        connection: The connection that sends the requests.

    Attributes:
        dropped: The number of replies for which no call waited.
    """

    def __init__(self, connection: BaseConnection) -> None:
        name = f"/temp-queue/{secrets.token_hex(12)}"
        super().__init__(connection, name, name, "auto")
        self.dropped = 0
        self._replies: dict[str, Frame | None] = {}
        self._lost: set[str] = set()  # calls whose connection was lost

    def interrupted(self) -> None:
        """Fail the calls that wait, after a lost connection: their requests may have been processed."""
        super().interrupted()
        self._lost.update(key for key, frame in self._replies.items() if frame is None)

    def put(self, frame: Frame) -> None:
        """Store a reply for the call that waits for it. Called by the reader thread with the lock held.

        Args:
            frame: A MESSAGE frame of the reply queue.
        """
        key = frame.headers.get("correlation-id", "")
        if key in self._replies and self._replies[key] is None:
            self._replies[key] = frame
        else:
            self.dropped += 1

    def call(self, destination: str, body: Body, headers: Headers | None, timeout: float) -> Message:
        """Send a request and return the reply.

        Args:
            destination: The destination of the request.
            body: The body of the request.
            headers: More headers of the request. ``expires`` is set to the end of the time limit if it is missing.
            timeout: The time limit for the reply, in seconds.

        Raises:
            TimedOut: No reply came within the time limit.
            ServerError: The broker refused the request.
            Disconnected: The connection ended first.
            ValueError: A header is not allowed.
            TypeError: The body is neither bytes nor text.
        """
        link = self._link
        key, extra = request_headers(self.destination, headers, timeout, now_ns())
        with link.lock:
            self._replies[key] = None
            link.await_reply(1)
        try:
            self.connection.send(destination, body, extra, receipt=False)
            with link.lock:
                self._arrival.wait_for(
                    lambda: self._replies[key] is not None or key in self._lost or self.problem, timeout
                )
                frame = self._replies[key]
                if frame is None and self.problem is not None:
                    raise copy_error(self.problem)
                if frame is None and key in self._lost:
                    raise Disconnected("the connection was lost before the reply came; the request may be processed")
        finally:
            with link.lock:
                del self._replies[key]
                self._lost.discard(key)
                link.await_reply(-1)
        if frame is None:
            raise TimedOut(
                f"no reply to the request to {destination} within {timeout:g} s; "
                "is the replying program subscribed, or does it need a longer timeout?"
            )
        return Message(frame.headers, frame.body, self)
