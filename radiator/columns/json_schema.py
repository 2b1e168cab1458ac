"""Convert a JSON Schema to the Arrow type of the documents that it describes.

    string                                   string; format date-time: timestamp (UTC), date: date32
    integer, number that is a multiple of 1  int64; int32 if the bounds or format int32 limit it to 32 bits;
                                             decimal128 if the bounds exceed 64 bits
    number, boolean                          double, bool
    object with properties                   struct; without them, with additionalProperties: map
    array                                    list
    enum, const                              the type of their values
    $ref, allOf, anyOf, oneOf, if            followed within the document, merged, joined
    anything else                            ANY, the JSON text: a string that keeps the text of other values too

Null is not a type of its own: every field may be null. Joined types give the narrowest type that contains both, structs
field by field; without such a type it is ANY. A recursive definition is ANY where it repeats.

Must not import rules, files or bodies. All functions are pure.
Invariant: the result is bounded by ``FIELDS_MAX`` and ``DEPTH_MAX``, whatever the schema.
Source: JSON Schema, draft 4 to 2020-12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from radiator.errors import ConfigError

FIELDS_MAX: Final = 10_000  # a short schema can define millions by references, and a query plans with each of them
DEPTH_MAX: Final = 40  # deeper values are text, because the recursion of readers is limited
DIGITS_MAX: Final = 38  # the maximum of a decimal128
ANY: Final = pa.large_string()  # a marker: values of any type, as text; ``public`` makes it a string

_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_FORMATS: Final = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
_STRING: Final = pa.string()
_HINTS: Final = {  # the type that a keyword implies in a schema without a type
    "properties": "object", "patternProperties": "object", "additionalProperties": "object", "required": "object",
    "items": "array", "prefixItems": "array",
    "format": "string", "pattern": "string", "minLength": "string", "maxLength": "string",
    "minimum": "number", "maximum": "number", "multipleOf": "number",
}  # fmt: skip

Schema = Mapping[str, Any]


def struct_of(document: Any) -> pa.StructType:
    """Return the fields of the documents that a schema describes.

    Args:
        document: A JSON Schema, parsed.

    Raises:
        ConfigError: The schema describes no object with properties, or more than FIELDS_MAX fields.

    Example:
        >>> struct_of({"properties": {"carrier": {"type": "string"}}})
        StructType(struct<carrier: string>)
    """
    kind = _Reading(document).type_of(document, 0)
    if kind is None or not pa.types.is_struct(kind):
        described = "nothing" if kind is None else str(public(kind))
        raise ConfigError(
            "expected the JSON Schema of objects with properties, whose names differ in more than case; "
            f"got one that describes {described}"
        )
    return kind


def public(kind: pa.DataType, wide: bool = False) -> pa.DataType:
    """Return the type of a column: ANY is a string.

    Args:
        kind: A type that ``struct_of`` returned, or a part of one.
        wide: Whether integers of 32 bits have 64.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(public(field.type, wide)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(public(kind.value_type, wide))
    if pa.types.is_map(kind):
        return pa.map_(_STRING, public(kind.item_type, wide))
    if kind == ANY:
        return _STRING
    return pa.int64() if wide and kind == pa.int32() else kind


def join(types: Iterable[pa.DataType | None]) -> pa.DataType | None:
    """Return the narrowest type that contains all of the given types.

    Args:
        types: The types; None is a type that is always null.

    Returns:
        The type, or None if all are None.
    """
    joined: pa.DataType | None = None
    for kind in types:
        joined = kind if joined is None else joined if kind is None else _both(joined, kind)
    return joined


def _both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field for field in one}
        for field in other:
            known = fields.get(field.name)
            fields[field.name] = pa.field(field.name, _both(known.type, field.type)) if known is not None else field
        return _struct(fields.values())
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_both(one.value_type, other.value_type))
    if pa.types.is_map(one) and pa.types.is_map(other):
        return pa.map_(_STRING, _both(one.item_type, other.item_type))
    digits = _digits(one), _digits(other)
    if digits[0] is not None and digits[1] is not None:
        return one if digits[0] >= digits[1] else other
    return pa.float64() if _is_numeric(one) and _is_numeric(other) else ANY


def _digits(kind: pa.DataType) -> int | None:
    """Return the number of digits of an integer type, or None for another type."""
    if pa.types.is_decimal(kind):
        return int(kind.precision)
    return {pa.int32(): 10, pa.int64(): 19}.get(kind)


def _is_numeric(kind: pa.DataType) -> bool:
    return _digits(kind) is not None or kind == pa.float64()


def _struct(fields: Iterable[pa.Field]) -> pa.DataType:
    """Return a struct, or ANY if it has no fields or names that differ only in case."""
    found = list(fields)
    return pa.struct(found) if found and len({field.name.lower() for field in found}) == len(found) else ANY


class _Reading:
    """The state of one conversion: the followed references, and the number of fields."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._fields = 0
        self._following = ["#"]  # the references that lead to the current schema
        self._base: str = str(document.get("$id", "")).rstrip("#") if isinstance(document, Mapping) else ""

    def type_of(self, schema: Any, depth: int) -> pa.DataType | None:
        """Return the type of a schema; None if it allows only null or nothing."""
        if depth > DEPTH_MAX:
            return ANY
        if not isinstance(schema, Mapping):
            return None if schema is False else ANY
        followed = len(self._following)
        try:
            flat = self._flat(schema, followed)
            return ANY if flat is None else self._joined(flat, depth)
        finally:
            del self._following[followed:]

    def _joined(self, flat: dict[str, Any], depth: int) -> pa.DataType | None:
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

    def _one(self, name: str, flat: dict[str, Any], depth: int) -> pa.DataType | None:
        if name == "object":
            return self._object(flat, depth)
        if name == "array":
            return self._array(flat, depth)
        if name == "integer" or (name == "number" and _is_whole(flat.get("multipleOf"))):
            return _integer(flat)
        if name == "string":
            return _FORMATS.get(str(flat.get("format")), _STRING)
        return {"number": pa.float64(), "boolean": pa.bool_()}.get(name)

    def _object(self, flat: dict[str, Any], depth: int) -> pa.DataType:
        properties = flat.get("properties")
        if isinstance(properties, Mapping) and properties:
            fields = []
            for name, schema in properties.items():
                self._count()
                kind = self.type_of(schema, depth + 1)
                description = schema.get("description") if isinstance(schema, Mapping) else None
                comment = {"comment": description.encode(errors="replace")} if isinstance(description, str) else None
                fields.append(
                    pa.field(name.encode(errors="replace").decode(), ANY if kind is None else kind, metadata=comment)
                )
            return _struct(fields)
        others = flat.get("additionalProperties")
        patterns = flat.get("patternProperties")
        schemas = [*(patterns.values() if isinstance(patterns, Mapping) else ())]
        if isinstance(others, Mapping) and others:
            schemas.append(others)
        if not schemas or others is True:
            return ANY
        self._count()
        return pa.map_(_STRING, join(self.type_of(schema, depth + 1) for schema in schemas) or ANY)

    def _array(self, flat: dict[str, Any], depth: int) -> pa.DataType:
        items, first = flat.get("items"), flat.get("prefixItems")
        if isinstance(items, list):  # up to draft 2019-09 a list in items was prefixItems
            items, first = flat.get("additionalItems"), items
        schemas = list(first) if isinstance(first, list) else []
        if items is not None or not schemas:
            schemas.append(True if items is None else items)
        self._count()
        return pa.list_(join(self.type_of(schema, depth + 1) for schema in schemas) or ANY)

    def _count(self) -> None:
        self._fields += 1
        if self._fields > FIELDS_MAX:
            raise ConfigError(f"expected a JSON Schema of at most {FIELDS_MAX} fields, got more")

    # --- schemas merged with their references and allOf ---------------------------------------------------------------

    def _flat(self, schema: Schema, followed: int) -> dict[str, Any] | None:
        """Return a schema merged with its references and allOf.

        None if the schema is part of its own definition, or refers to another document.
        """
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
    """Merge ``part`` into ``flat``: both must be true. Of two bounds or lists of values the first one counts."""
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
        elif key in ("anyOf", "oneOf"):
            flat[key] = [{"allOf": [each, {key: value}]} for each in known] if isinstance(known, list) else value


def _types_of(flat: Schema) -> list[str]:
    named = _listed(flat["type"]) if "type" in flat else None
    values = [flat["const"]] if "const" in flat else flat.get("enum")
    if isinstance(values, list):
        seen = list(dict.fromkeys(map(_type_name, values)))
        return seen if named is None else _common(named, seen)
    if named is None:
        named = list(dict.fromkeys(kind for keyword, kind in _HINTS.items() if keyword in flat))
    return [name for name in named if name in _TYPES] or (["null"] if named else list(_TYPES))


def _common(one: list[str], other: list[str]) -> list[str]:
    """Return the types in both lists; an integer is a number too."""
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


def _integer(flat: Schema) -> pa.DataType:
    low, high = _bound(flat, "minimum", "exclusiveMinimum", 1), _bound(flat, "maximum", "exclusiveMaximum", -1)
    values = [flat["const"]] if "const" in flat else flat.get("enum")
    if isinstance(values, list):
        whole = [int(value) for value in values if _type_name(value) == "integer"]
        low, high = min(whole, default=0), max(whole, default=0)
    if low is not None and high is not None and low >= -(1 << 31) and high < 1 << 31:
        return pa.int32()
    if (low or 0) < -(1 << 63) or (high or 0) >= 1 << 63:
        digits = max(len(str(abs(low or 0))), len(str(abs(high or 0))), 19)
        return pa.decimal128(digits, 0) if digits <= DIGITS_MAX else ANY
    return pa.int32() if flat.get("format") == "int32" else pa.int64()


def _bound(flat: Schema, inclusive: str, exclusive: str, step: int) -> int | None:
    """Return the bound as a whole number. Rounding away from the allowed values is harmless."""
    found = [int(flat[inclusive])] if _is_number(flat.get(inclusive)) else []
    beyond = flat.get(exclusive)
    if beyond is True and found:  # draft 4
        found = [found[0] + step]
    elif _is_number(beyond):
        found.append(int(beyond) + (step if beyond % 1 == 0 else 0))  # type: ignore[operator, arg-type]
    if not found:
        return None
    return max(found) if step > 0 else min(found)
