"""Damage to an archive: a bit that flips in a data file or a commit is told, never read as something else."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from radiator.archive.files import LocalFiles
from radiator.archive.lookup import records
from radiator.archive.manifest import DataFile, State, load
from radiator.archive.merging import groups_to_merge
from radiator.archive.opening import open_files
from radiator.archive.parquet import SCHEMA, reader
from radiator.archive.paths import commit_path
from radiator.archive.run import Options, run
from radiator.archive.verify import verify
from radiator.errors import StorageError
from tests.archive.killing import EAGER
from tests.archive.stores import archive_rows, fill, more

UNMERGED = replace(EAGER, merge=False)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    """An archive of small files that can be merged."""
    writer = fill(tmp_path / "data", count=1500)
    run(str(tmp_path / "data"), open_files(tmp_path / "archive"), UNMERGED)
    more(writer, count=1500, first=1500)
    writer.close()
    run(str(tmp_path / "data"), open_files(tmp_path / "archive"), UNMERGED)
    return LocalFiles(str(tmp_path / "archive"))


def largest(state: State) -> DataFile:
    return max(state.files.values(), key=lambda each: each.bytes)


def flip(path: str, place: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[place] ^= 16
    Path(path).write_bytes(data)


def body_place(path: str) -> int:
    """Of a byte in the middle of the bodies."""
    with open(path, "rb") as file:
        group = reader(file).metadata.row_group(0)
        (column,) = (each for each in map(group.column, range(group.num_columns)) if each.path_in_schema == "body")
        return column.data_page_offset + column.total_compressed_size * 3 // 4  # type: ignore[no-any-return]


def test_a_flipped_bit_in_a_data_file_is_reported_by_verify_wherever_it_is(files: LocalFiles) -> None:
    state = load(files)
    path = files.address(largest(state).path)
    whole = Path(path).read_bytes()
    dice = random.Random(5)
    for _ in range(60):
        flip(path, dice.randrange(len(whole)))
        assert any(path in fault for fault in verify(files, state, records=True))
        Path(path).write_bytes(whole)
    assert list(verify(files, state, records=True)) == []


def test_a_flipped_bit_in_a_page_is_an_error_of_every_reader(files: LocalFiles) -> None:
    state = load(files)
    each = largest(state)
    flip(files.address(each.path), body_place(files.address(each.path)))
    with open(files.address(each.path), "rb") as file, pytest.raises(OSError, match=r"(?i)crc"):
        reader(file).read()
    with pytest.raises(StorageError, match=each.path):
        list(records(files, "flights", 0, 3000, pa.schema([SCHEMA.field("body")]), lambda *_: None))


def test_a_damaged_file_is_not_merged_and_the_others_are(files: LocalFiles, tmp_path: Path) -> None:
    before, state = archive_rows(tmp_path / "archive"), load(files)
    each = groups_to_merge(state, force=True)[0][0]
    path = files.address(each.path)
    flip(path, body_place(path))
    out = run(str(tmp_path / "data"), open_files(tmp_path / "archive"), Options(merge=True, archive=False))
    assert out.damaged
    assert any(path in text and "restore it" in text for text in out.problems.values())
    assert out.merged_to
    assert each.path in load(files).files
    flip(path, body_place(path))
    assert archive_rows(tmp_path / "archive") == before
    assert not run(str(tmp_path / "data"), open_files(tmp_path / "archive"), Options(merge=True)).problems


@pytest.mark.thorough
def test_a_flipped_bit_in_a_commit_is_an_error_that_names_it(files: LocalFiles) -> None:
    path = files.address(commit_path(0))
    whole = Path(path).read_bytes()
    for place in range(len(whole)):
        flip(path, place)
        with pytest.raises(StorageError) as caught:
            load(files)
        assert path in str(caught.value)
        Path(path).write_bytes(whole)
    for cut in (0, 1, len(whole) - 1):
        Path(path).write_bytes(whole[:cut])
        with pytest.raises(StorageError, match="damaged"):
            load(files)
    Path(path).write_bytes(whole)
    load(files)
