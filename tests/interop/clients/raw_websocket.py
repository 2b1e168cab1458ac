"""Just enough of RFC 6455 for ``raw.py``: masked binary frames out, frames of any kind in."""

from __future__ import annotations

import base64
import os
import socket
import struct

from orders import Lost


class WebSocket:
    """Looks like a socket: ``sendall``, ``recv``, ``pending``."""

    def __init__(self, sock: socket.socket, host: str, path: str, version: str) -> None:
        self._sock = sock
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path or '/'} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: v{version.replace('.', '')}.stomp",
        ]  # fmt: skip
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._more()
        head, self._bytes = answer.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101 "), head

    def _more(self) -> bytes:
        data = self._sock.recv(65536)
        if not data:
            raise Lost("closed")
        return data

    def sendall(self, data: bytes) -> None:
        for start in range(0, len(data), 50_000):  # frames of STOMP may be split anywhere
            part = data[start : start + 50_000]
            size = struct.pack("!B", 0x80 | len(part)) if len(part) < 126 else struct.pack("!BH", 0x80 | 126, len(part))
            mask = os.urandom(4)
            masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(part))
            self._sock.sendall(b"\x82" + size + mask + masked)

    def pending(self) -> int:
        return len(self._bytes) if self._whole() else getattr(self._sock, "pending", int)()

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def _whole(self) -> tuple[int, int, int] | None:
        """Opcode, start and end of the first frame, if all of it is here."""
        data = self._bytes
        if len(data) < 2:
            return None
        size, start = data[1] & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(data) < 2 + width:
                return None
            size, start = int.from_bytes(data[2 : 2 + width], "big"), 2 + width
        return (data[0] & 0xF, start, start + size) if len(data) >= start + size else None

    def recv(self, _: int) -> bytes:
        while (found := self._whole()) is None:
            self._bytes += self._more()
        opcode, start, end = found
        payload, self._bytes = self._bytes[start:end], self._bytes[end:]
        return b"" if opcode == 8 else payload
