"""SEND frames as bytes, many at a time.

Publishers repeat destination and headers, so the head of a frame is formatted once per distinct head in a call, and
the rest is joined per message. ``transmit-time`` is the time at which the call encodes: messages that leave in one
write carry one time, which is true, and lets the broker recognise the repeated head.

The frame's own headers (``destination``, ``receipt``, ``transaction``, ``content-length``) are arguments of the calls
and never among ``headers``: a ValueError says so, as it does of a NUL, which no header can have. A body that is
neither bytes nor text is a TypeError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from radiator.stomp.headers import join
from radiator.stomp.spec import HOP_BY_HOP

Body: TypeAlias = bytes | bytearray | memoryview | str
Headers: TypeAlias = Mapping[str, str | int]


class Outgoing(NamedTuple):
    """A message to be sent; a plain tuple of the same shape does as well."""

    destination: str
    body: Body = b""
    headers: Headers | None = None


Sendable: TypeAlias = Outgoing | tuple[str, Body] | tuple[str, Body, Headers | None]


def body_bytes(body: Body) -> bytes:
    """The body as it will be sent: text as UTF-8."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(
        f"body: expected bytes or text, got {type(body).__name__}; str(...) or json.dumps(...) make text of it"
    )


def check_headers(headers: Headers) -> None:
    """Refuse what belongs to the frame."""
    for name in HOP_BY_HOP:
        if name in headers:
            raise ValueError(f"the header {name!r} belongs to the frame: it is set by an argument or by the library")


def checked(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same, if no frame ends in the middle of them. Raises ValueError that names the header."""
    for name, value in pairs:
        if "\0" in name or "\0" in value:
            raise ValueError(f"header {name!r}: NUL ends a frame, and can be in no header, got {value[:200]!r}")
    return pairs


class Encoder:
    """Encodes for one connection: its version, and whether ``transmit-time`` is added."""

    def __init__(self, version: str, transmit_time: bool) -> None:
        self._version = version
        self._transmit_time = transmit_time

    def head(self, destination: str, headers: Headers | None, transaction: str | None, now_ns: int) -> bytes:
        """The command line and all header lines but ``content-length`` and ``receipt``."""
        pairs = [("destination", destination)]
        if headers:
            check_headers(headers)
            pairs += [(name, str(value)) for name, value in headers.items()]
        if self._transmit_time and not (headers and "transmit-time" in headers):
            pairs.append(("transmit-time", str(now_ns)))
        if transaction is not None:
            pairs.append(("transaction", transaction))
        return f"SEND{join(checked(pairs), self._version)}".encode()

    def encode(
        self, messages: Iterable[Sendable], receipts: Iterable[int] | None, transaction: str | None, now_ns: int
    ) -> list[bytes]:
        """One piece of bytes per message; ``receipts`` are their receipt ids, None asks for no receipts."""
        heads: dict[tuple[object, ...], bytes] = {}
        pieces: list[bytes] = []
        numbers = iter(receipts) if receipts is not None else None
        for message in messages:
            destination, raw = message[0], message[1]
            headers = message[2] if len(message) > 2 else None
            key = (destination, *headers.items()) if headers else (destination,)
            head = heads.get(key)
            if head is None:
                head = heads[key] = self.head(destination, headers, transaction, now_ns)
            body = body_bytes(raw)
            if numbers is None:
                pieces.append(b"%b\ncontent-length:%d\n\n%b\0" % (head, len(body), body))
            else:
                pieces.append(b"%b\ncontent-length:%d\nreceipt:%d\n\n%b\0" % (head, len(body), next(numbers), body))
        return pieces
