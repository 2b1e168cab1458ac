"""The actions of a Delta commit: their JSON, and where the facts of an archive are in them.

    metaData    ``configuration``: ``radiator.source``, the retention of merged files; the schema
    txn         numbers, by id: ``radiator:<source>:<partition>`` is the end of the partition,
                ``radiator-start:<source>:<partition>`` its start,
                ``radiator-lost:<source>:<first>:<why>:<partition>`` the offset behind a lost range,
                ``radiator-vacuum:<source>`` the time up to which merged files were removed
    add         a data file; its tag ``radiator`` is a ``DataFile`` as JSON; statistics for other readers
    remove      a file that a merge has replaced
    commitInfo  for people; and the crc32 of the commit

Checkpoints have all of these but the last, so nothing is lost with old commits. The protocol (reader version 1, writer
version 2) is the one that every implementation reads: https://github.com/delta-io/delta/blob/master/PROTOCOL.md

This module knows JSON and the data of an archive. It does not open files. All functions are pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Any, TypeAlias

import pyarrow as pa

from radiator import __version__
from radiator.archive.contents import SOURCE_KEY, Anchor, DataFile, Lost, PackedSpans, Span, Table
from radiator.checksum import crc32
from radiator.columns.schema import arrow_schema
from radiator.errors import StorageError
from radiator.storage.typed_rules import REJECTED

Action: TypeAlias = dict[str, Any]

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
ENGINE = "radiator"
ENGINE_VERSION = f"{ENGINE} {__version__}"
TAG = "radiator"  # of an add
PARTITION_COLUMN = "date"
MEASURED = ("partition", "receive_time", "receive_ns")  # columns whose statistics every file has

END, START, LOST, VACUUM = "radiator", "radiator-start", "radiator-lost", "radiator-vacuum"  # of the ids of txn
_IN_TAG = [
    each.name
    for each in fields(DataFile)
    if each.name not in ("path", "spans", "date", "bytes", "modified_ms", "anchors")
]
_TAG_KEYS = {"spans", "anchors", *_IN_TAG}
_CRC = re.compile(rb',"crc":([0-9]{1,10})\}\}\n')
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    pa.string(): "string", pa.binary(): "binary", pa.bool_(): "boolean", pa.int8(): "byte", pa.int16(): "short",
    pa.int32(): "integer", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double", pa.date32(): "date",
}  # fmt: skip


# --- bytes of a commit ------------------------------------------------------------------------------------------------


def encode(info: Mapping[str, Any], actions: Iterable[Action]) -> bytes:
    """Return the bytes of a commit: ``commitInfo`` with the crc32 of all other bytes, and then the actions."""
    head = _json({"commitInfo": info})[:-2]
    rest = b"".join(_json(each) + b"\n" for each in actions)
    return head + b',"crc":%d}}\n' % crc32(rest, crc32(head + b"}}\n")) + rest


def decode(data: bytes) -> list[Action]:
    """Return the actions of a commit. Raises ValueError with what is wrong.

    Commits of other programs have no crc.
    """
    lines = data.splitlines()
    if not lines:
        raise ValueError("it is empty")
    head_bytes = len(lines[0]) + 1
    end = _CRC.search(data, 0, head_bytes)
    if end is not None and end.end() == head_bytes:
        found = crc32(data[head_bytes:], crc32(data[: end.start()] + b"}}\n"))
        if found != int(end[1]):
            raise ValueError(f"its crc32 is {found}, it says {int(end[1])}")
    actions = [json.loads(line) for line in lines if line]
    if not all(isinstance(each, dict) and all(isinstance(value, dict) for value in each.values()) for each in actions):
        raise ValueError("it is no list of actions")
    if end is None and actions and str(actions[0].get("commitInfo", {}).get("engineInfo")).startswith(ENGINE):
        raise ValueError('its commitInfo has no "crc"')
    return actions


def _json(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


# --- data files -------------------------------------------------------------------------------------------------------


def add_of(each: DataFile, data_change: bool) -> Action:
    """Return the action that adds a file."""
    return {
        "add": {
            "path": each.path,
            "partitionValues": {PARTITION_COLUMN: each.date},
            "size": each.bytes,
            "modificationTime": each.modified_ms,
            "dataChange": data_change,
            "stats": statistics_of(each),
            "tags": {TAG: tag_of(each)},
        }
    }


def remove_of(each: DataFile, deleted_ms: int) -> Action:
    """Return the action that removes a file whose records another one has."""
    return {
        "remove": {
            "path": each.path,
            "deletionTimestamp": deleted_ms,
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": {PARTITION_COLUMN: each.date},
            "size": each.bytes,
        }
    }


def tag_of(each: DataFile) -> str:
    """Return the facts of a file that Delta has no field for."""
    short = len(each.spans) == 1
    facts: dict[str, Any] = {
        "spans": [span[:4] if short or span.destinations == (span.partition,) else span for span in each.spans]
    }
    facts |= {name: value for name in _IN_TAG if (value := getattr(each, name)) is not None or name == "destinations"}
    if each.anchors:
        facts["anchors"] = each.anchors
    return _json(facts).decode()


def file_of(path: str, date: str | None, size: int, modified_ms: int, tag: str | None) -> DataFile:
    """Return the file of an add. Raises StorageError if radiator has not written it."""
    if tag is None or date is None:
        raise StorageError(
            f"{path} was not written by `radiator archive` (it has no tag {TAG!r}): another program has changed the "
            "table; restore an earlier version of it with that program"
        )
    facts = json.loads(tag)
    for name in ("destinations", "offsets", "names"):
        if facts.get(name) is not None:
            facts[name] = tuple(facts[name])
    if "partition" in facts:  # of earlier versions, whose files had one
        name = facts.pop("partition")
        facts["spans"] = [[name, facts.pop("first_offset"), facts.pop("next_offset"), facts["records"]]]
        if "anchor" in facts:
            facts["anchors"] = {name: facts.pop("anchor")}
    alone = len(facts["spans"]) == 1
    spans = (_span_from(alone, *span) for span in facts["spans"])
    facts["spans"] = tuple(spans) if alone else PackedSpans(spans)
    facts["anchors"] = {intern(name): Anchor(*anchor) for name, anchor in facts.get("anchors", {}).items()}
    if not facts.keys() <= _TAG_KEYS:
        raise StorageError(
            f"{path}: the log says {', '.join(sorted(facts.keys() - _TAG_KEYS))} of it, which this radiator does not "
            "know: install a newer one"
        )
    return DataFile(path=path, date=date, bytes=size, modified_ms=modified_ms, **facts)


def _span_from(
    alone: bool, partition: str, first: int, following: int, records: int, names: Iterable[str] | None = ()
) -> Span:
    """Return the span of JSON. ``alone``: the file has no other one. ``names``: none if it is the partition's."""
    if alone or names is None:
        return Span(partition, first, following, records)
    return Span(partition, first, following, records, tuple(names) or (partition,))


def statistics_of(each: DataFile) -> str:
    """Return the statistics of a file, which are exact: some readers answer queries with them."""
    low: dict[str, Any] = {"partition": each.spans[0].partition}
    high: dict[str, Any] = {"partition": each.spans[-1].partition}
    for name, values in (("destination", each.names), ("offset", each.offsets)):
        if values is not None:
            low[name], high[name] = values
    for name, convert in (("receive_time", _timestamp), ("receive_ns", int)):
        low[name], high[name] = convert(each.min_receive_ns), convert(each.max_receive_ns)
    nulls = dict.fromkeys(low, 0)
    if each.rejected is not None:
        nulls[REJECTED] = each.records - each.rejected
    facts = {"numRecords": each.records, "minValues": low, "maxValues": high, "nullCount": nulls}
    return _json(facts).decode()


def _timestamp(time_ns: int) -> str:
    """Return a time in microseconds, as the column has it."""
    moment = _EPOCH + timedelta(microseconds=time_ns // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


# --- facts of partitions ----------------------------------------------------------------------------------------------


def txn(version: int, made_ms: int, *parts: str) -> Action:
    """Return the action that sets a number of this table; ``parts``: of its id."""
    return {"txn": {"appId": ":".join(parts), "version": version, "lastUpdated": made_ms}}


def lost_of(source: str, lost: Lost, made_ms: int) -> Action:
    """Return the action for a lost range."""
    return txn(lost.next_offset, made_ms, LOST, source, str(lost.first), lost.why, lost.partition)


def lost_from(name: str, version: int) -> Lost:
    """Return the lost range of a txn; ``name``: its id without what it is and the source."""
    first, why, partition = name.split(":", 2)
    return Lost(partition, int(first), version, why)


# --- metadata ---------------------------------------------------------------------------------------------------------


def metadata_of(table: Table) -> Action:
    """Return the action with the metadata of a table."""
    return {
        "metaData": {
            "id": table.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema,
            "partitionColumns": [PARTITION_COLUMN],
            "configuration": dict(table.configuration),
            "createdTime": table.created_ms,
        }
    }


def table_from(metadata: Mapping[str, Any]) -> Table:
    """Return the metadata of an action. Raises StorageError if this is no archive."""
    configuration = dict(metadata.get("configuration") or {})
    if SOURCE_KEY not in configuration:
        raise StorageError("this is a Delta table of another program, not an archive of radiator")
    return Table(metadata["id"], metadata["schemaString"], configuration, metadata.get("createdTime") or 0)


def check_protocol(protocol: Mapping[str, Any]) -> None:
    """Raise StorageError if the table needs a reader that this one is not."""
    if protocol["minReaderVersion"] > PROTOCOL["minReaderVersion"]:
        raise StorageError(
            f"the table was changed to reader version {protocol['minReaderVersion']} of Delta, and radiator reads "
            f"version {PROTOCOL['minReaderVersion']}: another program has changed it"
        )


def schema_string(schema: pa.Schema | None = None) -> str:
    """Return Delta's JSON of the columns of data files, and of the column of the partition.

    Args:
        schema: The columns of data files; None: those that every archive has.
    """
    columns = [_field(each) for each in arrow_schema() if schema is None] + [_field(each) for each in schema or ()]
    columns.append({"name": PARTITION_COLUMN, "type": "date", "nullable": True, "metadata": {}})
    return _json({"type": "struct", "fields": columns}).decode()


def _field(each: pa.Field) -> dict[str, Any]:
    return {"name": each.name, "type": _type(each.type), "nullable": each.nullable, "metadata": {}}


def _type(found: pa.DataType) -> Any:
    if found in _TYPES:
        return _TYPES[found]
    if pa.types.is_timestamp(found) and found.tz is not None:
        return "timestamp"
    if pa.types.is_decimal(found):
        return f"decimal({found.precision},{found.scale})"
    if pa.types.is_map(found):
        key, value = _type(found.key_type), _type(found.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": found.item_field.nullable}
    if pa.types.is_struct(found):
        return {"type": "struct", "fields": [_field(found.field(place)) for place in range(found.num_fields)]}
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        item = found.value_field
        return {"type": "array", "elementType": _type(item.type), "containsNull": item.nullable}
    raise ValueError(f"Delta has no type for {found}")
