"""What the log loses after a read was planned comes from the archive: exactly that, and exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from radiator.archive import Lost, lookup, open_files
from radiator.archive.lookup import records
from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.scan import LostRecords
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.spark import table
from radiator.spark.archived import archived
from tests.spark.archives import archive, compact, lose
from tests.spark.stores import MS, START_NS, Writer, numbered

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

SCHEMA = arrow_schema(["offset", "body"])


@pytest.fixture
def store(tmp_path: Path) -> str:
    """600 records of two destinations in one partition, in many segments."""
    writer = Writer(tmp_path / "data", segment_bytes=4096)
    both = zip(numbered("/topic/a", 300), numbered("/topic/b", 300), strict=True)
    writer.write("p", [each for pair in both for each in pair], per_batch=10)
    writer.close()
    return writer.root


def segments(data: str) -> list[Path]:
    return sorted(Path(data, "partitions", "p").glob("*.rlog"))


def run(tasks: Any, options: ReadOptions) -> list[int]:
    schema = SCHEMA
    found = [batch for task in tasks for batch in read(task, options, schema, Counters(), archived(options, schema))]
    assert all(batch.schema == schema for batch in found)
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def test_segments_that_go_between_planning_and_reading_are_read_from_the_archive(store: str, tmp_path: Path) -> None:
    there = str(tmp_path / "archive")
    options = ReadOptions(store, Selection(starts={"p": 0}, ends={"p": 600}), archive=there, split_bytes=6000)
    tasks = plan(options)
    assert len(tasks) > 3
    archive(there, store, {"p": 500})
    for path in segments(store)[:3]:
        path.unlink()
    found = run(tasks, options)
    assert sorted(found) == list(range(600))
    with pytest.raises(LostRecords, match="the segment file does not exist"):
        run(tasks, ReadOptions(store, options.selection))


def test_segments_that_go_before_planning_are_read_from_the_archive(store: str, tmp_path: Path) -> None:
    there = str(tmp_path / "archive")
    archive(there, store, {"p": 500})
    gone = segments(store)[:3]
    for path in gone:
        path.unlink()
    selection = Selection(starts={"p": 7}, ends={"p": 600})
    options = ReadOptions(store, selection, archive=there)
    assert sorted(run(plan(options), options)) == list(range(7, 600))
    with pytest.raises(LostRecords, match="offsets 7 to .* have been removed by retention"):
        plan(ReadOptions(store, selection))
    started = ReadOptions(store, Selection(), archive=there)  # nobody has asked for what is gone
    assert min(run(plan(started), started)) == int(segments(store)[0].stem)


def test_only_what_is_wanted_comes_from_there(store: str, tmp_path: Path) -> None:
    there = str(tmp_path / "archive")
    archive(there, store, many=True)
    selection = Selection(starts={"p": 5}, ends={"p": 300}).destination("pattern", "/topic/b")
    selection = selection.received(START_NS + 20 * MS, START_NS + 100 * MS)
    options = ReadOptions(store, selection, archive=there)
    tasks = plan(options)
    expected = run(tasks, options)
    assert sorted(expected) == list(range(41, 200, 2))
    for path in segments(store)[:-1]:
        path.unlink()
    assert sorted(run(tasks, options)) == sorted(expected)


def test_damage_that_came_after_archiving_is_read_from_the_archive(store: str, tmp_path: Path) -> None:
    there = str(tmp_path / "archive")
    archive(there, store)
    data = bytearray(segments(store)[0].read_bytes())
    data[100] ^= 1
    segments(store)[0].write_bytes(data)
    options = ReadOptions(store, Selection(), archive=there)
    assert sorted(run(plan(options), options)) == list(range(600))
    with pytest.raises(LostRecords):
        run(plan(options), ReadOptions(store, Selection()))


def test_what_neither_has_is_reported_with_both_reasons(store: str, tmp_path: Path, capfd: Any) -> None:
    there = str(tmp_path / "archive")
    options = ReadOptions(store, Selection(starts={"p": 0}, ends={"p": 600}), archive=there)
    tasks = plan(options)
    second = int(segments(store)[1].stem)
    archive(there, store, {"p": 50})
    lose(there, Lost("p", 20, 22, "damaged"))
    segments(store)[0].unlink()
    with pytest.raises(
        LostRecords, match="offsets 20 to 21 .*does not exist.*the archive could not read them: damaged"
    ):
        run(tasks, options)
    lenient = ReadOptions(store, options.selection, archive=there, fail_on_data_loss=False)
    assert sorted(run(tasks, lenient)) == [*range(50), *range(second, 600)]  # the archive of this test has them all
    told = capfd.readouterr().err
    assert "offsets 20 to 21" in told and f"offsets 50 to {second - 1}" in told and "does not have them yet" in told


@pytest.mark.parametrize("window", [lookup.WINDOW, 37])
@pytest.mark.parametrize("error", [None, OSError("the object is not what was opened")])
def test_a_compaction_in_the_middle_gives_everything_once(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, error: OSError | None
) -> None:
    there = tmp_path / "archive"
    for end in (100, 200, 300, 400):
        archive(there, store, {"p": end})
    files, read_rows = open_files(there), lookup._rows
    compacted = []

    def rows(*args: Any) -> Any:
        for number, batch in enumerate(read_rows(*args)):
            yield batch
            if not compacted and number == 0:
                compacted.append(compact(there, "p", "/topic/b"))
                compacted.append(compact(there, "p", "/topic/a"))
                if error is not None:
                    raise error

    monkeypatch.setattr(lookup, "_rows", rows)
    monkeypatch.setattr(lookup, "WINDOW", window)
    found = [
        offset
        for batch in records(files, "p", 10, 390, SCHEMA, lambda *_: pytest.fail("all of it is there"), None, 16)
        for offset in batch.column("offset").to_pylist()
    ]
    assert len(compacted) == 2 and sorted(found) == list(range(10, 390))


def test_a_range_that_is_much_longer_than_the_archive_takes_no_memory_for_it(store: str, tmp_path: Path) -> None:
    archive(tmp_path / "archive", store)
    told: list[tuple[int, int, str]] = []
    found = list(
        records(open_files(tmp_path / "archive"), "p", 0, 10**13, SCHEMA, lambda *missing: told.append(missing))
    )
    assert sum(batch.num_rows for batch in found) == 600
    assert told == [(600, 10**13, "the archive does not have them yet")]


def test_a_file_that_is_named_and_gone_is_an_error(store: str, tmp_path: Path) -> None:
    paths = archive(tmp_path / "archive", store)
    (tmp_path / "archive" / paths[0]).unlink()
    with pytest.raises(StorageError, match="cannot be read: a commit names it, but it does not exist; restore it"):
        list(records(open_files(tmp_path / "archive"), "p", 0, 600, SCHEMA, lambda *_: None))


def test_a_table_that_was_made_before_they_went_is_whole(spark: Any, store: str, tmp_path: Path) -> None:
    there = tmp_path / "archive"
    archive(there, store, {"p": 100})
    df = table(spark, store, there)
    archive(there, store, {"p": 500})
    for path in segments(store)[:-4]:
        path.unlink()
    offsets = sorted(row.offset for row in df.select("offset").collect())
    assert offsets == list(range(600))
    for path in segments(store)[:-2]:  # the plan is there, and stays
        path.unlink()
    archive(there, store, {"p": 600})
    assert df.where("destination = '/topic/b'").count() == 300
    assert table(spark, store, there).count() == 600
