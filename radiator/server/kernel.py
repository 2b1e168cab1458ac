"""What the kernel holds of a connection: bytes that we have not read yet, and bytes that the peer does not have yet.

Knows: a plain socket. Must not know: STOMP, sessions.
"""

from __future__ import annotations

import fcntl
import socket as std_socket
import sys
import termios


def unread_bytes(sock: std_socket.socket) -> int:
    """How much has come that nobody has read. Raises OSError."""
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


def unsent_bytes(sock: std_socket.socket) -> int:
    """How much was sent that the peer has not acknowledged. Raises OSError."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
