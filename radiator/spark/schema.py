"""The columns of the table as Spark sees them; ``radiator.columns.schema`` is where they are decided.

A read may name any subset in any order (``.schema("destination, offset ...")``): what is not named is not decoded.
Spark passes the wanted columns as a StructType; ``checked`` says in words when a name or a type is not one of ours.

Knows: names and types. Must not know: files.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from radiator.columns import schema as columns
from radiator.errors import ConfigError
from radiator.spark import kafka

SCHEMA: StructType = from_arrow_schema(columns.arrow_schema())
BY_NAME = {field.name: field for field in SCHEMA.fields}


def select(names: Iterable[str]) -> StructType:
    """The schema that names just these columns: what ``.schema()`` of a reader takes. Raises ConfigError."""
    chosen = listed(names)
    for name in chosen:
        if name not in BY_NAME:
            raise ConfigError(unknown(name))
    return StructType([BY_NAME[name] for name in chosen])


def checked(schema: StructType) -> StructType:
    """``schema`` if every column of it is one of ours with its type. Raises ConfigError."""
    if not schema.fields:
        raise ConfigError(
            "the schema has no column, and rows without columns cannot be counted: expected one at least, as offset"
        )
    seen: set[str] = set()
    for field in schema.fields:
        column = BY_NAME.get(field.name)
        if column is None:
            raise ConfigError(unknown(field.name))
        if field.dataType != column.dataType:
            raise ConfigError(
                f"column {field.name}: expected type {column.dataType.simpleString()}, "
                f"got {field.dataType.simpleString()}; read it as it is and cast afterwards"
            )
        if column.nullable and not field.nullable:  # Spark would believe it, and a null end the task in Java's words
            raise ConfigError(f"column {field.name} may be null: expected it without NOT NULL in .schema()")
        if field.name in seen:
            raise ConfigError(f"column {field.name} is named twice in .schema()")
        seen.add(field.name)
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares our batches with."""
    return to_arrow_schema(schema, timezone="UTC")


def listed(names: Iterable[str]) -> list[str]:
    """Raises ConfigError of a text, which is names of a letter each to Python."""
    if isinstance(names, str):
        raise ConfigError(f"columns: expected a list of names, such as columns=[{names!r}], got the text {names!r}")
    return list(names)


def unknown(name: str, where: str = "a radiator store", known: Collection[str] = BY_NAME) -> str:
    near = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.lower(), known, n=1)
    instead = kafka.column_instead(name)
    hint = f" (did you mean {near[0]}?)" if near else ""
    if instead is not None:
        hint = f" (Kafka's {name} is {instead} here)"
    return f"column {name!r} is not one of {where}{hint}: expected {', '.join(known)}"
