"""Bodies become structs by a JSON Schema, or have a reason why not; the stored rules say which schema counts."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.columns import schema as table
from radiator.columns.bodies import BodyDecoder
from radiator.columns.evolution import evolve
from radiator.columns.files import open_store
from radiator.columns.json_schema import struct_of
from radiator.columns.typed import TypedColumns, Typing, conform, typed_columns
from radiator.config.load import load_text
from radiator.decoder import decoder
from radiator.errors import ConfigError, StorageError
from radiator.server.hooks import load_hooks, register_schemas
from radiator.storage.files import FileSystem
from radiator.storage.typed_rules import TAKEN, TypedRule, derived_column, encode, path, read

FIELDS = {
    "n": {"type": "integer", "minimum": 0, "maximum": 9},
    "big": {"type": "integer", "maximum": 10**30},
    "x": {"type": "number"},
    "s": {"type": "string"},
    "b": {"type": "boolean"},
    "t": {"type": "string", "format": "date-time"},
    "d": {"type": "string", "format": "date"},
    "any": {},
    "list": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    "map": {"type": "object", "additionalProperties": {"properties": {"y": {"type": "number"}}}},
    "o": {"properties": {"z": {"type": "integer"}, "a b": {"type": "string"}}},
}


def decoded(*bodies: Any, **fields: Any) -> tuple[list[Any], dict[int, str]]:
    kind = struct_of({"properties": fields or FIELDS})
    found = BodyDecoder(kind).decode(
        [each if isinstance(each, bytes) else json.dumps(each).encode() for each in bodies]
    )
    found.column.validate(full=True)
    return found.column.to_pylist(maps_as_pydicts="strict"), found.reasons


def test_each_value_has_the_type_of_its_field() -> None:
    given = {
        "n": 1.0, "big": 10**29, "x": 1, "s": "é", "b": True, "t": "2013-01-01T05:15:00+01:00", "d": "2013-02-03",
        "any": [1, "x"], "list": [[1, 2.0, None], None], "map": {"k": {"y": 1}, "l": None}, "o": {"a b": ""}, "more": 1,
    }  # fmt: skip
    (row, empty), bad = decoded(given, {})
    assert not bad and set(empty.values()) == {None}
    assert str(row.pop("t")) == "2013-01-01 04:15:00+00:00" and str(row.pop("d")) == "2013-02-03"
    assert row == {
        "n": 1, "big": Decimal(10**29), "x": 1.0, "s": "é", "b": True, "any": '[1, "x"]', "list": [[1, 2, None], None],
        "map": {"k": {"y": 1.0}, "l": None}, "o": {"z": None, "a b": ""},
    }  # fmt: skip


@pytest.mark.parametrize("used", [[], ["n"], ["s", "map"], list(FIELDS)])
def test_the_values_of_used_fields_and_the_reasons_do_not_depend_on_what_else_is_used(used: list[str]) -> None:
    kind = struct_of({"properties": FIELDS})
    documents = [
        {"n": 1, "s": "a", "map": {"k": {"y": 1}}, "b": True},
        {"big": 10**38},
        {"s": 3},
        {"o": {"z": 1.5}},
        {},
    ]
    bodies = [json.dumps(each).encode() for each in documents]
    whole, part = BodyDecoder(kind).decode(bodies), BodyDecoder(kind, used=used).decode(bodies)
    part.column.validate(full=True)
    assert part.reasons == whole.reasons and sorted(part.reasons) == [1, 2, 3]
    assert part.column.is_null() == whole.column.is_null() and part.column.type == whole.column.type
    for name in used:
        assert part.column.field(name) == whole.column.field(name)
    assert part.column.field("b").null_count == (4 if "b" in used else 5)


@pytest.mark.parametrize(
    "body, reason",
    [
        (b"", "truncated"),
        (b"{} {}", "trailing"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        ({"n": "1"}, "Expected `int`, got `str` at `n`"),
        ({"n": True}, "Expected `int`, got `bool` at `n`"),
        ({"n": 1.5}, "got 1.5 at `n`"),
        ({"n": 1e300}, "got 1e+300 at `n`"),
        ({"n": 1 << 63}, "got 9223372036854775808 at `n`"),
        ({"big": 10**40}, "at `big`"),
        ({"list": [[1], [0.5]]}, "got 0.5 at `list[][]`"),
        ({"map": {"k": {"y": "no"}}}, "Expected `float`, got `str` at `map[...].y`"),
        ({"o": {"z": -0.5}}, "got -0.5 at `o.z`"),
        ({"o": 1}, "at `o`"),
        ({"t": "yesterday"}, "at `t`"),
        ({"d": "2013-02-30"}, "at `d`"),
        (b'{"x": NaN}', "malformed"),
        (b'{"x": 1e999}', "out of range"),
        (b'{"s": "\xff"}', "not UTF-8"),
        (b'{"any": ["\xff"]}', "not UTF-8"),
        (b"[" * 100_000, "Expected `object`"),
        (b'{"zz": ' + b"[" * 100_000, "nested too deeply"),
    ],
    ids=str,
)
def test_a_body_that_does_not_fit_is_null_and_has_a_reason_and_its_neighbours_are_not(body: Any, reason: str) -> None:
    rows, bad = decoded({"n": 1}, body, {"n": 2})
    assert [row and row["n"] for row in rows] == [1, None, 2] and list(bad) == [1]
    assert reason in bad[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "z", "y"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.thorough
@given(st.lists(st.dictionaries(st.sampled_from([*FIELDS, "other"]), JSON, max_size=5) | JSON, max_size=6))
def test_every_body_is_typed_or_rejected_whatever_its_neighbours_are(documents: list[Any]) -> None:
    rows, bad = decoded(*documents)
    assert [row is None for row in rows] == [place in bad for place in range(len(documents))]
    for place, document in enumerate(documents):
        assert decoded(document)[0] == [rows[place]]


def test_names_of_columns_that_a_rule_may_not_have_are_those_of_the_table() -> None:
    assert {"date", "rejected", "_corrupt_record", *table.BY_NAME} == TAKEN


@pytest.mark.parametrize(
    "document, file, column",
    [
        ({"title": "Flight, Departed"}, "f.json", "flight_departed"),
        ({"title": ""}, "/srv/gate-v2.json", "gate_v2"),
        ({"title": "2 gates"}, "f.json", "_2_gates"),
        ({"title": "Headers"}, "f.json", "headers_body"),
        ({"title": "Ü"}, "Ä.json", "typed_body"),
        (True, "x/y.z/flight", "typed_body"),
    ],
)
def test_a_column_is_named_after_the_title_or_the_file(document: Any, file: str, column: str) -> None:
    assert derived_column(document, file) == column


def test_the_broker_does_not_validate_bodies_that_a_decoder_reads(tmp_path: Path) -> None:
    pytest.importorskip("jsonschema_rs")
    (tmp_path / "a.json").write_text(json.dumps(A))
    rules = f"[{{match: /a, schema: {tmp_path}/a.json}}, {{match: /b, schema: {tmp_path}/a.json, decoder: 'm:f'}}]"
    assert load_hooks(load_text(f"destinations: {rules}", "r.yaml").rules, "r.yaml").keys() == {0}


def registered(root: Path, rules: str, **schemas: Any) -> str:
    for name, schema in schemas.items():
        (root / f"{name}.json").write_text(json.dumps(schema))
    config = load_text("destinations:\n" + rules.replace("DIR", str(root)), "r.yaml")
    load_hooks(config.rules, "r.yaml")
    register_schemas(config.rules, "r.yaml", FileSystem(), str(root / "data"))
    return str(root / "data")


A, B = {"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "integer"}}}


def test_the_first_rule_that_matches_decides_and_the_newest_version_counts(tmp_path: Path) -> None:
    rules = """
      - {match: /topic/plain}
      - {match_regex: "/topic/[ab]+", schema: DIR/one.json}
      - {match: /topic/>, schema: DIR/two.json, schema_changes: any}
      - {match: /queue/last}
    """
    registered(tmp_path, rules, one=A, two=A)
    data = registered(tmp_path, rules, one=A, two=B)
    typed = typed_columns(open_store(data))
    assert [each.match for each in typed.rules] == ["/topic/plain", "regex /topic/[ab]+", "/topic/>"]
    assert typed.fields() == [
        pa.field("one", pa.struct([("a", pa.int64())])), pa.field("two", pa.struct([("b", pa.int64())])),
        pa.field("rejected", pa.string()),
    ]  # fmt: skip
    names = ["/topic/plain", "/topic/ab", "/topic/c", "/queue/x", "/topic/abc", "/temp-topic/x"]
    batch = pa.record_batch([pa.array(names), pa.array([b'{"a": 1, "b": 2}'] * 6)], ["destination", "body"])
    found = Typing(typed, pa.schema(typed.fields())).add(batch).to_pylist()
    assert [row["one"] for row in found] == [None, {"a": 1}, None, None, None, None]
    assert [row["two"] for row in found] == [None, None, {"b": 2}, None, {"b": 2}, None]
    assert {row["rejected"] for row in found} == {None}
    assert typed_columns(open_store(registered(tmp_path, "  - {match: /topic/plain}\n"))).fields() == []


@pytest.mark.parametrize(
    "rules, wanted",
    [
        (
            "  - {match: /a, schema: DIR/a.json}\n  - {match: /b, schema: DIR/b.json, schema_column: a}\n",
            "column 'a' is that of the rule on line 2, which has another schema",
        ),
        ("  - {match: /a, schema: DIR/a.json, schema_column: Headers}\n", "not a column of the table, got 'Headers'"),
        ("  - {match: /a, schema: DIR/a.json, schema_column: a-b}\n", "expected none or a name such as flight"),
        ("  - {match: /a, decoder: 'a:b'}\n", "decoder: expected a schema too"),
    ],
)
def test_rules_that_contradict_each_other_are_a_fault_of_the_configuration(
    rules: str, wanted: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=wanted):
        registered(tmp_path, rules, a=A, b=B)


def test_a_damaged_list_of_rules_is_an_error_and_a_missing_one_is_none(tmp_path: Path) -> None:
    assert read(FileSystem(), str(tmp_path)) == ()
    (tmp_path / "schemas").mkdir()
    file = Path(path(str(tmp_path)))
    for text, wanted in [(b"{", "damage"), (b'{"format": 2, "rules": []}', "newer"), (b'{"format": 1}', "damage")]:
        file.write_bytes(text)
        with pytest.raises(StorageError, match=wanted):
            read(FileSystem(), str(tmp_path))
    file.write_bytes(encode([TypedRule("/a", "s@1.json", "a"), TypedRule("/b")]))
    assert read(FileSystem(), str(tmp_path)) == (TypedRule("/a", "s@1.json", "a"),)


def unmarked(body: bytes, headers: dict[str, str]) -> Any:
    raise AssertionError("called")


@decoder
def marked(body: bytes, headers: dict[str, str]) -> Any:
    return {"a": int(body), "note": body} if body != b"none" else object()


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("os:system", "marked with @decoder"),
        ("tests.columns.test_typed:unmarked", "marked with @decoder"),
        ("tests.nowhere:x", "PYTHONPATH"),
        ("tests.columns.test_typed:nothing", "PYTHONPATH"),
    ],
)
def test_a_data_directory_cannot_name_any_function(name: str, wanted: str) -> None:
    typed = TypedColumns((TypedRule("/a", "s", "a", name),), {"a": struct_of(A)})
    batch = pa.record_batch([pa.array(["/b", "/a"]), pa.array([b"1", b"1"])], ["destination", "body"])
    typing = Typing(typed, pa.schema(typed.fields()))
    assert typing.add(batch[:1]).to_pylist() == [{"a": None, "rejected": None}]
    with pytest.raises(ConfigError, match=wanted):
        typing.add(batch)


def test_errors_of_a_decoder_are_rejects() -> None:
    rule = TypedRule("/a", "s", "a", "tests.columns.test_typed:marked")
    typed = TypedColumns((rule,), {"a": struct_of(A)})
    batch = pa.record_batch(
        [pa.array(["/a"] * 3), pa.array([b"1", b"x", b"none"]), pa.array([[]] * 3, pa.map_(pa.string(), pa.string()))],
        ["destination", "body", "headers"],
    )
    rows = Typing(typed, pa.schema(typed.fields())).add(batch).to_pylist()
    assert [row["a"] for row in rows] == [{"a": 1}, None, None]
    assert "the decoder failed: ValueError" in rows[1]["rejected"] and "not JSON" in rows[2]["rejected"]


def test_a_decoder_that_exits_makes_a_reject_and_does_not_end_the_reader() -> None:
    found = BodyDecoder(struct_of(A), lambda body, headers: sys.exit(3)).decode([b"1"])
    assert found.reasons == {0: "the decoder failed: SystemExit: 3"}


def struct(**fields: Any) -> list[pa.Field]:
    return [pa.field("f", pa.struct(list(fields.items())))]


def test_a_stored_struct_gets_new_fields_and_keeps_those_that_the_schema_no_longer_has() -> None:
    inner = pa.struct([("x", pa.int64())])
    old = struct(a=pa.int64(), gone=pa.string(), l=pa.list_(inner), m=pa.map_(pa.string(), inner))
    more = pa.struct([("y", pa.string())])
    new = [*struct(a=pa.int64(), l=pa.list_(more), m=pa.map_(pa.string(), more), b=pa.bool_()), pa.field("g", inner)]
    both = pa.struct([("x", pa.int64()), ("y", pa.string())])
    f, g = evolve(old, new)
    wanted = struct(a=pa.int64(), gone=pa.string(), l=pa.list_(both), m=pa.map_(pa.string(), both), b=pa.bool_())
    assert [f] == wanted and g.type == inner
    assert evolve([f, g], new) == [f, g] and evolve([], old) == old
    rows = [
        {"a": 1, "l": [{"y": "q"}, None], "m": {"k": {"y": "r"}}, "b": True},
        None,
        {"a": None, "l": None, "m": None},
    ]
    grown = conform(pa.array(rows, new[0].type), f.type)
    grown.validate(full=True)
    assert grown.to_pylist(maps_as_pydicts="strict") == [
        {"a": 1, "gone": None, "l": [{"x": None, "y": "q"}, None], "m": {"k": {"x": None, "y": "r"}}, "b": True},
        None,
        {"a": None, "gone": None, "l": None, "m": None, "b": None},
    ]


@pytest.mark.parametrize(
    "old, new, told",
    [
        (pa.int64(), pa.float64(), "f.x: the stored records have type int64, and the schema now says double"),
        (pa.float64(), pa.int64(), "f.x: the stored records have type double, and the schema now says int64"),
        (pa.string(), pa.struct([("y", pa.int64())]), "f.x: the stored records have type string"),
        (pa.list_(pa.int64()), pa.list_(pa.string()), r"f.x\[\]: the stored records have type int64"),
    ],
)
def test_a_field_with_another_type_is_refused_with_both_types_and_the_remedy(old: Any, new: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"{told}.*another schema_column \\(such as f_2\\)"):
        evolve(struct(x=old), struct(x=new))
    with pytest.raises(ConfigError, match="column f.X: the stored records have x"):
        evolve(struct(x=old), struct(X=old))
