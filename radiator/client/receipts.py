"""Represent the receipt of a sent message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Receipt(NamedTuple):
    """The RECEIPT for one SEND: the broker has stored the message as the rule of its destination says.

    Receipts of other frames, and of other brokers, have no headers for these fields.

    Attributes:
        offset: The offset of the message in its partition, or None.
        partition: The name of the partition that stores the message, or None.
        delivered_to: The number of subscriptions that matched, or None.
        duplicate: True if the message was stored before, by an earlier SEND with the same id.

    Source: ``docs/protocol.md``; STOMP 1.2, "RECEIPT".
    """

    offset: int | None = None
    partition: str | None = None
    delivered_to: int | None = None
    duplicate: bool = False


def receipt_of(headers: Mapping[str, str]) -> Receipt:
    """Return the Receipt for the headers of a RECEIPT frame.

    Args:
        headers: The headers of the frame, decoded.
    """
    return Receipt(
        number(headers.get("offset")),
        headers.get("partition"),
        number(headers.get("delivered-to")),
        headers.get("duplicate") == "true",
    )


def number(text: str | None) -> int | None:
    """Return the value of a header that contains a decimal number, or None.

    Args:
        text: The value of the header, or None if it is missing.
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
