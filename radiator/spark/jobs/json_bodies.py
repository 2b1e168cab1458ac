"""Parse JSON bodies into typed columns."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from radiator.errors import ConfigError


def json_column(
    df: DataFrame, schema: StructType | str, *, into: str = "json", body: str = "body", strict: bool = False
) -> DataFrame:
    """Return the DataFrame with a struct column parsed from the bodies: ``df.select("json.carrier")``.

    Args:
        df: A DataFrame with the column of bodies.
        schema: A StructType or DDL: ``"carrier STRING, dep_delay DOUBLE"``. A field that is missing or of another type
            is null. A body that is not JSON has nulls only.
        into: The name of the new column.
        body: The name of the column of bodies.
        strict: Fail the query for a body that does not fit.
    """
    mode = {"mode": "FAILFAST" if strict else "PERMISSIVE"}
    return df.withColumn(into, F.from_json(F.col(body).cast("string"), schema, mode))


def json_columns(
    df: DataFrame, schema: StructType | str, *, body: str = "body", prefix: str = "", strict: bool = False
) -> DataFrame:
    """Return the DataFrame with one column per field instead of the bodies: ``df.select("carrier", "dep_delay")``.

    Args:
        df: A DataFrame with the column of bodies.
        schema: A StructType or DDL, as for ``json_column``.
        body: The name of the column of bodies.
        prefix: A prefix for the names of the fields.
        strict: Fail the query for a body that does not fit.

    Raises:
        ConfigError: A field has the name of another column.
    """
    fields = StructType.fromDDL(schema).names if isinstance(schema, str) else schema.names
    taken = sorted(set(df.columns) & {prefix + field for field in fields} - {body})
    if taken:
        raise ConfigError(
            f"JSON fields {', '.join(taken)} are also columns of the DataFrame: give a prefix, or drop those columns"
        )
    parsed = json_column(df, schema, into="_json", body=body, strict=strict)
    others = [column for column in df.columns if column != body]
    return parsed.select(*others, *[F.col("_json").getField(field).alias(prefix + field) for field in fields])
