"""Earlier versions of an archive: by number, time and record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from radiator import archive
from radiator.archive import NoArchive, NoVersion, manifest
from radiator.archive.files import LocalFiles
from radiator.archive.manifest import Changes, State, commit, load
from radiator.archive.versions import load_as_of
from radiator.cli.main import run as run_command
from tests.archive.test_manifest import data_file

START_NS = 1_800_000_000_000_000_000
HOUR_NS = 3600 * 10**9


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFiles:
    """A commit an hour, of ten offsets each; after the fourth one the first three files are merged."""
    made = LocalFiles(str(tmp_path))
    state = load(made)
    for number in range(4):
        monkeypatch.setattr(manifest.time, "time_ns", lambda number=number: START_NS + number * HOUR_NS)
        first = 10 * number
        assert made.create_new(data_file(first, first + 10).path, b"")
        found = commit(made, state, Changes("s", add=[data_file(first, first + 10)], ends={"p": first + 10}))
        assert isinstance(found, State)
        state = found
    monkeypatch.setattr(manifest.time, "time_ns", lambda: START_NS + 4 * HOUR_NS)
    commit(made, state, Changes("s", add=[data_file(0, 30)], remove=list(state.files)[:3]))
    return made


def at(hours: float) -> datetime:
    return datetime.fromtimestamp(START_NS // 10**9, UTC) + timedelta(hours=hours)


@pytest.mark.parametrize(
    ("as_of", "version"),
    [
        (0, 0), ("3", 3), (at(0), 0), (at(0.5), 0), (at(2), 2), (at(99), 4), (at(2.9).isoformat(), 2),
        ("p@0", 0), ("p@9", 0), ("p@10", 1), ("p@39", 3),
    ],
)  # fmt: skip
def test_a_version_is_found_by_number_time_or_record(
    files: LocalFiles, as_of: int | str | datetime, version: int
) -> None:
    state = load_as_of(files, as_of)
    assert state.version == version
    assert state == load(files, version)
    assert sorted(archive.files(files, as_of=as_of)) == sorted(files.address(path) for path in state.files)


@pytest.mark.parametrize(
    ("as_of", "error", "text"),
    [
        (5, NoVersion, "there is no version 5; the last one is 4"),
        (at(-0.1), NoArchive, "there was no archive at"),
        ("p@40", NoVersion, "no offset 40 of 'p': it ends at 39"),
        ("q@0", NoVersion, "has no partition 'q'"),
        ("yesterday", ValueError, "expected a version .*, a time .* or PARTITION@OFFSET"),
    ],
)
def test_a_version_that_does_not_exist_is_an_error_with_the_reason(
    files: LocalFiles, as_of: int | str | datetime, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        load_as_of(files, as_of)


@pytest.mark.parametrize("vacuum", [True, False], ids=["run", "other program"])
def test_a_version_whose_files_were_removed_is_an_error(files: LocalFiles, vacuum: bool) -> None:
    files.remove(data_file(10, 20).path)
    if vacuum:  # of other programs no commit says so
        state = load(files)
        commit(files, state, Changes("s", vacuumed_ms=max(state.removed.values())))
    assert load_as_of(files, 0).version == 0
    for version in (1, 2):
        with pytest.raises(NoVersion, match=f"1 file of version {version} was merged and removed .*10-20.*--keep-m"):
            load_as_of(files, version)
    assert load_as_of(files, 4).version == 4


def test_the_command_lists_the_files_of_a_version(files: LocalFiles, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["archive", "files", files.uri, "--as-of", "p@5"]) == 0
    assert capfd.readouterr().out.splitlines() == [files.address(data_file(0, 10).path)]
    assert run_command(["archive", "files", files.uri, "--as-of", "soon"]) == 2
    assert "expected a version" in capfd.readouterr().err


@pytest.mark.parametrize("as_of", ["5", "q@0", "p@40", "2001-01-01T00:00:00Z"])
def test_the_command_ends_with_not_found_if_there_is_no_such_version(
    files: LocalFiles, as_of: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["archive", "files", files.uri, "--as-of", as_of]) == 5
    assert capfd.readouterr().out == ""
