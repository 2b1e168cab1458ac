"""Bodies that are JSON, as typed columns."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from radiator.errors import ConfigError


def json_column(
    df: DataFrame, schema: StructType | str, *, into: str = "json", body: str = "body", strict: bool = False
) -> DataFrame:
    """``df`` with a struct column ``into`` parsed from the bodies: ``df.select("json.carrier")``.

    ``schema`` is a StructType or a DDL string: ``"carrier STRING, dep_delay DOUBLE"``. A field that is missing or of
    another type is null; a body that is not JSON at all gives nulls only. ``strict=True`` fails the query instead.
    """
    mode = {"mode": "FAILFAST" if strict else "PERMISSIVE"}
    return df.withColumn(into, F.from_json(F.col(body).cast("string"), schema, mode))


def json_columns(
    df: DataFrame, schema: StructType | str, *, body: str = "body", prefix: str = "", strict: bool = False
) -> DataFrame:
    """``df`` with one column per field of the bodies in place of the body: ``df.select("carrier", "dep_delay")``.

    ``prefix`` is put before the fields' names. A field that would be called like a column of ``df`` is an error.
    """
    fields = StructType.fromDDL(schema).names if isinstance(schema, str) else schema.names
    taken = sorted(set(df.columns) & {prefix + field for field in fields} - {body})
    if taken:
        raise ConfigError(
            f"JSON fields {', '.join(taken)} are also columns of the DataFrame: give a prefix, or drop those columns"
        )
    parsed = json_column(df, schema, into="_json", body=body, strict=strict)
    kept = [column for column in df.columns if column != body]
    return parsed.select(*kept, *[F.col("_json").getField(field).alias(prefix + field) for field in fields])
