"""Write a data file: the encoding of its columns, its footer, and the size of its row groups.

Offsets, times and addresses rise by little, so they are stored as differences; names and the keys and values of headers
have a dictionary; bodies have neither. Columns that are queried by ranges have statistics and a page index. Every
reader of format 2.6 knows these encodings.

This module knows pyarrow. It does not know the place of the file, or segments. One thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from radiator.archive.contents import joined
from radiator.archive.manifest import DataFile, Span
from radiator.columns.schema import arrow_schema
from radiator.limits import MIB
from radiator.storage.typed_rules import REJECTED

GROUP_ROWS = 32 * 1024  # fewer skip more; footers and encoding cost 0.2 % more than with 128 Ki
GROUP_BYTES = 64 * MIB  # in memory, before it is encoded
LEVEL = 3
ORDER = ["partition", "destination", "offset"]
DESTINATIONS_MAX = 1_000  # that are listed; of a file with more a reader has to look inside
SCHEMA = arrow_schema()

_MAPS = [f"{name}.key_value.{part}" for name in ("tags", "headers") for part in ("key", "value")]
_DICTIONARY = ["destination", "partition", "size", *_MAPS]
_RISING = ["offset", "receive_time", "event_time", "transmit_time", "receive_ns", "event_ns", "transmit_ns"]
_ENCODING = {**dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"), "message_id": "DELTA_BYTE_ARRAY", "body": "PLAIN"}
_CODED = (pa.string(), pa.date32())  # types of struct columns that have a dictionary
_STATISTICS = ["destination", "partition", "size", *_RISING]


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the path and the type of each column of Parquet below a column, as far as they are in no list or map."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif not pa.types.is_nested(kind):
        yield path, kind


def listed(destinations: Iterable[str]) -> tuple[str, ...] | None:
    """Return the destinations of a file, sorted; None if they are too many to be listed."""
    names = tuple(sorted(destinations))
    return names if len(names) <= DESTINATIONS_MAX else None


def listed_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans of a file, joined, with their destinations if these are not too many to be listed.

    Args:
        spans: Spans with their destinations, in any order.
    """
    found = joined(spans)
    if len(found) == 1:
        return (found[0]._replace(destinations=None),)  # the file has them
    others = [each.destinations != (each.partition,) for each in found]
    count = sum(len(each.destinations or ()) for each, other in zip(found, others, strict=True) if other)
    if count <= DESTINATIONS_MAX:
        return found
    return tuple(each._replace(destinations=None) if other else each for each, other in zip(found, others, strict=True))


class DataWriter:
    """Writes a new local file at ``path``. Its rows come sorted by ``ORDER``, with the columns of ``schema``."""

    def __init__(self, path: str, level: int = LEVEL, schema: pa.Schema = SCHEMA) -> None:
        self.path, self.records, self.body_bytes = path, 0, 0
        self.min_receive_ns, self.max_receive_ns = (1 << 63) - 1, -(1 << 63)
        self._min_offset, self._max_offset = (1 << 63) - 1, -1
        self._schema = schema
        self._structs = [field.name for field in schema if pa.types.is_struct(field.type)]
        self._typed = self._rejected = 0
        more = [leaf for field in schema if field.name not in SCHEMA.names for leaf in _leaves(field.name, field.type)]
        leaves = [field.name for field in SCHEMA]
        self._writer = pq.ParquetWriter(
            path,
            schema,
            version="2.6",
            compression="zstd",
            compression_level=level,
            use_dictionary=[*_DICTIONARY, *(path for path, kind in more if kind in _CODED)],
            column_encoding=_ENCODING,
            write_statistics=[*_STATISTICS, *(path for path, _ in more)],
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(leaves.index(name)) for name in ORDER],
        )

    def write_group(self, batches: list[pa.RecordBatch]) -> None:
        """Write one row group."""
        table = pa.Table.from_batches(batches, self._schema)
        if not table.num_rows:
            return
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.records += table.num_rows
        for batch in batches:
            if batch.num_rows:
                self._count(batch)
                times = batch.column("receive_ns").to_numpy()
                self.min_receive_ns = min(self.min_receive_ns, int(times.min()))
                self.max_receive_ns = max(self.max_receive_ns, int(times.max()))
                offsets = batch.column("offset").to_numpy()
                self._min_offset = min(self._min_offset, int(offsets.min()))
                self._max_offset = max(self._max_offset, int(offsets.max()))
                self.body_bytes += int(batch.column("size").to_numpy().sum())

    def _count(self, batch: pa.RecordBatch) -> None:
        """Count the records with a struct column, and the rejected ones."""
        if self._structs:
            valid = [np.asarray(batch.column(name).is_valid()) for name in self._structs]
            self._typed += int(np.logical_or.reduce(valid).sum())
            self._rejected += batch.num_rows - batch.column(REJECTED).null_count

    def close(self, path: str, spans: tuple[Span, ...], date: str, names: Iterable[str], source: str) -> DataFile:
        """Close the file, and return its entry in a commit, where it is at ``path`` of the archive."""
        names = set(names)
        destinations = listed(names)
        said: dict[str, Any] = {
            **spans_in_footer(spans),
            "radiator.destinations": json.dumps(destinations, ensure_ascii=False),
            "radiator.source": source,
        }
        self._writer.add_key_value_metadata(said)
        self._writer.close()
        with open(self.path, "rb") as file:
            digest = digest_of(file)
            size = file.tell()
        return DataFile(
            path, spans, date, destinations, self.records, size, self.body_bytes,
            self.min_receive_ns, self.max_receive_ns, digest,
            (self._min_offset, self._max_offset) if self.records else None, (min(names), max(names)) if names else None,
            self._typed if self._structs else None, self._rejected if self._structs else None,
        )  # fmt: skip


def spans_in_footer(spans: Sequence[Span]) -> dict[str, str]:
    """Return what the footer of a file says of its partitions and offsets."""
    if len(spans) > 1:
        said = [[each.partition, each.first, each.next_offset] for each in spans]
        return {"radiator.spans": json.dumps(said, ensure_ascii=False, separators=(",", ":"))}
    ((partition, first, following, *_),) = spans
    return {
        "radiator.partition": partition,
        "radiator.first_offset": str(first),
        "radiator.next_offset": str(following),
    }


def digest_of(file: Any) -> str:
    """Return the digest of an open file, from its beginning, as in its commit."""
    digest = blake2b(digest_size=16)
    while data := file.read(MIB):
        digest.update(data)
    return digest.hexdigest()


def reader(file: Any, **options: Any) -> pq.ParquetFile:
    """Return a reader of an open file. A damaged page raises OSError when it is read."""
    return pq.ParquetFile(file, page_checksum_verification=True, **options)


def footer_of(file: Any) -> tuple[int, dict[str, str]]:
    """Return the number of records, and radiator's metadata. Raises pyarrow's errors if it is no Parquet file."""
    metadata = pq.ParquetFile(file).metadata
    said = {
        name.decode(): value.decode() for name, value in (metadata.metadata or {}).items() if name[:9] == b"radiator."
    }
    return metadata.num_rows, said
