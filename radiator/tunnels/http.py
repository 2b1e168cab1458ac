"""As much HTTP as opens a WebSocket: one request, or one response, and answers in words to everything else.

A head is read strictly: lines of ``name: value``, no folding, no name twice where that could mean two things.
"""

from __future__ import annotations

from typing import NamedTuple

HEAD_BYTES_MAX = 16 * 1024  # cookies of a browser come with it
SINGLE = frozenset({"host", "origin", "sec-websocket-key", "sec-websocket-version", "sec-websocket-accept"})
REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Head(NamedTuple):
    """The first line's three words, and the headers by lower-case name; repeated ones are joined by commas."""

    first: tuple[str, str, str]
    headers: dict[str, str]

    def tokens(self, name: str) -> list[str]:
        """The words of a comma list."""
        return [word.strip() for word in self.headers.get(name, "").split(",") if word.strip()]


def parse_head(data: bytes) -> Head:
    """What stands before the blank line; ValueError says what is wrong."""
    first, *lines = data.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) != 3:
        raise ValueError("expected a first line of three words")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not name or name != name.strip() or not name.isascii():
            raise ValueError("expected header lines of the form name: value")
        if key in headers:
            if key in SINGLE:
                raise ValueError(f"expected {name} once")
            headers[key] += ", " + value.strip()
        else:
            headers[key] = value.strip()
    return Head((words[0], words[1], words[2]), headers)


def response(status: int, text: str, more: tuple[str, ...] = (), *, body: bool = True) -> bytes:
    """A whole answer of plain text, after which the connection ends."""
    content = (text + "\n").encode()
    lines = (
        f"HTTP/1.1 {status} {REASONS[status]}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(content)}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
        *more,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (content if body else b"")
