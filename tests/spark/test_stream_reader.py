"""Micro-batches over a log that is rolled, retained, compacted, compressed, damaged, born meanwhile; without a JVM."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from radiator.columns import heads, log, planning
from radiator.columns.files import Place
from radiator.columns.heads import End, ends
from radiator.columns.scan import LostRecords
from radiator.errors import StorageError
from radiator.limits import KIB
from radiator.spark import stream
from radiator.spark.options import parse
from radiator.spark.schema import SCHEMA
from radiator.spark.source import Reader
from radiator.storage import layout
from radiator.storage.files import FileSystem
from tests.spark.archives import archive
from tests.spark.stores import MS, START_NS, Message, Writer, numbered
from tests.spark.streams import Query, joined
from tests.storage.rewriting import rewritten

pytestmark = pytest.mark.spark


def large(destination: str, count: int, first: int = 0) -> list[Message]:
    return [each._replace(body=bytes(1000)) for each in numbered(destination, count, first)]


@pytest.fixture
def rolling(tmp_path: Path) -> Writer:
    """About sixty records of ``large`` in a segment."""
    return Writer(tmp_path / "data", 64 * KIB)


def segments(root: str, name: str) -> list[Path]:
    return sorted(Path(layout.partition_path(root, name)).glob("*.rlog"))


def test_a_stream_begins_at_the_end_and_reads_what_comes(writer: Writer) -> None:
    writer.write("a", numbered("a", 10))
    query = Query(writer.root)
    assert query.trigger() == {}  # Spark's first batch, which keeps where the end was
    assert query.trigger() is None
    writer.write("a", numbered("a", 5, 10))
    assert query.trigger() == {"a": [10, 11, 12, 13, 14]}
    assert query.trigger() is None


def test_a_partition_that_is_created_is_read_from_its_first_record(writer: Writer) -> None:
    query = Query(writer.root)
    assert query.trigger() == {}  # there is nothing at all yet
    name = 'p/ä "{}\n@~'
    writer.write(name, numbered(name, 3))
    assert query.trigger() == {name: [0, 1, 2]}
    query = query.again()
    assert query.trigger() is None
    writer.write(name, numbered(name, 1, 3))
    assert query.trigger() == {name: [3]}


def test_a_query_killed_in_its_first_batch_reads_the_same_batch_again(writer: Writer) -> None:
    writer.write("a", numbered("a", 10))
    query = Query(writer.root)
    assert query.plan()  # the checkpoint has the batch, the sink nothing
    writer.write("a", numbered("a", 5, 10))
    query = query.again()
    assert query.trigger() == {}
    assert query.trigger() == {"a": list(range(10, 15))}
    writer.write("a", numbered("a", 5, 15))
    assert query.trigger(commit=False) == {"a": list(range(15, 20))}
    writer.write("a", numbered("a", 5, 20))
    query = query.again()
    assert query.trigger() == {"a": list(range(15, 20))}
    assert query.trigger() == {"a": list(range(20, 25))}


def test_rolled_segments_are_read_on_from_where_the_batch_before_ended(rolling: Writer) -> None:
    query, found = Query(rolling.root, startingOffsets="earliest"), []
    for first in range(0, 400, 16):
        rolling.write("a", large("a", 16, first), per_batch=3)
        found.append(query.trigger() or {})
        if first % 48 == 0:
            query = query.again()
    assert len(segments(rolling.root, "a")) > 5
    assert joined(found) == {"a": list(range(400))}
    assert [len(batch["a"]) for batch in found] == [16] * 25


def test_a_trigger_opens_nothing_of_partitions_in_which_nothing_is_new(
    rolling: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        rolling.write(f"idle{number}", numbered("x", 2))
    rolling.write("a", large("a", 200))
    query = Query(rolling.root)
    query.trigger()
    query.trigger()
    opened: list[str] = []
    before = FileSystem.open_read
    monkeypatch.setattr(FileSystem, "open_read", lambda fs, path: (opened.append(path), before(fs, path))[1])
    monkeypatch.setattr(planning, "index_of", lambda *given: pytest.fail("the head has said where this begins"))
    rolling.write("a", large("a", 20, 200), per_batch=5)
    opened.clear()
    assert query.trigger() == {"a": list(range(200, 220))}
    heads_read = [path for path in opened if path.endswith("/head")]
    assert len(heads_read) == 21
    assert len(set(opened) - set(heads_read)) <= 2  # the segment, or two if it rolled
    opened.clear()
    assert query.trigger() is None
    assert len(opened) == 21


def test_available_now_with_a_limit_gives_several_batches_and_ends_while_a_writer_writes(writer: Writer) -> None:
    writer.write("a", numbered("a", 90))
    writer.write("b", numbered("b", 10))
    query = Query(writer.root, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    query.reader.prepareForTriggerAvailableNow()
    batches = []
    for _ in range(100):
        rows = query.trigger()
        if rows is None:
            break
        batches.append(rows)
        writer.write("a", numbered("a", 7, 0))
        writer.write("new", numbered("new", 7, 0))
    assert joined(batches) == {"a": list(range(90)), "b": list(range(10))}
    assert len(batches) == 5
    assert [len(batch["a"]) for batch in batches] == [18] * 5
    assert joined(query.again(maxOffsetsPerTrigger=1000).available_now())["new"] == list(range(35))


def test_compacted_and_compressed_segments_give_exactly_what_is_left(rolling: Writer) -> None:
    rolling.write("p", large("/topic/p", 400), per_batch=10)
    rolling.close()
    files = segments(rolling.root, "p")
    left = []
    for number, segment in enumerate(files):
        base, end = int(segment.stem), int(files[number + 1].stem) if number + 1 < len(files) else 400
        sealed = number + 1 < len(files)
        left += [each for each in range(base, end) if not sealed or each % 9 == 0 or each == end - 1]
        if sealed:
            segment.write_bytes(rewritten(segment.read_bytes(), base, lambda each: each % 9 == 0, 3, 20))
    query = Query(rolling.root, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    batches = query.available_now()
    assert joined(batches)["p"] == left
    assert len(batches) == 14  # the limit counts offsets, whether a record is left there or not


def test_a_segment_rewritten_between_planning_and_reading_changes_nothing(rolling: Writer) -> None:
    rolling.write("p", large("/topic/p", 400), per_batch=10)
    query = Query(rolling.root, startingOffsets="earliest", maxOffsetsPerTrigger=130)
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    splits = query.reader.partitions(start, end)
    for segment in segments(rolling.root, "p")[:-1]:
        segment.write_bytes(rewritten(segment.read_bytes(), int(segment.stem), lambda each: True, 3, 7))
    rows = [row["offset"] for split in splits for batch in query.reader.read(split) for row in batch.to_pylist()]
    assert rows == list(range(130))


def test_offsets_that_retention_took_are_an_error_or_left_out(
    rolling: Writer, capfd: pytest.CaptureFixture[str]
) -> None:
    rolling.write("a", large("a", 100))
    query = Query(rolling.root, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert query.trigger() == {"a": list(range(10))}
    rolling.write("a", large("a", 100, 100))
    for segment in segments(rolling.root, "a")[:-1]:
        segment.unlink()
    query.plan()
    start = int(segments(rolling.root, "a")[0].stem)
    with pytest.raises(LostRecords, match="partition 'a': offsets 10 to 19 have been removed, .*failOnDataLoss"):
        query.trigger()
    query = query.again(failOnDataLoss="false", maxOffsetsPerTrigger=1000)
    found = query.available_now()
    assert joined(found) == {"a": list(range(start, 200))}
    assert f"the query continues at {start}" in capfd.readouterr().err


def test_what_the_log_has_given_up_is_read_from_the_archive(rolling: Writer, tmp_path: Path) -> None:
    rolling.write("a", large("a", 100), per_batch=10)
    query = Query(rolling.root, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert query.trigger() == {"a": list(range(10))}
    rolling.write("a", large("a", 200, 100), per_batch=10)
    assert query.plan()
    *sealed, last = segments(rolling.root, "a")
    archive(tmp_path / "archive", rolling.root, {"a": int(last.stem)})
    for segment in sealed:
        segment.unlink()
    query = query.again(archive=tmp_path / "archive", maxOffsetsPerTrigger=1000)
    assert query.trigger() == {"a": list(range(10, 20))}  # the batch that was planned before
    assert query.trigger() == {"a": list(range(20, 300))}


def test_a_segment_that_goes_between_planning_and_reading_is_reported(
    rolling: Writer, capfd: pytest.CaptureFixture[str]
) -> None:
    rolling.write("a", large("a", 300), per_batch=10)
    for fails in ("true", "false"):
        query = Query(rolling.root, startingOffsets="earliest", failOnDataLoss=fails)
        start = query.reader.initialOffset()
        splits = query.reader.partitions(start, query.reader.latestOffset(start, query.reader.getDefaultReadLimit()))
        first, second = segments(rolling.root, "a")[:2]
        first.unlink()
        if fails == "true":
            with pytest.raises(LostRecords, match="the broker removed it after this read"):
                list(query.reader.read(splits[0]))
        else:
            rows = [row["offset"] for batch in query.reader.read(splits[0]) for row in batch.to_pylist()]
            assert rows[0] == int(second.stem)
            assert "skipped: partition 'a'" in capfd.readouterr().err


def test_a_damaged_range_is_an_error_with_its_offsets_or_left_out(
    rolling: Writer, capfd: pytest.CaptureFixture[str]
) -> None:
    rolling.write("a", large("a", 40), per_batch=10)
    path = segments(rolling.root, "a")[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    query = Query(rolling.root, startingOffsets="earliest")
    with pytest.raises(LostRecords, match="partition 'a': offsets 10 to 19 .* cannot be read: .*crc"):
        query.trigger()
    assert query.again(failOnDataLoss="false").trigger() == {"a": [*range(10), *range(20, 40)]}
    assert "skipped: partition 'a': offsets 10 to 19" in capfd.readouterr().err


def test_a_checkpoint_past_the_end_of_the_log_is_an_error_whatever_the_user_says(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.write("a", numbered("a", 10))
    writer.close()
    shutil.copytree(writer.root, tmp_path / "older")
    writer = Writer(tmp_path / "data")
    writer.write("a", numbered("a", 10, 10))
    query = Query(writer.root, startingOffsets="earliest")
    query.trigger(commit=False)
    for planned in (True, False):
        older = Query(f"{tmp_path}/older", query.checkpoint, committed=0 if planned else 1, failOnDataLoss="false")
        with pytest.raises(
            StorageError, match="partition 'a' ends at offset 10, and the checkpoint is at 20: this is an"
        ):
            older.trigger()


def test_a_partition_that_is_gone_is_an_error_or_left_out(writer: Writer, capfd: pytest.CaptureFixture[str]) -> None:
    writer.write("a", numbered("a", 10))
    writer.write("b", numbered("b", 10))
    query = Query(writer.root, startingOffsets="earliest")
    query.trigger()
    shutil.rmtree(layout.partition_path(writer.root, "b"))
    writer.write("a", numbered("a", 1, 10))
    with pytest.raises(LostRecords, match="no longer has partition 'b', which this query has read"):
        query.trigger()
    assert query.again(failOnDataLoss="false").trigger() == {"a": [10]}
    assert "no longer has partition 'b'" in capfd.readouterr().err


def test_only_what_a_head_covers_is_read_while_a_writer_writes(writer: Writer) -> None:
    query, found, seen = Query(writer.root, startingOffsets="earliest"), [], 0
    for number in range(50):
        writer.append("a", numbered("a", 3, 3 * number))
        if number % 3:
            writer.commit()
            seen = 3 * number + 3
        found.append(query.trigger() or {})
        assert len(joined(found).get("a", [])) == seen
    assert joined(found)["a"] == list(range(seen))


def test_a_stream_begins_at_a_time(rolling: Writer) -> None:
    rolling.write("a", large("a", 300), per_batch=7)
    rolling.write("b", large("b", 10))
    moment = (START_NS + 200 * MS) // 1_000_000
    assert Query(rolling.root, startingTimestamp=moment).trigger() == {"a": list(range(200, 300))}
    by_name = json.dumps({"a": moment + 50, "b": START_NS + 9 * MS})
    found = Query(rolling.root, startingOffsetsByTimestamp=by_name).trigger()
    assert found == {"a": list(range(250, 300)), "b": [9]}
    query = Query(rolling.root, startingTimestamp=moment + 10_000)  # nothing has come by then
    assert query.trigger() == {}
    rolling.write("a", large("a", 1, 300))
    assert query.trigger() == {"a": [300]}


def test_a_stream_begins_at_a_future_time_while_a_writer_writes(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write("a", numbered("a", 10))
    look = stream.ends

    def looked(place: Place) -> dict[str, End]:
        found = look(place)
        monkeypatch.undo()
        writer.write("a", numbered("a", 5, 10))  # behind the look at the ends
        return found

    monkeypatch.setattr(stream, "ends", looked)
    moment = (START_NS + 1000 * MS) // 1_000_000
    query = Query(writer.root, startingTimestamp=moment)
    assert query.trigger() == {}
    writer.write("a", numbered("a", 5, 1000))
    assert query.trigger() == {"a": list(range(15, 20))}


def test_a_stream_begins_at_the_offsets_that_json_names_and_elsewhere_at_the_first(writer: Writer) -> None:
    for name in ("a", "b", "c", "d"):
        writer.write(name, numbered(name, 10))
    starts = json.dumps({"a": 8, "b": -1, "c": -2})
    found = Query(writer.root, startingOffsets=starts).trigger()
    assert found == {"a": [8, 9], "c": list(range(10)), "d": list(range(10))}
    for name, offset, told in [
        ("x", 0, "has no partition 'x'; it has 'a', 'b'"),
        ("a", 11, "ends at offset 10, and opt"),
    ]:
        with pytest.raises(StorageError, match=re.escape(told)):
            Query(writer.root, startingOffsets=json.dumps({name: offset})).trigger()


def test_partitions_that_hold_nothing_wanted_are_not_read(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("/topic/a", "/topic/b"):
        writer.write(name, numbered(name, 10))
    writer.write("shared", [*numbered("/topic/x", 5), *numbered("/topic/y", 5, 5)])
    query = Query(writer.root, subscribe="/topic/a,/topic/z", startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert query.trigger() == {"/topic/a": list(range(10))}
    assert query.tasks == 1
    assert json.loads(query.checkpoint[0]).keys() == {"/topic/a"}
    writer.write("/topic/b", numbered("/topic/z", 1, 10))  # it is shared from now on
    writer.write("shared", numbered("/topic/z", 1, 10))
    assert joined(query.available_now()) == {"/topic/b": [10], "shared": [10]}


def test_the_offsets_of_a_stream_over_one_name_have_only_partitions_with_that_name(writer: Writer) -> None:
    for number in range(20):
        writer.write(f"flights-{number}", numbered(f"/topic/flights.{number}", 10))
    query = Query(writer.root, subscribe="/topic/flights.7,/topic/late", startingOffsets="latest")
    assert query.trigger() == {}
    assert json.loads(query.checkpoint[0]) == {"flights-7": {"from": 10, "next": 10}}
    assert query.reader.reportLatestOffset() == {"flights-7": 10}
    writer.write("flights-3", numbered("/topic/late", 2, 10))
    assert query.trigger() == {"flights-3": [10, 11]}
    query = query.again(subscribe="/topic/flights.7")  # the partition stays in the checkpoint, and is not read
    writer.write("flights-3", numbered("/topic/late", 2, 12))
    assert query.trigger() == {}
    assert json.loads(query.checkpoint[-1]) == {"flights-3": 14, "flights-7": {"from": 10, "next": 10}}


def test_an_unused_name_is_reported_with_the_closest_one(writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    writer.write("/topic/flights", numbered("/topic/flights", 10))
    writer.write("shared", numbered("/topic/b", 1))
    query = Query(writer.root, subscribe="flights,/topic/b,/topic/flihts", startingOffsets="earliest")
    assert query.trigger() == {"shared": [0]}
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" has ")[2] for line in told] == [
        "no destination 'flights' yet; did you mean /topic/flights?",
        "no destination '/topic/flihts' yet; did you mean /topic/flights?",
    ]
    Reader(parse({"path": writer.root, "subscribe": "flights"}), SCHEMA).partitions()
    assert "no destination 'flights' yet" in capsys.readouterr().err


def test_min_partitions_asks_for_so_many_tasks(rolling: Writer) -> None:
    rolling.write("a", large("a", 1000), per_batch=10)
    assert (query := Query(rolling.root, startingOffsets="earliest")).trigger() == {"a": list(range(1000))}
    assert query.tasks < 4
    query = Query(rolling.root, startingOffsets="earliest", minPartitions=8)
    assert query.trigger() == {"a": list(range(1000))}
    assert query.tasks >= 8


def test_a_head_that_is_gone_costs_a_walk_and_no_record(rolling: Writer) -> None:
    rolling.write("a", large("a", 100))
    rolling.close()
    Path(layout.head_path(layout.partition_path(rolling.root, "a"))).unlink()
    assert Query(rolling.root, startingOffsets="earliest").trigger() == {"a": list(range(100))}
    assert ends(log.Place(FileSystem(), rolling.root))["a"].next_offset == 100
    assert heads.Holdings(FileSystem()).may_hold("a", ends(log.Place(FileSystem(), rolling.root))["a"], lambda _: False)
