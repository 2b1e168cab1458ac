"""An archive whose commits are gone, or which is not the one that retention was told of: that is said."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from radiator.archive.gaps import ELSEWHERE, GapFinder
from radiator.archive.manifest import load
from radiator.archive.opening import open_files
from radiator.archive.paths import commit_path
from radiator.archive.run import Options, Watch, preview, run
from radiator.columns.files import open_store
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.replay.archived import Archived
from radiator.spark.boundary import Boundary, find_boundary
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from radiator.storage.reader import list_partitions
from tests.archive.killing import EAGER, Killed
from tests.archive.stores import check_exact, fill, more
from tests.archive.test_lineage import log_of
from tests.spark.stores import Writer

UNMERGED = replace(EAGER, merge=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that was archived twice, in ``archive``."""
    writer = fill(tmp_path / "data", count=1000)
    go(tmp_path)
    more(writer, count=1000, first=1000)
    writer.close()
    go(tmp_path)
    return tmp_path


def go(root: Path, archive: str = "archive", options: Options = UNMERGED) -> list[str]:
    """What the run told."""
    told: list[str] = []
    run(str(root / "data"), open_files(root / archive), options, Watch(report=told.append))
    return told


def mark(root: Path) -> int:
    return archived.read(FileSystem(), partition_path(str(root / "data"), "flights"))


def test_a_damaged_receive_time_hides_no_gap(root: Path) -> None:
    """Of the segment behind the hole, in its first header: 36 years earlier."""
    end = load(open_files(root / "archive")).ends["flights"]
    writer = Writer(root / "data", 64 * 1024)
    more(writer, count=3000, first=2000)
    writer.close()
    log = log_of(root)
    moment = next(each.first_receive_ns for each in log.segments if each.base_offset > end)
    for each in log.segments[:-2]:
        Path(each.path).unlink()
    last = Path(log.segments[-2].path)
    data = bytearray(last.read_bytes())
    data[24 + 7] ^= 1 << 4
    last.write_bytes(data)
    log = log_of(root)
    around = GapFinder(load(open_files(root / "archive")), open_store(str(root / "data")), [log])
    assert moment is not None
    assert around.may_hold("flights", end, log.log_start_offset, Selection(receive_low_ns=moment))


def test_data_files_without_a_commit_are_no_new_archive(root: Path) -> None:
    shutil.rmtree(root / "archive/_delta_log")
    shutil.rmtree(root / "archive/_new")
    files, data = open_files(root / "archive"), str(root / "data")
    there = sorted(root.glob("archive/**/*.parquet"))
    for attempt in (
        lambda: go(root),
        lambda: go(root, options=replace(UNMERGED, archive=False, merge=True)),
        lambda: preview(data, files, UNMERGED),
        lambda: find_boundary(data, files, Selection()),
    ):
        with pytest.raises(StorageError, match=r"there are data files \(date=.* more\), and no commit in _delta_log/"):
            attempt()
    assert load(files).version == -1
    assert sorted(root.glob("archive/**/*.parquet")) == there


def test_a_first_run_that_was_killed_leaves_no_files_that_the_next_one_refuses(tmp_path: Path) -> None:
    fill(tmp_path / "data", count=1000).close()

    def step(name: str) -> None:
        if name == "settled":
            raise Killed

    with pytest.raises(Killed):
        run(str(tmp_path / "data"), open_files(tmp_path / "archive"), UNMERGED, Watch(step=step))
    assert list(tmp_path.glob("archive/date=*/*.parquet"))
    find_boundary(str(tmp_path / "data"), open_files(tmp_path / "archive"), Selection())
    go(tmp_path)
    check_exact(tmp_path / "archive", tmp_path / "data")


def test_marks_that_say_more_than_the_archive_has_are_reported(root: Path) -> None:
    end = load(open_files(root / "archive")).ends["flights"]
    assert (go(root), mark(root)) == ([], end)
    version = load(open_files(root / "archive")).version
    (root / "archive" / commit_path(version)).unlink()
    before = load(open_files(root / "archive")).ends["flights"]
    (text,) = go(root)
    assert text.startswith(f"flights: is marked as archived up to offset {end}, and ")
    assert f" has it up to {before}. " in text
    assert go(root) == []
    (text,) = go(root, "elsewhere")
    assert "elsewhere has it up to 0. " in text
    assert go(root, "a third", replace(UNMERGED, mark=False)) == []


def forget(root: Path, count: int) -> list[Path]:
    """The last commit goes, and what retention takes on the strength of the mark that came of it."""
    files = open_files(root / "archive")
    (root / "archive" / commit_path(load(files).version)).unlink()
    taken = sorted(Path(partition_path(str(root / "data"), "flights")).glob("*.rlog"))[:count]
    for path in taken:
        path.unlink()
    return taken


def joined(root: Path, selection: Selection | None = None) -> Boundary:
    return find_boundary(str(root / "data"), open_files(root / "archive"), selection or Selection())


def test_a_missing_last_commit_is_an_error_for_readers_of_archive_and_log(root: Path) -> None:
    assert joined(root).hints == ()
    forget(root, 0)
    found = joined(root)
    assert found.gaps == ()  # nothing is missing yet
    (text,) = found.hints
    assert text.startswith("flights: is marked as archived up to offset ")
    assert "its last commits are gone" in text
    assert joined(root, Selection().partition("in", "other")).hints == ()


def test_records_that_retention_removed_for_a_missing_commit_are_a_gap(root: Path) -> None:
    taken = forget(root, 4)
    first, following = load(open_files(root / "archive")).ends["flights"], log_of(root).log_start_offset
    assert int(taken[-1].stem) > first
    (text,) = joined(root).gaps
    assert text.startswith(f"partition 'flights': offsets {first} to {following - 1}: they are marked as")
    assert "last commits are missing (restore _delta_log/)" in text
    replayed = Archived(str(root / "archive"), Selection(), str(root / "data"), list_partitions(str(root / "data")))
    assert replayed.lost == [("flights", first, following - 1, ELSEWHERE)]
    assert joined(root, Selection().offsets(following, 10_000)).gaps == ()


@pytest.mark.parametrize("gone", ["the first commit", "the archive"])
def test_a_partition_of_which_the_archive_has_lost_everything_is_not_one_that_it_never_had(
    tmp_path: Path, gone: str
) -> None:
    writer = fill(tmp_path / "data", "older", count=1000)
    if gone == "the first commit":
        go(tmp_path)
    more(writer, count=1000)
    writer.close()
    go(tmp_path)
    forget(tmp_path, 2)
    if gone == "the archive":
        shutil.rmtree(tmp_path / "archive")  # as where a disk is not mounted
    found = joined(tmp_path)
    (text,) = found.gaps
    assert text.startswith(
        f"partition 'flights': offsets 0 to {log_of(tmp_path).log_start_offset - 1}: they are marked"
    )
    assert found.settled == ()


@pytest.mark.parametrize(
    "name", ["../victim", "_delta_log/00000000000000000000.json", "date=2013-01-01/../../victim.parquet"]
)
def test_an_intent_has_nothing_removed_but_data_files(root: Path, name: str) -> None:
    (root / "victim").touch()
    (root / "victim.parquet").touch()
    intent = {"made_ns": 0, "owner": None, "pid": 1, "add": [name]}
    (root / "archive/_new").mkdir(exist_ok=True)
    (root / "archive/_new/x.intent.json").write_text(json.dumps(intent))
    (text,) = go(root)
    assert "x.intent.json: damaged; not changed" in text
    assert (root / "victim").exists() and (root / "victim.parquet").exists()
    assert load(open_files(root / "archive")).version >= 1
