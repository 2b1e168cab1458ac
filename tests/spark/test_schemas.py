"""Which schema belongs to a destination is told by the kept versions, where they leave no choice."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from radiator.columns.files import open_store
from radiator.errors import ConfigError
from radiator.routing.pattern import Pattern
from radiator.spark.schemas import covers, overlaps, schema_of
from radiator.storage.layout import encode_name

FLIGHT, GATE = {"properties": {"carrier": {"type": "string"}}}, {"properties": {"gate": {"type": "string"}}}


def keep(root: Path, match: str, version: int, schema: Any) -> str:
    path = root / "schemas" / f"{encode_name(match)}@{version}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(schema))
    return str(path)


def found(root: Path, destination: str) -> Any:
    it = schema_of(open_store(str(root)), destination)
    return None if it is None else (it[0].match, it[0].version, it[1])


def test_the_newest_version_of_the_rule_that_matches_counts(tmp_path: Path) -> None:
    for version in (1, 2, 10):
        keep(tmp_path, "/topic/flights.>", version, {**FLIGHT, "title": str(version)})
    keep(tmp_path, "/queue/gates", 1, GATE)
    newest = "/topic/flights.>", 10, {**FLIGHT, "title": "10"}
    for asked in (
        "/topic/flights.JFK",
        "/topic/flights.*",
        "/topic/flights.>",
        "/topic/flights.JFK,/topic/flights.LGA",
    ):
        assert found(tmp_path, asked) == newest
    assert found(tmp_path, "/queue/gates") == ("/queue/gates", 1, GATE)


def test_where_no_rule_matches_all_of_it_there_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, "/topic/flights.JFK") is None  # nor a directory
    keep(tmp_path, "/topic/flights.*", 1, FLIGHT)
    keep(tmp_path, "/queue/gates", 1, GATE)
    (tmp_path / "schemas" / "notes.txt").write_text("")
    (tmp_path / "schemas" / "a~b@x.json").write_text("")
    for asked in ("/topic/flights", "/topic/flights.>", "/topic/>", "#", "/topic/flights.JFK,/queue/gates"):
        assert found(tmp_path, asked) is None


def test_several_schemas_are_an_error_with_the_reason_unless_they_are_alike(tmp_path: Path) -> None:
    one, other = keep(tmp_path, "/topic/flights.>", 3, FLIGHT), keep(tmp_path, "/topic/*.JFK", 1, GATE)
    with pytest.raises(ConfigError) as told:
        found(tmp_path, "/topic/flights.JFK")
    for part in (one, other, "/topic/flights.>", "/topic/*.JFK", "schema=", "typed=False"):
        assert part in str(told.value)
    with pytest.raises(ConfigError, match="several"):
        found(tmp_path, "/topic/flights.>")  # some of them are the other rule's, or were
    assert found(tmp_path, "/topic/flights.LGA") == ("/topic/flights.>", 3, FLIGHT)
    keep(tmp_path, "/topic/*.JFK", 2, FLIGHT)
    assert found(tmp_path, "/topic/flights.JFK")[2] == FLIGHT


def test_an_expression_is_for_names_only(tmp_path: Path) -> None:
    keep(tmp_path, r"regex /topic/flights\.[A-Z]{3}", 1, FLIGHT)
    assert found(tmp_path, "/topic/flights.JFK") is not None
    assert found(tmp_path, "/topic/flights.JFKX") is None and found(tmp_path, "/topic/flights.*") is None


def test_a_damaged_schema_is_reported_with_its_path(tmp_path: Path) -> None:
    path = Path(keep(tmp_path, "/topic/a", 1, FLIGHT))
    path.write_bytes(b"{")
    with pytest.raises(ConfigError, match=r"%2Ftopic%2Fa@1\.json: expected a JSON Schema"):
        found(tmp_path, "/topic/a")


def test_patterns_are_compared_as_if_all_names_were_tried() -> None:
    parts = ("a", "b", "*", "#")
    patterns = [".".join(each) for n in (1, 2, 3) for each in product(parts, repeat=n)]
    patterns += [f"{each}.>" for each in patterns if each.count(".") < 2] + [">"]
    names = [".".join(each) for n in range(1, 6) for each in product("abc", repeat=n)]
    matched = {text: frozenset(name for name in names if Pattern(text).matches(name)) for text in patterns}
    for rule in patterns[::3]:
        for asked in patterns[::2]:
            assert covers(rule, Pattern(asked)) == (matched[asked] <= matched[rule]), (rule, asked)
            assert overlaps(rule, Pattern(asked)) == bool(matched[asked] & matched[rule]), (rule, asked)
    assert covers("a.*, a.b.>, b", Pattern("a.>")) is False and covers("a.*, a.*.>", Pattern("a.>")) is True
    assert not covers("a.b", Pattern("a/b")) and not overlaps("a.b", Pattern("a/b"))  # names, byte for byte
