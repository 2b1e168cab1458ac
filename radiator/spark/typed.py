"""Add the fields of JSON bodies as typed columns.

A field is null if the body does not have it, or has a value of another type. In the second case ``_corrupt_record``
(the name that Spark's JSON reader uses) has the text of the body; it is null otherwise. ``body`` is unchanged.

Spark does not accept ``2.0`` as an integer. JSON Schema does, and many programs write whole numbers that way. So bodies
that do not fit are parsed again with doubles instead of integers, and whole numbers are used. Where a double may have
been rounded, only the first parse counts: whole numbers are exact, or null. Decimals, which Spark rounds, and reads
from texts too, are parsed with digits after the point, and both results must be equal.

Uses from_json. Must not depend on the source of the schema.
Source: JSON Schema 2020-12, "Validation", section 6.1.1 (type).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

CORRUPT: Final = "_corrupt_record"
PREFIX: Final = "body_"
_DIGITS: Final = 38  # the maximum of a decimal
_EXACT: Final = 1 << 53  # every whole number below it is exact as a double
_FIRST, _SECOND, _UNFIT = "__first", "__second", "__unfit"


def names_of(fields: StructType, taken: Iterable[str]) -> dict[str, str]:
    """Return the column name of each field: its own name, or with the prefix ``body_`` if that is taken.

    Names are compared without case, as Spark does. A field with an empty name gets the prefix too.

    Args:
        fields: The fields of the bodies.
        taken: The names of the other columns.
    """
    used = {name.lower() for name in (*taken, CORRUPT, "")}
    own = {field.name.lower() for field in fields.fields}
    found = {}
    for field in fields.fields:
        name = field.name
        if name.lower() in used:
            name = PREFIX + name
            while name.lower() in used or name.lower() in own:
                name = PREFIX + name
        used.add(name.lower())
        found[field.name] = name
    return found


def with_fields(df: DataFrame, fields: StructType) -> DataFrame:
    """Return a DataFrame with a column per field of the JSON in ``body``, and ``_corrupt_record``.

    Args:
        df: A DataFrame with a column ``body``.
        fields: The fields and their types.
    """
    text = F.col("body").cast("string")
    names = names_of(fields, df.columns)
    parsed = df.withColumn(_FIRST, _parse(text, _with(fields, _widened)))
    first = F.col(_FIRST)
    fits = first.isNotNull() & first.getField(_UNFIT).isNull()
    whole = [field for field in fields.fields if _has(field.dataType, _is_integer)]
    values = {field.name: first.getField(field.name) for field in fields.fields}
    if whole:
        rounded = _has(fields, _is_decimal)  # a decimal that fits may have been rounded, or read from a text
        again = _parse(text, _with(fields, _doubled))
        parsed = parsed.withColumn(_SECOND, again if rounded else F.when(~fits, again))
        second = F.col(_SECOND)
        for field in whole:
            value = values[field.name]
            merged = _merged(value, second.getField(field.name), field.dataType)
            plain = not _has(field.dataType, _is_decimal)
            values[field.name] = F.when(fits, value).otherwise(merged) if plain else merged
        bad = _unfit(first, second, StructType(whole))
        fits_again = second.isNotNull() & second.getField(_UNFIT).isNull()
        fits = (fits_again if rounded else fits | fits_again) & ~bad
    columns = [
        values[field.name].alias(names[field.name], metadata=field.metadata)
        if field.metadata
        else values[field.name].alias(names[field.name])
        for field in fields.fields
    ]
    return parsed.select(*map(_quoted, df.columns), *columns, F.when(~fits, text).alias(CORRUPT))


def _quoted(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _parse(text: Column, fields: StructType) -> Column:
    schema = StructType([*fields.fields, StructField(_UNFIT, StringType())])
    return F.from_json(text, schema, {"columnNameOfCorruptRecord": _UNFIT, "timeZone": "UTC"})


# --- whole numbers at any depth ---------------------------------------------------------------------------------------


def _is_decimal(kind: DataType) -> bool:
    return isinstance(kind, DecimalType) and kind.scale == 0


def _is_integer(kind: DataType) -> bool:
    return isinstance(kind, IntegerType | LongType) or _is_decimal(kind)


def _has(kind: DataType, wanted: Callable[[DataType], bool]) -> bool:
    if isinstance(kind, StructType):
        return any(_has(field.dataType, wanted) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has(kind.elementType, wanted)
    if isinstance(kind, MapType):
        return _has(kind.valueType, wanted)
    return wanted(kind)


def _with(kind: DataType, change: Callable[[DataType], DataType]) -> Any:
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _with(field.dataType, change)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_with(kind.elementType, change))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _with(kind.valueType, change))
    return change(kind)


def _widened(kind: DataType) -> DataType:
    return DecimalType(_DIGITS, _DIGITS - kind.precision) if _is_decimal(kind) else kind


def _doubled(kind: DataType) -> DataType:
    return DoubleType() if _is_integer(kind) else kind


def _is_whole(value: Column, kind: DataType) -> Column:
    low, high = (-(1 << 31), (1 << 31) - 1) if isinstance(kind, IntegerType) else (1 - _EXACT, _EXACT - 1)
    return (value >= F.lit(float(low))) & (value <= F.lit(float(high))) & (value % 1 == 0)


def _agree(first: Column, second: Column) -> Column:
    """Return a condition: both decimals have the same whole number."""
    return F.coalesce((first % 1 == 0) & (second % 1 == 0), F.lit(False))


def _merged(first: Column, second: Column, kind: DataType) -> Column:
    """Return the values of the first parse, or of the second parse with doubles.

    Spark returns the readable part of a struct, in arrays too, so each number is taken from the parse that has it.
    """
    if isinstance(kind, StructType):
        fields = [_merged(*pair).alias(each.name) for each, pair in _fields(first, second, kind)]
        return F.when(first.isNotNull() | second.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        found = F.transform(second, lambda each, i: _merged(F.get(first, i), each, inner))
        return found if _has(inner, _is_decimal) else F.coalesce(found, first)
    if isinstance(kind, MapType):
        inner = kind.valueType
        values = F.transform_values(second, lambda key, each: _merged(F.try_element_at(first, key), each, inner))
        return values if _has(inner, _is_decimal) else F.coalesce(values, first)
    if _is_decimal(kind):
        return F.when(_agree(first, second), first.try_cast(kind))
    if isinstance(kind, IntegerType | LongType):
        second = F.when(_is_whole(second, kind), second.try_cast(kind))
    return F.coalesce(first, second)


def _unfit(first: Column, second: Column, kind: DataType) -> Column:
    """Return a condition: a number is not whole, or may have been rounded. False if there is no number."""
    if isinstance(kind, StructType):
        return reduce(or_, (_unfit(*pair) for _, pair in _fields(first, second, kind)), F.lit(False))
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        each_unfit = F.transform(second, lambda each, i: _unfit(F.get(first, i), each, inner))
    elif isinstance(kind, MapType):
        inner = kind.valueType
        unfit = F.transform_values(second, lambda key, each: _unfit(F.try_element_at(first, key), each, inner))
        each_unfit = F.map_values(unfit)
    elif _is_decimal(kind):
        return (first.isNotNull() | second.isNotNull()) & ~_agree(first, second)
    elif isinstance(kind, IntegerType | LongType):
        return first.isNull() & second.isNotNull() & ~_is_whole(second, kind)
    else:
        return F.lit(False)
    return F.coalesce(F.exists(each_unfit, lambda each: each), F.lit(False))


def _fields(
    first: Column, second: Column, kind: StructType
) -> list[tuple[StructField, tuple[Column, Column, DataType]]]:
    return [(each, (first.getField(each.name), second.getField(each.name), each.dataType)) for each in kind.fields]
