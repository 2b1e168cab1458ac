"""What goes under a stream: partitions, segments between a listing and a look, lists of names made anew, secrets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from radiator.columns import planning
from radiator.columns.scan import LostRecords
from radiator.errors import StorageError
from radiator.limits import KIB
from radiator.spark.options import Use, parse
from radiator.spark.schema import SCHEMA
from radiator.spark.stream import StreamReader
from radiator.spark.stream_losses import Losses
from radiator.storage import layout
from radiator.storage.files import FileStat, FileSystem
from tests.spark.archives import archive
from tests.spark.stores import START_NS, Message, Writer, numbered
from tests.spark.streams import Query, joined

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

URI = "s3://AKIA123:s3cr3t@bucket/data?region=eu&token=s3cr3t"


def large(destination: str, count: int, first: int = 0) -> list[Message]:
    return [each._replace(body=bytes(1000)) for each in numbered(destination, count, first)]


def segments(root: str, name: str) -> list[Path]:
    return sorted(Path(layout.partition_path(root, name)).glob("*.rlog"))


def gone(root: str, name: str) -> None:
    shutil.rmtree(layout.partition_path(root, name))


@pytest.fixture
def rolling(tmp_path: Path) -> Writer:
    """About sixty records of ``large`` in a segment."""
    return Writer(tmp_path / "data", 64 * KIB)


def test_what_was_read_is_not_read_again_when_another_partition_goes(writer: Writer) -> None:
    writer.write("gone", numbered("gone", 3))
    writer.write("a", numbered("a", 4))
    query, found = Query(writer.root, startingOffsets="earliest", failOnDataLoss="false"), []
    found.append(query.trigger() or {})
    gone(writer.root, "gone")  # right behind the first batch, which says where it began
    found.append(query.trigger() or {})
    writer.write("too", numbered("too", 3))
    writer.write("born", numbered("born", 5))
    found.append(query.trigger() or {})
    gone(writer.root, "too")
    found += [query.trigger() or {}, query.again().trigger() or {}]
    assert joined(found) == {"gone": [0, 1, 2], "a": [0, 1, 2, 3], "born": [0, 1, 2, 3, 4], "too": [0, 1, 2]}
    assert json.loads(query.checkpoint[-1]) == {"a": 4, "born": 5}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_segment_that_goes_between_the_listing_and_the_look_at_it_is_reported(
    rolling: Writer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], fails: str
) -> None:
    rolling.write("a", large("a", 300), per_batch=10)
    query = Query(rolling.root, startingOffsets="earliest", failOnDataLoss=fails)
    assert query.plan()
    query = query.again()
    first, second = segments(rolling.root, "a")[:2]
    before = FileSystem.stat

    def stat(fs: FileSystem, path: str) -> FileStat | None:
        if path == str(first):
            first.unlink(missing_ok=True)
        return before(fs, path)

    monkeypatch.setattr(FileSystem, "stat", stat)
    told = f"offsets 0 to {int(second.stem) - 1} .*does not exist"
    if fails == "true":
        with pytest.raises(LostRecords, match=told):
            query.trigger()
    else:
        assert query.trigger() == {"a": list(range(int(second.stem), 300))}
        assert f"offsets 0 to {int(second.stem) - 1}" in capfd.readouterr().err


def test_a_partition_that_goes_between_its_head_and_its_listing_is_reported(writer: Writer) -> None:
    writer.write("a", numbered("a", 10))
    query = Query(writer.root, startingOffsets="earliest")
    assert query.plan()
    gone(writer.root, "a")  # the reader still has its end
    with pytest.raises(LostRecords, match="partition 'a': offsets 0 to 9 have been removed"):
        query.trigger()


def test_a_batch_read_begins_behind_a_removed_segment_and_has_no_gap(
    rolling: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolling.write("a", large("a", 300), per_batch=10)
    first, second, third = segments(rolling.root, "a")[:3]
    before = FileSystem.open_read

    def open_read(fs: FileSystem, path: str) -> int:
        if path == str(second):  # the first one has been looked at by now
            first.unlink(missing_ok=True)
            second.unlink(missing_ok=True)
        return before(fs, path)

    monkeypatch.setattr(FileSystem, "open_read", open_read)
    pieces = [piece for task in planning.plan(parse({"path": rolling.root})) for piece in task]
    assert [pieces[0].first_offset, pieces[-1].next_offset] == [int(third.stem), 300]


def test_offsets_that_were_named_and_are_gone_are_reported_at_either_end(
    rolling: Writer, capfd: pytest.CaptureFixture[str]
) -> None:
    rolling.write("a", large("a", 300), per_batch=10)
    for path in segments(rolling.root, "a")[:2]:
        path.unlink()
    start = int(segments(rolling.root, "a")[0].stem)
    given = {"path": rolling.root, "startingOffsets": '{"a": 5}', "subscribe": "/topic/other"}
    with pytest.raises(LostRecords, match=f"offsets 5 to {start - 1} have been removed"):
        planning.plan(parse(given))
    assert planning.plan(parse({**given, "failOnDataLoss": "false"})) == []
    assert f"skipped: partition 'a': offsets 5 to {start - 1}" in capfd.readouterr().err
    assert planning.plan(parse({"path": rolling.root, "endingOffsets": "1000"}))


def test_what_only_the_archive_has_is_read_though_the_list_of_names_was_made_again(
    rolling: Writer, tmp_path: Path
) -> None:
    rolling.write("p", large("x", 10), per_batch=5)
    query = Query(rolling.root, subscribe="x", startingOffsets="earliest", archive=tmp_path / "archive")
    assert query.trigger() == {"p": list(range(10))}
    rolling.write("p", large("x", 190, 10), per_batch=10)
    rolling.write("p", large("y", 200, 200), per_batch=10)
    archive(tmp_path / "archive", rolling.root)
    rolling.close()
    for path in segments(rolling.root, "p"):
        if int(path.stem) <= 240:
            path.unlink()
    Path(layout.names_path(layout.partition_path(rolling.root, "p"))).unlink()
    again = Writer(rolling.root, 64 * KIB)
    again.write("p", large("y", 5, 400))
    again.close()
    without = Query(rolling.root, [*query.checkpoint], query.committed, subscribe="x")
    with pytest.raises(LostRecords, match="partition 'p': offsets 10 to "):
        without.trigger()
    assert query.again().trigger() == {"p": list(range(10, 200))}
    given = {"path": rolling.root, "subscribe": "x", "archive": str(tmp_path / "archive")}
    pieces = [piece for task in planning.plan(parse({**given, "startingOffsets": '{"p": 10}'})) for piece in task]
    assert [piece.first_offset for piece in pieces] == [10]


def test_a_list_that_has_only_the_partitions_own_name_hides_nothing_that_is_gone(
    rolling: Writer, tmp_path: Path
) -> None:
    rolling.write("y", [*large("x", 10), *large("y", 10, 10)], per_batch=10)
    query = Query(rolling.root, subscribe="x", startingOffsets="earliest", archive=tmp_path / "archive")
    query.trigger()
    rolling.write("y", large("x", 100, 20), per_batch=10)
    rolling.write("y", large("y", 100, 120), per_batch=10)
    archive(tmp_path / "archive", rolling.root)
    rolling.close()
    for path in segments(rolling.root, "y")[:-1]:
        path.unlink()
    Path(layout.names_path(layout.partition_path(rolling.root, "y"))).unlink()
    again = Writer(rolling.root, 64 * KIB)
    again.write("y", large("y", 5, 220))
    again.close()
    query = query.again()
    assert joined(query.available_now()) == {"y": list(range(20, 120))}


def test_a_partition_that_is_gone_is_read_from_the_archive_to_its_end(writer: Writer, tmp_path: Path) -> None:
    for name in ("a", "b"):
        writer.write(name, numbered(name, 10))
    query = Query(writer.root, startingOffsets="earliest", archive=tmp_path / "archive", maxOffsetsPerTrigger=8)
    assert query.plan()
    archive(tmp_path / "archive", writer.root)
    gone(writer.root, "a")
    query = query.again()
    found = [query.trigger() or {} for _ in range(3)]  # one was planned before, the others behind it
    assert joined(found) == {"a": list(range(10)), "b": list(range(10))}
    with pytest.raises(LostRecords, match="no longer has partition 'a'"):
        query.trigger()  # nobody knows whether it had more
    assert query.again(failOnDataLoss="false").trigger() == {}
    assert json.loads(query.checkpoint[-1]) == {"b": 10}


def test_partitions_without_a_time_begin_at_the_first_record(writer: Writer) -> None:
    for name in ("a", "b"):
        writer.write(name, numbered(name, 5))
    moments = json.dumps({"a": START_NS // 1_000_000 + 3})
    found = Query(writer.root, startingOffsetsByTimestamp=moments).trigger()
    assert found == {"a": [3, 4], "b": [0, 1, 2, 3, 4]}
    with pytest.raises(StorageError, match="option startingOffsetsByTimestamp: .* has no partition 'x'; it has 'a'"):
        Query(writer.root, startingOffsetsByTimestamp='{"x": 1700000000000}').trigger()


def test_an_unused_name_is_reported_once_per_run(writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    writer.write("flights", numbered("flights", 10))
    query = Query(writer.root, subscribe="flihts", startingOffsets="earliest")
    for run in (query, query.again()):
        run.trigger()
        run.trigger()
        assert capsys.readouterr().err.count("no destination 'flihts' yet; did you mean flights?") == 1


def test_removed_records_are_reported_once_by_queries_that_share_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"path": str(tmp_path), "failOnDataLoss": "false", "warnOnce": str(tmp_path)}
    for _ in range(2):
        Losses(parse(given, Use.STREAM)).retained("a", 3, 9)
    assert capsys.readouterr().err.count("offsets 3 to 8 have been removed") == 1


def test_no_message_shows_credentials_of_the_files(capfd: pytest.CaptureFixture[str]) -> None:
    options = parse({"path": URI, "failOnDataLoss": "false"}, Use.STREAM)
    Losses(options).vanished({"a": 1}, {})
    told = capfd.readouterr().err
    assert "s3://bucket/data no longer has partition 'a'" in told and "s3cr3t" not in told
    with pytest.raises(StorageError, match="s3://bucket/data has no partition 'a'") as error:
        planning._known("starting_offsets", "a", options, {})
    assert "s3cr3t" not in str(error.value)
    stream = StreamReader(parse({"path": URI, "startingOffsets": '{"a": 1}'}, Use.STREAM), SCHEMA)
    with pytest.raises(StorageError, match="s3://bucket/data has no partition 'a'") as error:
        stream._begins({})
    assert "s3cr3t" not in str(error.value)
    with pytest.raises(StorageError, match="cannot be used") as error:
        planning.snapshot("s3://AKIA:s3 cr3t@bucket/data")
    assert "cr3t" not in str(error.value)
