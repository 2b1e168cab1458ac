"""What is wrong with a store elsewhere is told in words, soon, and before anything is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from radiator.archive import asking
from radiator.archive.files import open_files
from radiator.archive.manifest import load
from radiator.archive.remote import ArrowFiles, FsspecFiles
from radiator.archive.run import run
from radiator.cli.main import run as run_command
from tests.archive.stores import check_exact, fill
from tests.columns.s3 import S3, running


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running() as s3:
        yield s3


@pytest.fixture
def data(tmp_path: Path) -> str:
    fill(tmp_path / "data", count=500).close()
    return str(tmp_path / "data")


def uri(s3: S3, bucket: str) -> str:
    parameters = urlencode({"endpoint_override": s3.endpoint, "scheme": "http", "region": "us-east-1"})
    return f"s3://who:knows@{bucket}/archive?{parameters}"


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_a_bucket_that_is_not_there_is_told(
    s3: S3, data: str, more: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["archive", "--data", data, "--to", uri(s3, "nowhere"), *more]) == 1
    said = capfd.readouterr().err
    assert "s3://nowhere/archive: cannot be listed" in said
    assert "nowhere" in said.partition("cannot be listed")[2]
    assert "look at the URI" in said
    assert "knows" not in said


def test_a_bucket_that_is_there_is_an_empty_archive(s3: S3, data: str) -> None:
    files = open_files(uri(s3, "logs"))
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
def test_credentials_that_are_refused_are_told_in_words_whatever_the_driver_raises(kind: Any) -> None:
    def refuse() -> None:
        raise Refused("Unable to locate\ncredentials")

    files = kind(Driver(refuse), "bucket/archive", "s3://me:secret@bucket/archive", False)
    files.fs.get_file_info = lambda *_: refuse()
    with pytest.raises(OSError, match=r"^s3://bucket/archive: cannot be listed: Unable to locate credentials; look at"):
        load(files)


def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SECONDS_MAX", 0.05)
    end = threading.Event()
    files = FsspecFiles(Driver(lambda: end.wait(60) and {}), "bucket/archive", "s3://bucket/archive", False)
    try:
        with pytest.raises(TimeoutError, match="no answer within 0.05 s"):
            load(files)
    finally:
        end.set()


def test_a_host_that_refuses_is_one_line_and_exit_code_1(data: str, capfd: pytest.CaptureFixture[str]) -> None:
    place = "s3://a:b@bucket/archive?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    assert run_command(["archive", "--data", data, "--to", place, "--dry-run"]) == 1
    said = capfd.readouterr().err
    assert said.startswith("radiator: s3://bucket/archive: cannot be listed: ")
    assert said.count("\n") == 1
