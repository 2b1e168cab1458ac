"""What is wrong with one partition, or with the disk, costs no more than it must."""

from __future__ import annotations

import errno
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radiator.archive import publishing
from radiator.archive import run as running
from radiator.archive.files import LocalFiles
from radiator.archive.manifest import Conflict, load
from radiator.archive.opening import open_files
from radiator.archive.parquet import DataWriter
from radiator.archive.run import Options, Outcome, Watch, run
from radiator.archive.split import Split
from radiator.archive.verify import verify
from radiator.columns.headermap import HeaderMaps
from radiator.errors import StorageError
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from tests.archive.killing import EAGER, check_all
from tests.archive.stores import SEGMENT_BYTES, archive_rows, check_exact, fill, more
from tests.spark.stores import START_NS, Message, Writer


def go(root: Path, options: Options = EAGER, watch: Watch = Watch()) -> Outcome:  # noqa: B008
    return run(str(root / "data"), open_files(root / "archive"), options, watch)


def segments(root: Path) -> list[Path]:
    return sorted(Path(partition_path(str(root / "data"), "flights")).glob("*.rlog"))


BLOCKS = [
    b"bad:\xff\xfe",
    b"no colon\xd5\nmore",
    b"\xff",
    b"tag-x:\\x\xc3",
    b"cut:\xc3",  # and the next one begins with the rest of the character
    b"\xa9ut:1",
    b"a:1\na:2\n:\n\n",
]


def test_records_with_odd_headers_and_names_are_archived_as_the_log_shows_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", SEGMENT_BYTES)
    names = ["/topic/a", "/topic/" + "x" * 240, "/topic/" + "\u00fc" * 200, "", "~many"]
    for partition in ("odd", "odder"):
        for block in BLOCKS:
            made = [Message(name, b"." * 700, block, START_NS) for name in names for _ in range(10)]
            writer.write(partition, made, per_batch=7)
    more(writer, "sound", 500)
    writer.close()
    out = go(tmp_path)
    assert (out.problems, out.damaged) == ({}, False)
    found = check_all(tmp_path / "data", tmp_path / "archive")
    assert {row["destination"] for row in found.values()} >= set(names)
    values = {dict(row["headers"]).get("bad") for row in found.values()}
    assert values >= {None, "\ufffd\ufffd"}


@pytest.mark.parametrize("block", BLOCKS)
def test_headers_that_are_no_utf_8_are_valid_text_beside_others(block: bytes) -> None:
    blocks = [b"tag-a:\xc3\xa9", block, b"b:2"]
    offsets = np.cumsum([0, *map(len, blocks)]).astype(np.int32)
    maps = HeaderMaps(np.frombuffer(b"".join(blocks), np.uint8), offsets)
    for made in (maps.headers(), maps.tags()):
        made.validate(full=True)
    first, _, last = maps.headers().to_pylist()
    assert (first, last) == ([("tag-a", "\u00e9")], [("b", "2")])


def test_a_character_that_two_blocks_share_is_seen() -> None:
    data = b"a:\xc3\xa9:1"  # "a:" and half a letter; the other half, ":1"
    maps = HeaderMaps(np.frombuffer(data, np.uint8), np.array([0, 3, len(data)], np.int32))
    maps.headers().validate(full=True)
    assert maps.headers().to_pylist() == [[("a", "\ufffd")], [("\ufffd", "1")]]


def test_an_unexpected_error_ends_its_partition_only_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = fill(tmp_path / "data", "first")
    more(writer, "odd")
    more(writer, "then")
    writer.close()
    add = Split.add

    def fragile(self: Split, batch: Any) -> None:
        if self.partition == "odd" and batch.column("offset")[0].as_py() > 700:
            raise KeyError("nobody thought of this")
        add(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Split, "add", fragile)
        out = go(tmp_path, EAGER)
    (text,) = out.problems.values()
    assert set(out.problems) == {"odd"}
    for part in ("'odd'", "KeyError", "nobody thought of this", "test_isolated_failures.py:"):
        assert part in text
    ends = load(open_files(tmp_path / "archive")).ends
    assert 0 < ends["odd"] < ends["first"] == ends["then"]  # its units before that one are there
    assert archived.read(FileSystem(), partition_path(str(tmp_path / "data"), "then")) == ends["then"]
    assert list((tmp_path / "archive" / "_new").iterdir()) == []
    assert not go(tmp_path).problems
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_segment_whose_disk_cannot_read_it_stops_its_partition_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = fill(tmp_path / "data")
    more(writer, "then")
    writer.close()
    bad = str(segments(tmp_path)[1])

    def failing(function: Any) -> Any:
        def call(fd: int, *arguments: Any) -> Any:
            if os.readlink(f"/proc/self/fd/{fd}") == bad:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return function(fd, *arguments)

        return staticmethod(call)

    with monkeypatch.context() as patch:
        for name in ("pread", "preadv"):
            patch.setattr(FileSystem, name, failing(getattr(FileSystem, name)))
        out = go(tmp_path)
    assert list(out.problems) == ["flights"]
    assert out.problems["flights"].startswith(f"{bad}: cannot read: ")
    ends = load(open_files(tmp_path / "archive")).ends
    assert ends["then"] > ends.get("flights", 0)
    assert not go(tmp_path).problems
    check_all(tmp_path / "data", tmp_path / "archive")


def test_on_a_full_disk_what_is_complete_is_committed_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", count=6000).close()
    write_group, calls = DataWriter.write_group, 0

    def full(self: DataWriter, batches: list[Any]) -> None:
        nonlocal calls
        calls += 1
        if calls > 15:
            raise OSError("Error writing bytes to file. Detail: [errno 28] No space left on device")
        write_group(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(DataWriter, "write_group", full)
        out = go(tmp_path)
    files = open_files(tmp_path / "archive")
    (text,) = out.problems.values()
    assert list(out.problems) == [files.uri]
    assert "free space" in text
    state = load(files)
    assert 0 < out.records == state.records == state.ends["flights"] < 5000
    assert list(verify(files, state, records=True)) == []
    assert list((tmp_path / "archive" / "_new").iterdir()) == []
    assert not go(tmp_path).problems
    check_all(tmp_path / "data", tmp_path / "archive")


def test_merges_that_are_complete_when_the_disk_is_full_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", count=6000).close()
    go(tmp_path, replace(EAGER, merge=False))
    before = len(load(open_files(tmp_path / "archive")).files)
    close, calls = DataWriter.close, 0

    def full(self: DataWriter, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return close(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(DataWriter, "close", full)
        out = go(tmp_path, replace(EAGER, merge=True))
    assert "No space left" in " ".join(out.problems.values())
    assert out.merged_to == 1
    assert len(load(open_files(tmp_path / "archive")).files) == before - out.merged_from + 1
    check_exact(tmp_path / "archive", tmp_path / "data")
    assert not go(tmp_path, replace(EAGER, merge=True)).problems
    check_all(tmp_path / "data", tmp_path / "archive")


# --- what meets all ------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_process_that_is_killed_ends_the_run_and_what_is_complete_is_committed(tmp_path: Path) -> None:
    fill(tmp_path / "data", count=9000).close()

    def step(name: str) -> None:
        if name == "written":
            for each in multiprocessing.active_children():
                each.kill()

    files = open_files(tmp_path / "archive")
    out = run(str(tmp_path / "data"), files, replace(EAGER, unit_bytes=1, jobs=2), Watch(step=step))
    assert list(out.problems) == [files.uri]
    assert (
        "a process that wrote files was killed, perhaps because memory ran out; use fewer --jobs"
        in out.problems[files.uri]
    )
    assert 0 < load(files).ends["flights"] < 8000
    assert list(verify(files, load(files), records=True)) == []
    assert not go(tmp_path).problems
    check_all(tmp_path / "data", tmp_path / "archive")


def test_files_that_took_half_a_day_are_not_committed_since_others_may_have_removed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data").close()
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "INTENT_SECONDS_MAX", -1)
        with pytest.raises(StorageError, match="took more than 12 hours"):
            go(tmp_path)
    assert load(open_files(tmp_path / "archive")).version == -1
    assert go(tmp_path).swept
    check_all(tmp_path / "data", tmp_path / "archive")


def test_files_of_a_machine_that_slept_for_days_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data").close()
    wall = time.time

    def step(name: str) -> None:
        if name == "settled":  # the monotonic clock stands still meanwhile
            patch.setattr(publishing.time, "time", lambda: wall() + 2 * 24 * 3600)

    with monkeypatch.context() as patch:
        with pytest.raises(StorageError, match="took more than 12 hours"):
            run(str(tmp_path / "data"), open_files(tmp_path / "archive"), EAGER, Watch(step=step))
    assert load(open_files(tmp_path / "archive")).version == -1
    assert go(tmp_path).swept
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_run_before_which_others_always_commit_says_so_and_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data").close()
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "commit", lambda *_, **__: Conflict(0))
        with pytest.raises(StorageError, match="other runs commit all the time; this run added nothing"):
            go(tmp_path)
    assert load(open_files(tmp_path / "archive")).version == -1
    go(tmp_path)
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_run_that_comes_to_no_end_says_that_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", count=4000).close()
    monkeypatch.setattr(running, "ROUNDS_MAX", 1)
    gone = segments(tmp_path)[:3]
    told: list[str] = []

    def step(name: str) -> None:
        for each in gone:
            each.unlink(missing_ok=True)

    watch = Watch(step=step, report=told.append)
    run(str(tmp_path / "data"), open_files(tmp_path / "archive"), replace(EAGER, unit_bytes=1), watch)
    assert [
        text
        for text in told
        if "1 times, segments were removed or archived" in text and "the next run continues" in text
    ]
    go(tmp_path)
    assert list(verify(open_files(tmp_path / "archive"), load(open_files(tmp_path / "archive")), records=True)) == []


def test_a_commit_whose_answer_was_lost_is_known_as_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "data").close()
    create_new = LocalFiles.create_new

    def forgetful(self: LocalFiles, path: str, data: bytes) -> bool:
        return create_new(self, path, data) and not path.startswith("_delta_log")

    monkeypatch.setattr(LocalFiles, "create_new", forgetful)
    assert go(tmp_path).records
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_commit_without_files_whose_answer_was_lost_is_known_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = fill(tmp_path / "data", count=3000)
    go(tmp_path, replace(EAGER, unit_bytes=1), Watch(stopping=lambda: True))
    for segment in segments(tmp_path)[:-1]:
        segment.unlink()
    create_new = LocalFiles.create_new

    def forgetful(self: LocalFiles, path: str, data: bytes) -> bool:
        return create_new(self, path, data) and not path.startswith("_delta_log")

    monkeypatch.setattr(LocalFiles, "create_new", forgetful)
    told: list[str] = []
    out = go(tmp_path, watch=Watch(report=told.append))
    assert out.lost == list(load(open_files(tmp_path / "archive")).lost) != []
    assert any("are lost: retention" in text for text in told)
    writer.close()


def test_an_archive_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = fill(tmp_path / "data")
    go(tmp_path)
    before = archive_rows(tmp_path / "archive")
    more(writer, first=2000)
    writer.close()

    def full(self: LocalFiles, spooled: str, path: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "publish", full)
        assert "No space left" in " ".join(go(tmp_path).problems.values())
    assert archive_rows(tmp_path / "archive") == before
    go(tmp_path)
    check_all(tmp_path / "data", tmp_path / "archive")
