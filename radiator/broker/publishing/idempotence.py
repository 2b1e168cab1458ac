"""Identities of messages: a SEND with an identity is stored once, however often it is repeated.

An identity has 16 bytes: a hash of the destination and of ``dedup-id``, or of ``producer-id`` with ``sequence``. The
partition remembers identities (``radiator.storage.dedup``). After a crash storage calls ``identify`` for the messages
in the log, so the headers of a SEND and the stored block must give the same identity.

This module knows headers. It does not know how identities are stored.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from radiator.errors import ProtocolError
from radiator.stomp.headers import split_block

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed

HEADERS = frozenset({"dedup-id", "producer-id", "sequence"})
IDENTITY_BYTES = 16
SEQUENCE_DIGITS_MAX = 20  # 64 bits

HINT = "dedup: {window: none} in the rule of the destination makes the broker ignore these headers."


def identity_of(destination: str, headers: Mapping[str, str]) -> bytes | None:
    """Return the identity of a message.

    Args:
        destination: The destination.
        headers: The headers of the SEND.

    Returns:
        16 bytes; None if the headers have no identity.

    Raises:
        ProtocolError: ``bad-header``.
    """
    dedup_id = headers.get("dedup-id")
    producer = headers.get("producer-id")
    sequence = headers.get("sequence")
    if producer is None or sequence is None:  # one of the two alone is a header of the client's own
        if dedup_id is None:
            return None
        if not dedup_id:
            raise ProtocolError("bad-header", "header dedup-id: expected a text, got none", HINT)
        return _hash("d", destination, dedup_id)
    if dedup_id is not None:
        raise ProtocolError(
            "bad-header",
            "a message has one message id",
            f"Expected dedup-id, or producer-id with sequence, got all three. {HINT}",
        )
    if not producer:
        raise ProtocolError("bad-header", "header producer-id: expected a text, got none", HINT)
    if not _is_number(sequence):
        raise ProtocolError(
            "bad-header",
            f"header sequence: not a number: {sequence[:100]!r}",
            f"Expected 1 to {SEQUENCE_DIGITS_MAX} decimal digits. {HINT}",
        )
    return _hash("p", destination, producer, str(int(sequence)))


def identify(destination: str, block: bytes) -> bytes | None:
    """Return the identity of a stored message, the same that ``identity_of`` gave for its SEND.

    Args:
        destination: The destination.
        block: The stored header block.

    Returns:
        16 bytes; None if it has none.
    """
    if b"dedup-id:" not in block and b"sequence:" not in block:
        return None
    try:
        return identity_of(destination, dict(split_block(block)))
    except (ProtocolError, ValueError):  # stored while deduplication was off, or by another program
        return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= SEQUENCE_DIGITS_MAX


def _hash(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(), digest_size=IDENTITY_BYTES).digest()


def feed_for(destination: Destination, headers: Mapping[str, str]) -> Feed:
    """Return the partition of a message with an identity and no key.

    The identity chooses the partition, so that a repeated message meets the first one, and messages of one producer
    keep their order.

    Args:
        destination: The destination.
        headers: The headers of the SEND; they have an identity.
    """
    text = headers["producer-id" if "producer-id" in headers and "sequence" in headers else "dedup-id"]
    return destination.feeds[zlib.crc32(text.encode()) % len(destination.feeds)]
