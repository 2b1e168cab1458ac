"""A run of the archiver over stores of every kind: what it adds is exactly what is new and sealed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from radiator.archive.files import Files
from radiator.archive.lock import Busy, locked
from radiator.archive.manifest import DataFile, Lost, Span, State, load
from radiator.archive.merging import Sizes, groups_to_merge
from radiator.archive.opening import open_files
from radiator.archive.paths import data_path
from radiator.archive.remote import ArrowFiles, FsspecFiles
from radiator.archive.run import Options, Outcome, Watch, run
from radiator.archive.split import Settings
from radiator.archive.verify import verify
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.errors import StorageError
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from tests.archive.killing import EAGER, check_all
from tests.archive.stores import SEGMENT_BYTES, archive_rows, check_exact, fill, log_rows, more, sealed_ends
from tests.spark.stores import Writer, numbered
from tests.storage.rewriting import rewritten
from tests.tiers import sampled


def archive_of(root: Path) -> State:
    return load(open_files(root / "archive"))


def go(root: Path, options: Options = EAGER, watch: Watch = Watch()) -> Outcome:  # noqa: B008
    return run(str(root / "data"), open_files(root / "archive"), options, watch)


def segments(root: Path, partition: str = "flights") -> list[Path]:
    return sorted(Path(partition_path(str(root / "data"), partition)).glob("*.rlog"))


def test_a_run_adds_what_is_new_and_the_next_one_nothing(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", days=3)
    first = go(tmp_path)
    assert first.records == len(check_all(tmp_path / "data", tmp_path / "archive"))
    again = go(tmp_path)
    assert (again.records, again.files, again.version) == (0, 0, first.version)
    more(writer, first=2000)
    more(writer, "born later", count=1000)
    second = go(tmp_path)
    assert second.records
    assert len(check_all(tmp_path / "data", tmp_path / "archive")) == first.records + second.records
    writer.close()


def test_files_have_one_day_in_the_order_of_destinations_and_say_so(tmp_path: Path) -> None:
    fill(tmp_path / "data", days=3).close()
    go(tmp_path, replace(EAGER, merge=False))
    state = archive_of(tmp_path)
    assert len({each.date for each in state.files.values()}) > 2
    for each in state.files.values():
        table = pq.read_table(tmp_path / "archive" / each.path)
        metadata = pq.ParquetFile(tmp_path / "archive" / each.path).metadata
        assert keys_of(table) == sorted(keys_of(table))
        assert table.column("destination").unique().to_pylist() == list(each.destinations or ())
        assert metadata.row_group(0).column(8).compression == "ZSTD"
        assert [column.column_index for column in metadata.row_group(0).sorting_columns] == [1, 0, 2]
        assert metadata.row_group(0).column(0).statistics.min == (each.destinations or ("",))[0]
        assert metadata.row_group(0).column(2).statistics.max is not None
        assert metadata.metadata[b"radiator.source"].decode() == state.source


def keys_of(table: pa.Table) -> list[tuple[str, int]]:
    return list(zip(table.column("destination").to_pylist(), table.column("offset").to_pylist(), strict=True))


def test_a_partition_without_anything_sealed_waits(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=10)
    assert go(tmp_path).records == 0
    assert archive_of(tmp_path).version == -1
    more(writer, first=10)
    assert go(tmp_path).records > 0
    check_all(tmp_path / "data", tmp_path / "archive")
    writer.close()


@pytest.mark.parametrize("run_bytes", sampled([30_000, 1, 10_000_000], 1))
def test_many_destinations_share_one_sorted_file_a_day_however_little_memory_there_is(
    tmp_path: Path, run_bytes: int
) -> None:
    fill(tmp_path / "data", count=3000, destinations=997, days=2).close()
    go(tmp_path, Options(merge=False, settings=Settings("", run_bytes=run_bytes, group_rows=500)))
    state = archive_of(tmp_path)
    assert len(state.files) == len({each.date for each in state.files.values()})
    for each in state.files.values():
        table = pq.read_table(tmp_path / "archive" / each.path)
        assert keys_of(table) == sorted(keys_of(table))
        assert each.path.count("/") == 1 and len(each.destinations or ()) > 100
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_file_whose_rows_are_written_ends_where_another_destination_begins(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", 8192)
    for number, name in enumerate(["/topic/b", "/topic/b", "/topic/a", "/topic/c", "/topic/b"]):
        writer.write("p", numbered(name, 400, first=400 * number), per_batch=50)
    writer.close()
    go(tmp_path, Options(merge=False, settings=Settings("", run_bytes=5000)))
    found = sorted(
        (span.first, span.next_offset, each.destinations)
        for each in archive_of(tmp_path).files.values()
        for span in each.spans
    )
    assert found[0] == (0, found[1][0], ("/topic/b",))
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert len(found) < 6
    check_all(tmp_path / "data", tmp_path / "archive")


def test_more_destinations_than_are_listed_are_not_listed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data", SEGMENT_BYTES)
    made = [each._replace(destination=f"/topic/{n}") for n, each in enumerate(numbered("", 3000))]
    writer.write("p", made, per_batch=500)
    writer.close()
    go(tmp_path, Options())
    assert [each.destinations for each in archive_of(tmp_path).files.values()] == [None]
    check_all(tmp_path / "data", tmp_path / "archive")


def test_sorted_files_merge_to_one_that_is_sorted(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=1000, destinations=50, days=1)
    options = replace(EAGER, merge=False)
    go(tmp_path, options)
    more(writer, count=1500, destinations=50, days=1, first=1000)
    go(tmp_path, options)
    before = len(archive_of(tmp_path).files)
    writer.close()
    out = go(tmp_path, replace(options, merge=True))
    assert out.merged_from > out.merged_to > 0
    state = archive_of(tmp_path)
    assert len(state.files) == before - out.merged_from + out.merged_to
    largest = max(state.files.values(), key=lambda each: each.records)
    table = pq.read_table(tmp_path / "archive" / largest.path)
    assert keys_of(table) == sorted(keys_of(table))
    check_all(tmp_path / "data", tmp_path / "archive")


def named(first: int, day: int, size: int = 10, partition: str = "p") -> DataFile:
    date = f"2013-01-{day:02d}"
    path = data_path(date, [(partition, first, first + 1)], "0123abcd")
    return DataFile(path, (Span(partition, first, first + 1, 1),), date, ("/topic/a",), 1, size, 1, 0, 0)


def test_files_of_a_day_that_is_over_merge_and_of_one_that_is_not_if_there_are_many() -> None:
    sizes = Sizes(small_bytes=100, merged_bytes_max=250, open_day_files=3)

    def merging(*files: DataFile, force: bool = False) -> list[list[int]]:
        state = State(files={each.path: each for each in files})
        return [[each.spans[0].first for each in run] for run in groups_to_merge(state, sizes, force)]

    assert merging(named(0, 1), named(1, 1)) == []
    assert merging(named(0, 1), named(1, 1), force=True) == [[0, 1]]
    assert merging(named(0, 1), named(1, 1), named(2, 1)) == [[0, 1, 2]]
    assert merging(named(0, 1), named(1, 1), named(2, 2)) == [[0, 1]]
    assert merging(named(0, 1), named(1, 1), named(2, 2, partition="q")) == [[0, 1]]
    assert merging(named(0, 1), named(1, 1, 100), named(2, 1), named(9, 2)) == [[0, 2]]
    assert merging(named(0, 1, 60), named(1, 1, 100), named(2, 1, 60), named(9, 2)) == []  # not side by side
    assert merging(*(named(each, 1, 99) for each in range(5)), named(9, 2)) == [[0, 1], [2, 3]]
    assert merging(*(named(each, 1, 1) for each in range(200)), named(999, 2)) == [
        list(range(128)),
        list(range(128, 200)),
    ]
    assert merging(*(named(each, 1, 1, f"{each:03}") for each in range(90)), named(999, 2)) == [list(range(90))]


def test_compressed_and_sparse_segments_are_archived_as_they_are(tmp_path: Path) -> None:
    fill(tmp_path / "data").close()
    for place, segment in enumerate(segments(tmp_path)[:-1]):
        keep = (lambda offset: offset % 3 == 0) if place % 2 else (lambda offset: True)
        segment.write_bytes(rewritten(segment.read_bytes(), int(segment.stem), keep, 3, 50))
    out = go(tmp_path)
    assert 0 < out.records < sealed_ends(tmp_path / "data")["flights"]
    check_all(tmp_path / "data", tmp_path / "archive")


def damage(root: Path, place: int) -> None:
    data = bytearray(segments(root)[place].read_bytes())
    data[len(data) // 2] ^= 1
    segments(root)[place].write_bytes(data)


def test_damage_stops_its_partition_and_no_other(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data")
    more(writer, "sound")
    writer.close()
    damage(tmp_path, 2)
    out = go(tmp_path, replace(EAGER, unit_bytes=1))
    assert out.damaged
    assert "cannot be read" in out.problems["flights"]
    assert "--skip-damaged" in out.problems["flights"]
    state = archive_of(tmp_path)
    assert state.ends["flights"] == int(segments(tmp_path)[2].stem)
    assert state.ends["sound"] == sealed_ends(tmp_path / "data")["sound"]
    assert not state.lost


def test_skipped_damage_is_recorded_and_reported(tmp_path: Path) -> None:
    fill(tmp_path / "data").close()
    whole = log_rows(tmp_path / "data")
    damage(tmp_path, 1)
    told: list[str] = []
    out = go(tmp_path, replace(EAGER, skip_damaged=True), Watch(report=told.append))
    assert out.damaged
    assert not out.problems
    (lost,) = archive_of(tmp_path).lost
    assert (lost.partition, lost.why) == ("flights", "damaged")
    assert told == [f"flights: offsets {lost.first} to {lost.next_offset - 1} are lost: damaged"]
    end = sealed_ends(tmp_path / "data")["flights"]
    expected = {key for key in whole if key[1] < end and not lost.first <= key[1] < lost.next_offset}
    assert archive_rows(tmp_path / "archive").keys() == expected
    assert list(verify(open_files(tmp_path / "archive"), archive_of(tmp_path), records=True)) == []


def test_records_that_retention_removed_before_are_recorded_and_reported(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=3000)
    segments(tmp_path)[0].unlink()
    told: list[str] = []
    start = int(segments(tmp_path)[0].stem)
    out = go(tmp_path, watch=Watch(report=told.append))
    assert archive_of(tmp_path).starts == out.begins == {"flights": start}
    (text,) = told
    assert text.startswith(f"flights: the archive begins at offset {start}; earlier ones were removed")
    end = archive_of(tmp_path).ends["flights"]
    more(writer, count=3000, first=3000)
    writer.close()
    for segment in segments(tmp_path)[:-3]:
        segment.unlink()
    out = go(tmp_path, watch=Watch(report=told.append))
    assert archive_of(tmp_path).lost == (Lost("flights", end, int(segments(tmp_path)[0].stem), "retention"),)
    assert out.lost == list(archive_of(tmp_path).lost)
    assert not out.damaged
    assert list(verify(open_files(tmp_path / "archive"), archive_of(tmp_path), records=True)) == []


def test_what_retention_took_is_recorded_though_nothing_is_new(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=3000)
    go(tmp_path, replace(EAGER, unit_bytes=1), Watch(stopping=lambda: True))
    end = archive_of(tmp_path).ends["flights"]
    for segment in segments(tmp_path)[:-1]:
        segment.unlink()
    go(tmp_path)
    active = int(segments(tmp_path)[0].stem)
    assert archive_of(tmp_path).lost == (Lost("flights", end, active, "retention"),)
    assert archive_of(tmp_path).ends == {"flights": active}
    version = archive_of(tmp_path).version
    go(tmp_path)
    assert archive_of(tmp_path).version == version
    writer.close()


def test_a_segment_that_goes_while_it_is_read_is_planned_again(tmp_path: Path) -> None:
    fill(tmp_path / "data", count=4000).close()
    gone = segments(tmp_path)[:3]

    def step(name: str) -> None:
        if name == "written":  # the first unit is there; the others are not yet
            for each in gone:
                each.unlink(missing_ok=True)

    out = go(tmp_path, replace(EAGER, unit_bytes=1), Watch(step=step))
    assert not out.problems
    state = archive_of(tmp_path)
    assert [each.why for each in state.lost] == ["retention"]
    assert state.ends == sealed_ends(tmp_path / "data")
    assert list(verify(open_files(tmp_path / "archive"), state, records=True)) == []


def test_an_older_copy_of_the_store_and_another_store_are_refused(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=3000)
    go(tmp_path)
    writer.close()
    for each in segments(tmp_path)[2:]:
        each.unlink()
    Path(partition_path(str(tmp_path / "data"), "flights"), "head").unlink()
    before = archive_of(tmp_path)
    assert "an older copy" in go(tmp_path).problems["flights"]
    assert archive_of(tmp_path) == before
    fill(tmp_path / "other").close()
    with pytest.raises(StorageError, match="archive of another data directory"):
        run(str(tmp_path / "other"), open_files(tmp_path / "archive"))
    (tmp_path / "other/salt").unlink()
    with pytest.raises(StorageError, match="start the broker on it once"):
        run(str(tmp_path / "other"), open_files(tmp_path / "archive"))


def test_single_partitions_and_no_mark(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data")
    more(writer, "other")
    writer.close()
    out = go(tmp_path, replace(EAGER, partitions=frozenset({"other"}), mark=False))
    assert set(archive_of(tmp_path).ends) == {"other"}
    assert out.records + out.unsealed == 2000
    directory = partition_path(str(tmp_path / "data"), "other")
    assert archived.read(FileSystem(), directory) == 0
    Path(directory, "archived").write_bytes(b"damaged")
    go(tmp_path)
    check_all(tmp_path / "data", tmp_path / "archive")


def test_a_second_run_on_a_store_is_refused_with_the_first_one(tmp_path: Path) -> None:
    fill(tmp_path / "data").close()
    with locked(str(tmp_path / "data")), pytest.raises(Busy, match=r"another run is active \(process \d+\)"):
        go(tmp_path)
    assert go(tmp_path).records


@pytest.mark.thorough
def test_several_processes_write_the_same(tmp_path: Path) -> None:
    writer = fill(tmp_path / "data", count=4000)
    more(writer, "other", count=3000)
    writer.close()
    damage(tmp_path, 3)
    done: list[int] = []
    out = go(tmp_path, replace(EAGER, jobs=2, skip_damaged=True), Watch(advance=done.append))
    assert sum(done) == out.log_bytes
    assert len(archive_of(tmp_path).lost) == 1
    assert list(verify(open_files(tmp_path / "archive"), archive_of(tmp_path), records=True)) == []


def test_a_run_that_is_asked_to_stop_commits_what_is_complete(tmp_path: Path) -> None:
    fill(tmp_path / "data", count=4000).close()
    asked = iter([False, True, True, True, True])
    out = go(tmp_path, replace(EAGER, unit_bytes=1), Watch(stopping=lambda: next(asked)))
    assert 0 < out.records < sealed_ends(tmp_path / "data")["flights"]
    assert archive_of(tmp_path).ends["flights"] == out.records
    go(tmp_path)
    check_all(tmp_path / "data", tmp_path / "archive")


@pytest.fixture(params=["file://", "memory://", "fsspec", "arrow"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    root = str(tmp_path / "archive")
    if request.param == "fsspec":
        yield FsspecFiles(fsspec.filesystem("file"), root, f"local://{root}", moves=True)
    elif request.param == "arrow":
        yield ArrowFiles(LocalFileSystem(), root, root, moves=True)
    else:
        yield open_files(request.param + root)
    fsspec.filesystem("memory").store.clear()


@pytest.mark.thorough
def test_an_archive_may_lie_anywhere(elsewhere: Files, tmp_path: Path) -> None:
    writer = fill(tmp_path / "data")
    run(str(tmp_path / "data"), elsewhere, EAGER)
    more(writer, first=2000)
    writer.close()
    assert run(str(tmp_path / "data"), elsewhere, replace(EAGER, merge=True)).merged_to
    check_exact(elsewhere, tmp_path / "data")
    assert list(verify(elsewhere, load(elsewhere), records=True)) == []
    assert elsewhere.list("_new") == []


def test_verify_names_every_file_that_is_not_what_its_commit_says(tmp_path: Path) -> None:
    fill(tmp_path / "data", days=3).close()
    go(tmp_path, replace(EAGER, merge=False))
    files, state = open_files(tmp_path / "archive"), archive_of(tmp_path)
    assert list(verify(files, state, records=True)) == []
    gone, torn, swapped, *rest = (tmp_path / "archive" / path for path in sorted(state.files))
    gone.unlink()
    torn.write_bytes(torn.read_bytes()[:-9])
    swapped.write_bytes(rest[0].read_bytes())
    faults = list(verify(files, state))
    for path, text in ((gone, "does not exist"), (torn, "cannot be read"), (swapped, "its commit says")):
        assert any(str(path) in fault and text in fault for fault in faults), faults
    names = list(state.files)
    held = replace(state, files={name: state.files[name] for name in names if "@0-" not in name})
    assert any("no file has the offsets 0 to" in fault for fault in verify(files, held))
    twice = replace(state.files[names[0]], path=names[0].replace("flights@", "flights@9"))
    assert any("two files" in fault for fault in verify(files, replace(state, files={**state.files, "x": twice})))


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(n, marks=pytest.mark.thorough) for n in range(8)),
        *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 300)),
    ],
)
def test_whatever_happens_to_the_store_the_archive_has_everything_once(tmp_path: Path, seed: int) -> None:
    """Writes, runs, merges, rewriting and retention in any order; what retention takes early is told as lost."""
    dice = random.Random(seed)
    writer = Writer(tmp_path / "data", SEGMENT_BYTES)
    ever: dict[tuple[str, int], object] = {}
    removed: set[tuple[str, int]] = set()
    rewrote: set[Path] = set()
    written = 0
    for _ in range(dice.randrange(5, 12)):
        what = dice.choice(["write", "write", "run", "run", "merge", "rewrite", "retain", "retain early"])
        names = [each.name for each in partitions(open_store(str(tmp_path / "data")))]
        if what == "write" or not names:
            count = dice.randrange(50, 1500)
            more(writer, dice.choice("ab"), count, dice.choice([1, 3, 200]), dice.choice([1, 2, 9]), written)
            written += 10_000  # receive times never fall
            ever.update(log_rows(tmp_path / "data"))
        elif what in ("run", "merge"):
            settings = Settings("", group_rows=300, run_bytes=dice.choice([30_000, 10**7]))
            unit_bytes = dice.choice([1, 200_000])
            options = replace(EAGER, settings=settings, unit_bytes=unit_bytes, merge=what == "merge" or None)
            assert not go(tmp_path, options).problems
        else:
            name = dice.choice(names)
            sealed = segments(tmp_path, name)[:-1]
            end = archived.read(FileSystem(), partition_path(str(tmp_path / "data"), name))
            if what == "rewrite" and sealed:
                chosen, by = dice.choice(sealed), dice.choice([1, 2, 7])
                data = chosen.read_bytes()
                if chosen in rewrote:
                    continue  # what rewrites for the tests does not know sparse ones
                rewrote.add(chosen)
                before = {key for key in log_rows(tmp_path / "data") if key[0] == name}
                data = rewritten(data, int(chosen.stem), lambda offset, by=by: offset % by == 0, 3, 40)
                chosen.write_bytes(data)
                after = log_rows(tmp_path / "data")
                removed |= {key for key in before if key not in after and key[1] >= end}
            elif what.startswith("retain"):
                taken = [one for one, two in zip(sealed, segments(tmp_path, name)[1:], strict=False)
                         if what == "retain early" or int(two.stem) <= end]  # fmt: skip
                for each in taken[: dice.randrange(4)]:
                    each.unlink()
    go(tmp_path)
    state = archive_of(tmp_path)
    lost = {(each.partition, offset) for each in state.lost for offset in range(each.first, each.next_offset)}
    expected = {
        key for key in ever
        if state.starts.get(key[0], 0) <= key[1] < state.ends.get(key[0], 0) and key not in lost and key not in removed
    }  # fmt: skip
    found = archive_rows(tmp_path / "archive")
    assert found.keys() == expected
    assert all(ever[key] == row for key, row in found.items())
    assert state.ends == {name: end for name, end in sealed_ends(tmp_path / "data").items() if name in state.ends}
    assert list(verify(open_files(tmp_path / "archive"), state, records=True)) == []
    writer.close()
