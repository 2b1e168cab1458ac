"""A data directory that may not be read is told so, in one line and with one exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.common import FAILED, NOT_FOUND
from radiator.cli.main import run
from tests.spark.stores import Writer, numbered


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store below which nothing can be listed, for root neither."""
    writer = Writer(tmp_path / "data")
    writer.write("/topic/a", numbered("/topic/a", 3))
    writer.close()
    real = os.listdir

    def listdir(path: Any = ".") -> Any:
        if str(path).startswith(writer.root):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    return writer.root


@pytest.mark.parametrize(
    "args",
    [
        "ls --data {0}",
        "fsck --data {0}",
        "export --data {0} --format csv --to -",
        "archive --data {0} --to {0}.archive",
        "backup --data {0} --to {0}.backup",
        "replay --data {0} --to /topic/b",
        "report traffic --data {0}",
        "dump {0}/partitions",
    ],
)
def test_what_may_not_be_read_is_one_line_and_exit_code_1(
    closed: str, args: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(args.format(closed).split()) == FAILED
    told = capfd.readouterr().err
    assert told.endswith(": cannot be read: permission denied; run as the broker's user\n")
    assert len(told.splitlines()) == 1


def test_an_archive_that_is_not_there_is_not_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "--archive", str(tmp_path / "nowhere"), "--to", "/topic/b"]) == NOT_FOUND
    assert "the archive does not exist or is empty" in capfd.readouterr().err
