"""The ids of rows, and the options of writing."""

from __future__ import annotations

import pytest

from radiator.errors import ConfigError
from radiator.spark import sink_ids
from radiator.spark.sink_ids import Ids
from radiator.spark.sink_options import WRITE_OPTIONS, parse

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
