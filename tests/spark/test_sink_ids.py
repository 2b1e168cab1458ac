"""The ids of rows, and the options of writing."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from radiator.errors import ConfigError
from radiator.spark import sink_ids, sink_rows
from radiator.spark.sink_ids import Ids
from radiator.spark.sink_options import WRITE_OPTIONS, parse
from radiator.spark.sink_rows import Rows

URL = {"url": "stomp://localhost"}


def ids(dedup: str = "row", by_columns: bool = False, partition: int = 3) -> Ids:
    return Ids("query", "12", partition, dedup, by_columns)


def test_an_id_says_query_epoch_partition_and_row() -> None:
    assert ids().of(b"\x01\xab") == "query/12/3/01ab"
    assert ids("number").of(b"\x01\xab") == "query/12/3/0"
    assert ids(by_columns=True).of(b"\x01\xab") == "query/01ab"
    assert ids().of(b"\x01\xab", placed=True) == "query/12/01ab"
    assert ids("none").of(b"\x01\xab") is None


def test_rows_that_are_alike_have_different_ids_and_the_same_ones_in_any_order() -> None:
    forth, back = ids(), ids()
    contents = [b"a", b"b", b"a", b"c", b"a"]
    there = [forth.of(each) for each in contents]
    assert len(set(there)) == 5
    assert sorted(there, key=str) == sorted((back.of(each) for each in reversed(contents)), key=str)


def test_the_ids_of_a_large_task_depend_on_no_order() -> None:
    contents = [number.to_bytes(12, "little") for number in range(1, 300_000)] + [bytes([7]) * 12] * 3
    forth, back = ids(), ids()
    there = {forth.of(each) for each in contents}
    assert len(there) == len(contents)
    assert there == {back.of(each) for each in reversed(contents)}


def test_records_of_a_log_have_the_same_ids_in_however_many_tasks() -> None:
    contents = [number.to_bytes(12, "little") for number in range(1, 5_000)]
    one, tasks = ids(), [ids(partition=0), ids(partition=1)]
    alone = {one.of(each, placed=True) for each in contents}
    assert alone == {tasks[number % 2].of(each, placed=True) for number, each in enumerate(contents)}


def test_a_task_with_more_rows_than_ids_is_an_error_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_ids, "CONTENTS_MAX", 10)
    monkeypatch.setattr(sink_ids, "REPEATED_MAX", 2)
    some = ids()
    for number in (*range(1, 11), 1, 1, 2):
        some.of(number.to_bytes(12, "little"))
    with pytest.raises(ConfigError, match=r"more than 10 rows of different content.*repartition\(\)"):
        some.of((99).to_bytes(12, "little"))
    with pytest.raises(ConfigError, match="more than 2 contents that come more than once"):
        some.of((3).to_bytes(12, "little"))


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
        (URL | {"path": "./data"}, "option 'path' has no meaning for writing"),
        (URL | {"dedup": "maybe"}, "option dedup: expected row (or true), number, none (or false), got 'maybe'"),
        (URL | {"dedup": "none", "dedup_by": "a"}, "expected dedup=row or no dedup with dedup_by, got dedup=none"),
        (URL | {"dedup_by": "a,,b"}, "option dedup_by: expected names of columns"),
        (URL | {"dedup_by": "a", "dedupBy": "b"}, "options dedup_by and dedupBy are two spellings of one"),
        (URL | {"timeout": "soon"}, "option timeout: expected seconds above 0, such as 30 or 30s, got 'soon'"),
        (URL | {"messages_per_receipt": "0"}, "option messages_per_receipt: expected a whole number above 0"),
        (URL | {"query": " "}, "option query: expected a name"),
        (URL | {"query": "q", "epoch": "-1"}, "option epoch: expected the number that foreachBatch gives, or batch, g"),
        (URL | {"epoch": "1"}, "option epoch: expected the option query too"),
        (URL | {"destination": ""}, "option destination: expected a name"),
        (URL | {"passcode": "a", "passcode_file": "b"}, "expected one of the two"),
        (
            URL | {"ca": "ca.pem"},
            "option ca: expected an address with TLS (stomp+tls:// or wss://) in option url, got localhost:61613",
        ),
        (URL | {"passcode_file": "/not/there"}, "option passcode_file: '/not/there' cannot be read"),
    ],
)
def test_options_that_do_not_fit_are_reported(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(given)
    assert told in str(caught.value)


def test_what_may_be_a_passcode_is_in_no_error() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"url": "stomp://ann:secret@host:port"})
    assert "secret" not in str(caught.value)


MAP = MapType(StringType(), StringType())


def test_a_column_of_dedup_by_may_have_any_type_unless_it_is_sent() -> None:
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


def test_a_row_has_the_same_digest_in_any_order() -> None:
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


def rows_of(columns: dict[str, DataType], **options: str) -> Rows:
    schema = StructType([StructField(name, type_) for name, type_ in columns.items()])
    return Rows(schema, parse(URL | {"destination": "/topic/a"} | options))


def table_of(columns: dict[str, DataType], **values: list[object]) -> pa.RecordBatch:
    schema = StructType([StructField(name, type_) for name, type_ in columns.items()])
    return pa.table(values, schema=to_arrow_schema(schema)).to_batches()[0]


def test_only_a_row_that_says_its_place_is_reported_by_it() -> None:
    columns: dict[str, DataType] = {"message_id": StringType(), "body": StringType()}
    found = rows_of(columns).read(table_of(columns, message_id=["a@1", None], body=["x", "x"]), 0)
    assert [row.placed for row in found] == [True, False]
    columns = {"partition": StringType(), "offset": LongType(), "body": StringType()}
    batch = table_of(columns, partition=["a", None, "a"], offset=[1, 1, None], body=["x"] * 3)
    assert [row.placed for row in rows_of(columns).read(batch, 0)] == [True, False, False]
    columns = {"partition": LongType(), "offset": LongType(), "body": StringType()}  # as Kafka's: of which topic?
    batch = table_of(columns, partition=[1], offset=[1], body=["x"])
    assert [row.placed for row in rows_of(columns).read(batch, 0)] == [False]


def test_a_digest_does_not_depend_on_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, DataType] = {"body": StringType(), "headers": MAP}
    batch = table_of(columns, body=["x"], headers=[[("deliver-at", "1000")]])
    found = []
    for time_ms in (999, 1001):
        monkeypatch.setattr(sink_rows, "now_ns", lambda time_ms=time_ms: time_ms * 1_000_000)
        found += rows_of(columns).read(batch, 0)
    assert [row.message.headers for row in found] == [{"deliver-at": "1000"}, {}]
    assert found[0].digest == found[1].digest


def test_columns_that_identify_rows_are_never_null_and_have_no_maps() -> None:
    columns: dict[str, DataType] = {"order": LongType(), "lines": ArrayType(LongType()), "body": StringType()}
    batch = table_of(columns, order=[1, 1], lines=[[2], None], body=["x", "x"])
    with pytest.raises(ConfigError, match="row 8: column lines of option dedup_by is null"):
        list(rows_of(columns, dedup_by="order,lines").read(batch, 7))
    for kind in (MAP, ArrayType(MAP)):
        with pytest.raises(ConfigError, match="option dedup_by: column 'lines' has maps"):
            rows_of({**columns, "lines": kind}, dedup_by="order,lines")


@pytest.mark.parametrize("dedup", ["row", "none"])
def test_ids_of_the_first_sending_are_left_out_whatever_dedup_says(dedup: str) -> None:
    columns: dict[str, DataType] = {"body": StringType(), "headers": MAP, "dedup_id": StringType()}
    there = [("dedup-id", "d"), ("producer-id", "p"), ("sequence", "1"), ("x", "y")]
    batch = table_of(columns, body=["x", "x"], headers=[there, there], dedup_id=[None, "mine"])
    found = [row.message.headers for row in rows_of(columns, dedup=dedup).read(batch, 0)]
    assert found == [{"x": "y"}, {"x": "y", "dedup-id": "mine"}]


def test_a_priority_that_no_queue_has_is_reported_with_its_row() -> None:
    columns: dict[str, DataType] = {"body": StringType(), "priority": LongType()}
    found = rows_of(columns).read(table_of(columns, body=["x"] * 3, priority=[0, 9, None]), 0)
    assert [row.message.headers.get("priority") for row in found] == ["0", "9", None]
    for bad in (-1, 10):
        with pytest.raises(ConfigError, match=f"row 8: column priority: expected 0 to 9, got {bad}"):
            list(rows_of(columns).read(table_of(columns, body=["x", "x"], priority=[4, bad]), 7))
