"""Large stores quickly: files as the broker leaves them, made of few different messages, and nothing synced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from radiator.limits import BATCH_BYTES_MAX
from radiator.storage import layout
from radiator.storage.header import CRC_FROM
from tests.columns.segments import encode
from tests.spark.stores import START_NS, Message

BODY_BYTES = 200
RECORDS_OF_HUGE = 52_000  # with their headers and columns just below the 16 MiB that a batch may have


def message(number: int) -> Message:
    body = (b'{"number": %d, "text": "' % number + b"words and words again " * 10)[: BODY_BYTES - 2]
    return Message("/topic/bulk", body + b'"}', b"content-type:application/json\ntag-city:Oslo", START_NS)


def at(offset: int, batch: bytes) -> bytes:
    """The same batch, at another offset."""
    rest = offset.to_bytes(8, "little") + batch[CRC_FROM + 8 :]
    return batch[: CRC_FROM - 4] + crc32(rest).to_bytes(4, "little") + rest


def tiny(records: int) -> Iterator[tuple[bytes, int]]:
    """One record a commit."""
    several = [encode(0, [message(number)]) for number in range(1000)]
    return ((at(offset, several[offset % 1000]), 1) for offset in range(records))


def huge(batches: int, level: int = 0) -> Iterator[tuple[bytes, int]]:
    """As large as a batch may be; with a ``level`` it is stored in less than a tenth."""
    one = encode(0, [message(number % 1000) for number in range(RECORDS_OF_HUGE)], level=level)
    return ((at(batch * RECORDS_OF_HUGE, one), RECORDS_OF_HUGE) for batch in range(batches))


def write_log(root: Path, name: str, batches: Iterator[tuple[bytes, int]]) -> tuple[int, int]:
    """A partition of one segment; returns its records and its bytes."""
    directory = Path(layout.partition_path(str(root), name))
    directory.mkdir(parents=True)
    records = size = 0
    with open(layout.segment_path(str(directory), 0), "wb") as file:
        for data, count in batches:
            assert len(data) <= BATCH_BYTES_MAX
            file.write(data)
            records, size = records + count, size + len(data)
    Path(layout.head_path(str(directory))).write_bytes(layout.encode_head(0, size, records))
    return records, size
