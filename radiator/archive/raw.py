"""Rows as they wait to be sorted: what the log stores of each, with the header block as one value.

The destination is a number. The other columns follow from these, and are made after sorting. So sorting copies two
values of variable length for each row, and not the maps of its headers.

This module knows the columns of the archive. It does not know files. It has no state.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from radiator.archive.parquet import SCHEMA
from radiator.archive.sorting import Names, numbered
from radiator.columns.decode import HEADER_BLOCK
from radiator.columns.headermap import HeaderMaps
from radiator.columns.schema import arrow_schema
from radiator.storage.layout import encode_name

_STORED = ["offset", "receive_ns", "event_ns", "transmit_ns", "body"]
RAW_SCHEMA = numbered(arrow_schema(["destination", *_STORED])).append(
    pa.field(HEADER_BLOCK, pa.binary(), nullable=False)
)


def complete(raw: pa.RecordBatch, names: Names) -> pa.RecordBatch:
    """Return rows with the columns of ``SCHEMA``.

    Args:
        raw: The rows, with the columns of ``RAW_SCHEMA``.
        names: The partitions and destinations of numbers.
    """
    blocks = raw.column(HEADER_BLOCK)
    _, offsets, data = blocks.buffers()
    places = np.frombuffer(offsets, np.int32)[blocks.offset : blocks.offset + len(blocks) + 1]
    maps = HeaderMaps(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), places)
    columns = {name: raw.column(name) for name in _STORED}
    columns["partition"], columns["destination"] = names.columns(raw.column("destination"))
    for name in ("receive", "event", "transmit"):
        columns[f"{name}_time"] = _micros(columns[f"{name}_ns"], SCHEMA.field(f"{name}_time").type)
    coded = columns["partition"].dictionary_encode()
    prefixes = pa.array([f"{encode_name(each)}@" for each in coded.dictionary.to_pylist()], pa.string())
    prefix = prefixes.take(coded.indices) if len(prefixes) > 1 else prefixes[0]
    columns["message_id"] = pc.binary_join_element_wise(prefix, columns["offset"].cast(pa.string()), "")
    columns["tags"], columns["headers"] = maps.tags(), maps.headers()
    columns["size"] = pc.binary_length(columns["body"]).cast(pa.int64())
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _micros(ns: pa.Array, kind: pa.DataType) -> pa.Array:
    micros = ns.fill_null(0).to_numpy() // 1000
    return pa.array(micros, pa.int64(), mask=np.asarray(ns.is_null()) if ns.null_count else None).view(kind)
