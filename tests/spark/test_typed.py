"""Bodies as typed columns: exact, or null and told."""

from __future__ import annotations

import json
from datetime import UTC, date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import StructType

from radiator.spark import collect
from radiator.spark.typed import CORRUPT, names_of, with_fields

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def typed(spark: Any, ddl: str, *bodies: str | bytes) -> list[dict[str, Any]]:
    """Without the body."""
    raw = [(bytearray(body.encode() if isinstance(body, str) else body),) for body in bodies]
    df = with_fields(spark.createDataFrame(raw, "body BINARY").coalesce(1), StructType.fromDDL(ddl))
    rows = collect(df)
    return [{name: value for name, value in row.items() if name != "body"} for row in rows]


FLIGHT = "carrier STRING, dep_delay INT, id BIGINT"


def test_bodies_become_columns_and_say_nothing_of_what_they_lack(spark: Any) -> None:
    assert typed(spark, FLIGHT, '{"id": 1, "dep_delay": -5, "carrier": "UA", "more": [1]}', '{"dep_delay": null}') == [
        {"carrier": "UA", "dep_delay": -5, "id": 1, CORRUPT: None},
        {"carrier": None, "dep_delay": None, "id": None, CORRUPT: None},
    ]


@pytest.mark.parametrize("body", ["", "nope", "5", "null", "[]", '[{"id": 1}]', '{"id": 1'])
def test_what_is_no_object_is_nulls_and_the_text(spark: Any, body: str) -> None:
    (row,) = typed(spark, "carrier STRING", body)
    assert row == {"carrier": None, CORRUPT: body}
    (row,) = typed(spark, FLIGHT, body)
    assert row[CORRUPT] == body and row["carrier"] is None


@pytest.mark.parametrize("value", ['"late"', "2.5", "3000000000", "true", "{}", "[1]", '"5"', "1e300", '"NaN"'])
def test_a_field_that_does_not_fit_is_null_and_the_others_are_not(spark: Any, value: str) -> None:
    body = f'{{"dep_delay": {value}, "id": 9007199254740993, "carrier": "UA"}}'
    assert typed(spark, FLIGHT, body) == [{"carrier": "UA", "dep_delay": None, "id": (1 << 53) + 1, CORRUPT: body}]


@pytest.mark.parametrize("value, meant", [("2.0", 2), ("-1e3", -1000), ("0.0", 0), ("2147483647.0", 2147483647)])
def test_a_whole_number_with_a_fraction_of_zero_is_an_integer_as_json_schema_says(
    spark: Any, value: str, meant: int
) -> None:
    body = f'{{"dep_delay": {value}, "id": 9007199254740993, "carrier": "UA"}}'
    assert typed(spark, FLIGHT, body) == [{"carrier": "UA", "dep_delay": meant, "id": (1 << 53) + 1, CORRUPT: None}]


def test_large_integers_are_exact_or_null(spark: Any) -> None:
    numbers = [(1 << 63) - 1, -(1 << 63), (1 << 53) + 1, 1 << 63]
    rows = typed(spark, "id BIGINT", *[f'{{"id": {number}}}' for number in numbers], '{"id": 9007199254740993.0}')
    assert [row["id"] for row in rows] == [*numbers[:3], None, None]
    assert [row[CORRUPT] is None for row in rows] == [True, True, True, False, False]
    (row,) = typed(spark, "id DECIMAL(20,0)", f'{{"id": {(1 << 64) - 1}}}')
    assert row["id"] == Decimal((1 << 64) - 1)


def test_decimals_are_exact_or_null_and_reported(spark: Any) -> None:
    numbers = ["2.0", "1e3", "12345678901234567890", "-5", "null"]
    others = ["2.5", "12345678901234567890.5", "123456789012345678901", '"5"', "true", "1e300"]
    bodies = [f'{{"n": {number}, "k": {number}, "s": "x"}}' for number in [*numbers, *others]]
    rows = typed(spark, "n DECIMAL(20,0), k DECIMAL(38,0), s STRING", *bodies)
    assert [row["n"] for row in rows] == [2, 1000, 12345678901234567890, -5, None] + 6 * [None]
    assert [row[CORRUPT] for row in rows] == [None] * 5 + bodies[5:]
    assert {row["s"] for row in rows} == {"x"}
    assert [row["k"] for row in rows][2:6] == [12345678901234567890, -5, None, None]
    nested = "a STRUCT<n DECIMAL(20,0), s STRING>, b ARRAY<DECIMAL(20,0)>, c MAP<STRING, DECIMAL(20,0)>, d BIGINT"
    right = '{"a": {"n": 18446744073709551616, "s": "x"}, "b": [1.0, null], "c": {"k": 3}, "d": 4.0}'
    wrong = '{"a": {"n": 1.5, "s": "x"}, "b": [1.5, 2], "c": {"k": "3"}, "d": 4}'
    one, other, *texts = typed(spark, nested, right, wrong, '{"b": ["5"], "d": 4}', '{"c": {"k": "5"}, "d": 4}')
    assert tuple(one["a"]) == (1 << 64, "x") and one["b"] == [1, None] and one["c"] == {"k": 3}
    assert one["d"] == other["d"] == 4 and one[CORRUPT] is None
    assert tuple(other["a"]) == (None, "x") and other["b"] == [None, 2] and other[CORRUPT] == wrong
    assert (other["c"] or {}).get("k") is None
    assert all(row[CORRUPT] is not None and row["d"] == 4 for row in texts)


def test_whole_numbers_are_found_wherever_they_stand(spark: Any) -> None:
    ddl = "a STRUCT<n BIGINT, s STRING>, b ARRAY<INT>, c MAP<STRING, BIGINT>, d ARRAY<STRUCT<n: INT>>, e ARRAY<STRING>"
    whole = '{"a": {"n": 1.0, "s": "x"}, "b": [1, 2.0], "c": {"k": 3.0}, "d": [{"n": 4.0}, null], "e": ["y"]}'
    body = {"a": {"n": (1 << 60) + 1, "s": "x"}, "b": [1], "c": {"k": (1 << 60) + 1}, "d": [{"n": 4}], "e": ["y"]}
    half = '{"a": {"n": 1.5, "s": "x"}, "b": [1.5, 2], "c": {"k": 3.5}, "d": [{"n": 4.5}], "e": ["y"]}'
    plain, first, second = typed(spark, ddl, json.dumps(body), whole, half)
    assert plain["a"].n == (1 << 60) + 1 and plain["c"] == {"k": (1 << 60) + 1} and plain[CORRUPT] is None
    assert tuple(first["a"]) == (1, "x") and first["b"] == [1, 2] and first["c"] == {"k": 3}
    assert first["d"][0].n == 4 and first["d"][1] is None and first["e"] == ["y"] and first[CORRUPT] is None
    assert tuple(second["a"]) == (None, "x") and second["b"] == [None, 2] and second["c"] == {"k": None}
    assert second["e"] == ["y"] and second[CORRUPT] == half


def test_times_are_times_of_utc_unless_they_say_otherwise(spark: Any) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = typed(
            spark,
            "t TIMESTAMP, d DATE",
            '{"t": "2013-01-01T05:00:00.123456789Z", "d": "2013-01-01"}',
            '{"t": "2013-01-01T05:00:00+02:00"}',
            '{"t": "2013-01-01T05:00:00"}',
            '{"t": "yesterday", "d": "2013-02-30"}',
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    hours = [row["t"] and (row["t"].hour, row["t"].microsecond) for row in rows]
    assert hours == [(5, 123456), (3, 0), (5, 0), None] and rows[0]["t"].tzinfo is UTC
    assert [row["d"] for row in rows] == [date(2013, 1, 1), None, None, None]
    assert [row[CORRUPT] is None for row in rows] == [True, True, True, False]


def test_text_of_anything_is_its_json(spark: Any) -> None:
    (row,) = typed(spark, "x STRING, y STRING", '{"x": {"a": [1, null]}, "y": 12345678901234567890}')
    assert row == {"x": '{"a":[1,null]}', "y": "12345678901234567890", CORRUPT: None}


def test_bytes_that_are_no_text_do_not_stop_a_query(spark: Any) -> None:
    (row,) = typed(spark, "x STRING", b"\xff\xfe{")
    assert row["x"] is None and row[CORRUPT] is not None


def test_fields_that_are_called_like_a_column_say_that_they_are_of_the_body() -> None:
    fields = StructType.fromDDL("size INT, Offset INT, body_offset INT, carrier STRING, _corrupt_record STRING")
    assert names_of(fields, ["offset", "size", "body"]) == {
        "size": "body_size",
        "Offset": "body_body_Offset",
        "body_offset": "body_offset",
        "carrier": "carrier",
        "_corrupt_record": "body__corrupt_record",
    }


def test_names_may_have_any_characters(spark: Any) -> None:
    (row,) = typed(
        spark, "`a.b` INT, `c``d` INT, `e f` STRING, `body` INT", '{"a.b": 1.0, "c`d": 2, "e f": "x", "body": 3}'
    )
    assert row == {"a.b": 1, "c`d": 2, "e f": "x", "body_body": 3, CORRUPT: None}
