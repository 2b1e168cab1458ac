"""Connections that were turned away before they were any: their answer has to arrive.

A socket that is closed while bytes of the peer are unread, or still to come, takes back what was sent last. So our side
is shut, and what the peer says is dropped, for a moment and for a bounded number of them. A peer that reads only what
is encrypted is told once its handshake is done, which takes turns with those of all others; where too many are under
way the oldest of these gives its place to the next one, and is closed without a word. So a crowd that opens connections
and says nothing keeps none of the others from being told.

Knows: sockets, TLS. Must not know: why.
Invariant: no more than AT_ONCE_MAX are here, and none for longer than SECONDS.
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
    """See the top of the file."""

    def __init__(self, handshakes: Handshakes) -> None:
        self.handshakes = handshakes
        self.under_way: dict[Rejection, None] = {}  # the oldest first

    def send(self, sock: std_socket.socket, answer: bytes, tls: Tls | None = None) -> None:
        """Send the last answer, in ``tls`` if it can only be read there, and close as soon as the peer has, or its
        time is over."""
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
        """End those that are under way."""
        for each in list(self.under_way):
            each.end()


class Rejection:
    """One that is sent away; ``told`` once the answer is on its way."""

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
        """Its turn has come."""
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
        """Go on with the handshake; once it is done, say what there is to say. False if that cannot be sent."""
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
        """Close it, told or not."""
        if not self._ended:
            self._ended = True
            for watcher in (self._reader, self._timer):
                watcher.stop()
                watcher.close()
            del self._rejections.under_way[self]
            self._sock.close()


def _sent(sock: std_socket.socket, data: bytes, *, last: bool = True) -> bool:
    """Whether the socket took that; a new one always has room. ``last``: nothing follows."""
    try:
        whole = not data or sock.send(data) == len(data)
        if last:
            sock.shutdown(std_socket.SHUT_WR)
    except OSError:
        return False
    return whole
