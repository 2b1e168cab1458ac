"""The seam to the operating system, on the real one."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from radiator.errors import StorageError
from radiator.storage.files import FileSystem, read_file, storage_error, write_all
from tests.storage.driving import ALWAYS, commit, opened, put
from tests.storage.faults import FaultyFileSystem


def modes(root: Path) -> set[tuple[bool, int]]:
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in root.rglob("*")}


def test_directories_are_0700_and_files_0600(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store, _ = opened(root=str(tmp_path / "deep" / "data"))
        put(store.partition("q", ALWAYS), b"body", destination="/topic/other")
        store.cursors.open("c", "q", 0).ack([0])
        commit(store)
        store.close()
    finally:
        os.umask(before)
    assert modes(tmp_path) == {(True, 0o700), (False, 0o600)}


def test_a_second_broker_on_the_directory_is_refused_with_the_holders_pid(tmp_path: Path) -> None:
    store, _ = opened(root=str(tmp_path / "data"))
    with pytest.raises(StorageError, match=f"process {os.getpid()}.*another data_dir"):
        opened(root=str(tmp_path / "data"))
    store.close()
    store, _ = opened(root=str(tmp_path / "data"))
    store.close()


def test_a_data_directory_that_cannot_be_made_is_told_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/data.*cannot open"):
        opened(root=str(tmp_path / "file" / "data"))
    (tmp_path / "data").write_text("")
    with pytest.raises(StorageError, match="cannot open the data directory"):
        opened(root=str(tmp_path / "data"))


def test_mkdir_makes_parents_and_minds_no_directory_that_is_there(tmp_path: Path) -> None:
    fs = FileSystem()
    fs.mkdir(str(tmp_path / "a" / "b" / "c"))
    fs.mkdir(str(tmp_path / "a" / "b" / "c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert fs.listdir(str(tmp_path / "nothing")) == []


def test_short_writes_are_completed() -> None:
    fs = FaultyFileSystem()
    fs.short_writes = True
    fd = fs.open("/file", create=True)
    assert write_all(fs, fd, [b"abc", b"", b"defgh"], 2) == 8
    assert read_file(fs, "/file") == b"\0\0abcdefgh"
    fs.capacity = 12
    with pytest.raises(OSError, match="No space"):
        write_all(fs, fd, [b"0123456789"], 10)


def test_an_error_names_path_and_remedy() -> None:
    for number, remedy in ((errno.ENOSPC, "free space"), (errno.EMFILE, "ulimit"), (errno.EINVAL, "system's log")):
        text = str(storage_error("/data/x", "write", OSError(number, os.strerror(number))))
        assert "/data/x" in text and "write" in text and remedy in text
