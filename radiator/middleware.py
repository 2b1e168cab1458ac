"""Define the interface of middleware: functions of the operator that see each SEND before it is stored.

A rule with ``middleware: [mypackage.hooks:stamp]`` names functions. Each receives one ``Message`` and returns a
message, changed or not, or ``DROP``. To refuse the message it raises ``Reject``.

Example:
    >>> def stamp(message: Message) -> Message:
    ...     message.headers["tag-site"] = "jfk"
    ...     return message
    >>> stamp(Message("/topic/a", {}, b"one", user="ann", address="127.0.0.1")).headers
    {'tag-site': 'jfk'}

The function runs in the event loop of the broker, and all clients wait while it runs. It must not block, and must not
keep a reference to the message.

This module imports nothing of the broker. ``docs/configuration.md`` has the rules of the key ``middleware``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class Message:
    """One SEND before it is stored. A middleware may change or replace ``destination``, ``headers`` and ``body``.

    Args:
        destination: The destination of the message.
        headers: The headers of the SEND frame, decoded.
        body: The body, byte for byte.
        user: The login of the sender; empty without a login.
        address: The network address of the sender.

    Attributes:
        destination: The destination of the message.
        headers: The headers of the SEND frame, decoded.
        body: The body, byte for byte.
        user: The login of the sender; empty without a login.
        address: The network address of the sender.
    """

    __slots__ = ("address", "body", "destination", "headers", "user")

    def __init__(self, destination: str, headers: dict[str, str], body: bytes, user: str, address: str) -> None:
        self.destination = destination
        self.headers = headers
        self.body = body
        self.user = user
        self.address = address

    def __repr__(self) -> str:
        return f"Message({self.destination!r}, {self.headers!r}, {self.body[:40]!r})"


class Reject(Exception):
    """Raised by a middleware to refuse a message.

    The sender receives an ERROR with code ``rejected`` and the text of this exception.

    Example:
        >>> def small_only(message: Message) -> Message:
        ...     if len(message.body) > 1_000_000:
        ...         raise Reject(f"body: expected at most 1 MB, got {len(message.body)} bytes")
        ...     return message
    """


class _Drop:
    def __repr__(self) -> str:
        return "DROP"


DROP: Final = _Drop()  # return this to discard the message: it is counted, and its RECEIPT says so

Middleware = Callable[[Message], "Message | _Drop"]
