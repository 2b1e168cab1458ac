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
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from radiator.columns import deliveries
from radiator.columns import schema as columns
from radiator.columns.typed import TypedColumns
from radiator.errors import ConfigError
from radiator.spark import kafka
from radiator.spark.json_schema import spark_field

SCHEMA: StructType = from_arrow_schema(columns.arrow_schema())
BY_NAME = {field.name: field for field in SCHEMA.fields}
DELIVERIES: StructType = from_arrow_schema(deliveries.arrow_schema())


def select(names: Iterable[str], typed: Iterable[StructField] = (), table: StructType = SCHEMA) -> StructType:
    """Return the Spark schema with the given columns, for ``.schema()`` of a reader.

    Args:
        names: The names of the columns.
        typed: The struct columns of the store.
        table: All other columns of the table: SCHEMA or DELIVERIES.

    Raises:
        ConfigError: A column does not exist, or ``names`` is a text.

    Example:
        >>> select(["destination", "size"]).simpleString()
        'struct<destination:string,size:bigint>'
    """
    chosen = listed(names)
    known = {field.name: field for field in (*table.fields, *typed)}
    for name in chosen:
        if name not in known:
            raise ConfigError(_unknown(name, table, known))
    return StructType([known[name] for name in chosen])


def typed_fields(typed: TypedColumns) -> list[StructField]:
    """Return the struct columns of a store as Spark fields.

    Args:
        typed: The struct columns.
    """
    return [spark_field(field) for field in typed.fields()]


def is_plain(names: Iterable[str]) -> bool:
    """Return True if all columns are columns of the log.

    Args:
        names: The names of columns.
    """
    return BY_NAME.keys() >= set(names)


def checked(schema: StructType, typed: Iterable[StructField] = (), table: StructType = SCHEMA) -> StructType:
    """Return a schema unchanged if each of its columns exists with this type.

    Args:
        schema: The schema that the user gave to ``.schema()``.
        typed: The struct columns of the store.
        table: All other columns of the table: SCHEMA or DELIVERIES.

    Raises:
        ConfigError: A column does not exist, is repeated, has another type, or is NOT NULL and may be null.
    """
    if not schema.fields:
        raise ConfigError(
            "the schema is empty, and rows without columns cannot be counted: expected at least one column, such as "
            "offset"
        )
    seen: set[str] = set()
    known = {field.name: field for field in (*table.fields, *typed)}
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise ConfigError(_unknown(field.name, table, known))
        if isinstance(column.dataType, StructType):
            _check_struct(field.name, field.dataType, column.dataType)
        elif field.dataType != column.dataType:
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


def _check_struct(path: str, asked: DataType, own: DataType) -> None:
    """Raise ConfigError if a type has other fields or types than a struct column. It may leave fields out."""
    if isinstance(own, StructType) and isinstance(asked, StructType):
        fields = {field.name: field.dataType for field in own.fields}
        for field in asked.fields:
            if field.name not in fields:
                near = difflib.get_close_matches(field.name, fields, n=1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise ConfigError(f"column {path} has no field {field.name}{hint}: expected {', '.join(fields)}")
            _check_struct(f"{path}.{field.name}", field.dataType, fields[field.name])
    elif isinstance(own, ArrayType) and isinstance(asked, ArrayType):
        _check_struct(f"{path}[]", asked.elementType, own.elementType)
    elif isinstance(own, MapType) and isinstance(asked, MapType) and asked.keyType == own.keyType:
        _check_struct(f"{path}{{}}", asked.valueType, own.valueType)
    elif asked != own:
        raise ConfigError(f"column {path}: expected type {own.simpleString()}, got {asked.simpleString()}")


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


def _unknown(name: str, table: StructType, known: Collection[str]) -> str:
    return unknown(name, "a radiator store" if table is SCHEMA else "the table of deliveries", known)


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
