"""What a run takes of the disk on which files are made: no more than it must, and it is given back."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from radiator.archive import run as running
from radiator.archive import workers
from radiator.archive.files import Files
from radiator.archive.jobs import Job, Written, write_job
from radiator.archive.manifest import load
from radiator.archive.merging import groups_to_merge
from radiator.archive.opening import open_files
from radiator.archive.publishing import LEFTOVER_SECONDS
from radiator.archive.remote import SPOOL_PREFIX
from radiator.archive.run import Watch, run
from radiator.archive.split import Settings
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from tests.archive.killing import EAGER, Killed, check_all
from tests.archive.stores import SEGMENT_BYTES, check_exact, fill, more
from tests.archive.test_run import damage

UNMERGED = replace(EAGER, merge=False)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    yield open_files("memory://archive")
    fsspec.filesystem("memory").store.clear()


def spooled(root: Path) -> list[str]:
    return [name for _, _, names in os.walk(root) for name in names if "." in name and "intent" not in name]


def test_what_is_uploaded_leaves_the_local_disk(
    elsewhere: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "ARCHIVE_COMMIT_BYTES", 1)
    fill(tmp_path / "data", count=3000).close()
    waiting: list[list[str]] = []

    def step(name: str) -> None:
        if name == "ended":
            waiting.append(spooled(tmp_path / "tmp"))

    assert not run(str(tmp_path / "data"), elsewhere, replace(EAGER, merge=True), Watch(step=step)).problems
    assert len(waiting) > 3
    assert not any(waiting)
    check_exact(elsewhere, tmp_path / "data")


def test_what_a_run_left_there_that_died_with_its_machine_is_removed_after_a_day(
    elsewhere: Files, tmp_path: Path
) -> None:
    fill(tmp_path / "data").close()
    for name, age_seconds in (
        (f"{SPOOL_PREFIX}old", LEFTOVER_SECONDS + 60),
        (f"{SPOOL_PREFIX}young", 60),
        ("another", 10**8),
    ):
        (tmp_path / "tmp" / name).mkdir()
        (tmp_path / "tmp" / name / "0123-1.parquet").touch()
        os.utime(tmp_path / "tmp" / name, (time.time() - age_seconds,) * 2)
    assert run(str(tmp_path / "data"), elsewhere, EAGER).swept == 1
    assert {each.name for each in (tmp_path / "tmp").iterdir()} == {f"{SPOOL_PREFIX}young", "another"}


def test_merged_files_are_committed_before_they_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "data", count=3000).close()
    run(str(tmp_path / "data"), open_files(tmp_path / "archive"), UNMERGED)
    monkeypatch.setattr(running, "ARCHIVE_COMMIT_BYTES", 1)
    steps: list[str] = []
    out = run(
        str(tmp_path / "data"), open_files(tmp_path / "archive"), replace(EAGER, merge=True), Watch(step=steps.append)
    )
    assert out.merged_to > 1
    assert steps.count("committed") == out.merged_to
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_run_that_is_asked_to_stop_ends_behind_the_merge_at_hand(tmp_path: Path) -> None:
    fill(tmp_path / "data", count=3000).close()
    run(str(tmp_path / "data"), open_files(tmp_path / "archive"), UNMERGED)
    steps: list[str] = []
    options = replace(EAGER, merge=True, archive=False)
    watch = Watch(step=steps.append, stopping=lambda: "merged" in steps)
    assert run(str(tmp_path / "data"), open_files(tmp_path / "archive"), options, watch).merged_to == 1
    check_exact(tmp_path / "archive", tmp_path / "data")


@pytest.mark.thorough
def test_units_behind_damage_are_not_written_by_other_processes_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "ARCHIVE_COMMIT_BYTES", 1)
    writer = fill(tmp_path / "data", count=6000)
    more(writer, "sound", count=1500)
    writer.close()
    damage(tmp_path, 0)
    most: list[int] = []
    watch = Watch(step=lambda name: most.append(len(spooled(tmp_path / "archive" / "_new"))))
    options = replace(UNMERGED, unit_bytes=1, jobs=2)
    out = run(str(tmp_path / "data"), open_files(tmp_path / "archive"), options, watch)
    assert set(out.problems) == {"flights"}
    assert set(load(open_files(tmp_path / "archive")).ends) == {"sound"}
    assert max(most) <= 3 * 6  # units that are written ahead, by the files of each


def test_a_file_that_is_missing_is_reported_by_the_run_that_would_merge_it(tmp_path: Path) -> None:
    fill(tmp_path / "data", count=3000).close()
    files = open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), files, UNMERGED)
    gone = groups_to_merge(load(files), EAGER.sizes, force=True)[0][0].path
    os.unlink(files.address(gone))
    for _ in range(2):
        out = run(str(tmp_path / "data"), files, replace(EAGER, merge=True))
        assert out.damaged
        assert f"{files.address(gone)}: does not exist" in " ".join(out.problems.values())


# --- where it is full -------------------------------------------------------------------------------------------------


def full(monkeypatch: pytest.MonkeyPatch, lacks: Callable[[Job, list[str]], bool]) -> None:
    """``lacks``: whether there is no room for a job, beside what lies in the spool."""

    def tight(job: Job, settings: Settings, advance: Callable[[int], None]) -> Written:
        if lacks(job, os.listdir(settings.spool)):
            Path(settings.spool, f"{job.token}-1.parquet").write_bytes(b"x")
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_job(job, settings, advance)

    monkeypatch.setattr(workers, "write_job", tight)


def test_where_there_is_no_room_for_a_unit_there_may_be_for_fewer_segments_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", count=6000).close()
    full(monkeypatch, lambda job, waiting: job.bytes > 4 * SEGMENT_BYTES)
    told: list[str] = []
    options = replace(UNMERGED, unit_bytes=10 * SEGMENT_BYTES)
    out = run(str(tmp_path / "data"), open_files(tmp_path / "archive"), options, Watch(report=told.append))
    assert out.problems == {}
    (text,) = told
    assert "no room for 0.7 MiB of log (11 segments of flights, 1 at a time): continuing with less at once" in text
    check_all(tmp_path / "data", tmp_path / "archive")


def test_what_waits_for_its_commit_makes_room_by_it_where_it_is_uploaded(
    elsewhere: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", count=6000).close()
    full(monkeypatch, lambda job, waiting: len(waiting) > 8)
    assert run(str(tmp_path / "data"), elsewhere, replace(UNMERGED, unit_bytes=1)).problems == {}
    check_exact(elsewhere, tmp_path / "data")


def test_a_segment_for_which_there_is_no_room_is_reported_with_its_size_and_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", count=6000).close()
    full(monkeypatch, lambda job, waiting: job.units[0].following > 3000)
    files = open_files(tmp_path / "archive")
    for _ in range(2):
        out = run(str(tmp_path / "data"), files, replace(UNMERGED, unit_bytes=10 * SEGMENT_BYTES))
        (text,) = out.problems.values()
        for part in ("No space left", "0.1 MiB of log in one segment of flights (offsets 2", "free space; a smaller"):
            assert part in text
        assert 2000 < load(files).ends["flights"] <= 3000
        assert [each.path for each in files.list("_new")] == []
    monkeypatch.undo()
    assert not run(str(tmp_path / "data"), files, UNMERGED).problems
    check_all(tmp_path / "data", tmp_path / "archive")


def test_retention_learns_the_commits_of_a_killed_run_also_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing would ever go where that is what would make room."""
    writer = fill(tmp_path / "data", count=1000)

    def step(name: str) -> None:
        if name == "committed":
            raise Killed

    with pytest.raises(Killed):
        run(str(tmp_path / "data"), open_files(tmp_path / "archive"), UNMERGED, Watch(step=step))
    more(writer, count=1000, first=1000)
    writer.close()
    full(monkeypatch, lambda unit, waiting: True)
    assert run(str(tmp_path / "data"), open_files(tmp_path / "archive"), UNMERGED).problems
    end = load(open_files(tmp_path / "archive")).ends["flights"]
    assert archived.read(FileSystem(), partition_path(str(tmp_path / "data"), "flights")) == end > 0


def test_merged_files_whose_time_is_over_are_removed_also_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a full disk stays full, although most of it might be theirs."""
    writer = fill(tmp_path / "data", count=3000)
    files = open_files(tmp_path / "archive")
    assert run(str(tmp_path / "data"), files, replace(EAGER, merge=True)).merged_from
    merged = load(files).removed
    assert merged
    more(writer, count=1000, first=3000)
    writer.close()
    with monkeypatch.context() as patch:
        full(patch, lambda unit, waiting: any(files.size(path) for path in merged))
        out = run(str(tmp_path / "data"), files, replace(EAGER, retention_seconds=0))
    assert out.problems == {}
    check_all(tmp_path / "data", tmp_path / "archive")


def test_no_merged_file_is_removed_if_its_new_retention_cannot_be_committed(tmp_path: Path) -> None:
    """Else readers would miss files that the archive says it has."""
    fill(tmp_path / "data", count=3000).close()
    files = open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), files, replace(EAGER, merge=True))
    before = load(files)
    assert before.removed

    def no_room(step: str) -> None:
        if step == "commit":
            raise OSError(errno.ENOSPC, "No space left on device")

    options = replace(EAGER, retention_seconds=0)
    assert run(str(tmp_path / "data"), files, options, Watch(step=no_room)).problems
    assert load(files).version == before.version
    assert all(files.size(path) for path in before.removed)
    assert run(str(tmp_path / "data"), files, options).vacuumed == len(before.removed)
