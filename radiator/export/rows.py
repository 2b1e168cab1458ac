"""A record, or a delivery, as the columns that ``docs/spark.md`` names. All formats have the same names.

This module knows stored records, header blocks and the records of deliveries. It does not know formats. All functions
are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from radiator.columns.delivery_records import HEADERS, INT, LONG
from radiator.columns.selection import Selection
from radiator.errors import ProtocolError
from radiator.export.records import Chosen
from radiator.stomp.headers import split_block
from radiator.storage.header import MISSING
from radiator.storage.layout import encode_name

TAG_PREFIX = "tag-"


class Row(NamedTuple):
    """The columns of a record."""

    destination: str
    partition: str
    offset: int
    message_id: str
    receive_ns: int
    event_ns: int | None
    transmit_ns: int | None
    tags: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def size(self) -> int:
        """The length of the body."""
        return len(self.body)


def rows(chosen: Chosen) -> Iterator[Row]:
    """Yield the chosen records as rows."""
    batch, name = chosen.batch, chosen.partition.name
    prefix = encode_name(name)
    event, transmit = batch.event_ns, batch.transmit_ns
    known: dict[bytes, tuple[dict[str, str], dict[str, str]]] = {}  # publishers repeat their headers
    for index in chosen.indexes:
        block = batch.blocks[index]
        maps = known.get(block)
        if maps is None:
            headers = split(block)
            cut = len(TAG_PREFIX)
            tags = {key[cut:]: value for key, value in headers.items() if key.startswith(TAG_PREFIX)}
            maps = known[block] = tags, headers
        offset = batch.offsets[index]
        yield Row(
            batch.names[batch.destination_ids[index]],
            name,
            offset,
            f"{prefix}@{offset}",
            batch.receive_ns[index],
            None if event is None or event[index] == MISSING else event[index],
            None if transmit is None or transmit[index] == MISSING else transmit[index],
            *maps,
            batch.bodies[index],
        )


def split(block: bytes) -> dict[str, str]:
    """Return the headers of a stored block; the first of a name counts."""
    try:
        pairs = split_block(block)
    except (ProtocolError, UnicodeDecodeError):  # not written by this broker
        lines = [line.partition(":") for line in block.decode("utf-8", "replace").split("\n")]
        pairs = [(name, value) for name, _, value in lines]
    headers: dict[str, str] = {}
    for name, value in pairs:
        headers.setdefault(name, value)
    return headers


class DeliveryRow(NamedTuple):
    """A delivery. None is a value that the record does not have, or that is not what the column needs."""

    destination: str | None
    partition: str | None
    offset: int | None
    subscription: str | None
    consumer: str | None
    delivery: int | None
    delivered_ns: int | None
    outcome: str | None
    settled_ns: int | None
    transaction: str | None
    record_offset: int


def rows_of_deliveries(about: Selection, chosen: Chosen) -> Iterator[DeliveryRow]:
    """Yield the chosen records as rows, if they are about selected messages.

    Args:
        about: The destinations and the partitions of the messages.
        chosen: Records of deliveries.
    """
    for index in chosen.indexes:
        found = split(chosen.batch.blocks[index])
        values = {column: found.get(header) for column, header in HEADERS.items()}
        destination, partition = values["destination"], values["partition"]
        if about.destinations and (destination is None or not about.wants_destination(destination)):
            continue
        if about.partitions and (partition is None or not about.wants_partition(partition)):
            continue
        yield DeliveryRow(
            destination, partition, _number(values["offset"], LONG), values["subscription"], values["consumer"],
            _number(values["delivery"], INT), _number(values["delivered_at"], LONG), values["outcome"],
            _number(values["settled_at"], LONG), values["transaction"], chosen.batch.offsets[index],
        )  # fmt: skip


def _number(text: str | None, pattern: str) -> int | None:
    return None if text is None or re.match(pattern, text) is None else int(text)
