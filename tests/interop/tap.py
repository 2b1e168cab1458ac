"""A tap between a client and the broker: it passes bytes on, remembers them, and can cut the line.

What a foreign client really says on the wire is the first thing one wants to know when it fails. It knows nothing of
STOMP; over TLS what it remembers cannot be read.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

REMEMBERED_BYTES_MAX = 64 * 1024
LINE_CHARS_MAX = 160
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a RST, as a broken line does


class Tap:
    """Listens on ``port`` and connects each client to ``upstream``, a port of the loopback."""

    def __init__(self, upstream: int, encrypted: bool = False) -> None:
        self.upstream = upstream
        self._encrypted = encrypted
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._heard: list[tuple[str, bytes]] = []
        self._size = 0
        self._lines: list[tuple[socket.socket, socket.socket]] = []
        self.alive = 0  # connections that the broker has not closed
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.upstream))
            except OSError:
                client.close()
                continue
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._lines.append((client, broker))
                self.alive += 1
            for mark, source, sink in ((">", client, broker), ("<", broker, client)):
                threading.Thread(target=self._pass_on, args=(mark, source, sink), daemon=True).start()

    def _pass_on(self, mark: str, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(256 * 1024):
                self._remember(mark, data)
                sink.sendall(data)
        except OSError:
            pass
        self._remember(mark, b"(closed)")
        if mark == "<":
            with self._lock:
                self.alive -= 1
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _remember(self, mark: str, data: bytes) -> None:
        with self._lock:
            if self._size < REMEMBERED_BYTES_MAX:
                self._heard.append((mark, data[:REMEMBERED_BYTES_MAX]))
                self._size += len(data)

    def cut(self) -> None:
        """Every connection breaks, on both sides."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            for end in line:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    end.shutdown(socket.SHUT_RD)  # wakes the thread that reads there
                    end.close()

    def forget(self) -> None:
        with self._lock:
            self._heard.clear()
            self._size = 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def dump(self) -> str:
        """What was said, the client's lines with ``>`` and the broker's with ``<``; ``^@`` is a NUL."""
        with self._lock:
            heard = list(self._heard)
        if self._encrypted:
            return "\n".join(f"{mark} {len(data)} encrypted bytes" for mark, data in heard)
        lines: list[str] = []
        for mark, data in heard:
            text = data.decode("utf-8", "backslashreplace").replace("\0", "^@")
            for line in text.split("\n"):
                shown = line if len(line) <= LINE_CHARS_MAX else f"{line[:LINE_CHARS_MAX]}... ({len(line)} characters)"
                lines.append(f"{mark} {shown!r}" if not shown.isprintable() else f"{mark} {shown}")
        return "\n".join(lines)
