"""STOMP as tables.

The rules of the three versions of the protocol, as data: commands with the headers they require, the escapes, the
header names that belong to one hop and those that belong to the broker. A version is a column here, never a subclass.
The parser, the broker, ``docs/protocol.md`` and the tests all iterate over these tables; none of them has a copy.

There are no functions here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

VERSIONS: Final = ("1.0", "1.1", "1.2")

# command -> version -> headers that the specification requires. `host` of CONNECT is required by 1.1 and 1.2 but
# many clients leave it out; it is not required here (see "Deviations" in docs/protocol.md).
_NONE: Final[dict[str, tuple[str, ...]]] = {"1.0": (), "1.1": (), "1.2": ()}
CLIENT_COMMANDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "CONNECT": _NONE,
    "STOMP": _NONE,
    "SEND": {"1.0": ("destination",), "1.1": ("destination",), "1.2": ("destination",)},
    "SUBSCRIBE": {"1.0": ("destination",), "1.1": ("destination", "id"), "1.2": ("destination", "id")},
    "UNSUBSCRIBE": {"1.0": (), "1.1": ("id",), "1.2": ("id",)},  # 1.0: `id` or `destination`
    "ACK": {"1.0": ("message-id",), "1.1": ("message-id", "subscription"), "1.2": ("id",)},
    "NACK": {"1.0": ("message-id",), "1.1": ("message-id", "subscription"), "1.2": ("id",)},
    "BEGIN": {"1.0": ("transaction",), "1.1": ("transaction",), "1.2": ("transaction",)},
    "COMMIT": {"1.0": ("transaction",), "1.1": ("transaction",), "1.2": ("transaction",)},
    "ABORT": {"1.0": ("transaction",), "1.1": ("transaction",), "1.2": ("transaction",)},
    "DISCONNECT": _NONE,
}
SERVER_COMMANDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "CONNECTED": {"1.0": (), "1.1": ("version",), "1.2": ("version",)},
    "MESSAGE": {
        "1.0": ("destination", "message-id"),
        "1.1": ("destination", "message-id", "subscription"),
        "1.2": ("destination", "message-id", "subscription"),
    },
    "RECEIPT": {"1.0": ("receipt-id",), "1.1": ("receipt-id",), "1.2": ("receipt-id",)},
    "ERROR": _NONE,
}

# The first frame of either side: its headers are never escaped, because the version is not agreed yet.
OPENING_COMMANDS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})

# character -> its escape on the wire. The backslash comes first: the order in which they are applied.
ESCAPES: Final[Mapping[str, Mapping[str, str]]] = {
    "1.0": {},
    "1.1": {"\\": "\\\\", "\n": "\\n", ":": "\\c"},
    "1.2": {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"},
}

# Characters that a version has no escape for, and that end a line for some or all of its clients. They are never sent:
# in a value a blank takes their place, in a name "_" (as for ":" in names of 1.0, which would begin the value).
UNENCODABLE: Final[Mapping[str, str]] = {"1.0": "\r\n", "1.1": "\r", "1.2": ""}

# Headers of SEND that end their life at the broker: they are about the hop, not about the message.
HOP_BY_HOP: Final = frozenset({"destination", "content-length", "receipt", "transaction"})

# Headers of SEND that differ in each message: a header block with one of them is not cached.
UNIQUE: Final = frozenset({"dedup-id", "sequence", "expected-offset"})

# Headers of SEND that are instructions for this one SEND; stripped before it is stored, so that a copy has none.
INSTRUCTIONS: Final = frozenset({"expected-offset", "audit-log"})

# Headers that the broker adds to a dead letter. Only the broker may write them; stripped from SEND before it is stored.
DEAD_LETTER: Final = frozenset(
    {
        "dlq-reason",
        "dlq-destination",
        "dlq-subscription",
        "dlq-deliveries",
        "dlq-time",
        "dlq-received",
        "dlq-hops",
    }
)

# Headers of MESSAGE that only the broker may write; stripped from SEND before it is stored. Those of a record are the
# same in each of its deliveries, so selectors may use them; those of a delivery are refused in a selector.
MESSAGE_HEADERS: Final[Mapping[str, Literal["record", "delivery"]]] = {
    "subscription": "delivery",
    "message-id": "record",
    "ack": "delivery",
    "offset": "record",
    "partition": "record",
    "receive-time": "record",
    "redelivered": "delivery",
    "delivery-count": "delivery",
    "replayed": "delivery",
    "replay-end": "delivery",
    "gap": "delivery",
    "gap-removed": "delivery",
    "start-adjusted": "delivery",
}
RESERVED: Final = frozenset(MESSAGE_HEADERS)
