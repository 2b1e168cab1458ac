"""A JSON Schema to the columns of the documents that it describes.

    string                                   STRING; format date-time: TIMESTAMP, date: DATE
    integer, number that is a multiple of 1  BIGINT; INT where the bounds, or format int32, say that 32 bits hold it;
                                             DECIMAL where they say that 64 bits do not
    number, boolean                          DOUBLE, BOOLEAN
    object with properties                   STRUCT; without them, with additionalProperties: MAP
    array                                    ARRAY
    enum, const                              what their values are
    $ref, allOf, anyOf, oneOf, if            followed within the document, merged, joined
    anything else                            STRING: the JSON text

Null is no type of its own: every field may be null. Types that are joined give the narrowest that holds both, structs
field by field; where there is none it is STRING. A definition that contains itself is STRING where it comes again.

Knows: JSON Schema, as far as it tells types; every draft. Must not know: rules, files, bodies. Pure.
Invariant: bounded by ``FIELDS_MAX`` and ``DEPTH_MAX`` whatever a schema says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from radiator.errors import ConfigError

FIELDS_MAX: Final = 10_000  # a schema of a few lines can name millions by references; Spark plans with each
DEPTH_MAX: Final = 40  # deeper is text: Spark's own recursion ends somewhere above
DIGITS_MAX: Final = 38  # of a DECIMAL

_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_FORMATS: Final = {"date-time": TimestampType(), "date": DateType()}
_TEXT: Final = StringType()
_HINTS: Final = {  # a schema without a type: what these keywords are about
    "properties": "object", "patternProperties": "object", "additionalProperties": "object", "required": "object",
    "items": "array", "prefixItems": "array",
    "format": "string", "pattern": "string", "minLength": "string", "maxLength": "string",
    "minimum": "number", "maximum": "number", "multipleOf": "number",
}  # fmt: skip

Schema = Mapping[str, Any]


def struct_of(document: Any) -> StructType:
    """The fields of the documents. Raises ConfigError if they have none that are named, or too many."""
    kind = _Reading(document).type_of(document, 0)
    if not isinstance(kind, StructType):
        told = "nothing" if kind is None else kind.simpleString()
        raise ConfigError(
            "expected the JSON Schema of objects with properties, whose names differ in more than case; "
            f"got one that describes {told}"
        )
    return kind


def join(types: Iterable[DataType | None]) -> DataType | None:
    """The narrowest type that holds all of them; None if there are none, or only nulls."""
    joined: DataType | None = None
    for kind in types:
        joined = kind if joined is None else joined if kind is None else _both(joined, kind)
    return joined


def _both(one: DataType, other: DataType) -> DataType:
    if one == other:
        return one
    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = {field.name: field for field in one.fields}
        for field in other.fields:
            known = fields.get(field.name)
            fields[field.name] = StructField(field.name, _both(known.dataType, field.dataType)) if known else field
        return _struct(fields.values())
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_both(one.elementType, other.elementType))
    if isinstance(one, MapType) and isinstance(other, MapType):
        return MapType(_TEXT, _both(one.valueType, other.valueType))
    digits = _digits(one), _digits(other)
    if digits[0] is not None and digits[1] is not None:
        return one if digits[0] >= digits[1] else other
    return DoubleType() if _is_numeric(one) and _is_numeric(other) else _TEXT


def _digits(kind: DataType) -> int | None:
    """Of whole numbers; None for what is none."""
    if isinstance(kind, DecimalType):
        return int(kind.precision)
    return {IntegerType: 10, LongType: 19}.get(type(kind))


def _is_numeric(kind: DataType) -> bool:
    return _digits(kind) is not None or isinstance(kind, DoubleType)


def _struct(fields: Iterable[StructField]) -> DataType:
    """Names that differ only in case cannot be told apart in Spark; a struct without fields says nothing."""
    found = list(fields)
    return StructType(found) if found and len({field.name.lower() for field in found}) == len(found) else _TEXT


class _Reading:
    """Of one document: what its references lead to, and how much has been made of it."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._fields = 0
        self._following = ["#"]  # references that are being followed
        self._base: str = str(document.get("$id", "")).rstrip("#") if isinstance(document, Mapping) else ""

    def type_of(self, schema: Any, depth: int) -> DataType | None:
        """None: nothing but null, or nothing at all."""
        if depth > DEPTH_MAX:
            return _TEXT
        if not isinstance(schema, Mapping):
            return None if schema is False else _TEXT
        followed = len(self._following)
        try:
            flat = self._flat(schema, followed)
            return _TEXT if flat is None else self._joined(flat, depth)
        finally:
            del self._following[followed:]

    def _joined(self, flat: dict[str, Any], depth: int) -> DataType | None:
        for keyword in ("anyOf", "oneOf"):
            variants = flat.get(keyword)
            if isinstance(variants, list) and variants:
                rest = {key: value for key, value in flat.items() if key != keyword}
                return join(self.type_of({"allOf": [rest, variant]}, depth + 1) for variant in variants)
        if "if" in flat:
            rest = {key: value for key, value in flat.items() if key not in ("if", "then", "else")}
            variants = [flat.get("then", True), flat.get("else", True)]
            return join(self.type_of({"allOf": [rest, variant]}, depth + 1) for variant in variants)
        return join(self._one(name, flat, depth) for name in _types_of(flat))

    def _one(self, name: str, flat: dict[str, Any], depth: int) -> DataType | None:
        if name == "object":
            return self._object(flat, depth)
        if name == "array":
            return self._array(flat, depth)
        if name == "integer" or (name == "number" and _is_whole(flat.get("multipleOf"))):
            return _integer(flat)
        if name == "string":
            return _FORMATS.get(str(flat.get("format")), _TEXT)
        return {"number": DoubleType(), "boolean": BooleanType()}.get(name)

    def _object(self, flat: dict[str, Any], depth: int) -> DataType:
        properties = flat.get("properties")
        if isinstance(properties, Mapping) and properties:
            fields = []
            for name, schema in properties.items():
                self._count()
                kind = self.type_of(schema, depth + 1)
                told = schema.get("description") if isinstance(schema, Mapping) else None
                comment = {"comment": told} if isinstance(told, str) else None
                fields.append(StructField(name, _TEXT if kind is None else kind, True, comment))
            return _struct(fields)
        others = flat.get("additionalProperties")
        patterns = flat.get("patternProperties")
        schemas = [*(patterns.values() if isinstance(patterns, Mapping) else ())]
        if isinstance(others, Mapping) and others:
            schemas.append(others)
        if not schemas or others is True:
            return _TEXT
        self._count()
        return MapType(_TEXT, join(self.type_of(schema, depth + 1) for schema in schemas) or _TEXT)

    def _array(self, flat: dict[str, Any], depth: int) -> DataType:
        items, first = flat.get("items"), flat.get("prefixItems")
        if isinstance(items, list):  # until 2019-09 that was the word for prefixItems
            items, first = flat.get("additionalItems"), items
        schemas = list(first) if isinstance(first, list) else []
        if items is not None or not schemas:
            schemas.append(True if items is None else items)
        self._count()
        return ArrayType(join(self.type_of(schema, depth + 1) for schema in schemas) or _TEXT)

    def _count(self) -> None:
        self._fields += 1
        if self._fields > FIELDS_MAX:
            raise ConfigError(f"expected a JSON Schema of at most {FIELDS_MAX} fields, got more")

    # --- what a schema says once references and allOf are taken together ----------------------------------------------

    def _flat(self, schema: Schema, followed: int) -> dict[str, Any] | None:
        """None: it is a part of what it refers to, or that is not in this document."""
        flat: dict[str, Any] = {}
        todo: list[Any] = [schema]
        while todo:
            part = todo.pop(0)
            if part is False:
                part = {"type": "null"}
            if not isinstance(part, Mapping):
                continue
            self._count()
            reference = part.get("$ref")
            if isinstance(reference, str):
                if reference in self._following[:followed]:
                    return None
                if reference in self._following:
                    continue
                self._following.append(reference)
                target = self._target(reference)
                if target is None:
                    return None
                todo.insert(0, target)
            parts = part.get("allOf")
            todo[:0] = parts if isinstance(parts, list) else []
            _merge(flat, part)
        return flat

    def _target(self, reference: str) -> Any:
        document, _, place = reference.partition("#")
        if document and document != self._base:
            return None
        place = unquote(place)
        if place and not place.startswith("/"):
            return _anchored(self._document, place)
        found = self._document
        for step in place.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isascii() and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                return None
        return found


def _anchored(schema: Any, name: str) -> Any:
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            if name in (part.get("$anchor"), str(part.get("$id", "")).removeprefix("#")) and part is not schema:
                return part
            todo.extend(part.values())
        elif isinstance(part, list):
            todo.extend(part)
    return None


def _merge(flat: dict[str, Any], part: Schema) -> None:
    """``part`` holds as well."""
    for key, value in part.items():
        if key in ("$ref", "allOf"):
            continue
        known = flat.get(key)
        if known is None:
            flat[key] = value
        elif key == "properties" and isinstance(known, Mapping) and isinstance(value, Mapping):
            both = {name: {"allOf": [known[name], value[name]]} for name in known.keys() & value.keys()}
            flat[key] = {**known, **value, **both}
        elif key == "type":
            flat[key] = _common(_listed(known), _listed(value))
        elif key == "enum" and isinstance(known, list) and isinstance(value, list):
            flat[key] = [each for each in known if each in value]
        elif key in ("minimum", "exclusiveMinimum") and _is_number(known) and _is_number(value):
            flat[key] = max(known, value)
        elif key in ("maximum", "exclusiveMaximum") and _is_number(known) and _is_number(value):
            flat[key] = min(known, value)
        elif key in ("anyOf", "oneOf"):
            flat[key] = [{"allOf": [each, {key: value}]} for each in known] if isinstance(known, list) else value


def _types_of(flat: Schema) -> list[str]:
    told = _listed(flat["type"]) if "type" in flat else None
    values = [flat["const"]] if "const" in flat else flat.get("enum")
    if isinstance(values, list):
        seen = list(dict.fromkeys(map(_type_name, values)))
        return seen if told is None else _common(told, seen)
    if told is None:
        told = list(dict.fromkeys(kind for keyword, kind in _HINTS.items() if keyword in flat))
    return [name for name in told if name in _TYPES] or (["null"] if told else list(_TYPES))


def _common(one: list[str], other: list[str]) -> list[str]:
    """An integer is a number, too."""
    return [name for name in one if name in other or (name == "integer" and "number" in other)] + [
        "integer" for name in other if name == "integer" and "number" in one and "integer" not in one
    ]


def _listed(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return (
            "integer" if value == value and value not in (float("inf"), -float("inf")) and value % 1 == 0 else "number"
        )
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value != 0 and value % 1 == 0


def _integer(flat: Schema) -> DataType:
    low, high = _bound(flat, "minimum", "exclusiveMinimum", 1), _bound(flat, "maximum", "exclusiveMaximum", -1)
    values = [flat["const"]] if "const" in flat else flat.get("enum")
    if isinstance(values, list):
        whole = [int(value) for value in values if _type_name(value) == "integer"]
        low, high = min(whole, default=0), max(whole, default=0)
    if low is not None and high is not None and low >= -(1 << 31) and high < 1 << 31:
        return IntegerType()
    if (low or 0) < -(1 << 63) or (high or 0) >= 1 << 63:
        digits = max(len(str(abs(low or 0))), len(str(abs(high or 0))), 19)
        return DecimalType(digits, 0) if digits <= DIGITS_MAX else _TEXT
    return IntegerType() if flat.get("format") == "int32" else LongType()


def _bound(flat: Schema, inclusive: str, exclusive: str, step: int) -> int | None:
    """Whole numbers of the bound; rounding away from what it lets in does no harm."""
    found = [int(flat[inclusive])] if _is_number(flat.get(inclusive)) else []
    beyond = flat.get(exclusive)
    if beyond is True and found:  # draft 4
        found = [found[0] + step]
    elif _is_number(beyond):
        found.append(int(beyond) + (step if beyond % 1 == 0 else 0))  # type: ignore[operator, arg-type]
    if not found:
        return None
    return max(found) if step > 0 else min(found)
