"""Parse and build the HTTP messages that open a WebSocket, and plain text answers to other requests.

The parser is strict: it accepts lines ``name: value``, no folding, and no repeated header where repetition is
ambiguous.
"""

from __future__ import annotations

from typing import NamedTuple

HEAD_BYTES_MAX = 16 * 1024  # browsers send cookies too
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
    """The head of a request or a response.

    Attributes:
        first: The three parts of the first line.
        headers: The headers by lower-case name; repeated ones are joined by commas.
    """

    first: tuple[str, str, str]
    headers: dict[str, str]

    def tokens(self, name: str) -> list[str]:
        """Return the elements of a header that is a comma-separated list."""
        return [word.strip() for word in self.headers.get(name, "").split(",") if word.strip()]


def parse_head(data: bytes) -> Head:
    """Return the head in the bytes before the blank line.

    Raises:
        ValueError: The bytes are not a valid head; the message says what is wrong.
    """
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
    """Return a complete response of plain text, after which the connection is closed.

    Args:
        status: The status code, a key of ``REASONS``.
        text: The text.
        more: More header lines.
        body: False for the answer to HEAD.
    """
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
