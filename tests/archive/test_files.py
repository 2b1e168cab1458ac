"""The verbs of an archive's files, the same over a directory, fsspec and pyarrow."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from pyarrow.fs import LocalFileSystem

from radiator.archive import load, run
from radiator.archive.files import Entry, Files, LocalFiles
from radiator.archive.opening import open_files
from radiator.archive.remote import ArrowFiles, FsspecFiles
from radiator.errors import StorageError
from tests.archive.stores import fill

KINDS = ("path", "file", "memory", "fsspec", "arrow", "arrow-objects")


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    root = str(tmp_path / "archive")
    if request.param == "path":
        yield open_files(root)
    elif request.param == "file":
        yield open_files(f"file://{root}")
    elif request.param == "memory":
        yield open_files(f"memory://{root}")
        fsspec.filesystem("memory").store.clear()
    elif request.param == "fsspec":
        yield FsspecFiles(fsspec.filesystem("file"), root, f"file://{root}", moves=True)
    else:
        yield ArrowFiles(LocalFileSystem(), root, root, moves=request.param == "arrow")
        (tmp_path / "archive").mkdir(exist_ok=True)


def spooled(files: Files, name: str, data: bytes) -> str:
    path = f"{files.spool('x')}/{name}"
    Path(path).write_bytes(data)
    return path


def test_a_name_is_written_once(files: Files) -> None:
    if isinstance(files, ArrowFiles) and not files._moves:
        files.fs.create_dir(f"{files.root}/_log", recursive=True)
    assert files.create_new("_log/1.json", b"first")
    assert not files.create_new("_log/1.json", b"second")
    assert files.read("_log/1.json") == b"first"
    assert files.list("_log") == [Entry("_log/1.json", 5)]


def test_what_is_published_is_there_whole_and_can_be_removed(files: Files) -> None:
    path = "date=2013-01-31/~2Ftopic~2Fa/p@0-1.00000000.parquet"
    if isinstance(files, ArrowFiles) and not files._moves:
        files.fs.create_dir(f"{files.root}/{path.rpartition('/')[0]}", recursive=True)
    data = bytes(range(256)) * 100
    assert files.size(path) is None
    assert files.list("date=2013-01-31") == []
    files.publish(spooled(files, "x.parquet", data), path)
    files.settle()
    assert files.size(path) == len(data)
    assert [entry.path for entry in files.list("date=2013-01-31")] == [path]
    with files.open(path) as file:
        file.seek(256)
        assert file.read(3) == b"\0\1\2"
    assert pickle.loads(pickle.dumps(files)).read(path) == data or files.uri.startswith("memory")
    files.remove(path)
    files.remove(path)
    assert files.size(path) is None
    with pytest.raises(FileNotFoundError):
        files.read(path)


def test_a_directory_is_named_by_a_path_or_by_a_uri(tmp_path: Path) -> None:
    for uri in (tmp_path, str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        files = open_files(uri)
        assert isinstance(files, LocalFiles)
        assert files.address("x") == f"{tmp_path}/x"
    for uri in ("file:///x/a#b?c", "file:/x/a#b?c", "file://localhost/x/a%23b%3Fc", "local:///x/a#b?c", "/x/a#b?c"):
        assert open_files(uri).local == "/x/a#b?c"
    for uri in ("file://", "file://#b", "file://?b"):
        with pytest.raises(StorageError, match="names no archive"):
            open_files(uri)


def test_a_scheme_that_nothing_reaches_is_reported_with_the_remedy() -> None:
    with pytest.raises(StorageError, match="no library for nowhere:// works.*pip install s3fs"):
        open_files("nowhere://bucket/archive")
    with pytest.raises(StorageError, match="names no archive"):
        open_files("")


def test_fsspec_is_imported_only_where_it_is_needed() -> None:
    code = (
        "import sys\nfrom radiator.archive import open_files\n"
        "open_files('/tmp/x')\nassert 'fsspec' not in sys.modules\n"
        "open_files('memory://x')\nassert 'fsspec' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_a_commit_names_is_synced_before_it_directories_and_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power cut: a name counts if its directory was synced behind it, and so on up to the first one."""
    names: dict[str, bool] = {}  # whether it would be found
    contents: set[str] = set()
    module = sys.modules[LocalFiles.__module__]
    real = {name: getattr(os, name) for name in ("fsync", "link", "rename", "makedirs")}

    def fsync(fd: int) -> None:
        real["fsync"](fd)
        path = os.readlink(f"/proc/self/fd/{fd}")
        if os.path.isdir(path):
            names.update({name: True for name in names if os.path.dirname(name) == path})
        else:
            contents.add(str(os.fstat(fd).st_ino))

    def named(path: str) -> None:
        assert str(os.stat(path).st_ino) in contents, f"{path} has a name before its bytes are safe"
        names[path] = False

    def link(old: str, new: str) -> None:
        gone = [name for name, safe in names.items() if not safe and os.path.exists(name) and "/_new" not in name]
        assert "_log" not in new or not [name for name in gone if name.endswith(".parquet")]
        real["link"](old, new)
        named(new)

    def rename(old: str, new: str) -> None:
        real["rename"](old, new)
        named(new)

    def makedirs(path: str, exist_ok: bool = False) -> None:
        missing = [path]
        while not os.path.isdir(os.path.dirname(missing[-1])):
            missing.append(os.path.dirname(missing[-1]))
        names.update({each: False for each in missing if not os.path.isdir(each)})
        real["makedirs"](path, exist_ok=exist_ok)

    for name, call in (("fsync", fsync), ("link", link), ("rename", rename), ("makedirs", makedirs)):
        monkeypatch.setattr(module.os, name, call)
    root = tmp_path / "new" / "archive"
    fill(tmp_path / "data").close()
    run.run(str(tmp_path / "data"), open_files(root))
    state = load(open_files(root))
    assert state.files
    needed = {str(root / path) for path in state.files} | {str(root / "_delta_log/00000000000000000000.json")}
    for path in list(needed):
        while path != str(tmp_path):
            needed.add(path)
            path = os.path.dirname(path)
    assert {path for path in needed if not names[path]} == set()


def test_what_is_secret_in_a_uri_is_in_no_message() -> None:
    with pytest.raises(StorageError) as caught:
        open_files("nosuch://key:s3cr3t@bucket/a?token=hidden")
    assert "nosuch://bucket/a" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_what_is_secret_in_the_uri_of_an_archive_is_in_what_opens_it_and_in_no_message(tmp_path: Path) -> None:
    given = "s3://key:s3cr3t@bucket/archive?endpoint_override=127.0.0.1%3A1"
    files = ArrowFiles(LocalFileSystem(), str(tmp_path), given, moves=True)
    files.create_new("_delta_log/00000000000000000001.json", b"x")
    with pytest.raises(StorageError, match=r"^s3://bucket/archive: commit 0 is missing"):
        load(files)
    files.create_new("_delta_log/00000000000000000000.json", b"x")
    with pytest.raises(StorageError, match=r"^s3://bucket/archive/_delta_log/0{20}.json: damaged"):
        load(files)
    assert files.given == given
    assert files.address("date=x/a") == "s3://key:s3cr3t@bucket/archive/date=x/a?endpoint_override=127.0.0.1%3A1"
