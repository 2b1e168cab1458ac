"""The bytes that the load generator sends: built once, sent many times.

A generator that spends more on a message than the broker does would measure itself. So nothing here is formatted per
message: a window of SEND frames is built before the clock starts (``Ring``), all of one length, and sending *k* frames
is one slice of it. Receipt ids repeat after one window, which is sound because at most one window is outstanding.

No body contains a NUL, so the number of frames in any piece of input is its number of NUL bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

Headers = Iterable[tuple[str, str]]


def frame(command: str, headers: Headers, body: bytes = b"") -> bytes:
    """Return one encoded frame. The values come from the command line of the operator and need no escaping."""
    lines = "".join(f"{name}:{value}\n" for name, value in headers)
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def connect(host: str, login: str = "", passcode: str = "") -> bytes:
    """Return CONNECT without heart-beats, whose timers would be measured too."""
    headers = [("accept-version", "1.2"), ("host", host), ("heart-beat", "0,0")]
    if login:
        headers += [("login", login), ("passcode", passcode)]
    return frame("CONNECT", headers)


def subscribe(destination: str, ack: str, headers: Headers = (), receipt: str = "") -> bytes:
    """Return SUBSCRIBE with the id 0."""
    base = [("id", "0"), ("destination", destination), ("ack", ack), *headers]
    if receipt:
        base.append(("receipt", receipt))
    return frame("SUBSCRIBE", base)


def disconnect() -> bytes:
    """Return DISCONNECT with a receipt, which arrives when all earlier frames are processed."""
    return frame("DISCONNECT", [("receipt", "bye")])


def acks(ids: list[bytes]) -> bytes:
    """Return ACK frames of STOMP 1.2. The ids are sent back unchanged, with their escapes."""
    return b"ACK\nid:" + b"\n\n\0ACK\nid:".join(ids) + b"\n\n\0" if ids else b""


class Ring:
    """``window`` SEND frames of equal length, stored twice so that any run of them is one slice."""

    def __init__(self, destination: str, size: int, window: int, headers: Headers = (), receipts: bool = True) -> None:
        body = b"x" * size
        frames = []
        for number in range(window):
            head = [("destination", destination), ("content-length", str(size)), *headers]
            if receipts:
                head.append(("receipt", f"{number:06d}"))
            frames.append(frame("SEND", head, body))
        self.window = window
        self.frame_bytes = len(frames[0])
        assert all(len(one) == self.frame_bytes for one in frames)
        self._bytes = memoryview(b"".join(frames) * 2)

    def slice(self, start: int, count: int) -> memoryview:
        """Return ``count`` frames (at most one window) from frame ``start`` on; ``start`` may be any running number."""
        assert count <= self.window
        first = start % self.window * self.frame_bytes
        return self._bytes[first : first + count * self.frame_bytes]
