"""Stores and archives that are not what they were: what is refused, and that retention hears nothing of it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from radiator.archive import lock
from radiator.archive.files import LocalFiles
from radiator.archive.lock import locked
from radiator.archive.manifest import CHECKPOINT_COMMITS, Changes, State, commit, load
from radiator.archive.opening import open_files
from radiator.archive.paths import checkpoint_path, commit_path
from radiator.archive.run import Outcome, Watch, run
from radiator.errors import StorageError
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from tests.archive.killing import EAGER, check_all
from tests.archive.stores import fill, more
from tests.archive.test_manifest import data_file, grown
from tests.spark.stores import Writer


def go(root: Path) -> Outcome:
    return run(str(root / "data"), open_files(root / "archive"), EAGER)


def recreated(root: Path, count: int) -> None:
    """The partition is removed, and gets other messages."""
    shutil.rmtree(partition_path(str(root / "data"), "flights"))
    writer = Writer(root / "data", 64 * 1024)
    more(writer, count=count, first=100_000)
    writer.close()


def marked(root: Path) -> int:
    return archived.read(FileSystem(), partition_path(str(root / "data"), "flights"))


def test_a_partition_that_is_refused_is_not_marked(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data")
    more(writer, "sound")
    writer.close()
    go(tmp_path)
    assert marked(tmp_path) > 0
    recreated(tmp_path, 600)
    assert "ends at offset 600" in go(tmp_path).problems["flights"]
    assert marked(tmp_path) == 0
    assert archived.read(FileSystem(), partition_path(str(tmp_path / "data"), "sound")) > 0


def test_an_archive_whose_log_cannot_be_listed_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "data").close()
    go(tmp_path)
    scandir = os.scandir

    def broken(path: Any = ".") -> Any:
        if str(path).endswith("_log"):
            raise OSError(errno.EIO, "Input/output error", path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", broken)
        with pytest.raises(OSError, match="Input/output"):
            load(open_files(tmp_path / "archive"))
        with pytest.raises(OSError, match="Input/output"):
            go(tmp_path)
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_checkpoint_without_its_commit_is_refused(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    before = grown(files, CHECKPOINT_COMMITS - 1)
    state = grown(files, 1)
    files.remove(commit_path(state.version))
    with pytest.raises(StorageError, match=rf"checkpoint of commit {state.version}.*last commit in _delta_log/ is"):
        load(files)
    assert load(files, before.version) == before


def test_a_checkpoint_that_says_something_else_is_not_kept(tmp_path: Path) -> None:
    """The commit whose state is to be written finds one of its number, left from commits that were taken away."""
    files = LocalFiles(str(tmp_path))
    last = CHECKPOINT_COMMITS - 1
    before = grown(files, last)
    other = data_file(before.ends["p"], before.ends["p"] + 7)
    assert isinstance(commit(files, before, Changes("s", add=[other], ends={"p": other.spans[0].next_offset})), State)
    files.remove(commit_path(last))
    with pytest.raises(StorageError, match=f"is not the state as of version {last}; remove it"):
        commit(files, before, Changes("s", add=[data_file(other.spans[0].first, 400)], ends={"p": 400}))
    files.remove(checkpoint_path(last))
    assert load(files).ends == {"p": 400}  # the commits say everything


def test_a_checkpoint_that_says_the_same_is_kept(tmp_path: Path) -> None:
    """As of somebody who died behind it, or was slower."""
    files = LocalFiles(str(tmp_path))
    last = CHECKPOINT_COMMITS - 1
    before = grown(files, last)
    added = [data_file(before.ends["p"], before.ends["p"] + 7)]
    changes = Changes("s", add=added, ends={"p": added[0].spans[0].next_offset})
    after = commit(files, before, changes)
    files.remove(commit_path(last))
    assert commit(files, before, changes) == after == load(files)


def test_a_run_does_not_remove_the_old_empty_spool_that_it_uses(tmp_path: Path) -> None:
    fill(tmp_path / "data").close()
    with locked(str(tmp_path / "data")) as owner:
        spool = tmp_path / "archive" / "_new" / str(owner)
    spool.mkdir(parents=True)
    os.utime(spool, (1e9, 1e9))
    assert go(tmp_path).records
    check_all(tmp_path / "data", tmp_path / "archive")


def test_two_directories_of_one_name_on_hosts_of_one_name_are_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two containers see them."""
    monkeypatch.setattr(os.path, "realpath", lambda path: "/srv/radiator")
    for name in "ab":
        (tmp_path / name / "partitions").mkdir(parents=True)
    with locked(str(tmp_path / "a")) as one, locked(str(tmp_path / "b")) as other:
        assert one is not None
        assert other is not None
        assert one != other
    with locked(str(tmp_path / "a")) as again:
        assert again == one


def test_a_run_after_a_restart_of_the_machine_is_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "partitions").mkdir()
    with locked(str(tmp_path)) as one:
        pass
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(lock, "BOOT", str(tmp_path / "boot"))
    with locked(str(tmp_path)) as other:
        assert other not in (None, one)
    monkeypatch.setattr(lock, "BOOT", str(tmp_path / "none"))
    with locked(str(tmp_path)) as nobody:
        assert nobody is None


def test_a_run_leaves_the_work_of_one_with_the_same_names_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", count=900, destinations=1, days=1).close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    monkeypatch.setattr(os.path, "realpath", lambda path: "/srv/radiator")
    came: list[Outcome] = []

    def step(name: str) -> None:
        if name == "settled" and not came:
            came.append(run(str(tmp_path / "copy"), open_files(tmp_path / "archive"), EAGER))

    out = run(str(tmp_path / "data"), open_files(tmp_path / "archive"), EAGER, Watch(step=step))
    assert came[0].records
    assert came[0].swept == 0
    assert not out.problems
    check_all(tmp_path / "data", tmp_path / "archive")
