"""Deliveries as records of a log, as a broker with `record: deliveries` writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from radiator.columns.delivery_records import DESTINATION, HEADERS
from tests.spark.stores import START_NS, Message

PARTITION = "deliveries"


class Delivery(NamedTuple):
    """A row, with times in nanoseconds."""

    destination: str
    partition: str
    offset: int
    subscription: str
    consumer: str | None
    delivery: int
    delivered_at: int | None
    outcome: str
    settled_at: int
    transaction: str | None = None


def record(row: Delivery) -> Message:
    """The record of a delivery; colons are escaped as on the wire."""
    lines = [
        f"{HEADERS[name]}:{str(value).replace(':', chr(92) + 'c')}"
        for name, value in row._asdict().items()
        if value is not None
    ]
    return Message(DESTINATION, b"", "\n".join(lines).encode(), row.settled_at)


def records(rows: Iterable[Delivery]) -> list[Message]:
    return [record(row) for row in rows]


def acked(partition: str, offset: int, subscription: str = "billing", consumer: str = "ann/0", at: int = 0) -> Delivery:
    """A message that was acknowledged at the first delivery, ``at`` nanoseconds after the start."""
    return Delivery("/topic/a", partition, offset, subscription, consumer, 1, START_NS + at - 5, "acked", START_NS + at)
