"""Options and columns: what is accepted, and that everything else is refused in words."""

from __future__ import annotations

import re

import pytest

from radiator.clock import rfc3339
from radiator.columns.files import open_store
from radiator.columns.options import EARLIEST, LATEST, Positions
from radiator.columns.selection import HIGH, LOW
from radiator.errors import ConfigError
from radiator.spark.options import Use, parse
from radiator.spark.positions import parse_time
from radiator.spark.schema import SCHEMA, checked, select

pytestmark = pytest.mark.spark


def test_defaults_select_everything() -> None:
    options = parse({"path": "/data/"})
    assert options.path == "/data/"
    assert options.fail_on_data_loss
    assert not options.pushdown
    assert options.selection.offsets_of("any") == (LOW, HIGH)
    assert options.selection.wants_destination("/topic/x")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("startingoffsets", "option startingOffsets: "),  # as Spark hands it over, however it was written
        ("startingOffsets", "option startingOffsets: "),
        ("starting_offsets", "option starting_offsets: "),
        ("failondataloss", "option failOnDataLoss: "),
        ("rowsperbatch", "option rowsPerBatch: "),
        ("startingoffsetsbytimestamp", "option startingOffsetsByTimestamp: "),
        ("startingoffset", "did you mean startingOffsets?): expected path, subscribe, subscribePattern, "),
        ("starting_offset", "did you mean starting_offsets?): expected path, subscribe, subscribe_pattern, "),
    ],
)
def test_errors_spell_an_option_as_kafkas_source_or_as_the_caller_does(key: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        parse({"path": "x", key: "nonsense"})


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


def test_digits_say_by_their_number_what_they_count() -> None:
    assert parse_time("1700000000000", "x") == 1_700_000_000_000_000_000
    for text, told in [
        ("1700000000", "seconds?"),
        ("1700000000000000", "microseconds?"),
        ("17", "got 2"),
        ("-1", "got"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(told)):
            parse_time(text, "starting_timestamp")


@pytest.mark.parametrize(
    "time_ns", [0, 1, -1, 978_307_200 * 10**9, 1_700_000_000_000_000_001, -(1 << 62), -62_135_596_800 * 10**9]
)
def test_a_time_of_any_year_is_spelled_so_that_it_is_read_as_the_same(time_ns: int) -> None:
    assert parse_time(rfc3339(time_ns), "x") == time_ns


def test_names_of_kafka_mean_what_they_mean_there() -> None:
    given = {"path": "x", "subscribe": "/topic/a, /topic/b", "startingTimestamp": "1700000000000", "minPartitions": "7"}
    batch = parse(given)
    assert batch.selection.wants_destination("/topic/b")
    assert not batch.selection.wants_destination("/topic/c")
    assert batch.selection.receive_low_ns == 1_700_000_000_000_000_000
    assert batch.tasks_min == 7
    ends = {"path": "x", "startingOffsets": '{"a": -2}', "endingOffsets": '{"a": -1, "b": 4}'}
    selection = parse(ends).selection
    assert selection.offsets_of("a") == (LOW, HIGH)
    assert selection.offsets_of("b") == (LOW, 4)
    assert parse({"path": "x", "subscribePattern": "/topic/*"}).selection.wants_destination("/topic/c")


KAFKA = {  # every option of Spark's Kafka source, with a value that fits there, and whether it means something here
    "assign": ('{"a": [0]}', False),
    "subscribe": ("/topic/a", True),
    "subscribePattern": ("/topic/*", True),
    "kafka.bootstrap.servers": ("host:9092", False),
    "startingTimestamp": ("1700000000000", True),
    "startingOffsetsByTimestamp": ('{"a": 1700000000000}', True),
    "startingOffsets": ("earliest", True),
    "startingOffsetsByTimestampStrategy": ("latest", False),
    "endingTimestamp": ("1700000000000", True),
    "endingOffsetsByTimestamp": ('{"a": 1700000000000}', True),
    "endingOffsets": ("latest", True),
    "failOnDataLoss": ("false", True),
    "kafkaConsumer.pollTimeoutMs": ("120000", False),
    "fetchOffset.numRetries": ("3", False),
    "fetchOffset.retryIntervalMs": ("10", False),
    "maxOffsetsPerTrigger": ("1000", True),
    "minOffsetsPerTrigger": ("1000", False),
    "maxTriggerDelay": ("15m", False),
    "minPartitions": ("10", True),
    "maxRecordsPerPartition": ("1000", False),
    "groupIdPrefix": ("x", False),
    "kafka.group.id": ("x", False),
    "includeHeaders": ("true", False),
    "kafka.isolation.level": ("read_committed", False),
}


@pytest.mark.parametrize("key", KAFKA)
def test_an_option_of_kafkas_source_means_the_same_or_is_refused_with_what_to_write(key: str) -> None:
    value, known = KAFKA[key]
    for name in (key, key.lower()):
        if known:
            parse({"path": "x", name: value}, Use.EITHER)
        else:
            with pytest.raises(ConfigError, match=f"option '{key}' of Spark's Kafka source .*: .*(drop it|use )"):
                parse({"path": "x", name: value}, Use.STREAM)


def test_a_stream_begins_at_the_end_by_default() -> None:
    def begins(**given: str) -> Positions:
        return parse({"path": "x", **given}, Use.STREAM).begins

    assert begins() == Positions()
    assert begins(startingOffsets="earliest") == Positions(EARLIEST)
    assert begins(startingOffsets='{"a": -1, "b": -2, "c": 3}').offsets == {"a": LATEST, "b": EARLIEST, "c": 3}
    moments = begins(startingTimestamp="1700000000000", startingOffsetsByTimestamp='{"a": "2023-11-14T22:13:20Z"}')
    assert (moments.time_ns, moments.times_ns) == (1_700_000_000_000_000_000, {"a": 1_700_000_000_000_000_000})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"endingOffsets": "latest"},
            "option endingOffsets is for batch queries (spark.read), and this is spark.readSt",
        ),
        ({"end_time": "2013-01-01"}, "option end_time is for batch queries"),
        ({"pushdown": "true"}, "option pushdown is for batch queries"),
        ({"startingOffsets": "5"}, "expected earliest, latest or JSON for a stream, got 5"),
        (
            {"startingOffsets": '{"a": -3}'},
            "of partition 'a': expected an offset of 0 or more, or -2 for earliest, or -1",
        ),
        ({"startingOffsets": '{"t": {"0": 5}}'}, 'a partition has a name and no number here: expected {"t": 1000}'),
        ({"kafka.bootstrap.servers": "h:9092"}, 'use .load("<data_dir of the broker>")'),
        ({"kafka.security.protocol": "SSL"}, "connects to no broker"),
        ({"url": "stomp://h:61613"}, "option 'url' is for writing only"),
        ({"groupIdPrefix": "x"}, "the checkpoint of the query has the offsets"),
        ({"assign": "{}"}, 'use option("partition", "a,b")'),
        (
            {"subscribe": "/topic/a", "destination": "/topic/b"},
            "options subscribe and destination: expected one of them",
        ),
        ({"subscribe": "/topic/>"}, "patterns go into subscribePattern"),
        ({"subscribePattern": "flights-(a|b)"}, "looks like a regular expression"),
        ({"start_time": "2013-01-01", "startingTimestamp": "1700000000000"}, "expected one of them only"),
        ({"maxOffsetsPerTrigger": "0"}, "expected a whole number above 0"),
        ({"startingOffsetsByTimestamp": "5"}, 'expected JSON such as {"partition name": 1700000000000}'),
    ],
)
def test_options_that_a_stream_does_not_have_are_refused_with_the_reason(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        parse({"path": "x", **given}, Use.STREAM)


def test_a_batch_has_no_options_of_streams() -> None:
    with pytest.raises(
        ConfigError, match=re.escape("is for stream queries (spark.readStream), and this is spark.read:")
    ):
        parse({"path": "x", "maxOffsetsPerTrigger": "5"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "option 'path' is missing"),
        ({"path": "x", "destnation": "y"}, "did you mean destination?"),
        ({"path": "x", "start_time": "the other day"}, "option start_time: expected RFC 3339"),
        ({"path": "x", "start_time": "99"}, "option start_time: expected RFC 3339"),
        ({"path": "x", "start_time": "2013-01-31T12:00.5"}, "option start_time: expected RFC 3339"),  # half a minute?
        ({"path": "x", "start_time": "2013-01.5-31"}, "option start_time: expected RFC 3339"),
        ({"path": "x", "pushdown": "yes"}, "option pushdown: expected true or false, got 'yes'"),
        ({"path": "x", "rows_per_batch": "0"}, "option rows_per_batch: expected a whole number above 0"),
        ({"path": "x", "starting_offsets": "latest"}, "option starting_offsets: expected earliest, a number, or JSON"),
        ({"path": "x", "ending_offsets": '{"a": -2}'}, "option ending_offsets: expected latest"),
        ({"path": "x", "ending_offsets": '{"a": true}'}, "option ending_offsets: expected latest"),
        ({"path": "x", "destination": "/topic/>/x"}, "option destination: "),
        (
            {"path": "x", "startingOffsets": '{"a": 9223372036854775808}'},
            "of partition 'a': expected an offset of 9223",
        ),
        ({"path": "x", "startingOffsets": "9" * 25}, f"offset of {HIGH} at most, got '{'9' * 25}'"),
        ({"path": "x", "endingOffsets": "9" * 5000}, "999... (5000 characters)"),
        ({"path": "x", "endingOffsets": '{"a": ' + "9" * 5000 + "}"}, "option endingOffsets: expected latest"),
        ({"path": "x", "endingOffsets": "[" * 200_000}, "option endingOffsets: expected latest"),
        ({"path": "x", "endingOffsets": '{"a": 1, "a": 2}'}, "endingOffsets: expected each name once, got 'a' twice"),
        ({"path": "x", "startingOffsetsByTimestamp": '{"a": 1, "a": 1}'}, "expected each name once, got 'a' twice"),
        (
            {"path": "x", "rows_per_batch": "2147483648"},
            "option rows_per_batch: expected a whole number from 1 to 2147",
        ),
        ({"path": "x", "minPartitions": "9" * 5000}, "option minPartitions: expected a whole number from 1 to 2147483"),
        ({"path": "x", "split_bytes": str(1 << 63)}, f"option split_bytes: expected a whole number from 1 to {HIGH}"),
        ({"path": "x", "partition": ""}, "option partition: expected names of partitions, a comma list, got ''"),
        (
            {"path": "x", "partition": "a,,b"},
            "option partition: expected names of partitions, a comma list, got 'a,,b'",
        ),
        ({"path": "x", "subscribePattern": "/topic/.*"}, "looks like a regular expression"),
        ({"path": "x", "subscribePattern": "/queue/a, /topic/.+"}, "looks like a regular expression"),
        (
            {"path": "x", "startingOffsets": "5", "endingOffsets": "3"},
            "options startingOffsets and endingOffsets: expected a start before the end, got 5 and 3",
        ),
        (
            {"path": "x", "startingOffsets": '{"a": 5}', "endingOffsets": '{"b": 9, "a": 3}'},
            "options startingOffsets and endingOffsets, partition 'a': expected a start before the end",
        ),
        (
            {"path": "x", "startTime": "2013-01-02", "endingTimestamp": "2013-01-01"},
            "options startTime and endingTimestamp: expected a start before the end, got 2013-01-02 and",
        ),
        (
            {
                "path": "x",
                "startingOffsetsByTimestamp": '{"a": "2013-01-02"}',
                "endingOffsetsByTimestamp": '{"a": "2013-01-01"}',
            },
            "options startingOffsetsByTimestamp and endingOffsetsByTimestamp, partition 'a': expected a start",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_the_reason(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        parse(given)


def test_limits_that_are_still_in_range_are_accepted() -> None:
    options = parse(
        {"path": "x", "rows_per_batch": "0002147483647", "split_bytes": str(HIGH), "endingOffsets": f"{HIGH}"}
    )
    assert (options.rows_per_batch, options.split_bytes) == ((1 << 31) - 1, HIGH)
    assert options.selection.offsets_of("a") == (LOW, HIGH)
    parse(
        {
            "path": "x",
            "startingOffsets": "5",
            "endingOffsets": "5",
            "start_time": "2013-01-01",
            "end_time": "2013-01-01",
        }
    )
    parse({"path": "x", "start_time": "2300-01-01"})


@pytest.mark.parametrize(
    "pattern", ["/topic/*", "/topic/flights.*", "/topic/*.JFK", "*", ">", "/topic/#.a", "/topic/a*b"]
)
def test_our_own_patterns_are_no_regular_expressions(pattern: str) -> None:
    parse({"path": "x", "subscribePattern": pattern})


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
    with pytest.raises(ConfigError, match=re.escape("'OFFSET' is not one of a radiator store (did you mean offset?)")):
        select(["OFFSET"])
    with pytest.raises(ConfigError, match=re.escape("(Kafka's key is headers['partition-key'] here)")):
        select(["key"])


def test_a_schema_that_says_otherwise_is_refused() -> None:
    from pyspark.sql.types import LongType, MapType, StringType, StructType

    with pytest.raises(ConfigError, match="column offset: expected type bigint, got string"):
        checked(StructType().add("offset", StringType()))
    with pytest.raises(ConfigError, match="column offset is named twice"):
        checked(StructType().add("offset", LongType()).add("offset", LongType()))
    with pytest.raises(ConfigError, match="the schema is empty"):
        checked(StructType())
    with pytest.raises(ConfigError, match="column event_ns may be null: expected it without NOT NULL"):
        checked(StructType().add("event_ns", LongType(), nullable=False))
    assert checked(StructType().add("offset", LongType(), nullable=False))
    assert checked(StructType().add("offset", LongType()).add("tags", MapType(StringType(), StringType())))


def test_one_option_in_two_spellings_is_an_error_that_names_both() -> None:
    with pytest.raises(ConfigError, match="options starting_offsets and startingOffsets are two spellings"):
        parse({"path": "x", "starting_offsets": "earliest", "startingOffsets": "latest"}, Use.STREAM)
