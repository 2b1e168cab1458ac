"""Archives of the first log format: refused by name, converted in place, whatever comes in between.

``old_archive`` was written by radiator before its log was Delta's: three commits with records and two merges, and a
lost range.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from radiator.archive.convert import convert
from radiator.archive.files import LocalFiles
from radiator.archive.manifest import Lost, State, load
from radiator.archive.opening import open_files
from radiator.archive.run import run
from radiator.archive.verify import verify
from radiator.cli.main import run as run_command
from radiator.errors import StorageError
from tests.archive.killing import EAGER, Counter, Killed
from tests.archive.stores import archive_rows, check_exact, fill, find_uncommitted, more

OLD = Path(__file__).with_name("old_archive")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "archive"))


def contents(archive: Path) -> dict[str, bytes]:
    return {str(each.relative_to(archive)): each.read_bytes() for each in archive.rglob("*.*") if each.is_file()}


def check(archive: Path) -> None:
    files = open_files(archive)
    state = load(files)
    assert state.version == 4
    assert (state.ends, state.starts) == ({"flights": 980, "other": 1440}, {"flights": 0, "other": 0})
    assert state.lost == (Lost("other", 500, 980, "retention"),)
    assert {name: anchor.offset for name, anchor in state.anchors.items()} == {"flights": 979, "other": 1439}
    assert list(verify(files, state, records=True)) == []
    assert len(archive_rows(archive)) == state.records == 1940
    assert find_uncommitted(archive) == []
    found = DeltaTable(archive)
    assert found.version() == 4
    assert found.to_pyarrow_dataset().count_rows() == 1940
    assert [each["operation"] for each in found.history()] == ["OPTIMIZE", "WRITE", "OPTIMIZE", "WRITE", "WRITE"]
    assert found.to_pyarrow_dataset().count_rows(filter=pc.field("destination") != "") == 1940
    assert not (archive / "_log").exists()
    data = {path: each for path, each in contents(OLD).items() if path.startswith("date=")}
    assert {path: each for path, each in contents(archive).items() if path.startswith("date=")} == data


def test_an_old_archive_is_converted_without_a_change_of_its_data(
    archive: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run_command(["archive", "convert", str(archive)]) == 0
        check(archive)
    said = capfd.readouterr().out.splitlines()
    assert "converted: 5 commits, 14 files, 1,940 records" in said[0]
    assert "is a Delta table already" in said[1]


@pytest.mark.thorough
def test_a_conversion_that_is_killed_anywhere_is_refused_until_it_is_complete(archive: Path, tmp_path: Path) -> None:
    steps = 0
    while True:
        shutil.copytree(archive, tmp_path / str(steps))
        files = LocalFiles(str(tmp_path / str(steps)))
        try:
            convert(files, Counter(steps).step)
            break
        except Killed:
            try:
                assert load(files).records == 1940
            except StorageError as error:
                assert "radiator archive convert" in str(error)
        convert(files)
        check(tmp_path / str(steps))
        steps += 1
    assert steps == 11


@pytest.mark.parametrize("command", [["ls"], ["files"], ["verify"], ["--data", "DATA", "--to"]])
def test_every_other_command_refuses_it_with_the_command_to_run(
    archive: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    if "DATA" in command:
        fill(tmp_path / "data", count=100).close()
    before = contents(archive)
    argv = [str(tmp_path / "data") if each == "DATA" else each for each in command]
    assert run_command(["archive", *argv, str(archive)]) == 1
    assert "run `radiator archive convert`" in capfd.readouterr().err
    assert contents(archive) == before


@pytest.mark.parametrize("number", [1, 4])
def test_an_old_log_that_is_damaged_or_has_a_gap_is_not_converted(archive: Path, number: int) -> None:
    path = archive / f"_log/{number:020d}.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"records":', b'"records" :', 1))
    with pytest.raises(StorageError, match="damaged: its crc32 is"):
        convert(open_files(archive))
    if number == 1:
        path.unlink()
        with pytest.raises(StorageError, match="commit 1 is missing in _log/: restore it"):
            convert(open_files(archive))
    path.write_bytes(whole)
    convert(open_files(archive))
    check(archive)


def test_a_place_without_an_archive_is_none_to_convert(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["archive", "convert", str(tmp_path)]) == 5
    assert "there is no archive" in capfd.readouterr().err


OLD_KEYS = (
    "path", "date", "destinations", "records", "bytes", "body_bytes",
    "min_receive_ns", "max_receive_ns", "digest",
)  # fmt: skip


def make_old(archive: Path) -> None:
    """Replace the log by one of the first format with the same states."""
    files, before = open_files(archive), State()
    (archive / "_log").mkdir()
    for version in range(load(files).version + 1):
        state = load(files, version)
        old = {
            "format": 1, "version": version, "source": state.source, "made": "2026-01-01T00:00:00Z",
            "by": "radiator 0.1.0",
            "ends": dict(state.ends.items() - before.ends.items()),
            "starts": dict(state.starts.items() - before.starts.items()),
            "lost": sorted({*state.lost} - {*before.lost}),
            "anchors": dict(state.anchors.items() - before.anchors.items()),
            "add": [
                {
                    **{name: getattr(each, name) for name in OLD_KEYS},
                    **dict(zip(("partition", "first_offset", "next_offset"), each.spans[0], strict=False)),
                }
                for path, each in state.files.items() if path not in before.files
            ],
            "remove": [path for path in before.files if path not in state.files],
        }  # fmt: skip
        data = json.dumps(old, separators=(",", ":")).encode()
        (archive / f"_log/{version:020d}.json").write_bytes(data[:-1] + b',"crc":%d}\n' % crc32(data))
        before = state
    for path in before.removed:  # as it was then
        (archive / path).unlink()
    shutil.rmtree(archive / "_delta_log")


@pytest.mark.thorough
def test_a_converted_archive_has_every_state_of_the_old_one_and_goes_on(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=700, destinations=2)
    archive, data = tmp_path / "archive", str(tmp_path / "data")
    run(data, open_files(archive), replace(EAGER, merge=False))
    more(writer, "other", count=600, destinations=1)
    for _ in range(2):
        more(writer, count=600, destinations=2, first=700)
        for name in ("flights", "other"):  # the files of the old log had one partition
            run(data, open_files(archive), replace(EAGER, partitions=frozenset({name})))
    files = open_files(archive)
    states = [load(files, version) for version in range(load(files).version + 1)]
    assert any(state.removed for state in states)
    make_old(archive)
    with pytest.raises(StorageError, match="radiator archive convert"):
        run(data, files, EAGER)
    convert(files)
    for version, expected in enumerate(states):
        state = load(files, version)
        assert (state.source, state.ends, state.starts) == (expected.source, expected.ends, expected.starts)
        assert (state.anchors, state.removed.keys()) == (expected.anchors, expected.removed.keys())
        known = {path: replace(each, offsets=None, names=None) for path, each in expected.files.items()}
        assert state.files == known
    more(writer, count=900, destinations=2, first=1900)
    writer.close()
    assert not run(data, files, replace(EAGER, merge=True)).problems
    check_exact(files, tmp_path / "data")
    assert load(files).removed.keys() >= states[-1].files.keys() - load(files).files.keys()
    assert DeltaTable(archive).to_pyarrow_dataset().count_rows() == load(files).records
