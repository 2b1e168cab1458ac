"""The ids of rows, and the options of writing."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from radiator.errors import ConfigError
from radiator.spark import sink_ids
from radiator.spark.sink_ids import Ids
from radiator.spark.sink_options import WRITE_OPTIONS, parse
from radiator.spark.sink_rows import Rows

URL = {"url": "stomp://localhost"}


def ids(dedup: str = "row", by_columns: bool = False, partition: int | None = 3) -> Ids:
    return Ids("query", "12", partition, dedup, by_columns)


def test_an_id_says_query_epoch_partition_and_row() -> None:
    assert ids().of(b"\x01\xab") == "query/12/3/01ab"
    assert ids("number").of(b"\x01\xab") == "query/12/3/0"
    assert ids(by_columns=True).of(b"\x01\xab") == "query/01ab"
    assert ids(partition=None).of(b"\x01\xab") == "query/12/01ab"
    assert ids("none").of(b"\x01\xab") is None


def test_rows_that_are_alike_have_different_ids_and_the_same_ones_in_any_order() -> None:
    forth, back = ids(), ids()
    contents = [b"a", b"b", b"a", b"c", b"a"]
    there = [forth.of(each) for each in contents]
    assert len(set(there)) == 5
    assert sorted(there, key=str) == sorted((back.of(each) for each in reversed(contents)), key=str)


def test_rows_are_counted_in_blocks_and_none_has_the_id_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_ids, "BLOCK_ROWS", 10)
    some = ids()
    assert len({some.of(b"same") for _ in range(35)}) == 35
    assert len(some._alike) == 1


def test_options_have_the_names_of_the_table_and_defaults() -> None:
    options = parse(
        {"URL": "stomp://ann:secret@host:1", "messagesPerReceipt": "7", "checkpointLocation": "/x", "queryName": "q"}
    )
    assert (options.address, options.login, options.passcode) == ("host:1", "ann", "secret")
    assert (options.messages_per_receipt, options.dedup, options.timeout_seconds) == (7, "row", 60)
    assert "secret" not in repr(options) and "secret" not in options.address
    assert {each.name for each in WRITE_OPTIONS} >= {"url", "destination", "dedup_by", "query"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "option 'url' is missing"),
        ({"url": "http://x"}, "option url: expected host:port"),
        (URL | {"dedupe": "true"}, "option 'dedupe' is not known for writing (did you mean dedup?)"),
        (URL | {"path": "./data"}, "option 'path' means nothing when rows are written"),
        (URL | {"dedup": "maybe"}, "option dedup: expected row (or true), number, none (or false), got 'maybe'"),
        (URL | {"dedup": "none", "dedup_by": "a"}, "dedup_by says what the ids are made of"),
        (URL | {"dedup_by": "a,,b"}, "option dedup_by: expected names of columns"),
        (URL | {"timeout": "soon"}, "option timeout: expected seconds above 0, such as 30 or 30s, got 'soon'"),
        (URL | {"messages_per_receipt": "0"}, "option messages_per_receipt: expected a whole number above 0"),
        (URL | {"query": " "}, "option query: expected a name"),
        (URL | {"destination": ""}, "option destination: expected a name"),
        (URL | {"passcode": "a", "passcode_file": "b"}, "expected one of the two"),
        (URL | {"passcode_file": "/not/there"}, "option passcode_file: '/not/there' cannot be read"),
    ],
)
def test_options_that_do_not_fit_are_told(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(given)
    assert told in str(caught.value)


def test_what_may_be_a_passcode_is_in_no_error() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"url": "stomp://ann:secret@host:port"})
    assert "secret" not in str(caught.value)


MAP = MapType(StringType(), StringType())


def test_a_column_that_tells_rows_apart_may_be_any_and_is_still_what_it_must_be() -> None:
    def rows(columns: dict[str, DataType], **options: str) -> Rows:
        schema = StructType([StructField(name, type_) for name, type_ in columns.items()])
        return Rows(schema, parse(URL | {"destination": "/topic/a"} | options))

    rows({"body": StringType(), "place": ArrayType(LongType())}, dedup_by="place")
    with pytest.raises(ConfigError, match="column body: expected string or binary, got bigint"):
        rows({"body": LongType()}, dedup_by="body")
    with pytest.raises(ConfigError, match="option dedup_by: there is no column 'plaice'; expected body, place"):
        rows({"body": StringType(), "place": LongType()}, dedup_by="place,plaice")
    with pytest.raises(ConfigError, match="column 'place' cannot be written"):
        rows({"body": StringType(), "place": LongType()})


def test_a_row_has_the_same_digest_wherever_it_stands() -> None:
    fields = {"body": StringType(), "tags": MAP, "event_ns": LongType()}
    schema = StructType([StructField(name, type_) for name, type_ in fields.items()])
    tags = [[("x", "1"), ("y", "2")], [], [("y", "2"), ("x", "1")]]
    table = pa.table({"body": ["a", "b", "a"], "tags": tags, "event_ns": [1, 2, 1]}, schema=to_arrow_schema(schema))
    batch = table.to_batches()[0]
    first, other, again = Rows(schema, parse(URL | {"destination": "/topic/a"})).read(batch, 0)
    assert first.digest == again.digest != other.digest
    assert first.message == ("/topic/a", "a", {"tag-x": "1", "tag-y": "2", "event-time": "1"})
    moved, *_ = Rows(schema, parse(URL | {"destination": "/topic/b"})).read(batch, 7)
    assert moved.digest != first.digest
