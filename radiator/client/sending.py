"""Encode SEND frames, many at a time.

Publishers repeat destinations and headers, so the head of a frame is formatted once per distinct head in a call.
``transmit-time`` is the time of the call: all messages of one write have the same time, so the broker can recognise
the repeated head.

``destination``, ``receipt``, ``transaction`` and ``content-length`` are set by arguments or by the library; ``headers``
may not contain them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from radiator.stomp.headers import join
from radiator.stomp.spec import HOP_BY_HOP

Body: TypeAlias = bytes | bytearray | memoryview | str
Headers: TypeAlias = Mapping[str, str | int]


class Outgoing(NamedTuple):
    """A message to send. A plain tuple of the same fields is accepted too.

    Attributes:
        destination: The destination, such as ``/queue/orders``.
        body: Bytes, or text that is sent as UTF-8.
        headers: More headers, or None. Integers are sent as decimal text.
    """

    destination: str
    body: Body = b""
    headers: Headers | None = None


Sendable: TypeAlias = Outgoing | tuple[str, Body] | tuple[str, Body, Headers | None]


def body_bytes(body: Body) -> bytes:
    """Return a body as bytes; text is encoded as UTF-8.

    Args:
        body: The body of a message.

    Raises:
        TypeError: The body is neither bytes nor text.
    """
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(
        f"body: expected bytes or text, got {type(body).__name__}; convert it with str(...) or json.dumps(...)"
    )


def check_headers(headers: Headers) -> None:
    """Raise if a header is one that the frame sets itself.

    Args:
        headers: The headers that the caller gave.

    Raises:
        ValueError: A header is in ``radiator.stomp.spec.HOP_BY_HOP``.
    """
    for name in HOP_BY_HOP:
        if name in headers:
            raise ValueError(f"header {name!r} belongs to the frame: leave it out, an argument or the library sets it")


def checked(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs unchanged, after a check that none contains NUL.

    Args:
        pairs: Names and values of headers.

    Raises:
        ValueError: A name or a value contains NUL, which ends a STOMP frame; the message names the header.
    """
    for name, value in pairs:
        if "\0" in name or "\0" in value:
            raise ValueError(f"header {name!r}: expected no NUL, which ends a STOMP frame, got {value[:200]!r}")
    return pairs


class Encoder:
    """Encode the SEND frames of one connection.

    Args:
        version: The STOMP version of the connection, which decides how headers are escaped.
        transmit_time: Add the ``transmit-time`` header to every message that has none.
    """

    def __init__(self, version: str, transmit_time: bool) -> None:
        self._version = version
        self._transmit_time = transmit_time

    def head(self, destination: str, headers: Headers | None, transaction: str | None, now_ns: int) -> bytes:
        """Return the command line and the header lines, without ``content-length`` and ``receipt``.

        Args:
            destination: The destination of the message.
            headers: More headers, or None.
            transaction: The id of the transaction, or None.
            now_ns: The current time in nanoseconds since the epoch.

        Raises:
            ValueError: A header is not allowed, or contains NUL.
        """
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
        """Return one encoded frame per message.

        Args:
            messages: The messages to send.
            receipts: A receipt id per message, or None for no receipts.
            transaction: The id of the transaction, or None.
            now_ns: The current time in nanoseconds since the epoch.

        Raises:
            ValueError: A header is not allowed, or contains NUL.
            TypeError: A body is neither bytes nor text.
        """
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
