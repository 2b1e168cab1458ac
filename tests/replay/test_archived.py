"""Records of an archive, and of an archive and the log that goes on behind it."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from radiator.archive import Changes, DataFile, Lost, commit, load, open_files
from radiator.archive.manifest import Span
from radiator.archive.planning import source_of
from radiator.cli.main import run
from radiator.columns import schema
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.export.records import choose
from radiator.export.rows import Row, rows
from radiator.replay import archived
from radiator.replay.sources import Sources
from radiator.storage.reader import list_partitions
from tests.spark.stores import MS, START_NS, Writer, numbered

MANY = ["/topic/c.0", "/topic/c.1", "/topic/c.2"]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Two partitions: 100 records of a and b in turns, and 60 of three destinations."""
    writer = Writer(tmp_path / "data")
    for i in range(10):
        writer.append("ab", [*numbered("/topic/a", 5, 10 * i), *numbered("/topic/b", 5, 10 * i + 5)])
        writer.append("c", [each for j, name in enumerate(MANY) for each in numbered(name, 2, 10 * i + 2 * j)])
        writer.commit()
    writer.close()
    return str(writer.root)


def of_the_log(store: str) -> list[Row]:
    def lost(*_: object) -> None:
        raise AssertionError

    found = [
        row
        for partition in list_partitions(store)
        for chosen in choose(Selection(), partition, lost)
        for row in rows(chosen)
    ]
    return sorted(found, key=lambda row: (row.receive_ns, row.partition, row.offset))


def write_archive(
    store: str, root: Path, ends: dict[str, int], lost: list[Lost] | None = None, source: str = ""
) -> str:
    """As an archiver does: a file for each of a and b, one for the destinations of c together, sorted by those."""
    files = open_files(str(root))
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in of_the_log(store):
        if row.offset < ends[row.partition]:
            groups.setdefault((row.partition, "many" if row.partition == "c" else row.destination[7:]), []).append(row)
    add = []
    for (partition, name), found in groups.items():
        found.sort(key=lambda row: (row.destination, row.offset))
        path = f"date=2023-11-14/{name}/{partition}.parquet"
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        columns = {field: [getattr(row, field) for row in found] for field in (*Row._fields, "size")}
        for what in ("receive", "event", "transmit"):
            columns[f"{what}_time"] = [None if ns is None else ns // 1_000 for ns in columns[f"{what}_ns"]]
        for name in ("tags", "headers"):
            columns[name] = [list(value.items()) for value in columns[name]]
        typed = schema.arrow_schema()
        pq.write_table(pa.table({f.name: pa.array(columns[f.name], f.type) for f in typed}, schema=typed), target)
        offsets, times = [row.offset for row in found], [row.receive_ns for row in found]
        add.append(
            DataFile(
                path,
                (Span(partition, min(offsets), max(offsets) + 1, len(found)),),
                "2023-11-14",
                tuple(sorted({row.destination for row in found})),
                len(found),
                os.path.getsize(target),
                1,
                min(times),
                max(times),
            )
        )
    commit(files, load(files), Changes(source or source_of(store), add=add, ends=ends, lost=lost or ()))
    return str(root)


def named(patterns: str) -> Selection:
    return Selection().destination("pattern", patterns)


def read(
    choice: Selection, data: str | None, archive: str | None, losses: list[object] | None = None,
    selector: str | None = None,
) -> list[Row]:  # fmt: skip
    def lost(*told: object) -> None:
        assert losses is not None, told
        losses.append(told)

    return list(Sources(choice, data, archive, lost, selector=selector).rows())


def test_an_archive_alone_has_its_records_in_the_order_of_receiving(store: str, tmp_path: Path) -> None:
    archive = write_archive(store, tmp_path / "archive", {"ab": 100, "c": 60})
    assert read(Selection(), None, archive) == of_the_log(store)


@pytest.mark.parametrize("ends", [{"ab": 40, "c": 60}, {"ab": 1, "c": 0}, {"ab": 99, "c": 7}])
def test_archive_and_log_together_have_each_record_once(store: str, tmp_path: Path, ends: dict[str, int]) -> None:
    archive = write_archive(store, tmp_path / "archive", ends)
    assert read(Selection(), store, archive) == of_the_log(store)


def test_a_part_is_the_same_from_archive_and_log(store: str, tmp_path: Path) -> None:
    archive = write_archive(store, tmp_path / "archive", {"ab": 40, "c": 33})
    for choice in (
        named("/topic/a"),
        named("/topic/c.*").partition("in", "c"),
        Selection().offsets(10, 50),
        named("/topic/>").received(START_NS + 20 * MS, START_NS + 70 * MS),
        Selection(starts={"ab": 50, "c": 5}),
    ):
        found = read(choice, store, archive)
        assert found == read(choice, store, None)
        assert 0 < len(found) < 160
    selector = "number > 30 AND number < 60 AND destination <> '/topic/b'"
    found = read(Selection(), store, archive, selector=selector)
    assert found == read(Selection(), store, None, selector=selector)
    assert 0 < len(found) < 160


def test_what_the_archive_lost_is_reported(store: str, tmp_path: Path) -> None:
    archive = write_archive(store, tmp_path / "archive", {"ab": 40, "c": 60}, [Lost("ab", 3, 5, "damaged")])
    losses: list[object] = []
    read(Selection(), store, archive, losses)
    assert losses == [("ab", 3, 4, "the archive could not read them: damaged")]
    losses.clear()
    read(Selection().partition("in", "c"), store, archive, losses)
    read(Selection().offsets(5), store, archive, losses)
    assert losses == []


def test_losses_of_the_archive_outside_of_the_selection_are_not_reported(store: str, tmp_path: Path) -> None:
    archive = write_archive(store, tmp_path / "archive", {"ab": 40, "c": 60})
    files = open_files(archive)
    state = load(files)
    (last,) = [each for each in state.files.values() if each.destinations == ("/topic/b",)]
    commit(files, state, Changes(source_of(store), lost=[Lost("ab", 40, 43, "damaged")], ends={"ab": 43}))
    losses: list[object] = []
    inside = Selection().received(high_ns=last.max_receive_ns + MS)
    for choice, told in (
        (named("/topic/a"), True),
        (named("/topic/z"), True),  # no file knows it, but who is to say that the lost ones did not?
        (inside, True),
        (Selection().received(high_ns=START_NS + 20 * MS), False),
    ):
        losses.clear()
        read(choice, None, archive, losses)
        assert losses == ([("ab", 40, 42, "the archive could not read them: damaged")] if told else [])
    losses.clear()
    read(named("/topic/z"), store, archive, losses)
    read(named("/topic/c.*"), store, archive, losses)
    assert losses == []  # the store keeps a list of the names that a partition has held


def test_what_went_while_a_replay_was_interrupted_is_reported(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", segment_bytes=64 << 10)
    writer.write("a", [each._replace(body=bytes(1000)) for each in numbered("a", 300)], 10)
    writer.close()
    for path in sorted((tmp_path / "data" / "partitions" / "a").glob("*.rlog"))[:2]:
        path.unlink()
    start = list_partitions(writer.root)[0].log_start_offset
    losses: list[object] = []
    assert len(read(Selection(starts={"a": 30}), writer.root, None, losses)) == 300 - start
    assert losses == [("a", 30, start - 1, "removed since this replay was interrupted")]
    read(Selection(starts={"a": start}), writer.root, None)
    read(Selection(starts={"a": 30}).offsets(high=30), writer.root, None)
    assert len(read(Selection(), writer.root, None)) == 300 - start  # begun now, it begins with what is there


def test_what_is_no_archive_or_that_of_another_store_is_refused(store: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the archive does not exist or is empty"):
        read(Selection(), None, str(tmp_path / "nothing"))
    archive = write_archive(store, tmp_path / "archive", {"ab": 40, "c": 60}, source="of-another")
    with pytest.raises(StorageError, match="archive of another data directory"):
        read(Selection(), store, archive)


def test_too_many_files_at_once_are_an_error_that_says_what_to_do(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(store, tmp_path / "archive", {"ab": 100, "c": 60})
    monkeypatch.setattr(archived, "FILES_MAX", 1)
    with pytest.raises(StorageError, match="more than 1 files have records of the same time: choose fewer"):
        read(Selection(), None, archive)
    assert len(read(named("/topic/a"), None, archive)) == 50


def test_what_the_archiver_wrote_is_read_together_with_the_log_behind_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", segment_bytes=64 << 10)
    for i in range(40):
        texts = [each._replace(body=each.body * 100) for each in numbered("/topic/a", 25, 25 * i)]
        writer.append("p", [*texts, *numbered(f"/topic/c.{i % 7}", 3, 25 * i)])
        writer.commit()
    store, archive = str(writer.root), str(tmp_path / "archive")
    assert run(["archive", "--data", store, "--to", archive]) == 0
    writer.close()
    ends = load(open_files(archive)).ends
    assert 0 < ends["p"] < 28 * 40
    assert read(Selection(), store, archive) == of_the_log(store)
    assert len(read(named("/topic/c.*"), store, archive)) == 120
    assert len(read(Selection(), None, archive)) == ends["p"]


def test_a_destination_that_neither_has_is_reported_with_the_likely_one(
    store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive = write_archive(store, tmp_path / "archive", {"ab": 40, "c": 60})
    args = ["replay", "--to", "/topic/x", "--dry-run", "--destination", "/topic/aa,/topic/b"]
    assert run([*args, "--data", store]) == 0
    assert f"{store} has no destination '/topic/aa' yet; did you mean /topic/a?\n" in capfd.readouterr().err
    assert run([*args, "--data", store, "--archive", archive]) == 0
    told = capfd.readouterr().err
    assert f"{store} or {archive} has no destination '/topic/aa'" in told and "/topic/b" not in told
