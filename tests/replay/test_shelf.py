"""Rows that lie by destination come in the order of their offsets, and few of them are in memory at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from radiator.archive.parquet import SCHEMA
from radiator.errors import StorageError
from radiator.export.rows import Row
from radiator.replay import shelf
from radiator.replay.shelf import COLUMNS, Shelf, in_rows

WANTED = pa.schema([SCHEMA.field(name) for name in COLUMNS])


def row(offset: int, size: int = 20) -> Row:
    name = f"/topic/{offset % 7}"
    return Row(name, "p", offset, f"p@{offset}", offset, None, offset, {"a": "b"}, {"tag-a": "b"}, b"x" * size)


def batches(found: list[Row], rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(found), rows):
        part = [each._replace(tags=[*each.tags.items()], headers=[*each.headers.items()])._asdict()  # type: ignore[arg-type]
                for each in found[start : start + rows]]  # fmt: skip
        yield pa.RecordBatch.from_pylist(part, WANTED)


def by_destination(count: int) -> list[Row]:
    return sorted(map(row, range(count)), key=lambda each: (each.destination, each.offset))


@pytest.mark.parametrize(("piece_bytes", "held_bytes"), [(1 << 24, 1 << 20), (1 << 24, 0), (4_000, 0), (1, 0)])
def test_rows_come_by_offset_from_memory_from_one_piece_and_from_many(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, held_bytes: int
) -> None:
    monkeypatch.setattr(shelf, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(shelf, "HELD_BYTES", held_bytes)
    assert list(Shelf(batches(by_destination(700), 16)).rows()) == [row(offset) for offset in range(700)]
    assert list(Shelf(iter(())).rows()) == []


def test_of_many_pieces_a_slice_each_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def counting(batch: pa.RecordBatch) -> Iterator[Row]:
        nonlocal made
        made += batch.num_rows
        return in_rows(batch)

    monkeypatch.setattr(shelf, "PIECE_BYTES", 100_000)
    monkeypatch.setattr(shelf, "SLICE_ROWS", 5)
    monkeypatch.setattr(shelf, "in_rows", counting)
    found = by_destination(10_000)
    random.Random(5).shuffle(found)
    rows = Shelf(batches(found, 64)).rows()
    assert next(rows).offset == 0
    assert 0 < made < 300  # a dozen pieces
    assert [each.offset for each in rows] == list(range(1, 10_000))


def test_large_rows_are_held_one_of_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def counting(batch: pa.RecordBatch) -> Iterator[Row]:
        nonlocal made
        made += batch.num_rows
        return in_rows(batch)

    monkeypatch.setattr(shelf, "PIECE_BYTES", 4_000_000)
    monkeypatch.setattr(shelf, "in_rows", counting)
    rows = Shelf(batches([row(offset, 200_000) for offset in range(60)], 4)).rows()
    next(rows)
    assert made < 10
    assert sum(1 for _ in rows) == 59


def test_no_room_is_reported_with_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shelf.tempfile, "tempdir", str(tmp_path / "gone"))
    monkeypatch.setattr(shelf, "HELD_BYTES", 0)
    with pytest.raises(StorageError, match=r"gone: cannot be written: .* TMPDIR names another place"):
        Shelf(batches(by_destination(10), 10))
