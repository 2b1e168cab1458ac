"""What an operator's own functions are given for each SEND, and what they may answer.

A rule's ``middleware: [mypackage.hooks:stamp]`` names functions that take one ``Message`` and return it, changed or
not, or ``DROP``; whoever wants to refuse it raises ``Reject``::

    from radiator.middleware import DROP, Message, Reject

    def stamp(message: Message) -> Message:
        message.headers["tag-site"] = "jfk"
        return message

Such a function runs in the broker's loop, before the message is stored: everybody waits while it runs. It must not
block, and must not keep the message.

Knows nothing of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class Message:
    """One SEND on its way in. ``destination``, ``headers`` and ``body`` may be changed or replaced; ``user`` (``""``
    without a login) and ``address`` say who sends it."""

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
    """Refuse the message: the sender gets an ERROR ``rejected`` with this text."""


class _Drop:
    def __repr__(self) -> str:
        return "DROP"


DROP: Final = _Drop()  # returned instead of a message: it is not stored; counted, and told on the RECEIPT

Middleware = Callable[[Message], "Message | _Drop"]
