"""What is wrong with a store elsewhere is told in words, soon, and before anything is done."""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from radiator.archive import calls
from radiator.archive.files import Files
from radiator.archive.manifest import load
from radiator.archive.opening import open_files
from radiator.archive.parquet import reader
from radiator.archive.paths import LOG, commit_path
from radiator.archive.remote import ArrowFiles, FsspecFiles
from radiator.archive.run import run
from radiator.cli.main import run as run_command
from tests.archive.stores import check_exact, fill, more
from tests.columns.s3 import S3, running


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running() as s3:
        yield s3


@pytest.fixture
def data(tmp_path: Path) -> str:
    fill(tmp_path / "data", count=500).close()
    return str(tmp_path / "data")


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_a_bucket_that_is_not_there_is_reported(
    s3: S3, data: str, more: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["archive", "--data", data, "--to", s3.uri("nowhere/archive"), *more]) == 1
    said = capfd.readouterr().err
    assert "s3://nowhere/archive: cannot be listed" in said
    assert "nowhere" in said.partition("cannot be listed")[2]
    assert "check the URI" in said
    assert "knows" not in said


def test_a_commit_of_another_archiver_is_read_although_the_listing_is_older(s3: S3) -> None:
    ours, theirs = open_files(s3.uri("logs/two")), open_files(s3.uri("logs/two", allow_bucket_creation="false"))
    assert (type(ours), type(theirs)) == (FsspecFiles, ArrowFiles)  # which have no listings in common
    path = commit_path(1)
    assert theirs.create_new(commit_path(0), b"0")
    assert [each.path for each in ours.list(LOG)] == [commit_path(0)]
    assert theirs.create_new(path, b"theirs")
    assert not ours.create_new(path, b"ours")
    assert ours.read(path) == b"theirs"


@pytest.mark.parametrize("kind", [FsspecFiles, ArrowFiles])
def test_a_bucket_that_is_there_is_an_empty_archive(s3: S3, data: str, kind: type[Files]) -> None:
    """s3fs opens what pyarrow's URI names, except with a parameter for which it has no argument."""
    more = {"allow_bucket_creation": "false"} if kind is ArrowFiles else {}
    files = open_files(s3.uri(f"logs/{kind.__name__}", **more))
    assert type(files) is kind
    assert load(files).version == -1
    assert not run(data, files).problems
    check_exact(files, data)


class Refused(Exception):
    """As drivers have them: no OSError."""


class Driver:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def invalidate_cache(self) -> None: ...

    def find(self, place: str, detail: bool) -> Any:
        return self._answer()

    get_file_info = find


@pytest.mark.parametrize("kind", [FsspecFiles, ArrowFiles])
def test_refused_credentials_are_reported_with_the_reason_whatever_the_driver_raises(kind: Any) -> None:
    def refuse() -> None:
        raise Refused("Unable to locate\ncredentials")

    files = kind(Driver(refuse), "bucket/archive", "s3://me:secret@bucket/archive", False)
    files.fs.get_file_info = lambda *_: refuse()
    with pytest.raises(OSError, match=r"^s3://bucket/archive: cannot be listed: Unable to locate credentials; check"):
        load(files)


def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SECONDS_MAX", 0.05)
    end = threading.Event()
    files = FsspecFiles(Driver(lambda: end.wait(60) and {}), "bucket/archive", "s3://bucket/archive", False)
    try:
        with pytest.raises(TimeoutError, match="no answer within 0.05 s"):
            load(files)
    finally:
        end.set()


@pytest.mark.thorough
def test_a_host_that_refuses_is_one_line_and_exit_code_1(data: str, capfd: pytest.CaptureFixture[str]) -> None:
    place = "s3://a:b@bucket/archive?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    assert run_command(["archive", "--data", data, "--to", place, "--dry-run"]) == 1
    said = capfd.readouterr().err
    assert said.startswith("radiator: s3://bucket/archive: cannot be listed: ")
    assert said.count("\n") == 1


# --- later on ---------------------------------------------------------------------------------------------------------

PATH = "date=2013-01-31/~2Ftopic~2Fa/p@0-1.00000000.parquet"
VERBS: list[tuple[str, str, Callable[[Files, str], object]]] = [
    ("cat_file", "read", lambda files, spooled: files.read(PATH)),
    ("open", "read", lambda files, spooled: files.open(PATH)),
    ("info", "looked at", lambda files, spooled: files.size(PATH)),
    ("open", "written", lambda files, spooled: files.create_new(PATH, b"x")),
    ("put_file", "written", lambda files, spooled: files.publish(spooled, PATH)),
    ("rm_file", "removed", lambda files, spooled: files.remove(PATH)),
]


@pytest.fixture
def memory() -> Iterator[Any]:
    yield fsspec.filesystem("memory")
    fsspec.filesystem("memory").store.clear()


def refuse(*_: object, **__: object) -> None:
    raise Refused("An error occurred (ExpiredToken):\nthe token has expired")


@pytest.mark.parametrize(("call", "what", "verb"), VERBS)
def test_what_a_driver_raises_at_any_call_is_an_error_with_the_reason(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, what: str,
    verb: Callable[[Files, str], object],
) -> None:  # fmt: skip
    files = FsspecFiles(memory, "bucket/archive", "s3://me:secret@bucket/archive", False)
    (tmp_path / "spooled").write_bytes(b"x")
    monkeypatch.setattr(memory, call, refuse)
    with pytest.raises(OSError, match=rf"^s3://bucket/archive/{PATH}: cannot be {what}: An error .*: the token has"):
        verb(files, str(tmp_path / "spooled"))


def test_what_a_driver_raises_while_a_file_is_read_is_an_error_with_the_reason(memory: Any) -> None:
    class File(io.BytesIO):
        read = readinto = refuse

    memory.pipe_file("bucket/archive/x", b"x" * 100)
    files = FsspecFiles(memory, "bucket/archive", "s3://bucket/archive", False)
    with files.open("x") as file:
        assert file.seek(99) == 99 and file.read(2) == b"x"
    files.fs = SimpleNamespace(open=lambda *_: File(b"x" * 100))
    with files.open("x") as file, pytest.raises(OSError, match=r"^s3://bucket/archive/x: cannot be read: An error"):
        reader(file)
    assert file.closed


@pytest.mark.parametrize("call", ["cat_file", "put_file", "rm_file"])
def test_a_store_that_refuses_in_the_middle_ends_a_run_with_one_line(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    command = ["archive", "--data", str(tmp_path / "data"), "--to", "memory://bucket/archive", "--no-compact"]
    writer = fill(tmp_path / "data", count=1000)
    assert run_command(command) == 0
    more(writer, count=1000, first=1000)
    writer.close()
    capfd.readouterr()
    monkeypatch.setattr(type(memory), call, refuse)
    assert run_command(command) == 1
    said = capfd.readouterr().err
    assert "cannot be " in said and "An error occurred (ExpiredToken): the token has expired; check the URI" in said
    assert said.count("memory://bucket/archive") == 1
    assert said.count("\n") == 1


def test_an_error_that_has_a_number_keeps_it() -> None:
    with pytest.raises(PermissionError) as caught, calls.as_os_errors("x: cannot be read"):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert caught.value.errno == errno.EACCES
