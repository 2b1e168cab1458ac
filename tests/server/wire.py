"""One end of a connection to a real broker, for tests that care about bytes: nothing is hidden, nothing is helpful.

``hear`` waits for a frame, ``rest`` for the end of the stream; a wait that takes ``WAIT_SECONDS`` is a failure.
"""

from __future__ import annotations

import socket
from typing import Any

from radiator.stomp.connection import ClientConnection
from radiator.stomp.encoder import encode
from radiator.stomp.frames import Frame
from tests.running import BrokerProcess

WAIT_SECONDS = 30.0


class Wire:
    """A TCP (or unix) connection, or a socket that is connected already; ``receive_bytes`` is the socket's buffer."""

    def __init__(
        self, target: BrokerProcess | str | socket.socket, version: str = "1.2", receive_bytes: int | None = None
    ) -> None:
        if isinstance(target, socket.socket):
            self.socket = target
        else:
            self.socket = socket.socket(socket.AF_UNIX if isinstance(target, str) else socket.AF_INET)
            if receive_bytes is not None:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            self.socket.settimeout(WAIT_SECONDS)
            self.socket.connect(target if isinstance(target, str) else ("127.0.0.1", target.port))
        self.version = version
        self.end = ClientConnection()
        self.inbox: list[Frame] = []
        self.beats = 0
        self.eof = False

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # --- out ----------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, command: str, body: bytes = b"", /, **headers: Any) -> None:
        pairs = [(name.rstrip("_").replace("_", "-"), str(value)) for name, value in headers.items()]
        self.send(encode(command, pairs, body, "1.0" if command == "CONNECT" else self.version))

    def open(self, **headers: str) -> Wire:
        self.say("CONNECT", accept_version=self.version, host="test", **headers)
        assert self.hear("CONNECTED")
        return self

    # --- in -----------------------------------------------------------------------------------------------------------

    def more(self, size: int = 65_536) -> bytes:
        """What the next recv brings; empty at the end of the stream."""
        try:
            data = self.socket.recv(size)
        except ConnectionResetError:
            data = b""
        self.eof = self.eof or not data
        if not data.strip(b"\n"):
            self.beats += len(data)  # several may come at once
        self.inbox += self.end.receive(data)
        return data

    def hear(self, command: str, **headers: str) -> Frame:
        """The next frame of that command (with those headers); fails when the stream ends before it comes."""
        wanted = {name.replace("_", "-"): value for name, value in headers.items()}
        while True:
            for frame in self.inbox:
                if frame.command == command and wanted.items() <= frame.headers.items():
                    self.inbox.remove(frame)
                    return frame
            assert self.more(), f"the stream ended before {command} {wanted}; heard {self.inbox}"

    def hear_many(self, command: str, count: int) -> list[Frame]:
        return [self.hear(command) for _ in range(count)]

    def rest(self) -> list[Frame]:
        """Everything up to the end of the stream."""
        while self.more():
            pass
        frames, self.inbox = self.inbox, []
        return frames

    def barrier(self) -> None:
        """Once it returns, all that was said before has been acted upon."""
        self.say("SEND", destination="/topic/barrier", receipt="barrier")
        self.hear("RECEIPT", receipt_id="barrier")


def rss_kib(broker: BrokerProcess) -> int:
    """Memory of the broker that is really there."""
    with open(f"/proc/{broker.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
