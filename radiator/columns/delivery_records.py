"""Define the records of deliveries: their destination, their headers, and the outcomes.

Must not import pyarrow, so that an export of JSON lines does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DESTINATION: Final = "/topic/radiator.deliveries"
ACKED: Final = "acked"
FINAL: Final = (ACKED, "expired", "dead_lettered", "dropped", "purged")  # the last outcome of a message
RETURNED: Final = ("nacked", "timed_out", "requeued")  # the message was delivered again, or waits for it
HEADERS: Mapping[str, str] = {  # column of the table -> header of the record
    "destination": "message-destination",
    "partition": "message-partition",
    "offset": "message-offset",
    "subscription": "message-subscription",
    "consumer": "consumer",
    "delivery": "delivery",
    "delivered_at": "delivered-at",
    "outcome": "outcome",
    "settled_at": "settled-at",
    "transaction": "transaction",
}
INT: Final = r"^[0-9]{1,9}$"  # what a number is in a header: 9 digits fit into 32 bits
LONG: Final = r"^[0-8]?[0-9]{1,18}$"
