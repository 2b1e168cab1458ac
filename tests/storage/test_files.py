"""The seam to the operating system, on the real one."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from radiator.errors import StorageError
from radiator.storage.files import FileSystem, read_file, replace_file, storage_error, sync_ancestors, write_all
from tests.storage.driving import ALWAYS, commit, opened, put, read_all
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


def test_a_data_directory_that_cannot_be_made_is_reported_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/data.*cannot open"):
        opened(root=str(tmp_path / "file" / "data"))
    (tmp_path / "data").write_text("")
    with pytest.raises(StorageError, match="cannot open the data directory"):
        opened(root=str(tmp_path / "data"))


def test_a_new_data_directory_and_all_above_it_survive_a_power_cut() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs, root="/srv/broker/a/data")
    put(store.partition("q", ALWAYS), b"body")
    commit(store)
    above = {"/srv", "/srv/broker", "/srv/broker/a", "/srv/broker/a/data"}
    assert above | {"/srv/broker/a/data/journal"} <= fs.disk_dirs
    fs.power_cut()
    store, notes = opened(fs, root="/srv/broker/a/data")
    assert not notes and read_all(store.partitions["q"]) == {0: b"body"}


def test_every_directory_above_a_new_one_is_synced_but_those_that_this_user_may_not_read(tmp_path: Path) -> None:
    synced: list[str] = []

    class Recording(FileSystem):
        def sync_dir(self, path: str) -> None:
            if path == str(tmp_path.parent):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            synced.append(path)

    fs = Recording()
    root = tmp_path / "a" / "b" / "data"
    fs.mkdir(str(root))
    (tmp_path / "link").symlink_to(root)
    for name in (root, tmp_path / "link"):
        synced.clear()
        sync_ancestors(fs, str(name))
        assert synced[:3] == [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]


def test_what_is_below_a_locked_directory_is_found_and_made_in_it_wherever_it_is(tmp_path: Path) -> None:
    fs, old, new = FileSystem(), str(tmp_path / "old"), str(tmp_path / "new")
    fs.mkdir(old)
    lock = fs.lock(old)
    assert fs.in_place(lock) and FileSystem().is_locked(old)
    os.rename(old, new)
    assert not fs.in_place(lock) and FileSystem().is_locked(new) and not FileSystem().is_locked(old)
    replace_file(fs, f"{old}/file", b"body")
    fs.mkdir(f"{old}/deep/er")
    fs.rename(f"{old}/file", f"{old}/deep/file")
    fs.link(f"{old}/deep/file", f"{old}/twin")
    fs.chmod(f"{old}/twin", 0o640)
    assert read_file(fs, f"{old}/twin") == b"body" and fs.listdir(old) == ["LOCK", "deep", "twin"]
    assert Path(new, "deep", "file").read_bytes() == b"body" and not os.path.exists(old)
    assert (fs.stat(old), fs.stat(f"{old}/twin")) == (FileSystem().stat(new), FileSystem().stat(f"{new}/twin"))
    fs.remove(f"{old}/twin")
    fs.rmdir(f"{old}/deep/er")
    fs.unlock(lock)
    assert read_file(fs, f"{old}/deep/file") is None and not FileSystem().is_locked(new)


def test_a_lock_outlives_its_file_and_the_file_alone_keeps_others_out_too(tmp_path: Path) -> None:
    fs, root = FileSystem(), str(tmp_path)
    lock = fs.lock(root)
    (tmp_path / "LOCK").unlink()
    with pytest.raises(BlockingIOError):
        FileSystem().lock(root)
    assert not (tmp_path / "LOCK").exists()
    fs.unlock(lock)
    lock = fs.lock(root)
    fcntl.flock(lock.fd, fcntl.LOCK_UN)  # as seen from another machine on NFS
    with pytest.raises(BlockingIOError):
        FileSystem().lock(root)
    assert FileSystem().is_locked(root)
    fs.unlock(lock)


def test_mkdir_creates_missing_directories_and_accepts_existing_ones(tmp_path: Path) -> None:
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
