"""The base classes of all errors that radiator raises on purpose.

The class names the cause: the peer (``ProtocolError``), the configuration (``ConfigError``), or the disk and its files
(``StorageError``). The client raises ``ClientError``. Any other exception is a bug in radiator.

A message says what was expected and what came, and names the header or the YAML key that changes it, if there is one.
``ERROR_CODES`` has all values of the header ``error-code`` of an ERROR frame. They are stable.
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
    """The base class of all errors that radiator raises on purpose."""


class ProtocolError(RadiatorError):
    """The peer broke the protocol or a limit, or asked for something that the broker refuses.

    Args:
        code: The value of the header ``error-code``, a key of ``ERROR_CODES``.
        message: The value of the header ``message``: one line for people.
        detail: The body of the ERROR frame: the limit, what came, and the key or header that changes it.
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
    """The configuration cannot be used. The message has the file, the line, the key, and what was expected and came."""


class StorageError(RadiatorError):
    """A file cannot be read, written or used. The message has the path and the remedy."""


class MemoryFull(StorageError):
    """A memory partition may not grow.

    Args:
        text: The message, with the limit.
        everywhere: True if all memory partitions together have reached their limit, False if only this one has.
    """

    def __init__(self, text: str, everywhere: bool) -> None:
        super().__init__(text)
        self.everywhere = everywhere


class ClientError(RadiatorError):
    """The base class of the errors of ``radiator.client``: no connection, a time-out, or an ERROR of the broker."""


_SECRET = re.compile("~[0-9a-f]{32}")


def printable(text: str) -> str:
    """Return text of a peer or a plug-in as it may be logged: on one line, without control characters and secrets.

    Args:
        text: Any text. It may contain the secret of the address of a temporary queue, which is left out.
    """
    text = _SECRET.sub("~...", text)
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
