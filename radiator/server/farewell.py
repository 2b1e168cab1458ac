"""Connections that were turned away before they were any: their answer has to arrive.

A socket that is closed while bytes of the peer are unread, or still to come, takes back what was sent last. So our side
is shut, and what the peer says is dropped, for a moment and for a bounded number of them.

Knows: sockets. Must not know: why.
"""

from __future__ import annotations

import socket as std_socket
from contextlib import suppress
from typing import Final

import gevent
from gevent.socket import wait_read

from radiator import limits

AT_ONCE_MAX: Final = 8  # a file descriptor each (``descriptors``)
SECONDS: Final = 2.0


class Farewells:
    """See the top of the file."""

    def __init__(self) -> None:
        self._count = 0

    def say(self, sock: std_socket.socket, words: bytes) -> None:
        """Send the last words, and close as soon as the peer has, or its time is over."""
        try:
            sock.send(words)
            sock.shutdown(std_socket.SHUT_WR)
        except OSError:
            sock.close()
            return
        if self._count >= AT_ONCE_MAX:
            sock.close()
            return
        self._count += 1
        gevent.spawn(self._drain, sock)

    def _drain(self, sock: std_socket.socket) -> None:
        try:
            with suppress(OSError, gevent.Timeout), gevent.Timeout(SECONDS):
                while True:
                    wait_read(sock.fileno())
                    if not sock.recv(limits.RECV_BYTES):
                        break
        finally:
            self._count -= 1
            sock.close()
