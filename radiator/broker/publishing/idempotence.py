"""Which message is this? A SEND may say so, and then it is stored once, however often it comes.

The identity is 16 bytes, a hash of the destination and of what the client says: ``dedup-id``, or ``producer-id`` with
``sequence``. The partition remembers identities (``radiator.storage.dedup``); after a crash storage asks ``identify``
about what it finds in the log, so both must come to the same bytes from the headers and from the stored block.

Knows: the headers, where a repeat is answered from. Must not know: how identities are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from radiator.clock import WallNs
from radiator.errors import ProtocolError
from radiator.stomp.headers import escape, split_block

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.destinations.feed import Feed
    from radiator.broker.publishing.sending import Plan
    from radiator.broker.session import Session
    from radiator.stomp.frames import Frame

HEADERS = frozenset({"dedup-id", "producer-id", "sequence"})
IDENTITY_BYTES = 16
SEQUENCE_DIGITS_MAX = 20  # 64 bits

HINT = "dedup: {window: none} in the rule of the destination makes these headers mean nothing to the broker."


def identity_of(destination: str, headers: Mapping[str, str]) -> bytes | None:
    """The identity of a message with these headers, None if they say nothing about it. Raises ProtocolError."""
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
            "a message has one identity",
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
    """The identity of a stored message: what ``identity_of`` said when it came."""
    if b"dedup-id:" not in block and b"sequence:" not in block:
        return None
    try:
        return identity_of(destination, dict(split_block(block)))
    except (ProtocolError, ValueError):  # stored while the headers meant nothing, or not by us
        return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= SEQUENCE_DIGITS_MAX


def _hash(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(), digest_size=IDENTITY_BYTES).digest()


def feed_for(destination: Destination, headers: Mapping[str, str]) -> Feed:
    """Where a message without a key goes: what it says of itself chooses the partition, so that a repeat meets the
    first one, and the messages of one producer keep their order. For headers that are an identity."""
    text = headers["producer-id" if "producer-id" in headers and "sequence" in headers else "dedup-id"]
    return destination.feeds[zlib.crc32(text.encode()) % len(destination.feeds)]


def is_repeat(broker: Broker, session: Session, plan: Plan, frame: Frame, now_ns: WallNs) -> bool:
    """True if the message is stored already, or on its way: then it is answered with the receipt of the first one, once
    that is as durable as this one is to be."""
    feed, identity = plan.feed, plan.identity
    assert feed is not None and identity is not None
    partition = feed.partition
    first = partition.find_duplicate(identity, now_ns)
    if first is None:
        return False
    broker.stats.duplicates += 1
    place = partition.wait_point(first, synced=plan.sync)
    if frame.receipt is not None:
        if place is None:
            name = escape(partition.name, session.version).encode()
            session.receipts.now(b"%b\noffset:%d\npartition:%b\nduplicate:true" % (frame.receipt, first, name))
        else:
            suffix = plan.destination.duplicate_suffix(feed, session.version)
            broker.pending_bytes += session.receipts.stored(frame.receipt, first, place, suffix)
    elif place is not None:
        session.receipts.silently(place)
    return True
