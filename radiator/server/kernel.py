"""Measure the socket buffers of the kernel: bytes to read, and bytes that the peer does not have yet."""

from __future__ import annotations

import fcntl
import socket as std_socket
import sys
import termios


def unread_bytes(sock: std_socket.socket) -> int:
    """Return the number of received bytes that were not read.

    Raises:
        OSError: The socket is closed.
    """
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


def unsent_bytes(sock: std_socket.socket) -> int:
    """Return the number of sent bytes that the peer has not acknowledged.

    Raises:
        OSError: The socket is closed.
    """
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
