"""The results of the parser: a Head (command and headers) and a Frame (a head, a receipt, a body).

Most publishers repeat one header block and change only the body and the receipt. So a head is parsed once, shared by
all frames that have it, and never changed; the Frame has what differs. ``receipt`` is stored as raw bytes, because it
is only echoed.

``Head.memo`` belongs to the receiver of the frames: the broker stores there what it derived from the head (policy,
stored header block), so that a repeated head costs one attribute look-up.
"""

from __future__ import annotations

from typing import Any


class Head:
    """The command and the headers of a frame, shared between frames. Only ``memo`` may be changed."""

    __slots__ = ("command", "content_length", "headers", "memo", "raw", "version")

    def __init__(self, command: str, headers: dict[str, str], raw: bytes, version: str, content_length: int) -> None:
        self.command = command
        self.headers = headers  # decoded, the first of repeated headers wins, without `receipt`
        self.raw = raw  # the header lines as they came, joined by LF, without `receipt`, command and CRs
        self.version = version
        self.content_length = content_length  # -1 where the header is absent
        self.memo: Any = None

    def remember(self, memo: object) -> None:
        """Keep what the receiver has derived from the head, for all frames that share it."""
        self.memo = memo

    def __repr__(self) -> str:
        return f"Head({self.command!r}, {self.headers!r})"


class Frame:
    """One frame: a shared head, its own receipt and body."""

    __slots__ = ("body", "head", "receipt")

    def __init__(self, head: Head, receipt: bytes | None, body: bytes) -> None:
        self.head = head
        self.receipt = receipt
        self.body = body

    @property
    def command(self) -> str:
        """The command."""
        return self.head.command

    @property
    def headers(self) -> dict[str, str]:
        """The decoded headers, without ``receipt``."""
        return self.head.headers

    def __repr__(self) -> str:
        return f"Frame({self.head.command!r}, {self.head.headers!r}, receipt={self.receipt!r}, body={self.body[:40]!r})"
