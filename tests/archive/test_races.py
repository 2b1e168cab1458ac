"""Two archivers at once, step by step; archives elsewhere, killed at every verb; whose leftovers are whose."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import fsspec.implementations.local
import pytest
from pyarrow.fs import LocalFileSystem

from radiator.archive.files import Files
from radiator.archive.manifest import load
from radiator.archive.opening import open_files
from radiator.archive.publishing import LEFTOVER_SECONDS
from radiator.archive.remote import ArrowFiles, FsspecFiles
from radiator.archive.run import Outcome, Watch, run
from radiator.archive.verify import verify
from tests.archive.killing import EAGER, Counter, Killed, check_all, run_until
from tests.archive.stores import archive_rows, check_exact, fill, find_uncommitted, more


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, an archive of its beginning in small files, and a copy of the store."""
    root = tmp_path_factory.mktemp("begun")
    writer = fill(root / "data", count=700, destinations=1, days=1)
    run_until(None, root / "data", root / "archive", replace(EAGER, merge=False))
    more(writer, count=1300, destinations=1, days=1, first=700)
    writer.close()
    shutil.copytree(root / "data", root / "copy")
    return root


class Meeting(Counter):
    """Before the step ``at`` something else is done."""

    def __init__(self, at: int, what: Callable[[], Outcome]) -> None:
        super().__init__(at)
        self.what, self.came = what, list[Outcome]()

    def step(self, name: str) -> None:
        if self.steps == self.at:
            self.came.append(self.what())
        self.steps += 1


@pytest.mark.thorough
def test_wherever_another_archiver_comes_in_between_the_table_is_exact(begun: Path, tmp_path: Path) -> None:
    """One is stopped before each of its steps, the other does all of its work meanwhile. Merged files go at once."""
    step, met = 0, 0
    eager = replace(EAGER, retention_seconds=0)
    while True:
        root = tmp_path / str(step)
        shutil.copytree(begun, root)
        other = replace(eager, unit_bytes=100_000 if step % 2 else 1)
        meeting = Meeting(step, partial(run, str(root / "copy"), open_files(root / "archive"), other))
        out = run(str(root / "data"), open_files(root / "archive"), eager, Watch(step=meeting.step))
        run(str(root / "copy"), open_files(root / "archive"))  # tells its own retention, and finds nothing to do
        assert not out.problems
        check_all(root / "data", root / "archive")
        shutil.rmtree(root)
        if not meeting.came:
            break
        met += meeting.came[0].records > 0
        step += 1
    assert step > 10
    assert met > 3


class Deadly:
    """Files of another make; before the n-th verb the process is gone."""

    def __init__(self, files: Files, counter: Counter) -> None:
        self._files, self._counter = files, counter

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name not in {"create_new", "publish", "remove", "replace"}:
            return found

        return stepping(found, self._counter)


def stepping(found: Callable[..., Any], counter: Counter) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        counter.step("verb")
        return found(*args)

    return call


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("memory", "arrow")]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["moving", *SLOW])
def test_an_archive_elsewhere_is_exact_too_wherever_a_run_is_killed(begun: Path, tmp_path: Path, kind: str) -> None:
    def files(place: Path) -> Any:
        if kind == "memory":
            return open_files(f"memory://{place}")
        if kind == "moving":
            return FsspecFiles(fsspec.filesystem("file"), str(place), f"x://{place}", moves=True)
        return ArrowFiles(LocalFileSystem(), str(place), f"x://{place}", moves=True)

    step = 0
    while True:
        data, where = tmp_path / str(step), files(tmp_path / f"archive{step}")
        shutil.copytree(begun / "data", data)
        counter = Counter(step)
        deadly: Any = Deadly(where, counter)
        if kind != "memory":  # an upload, and its move
            where._move = stepping(where._move, counter)
        try:
            run(str(data), deadly, EAGER, Watch(step=counter.step))
            break
        except Killed:
            counter.at = None
        run(str(data), where, EAGER)
        check_exact(where, data)
        assert find_uncommitted(where) == []
        assert where.list("_new") == []
        assert list(verify(where, load(where), records=True)) == []
        shutil.rmtree(data)
        step += 1
    assert step > 15
    fsspec.filesystem("memory").store.clear()


class Torn(fsspec.implementations.local.LocalFileSystem):
    """Whoever writes a file with this name in it dies in the middle."""

    dies_at = "nothing"

    def open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        if self.dies_at in path and mode != "rb":
            Path(path).write_bytes(b"half of")
            raise Killed(path)
        return super().open(path, mode, **more)


@pytest.mark.parametrize("kind", ["_delta_log/0", "intent.json"])
def test_a_commit_that_is_torn_elsewhere_is_none(begun: Path, tmp_path: Path, kind: str) -> None:
    shutil.copytree(begun / "data", tmp_path / "data")
    torn = Torn(skip_instance_cache=True)
    files = FsspecFiles(torn, str(tmp_path / "archive"), "sftp://host/archive", moves=True)
    torn.dies_at = kind
    with pytest.raises(Killed):
        run(str(tmp_path / "data"), files, EAGER)
    torn.dies_at = "nothing"
    told: list[str] = []
    assert load(files).version == -1
    assert not run(str(tmp_path / "data"), files, EAGER, Watch(report=told.append)).problems
    assert not [text for text in told if "damaged" in text]
    assert files.list("_new") == []
    check_exact(files, tmp_path / "data")


@pytest.mark.parametrize(("age_seconds", "kept"), [(LEFTOVER_SECONDS - 60, True), (LEFTOVER_SECONDS + 60, False)])
def test_what_another_machine_left_is_removed_after_a_day(
    begun: Path, tmp_path: Path, age_seconds: int, kept: bool
) -> None:
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    archive, path = tmp_path / "archive", "date=2013-01-01/~2Fx/p@0-1.00000000.parquet"
    before = archive_rows(archive)
    named = next(iter(load(open_files(archive)).files))
    (archive / path).parent.mkdir(parents=True)
    (archive / path).write_bytes(b"")
    made_ns = time.time_ns() - age_seconds * 10**9
    intent = {"made_ns": made_ns, "owner": "another", "pid": 1, "add": [path, named], "remove": []}
    (archive / "_new/x.intent.json").write_text(json.dumps(intent))
    (archive / "_new/y.intent.json").write_text("{")
    told: list[str] = []
    run(str(tmp_path / "data"), open_files(archive), replace(EAGER, merge=False), Watch(report=told.append))
    assert (archive / path).exists() == kept
    assert (archive / "_new/x.intent.json").exists() == kept
    assert archive_rows(archive).items() >= before.items()
    assert any("y.intent.json: damaged" in text for text in told)
