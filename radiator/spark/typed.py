"""Bodies that are JSON as typed columns, beside the columns of the table.

A field is null where the body does not have it, or has something else there; then ``_corrupt_record``, which Spark's
own JSON reader calls so too, has the text of the body, and is null everywhere else. ``body`` stays what it was.

Spark takes ``2.0`` for no integer; JSON Schema does, and many programs write whole numbers so. So bodies that do not
fit are parsed once more with doubles in the place of integers, and what is a whole number is taken. Where a double
could have rounded, the first reading has the number or nobody has: whole numbers are exact, or null. Decimals, which
Spark rounds, and makes of texts too, are read with the digits behind the point, and both readings have to agree.

Knows: from_json. Must not know: where a schema comes from, files.
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
_DIGITS: Final = 38  # of a decimal, at most
_EXACT: Final = 1 << 53  # below it every whole number is a double of its own
_FIRST, _SECOND, _UNFIT = "__first", "__second", "__unfit"


def names_of(fields: StructType, taken: Iterable[str]) -> dict[str, str]:
    """The columns that the fields become, by field: their own names. ``body_`` stands before one that is taken, as far
    as Spark tells names apart, and before a field without a name."""
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
    """``df`` with a column for each of ``fields`` from the JSON in its column ``body``, and ``_corrupt_record``."""
    text = F.col("body").cast("string")
    names = names_of(fields, df.columns)
    parsed = df.withColumn(_FIRST, _parse(text, _with(fields, _widened)))
    first = F.col(_FIRST)
    fits = first.isNotNull() & first.getField(_UNFIT).isNull()
    whole = [field for field in fields.fields if _has(field.dataType, _is_integer)]
    values = {field.name: first.getField(field.name) for field in fields.fields}
    if whole:
        rounded = _has(fields, _is_decimal)  # then what fits may be another number, or a text
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


# --- whole numbers, wherever they stand -------------------------------------------------------------------------------


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
    """Of a decimal: both have the number, and neither a part behind the point."""
    return F.coalesce((first % 1 == 0) & (second % 1 == 0), F.lit(False))


def _merged(first: Column, second: Column, kind: DataType) -> Column:
    """``second`` was read with doubles. Spark gives what it could read of a struct, in arrays too: so each number is
    taken from where it is."""
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
    """Whether a number stands there that is not whole, or might be another one; false where none does."""
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
