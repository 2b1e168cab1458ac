"""A JSON Schema becomes the columns of the documents that it describes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from radiator.columns.json_schema import FIELDS_MAX
from radiator.errors import ConfigError
from radiator.spark.json_schema import struct_of

pytestmark = pytest.mark.spark


def described(**properties: Any) -> str:
    return struct_of({"type": "object", "properties": properties}).simpleString()


def column(schema: Any, **definitions: Any) -> str:
    fields = struct_of({"type": "object", "properties": {"x": schema}, "$defs": definitions})
    return str(fields["x"].dataType.simpleString())


def test_a_flight_has_the_columns_that_people_expect() -> None:
    assert (
        described(
            carrier={"type": "string", "maxLength": 2},
            dep_delay={"type": ["integer", "null"], "minimum": -1440, "maximum": 100_000},
            distance={"type": "number"},
            diverted={"type": "boolean"},
            scheduled={"type": "string", "format": "date-time"},
            day={"type": "string", "format": "date"},
        )
        == "struct<carrier:string,dep_delay:int,distance:double,diverted:boolean,scheduled:timestamp,day:date>"
    )


INT, LONG = {"minimum": -(1 << 31), "maximum": (1 << 31) - 1}, {"minimum": -(1 << 63), "maximum": (1 << 63) - 1}


@pytest.mark.parametrize(
    "schema, expected",
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "minimum": 0}, "bigint"),
        ({"type": "integer", **INT}, "int"),
        ({"type": "integer", **INT, "maximum": 1 << 31}, "bigint"),
        ({"type": "integer", **INT, "minimum": -(1 << 31) - 1}, "bigint"),
        ({"type": "integer", "exclusiveMinimum": -1, "exclusiveMaximum": 1 << 31}, "int"),
        ({"type": "integer", "minimum": 0, "maximum": 1 << 31, "exclusiveMaximum": True}, "int"),
        ({"type": "integer", "minimum": -0.5, "maximum": 9e9}, "bigint"),
        ({"type": "integer", "minimum": 0, "maximum": 1e3}, "int"),
        ({"type": "integer", **LONG}, "bigint"),
        ({"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}, "decimal(20,0)"),
        ({"type": "integer", "minimum": 0, "maximum": 10**40}, "string"),
        ({"type": "integer", "format": "int32"}, "int"),
        ({"type": "integer", "format": "int64"}, "bigint"),
        ({"type": "number", "multipleOf": 1, **INT}, "int"),
        ({"type": "number", "multipleOf": 0.5}, "double"),
        ({"type": ["number", "integer"]}, "double"),
        ({"type": "null"}, "string"),
        ({"type": ["string", "integer"]}, "string"),
        ({"type": ["object", "null"], "properties": {"a": {"type": "boolean"}}}, "struct<a:boolean>"),
        ({"properties": {"a": {"minimum": 1}}}, "struct<a:double>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": True}, "string"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"patternProperties": {"^a": {"type": "integer"}, "^b": {"type": "number"}}}, "map<string,double>"),
        ({"type": "object", "properties": {"a": {}, "A": {}}}, "string"),
        ({"type": "array"}, "array<string>"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer", **INT}}}, "array<array<int>>"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}], "items": False}, "array<double>"),
        ({"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}, "array<string>"),
        ({"enum": ["JFK", "LGA", "EWR"]}, "string"),
        ({"enum": [1, 2, None]}, "int"),
        ({"enum": [1, 5_000_000_000]}, "bigint"),
        ({"enum": [1, "1"]}, "string"),
        ({"enum": [True, False]}, "boolean"),
        ({"const": 1.5}, "double"),
        ({"const": 2.0}, "int"),
        ({"const": {"a": 1}}, "string"),
        (True, "string"),
        (False, "string"),
        ({}, "string"),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_is_the_narrowest_that_holds_what_is_described(schema: Any, expected: str) -> None:
    assert column(schema) == expected


@pytest.mark.parametrize(
    "variants, expected",
    [
        ([{"type": "integer", **INT}, {"type": "integer"}], "bigint"),
        ([{"type": "integer", **INT}, {"type": "null"}], "int"),
        ([{"type": "integer"}, {"type": "number"}], "double"),
        ([{"type": "integer"}, {"type": "string"}], "string"),
        ([{"type": "string"}, {"type": "string", "format": "date"}], "string"),
        ([{"items": {"type": "integer"}}, {"items": {"type": "number"}}], "array<double>"),
        ([{"type": "array", "items": {"type": "integer"}}, {"type": "integer"}], "string"),
        (
            [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"type": "number"}, "b": {"const": True}}}],
            "struct<a:double,b:boolean>",
        ),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_alternatives_are_joined_where_one_type_holds_them_and_are_text_where_none_does(
    keyword: str, variants: list[Any], expected: str
) -> None:
    assert column({keyword: variants}) == expected


def test_what_all_parts_say_together_counts() -> None:
    assert column({"allOf": [{"type": "integer", "minimum": 0}, {"type": "number", "maximum": 9}]}) == "int"
    both = {
        "properties": {"a": {"type": "integer"}},
        "allOf": [{"properties": {"a": {"maximum": 9, "minimum": 0}, "b": {}}}],
    }
    assert column(both) in ("struct<a:int,b:string>", "struct<b:string,a:int>")
    one_of_two = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}}}
    assert column({**one_of_two, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}) == "struct<a:boolean,b:bigint>"
    assert column({"allOf": [{"anyOf": [{"type": "integer"}]}, {"anyOf": [{"minimum": 0, "maximum": 1}]}]}) == "int"


def test_then_and_else_are_alternatives() -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "if": {"properties": {"kind": {"const": "gate"}}},
        "then": {"properties": {"gate": {"type": "integer"}}},
    }
    assert column(schema) == "struct<kind:string,gate:bigint>"


def test_references_are_followed_within_the_document_and_nowhere_else() -> None:
    airport = {"type": "object", "properties": {"code": {"type": "string"}, "height": {"type": "number"}}}
    expected = "struct<code:string,height:double>"
    assert column({"$ref": "#/$defs/airport"}, airport=airport) == expected
    assert column({"allOf": [{"$ref": "#/$defs/airport"}, {"$ref": "#/$defs/airport"}]}, airport=airport) == expected
    assert column({"$ref": "#/$defs/a~1b%25"}, **{"a/b%": airport}) == expected
    assert column({"$ref": "#here"}, airport={**airport, "$anchor": "here"}) == expected
    assert column({"$ref": "#/$defs/nothing"}) == "string"
    assert column({"$ref": "https://example.com/airport.json"}) == "string"
    own = {"$id": "https://example.com/f.json", "properties": {"x": {"$ref": "https://example.com/f.json#/$defs/a"}}}
    assert struct_of({**own, "$defs": {"a": airport}}).simpleString() == f"struct<x:{expected}>"
    assert struct_of({"$ref": "#/definitions/a", "definitions": {"a": airport}}).simpleString() == expected


def test_what_contains_itself_is_text_where_it_comes_again() -> None:
    tree = {
        "type": "object",
        "properties": {"name": {}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    }
    assert column({"$ref": "#/$defs/tree"}, tree=tree) == "struct<name:string,children:array<string>>"
    assert struct_of({"properties": {"next": {"$ref": "#"}}}).simpleString() == "struct<next:string>"


def test_what_a_schema_may_cost_is_bounded() -> None:
    """Ten definitions, each ten times the one before it, would be ten thousand million fields."""
    bombs = {f"d{n}": {"properties": {f"p{i}": {"$ref": f"#/$defs/d{n + 1}"} for i in range(10)}} for n in range(10)}
    with pytest.raises(ConfigError, match=f"at most {FIELDS_MAX} fields"):
        column({"$ref": "#/$defs/d0"}, **bombs)
    deep: Any = {"type": "integer"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"x": deep}}
    assert "string" in struct_of(deep).simpleString()


@pytest.mark.parametrize("document", [{"type": "array"}, {"type": "number"}, True, {}, {"type": "null"}, [], None])
def test_a_schema_without_named_properties_is_refused_with_the_reason(document: Any) -> None:
    with pytest.raises(ConfigError, match="expected the JSON Schema of objects with properties"):
        struct_of(document)


def test_every_field_may_be_null_and_says_what_it_is_about() -> None:
    found = struct_of(
        {
            "properties": {"a": {"type": "integer", "description": "minutes"}, "b": {"properties": {"c": {}}}},
            "required": ["a"],
        }
    )
    assert all(field.nullable for field in found.fields)
    assert found["a"].metadata == {"comment": "minutes"}
    nested = found["b"].dataType
    assert isinstance(nested, StructType) and nested["c"].nullable
