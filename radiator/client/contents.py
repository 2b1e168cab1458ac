"""Represent the contents of a received message: headers, body, and what its headers mean.

A MessageView is a view of the parsed frame: a header is converted when its property is read. The messages of the
blocking client and of the asyncio client add the methods that acknowledge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from radiator.client.receipts import number
from radiator.client.sending import Headers
from radiator.client.typed import Value, untyped

TAG_PREFIX = "tag-"


class MessageView:
    """The contents of one message as it was delivered to one subscription.

    Attributes:
        headers: The headers of the MESSAGE frame, decoded; the first value of a repeated header.
        body: The body, byte for byte.
        raw: The header lines as they were received, or empty.
        settled: True after an ACK or a NACK was sent.
        generation: The number of the connection that delivered the message; 0 if it was lost before the message was
            read.

    Source: STOMP 1.2, "MESSAGE"; ``docs/protocol.md`` for the headers that this broker adds.
    """

    __slots__ = ("body", "generation", "headers", "raw", "settled")

    def __init__(self, headers: Mapping[str, str], body: bytes, raw: bytes = b"", generation: int = 0) -> None:
        self.headers = headers
        self.raw = raw
        self.body = body
        self.settled = False
        self.generation = generation

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id or '?'} of {self.destination}, {len(self.body)} bytes>"

    # --- contents -------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The body as text.

        Raises:
            UnicodeDecodeError: The body is not UTF-8.
        """
        return self.body.decode()

    def json(self) -> Any:
        """Return the body parsed as JSON.

        Raises:
            ValueError: The body is not JSON.
        """
        return json.loads(self.body)

    @property
    def destination(self) -> str:
        """The destination that the message was sent to; never a pattern."""
        return self.headers.get("destination", "")

    @property
    def id(self) -> str:
        """The ``message-id`` header. It contains the partition and the offset of the message."""
        return self.headers.get("message-id", "")

    @property
    def partition(self) -> str | None:
        """The name of the partition that stores the message, or None."""
        return self.headers.get("partition")

    @property
    def offset(self) -> int | None:
        """The offset of the message in its partition, or None."""
        return number(self.headers.get("offset"))

    @property
    def receive_time(self) -> int | None:
        """The time at which the broker received the message, in nanoseconds since the epoch, or None."""
        return number(self.headers.get("receive-time"))

    @property
    def event_time(self) -> int | None:
        """The time of the event, in nanoseconds since the epoch, as the publisher set it.

        None if the header is missing, or is an RFC 3339 text.
        """
        return number(self.headers.get("event-time"))

    @property
    def transmit_time(self) -> int | None:
        """The time at which the publisher sent the message, in nanoseconds since the epoch, or None."""
        return number(self.headers.get("transmit-time"))

    @property
    def tags(self) -> dict[str, str]:
        """The headers whose names begin with ``tag-``, by the rest of their names."""
        cut = len(TAG_PREFIX)
        return {name[cut:]: value for name, value in self.headers.items() if name.startswith(TAG_PREFIX)}

    @property
    def values(self) -> dict[str, Value]:
        """The headers with the types that ``radiator.client.typed`` stored."""
        return untyped(self.headers)

    @property
    def redelivered(self) -> bool:
        """True if the message may have been delivered before."""
        return self.headers.get("redelivered") == "true"

    @property
    def delivery_count(self) -> int:
        """The number of deliveries of this message so far, this one included; 1 if the broker does not say."""
        return number(self.headers.get("delivery-count")) or 1

    @property
    def replayed(self) -> bool:
        """True if the message was stored before the subscription began."""
        return self.headers.get("replayed") == "true"

    @property
    def gap(self) -> int:
        """The number of records directly before this one that were removed by retention or lost to damage."""
        return number(self.headers.get("gap")) or 0

    @property
    def gap_removed(self) -> int:
        """The part of ``gap`` that the broker removed on purpose: by retention, or because the records were settled."""
        return number(self.headers.get("gap-removed")) or 0

    @property
    def reply_to(self) -> str | None:
        """The destination for a reply, or None."""
        return self.headers.get("reply-to")

    @property
    def correlation_id(self) -> str | None:
        """The id that a reply must repeat, or None."""
        return self.headers.get("correlation-id")

    def mark_settled(self, settled: bool) -> None:
        """Note that an ACK or a NACK was sent, or that its transaction was aborted.

        Args:
            settled: The new value of ``settled``.
        """
        self.settled = settled

    def reply_headers(self, headers: Headers | None) -> tuple[str, dict[str, str | int]]:
        """Return the destination and the headers of a reply to this message.

        Args:
            headers: More headers of the reply.

        Raises:
            ValueError: The message has no ``reply-to`` header.
        """
        target = self.reply_to
        if target is None:
            raise ValueError(f"cannot reply to {self!r}: expected a message with a reply-to header, got none")
        extra = dict(headers or {})
        if self.correlation_id is not None:
            extra["correlation-id"] = self.correlation_id
        return target, extra
