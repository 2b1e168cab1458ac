"""Find the struct columns of an archive, and those that new files get.

The struct columns of an archive are those of its table besides the columns of the log: a struct for each schema that
any of its files was written with, and ``rejected``. New files have all of them, so that rows of a merge have one type.

This module knows the columns of the table. It does not open files. All functions are pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from radiator.archive.contents import Table
from radiator.columns import evolution
from radiator.columns.schema import BY_NAME, arrow_schema
from radiator.errors import ConfigError, StorageError

_DATE = "date"
_TYPES = {
    "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "double": pa.float64(), "boolean": pa.bool_(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"), "binary": pa.binary(),
}  # fmt: skip


def struct_columns(table: Table | None) -> list[pa.Field]:
    """Return the struct columns of an archive, and ``rejected``; none if no rule had a schema.

    Args:
        table: The metadata of its table. None: the archive is empty.

    Raises:
        StorageError: Another program has added a column with a type that radiator does not write.
    """
    if table is None:
        return []
    fields = json.loads(table.schema)["fields"]
    try:
        return [_field(each) for each in fields if each["name"] not in BY_NAME and each["name"] != _DATE]
    except (KeyError, TypeError) as error:
        raise StorageError(f"the table has a column with a type that radiator does not write: {error}") from None


def evolved(table: Table | None, wanted: Iterable[pa.Field]) -> tuple[pa.Schema, dict[str, str]]:
    """Return the columns of new files: those of the log, of the table, and of the schemas of rules.

    Args:
        table: The metadata of the table, or None.
        wanted: The struct columns of the store.

    Returns:
        The columns, and why some of the wanted ones are refused, by name. These are as in the table.

    Raises:
        StorageError: Another program has added a column with a type that radiator does not write.
    """
    found, refused = struct_columns(table), dict[str, str]()
    for field in wanted:
        try:
            found = evolution.evolve(found, [field])
        except ConfigError as error:
            refused[field.name] = str(error)
    return pa.schema([*arrow_schema(), *found]), refused


def _field(each: dict[str, Any]) -> pa.Field:
    return pa.field(each["name"], _type(each["type"]))


def _type(of_delta: Any) -> pa.DataType:
    if isinstance(of_delta, str):
        if of_delta.startswith("decimal("):
            precision, _, scale = of_delta[len("decimal(") : -1].partition(",")
            return pa.decimal128(int(precision), int(scale))
        return _TYPES[of_delta]
    if of_delta["type"] == "struct":
        return pa.struct([_field(each) for each in of_delta["fields"]])
    if of_delta["type"] == "array":
        return pa.list_(_type(of_delta["elementType"]))
    if of_delta["type"] == "map" and of_delta["keyType"] == "string":
        return pa.map_(pa.string(), _type(of_delta["valueType"]))
    raise KeyError(of_delta["type"])
