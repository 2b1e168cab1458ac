"""Convert the Arrow type of a JSON Schema's documents to a Spark type. Field by field, so that comments stay.

Must not import rules, files or bodies. All functions are pure.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from radiator.columns import json_schema


def struct_of(document: Any) -> StructType:
    """Return the fields of the documents that a schema describes.

    Args:
        document: A JSON Schema, parsed.

    Raises:
        ConfigError: The schema describes no object with properties, or more than FIELDS_MAX fields.

    Example:
        >>> struct_of({"properties": {"carrier": {"type": "string"}}}).simpleString()
        'struct<carrier:string>'
    """
    kind = spark_type(json_schema.public(json_schema.struct_of(document)))
    assert isinstance(kind, StructType)
    return kind


def spark_type(kind: pa.DataType) -> DataType:
    """Return the Spark type of an Arrow type, with the comments of its fields.

    Args:
        kind: The Arrow type.
    """
    if pa.types.is_struct(kind):
        return StructType([spark_field(field) for field in kind])
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return MapType(StringType(), spark_type(kind.item_type))
    return from_arrow_type(kind)


def spark_field(field: pa.Field) -> StructField:
    """Return the Spark field of an Arrow field, with its comment.

    Args:
        field: The Arrow field.
    """
    comment = (field.metadata or {}).get(b"comment")
    return StructField(
        field.name, spark_type(field.type), True, None if comment is None else {"comment": comment.decode()}
    )
