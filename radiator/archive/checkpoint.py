"""Checkpoints of the Delta log: all that is true after a commit, as a Parquet file with a row per action.

Checkpoints of other programs have the same columns, and more. Pages have a crc32 each, which is checked.

This module knows the state of an archive and Parquet. It does not know where a checkpoint is stored.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from radiator.archive.actions import (
    END,
    LOST,
    PARTITION_COLUMN,
    PROTOCOL,
    START,
    TAG,
    VACUUM,
    metadata_of,
    statistics_of,
    tag_of,
)
from radiator.archive.contents import DataFile, State
from radiator.limits import KIB, MIB

GROUP_ROWS = 16 * KIB  # that are encoded at a time
GROUP_CHARS = 4 * MIB  # of their tags
BATCH_ROWS = 32  # of a page, and of files that are decoded at a time: the tag of a file of many logs may have 1 MB
_TEXTS = pa.map_(pa.string(), pa.string())


def _struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


_SCHEMA = pa.schema(
    {
        "protocol": _struct(minReaderVersion=pa.int32(), minWriterVersion=pa.int32()),
        "metaData": _struct(
            id=pa.string(), name=pa.string(), description=pa.string(),
            format=_struct(provider=pa.string(), options=_TEXTS), schemaString=pa.string(),
            partitionColumns=pa.list_(pa.string()), configuration=_TEXTS, createdTime=pa.int64(),
        ),
        "txn": _struct(appId=pa.string(), version=pa.int64(), lastUpdated=pa.int64()),
        "add": _struct(
            path=pa.string(), partitionValues=_TEXTS, size=pa.int64(), modificationTime=pa.int64(),
            dataChange=pa.bool_(), stats=pa.string(), tags=_TEXTS,
        ),
        "remove": _struct(
            path=pa.string(), deletionTimestamp=pa.int64(), dataChange=pa.bool_(), extendedFileMetadata=pa.bool_(),
        ),
    }
)  # fmt: skip


def encode(state: State) -> bytes:
    """Return the bytes of the checkpoint of a state."""
    assert state.table is not None and state.source is not None
    numbers = _numbers(state, state.source)
    removed = (
        {"path": path, "deletionTimestamp": deleted_ms, "dataChange": False, "extendedFileMetadata": False}
        for path, deleted_ms in state.removed.items()
    )
    actions: dict[str, Iterable[dict[str, Any]]] = {
        "protocol": [PROTOCOL],
        "metaData": [metadata_of(state.table)["metaData"]],
        "txn": ({"appId": name, "version": version} for name, version in numbers.items()),
        "add": map(_add, state.files.values()),
        "remove": removed,
    }
    data = io.BytesIO()
    options: dict[str, Any] = {"write_page_checksum": True, "write_batch_size": BATCH_ROWS}
    with pq.ParquetWriter(data, _SCHEMA, compression="zstd", **options) as writer:
        for name, found in actions.items():
            for group in _groups(found):
                values = pa.array(map(_pairs, group), _SCHEMA.field(name).type)
                columns = [values if each.name == name else pa.nulls(len(group), each.type) for each in _SCHEMA]
                writer.write_table(pa.table(columns, _SCHEMA))
    return data.getvalue()


def _groups(actions: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield actions in lists of bounded size: those of a year of many logs have gigabytes in memory."""
    group: list[dict[str, Any]] = []
    chars = 0
    for each in actions:
        group.append(each)
        chars += len(each.get("tags", {}).get(TAG, ""))
        if len(group) >= GROUP_ROWS or chars >= GROUP_CHARS:
            yield group
            group, chars = [], 0
    if group:
        yield group


def rows(state: State) -> int:
    """Return the number of actions in the checkpoint of a state."""
    return 2 + len(_numbers(state, state.source or "")) + len(state.files) + len(state.removed)


def _add(each: DataFile) -> dict[str, Any]:
    return {
        "path": each.path,
        "partitionValues": {PARTITION_COLUMN: each.date},
        "size": each.bytes,
        "modificationTime": each.modified_ms,
        "dataChange": False,
        "stats": statistics_of(each),
        "tags": {TAG: tag_of(each)},
    }


def _pairs(value: Any) -> Any:
    """Return the value with maps as lists of pairs."""
    maps = ("partitionValues", "tags", "options", "configuration")
    if not isinstance(value, dict):
        return value
    return {name: list(each.items()) if name in maps else _pairs(each) for name, each in value.items()}


def _numbers(state: State, source: str) -> dict[str, int]:
    """Return all numbers of the table, by the ids of their txn."""
    numbers = {f"{END}:{source}:{name}": end for name, end in state.ends.items()}
    numbers |= {f"{START}:{source}:{name}": start for name, start in state.starts.items()}
    for lost in state.lost:
        numbers[f"{LOST}:{source}:{lost.first}:{lost.why}:{lost.partition}"] = lost.next_offset
    if state.vacuumed_ms:
        numbers[f"{VACUUM}:{source}"] = state.vacuumed_ms
    return numbers


def decode(data: bytes, kind: str) -> Iterator[pa.StructArray]:
    """Yield the actions of one kind in a checkpoint: arrays without nulls.

    Raises:
        pa.ArrowException: It is damaged.
        OSError: It is damaged.
    """
    file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    if kind in file.schema_arrow.names:
        for batch in file.iter_batches(BATCH_ROWS if kind == "add" else file.metadata.num_rows, columns=[kind]):
            column = batch.column(0)
            yield column.filter(column.is_valid())
