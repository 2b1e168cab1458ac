"""Runs of the archiver that die at a step: every system call on the archive's files, every mark, and what lies between.

``deadly`` puts counters before the calls; the n-th one raises ``Killed``, and so does every later one: nothing that a
dead process would not do is done, no clean-up either.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from radiator.archive import publishing, run
from radiator.archive.files import LocalFiles
from radiator.archive.merging import Sizes
from radiator.archive.opening import open_files
from radiator.archive.run import Options, Outcome, Watch
from radiator.archive.split import Settings
from radiator.archive.verify import verify
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from tests.archive.stores import Rows, check_exact, find_uncommitted, sealed_ends

EAGER = Options(unit_bytes=100_000, sizes=Sizes(open_day_files=3), settings=Settings("", group_rows=200))
CALLS = {"link", "rename", "unlink", "fsync", "makedirs", "rmtree", "write"}


class Killed(BaseException):
    """The process is gone."""


class Counter:
    """``at``: before which step it dies; None: never."""

    def __init__(self, at: int | None) -> None:
        self.at, self.steps = at, 0

    def step(self, name: str) -> None:
        if self.at is not None and self.steps >= self.at:
            raise Killed(f"before step {self.steps}, {name}")
        self.steps += 1


class _Proxy:
    """A module whose calls count."""

    def __init__(self, module: Any, counter: Counter) -> None:
        self._module, self._counter = module, counter

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name not in CALLS:
            return found

        def call(*args: Any, **more: Any) -> Any:
            self._counter.step(name)
            return found(*args, **more)

        return call


def run_until(at: int | None, data: Path, archive: Path, options: Options = EAGER) -> tuple[Outcome | None, int]:
    """What came of it, None if it was killed; and how many steps there were."""
    counter = Counter(at)
    with pytest.MonkeyPatch.context() as patch:
        files = sys.modules[LocalFiles.__module__]
        patch.setattr(files, "os", _Proxy(os, counter))
        patch.setattr(publishing, "shutil", _Proxy(shutil, counter))
        patch.setattr(run, "shutil", _Proxy(shutil, counter))
        patch.setattr(run, "archived", _Proxy(archived, counter))
        patch.setattr(run, "os", _Proxy(os, counter))
        try:
            out = run.run(str(data), open_files(archive), options, Watch(step=counter.step))
        except Killed:
            return None, counter.steps
    return out, counter.steps


def check_all(data: Path, archive: Path) -> Rows:
    """The archive is exact, holds nothing else, and retention knows."""
    found = check_exact(archive, data)
    where = open_files(archive)
    assert find_uncommitted(archive) == []
    assert [each.path for each in where.list("_new")] == []
    state = run.Publisher(where, run.source_of(str(data)), None).state
    assert list(verify(where, state, records=True)) == []
    for name, end in sealed_ends(data).items():
        assert state.ends.get(name, 0) == end
        assert archived.read(FileSystem(), partition_path(str(data), name)) == end
    return found
