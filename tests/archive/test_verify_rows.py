"""`radiator archive verify --records`: rows that are not what the commits say, each kind told by its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from radiator.archive import rows
from radiator.archive import verify as verifying
from radiator.archive.files import LocalFiles
from radiator.archive.manifest import DataFile, Lost, State, load
from radiator.archive.merging import groups_to_merge
from radiator.archive.paths import intent_path
from radiator.archive.run import Options, run
from radiator.archive.uncommitted import find_uncommitted
from radiator.archive.verify import verify
from radiator.cli.main import run as run_command
from tests.archive.stores import DAY_NS, fill

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with files of eight destinations, two days, two units; and its store."""
    root = tmp_path_factory.mktemp("made")
    fill(root / "data", count=3000, destinations=8).close()
    options = Options(merge=False, unit_bytes=200_000)
    assert not run(str(root / "data"), LocalFiles(str(root / "archive")), options).problems
    return root


@pytest.fixture
def files(made: Path, tmp_path: Path) -> LocalFiles:
    """A copy of it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return LocalFiles(str(tmp_path / "archive"))


def one(state: State) -> DataFile:
    return next(each for each in state.files.values() if each.records > 10)


def with_column(name: str, made: Callable[[list[Any]], list[Any]]) -> Change:
    def change(table: pa.Table) -> pa.Table:
        field = table.schema.field(name)
        place = table.schema.get_field_index(name)
        return table.set_column(place, field, pa.array(made(table.column(name).to_pylist()), field.type))

    return change


def nullable(table: pa.Table, name: str) -> pa.Table:
    place = table.schema.get_field_index(name)
    field = table.schema.field(name).with_nullable(True)
    return table.set_column(place, field, pa.array([None] * table.num_rows, field.type))


def rewritten(files: LocalFiles, each: DataFile, change: Change) -> DataFile:
    """The file with other rows, and a commit that knows nothing of it but its bytes."""
    path = files.address(each.path)
    footer = pq.ParquetFile(path).metadata.metadata
    table = change(pq.ParquetFile(path).read())
    pq.write_table(table.replace_schema_metadata(footer), path, write_page_checksum=True)
    return replace(each, bytes=Path(path).stat().st_size, digest="", records=table.num_rows)


def faults(files: LocalFiles, state: State) -> list[str]:
    return list(verify(files, state, records=True))


ROWS: list[tuple[str, Change]] = [
    ("is not sorted by", lambda table: table.take(list(range(table.num_rows))[::-1])),
    ("has other destinations", with_column("destination", lambda found: ["/topic/zzz"] * len(found))),
    ("has records of partition 'zzz'", with_column("partition", lambda found: ["zzz"] * len(found))),
    ("as its last day", with_column("receive_ns", lambda found: [each + 5 * DAY_NS for each in found])),
    ("max_receive_ns", with_column("receive_ns", lambda found: [each + (each == max(found)) for each in found])),
    ("exist twice", with_column("offset", lambda found: [each + (n == 1) for n, each in enumerate(found)])),
    ("has offsets outside", with_column("offset", lambda found: [*found[:-1], 10**6])),
    ("bytes of bodies", lambda table: table.slice(1)),
    ("size is not what", with_column("body", lambda found: [b"", *found[1:]])),
    ("has no column body", lambda table: table.drop_columns(["body"])),
    ("a column destination that may be null", lambda table: nullable(table, "destination")),
]


@pytest.mark.parametrize(("text", "change"), ROWS)
def test_rows_that_are_not_what_the_commit_says_are_reported(files: LocalFiles, text: str, change: Change) -> None:
    state = load(files)
    each = one(state)
    made = rewritten(files, each, change)
    found = faults(files, replace(state, files={**state.files, each.path: made}))
    assert any(text in fault and files.address(each.path) in fault for fault in found), found


COMMITS: list[tuple[str, Callable[[State, DataFile], State]]] = [
    ("has other destinations", lambda state, each: held(state, replace(each, destinations=("/topic/other",)))),
    ("as its first day", lambda state, each: held(state, replace(each, date="1999-01-01"))),
    ("min_receive_ns", lambda state, each: held(state, replace(each, min_receive_ns=each.min_receive_ns - 1))),
    ("bytes of bodies", lambda state, each: held(state, replace(each, body_bytes=each.body_bytes + 1))),
    ("its commit says", lambda state, each: held(state, replace(each, records=each.records - 1))),
    ("are recorded as lost", lambda state, each: replace(state, lost=(Lost("flights", 5, 500, "damaged"),))),
    ("are outside its offsets", lambda state, each: replace(state, starts={"flights": 1000})),
    ("no file has the offsets", lambda state, each: replace(state, starts={"flights": -3})),
    ("are outside its offsets", lambda state, each: replace(state, ends={"flights": 1000})),
    ("files reach to", lambda state, each: replace(state, ends={})),
    ("as its last one, and that is at", lambda state, each: anchored(state, offset=-1)),
    ("as its last one, and that is at", lambda state, each: anchored(state, offset=1)),
    ("the commits' anchor there says", lambda state, each: anchored(state, receive_ns=1)),
]


def anchored(state: State, offset: int = 0, receive_ns: int = 0) -> State:
    anchor = state.anchors["flights"]
    made = anchor._replace(offset=anchor.offset + offset, receive_ns=anchor.receive_ns + receive_ns)
    return replace(state, anchors={"flights": made})


def held(state: State, each: DataFile) -> State:
    return replace(state, files={**state.files, each.path: each})


@pytest.mark.parametrize(("text", "change"), COMMITS)
def test_commits_that_say_something_else_are_reported(
    files: LocalFiles, text: str, change: Callable[[State, DataFile], State]
) -> None:
    state = load(files)
    found = faults(files, change(state, one(state)))
    assert any(text in fault for fault in found), found


def test_what_has_a_digest_is_read_without_its_bodies_and_all_is_well(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "WINDOW_OFFSETS", 700)  # so that files lie across windows
    monkeypatch.setattr(rows, "BATCH_ROWS", 99)
    monkeypatch.setattr(rows, "BODY_ROWS", 0)  # would be an error
    absent: dict[str, int] = {}
    assert list(verify(files, load(files), records=True, on_missing=absent.__setitem__)) == []
    assert absent == {"flights": 0}


def test_offsets_without_a_record_are_counted_and_no_fault(files: LocalFiles) -> None:
    state = load(files)
    each = one(state)
    made = rewritten(files, each, lambda table: table.slice(3))
    table = pq.ParquetFile(files.address(each.path)).read()
    made = replace(
        made,
        body_bytes=sum(table.column("size").to_pylist()),
        min_receive_ns=min(table.column("receive_ns").to_pylist()),
    )
    absent: dict[str, int] = {}
    found = list(verify(files, held(state, made), records=True, on_missing=absent.__setitem__))
    assert (found, absent) == ([], {"flights": 3})


def test_a_last_record_that_is_gone_is_reported_by_the_anchor(files: LocalFiles) -> None:
    """By ranges nothing is missing, and the commit of the file agrees with it."""
    state = load(files)
    last = max(state.files.values(), key=lambda each: each.spans[-1].next_offset)
    end = state.anchors["flights"].offset
    made = rewritten(files, last, lambda table: table.filter(pa.compute.not_equal(table.column("offset"), end)))
    table = pq.ParquetFile(files.address(last.path)).read()
    held_bytes, latest = sum(table.column("size").to_pylist()), max(table.column("receive_ns").to_pylist())
    state = held(state, replace(made, body_bytes=held_bytes, max_receive_ns=latest))
    assert faults(files, state) == [
        f"partition 'flights': the commits name the record at offset {end} as its last one, and that is at {end - 1}"
    ]
    assert faults(files, replace(state, anchors={})) == []
    assert any("there is none" in fault for fault in faults(files, replace(state, files={})))


def test_records_of_an_unreadable_file_are_not_reported_as_removed_on_purpose(files: LocalFiles) -> None:
    state = load(files)
    last = max(state.files.values(), key=lambda each: (each.max_receive_ns, each.spans[-1].next_offset))
    Path(files.address(last.path)).unlink()
    absent: dict[str, int] = {}
    (fault,) = verify(files, state, records=True, on_missing=absent.__setitem__)
    assert f"{last.path}: does not exist" in fault
    assert absent == {"flights": 0}


def test_checksums_alone_find_bytes_that_have_changed(files: LocalFiles) -> None:
    state = load(files)
    each = max(state.files.values(), key=lambda each: each.records)
    data = bytearray(Path(files.address(each.path)).read_bytes())
    data[len(data) // 2] ^= 1
    Path(files.address(each.path)).write_bytes(data)
    assert list(verify(files, state)) == []
    assert any("the bytes have changed" in fault for fault in verify(files, state, checksums=True))


def test_a_file_that_is_merged_meanwhile_is_no_fault(files: LocalFiles, tmp_path: Path) -> None:
    state = load(files)
    assert run(str(tmp_path / "data"), LocalFiles(files.uri), Options(merge=True)).merged_to
    assert list(verify(files, state, checksums=True)) == []


def test_a_file_that_is_merged_while_it_is_read_is_no_fault_where_an_open_file_keeps_nothing(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an object store, whose driver says it in its own words."""
    state, merged = load(files), list[int]()

    def footer_of(file: Any) -> Any:
        if not merged:
            merged.append(run(str(tmp_path / "data"), LocalFiles(files.uri), Options(merge=True)).merged_to)
        raise OSError("NoSuchKey: the specified key does not exist")

    chosen = next(iter(groups_to_merge(state, force=True)))[0]
    monkeypatch.setattr(verifying, "footer_of", footer_of)
    assert list(
        verify(files, replace(state, files={chosen.path: chosen}, starts={"flights": chosen.spans[0].first}, ends={}))
    ) == [f"partition 'flights': files reach to {chosen.spans[-1].next_offset}, the commits to 0"]
    assert merged != [0]


# --- what no commit names ---------------------------------------------------------------------------------------------


@pytest.fixture
def left(files: LocalFiles) -> Iterator[dict[str, str]]:
    """An orphan, one that a run at work has published, and one that it is writing."""
    folder = next(iter(load(files).files)).rpartition("/")[0]
    made = {
        "orphan": f"{folder}/flights@0-9.00000000.parquet",
        "at work": f"{folder}/flights@9-12.00000001.parquet",
        "spooled": "_new/0123/00000001-1.parquet",
    }
    Path(files.address("_new/0123")).mkdir(parents=True)
    for path in made.values():
        Path(files.address(path)).write_bytes(b"x" * 2048)
    intent = {"made_ns": 0, "owner": "x", "pid": 1, "add": [made["at work"]], "remove": []}
    files.create_new(intent_path("0123"), json.dumps(intent).encode())
    files.create_new(intent_path("torn"), b"{")
    yield made


def test_a_file_that_no_commit_names_is_an_orphan_unless_a_run_is_at_it(
    files: LocalFiles, left: dict[str, str]
) -> None:
    found = find_uncommitted(files)
    assert [each.path for each in found.orphans] == [left["orphan"]]
    assert [each.path for each in found.in_progress] == [left["at work"]]
    assert [each.path for each in found.spooled] == [left["spooled"]]
    assert found.orphans[0].size_bytes == 2048


def test_a_file_that_is_committed_between_two_looks_is_no_orphan(
    files: LocalFiles, left: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intent is gone before the intents are read, and so its commit is there before the commits are."""
    listed, looks = LocalFiles.list, 0

    def late(self: LocalFiles, directory: str) -> Any:
        nonlocal looks
        found = listed(self, directory)
        if directory == "_new" and not looks:
            looks += 1
            Path(self.address(left["orphan"])).unlink()  # and this one is removed
        return found

    monkeypatch.setattr(LocalFiles, "list", late)
    assert find_uncommitted(files).orphans == []


def test_the_command_distinguishes_uncommitted_files_from_faults(
    files: LocalFiles, left: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["archive", "verify", files.uri, "--records"]) == 0
    said = capfd.readouterr()
    assert f"{left['orphan']}: 2.0 KiB that no commit names" in said.err
    assert "1 file that no commit names" in said.out
    assert run_command(["archive", "verify", files.uri, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["orphans"] == [{"path": files.address(left["orphan"]), "bytes": 2048}]
    assert told["at_work"] == told["spooled"] == {"files": 1, "bytes": 2048}
    assert told["faults"] == []
