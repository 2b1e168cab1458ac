"""Where archive and log are joined: a log that is not the one that the archive has is refused, one that is never."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from radiator.archive import load, open_files
from radiator.archive.lineage import OtherLog
from radiator.archive.run import run
from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.read import read
from radiator.columns.scan import SegmentRange
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.replay.sources import Sources
from radiator.spark import boundary as boundaries
from radiator.spark.archived import archived
from radiator.spark.boundary import Boundary, find_boundary
from tests.archive.killing import EAGER
from tests.archive.stores import more
from tests.archive.test_lineage import log_of, recreated, restored, segments, write
from tests.spark.stores import Writer


def joined(root: Path, selection: Selection | None = None) -> Boundary:
    return find_boundary(str(root / "data"), open_files(root / "archive"), selection or Selection())


def replayed(root: Path) -> Sources:
    return Sources(Selection(), str(root / "data"), str(root / "archive"), lambda *loss: None)


def archive(root: Path) -> None:
    run(str(root / "data"), open_files(root / "archive"), EAGER)


@pytest.mark.parametrize("again", [True, False])
def test_another_log_that_has_grown_beyond_the_archive_is_refused(tmp_path: Path, again: bool) -> None:
    recreated(tmp_path, 2500) if again else restored(tmp_path, 2000)
    for join in (joined, replayed):
        with pytest.raises(Exception, match="'flights' is not the one that the archive has.* was created again"):
            join(tmp_path)
    with pytest.raises(OtherLog, match=r"cannot be combined: use one of them, or choose other partitions"):
        joined(tmp_path)
    assert not joined(tmp_path, Selection().partition("in", "others")).log
    assert find_boundary(None, open_files(tmp_path / "archive"), Selection()).files
    assert find_boundary(str(tmp_path / "data"), None, Selection()).log


def test_an_older_copy_beside_the_archive_is_refused(tmp_path: Path) -> None:
    restored(tmp_path, 100)
    for join in (joined, replayed):
        with pytest.raises(Exception, match="ends at offset 600, and the archive has it up to .* an older copy"):
            join(tmp_path)


def test_a_broker_that_writes_and_an_archiver_that_follows_are_no_other_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing of the log and the reading of the commits, both go on."""
    write(tmp_path, 600, 0)
    archive(tmp_path)
    before = log_of(tmp_path).next_offset

    def later(files: object) -> object:
        write(tmp_path, 1500, 600)
        archive(tmp_path)
        return load(open_files(tmp_path / "archive"))

    monkeypatch.setattr(boundaries, "load", later)
    found = joined(tmp_path)
    assert load(open_files(tmp_path / "archive")).ends["flights"] > before
    assert "flights" not in found.log, "the archive has all that was listed, and more"
    assert found.hints == (), "nor is retention further than the archive"


def test_retention_that_removes_segments_meanwhile_is_no_other_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 3000, 0)
    archive(tmp_path)

    def later(files: object) -> object:
        for path in segments(tmp_path)[:-1]:
            path.unlink()
        return load(open_files(tmp_path / "archive"))

    monkeypatch.setattr(boundaries, "load", later)
    end = load(open_files(tmp_path / "archive")).ends["flights"]
    assert joined(tmp_path).log == {"flights": (end, 3000)}


def test_an_archive_with_another_log_gives_nothing_instead_of_what_is_gone(tmp_path: Path) -> None:
    """The option ``archive``: what a planned read misses is not taken from elsewhere."""
    recreated(tmp_path, 2500)
    options = ReadOptions(str(tmp_path / "data"), Selection(), archive=str(tmp_path / "archive"))
    gone = SegmentRange("flights", str(segments(tmp_path)[0]) + ".gone", 0, 100, 0, 10)
    schema = arrow_schema()
    with pytest.raises(OtherLog, match="is not the one that the archive has"):
        list(read([gone], options, schema, Counters(), archived(options, schema)))
    shutil.rmtree(tmp_path / "archive")
    archive(tmp_path)
    rows = list(read([gone], options, schema, Counters(), archived(options, schema)))
    assert sum(each.num_rows for each in rows) == 10


def test_only_partitions_that_are_asked_for_are_looked_at(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", 64 * 1024)
    more(writer, "sound", 1500)
    writer.close()
    recreated(tmp_path, 2500)
    chosen = joined(tmp_path, Selection().partition("in", "sound"))
    assert list(chosen.log) == ["sound"]
    assert replace(chosen, log={}).files


def test_a_log_in_an_object_store_is_known_as_well(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    try:
        recreated(tmp_path, 2500)
        memory.put(str(tmp_path / "data"), "/another/data", recursive=True)
        with pytest.raises(OtherLog, match="is not the one that the archive has"):
            find_boundary("memory://another/data", open_files(tmp_path / "archive"), Selection())
        shutil.rmtree(tmp_path / "archive")
        archive(tmp_path)
        found = find_boundary("memory://another/data", open_files(tmp_path / "archive"), Selection())
        assert found.log == joined(tmp_path).log
    finally:
        memory.rm("/another", recursive=True)
