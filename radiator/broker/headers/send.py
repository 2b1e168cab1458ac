"""The headers of a SEND, parsed once to a value that never changes, and the identity of a message.

``SendHeaders`` has the headers that mean the same for every destination. The rule of a destination decides whether the
others (``partition-key``, ``priority``, the ids of deduplication) mean anything: ``destinations.destination`` and
``identity_of`` parse those.

Every form of a delay is stored as ``deliver-at`` in milliseconds since 1970, so the delay survives a restart and is the
same for every reader. The value is rounded up: a message may be delivered late, never early. In the same way
``message-ttl`` is stored as ``expires``.

An identity has 16 bytes: a hash of the destination and of ``dedup-id``, or of ``producer-id`` with ``sequence``. The
partition remembers identities (``radiator.storage.dedup``). After a crash storage calls ``identify`` for the messages
in the log, so the headers of a SEND and the stored block must give the same identity.

This module knows headers and stored header blocks. It knows no sessions, no destinations and no rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from radiator.broker.headers.values import delay_ms, flag, time_ms, time_ns
from radiator.clock import NS_PER_MS, WallNs
from radiator.errors import ProtocolError
from radiator.routing.pattern import is_pattern
from radiator.routing.rules import TEMPORARY
from radiator.stomp.headers import escape, split_block, stored_block

if TYPE_CHECKING:
    from radiator.stomp.frames import Head

RESERVED_PREFIX = "/radiator/"
EXPIRES, DELIVER_AT = "expires", "deliver-at"
MESSAGE_TTL = "message-ttl"  # stored as ``expires``
DELAYS = ("delay", "delay-ms", "AMQ_SCHEDULED_DELAY")  # the first that is present counts
TIMED = frozenset([EXPIRES, MESSAGE_TTL, DELIVER_AT, *DELAYS])
_DELAYS = tuple(f"{name}:".encode() for name in DELAYS)
_TIMES = (b"deliver-at:", *_DELAYS)
IDENTITY = frozenset({"dedup-id", "producer-id", "sequence"})
IDENTITY_BYTES = 16
SEQUENCE_DIGITS_MAX = 20  # 64 bits

HINT = "dedup: {window: none} in the rule of the destination makes the broker ignore these headers."


class SendHeaders:
    """The headers of one SEND.

    Args:
        head: The head of the frame.
        now_ns: The present wall time, from which a delay counts.
        trusted_ns: The trusted wall time, from which ``message-ttl`` counts, as ``message_ttl`` of a rule does.

    Attributes:
        fields: The headers by name.
        destination: The destination as the client wrote it.
        name: The same without the secret of a temporary queue, so that errors may show it.
        is_temporary: True if the destination is a temporary queue.
        reply_to: The temporary queue for the answer, as the client wrote it; empty if the header names none.
        reply_name: The same without a secret.
        transaction: The id of the transaction, or None.
        mandatory: True if the destination needs a subscriber.
        sync: True if the RECEIPT waits for fsync.
        event_ns: ``event-time`` in nanoseconds since 1970, or None.
        transmit_ns: ``transmit-time`` in nanoseconds since 1970, or None.
        due_ms: The earliest delivery time in milliseconds since 1970; None without a delay.
        at_once: True if the delay is 0, which every destination accepts.
        expires_ms: The expiry time by ``message-ttl`` in milliseconds since 1970, or None.
        expected: The offset that the message must get (``expected-offset``), or None.

    Raises:
        ProtocolError: A header is missing or malformed, or no message can be sent to the destination.
    """

    __slots__ = (
        "_head",
        "at_once",
        "destination",
        "due_ms",
        "event_ns",
        "expected",
        "expires_ms",
        "fields",
        "is_temporary",
        "mandatory",
        "name",
        "reply_name",
        "reply_to",
        "sync",
        "transaction",
        "transmit_ns",
    )

    def __init__(self, head: Head, now_ns: WallNs, trusted_ns: WallNs) -> None:
        headers = head.headers
        self._head = head
        self.fields = headers
        self.destination = headers.get("destination", "")
        self.is_temporary = self.destination.startswith(TEMPORARY)
        self.name = without_secret(self.destination) if self.is_temporary else self.destination
        reply_to = headers.get("reply-to", "")
        self.reply_to = reply_to if reply_to.startswith(TEMPORARY) else ""
        self.reply_name = without_secret(reply_to) if self.reply_to else ""
        _check_name(self.name)
        self.mandatory = flag(headers, "mandatory") is True
        self.event_ns = time_ns(headers, "event-time")
        self.transmit_ns = time_ns(headers, "transmit-time")
        self.due_ms: int | None = None
        self.at_once = False
        self.expires_ms: int | None = None
        if not TIMED.isdisjoint(headers):
            time_ms(headers, EXPIRES, "0 for never")  # stored as it came
            if MESSAGE_TTL in headers:
                self.expires_ms = -(-trusted_ns // NS_PER_MS) + _ttl_ms(headers)
            self.due_ms = time_ms(headers, DELIVER_AT)
            if self.due_ms is None:
                for each in DELAYS:
                    if each in headers:
                        delay = delay_ms(each, headers[each])
                        self.due_ms = -(-now_ns // NS_PER_MS) + delay
                        self.at_once = delay == 0
                        break
        durability = headers.get("durability")
        if durability not in (None, "fsync"):
            raise ProtocolError("bad-header", f"header durability: expected fsync, got {durability[:100]!r}")
        self.sync = durability is not None
        self.transaction = headers.get("transaction")
        expected = headers.get("expected-offset")
        self.expected = None if expected is None else _offset(expected)

    @property
    def identity_key(self) -> str:
        """The text that chooses the partition of a message with an identity and no key.

        A repeated message meets the first one, and messages of one producer keep their order.
        """
        fields = self.fields
        return fields["producer-id" if "producer-id" in fields and "sequence" in fields else "dedup-id"]

    def block(self, due_ms: int | None, reply_to: str) -> bytes:
        """Return the header block that the log stores.

        Args:
            due_ms: The value of ``deliver-at``, in place of all delay headers; None for none.
            reply_to: The value of ``reply-to``; empty if the header is stored as it came.
        """
        block = stored_block(self._head)
        if self.due_ms is None and self.expires_ms is None and not reply_to:
            return block
        lines = block.split(b"\n")
        if reply_to:
            answer = b"reply-to:" + escape(reply_to, "1.2").encode()
            lines = [answer if each.startswith(b"reply-to:") else each for each in lines]
        if self.due_ms is not None:
            lines = [line for line in lines if line and not line.startswith(_TIMES if due_ms is not None else _DELAYS)]
        if due_ms is not None:
            lines.append(b"deliver-at:%d" % due_ms)
        if self.expires_ms is not None:
            lines = [line for line in lines if not line.startswith(b"message-ttl:")]
            lines.append(b"expires:%d" % self.expires_ms)
        return b"\n".join(lines)


def without_secret(text: str) -> str:
    """Return the name in the address of a temporary queue, which may be shown; return any other text unchanged.

    ``subscribing.temporary`` has the spellings of these names.
    """
    if not text.startswith(TEMPORARY):
        return text
    name, at, owner = text.rpartition("@")
    return f"{name}@{owner.partition('~')[0]}" if at else text


def _check_name(name: str) -> None:
    """Check that a message can be sent to this name.

    Raises:
        ProtocolError: ``bad-destination``.
    """
    if not name:
        raise ProtocolError("bad-destination", "SEND needs a destination", "Expected a header destination:<name>.")
    if is_pattern(name):
        raise ProtocolError(
            "bad-destination",
            f"a message cannot be sent to a pattern: {name[:200]!r}",
            "Expected one concrete name; *, > and # as whole segments, and commas, are for SUBSCRIBE.",
        )
    if name.startswith(RESERVED_PREFIX):
        raise ProtocolError(
            "bad-destination", f"{name[:200]!r} is reserved", "The broker uses the names under this prefix."
        )
    if name != name.strip(" "):
        raise ProtocolError(
            "bad-destination",
            f"a destination cannot begin or end with a blank: {name[:200]!r}",
            f"STOMP 1.1 and 1.2 do not trim headers: write destination:{name.strip(' ')[:200]}, without a blank.",
        )
    if "\0" in name:
        raise ProtocolError("bad-destination", "a destination cannot contain NUL")


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


def _ttl_ms(headers: Mapping[str, str]) -> int:
    """Return the value of ``message-ttl`` in milliseconds.

    Raises:
        ProtocolError: ``bad-header``.
    """
    if EXPIRES in headers:
        raise ProtocolError(
            "bad-header", "a message has one time of expiry", "Expected expires or message-ttl, got both."
        )
    ttl_ms = delay_ms(MESSAGE_TTL, headers[MESSAGE_TTL])
    if not ttl_ms:
        raise ProtocolError("bad-header", "header message-ttl: expected more than 0", "Leave it out for no expiry.")
    return ttl_ms


def _offset(text: str) -> int:
    if not _is_number(text):
        raise ProtocolError(
            "bad-header",
            f"header expected-offset: not an offset: {text[:100]!r}",
            f"Expected 1 to {SEQUENCE_DIGITS_MAX} decimal digits; 0 for an empty log.",
        )
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= SEQUENCE_DIGITS_MAX


def _hash(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(), digest_size=IDENTITY_BYTES).digest()
