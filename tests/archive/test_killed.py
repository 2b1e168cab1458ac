"""Killed at every step, then run again: the table is exact, and nothing is left lying about."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from radiator.archive import manifest, run
from radiator.archive.manifest import load
from radiator.archive.opening import open_files
from tests.archive.killing import EAGER, check_all, run_until
from tests.archive.stores import archive_rows, fill, log_rows, more

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of which an archive has the beginning, in small files."""
    root = tmp_path_factory.mktemp("begun")
    writer = fill(root / "data", count=700, destinations=2, days=1)
    run_until(None, root / "data", root / "archive", replace(EAGER, merge=False))
    more(writer, count=1000, destinations=2, days=1, first=700)
    more(writer, "other", count=500, destinations=1, days=1)
    writer.close()
    return root / "data", root / "archive"


def copied(begun: tuple[Path, Path], to: Path) -> tuple[Path, Path]:
    for each in begun:
        shutil.copytree(each, to / each.name)
    return to / "data", to / "archive"


@pytest.mark.thorough
def test_killed_at_every_step_and_run_again_the_table_is_exact(begun: tuple[Path, Path], tmp_path: Path) -> None:
    """Merged files are removed in the same run, so that it is killed there too."""
    options = replace(EAGER, retention_seconds=0)
    data, archive = copied(begun, tmp_path / "whole")
    out, steps = run_until(None, data, archive, options)
    assert out is not None
    assert out.records
    assert out.merged_to
    assert out.vacuumed
    expected = check_all(data, archive)
    assert steps > 60
    for step in range(steps):
        data, archive = copied(begun, tmp_path / str(step))
        assert run_until(step, data, archive, options)[0] is None
        assert archive_rows(archive).items() <= expected.items()
        assert run_until(None, data, archive, options)[0] is not None
        assert check_all(data, archive) == expected
        assert load(open_files(archive)).removed == {}
        shutil.rmtree(tmp_path / str(step))


def test_killed_again_and_again_it_comes_to_an_end(
    begun: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit has a checkpoint, so that it is killed there too."""
    monkeypatch.setattr(manifest, "CHECKPOINT_COMMITS", 1)
    data, archive = copied(begun, tmp_path)
    step = 0
    while run_until(step, data, archive)[0] is None:
        archive_rows(archive)
        step += 3
    check_all(data, archive)


@pytest.mark.thorough
def test_a_first_run_that_is_killed_leaves_an_archive_that_is_empty_or_right(tmp_path: Path) -> None:
    fill(tmp_path / "new/data", count=900, destinations=1, days=1).close()
    shutil.copytree(tmp_path / "new", tmp_path / "whole")
    out, steps = run_until(None, tmp_path / "whole/data", tmp_path / "whole/archive")
    assert out is not None
    assert out.records
    for step in range(steps):
        shutil.copytree(tmp_path / "new", tmp_path / str(step))
        data, archive = tmp_path / str(step) / "data", tmp_path / str(step) / "archive"
        assert run_until(step, data, archive)[0] is None
        run_until(None, data, archive)
        check_all(data, archive)


def test_a_commit_of_a_run_that_died_before_its_sync_is_synced_before_the_mark(
    begun: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, archive = copied(begun, tmp_path)
    run_until(None, data, archive, replace(EAGER, mark=False))
    events: list[str] = []
    fsync = os.fsync

    def recorded(fd: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    out = run.run(str(data), open_files(archive), EAGER, run.Watch(step=events.append))
    assert not out.records
    assert events.index(str(archive / "_delta_log")) < events.index("marked")


def command(data: Path, archive: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "radiator", "archive", "--data", str(data), "--to", str(archive), "--compact", *more]


@pytest.mark.thorough
@pytest.mark.parametrize("tries", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_killed_by_sigkill_at_any_time_the_table_is_exact(begun: tuple[Path, Path], tmp_path: Path, tries: int) -> None:
    whole = copied(begun, tmp_path / "whole")
    started = time.monotonic()
    subprocess.run(command(*whole), check=True, cwd=ROOT, capture_output=True)
    usual_seconds = time.monotonic() - started
    expected = log_rows(whole[0])
    die = random.Random(tries)
    for number in range(tries):
        data, archive = copied(begun, tmp_path / str(number))
        process = subprocess.Popen(command(data, archive, "--jobs", str(1 + number % 2)), cwd=ROOT)
        try:
            process.wait(usual_seconds * die.uniform(0.3, 1.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert archive_rows(archive).items() <= expected.items()
        subprocess.run(command(data, archive), check=True, cwd=ROOT, capture_output=True)
        check_all(data, archive)
        shutil.rmtree(tmp_path / str(number))


def test_two_runs_at_once_add_everything_once(begun: tuple[Path, Path], tmp_path: Path) -> None:
    """Over two copies of the store, as on two machines: no lock keeps them apart."""
    data, archive = copied(begun, tmp_path)
    shutil.copytree(data, tmp_path / "copy")
    runs = [
        subprocess.Popen(command(each, archive), cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for each in (data, tmp_path / "copy", data)
    ]
    errors = [each.communicate()[1] for each in runs]
    codes = [each.returncode for each in runs]
    assert codes[1] == 0, errors
    assert sorted([codes[0], codes[2]]) in ([0, 0], [0, 1]), errors
    assert all("another run is active (process " in text for text, code in zip(errors, codes, strict=True) if code)
    check_all(data, archive)
