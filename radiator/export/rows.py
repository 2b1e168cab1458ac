"""A record as the columns that ``docs/spark.md`` names. All formats have the same names.

This module knows stored records and header blocks. It does not know formats. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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
