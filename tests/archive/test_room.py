"""What a run takes of the disk on which files are made: no more than it must, and it is given back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from radiator.archive import run as running
from radiator.archive.files import Files, open_files
from radiator.archive.manifest import load
from radiator.archive.merging import to_merge
from radiator.archive.run import Watch, run
from tests.archive.killing import EAGER, check_all
from tests.archive.stores import check_exact, fill, more
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
    monkeypatch.setattr(running, "COMMIT_BYTES", 1)
    fill(tmp_path / "data", count=3000).close()
    waiting: list[list[str]] = []

    def step(name: str) -> None:
        if name == "ended":
            waiting.append(spooled(tmp_path / "tmp"))

    assert not run(str(tmp_path / "data"), elsewhere, replace(EAGER, merge=True), Watch(step=step)).problems
    assert len(waiting) > 3
    assert not any(waiting)
    check_exact(elsewhere, tmp_path / "data")


def test_merged_files_are_committed_before_they_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "data", count=3000).close()
    run(str(tmp_path / "data"), open_files(tmp_path / "archive"), UNMERGED)
    monkeypatch.setattr(running, "COMMIT_BYTES", 1)
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


def test_units_behind_damage_are_not_written_by_other_processes_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "COMMIT_UNITS", 1)
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


def test_a_file_that_is_missing_is_told_by_the_run_that_would_merge_it(tmp_path: Path) -> None:
    fill(tmp_path / "data", count=3000).close()
    files = open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), files, UNMERGED)
    gone = to_merge(load(files), EAGER.sizes, force=True)[0][0].path
    os.unlink(files.address(gone))
    for _ in range(2):
        out = run(str(tmp_path / "data"), files, replace(EAGER, merge=True))
        assert out.damaged
        assert f"{files.address(gone)}: is not there" in " ".join(out.problems.values())
