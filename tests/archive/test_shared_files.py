"""New records of many logs go to one file for each day, behind one commit; an error of one log leaves it out."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest

from radiator.archive import jobs
from radiator.archive import run as running
from radiator.archive.manifest import DataFile, State, load
from radiator.archive.opening import open_files
from radiator.archive.planning import plan
from radiator.archive.run import Options, Outcome, Watch, run
from radiator.archive.sorting import Sorter
from radiator.archive.split import RowGroups, Settings, Split
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.storage.layout import partition_path
from tests.archive.killing import Killed, check_all, run_until
from tests.archive.stores import archive_rows, check_exact, log_rows, name_of, sealed_ends, write_logs
from tests.archive.test_races import Meeting
from tests.spark.stores import Message, Writer, register_rules

UNMERGED = Options(merge=False, settings=Settings("", group_rows=50))


def go(root: Path, options: Options = UNMERGED, watch: Watch = Watch()) -> Outcome:  # noqa: B008
    return run(str(root / "data"), open_files(root / "archive"), options, watch)


def state_of(root: Path) -> State:
    return load(open_files(root / "archive"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven logs with records of two days."""
    root = tmp_path_factory.mktemp("made")
    writer = Writer(root / "data", 4096)
    write_logs(writer, range(7), 40)
    write_logs(writer, range(1, 7), 40, first=40, day=1)
    writer.close()
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("run_bytes", [1, 10**8])
def test_a_run_writes_one_sorted_file_for_each_day_in_one_commit(root: Path, run_bytes: int) -> None:
    out = go(root, replace(UNMERGED, settings=Settings("", group_rows=50, run_bytes=run_bytes)))
    assert (out.problems, out.version, out.files) == ({}, 0, 2)
    check_all(root / "data", root / "archive")
    state, ends = state_of(root), sealed_ends(root / "data")
    assert state.ends == ends
    assert set(state.anchors) == set(ends)
    first, second = sorted(state.files.values(), key=lambda each: each.date)
    assert first.path.startswith("date=2023-11-14/~logs@")
    assert [span.partition for span in first.spans] == sorted(ends)
    assert [span.partition for span in second.spans] == sorted(ends)[1:]
    for name in sorted(ends)[1:]:
        (before,), (after,) = first.spans_of(name), second.spans_of(name)
        assert (before.first, before.next_offset, after.next_offset) == (0, after.first, ends[name])
    assert {span.destinations for span in first.spans_of(name_of(5))} == {(name_of(5), f"{name_of(5)}.x")}
    assert {span.destinations for span in first.spans_of(name_of(1))} == {(name_of(1),)}
    assert keys_of(root, first) == sorted(keys_of(root, first))


def keys_of(root: Path, each: DataFile) -> list[tuple[str, str, int]]:
    rows = archive_rows(root / "archive").values()  # in the order of each file
    return [
        (row["partition"], row["destination"], row["offset"])
        for row in rows
        if f"{row['receive_time']:%Y-%m-%d}" == each.date
    ]


@pytest.mark.thorough
def test_several_processes_write_files_of_some_logs_each(root: Path) -> None:
    done: list[int] = []
    out = go(root, replace(UNMERGED, jobs=2, unit_bytes=100_000), Watch(advance=done.append))
    assert not out.problems
    assert out.files > 2
    assert sum(done) == out.log_bytes
    check_all(root / "data", root / "archive")


@pytest.mark.parametrize("run_bytes", [1, 10**8])
def test_logs_with_many_days_share_a_file_for_each_day_and_wait_unsplit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    """A batch of Arrow takes some KiB besides its rows: 10,000 logs with a row on each day of a year would have GiB."""
    writer = Writer(tmp_path / "data", 4096)
    for day in range(40):
        write_logs(writer, range(6), 3, first=3 * day, day=day)
    writer.close()
    units = plan(partitions(open_store(str(tmp_path / "data"))), State()).units
    waiting: list[int] = []
    add = Sorter.add

    def counted(self: Sorter, batch: Any) -> None:
        add(self, batch)
        waiting.append(batch.num_rows)

    monkeypatch.setattr(Sorter, "add", counted)
    out = go(tmp_path, replace(UNMERGED, settings=Settings("", run_bytes=run_bytes)))
    assert (out.problems, out.records) == ({}, sum(waiting))
    files = state_of(tmp_path).files.values()
    assert out.files == len({each.date for each in files}) > 30
    assert len(waiting) == sum(len(unit.ranges) for unit in units) < sum(len(each.spans) for each in files) / 2
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_large_log_has_a_file_of_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(root / "data"))
    size = min(unit.bytes for unit in plan(partitions(store), State()).units)
    monkeypatch.setattr(jobs, "ARCHIVE_SHARED_UNIT_BYTES_MAX", size)  # log 0 has records of one day
    writer = Writer(root / "data", 4096)
    write_logs(writer, [20, 21], 20)
    writer.close()
    go(root)
    found = Counter(len(each.partitions) for each in state_of(root).files.values())
    assert found == {1: 12, 3: 1}
    check_all(root / "data", root / "archive")


def test_a_log_of_several_units_is_committed_in_their_order(root: Path) -> None:
    out = go(root, replace(UNMERGED, unit_bytes=5000))
    assert not out.problems
    assert out.files > 14
    check_all(root / "data", root / "archive")


# --- errors of one log ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_bytes", [1, 10**8])
def test_a_log_with_an_unexpected_error_is_left_out_of_the_file(
    root: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    """Its first rows are in the spool already, or in memory."""
    add = Split.add

    def fragile(self: Split, batch: Any) -> None:
        if self.partition == name_of(3) and batch.column("offset")[0].as_py() > 20:
            raise KeyError("nobody thought of this")
        add(self, batch)

    options = replace(UNMERGED, settings=Settings("", group_rows=50, run_bytes=run_bytes))
    with monkeypatch.context() as patch:
        patch.setattr(Split, "add", fragile)
        out = go(root, options)
    assert list(out.problems) == [name_of(3)]
    for part in ("KeyError", "nobody thought of this", "test_shared_files.py:"):
        assert part in out.problems[name_of(3)]
    state = state_of(root)
    assert len(state.files) == 2
    assert set(state.ends) == set(state.anchors) == set(sealed_ends(root / "data")) - {name_of(3)}
    assert all(name_of(3) not in (each.destinations or ()) for each in state.files.values())
    assert {key[0] for key in archive_rows(root / "archive")} == set(state.ends)
    assert not go(root, options).problems
    check_all(root / "data", root / "archive")


def test_a_log_with_damage_is_left_out_and_with_skip_damaged_its_lost_records_are_named(root: Path) -> None:
    expected = {key for key in log_rows(root / "data") if key[1] < sealed_ends(root / "data")[key[0]]}
    segments = sorted(Path(partition_path(str(root / "data"), name_of(3))).glob("*.rlog"))
    data = bytearray(segments[1].read_bytes())
    data[200] ^= 1
    segments[1].write_bytes(data)
    out = go(root)
    assert list(out.problems) == [name_of(3)]
    assert out.damaged
    assert len(state_of(root).ends) == 6
    out = go(root, replace(UNMERGED, skip_damaged=True))
    assert not out.problems
    (lost,) = state_of(root).lost
    assert lost.partition == name_of(3)
    gone = {(name_of(3), offset) for offset in range(lost.first, lost.next_offset)}
    assert gone
    assert archive_rows(root / "archive").keys() == expected - gone


@pytest.mark.parametrize("bad", [{4}, {0, 1, 6}])
def test_an_error_that_shows_only_in_the_file_is_attributed_to_its_log(
    root: Path, monkeypatch: pytest.MonkeyPatch, bad: set[int]
) -> None:
    write = RowGroups.write

    def fragile(self: RowGroups, batch: Any) -> None:
        if not {name_of(each) for each in bad}.isdisjoint(batch.column("partition").to_pylist()):
            raise ZeroDivisionError("in the file")
        write(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(RowGroups, "write", fragile)
        out = go(root)
    assert set(out.problems) == {name_of(each) for each in bad}
    assert set(state_of(root).ends) == set(sealed_ends(root / "data")) - set(out.problems)
    assert list((root / "archive" / "_new").iterdir()) == []
    assert not go(root).problems
    check_all(root / "data", root / "archive")


def test_a_decoder_that_cannot_be_imported_stops_the_logs_of_its_rule_only(root: Path) -> None:
    rules = f"""
destinations:
  - {{{{match: {name_of(3)}, schema: {{root}}/thing.json, decoder: 'nowhere:x'}}}}
  - {{{{match: {name_of(4)}, schema: {{root}}/thing.json}}}}
"""
    register_rules(root, str(root / "data"), rules, thing={"title": "Thing", "properties": {"a": {"type": "string"}}})
    out = go(root)
    assert list(out.problems) == [name_of(3)]
    assert "nowhere" in out.problems[name_of(3)]
    assert len(state_of(root).files) == 2
    assert out.rejected == sealed_ends(root / "data")[name_of(4)]  # whose bodies are no JSON


# --- what is not committed --------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each log takes as long as may be uncommitted."""
    monkeypatch.setattr(jobs, "ARCHIVE_COMMIT_SECONDS", 0.0)
    monkeypatch.setattr(jobs, "ARCHIVE_FILE_SECONDS", 0.0)
    monkeypatch.setattr(running, "ARCHIVE_COMMIT_SECONDS", 0.0)
    yield


@pytest.mark.usefixtures("impatient")
def test_what_has_taken_long_is_committed_before_the_next_log_is_begun(root: Path) -> None:
    done: list[int] = []
    out = go(root, watch=Watch(advance=done.append))
    assert (out.problems, out.version, out.left_bytes) == ({}, 6, 0)
    assert sum(done) == out.log_bytes
    check_all(root / "data", root / "archive")


@pytest.mark.usefixtures("impatient")
def test_the_next_log_is_begun_as_long_as_the_files_of_the_commit_are_worth_more_work(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ARCHIVE_FILE_SECONDS", 1e9)
    out = go(root)
    assert (out.problems, out.version, out.files) == ({}, 0, 2)
    check_all(root / "data", root / "archive")


@pytest.mark.usefixtures("impatient")
def test_a_run_that_is_always_killed_after_its_first_commit_comes_to_an_end(root: Path) -> None:
    committed: list[str] = []

    def step(name: str) -> None:
        if committed:
            raise Killed
        if name == "committed":
            committed.append(name)

    for ends in range(1, 8):
        committed.clear()
        with pytest.raises(Killed):
            go(root, watch=Watch(step=step))
        assert len(state_of(root).ends) == ends
    go(root)
    check_all(root / "data", root / "archive")


@pytest.mark.usefixtures("impatient")
def test_a_merge_that_has_taken_long_is_committed_before_the_next_one_is_begun(root: Path) -> None:
    go(root)
    before = archive_rows(root / "archive")
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if steps.count("merged") == 2:
            raise Killed

    for left in (1, 0):
        steps.clear()
        with pytest.raises(Killed) if left else nullcontext():
            go(root, replace(UNMERGED, archive=False, merge=True), Watch(step=step))
        assert steps.count("committed") == 1
        assert archive_rows(root / "archive") == before
        files = Counter(each.date for each in state_of(root).files.values())
        assert [count > 1 for _, count in sorted(files.items())] == [False, bool(left)]


@pytest.mark.usefixtures("impatient")
def test_a_run_that_is_asked_to_stop_says_what_is_left(root: Path) -> None:
    units = plan(partitions(open_store(str(root / "data"))), State()).units
    out = go(root, watch=Watch(stopping=lambda: True))
    assert out.left_bytes == sum(unit.bytes for unit in units[1:])
    assert len(state_of(root).ends) == 1


def test_logs_whose_rows_are_many_are_committed_before_the_next_one_is_begun(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ARCHIVE_COMMIT_BYTES", 1)
    out = go(root)
    assert (out.problems, out.files) == ({}, 13)
    check_all(root / "data", root / "archive")


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.thorough)])
def test_killed_at_a_step_and_run_again_the_table_is_exact(made: Path, tmp_path: Path, stride: int) -> None:
    def copied(name: str) -> tuple[Path, Path]:
        shutil.copytree(made, tmp_path / name)
        return tmp_path / name / "data", tmp_path / name / "archive"

    data, archive = copied("whole")
    out, steps = run_until(None, data, archive, UNMERGED)
    assert out is not None
    expected = check_all(data, archive)
    assert steps > 20
    for step in range(0, steps, stride):
        data, archive = copied(str(step))
        assert run_until(step, data, archive, UNMERGED)[0] is None
        assert archive_rows(archive) in ({}, expected)
        assert run_until(None, data, archive, UNMERGED)[0] is not None
        assert check_all(data, archive) == expected
        shutil.rmtree(tmp_path / str(step))


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.thorough)])
def test_wherever_another_archiver_comes_in_between_each_record_is_there_once(
    made: Path, tmp_path: Path, stride: int
) -> None:
    """The other one has archived some of the logs, or all of them in other files."""
    met = step = 0
    while True:
        root = tmp_path / str(step)
        shutil.copytree(made, root)
        shutil.copytree(made / "data", root / "copy")
        some = frozenset([name_of(2), name_of(6)]) if step % 2 else frozenset[str]()
        other: Callable[[], Outcome] = partial(
            run, str(root / "copy"), open_files(root / "archive"), replace(UNMERGED, partitions=some, unit_bytes=9000)
        )
        meeting = Meeting(step, other)
        out = go(root, watch=Watch(step=meeting.step))
        assert not out.problems
        check_all(root / "data", root / "archive")
        shutil.rmtree(root)
        if not meeting.came:
            break
        met += meeting.came[0].records > 0
        step += stride
    assert met


def test_an_archive_elsewhere_gets_one_file_for_each_day(root: Path) -> None:
    files = open_files("memory://shared")
    try:
        out = run(str(root / "data"), files, UNMERGED)
        assert (out.problems, out.files, out.version) == ({}, 2, 0)
        check_exact(files, root / "data")
    finally:
        fsspec.filesystem("memory").store.clear()


def test_a_log_that_retention_has_removed_is_committed_with_the_others(root: Path) -> None:
    go(root, replace(UNMERGED, partitions=frozenset([name_of(3)])))
    writer = Writer(root / "data", 4096)
    writer.write(name_of(3), [Message(name_of(3), bytes(4000)) for _ in range(4)], per_batch=1)
    writer.close()
    segments = sorted(Path(partition_path(str(root / "data"), name_of(3))).glob("*.rlog"))
    for each in segments[:-1]:
        each.unlink()
    out = go(root)
    assert not out.problems
    (lost,) = out.lost
    state = state_of(root)
    assert (lost.partition, lost.next_offset) == (name_of(3), state.ends[name_of(3)])
    assert state.ends == sealed_ends(root / "data")
