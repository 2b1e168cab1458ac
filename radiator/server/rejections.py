"""Send the answer to a rejected connection, and close it when the answer has arrived.

If a socket is closed while bytes of the peer are unread or on their way, TCP discards what was sent last. So the
sending side is shut down, and the peer's bytes are read and dropped for a short time. A peer behind TLS gets the answer
after its handshake, which is scheduled with the handshakes of all other connections. If too many are waiting, the
oldest unanswered one is closed without an answer. So clients that connect and send nothing cannot keep others from
getting their answer.

Uses sockets and TLS. Must not know why a connection is rejected.

Invariant: at most AT_ONCE_MAX rejections are under way, none for longer than SECONDS.
"""

from __future__ import annotations

import socket as std_socket
from typing import TYPE_CHECKING, Any, Final

import gevent

from radiator import limits
from radiator.server.handshakes import Handshakes

if TYPE_CHECKING:
    from radiator.tunnels.tls import Tls

AT_ONCE_MAX: Final = 8  # a file descriptor each (``descriptors``)
SECONDS: Final = 2.0
READ: Final = 1  # libev's event bit


class Rejections:
    """The rejected connections that are not closed yet.

    Args:
        handshakes: Schedules the TLS handshakes.
    """

    def __init__(self, handshakes: Handshakes) -> None:
        self.handshakes = handshakes
        self.under_way: dict[Rejection, None] = {}  # the oldest first

    def send(self, sock: std_socket.socket, answer: bytes, tls: Tls | None = None) -> None:
        """Send the answer and close the socket when the peer has closed it, or after SECONDS.

        Args:
            sock: The socket, non-blocking.
            answer: The bytes of the answer.
            tls: The TLS of the connection, or None.
        """
        if tls is None and not _sent(sock, answer):
            sock.close()
            return
        if len(self.under_way) >= AT_ONCE_MAX:
            oldest = next((each for each in self.under_way if not each.answered), None)
            if oldest is None:
                sock.close()
                return
            oldest.end()
        self.under_way[Rejection(self, sock, answer, tls)] = None

    def stop(self) -> None:
        """Close all rejected connections."""
        for each in list(self.under_way):
            each.end()


class Rejection:
    """One rejected connection.

    Attributes:
        answered: True when the answer is sent.
    """

    __slots__ = ("_ended", "_rejections", "_reader", "_sock", "_timer", "_tls", "_answer_bytes", "answered")

    def __init__(self, rejections: Rejections, sock: std_socket.socket, answer: bytes, tls: Tls | None) -> None:
        self._rejections = rejections
        self._sock = sock
        self._answer_bytes = answer
        self._tls = tls
        self._ended = False
        self.answered = tls is None
        loop = gevent.get_hub().loop
        self._timer: Any = loop.timer(SECONDS)
        self._timer.start(self.end)
        self._reader: Any = loop.io(sock.fileno(), READ)
        self._reader.start(self._readable)

    def _readable(self) -> None:
        if self.answered or self._rejections.handshakes.admits(self):
            self._receive()
        else:
            self._reader.stop()

    def continue_handshake(self) -> None:
        """Continue the handshake. Called by ``Handshakes``."""
        if not self._ended:
            self._receive()
        if not self._ended:
            self._reader.start(self._readable)

    def _receive(self) -> None:
        try:
            data = self._sock.recv(limits.RECV_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data or not (self.answered or self._answer(data)):
            self.end()

    def _answer(self, data: bytes) -> bool:
        """Continue the handshake, and send the answer when it is complete. Return False if sending failed."""
        tls = self._tls
        assert tls is not None
        tls.receive(data)
        answer = tls.outgoing()
        if tls.refusal is not None:
            answer += tls.refusal.reply or (self._answer_bytes if tls.refusal.protocol == "stomp" else b"")
        elif tls.ready:
            answer += tls.seal(self._answer_bytes) + tls.close(0, "")
        else:
            return _sent(self._sock, answer, last=False)
        self.answered = True
        self._tls = None
        return _sent(self._sock, answer)

    def end(self) -> None:
        """Close the connection, answered or not."""
        if not self._ended:
            self._ended = True
            for watcher in (self._reader, self._timer):
                watcher.stop()
                watcher.close()
            del self._rejections.under_way[self]
            self._sock.close()


def _sent(sock: std_socket.socket, data: bytes, *, last: bool = True) -> bool:
    """Send ``data`` and return True if the socket took all of it. ``last``: shut down the sending side."""
    try:
        whole = not data or sock.send(data) == len(data)
        if last:
            sock.shutdown(std_socket.SHUT_WR)
    except OSError:
        return False
    return whole
