"""What comes from the broker: a Message with its headers as attributes, and a Receipt.

A Message is a thin view on the parsed frame: nothing is converted before it is asked for. It knows the subscription
that it came by, so it can be acknowledged; the subscription remembers nothing about it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from radiator.client.typed import Value, untyped

if TYPE_CHECKING:
    from radiator.client.sending import Body, Headers
    from radiator.client.subscription import Subscription

TAG_PREFIX = "tag-"


class Receipt(NamedTuple):
    """The broker's promise about one SEND. All fields are None on receipts of other frames and of other brokers."""

    offset: int | None = None
    partition: str | None = None
    delivered_to: int | None = None
    duplicate: bool = False  # the message was stored before, by an earlier SEND with the same id


def receipt_of(headers: Mapping[str, str]) -> Receipt:
    """A Receipt from the headers of a RECEIPT frame."""
    return Receipt(
        _number(headers.get("offset")),
        headers.get("partition"),
        _number(headers.get("delivered-to")),
        headers.get("duplicate") == "true",
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


class Message:
    """One message as it was delivered to one subscription."""

    __slots__ = ("body", "headers", "raw", "settled", "subscription")

    def __init__(self, headers: Mapping[str, str], body: bytes, subscription: Subscription, raw: bytes = b"") -> None:
        self.headers = headers
        self.raw = raw  # the header lines as they came
        self.body = body
        self.subscription = subscription
        self.settled = False  # ack or nack was sent

    def __repr__(self) -> str:
        return f"<Message {self.id or '?'} of {self.destination}, {len(self.body)} bytes>"

    # --- what it says ---------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The body as UTF-8 text; UnicodeDecodeError if it is not."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON; ValueError if it is not."""
        return json.loads(self.body)

    @property
    def destination(self) -> str:
        """The concrete destination, also where the subscription is a pattern."""
        return self.headers.get("destination", "")

    @property
    def id(self) -> str:
        """``message-id``: an address, from which partition and offset can be read."""
        return self.headers.get("message-id", "")

    @property
    def partition(self) -> str | None:
        """The partition that holds the message."""
        return self.headers.get("partition")

    @property
    def offset(self) -> int | None:
        """Its number in the partition."""
        return _number(self.headers.get("offset"))

    @property
    def receive_time(self) -> int | None:
        """When the broker took it, epoch nanoseconds."""
        return _number(self.headers.get("receive-time"))

    @property
    def event_time(self) -> int | None:
        """When it happened, epoch nanoseconds, as the publisher said (None also for an RFC 3339 text)."""
        return _number(self.headers.get("event-time"))

    @property
    def transmit_time(self) -> int | None:
        """When the publisher sent it, epoch nanoseconds."""
        return _number(self.headers.get("transmit-time"))

    @property
    def tags(self) -> dict[str, str]:
        """The headers that begin with ``tag-``, without that."""
        cut = len(TAG_PREFIX)
        return {name[cut:]: value for name, value in self.headers.items() if name.startswith(TAG_PREFIX)}

    @property
    def values(self) -> dict[str, Value]:
        """The headers, with the types that ``typed`` gave them."""
        return untyped(self.headers)

    @property
    def redelivered(self) -> bool:
        """True if it may have been delivered before."""
        return self.headers.get("redelivered") == "true"

    @property
    def delivery_count(self) -> int:
        """The how-manieth delivery this is; 1 unless the broker says otherwise."""
        return _number(self.headers.get("delivery-count")) or 1

    @property
    def replayed(self) -> bool:
        """True if it is history: it was stored before the subscription began."""
        return self.headers.get("replayed") == "true"

    @property
    def gap(self) -> int:
        """How many records just before this one were lost to retention or damage."""
        return _number(self.headers.get("gap")) or 0

    @property
    def gap_removed(self) -> int:
        """How many of these the broker has removed on purpose, by retention or because they were settled."""
        return _number(self.headers.get("gap-removed")) or 0

    @property
    def reply_to(self) -> str | None:
        """Where a reply is expected."""
        return self.headers.get("reply-to")

    @property
    def correlation_id(self) -> str | None:
        """What joins a reply to its request."""
        return self.headers.get("correlation-id")

    # --- what can be done with it ---------------------------------------------------------------------------------

    def ack(self, *, receipt: bool = False) -> None:
        """Done: the message is settled (under ``ack="client"`` with all before it). Nothing to do under ``auto``.

        With ``receipt`` the call returns when the broker has stored the acknowledgement. A second ack or nack of the
        same message does nothing.
        """
        self.subscription.settle(self, "ACK", receipt=receipt)

    def nack(self, *, delay_ms: int | None = None, receipt: bool = False) -> None:
        """Not done: the message goes back to its place in the queue and is delivered again, to whoever is next.

        ``delay_ms``: not before so many milliseconds, in place of what the queue's rule says.
        """
        headers = {} if delay_ms is None else {"delay": str(delay_ms)}
        self.subscription.settle(self, "NACK", receipt=receipt, headers=headers)

    def reject(self, *, receipt: bool = False) -> None:
        """Not done, and never to be: the message goes to the dead letters of its queue, or nowhere if it has none."""
        self.subscription.settle(self, "NACK", receipt=receipt, headers={"requeue": "false"})

    def touch(self) -> None:
        """Still at work: the queue's ``ack_timeout`` begins anew. Nothing to do once settled, or under ``auto``."""
        self.subscription.touch(self)

    def reply(self, body: Body = b"", headers: Headers | None = None) -> None:
        """Answer a request: SEND to ``reply-to`` with its ``correlation-id``. ValueError if nobody asked."""
        target = self.reply_to
        if target is None:
            raise ValueError(f"{self!r} has no reply-to header, so nobody waits for a reply")
        extra = dict(headers or {})
        if self.correlation_id is not None:
            extra["correlation-id"] = self.correlation_id
        self.subscription.connection.send(target, body, extra, receipt=False)
