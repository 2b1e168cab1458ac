"""Batches to columns: every value arrives, whatever the batches look like; what is not wanted is not decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radiator.columns import decode, scan
from radiator.columns.batches import Batches
from radiator.columns.decode import Counters, Decoder
from radiator.columns.schema import COLUMNS, arrow_schema
from radiator.columns.selection import Selection
from radiator.storage.header import HEADER_BYTES, DamagedBatch
from radiator.storage.layout import message_id
from tests.columns.segments import Placed, read_rows, whole, write_segment
from tests.spark.stores import MS, START_NS, Message, numbered

pytestmark = pytest.mark.spark

TIMES = st.one_of(st.none(), st.integers(-(10**18), 4 * 10**18))
MESSAGES = st.builds(
    Message,
    st.sampled_from(["/topic/a", "/topic/b", "/queue/ä"]),
    st.binary(max_size=40),
    st.sampled_from([b"", b"a:b", b"tag-x:1\nn:v\\c"]),
    st.just(START_NS),
    TIMES,
    TIMES,
)
BATCHES = st.lists(st.lists(MESSAGES, min_size=1, max_size=7), min_size=1, max_size=9)


def expected_rows(placed: list[Placed]) -> list[dict[str, Any]]:
    rows = []
    for batch in placed:
        deltas = batch.deltas or range(len(batch.messages))
        for delta, each in zip(deltas, batch.messages, strict=True):
            offset = batch.base_offset + delta
            rows.append(
                {
                    "destination": each.destination,
                    "partition": "p",
                    "offset": offset,
                    "message_id": message_id("p", offset),
                    "receive_ns": each.receive_ns,
                    "event_ns": each.event_ns,
                    "transmit_ns": each.transmit_ns,
                    "body": each.body,
                    "size": len(each.body),
                    "tags": [("x", "1")] if each.block.startswith(b"tag") else [],
                    "headers": {b"": [], b"a:b": [("a", "b")]}.get(each.block, [("tag-x", "1"), ("n", "v:")]),
                }
            )
    return rows


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.endswith("_time")} for row in rows]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, st.sampled_from([1, 3, 16_384]), st.sampled_from([0, 3]))
def test_every_value_of_every_record_arrives(
    tmp_path: Path, batches: list[list[Message]], rows_per_batch: int, level: int
) -> None:
    placed = write_segment(tmp_path / "s.rlog", batches, level=level)
    rows = read_rows(whole(tmp_path / "s.rlog", placed), rows_per_batch=rows_per_batch)
    assert without_times(rows) == expected_rows(placed)
    for row in rows:
        for name in ("receive", "event", "transmit"):
            ns, time = row[f"{name}_ns"], row[f"{name}_time"]
            assert (time is None) == (ns is None)
            if ns is not None:  # cut, not rounded, also before 1970
                assert round(time.timestamp()) in (ns // 10**9, ns // 10**9 + 1)
                assert time.microsecond == ns // 1000 % 10**6


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, st.integers(0, 8), st.integers(0, 30), st.integers(0, 9), st.sampled_from([0, 3]))
def test_sparse_batches_of_a_compacted_log(
    tmp_path: Path, batches: list[list[Message]], step: int, gap: int, lead: int, level: int
) -> None:
    deltas = [
        None if i % 3 == 2 else [lead + n * (step + 1) + (gap if n else 0) for n in range(len(each))]
        for i, each in enumerate(batches)
    ]
    placed = write_segment(tmp_path / "s.rlog", batches, deltas, level)
    assert without_times(read_rows(whole(tmp_path / "s.rlog", placed))) == expected_rows(placed)


@pytest.mark.parametrize("column", [column.name for column in COLUMNS])
def test_a_column_alone_is_the_column_among_all(tmp_path: Path, column: str) -> None:
    placed = write_segment(tmp_path / "s.rlog", [numbered("/topic/a", 5, color="red"), numbered("/topic/b", 1, 5)])
    wanted = whole(tmp_path / "s.rlog", placed)
    assert [row[column] for row in read_rows(wanted, columns=[column])] == [row[column] for row in read_rows(wanted)]


def test_headers_are_split_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = write_segment(tmp_path / "s.rlog", [numbered("/topic/a", 5)])
    monkeypatch.setattr(decode, "HeaderMaps", None)
    monkeypatch.setattr(decode.Rows, "bodies", None)
    rows = read_rows(whole(tmp_path / "s.rlog", placed), columns=["size", "destination"])
    assert rows == [{"size": 6, "destination": "/topic/a"}] * 5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_selection_is_the_same_as_a_filter_afterwards(tmp_path: Path, data: st.DataObject) -> None:
    names = st.sampled_from(["/topic/a", "/topic/b", "/queue/c"])
    messages = [each._replace(destination=data.draw(names)) for each in numbered("", 30)]
    cuts = sorted(data.draw(st.sets(st.integers(1, 29), max_size=8)))
    batches = [messages[a:b] for a, b in zip([0, *cuts], [*cuts, 30], strict=True)]
    placed = write_segment(tmp_path / "s.rlog", batches)
    low, high = data.draw(st.integers(0, 31)), data.draw(st.integers(0, 31))
    early, late = (START_NS + data.draw(st.integers(-1, 31)) * MS for _ in range(2))
    chosen = data.draw(st.sets(names))
    selection = Selection().destination("in", *chosen).offsets(low, high).received(early, late)
    wanted = whole(tmp_path / "s.rlog", placed)
    assert [row["offset"] for row in read_rows(wanted, selection, ["offset"])] == [
        row["offset"]
        for row in read_rows(wanted)
        if row["destination"] in chosen and low <= row["offset"] < high and early <= row["receive_ns"] < late
    ]


def test_batches_without_a_wanted_record_are_not_decoded(tmp_path: Path) -> None:
    batches = [numbered(f"/topic/{n % 4}", 10, 10 * n) for n in range(40)]
    placed = write_segment(tmp_path / "s.rlog", batches)
    wanted, counters = whole(tmp_path / "s.rlog", placed), Counters()
    rows = read_rows(wanted, Selection().destination("in", "/topic/3"), ["offset"], counters=counters)
    assert len(rows) == 100
    assert (counters.batches_checked, counters.batches_decoded, counters.rows) == (40, 10, 100)
    counters = Counters()
    assert len(read_rows(wanted, Selection().offsets(95, 105), ["offset"], counters=counters)) == 10
    assert counters.batches_decoded == 2


def test_pieces_of_a_file_that_cut_through_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = write_segment(tmp_path / "s.rlog", [numbered("/topic/a", n % 9 + 1, n) for n in range(60)])
    expected = read_rows(whole(tmp_path / "s.rlog", placed))
    for chunk_bytes in (64, 72, 512, 4096):  # also smaller than any batch
        monkeypatch.setattr(scan, "CHUNK_BYTES", chunk_bytes)
        assert read_rows(whole(tmp_path / "s.rlog", placed)) == expected


@pytest.mark.parametrize("name", ["/topic/a", "/topic/" + "long" * 90])  # short dictionaries are compared as words
def test_batches_of_one_destination_have_its_name(tmp_path: Path, name: str) -> None:
    placed = write_segment(tmp_path / "s.rlog", [[Message(name, b"1")], [Message(name, b"2"), Message(name, b"3")]])
    assert read_rows(whole(tmp_path / "s.rlog", placed), columns=["destination"]) == [{"destination": name}] * 3


def test_names_of_equal_length_are_distinguished(tmp_path: Path) -> None:
    names = ["/topic/aaaaaaaaaa", "/topic/aaaaaaaaab", "/topic/aaaaaaaaaa", "/queue/aaaaaaaaaa"]
    placed = write_segment(tmp_path / "s.rlog", [[Message(name, b"")] for name in names])
    rows = read_rows(whole(tmp_path / "s.rlog", placed), columns=["destination"])
    assert [row["destination"] for row in rows] == names


@pytest.mark.parametrize("batches", [1, 3])
def test_a_record_of_a_name_that_its_dictionary_does_not_have_is_damage(tmp_path: Path, batches: int) -> None:
    placed = write_segment(tmp_path / "s.rlog", [[Message("/topic/a", b"")]] * batches)
    data = bytearray((tmp_path / "s.rlog").read_bytes())
    ids_at = HEADER_BYTES + 8 + 2 * 8  # receive times, offsets of headers, of bodies
    assert data[ids_at : ids_at + 4] == bytes(4)
    data[ids_at] = 1
    names = Decoder("p", arrow_schema(["destination"]), Selection(), 100, Counters())
    with pytest.raises(DamagedBatch, match="dictionary"):
        chunk = np.frombuffer(data, np.uint8)
        list(names.decode(Batches(chunk, np.array([each.position for each in placed], np.int64))))
