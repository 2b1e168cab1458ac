"""The log of commits, and what plain readers are told of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from radiator import archive
from radiator.archive import checkpoint, manifest
from radiator.archive.actions import decode
from radiator.archive.actions import encode as encode_commit
from radiator.archive.files import Entry, LocalFiles
from radiator.archive.lookup import may_hold
from radiator.archive.manifest import (
    CHECKPOINT_COMMITS,
    Changes,
    Conflict,
    DataFile,
    Lost,
    Span,
    State,
    check_source,
    commit,
    load,
)
from radiator.archive.paths import checkpoint_path, commit_path, data_path, encode
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.storage.layout import encode_name
from tests.archive.stores import old_path

DAY_NS = 86_400 * 10**9


def data_file(
    first: int, following: int, destination: str | None = "/topic/a", day: int = 0, partition: str = "p"
) -> DataFile:
    date = f"1970-01-{day + 1:02d}"
    return DataFile(
        old_path(date, destination, partition, first, following, "0123abcd"),
        (Span(partition, first, following, following - first),), date, None if destination is None else (destination,),
        following - first, 100, 50, day * DAY_NS, day * DAY_NS + 1000,
    )  # fmt: skip


def grown(files: LocalFiles, count: int) -> State:
    state = load(files)
    for _ in range(count):
        first = state.ends.get("p", 0)
        made = commit(files, state, Changes("s", add=[data_file(first, first + 5)], ends={"p": first + 5}))
        assert isinstance(made, State)
        state = made
    return state


def test_what_a_newer_radiator_says_of_a_file_is_an_error_with_the_reason(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    grown(files, 1)
    made = decode(files.read(commit_path(0)))
    added = next(each["add"] for each in made if "add" in each)
    added["tags"]["radiator"] = json.dumps({**json.loads(added["tags"]["radiator"]), "colour": "red"})
    (tmp_path / commit_path(0)).write_bytes(encode_commit({"engineInfo": "radiator"}, made[1:]))
    with pytest.raises(StorageError, match="commit 0: .* says colour of it.*install a newer one"):
        load(files)


def test_the_state_is_the_fold_of_the_commits(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    assert load(files) == State()
    state = grown(files, 3)
    small = list(state.files)
    merged = data_file(0, 10)
    lost = [Lost("p", 15, 17, "damaged")]
    made = commit(
        files, state, Changes("s", add=[merged], remove=small[:2], ends={"p": 17}, starts={"p": 0}, lost=lost)
    )
    assert made == load(files)
    assert isinstance(made, State)
    assert set(made.files) == {merged.path, small[2]}
    assert made.records == 15
    assert (made.version, made.ends, made.starts, list(made.lost)) == (3, {"p": 17}, {"p": 0}, lost)
    assert load(files, 2) == state


def test_of_two_commits_from_one_state_one_is_a_conflict_and_leaves_nothing(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    state = grown(files, 1)
    mine = commit(files, state, Changes("s", add=[data_file(5, 10)], ends={"p": 10}))
    assert commit(files, state, Changes("s", add=[data_file(5, 9)], ends={"p": 9})) == Conflict(1)
    assert load(files) == mine


def test_a_large_commit_is_followed_by_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LocalFiles(str(tmp_path))
    grown(files, 2)
    assert files.size(checkpoint_path(1)) is None
    monkeypatch.setattr(manifest, "CHECKPOINT_BYTES", files.size(commit_path(1)))
    state = grown(files, 1)
    for version in range(3):
        Path(files.address(commit_path(version))).write_bytes(b"never read again")
    assert load(files) == state


def test_a_load_reads_the_last_checkpoint_and_what_follows(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    state = grown(files, CHECKPOINT_COMMITS + 2)
    for version in range(CHECKPOINT_COMMITS):
        Path(files.address(commit_path(version))).write_bytes(b"never read again")
    assert load(files) == state


@pytest.mark.parametrize(("rows", "chars"), [(7, 10**6), (10**6, 1)])
def test_a_checkpoint_of_several_row_groups_is_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, chars: int
) -> None:
    monkeypatch.setattr(checkpoint, "GROUP_ROWS", rows)
    monkeypatch.setattr(checkpoint, "GROUP_CHARS", chars)
    files = LocalFiles(str(tmp_path))
    state = grown(files, CHECKPOINT_COMMITS)
    path = checkpoint_path(CHECKPOINT_COMMITS - 1)
    groups = pq.ParquetFile(files.address(path)).num_row_groups
    assert groups == 3 + (CHECKPOINT_COMMITS if chars == 1 else -(-CHECKPOINT_COMMITS // rows))
    for version in range(CHECKPOINT_COMMITS):
        Path(files.address(commit_path(version))).write_bytes(b"never read again")
    assert load(files) == state


def test_without_the_checkpoint_the_commits_say_the_same(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    state = grown(files, CHECKPOINT_COMMITS + 2)
    Path(files.address(checkpoint_path(CHECKPOINT_COMMITS - 1))).write_bytes(b'{"format": 1, "ver')
    assert load(files) == state
    files.remove(checkpoint_path(CHECKPOINT_COMMITS - 1))
    assert load(files) == state


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "commit 1 is missing"),
        (b"{", "damaged"),
        (encode_commit({"engineInfo": "radiator"}, [{"protocol": {"minReaderVersion": 3}}]), "reader version 3"),
    ],
)
def test_a_commit_that_is_missing_or_damaged_is_an_error(tmp_path: Path, data: bytes | None, text: str) -> None:
    files = LocalFiles(str(tmp_path))
    grown(files, 3)
    path = Path(files.address(commit_path(1)))
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(StorageError, match=text):
        load(files)


@pytest.mark.parametrize("missed", [2, CHECKPOINT_COMMITS - 1, CHECKPOINT_COMMITS + 1])
def test_a_listing_that_has_a_later_commit_and_not_the_one_before_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed: int
) -> None:
    """Names that come while a directory is read may be in what is read, or not."""
    files = LocalFiles(str(tmp_path))
    state = grown(files, missed + 2)
    listed, looks = LocalFiles.list, 0

    def lacking(self: LocalFiles, directory: str) -> list[Entry]:
        nonlocal looks
        looks += 1
        return [each for each in listed(self, directory) if looks > 1 or each.path != commit_path(missed)]

    if missed == CHECKPOINT_COMMITS - 1:
        files.remove(commit_path(missed + 1))
        state = load(files)
    monkeypatch.setattr(LocalFiles, "list", lacking)
    assert load(files) == state


def test_the_archive_of_another_store_is_refused(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    check_source(files, load(files), "mine")
    with pytest.raises(StorageError, match="another data directory"):
        check_source(files, grown(files, 1), "mine")


def test_plain_readers_are_given_the_files_that_may_hold_what_they_want(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    found = [data_file(0, 5), data_file(5, 9, "/topic/b"), data_file(9, 12, None), data_file(12, 20, day=1)]
    made = commit(files, State(), Changes("s", add=found, ends={"p": 20}))
    assert isinstance(made, State)
    a, b, many, later = (files.address(each.path) for each in found)
    assert set(archive.files(tmp_path)) == {a, b, many, later}
    assert set(archive.files(tmp_path, "/topic/a")) == {a, many, later}
    assert set(archive.files(tmp_path, "/topic/>", end="1970-01-02")) == {a, b, many}
    assert archive.files(tmp_path, start=datetime(1970, 1, 2)) == [later]
    assert archive.files(tmp_path, start="1970-01-02T00:00:00Z", end="1970-01-02") == []
    assert archive.files(tmp_path, "/topic/c,/topic/b", start="1970-01-02") == []
    assert archive.files(tmp_path, partition="q") == []


def test_files_that_list_no_destinations_are_left_out_by_their_smallest_and_largest(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    spans = [("/topic/a", "/topic/f"), ("/topic/f", "/topic/m"), ("/topic/n", "/topic/z")]
    found = [replace(data_file(n * 5, n * 5 + 5, None), names=span) for n, span in enumerate(spans)]
    assert isinstance(commit(files, State(), Changes("s", add=found, ends={"p": 15})), State)
    first, second, third = (files.address(each.path) for each in found)
    for wanted, expected in (
        ("/topic/c", [first]), ("/topic/f", [first, second]), ("/topic/b,/topic/o", [first, third]),
        ("/topic/mm", []), ("/topic/*", [first, second, third]), ("/topic/o,/topic/a.*", [first, second, third]),
    ):  # fmt: skip
        assert archive.files(tmp_path, wanted) == expected
        chosen = Selection().destination("pattern", wanted)
        assert [files.address(each.path) for each in found if may_hold(each, chosen)] == expected
    chosen = Selection().destination("in", "/topic/c")
    assert [may_hold(each, chosen) for each in found] == [True, False, False]


def test_names_of_files_lead_to_one_component_that_no_tool_changes() -> None:
    assert encode("/topic/flights.JFK") == "~2Ftopic~2Fflights.JFK"
    assert encode("_hidden") == "~5Fhidden"
    assert encode(".hidden~") == "~2Ehidden~7E"
    long = ["ä" * 39 + str(each) for each in range(2)]
    cut = {encode(name, 180) for name in long}
    assert len(cut) == 2
    assert all(len(name) == 180 for name in cut)
    path = data_path("2013-01-31", [("ä" * 40, 10**18, 10**19 - 1)], "0123abcd")
    assert max(map(len, path.split("/"))) <= 255
    assert len(encode_name("ä" * 40)) == 240


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        (replace(data_file(0, 5), names=("/topic/a", "/topic/a"), offsets=(0, 4)),
         "partition,receive_time,receive_ns,destination,offset"),
        (data_file(0, 5), "partition,receive_time,receive_ns"),
    ],
)  # fmt: skip
def test_an_archive_of_an_earlier_version_gets_the_columns_with_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: DataFile, columns: str
) -> None:
    files = LocalFiles(str(tmp_path))
    with monkeypatch.context() as earlier:
        earlier.setattr(manifest, "_statistics", lambda *given: {})
        state = commit(files, load(files), Changes("s", add=[file], ends={"p": 5}))
    assert isinstance(state, State) and state.table is not None
    assert manifest.STATISTICS_KEY not in state.table.configuration
    for _ in range(2):
        state = commit(files, load(files), Changes("s", ends={"p": 6}))
        assert isinstance(state, State) and state.table is not None
        assert state.table.configuration[manifest.STATISTICS_KEY] == columns
