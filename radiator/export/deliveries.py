"""Deliveries as rows of an export, with the columns that ``docs/spark.md`` names.

This module knows the records of deliveries. It does not know formats. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from radiator.columns.delivery_records import HEADERS, INT, LONG
from radiator.columns.selection import Selection
from radiator.export.records import Chosen
from radiator.export.rows import split


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
