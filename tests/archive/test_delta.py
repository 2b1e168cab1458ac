"""deltalake, which is another implementation of Delta, reads what radiator writes, and the other way round."""

from __future__ import annotations

import errno
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from radiator.archive import manifest, publishing
from radiator.archive.files import Files, LocalFiles
from radiator.archive.manifest import CHECKPOINT_COMMITS, Changes, Lost, State, commit, load
from radiator.archive.opening import open_files
from radiator.archive.paths import LAST_CHECKPOINT, checkpoint_path, commit_path
from radiator.archive.planning import source_of
from radiator.archive.remote import ArrowFiles, FsspecFiles
from radiator.archive.retention import RETENTION_KEY, interval, retention_ms
from radiator.archive.run import Watch, run
from radiator.archive.verify import verify
from radiator.columns.schema import arrow_schema
from radiator.errors import StorageError
from tests.archive.killing import EAGER
from tests.archive.stores import DAY_NS, archive_rows, check_exact, fill, find_uncommitted, more
from tests.archive.test_manifest import data_file, grown
from tests.archive.test_races import Meeting
from tests.columns.s3 import running

UNMERGED = replace(EAGER, merge=False)


def check_same(files: Files, where: str, options: dict[str, str] | None = None) -> State:
    """deltalake sees this version, these files, rows and ends."""
    state = load(files)
    assert state.source is not None
    found = DeltaTable(where, storage_options=options)
    assert found.version() == state.version
    assert {each.rpartition("date=")[2] for each in found.file_uris()} == {
        each.rpartition("date=")[2] for each in state.files
    }
    for name, end in state.ends.items():
        assert found.transaction_version(f"radiator:{state.source}:{name}") == end
    if options is None:  # deltalake keeps the interpreter locked meanwhile, and this process has the S3
        assert found.history(1)[0]["engineInfo"].startswith("radiator ")
    return state


def check_rows(files: Files, where: Path) -> State:
    state = check_same(files, str(where))
    table = DeltaTable(where).to_pyarrow_dataset().to_table()
    rows = {(row["partition"], row["offset"]): row for row in table.select(arrow_schema().names).to_pylist()}
    assert rows == archive_rows(files)
    assert len(rows) == table.num_rows == state.records
    facts = pa.table(DeltaTable(where).get_add_actions(flatten=True)).to_pylist()
    for each in facts:
        ids = _ids(where / each["path"])
        inside = [row for row in rows.values() if row["message_id"] in ids]
        for name in ("destination", "partition", "offset", "receive_time", "receive_ns"):
            values = [row[name] for row in inside]
            assert (each[f"min.{name}"], each[f"max.{name}"]) == (min(values), max(values))
            assert each[f"null_count.{name}"] == 0
        assert each["num_records"] == len(inside)
    return state


def _ids(path: Path) -> set[str]:
    return set(pa.parquet.read_table(path, columns=["message_id"], partitioning=None).column(0).to_pylist())


def test_after_every_commit_another_reader_sees_the_same_rows_version_and_ends(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=600)
    where, files = tmp_path / "archive", open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), files, UNMERGED)
    assert check_rows(files, where).version == 0
    more(writer, count=600, first=600)
    more(writer, "other: a name", count=400, destinations=1)
    run(str(tmp_path / "data"), files, UNMERGED)
    before = check_rows(files, where)
    writer.close()
    run(str(tmp_path / "data"), files, replace(EAGER, merge=True))
    after = check_rows(files, where)
    assert after.version > before.version
    assert after.removed
    assert before.files.keys() <= after.files.keys() | after.removed.keys()
    manifest.write_checkpoint(files, after)
    for version in range(after.version):
        files.remove(commit_path(version))
    assert check_rows(files, where) == after  # both have only the checkpoint
    assert run(str(tmp_path / "data"), files, replace(EAGER, merge=True, retention_seconds=0)).vacuumed
    assert not check_rows(files, where).removed
    assert len(list(where.glob("date=*/*.parquet"))) == len(after.files)


@pytest.mark.thorough
def test_a_log_with_checkpoints_of_both_and_without_old_commits_says_the_same(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    for _ in range(3):
        state = grown(files, CHECKPOINT_COMMITS // 2)
        lost = [Lost("p", state.ends["p"], state.ends["p"] + 3, "damaged")]
        ends = {"p": state.ends["p"] + 3, "q:1": state.version}
        assert isinstance(commit(files, state, Changes("s", ends=ends, lost=lost, starts={"q:1": 4})), State)
        old = load(files)
        merged = data_file(0, old.ends["p"])
        merged = replace(merged, path=merged.path.replace("0123abcd", f"{old.version:08x}"))
        commit(files, old, Changes("s", add=[merged], remove=list(old.files)))
        state = check_same(files, str(tmp_path))
        DeltaTable(tmp_path).create_checkpoint()
        assert manifest._checkpoint(files, state.version) == state
        for version in range(state.version):
            files.remove(commit_path(version))
        assert check_same(files, str(tmp_path)) == state
    assert len(load(files).lost) == 3
    assert json.loads(files.read(LAST_CHECKPOINT))["version"] >= CHECKPOINT_COMMITS
    for version in range(load(files).version + 1):
        files.remove(checkpoint_path(version))
    with pytest.raises(StorageError, match="commit 0 is missing"):
        load(files)


@pytest.mark.thorough
def test_other_programs_may_set_properties_and_vacuum_and_may_not_change_records(tmp_path: Path) -> None:
    fill(tmp_path / "data").close()
    where, files = tmp_path / "archive", open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), files, UNMERGED)
    run(str(tmp_path / "data"), files, replace(EAGER, merge=True))
    before = load(files)
    assert before.removed
    table = DeltaTable(where)
    with pytest.raises(DeltaError, match="append"):
        table.delete()
    table.alter.set_table_properties({"delta.checkpointInterval": "77"})
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    after = load(files)
    assert after.version > before.version
    assert after.table is not None and after.table.configuration["delta.checkpointInterval"] == "77"
    assert (after.files, after.ends, after.anchors) == (before.files, before.ends, before.anchors)
    assert list(verify(files, after, records=True)) == []
    assert not run(str(tmp_path / "data"), files, replace(EAGER, merge=True, retention_seconds=0)).problems
    check_exact(files, tmp_path / "data")


def test_a_table_that_another_program_has_written_to_is_refused_with_the_reason(tmp_path: Path) -> None:
    pyarrow_table = pa.table({"date": ["2013-01-01"], "offset": [1]})
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "foreign", pyarrow_table, partition_by=["date"])
    with pytest.raises(StorageError, match="Delta table of another program"):
        load(open_files(tmp_path / "foreign"))
    fill(tmp_path / "data", count=600).close()
    files = open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), files, UNMERGED)
    rows = DeltaTable(tmp_path / "archive").to_pyarrow_table()
    write_deltalake(tmp_path / "archive", rows.slice(0, 3), mode="append")
    with pytest.raises(StorageError, match="commit 1: .* was not written by `radiator archive`"):
        load(files)
    assert load(files, 0).records == rows.num_rows


def test_columns_that_are_added_later_are_in_the_table(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    state = grown(files, 1)
    struct = pa.struct([pa.field("carrier", pa.string()), pa.field("delays", pa.list_(pa.int32()))])
    schema = pa.schema([*arrow_schema(), pa.field("flight", struct)])
    assert isinstance(commit(files, state, Changes("s", schema=schema)), State)
    fields = {each.name: each for each in DeltaTable(tmp_path).schema().fields}
    assert list(fields) == [*schema.names, "date"]
    assert "carrier" in fields["flight"].type.to_json()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [FsspecFiles, ArrowFiles])
def test_an_archive_in_an_object_store_is_the_same_table(tmp_path: Path, kind: type[Files]) -> None:
    with running() as s3:
        files = open_files(s3.uri("logs/archive", **({"allow_bucket_creation": "false"} if kind is ArrowFiles else {})))
        assert type(files) is kind
        options = {
            "AWS_ENDPOINT_URL": f"http://{s3.endpoint}", "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "who",
            "AWS_SECRET_ACCESS_KEY": "knows", "AWS_REGION": "us-east-1",
        }  # fmt: skip
        writer = fill(tmp_path / "data", count=600)
        for merge in (False, True):
            run(str(tmp_path / "data"), files, replace(EAGER, merge=merge))
            state = check_same(files, "s3://logs/archive", options)
            rows: Any = DeltaTable("s3://logs/archive", storage_options=options).to_pyarrow_dataset().count_rows()
            assert rows == state.records
            more(writer, count=600, first=600)
        writer.close()
        run(str(tmp_path / "data"), files, replace(EAGER, merge=True, retention_seconds=0))
        manifest.write_checkpoint(files, load(files))
        for version in range(load(files).version):
            files.remove(commit_path(version))
        assert not check_same(files, "s3://logs/archive", options).removed
        check_exact(files, tmp_path / "data")


@pytest.mark.thorough
def test_in_an_object_store_with_conditional_requests_two_archivers_add_everything_once(tmp_path: Path) -> None:
    """Before each step of one, the other does all of its work; both have a driver that creates exclusively."""
    fill(tmp_path / "data", count=1500, destinations=1, days=1).close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with running() as s3:
        step, conflicts = 0, 0
        while True:
            files = open_files(s3.uri(f"logs/{step}"))
            meeting = Meeting(step, partial(run, str(tmp_path / "copy"), files, EAGER))
            out = run(str(tmp_path / "data"), files, replace(EAGER, mark=False), Watch(step=meeting.step))
            assert not out.problems
            check_exact(files, tmp_path / "data")
            assert list(verify(files, load(files))) == []
            assert find_uncommitted(files) == []
            if not meeting.came:
                break
            conflicts += meeting.came[0].records > 0 and out.records < 1000
            step += 1
        assert step > 8
        assert conflicts
        assert not files.create_new(commit_path(0), b"other")
        assert files.create_new("new", b"first") and not files.create_new("new", b"second")
        assert files.read("new") == b"first"
        files.replace("new", b"third")
        assert files.read("new") == b"third"
        assert isinstance(files, FsspecFiles)
        late = files.fs.open(files.place("both"), "xb")  # both have seen that there is none
        late.write(b"late")
        assert files.create_new("both", b"early")
        with pytest.raises(FileExistsError):
            late.close()
        with ThreadPoolExecutor(8) as pool:
            created = list(pool.map(lambda number: files.create_new("many", b"%d" % number), range(8)))
        assert created.count(True) == 1
        assert (files.read("both"), files.read("many")) == (b"early", b"%d" % created.index(True))


@pytest.mark.thorough
def test_files_that_were_merged_stay_until_their_retention_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data").close()
    files, options = open_files(tmp_path / "archive"), replace(EAGER, merge=True)
    run(str(tmp_path / "data"), files, UNMERGED)
    run(str(tmp_path / "data"), files, options)
    removed = load(files).removed
    assert len(removed) > 1
    wall = time.time_ns
    for days, vacuumed in ((6.9, 0), (7.1, len(removed)), (8, 0)):
        monkeypatch.setattr(publishing.time, "time_ns", lambda days=days: wall() + int(days * DAY_NS))
        assert run(str(tmp_path / "data"), files, options).vacuumed == vacuumed
        assert {path for path in removed if files.size(path) is None} == (set() if days < 7 else set(removed))
    assert load(files).removed == {}
    check_exact(files, tmp_path / "data")


def test_a_retention_is_committed_before_anything_else(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=1)  # nothing is sealed
    files, data = open_files(tmp_path / "archive"), str(tmp_path / "data")
    for _ in range(2):
        assert not run(data, files, replace(UNMERGED, retention_seconds=3600)).problems
        assert check_rows(files, tmp_path / "archive").version == 0
    assert _retention(files) == "interval 1 hours"
    more(writer, count=600, first=1)
    writer.close()

    def no_room(step: str) -> None:
        if step == "intended":
            raise OSError(errno.ENOSPC, "no room")

    out = run(data, files, replace(UNMERGED, retention_seconds=7200), Watch(step=no_room))
    assert out.problems and not out.records
    assert _retention(files) == "interval 2 hours"
    assert run(data, files, replace(UNMERGED, retention_seconds=7200)).records
    assert check_rows(files, tmp_path / "archive").version == 2
    run(data, files, replace(UNMERGED, retention_seconds=0))
    run(data, files, UNMERGED)
    assert check_rows(files, tmp_path / "archive").version == 3
    assert _retention(files) == "interval 0 days"


def _retention(files: Files) -> str:
    table = load(files).table
    assert table is not None
    return table.configuration[RETENTION_KEY]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 7 days", 604_800), ("interval 1 week", 604_800), ("INTERVAL 36 hours", 129_600),
        ("2 days 3 hours", 183_600), ("interval 0 days", 0), ("interval 1500 milliseconds", 1.5),
    ],
)  # fmt: skip
def test_the_retention_of_merged_files_is_read_as_delta_spells_it(text: str, seconds: float) -> None:
    assert retention_ms({RETENTION_KEY: text}) == seconds * 1000
    assert retention_ms({}) == 7 * 86_400_000
    if seconds == int(seconds):
        assert retention_ms({RETENTION_KEY: interval(int(seconds))}) == seconds * 1000


@pytest.mark.thorough
def test_a_retention_that_cannot_be_read_is_a_problem_and_no_file_is_removed(tmp_path: Path) -> None:
    fill(tmp_path / "data").close()
    files, data = open_files(tmp_path / "archive"), str(tmp_path / "data")
    run(data, files, UNMERGED)
    commit(files, load(files), Changes(source_of(data), configuration={RETENTION_KEY: "interval 2 fortnights"}))
    out = run(data, files, replace(EAGER, merge=True))
    assert out.merged_to
    assert "'interval 2 fortnights': fortnights is no unit; no merged file was removed" in out.problems[files.uri]
    assert all(files.size(path) is not None for path in load(files).removed)
    assert not run(data, files, replace(EAGER, retention_seconds=3600)).problems
