"""Every error that radiator raises on purpose, sorted by whose fault it is.

ProtocolError is the peer's, ConfigError the operator's, StorageError the disk's, ClientError is what our own client
tells its caller. Anything else that escapes is a bug of ours and is meant to be loud.

Every message carries both sides, what was expected and what came, and where there is one the header or the YAML key
that changes it. ``ERROR_CODES`` is the one table of the stable words that stand in the ``error-code`` header of an
ERROR frame; the documents and the tests iterate over it.
"""

from __future__ import annotations

import re

ERROR_CODES: dict[str, str] = {
    "bad-frame": "the bytes do not form a STOMP frame",
    "bad-header": "a header is missing, malformed or has a value that is not allowed",
    "bad-command": "the command is unknown, or not allowed at this point of the conversation",
    "bad-version": "the broker supports none of the STOMP versions that the client accepts",
    "bad-destination": "the destination is missing, malformed, reserved, or a pattern where a name is needed",
    "bad-pattern": "the subscription pattern is malformed",
    "bad-position": "a position of SUBSCRIBE is malformed, or names a message that does not exist",
    "bad-time": "event-time, transmit-time or a deadline is not a time",
    "bad-selector": "the selector cannot be parsed",
    "bad-subscription": "the subscription id is unknown, or already in use on this connection",
    "bad-transaction": "the transaction id is unknown, or already in use on this connection",
    "bad-ack": "the id does not name an unacknowledged delivery of this connection, or COMMIT acknowledges one that "
    "was requeued",
    "too-large": "a frame, header or body is over its limit",
    "too-many": "a count (connections, subscriptions, transactions, destinations, wrong logins from an address) "
    "is over its limit",
    "timeout": "the peer was silent, or a transaction was open, for too long",
    "taken-over": "another connection took over the durable subscription",
    "disconnected": "an administrator ended the connection",
    "denied": "the peer is not allowed to do this",
    "not-found": "the destination does not exist and its rule forbids creating it",
    "conflict": "the log does not end at expected-offset; nothing was stored",
    "no-route": "the message was mandatory and no subscription matches",
    "full": "the destination is full and its rule says reject, or it stayed full for block_timeout; or "
    "limits.memory is used up",
    "rate-limited": "the client sends faster than rate_limit in the rule of the destination allows",
    "rejected": "the schema or the middleware of the destination refused the message",
    "storage": "the disk refused to store the message; no RECEIPT was sent",
    "not-stomp": "the peer speaks another protocol (HTTP, TLS) on a STOMP port",
    "internal": "an unexpected failure of the broker; the effect of the frame is unknown",
    "shutting-down": "the broker is stopping",
    "draining": "the broker is going down: it accepts no new clients and disconnects the others",
    "bad-request": "the body of an admin request does not fit its verb",
    "unsupported": "the broker does not support this feature",
}


class RadiatorError(Exception):
    """Base of all errors raised on purpose."""


class ProtocolError(RadiatorError):
    """The peer broke the protocol or a limit.

    ``code`` is a key of ERROR_CODES, ``message`` one line for people, ``detail`` the text of the ERROR frame's body
    (the limit, what came, and the key or header that changes it).
    """

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        assert code in ERROR_CODES, code
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


class Conflict(ProtocolError):
    """A log does not end where the client expects.

    Args:
        partition: The name of the log.
        expected: The offset that the client expects.
        next_offset: The offset that the next message of the log gets.
    """

    def __init__(self, partition: str, expected: int, next_offset: int) -> None:
        super().__init__(
            "conflict",
            f"the log {partition[:200]!r} ends at offset {next_offset}, and the message expects {expected}",
            f"Nothing was stored. The next message gets offset {next_offset}: read up to there, and decide again.",
        )
        self.partition = partition
        self.next_offset = next_offset


class ConfigError(RadiatorError):
    """The operator's configuration cannot be used. ``str()`` names file, line, key, what was expected and what came."""


class StorageError(RadiatorError):
    """The disk, or the files on it, failed us. ``str()`` names the path and the remedy."""


class MemoryFull(StorageError):
    """What is kept in memory may not grow. ``everywhere``: all memory partitions together, and not only this one."""

    def __init__(self, text: str, everywhere: bool) -> None:
        super().__init__(text)
        self.everywhere = everywhere


class ClientError(RadiatorError):
    """What ``radiator.client`` raises: cannot connect, timed out, or the broker answered ERROR."""


_SECRET = re.compile("~[0-9a-f]{32}")


def printable(text: str) -> str:
    """For a log, which is read at a terminal: what a peer or a plug-in has chosen, on one line, without escapes, and
    without the secret of a temporary queue's address, which a peer may say anywhere."""
    text = _SECRET.sub("~...", text)
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
