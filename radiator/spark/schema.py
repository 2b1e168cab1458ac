"""Define the columns of the table as Spark types. ``radiator.columns.schema`` defines the columns.

A read may name any subset in any order (``.schema("destination STRING, offset BIGINT")``); other columns are not
decoded. Spark passes the chosen columns as a StructType.

Must not import files.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from radiator.columns import deliveries
from radiator.columns import schema as columns
from radiator.errors import ConfigError
from radiator.spark import kafka

SCHEMA: StructType = from_arrow_schema(columns.arrow_schema())
BY_NAME = {field.name: field for field in SCHEMA.fields}
DELIVERIES: StructType = from_arrow_schema(deliveries.arrow_schema())


def select(names: Iterable[str], table: StructType = SCHEMA) -> StructType:
    """Return the Spark schema with the given columns, for ``.schema()`` of a reader.

    Args:
        names: The names of the columns.
        table: All columns of the table: SCHEMA or DELIVERIES.

    Raises:
        ConfigError: A column does not exist, or ``names`` is a text.

    Example:
        >>> select(["destination", "size"]).simpleString()
        'struct<destination:string,size:bigint>'
    """
    chosen, known = listed(names), {field.name: field for field in table.fields}
    for name in chosen:
        if name not in known:
            raise ConfigError(_unknown(name, table))
    return StructType([known[name] for name in chosen])


def checked(schema: StructType, table: StructType = SCHEMA) -> StructType:
    """Return a schema unchanged if each of its columns exists with this type.

    Args:
        schema: The schema that the user gave to ``.schema()``.
        table: All columns of the table: SCHEMA or DELIVERIES.

    Raises:
        ConfigError: A column does not exist, is repeated, has another type, or is NOT NULL and may be null.
    """
    if not schema.fields:
        raise ConfigError(
            "the schema is empty, and rows without columns cannot be counted: expected at least one column, such as "
            "offset"
        )
    seen: set[str] = set()
    known = {field.name: field for field in table.fields}
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise ConfigError(_unknown(field.name, table))
        if field.dataType != column.dataType:
            raise ConfigError(
                f"column {field.name}: expected type {column.dataType.simpleString()}, "
                f"got {field.dataType.simpleString()}; read it as it is and cast afterwards"
            )
        if column.nullable and not field.nullable:  # a null would fail the task with an error of Java
            raise ConfigError(f"column {field.name} may be null: expected it without NOT NULL in .schema()")
        if field.name in seen:
            raise ConfigError(f"column {field.name} is named twice in .schema()")
        seen.add(field.name)
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of the batches.

    Args:
        schema: The Spark schema of the read.
    """
    return to_arrow_schema(schema, timezone="UTC")


def listed(names: Iterable[str]) -> list[str]:
    """Return column names as a list.

    Args:
        names: The names of columns.

    Raises:
        ConfigError: ``names`` is a text, which Python would iterate letter by letter.
    """
    if isinstance(names, str):
        raise ConfigError(f"columns: expected a list of names, such as columns=[{names!r}], got the text {names!r}")
    return list(names)


def _unknown(name: str, table: StructType) -> str:
    return unknown(name) if table is SCHEMA else unknown(name, "the table of deliveries", table.names)


def unknown(name: str, where: str = "a radiator store", known: Collection[str] = BY_NAME) -> str:
    """Return an error message for a column that does not exist.

    Args:
        name: The name of the column.
        where: What has no such column.
        known: The columns that exist.
    """
    near = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.lower(), known, n=1)
    instead = kafka.column_instead(name)
    hint = f" (did you mean {near[0]}?)" if near else ""
    if instead is not None:
        hint = f" (Kafka's {name} is {instead} here)"
    return f"column {name!r} is not one of {where}{hint}: expected {', '.join(known)}"
