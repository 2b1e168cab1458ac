"""What a read has no records for by a slip is told in words: partitions, patterns, offsets by a destination's name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from radiator.columns.near import did_you_mean
from radiator.errors import ConfigError, StorageError
from radiator.spark.options import Use, parse
from radiator.spark.schema import SCHEMA
from radiator.spark.sink_options import parse as parse_written
from radiator.spark.source import Reader
from radiator.spark.stream import StreamReader
from tests.spark.stores import Writer, numbered


@pytest.fixture
def root(tmp_path: Path) -> str:
    writer = Writer(tmp_path / "data")
    writer.write("/topic/orders.eu", numbered("/topic/orders.eu", 3))
    for number in range(3):
        writer.write(f"/topic/clicks-{number}", numbered("/topic/clicks", 1))
    writer.close()
    return writer.root


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("partition", "/topic/order.eu", "no partition '/topic/order.eu' yet; did you mean /topic/orders.eu?"),
        ("subscribePattern", "/topic/ord.*", "no destination that matches '/topic/ord.*' yet; did you mean /topic/ord"),
        ("subscribePattern", "*", "no destination that matches '*' yet; # matches all of them"),
        ("subscribePattern", "orders.*", "no destination that matches 'orders.*' yet; did you mean /topic/orders.eu?"),
        ("destination", "/topic/order.eu", "no destination '/topic/order.eu' yet; did you mean /topic/orders.eu?"),
    ],
)
def test_an_unknown_name_is_reported_on_stderr(
    root: str, option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Reader(parse({"path": root, option: value}), SCHEMA).partitions()
    assert told in capsys.readouterr().err


def test_choices_that_leave_nothing_to_each_other_are_reported(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"path": root, "subscribe": "/topic/orders.eu"}
    for more in ({"partition": "/topic/clicks-1"}, {"endingOffsets": '{"/topic/clicks-1": 1}'}):
        Reader(parse({**given, **more}), SCHEMA).partitions()
        told = capsys.readouterr().err
        assert (
            "none of these destinations in these partitions yet (/topic/clicks-1): a record must match both options"
            in told
        )
        assert told.count("\n") == 1
    Reader(parse({**given, "partition": "/topic/clicks-1,/topic/orders.eu"}), SCHEMA).partitions()
    assert capsys.readouterr().err == ""


def test_a_name_in_other_case_is_the_likeliest() -> None:
    assert did_you_mean("/topic/flights.jfk", ["/topic/flights.7", "/topic/flights.JFK"]) == (
        "; did you mean /topic/flights.JFK?"
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [("partition", "/topic/clicks-1"), ("subscribePattern", "/topic/*"), ("destination", "/topic/orders.>")],
)
def test_existing_names_are_not_reported(
    root: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Reader(parse({"path": root, option: value}), SCHEMA).partitions()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", [".*orders.*", ".*", "/topic/a,.*b", "/topic/.*eu", "^/topic/.*"])
def test_a_regular_expression_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="looks like a regular expression"):
        parse({"path": "x", "subscribePattern": text})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("/topic/clicks", "is a destination; its partitions are '/topic/clicks-0', '/topic/clicks-1', '/topic/cl"),
        ("/topic/order.eu", "did you mean '/topic/orders.eu'? It has '/topic/orders.eu', "),
        ("nothing like it", "has no partition 'nothing like it'; it has '/topic/"),
        ("/topic/clicks", "radiator.spark.snapshot"),
    ],
)
def test_offsets_by_an_unknown_partition_are_refused_with_the_closest_names(root: str, name: str, told: str) -> None:
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(StorageError, match=re.escape(told)) as error:
            Reader(parse({"path": root, option: f'{{"{name}": 0}}'}), SCHEMA).partitions()
        assert str(error.value).startswith(f"option {option}: ")
    given = {"path": root, "startingOffsets": f'{{"{name}": 0}}'}
    with pytest.raises(StorageError, match=re.escape(told)):
        StreamReader(parse(given, Use.STREAM), SCHEMA).initialOffset()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("topic", 'use option("destination", "/topic/results")'),
        ("kafka.bootstrap.servers", 'use option("url", "stomp://host:61613")'),
        ("kafka.acks", "without a Kafka producer"),
    ],
)
def test_options_of_a_kafka_sink_are_refused_with_ours(option: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        parse_written({"url": "stomp://localhost", option: "x"})


def test_a_deserializer_is_refused_with_the_cast() -> None:
    with pytest.raises(ConfigError, match="needs a cast"):
        parse({"path": "x", "key.deserializer": "StringDeserializer"})
