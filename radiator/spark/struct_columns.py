"""Find the struct columns of a store, and check the columns that a read names.

Uses the stored rules. Must not import Spark's sessions or the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from radiator.columns.files import open_store
from radiator.columns.options import ReadOptions
from radiator.columns.typed import TypedColumns, typed_columns
from radiator.spark.options import STORAGE, is_deliveries
from radiator.spark.schema import DELIVERIES, checked, is_plain, listed, select, typed_fields


class TableColumns(NamedTuple):
    """The columns to return.

    Attributes:
        schema: The columns.
        typed: The struct columns of the store; empty if none of them is wanted.
    """

    schema: StructType
    typed: TypedColumns = TypedColumns()


def table_of(options: ReadOptions, schema: StructType) -> TableColumns:
    """Return the columns to read, checked. The store is opened only for columns that the log does not have.

    Args:
        options: The options of the read.
        schema: The columns that the user or Spark has named.

    Raises:
        ConfigError: A column is unknown, is repeated, or has another type.
        StorageError: The list of rules with a schema is damaged.
    """
    if options.deliveries is not None:
        return TableColumns(checked(schema, table=DELIVERIES))
    if is_plain(schema.names):
        return TableColumns(checked(schema))
    typed = typed_columns(open_store(options.path, options.storage))
    return TableColumns(checked(schema, typed_fields(typed)), typed)


def filled(df: DataFrame, wanted: StructType) -> DataFrame:
    """Return a DataFrame with more columns, and more fields in its structs: null where it has none.

    Args:
        df: The DataFrame.
        wanted: The columns and their types.
    """
    if df.schema == wanted:
        return df
    own = {field.name: field.dataType for field in df.schema.fields}
    return df.select(
        *(_filled(F.col(each.name), own.get(each.name), each.dataType).alias(each.name) for each in wanted)
    )


def _filled(value: Column, own: DataType | None, wanted: DataType) -> Column:
    if own is None:
        return F.lit(None).cast(wanted)
    if own == wanted:
        return value
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        types = {field.name: field.dataType for field in own.fields}
        fields = [
            _filled(value.getField(each.name), types.get(each.name), each.dataType).alias(each.name) for each in wanted
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        inner = own.elementType, wanted.elementType
        return F.transform(value, lambda each: _filled(each, *inner))
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        values = own.valueType, wanted.valueType
        return F.transform_values(value, lambda key, each: _filled(each, *values))
    return value.cast(wanted)


def selected(path: str, columns: Iterable[str], options: Mapping[str, Any]) -> StructType:
    """Return the Spark schema with the given columns of a store. The store is opened only for struct columns.

    Args:
        path: The path or the URI of the store.
        columns: The names of the columns.
        options: The options of the read, for the file system.

    Raises:
        ConfigError: A column does not exist.
        StorageError: The list of rules with a schema is damaged.
    """
    names = listed(columns)
    if is_deliveries(options):
        return select(names, table=DELIVERIES)
    if is_plain(names):
        return select(names)
    storage = {name[len(STORAGE) :]: str(value) for name, value in options.items() if name.lower().startswith(STORAGE)}
    return select(names, typed_fields(typed_columns(open_store(path, storage))))
