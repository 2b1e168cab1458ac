"""Options and columns: what is accepted, and that everything else is refused in words."""

from __future__ import annotations

import re

import pytest

from radiator.columns.files import open_store
from radiator.columns.selection import HIGH, LOW
from radiator.errors import ConfigError
from radiator.spark.options import parse, parse_time
from radiator.spark.schema import SCHEMA, checked, select

pytestmark = pytest.mark.spark


def test_defaults_select_everything() -> None:
    options = parse({"path": "/data/"})
    assert options.path == "/data/"
    assert options.fail_on_data_loss
    assert not options.pushdown
    assert options.selection.offsets_of("any") == (LOW, HIGH)
    assert options.selection.wants_destination("/topic/x")


def test_snake_case_camel_case_and_lower_case_are_one_name() -> None:
    for name in ("fail_on_data_loss", "failOnDataLoss", "failondataloss"):
        assert not parse({"path": "x", name: "false"}).fail_on_data_loss


def test_destinations_are_names_and_patterns() -> None:
    wants = parse({"path": "x", "destination": "/topic/flights.>,/queue/delays"}).selection.wants_destination
    assert wants("/topic/flights.JFK")
    assert wants("/queue/delays")
    assert not wants("/topic/flights")
    assert not wants("/queue/other")


def test_offsets_by_number_and_by_partition() -> None:
    given = {"path": "x", "startingOffsets": "5", "ending_offsets": '{"a": 9, "b": 3}'}
    selection = parse(given).selection
    assert selection.offsets_of("a") == (5, 9)
    assert selection.offsets_of("b") == (5, 3)
    assert not selection.wants_partition("c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000000001", 1_700_000_000_000_000_001),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000_000),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500_000_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000_000_000),
        ("2023-11-14", 1_699_920_000_000_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, "start_time") == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "option 'path' is missing"),
        ({"path": "x", "destnation": "y"}, "did you mean destination?"),
        ({"path": "x", "start_time": "yesterday"}, "option start_time: expected RFC 3339"),
        ({"path": "x", "start_time": "99"}, "option start_time: expected RFC 3339"),
        ({"path": "x", "pushdown": "yes"}, "option pushdown: expected true or false, got 'yes'"),
        ({"path": "x", "rows_per_batch": "0"}, "option rows_per_batch: expected a whole number above 0"),
        ({"path": "x", "starting_offsets": "latest"}, "option starting_offsets: expected earliest, a number, or JSON"),
        ({"path": "x", "ending_offsets": '{"a": -1}'}, "option ending_offsets: expected latest"),
        ({"path": "x", "ending_offsets": '{"a": true}'}, "option ending_offsets: expected latest"),
        ({"path": "x", "destination": "/topic/>/x"}, "option destination: "),
    ],
)
def test_a_wrong_option_is_told_in_words(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        parse(given)


def test_a_file_uri_is_a_path() -> None:
    assert open_store(parse({"path": "file:///srv/my%20data/"}).path).root == "/srv/my data"
    assert open_store(parse({"path": "file:/srv/data"}).path).root == "/srv/data"


def test_options_of_storage_are_those_of_the_file_system() -> None:
    options = parse({"path": "s3://bucket/data", "storage.region": "eu-west-1", "Storage.anonymous": "true"})
    assert options.storage == {"region": "eu-west-1", "anonymous": "true"}


def test_columns_are_chosen_by_name() -> None:
    assert select(["size", "destination"]).names == ["size", "destination"]
    assert select(SCHEMA.names) == SCHEMA
    with pytest.raises(ConfigError, match=re.escape("'bdy' is not one of a radiator store (did you mean body?)")):
        select(["bdy"])


def test_a_schema_with_a_wrong_type_is_refused() -> None:
    from pyspark.sql.types import LongType, MapType, StringType, StructType

    with pytest.raises(ConfigError, match="column offset: expected type bigint, got string"):
        checked(StructType().add("offset", StringType()))
    with pytest.raises(ConfigError, match="column offset is named twice"):
        checked(StructType().add("offset", LongType()).add("offset", LongType()))
    assert checked(StructType().add("offset", LongType()).add("tags", MapType(StringType(), StringType())))
