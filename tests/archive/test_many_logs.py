"""A log for each destination: small files of many logs become a few files, and everything reads them as before."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest

from radiator import archive
from radiator.archive import jobs, rows
from radiator.archive.actions import file_of, statistics_of, tag_of
from radiator.archive.contents import Anchor, DataFile, PackedSpans, Span, State, joined
from radiator.archive.files import LocalFiles
from radiator.archive.gaps import GapFinder
from radiator.archive.lookup import may_hold, records
from radiator.archive.manifest import Changes, load, next_commit, write_checkpoint
from radiator.archive.merging import OPEN_DAY_FILES, Sizes, groups_to_merge, spans_of
from radiator.archive.opening import open_files
from radiator.archive.parquet import footer_of, reader
from radiator.archive.paths import commit_path, data_path
from radiator.archive.run import Options, run
from radiator.archive.split import Settings
from radiator.archive.verify import verify
from radiator.archive.versions import load_as_of
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.replay import archived
from radiator.replay.sources import Sources
from radiator.storage.layout import partition_path
from tests.archive.killing import EAGER, check_all, run_until
from tests.archive.stores import Rows, archive_rows, log_rows, name_of, sealed_ends, write_logs
from tests.spark.stores import Writer

SMALL = replace(EAGER, settings=Settings("", group_rows=50))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve logs, archived in two runs to files of their own, not merged."""
    root = tmp_path_factory.mktemp("made")
    writer = Writer(root / "data", 4096)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "ARCHIVE_SHARED_LOGS_MAX", 1)
        for part in range(2):
            write_logs(writer, range(12), 40, first=100 * part)
            assert not run(str(root / "data"), open_files(root / "archive"), replace(SMALL, merge=False)).problems
    writer.close()
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def merge(root: Path, options: Options = SMALL) -> DataFile:
    """Merge all files, and return the only one."""
    out = run(str(root / "data"), open_files(root / "archive"), replace(options, merge=True, archive=False))
    assert not out.problems
    (found,) = load(open_files(root / "archive")).files.values()
    return found


def test_small_files_of_many_logs_become_one_that_is_sorted_by_log_destination_and_offset(root: Path) -> None:
    before = archive_rows(root / "archive")
    state = load(open_files(root / "archive"))
    assert len(state.files) >= 24
    found = merge(root)
    assert found.path.startswith("date=2023-11-14/~logs@")
    assert check_all(root / "data", root / "archive") == before
    keys = [(row["partition"], row["destination"], row["offset"]) for row in rows_of(root, found)]
    assert keys == sorted(keys)
    ends = sealed_ends(root / "data")
    assert [span[:4] for span in found.spans] == [(name, 0, ends[name], ends[name]) for name in sorted(ends)]
    assert {span.partition: span.destinations for span in found.spans} == {
        name_of(each): (name_of(each), f"{name_of(each)}.x")[: 1 + (each % 5 == 0)] for each in range(12)
    }
    after = load(open_files(root / "archive"))
    assert (after.anchors, after.ends, after.records) == (state.anchors, state.ends, state.records)


def count_opened(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[object]:
    """Return the list that will have each Parquet file that a module opens."""
    opened: list[object] = []

    def counted(source: Any, **options: Any) -> pq.ParquetFile:
        opened.append(source)
        return reader(source, **options)

    monkeypatch.setattr(module, "reader", counted)
    return opened


@pytest.mark.thorough
def test_records_of_many_logs_are_verified_with_one_reading_of_their_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge(root)
    opened = count_opened(monkeypatch, rows)
    files, missing = open_files(root / "archive"), dict[str, int]()
    assert list(verify(files, load(files), records=True, on_missing=missing.__setitem__)) == []
    assert len(opened) == 1
    assert set(missing.values()) == {0}


@pytest.mark.thorough
@pytest.mark.parametrize("change", ["twice", "left out"])
def test_a_log_in_a_file_of_many_whose_offsets_are_not_those_of_its_span_is_reported(root: Path, change: str) -> None:
    """As if the writer had lost or repeated a record, and written the commit with what the file has."""
    found = merge(root)
    table = pq.read_table(root / "archive" / found.path, partitioning=None)
    places = [place for place, row in enumerate(table.to_pylist()) if row["partition"] == name_of(7)]
    if change == "twice":
        offsets = table.column("offset").to_pylist()
        offsets[places[5]] = offsets[places[4]]
        table = table.set_column(table.schema.get_field_index("offset"), table.schema.field("offset"), [offsets])
    else:
        table = table.take([place for place in range(len(table)) if place != places[5]])
    pq.write_table(table, root / "archive" / found.path)
    files, missing = open_files(root / "archive"), dict[str, int]()
    said = list(verify(files, load(files), records=True, on_missing=missing.__setitem__))
    assert {name: count for name, count in missing.items() if count} == {name_of(7): 1}
    assert any("exist twice" in each and name_of(7) in each for each in said) == (change == "twice")


def no_loss(partition: str, first: int, last: int, why: str) -> None:
    raise AssertionError(f"{partition}: {first} to {last}: {why}")


@pytest.mark.thorough
def test_a_replay_of_many_logs_opens_their_file_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = archive_rows(root / "archive")
    merge(root)
    opened = count_opened(monkeypatch, archived)
    found = list(Sources(Selection(), None, str(root / "archive"), no_loss).rows())
    assert len(opened) == 1
    assert [(row.partition, row.offset) for row in found] == sorted(
        expected, key=lambda key: (expected[key]["receive_ns"], *key)
    )
    assert all(row.body == expected[row.partition, row.offset]["body"] for row in found)


@pytest.mark.thorough
def test_a_replay_goes_on_with_the_rest_of_a_file_that_was_merged_before_it_was_opened(root: Path) -> None:
    expected = archive_rows(root / "archive")
    made = Sources(Selection(), None, str(root / "archive"), no_loss).rows()
    found = [next(made)]
    before = set(load(open_files(root / "archive")).files)
    merge(root)
    for path in before:
        (root / "archive" / path).unlink(missing_ok=True)
    found += made
    assert sorted((row.partition, row.offset) for row in found) == sorted(expected)


def rows_of(root: Path, each: DataFile) -> list[dict[str, Any]]:
    return pq.ParquetFile(root / "archive" / each.path).read().to_pylist()


@pytest.mark.thorough
def test_statistics_and_footer_are_exact(root: Path) -> None:
    found = merge(root)
    rows = rows_of(root, found)
    said = json.loads(statistics_of(found))
    for name in ("partition", "destination", "offset", "receive_ns"):
        values = [row[name] for row in rows]
        assert (said["minValues"][name], said["maxValues"][name]) == (min(values), max(values))
    assert said["numRecords"] == len(rows)
    with open(root / "archive" / found.path, "rb") as file:
        count, footer = footer_of(file)
    assert count == len(rows)
    assert json.loads(footer["radiator.spans"]) == [list(each[:3]) for each in found.spans]
    assert "radiator.partition" not in footer
    assert file_of(found.path, found.date, found.bytes, found.modified_ms, tag_of(found)) == found


@pytest.mark.thorough
def test_a_log_is_read_from_such_a_file_by_its_offsets_alone(root: Path) -> None:
    files = open_files(root / "archive")
    expected = archive_rows(root / "archive")
    merge(root)
    name, missing = name_of(7), list[object]()
    end = sealed_ends(root / "data")[name]
    (table,) = [
        each.to_pylist()
        for each in records(files, name, 10, end + 5, arrow_schema(), lambda *gone: missing.append(gone))
    ]
    assert table == [expected[name, offset] for offset in range(10, end)]
    assert missing == [(end, end + 5, "the archive does not have them yet")]
    address = [files.address(each) for each in load(files).files]
    assert archive.files(files, partition=name) == archive.files(files, destination=name_of(5) + ".x") == address
    assert archive.files(files, partition="zzz") == archive.files(files, destination=name_of(7) + ".x") == []


def test_tags_of_earlier_versions_are_read() -> None:
    tag = {
        "partition": "p", "first_offset": 3, "next_offset": 9, "destinations": ["a"], "records": 5, "body_bytes": 7,
        "min_receive_ns": 1, "max_receive_ns": 2, "digest": "", "anchor": [8, 2, "00"],
    }  # fmt: skip
    found = file_of("date=1970-01-01/x.parquet", "1970-01-01", 10, 0, json.dumps(tag))
    assert found.spans == (Span("p", 3, 9, 5),)
    assert found.anchors == {"p": Anchor(8, 2, "00")}
    with pytest.raises(StorageError, match="says colour of it"):
        file_of("x", "1970-01-01", 10, 0, json.dumps({**tag, "colour": "red"}))


def test_spans_are_joined_where_they_touch_and_nowhere_else() -> None:
    spans = [
        Span("b", 5, 9, 4, ("b",)),
        Span("a", 4, 6, 2, ("a",)),
        Span("a", 0, 4, 3, ("c",)),
        Span("a", 7, 8, 1, None),
    ]
    assert joined(spans) == (Span("a", 0, 6, 5, ("a", "c")), Span("a", 7, 8, 1, None), Span("b", 5, 9, 4, ("b",)))


def test_packed_spans_are_the_spans() -> None:
    spans = (
        Span("a", 0, 6, 5, ("a", "c")),
        Span("a", 7, 8, 1, ("a",)),
        Span("b", 5, 1 << 60, 4, None),
        Span("c", 5, 9, 4, ("c",)),
    )
    packed = PackedSpans(spans)
    assert tuple(packed) == spans
    assert packed == spans and spans == packed and hash(packed) == hash(spans)
    assert packed != spans[1:] and packed != PackedSpans(spans[:3])
    assert [packed[place] for place in range(-4, 4)] == [spans[place] for place in range(-4, 4)]
    assert packed[1:3] == spans[1:3]
    with pytest.raises(IndexError):
        packed[4]
    each = replace(one("a", 0, 5, 1), spans=packed)
    assert each.partitions == {"a", "b", "c"}
    assert each.spans_of("a") == spans[:2]
    assert each.spans_of("bb") == ()


def test_the_state_of_a_year_of_many_logs_is_small() -> None:
    """A file for each of 50 days, with a span and an anchor of each of 200 logs."""
    logs, days = [name_of(each) for each in range(200)], 50

    def following(state: State, day: int) -> tuple[State, bytes]:
        date = f"2023-{1 + day // 28:02d}-{1 + day % 28:02d}"
        spans = tuple(Span(name, day * 30, day * 30 + 30, 30, (name,)) for name in logs)
        file = replace(one("a", 0, 5, day, date), path=data_path(date, spans, f"{day:016x}"), spans=spans)
        anchors = {name: Anchor(day * 30 + 29, 1, "00" * 16) for name in logs}
        ends, starts = dict.fromkeys(logs, day * 30 + 30), {} if day else dict.fromkeys(logs, 0)
        changes = Changes("source", add=[file], ends=ends, starts=starts, anchors=anchors)
        return next_commit(state, day, changes)

    files = open_files("memory://year")
    state = State()
    for day in range(days):
        state, data = following(state, day)
        files.create_new(commit_path(state.version), data)
    load(files)  # imports, and caches of Arrow
    tracemalloc.start()
    try:
        loaded = load(files)
        size_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        write_checkpoint(files, loaded)
        again = load(files)
    finally:
        tracemalloc.stop()
        fsspec.filesystem("memory").store.clear()
    assert loaded == again == state
    assert loaded.anchors == again.anchors
    assert sum(len(each.anchors) for each in loaded.files.values()) == len(loaded.anchors) == len(logs)
    assert size_bytes < 60 * len(logs) * days


def test_a_large_file_between_small_ones_keeps_its_offsets() -> None:
    """The merged file has two spans of the log, and claims none of the offsets between."""
    files = [one("a", 0, 5, 1), one("a", 5, 1000, 2), one("a", 1005, 5, 3), one("b", 0, 5, 4)]
    (group,) = groups_to_merge(State(files={each.path: each for each in files}), Sizes(small_bytes=20_000), force=True)
    assert group == [files[0], files[2], files[3]]
    assert [each[:4] for each in spans_of(group)] == [("a", 0, 5, 5), ("a", 1005, 1010, 5), ("b", 0, 5, 5)]
    assert [each[:2] for each in spans_of([files[0], files[2]])] == [("a", 0), ("a", 1005)]
    assert [each[:4] for each in spans_of([files[1], files[0]])] == [("a", 0, 1005, 1005)]


@pytest.mark.thorough
def test_a_damaged_or_missing_file_is_left_out_and_the_others_are_merged(root: Path) -> None:
    files, before = open_files(root / "archive"), archive_rows(root / "archive")
    damaged, missing, *others = (files.address(path) for path in sorted(load(files).files))
    data, kept = Path(damaged).read_bytes(), Path(missing).read_bytes()
    Path(damaged).write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    Path(missing).unlink()
    out = run(str(root / "data"), files, replace(SMALL, merge=True))
    assert out.damaged
    assert sorted(files.address(path) for path in out.problems) == sorted([damaged, missing])
    assert (out.merged_from, out.merged_to) == (len(others), 1)
    Path(damaged).write_bytes(data)
    Path(missing).write_bytes(kept)
    assert archive_rows(root / "archive") == before
    assert not run(str(root / "data"), files, replace(SMALL, merge=True)).problems
    assert check_all(root / "data", root / "archive") == before


def test_a_file_whose_disk_cannot_read_it_is_left_out_and_the_others_are_merged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, before = open_files(root / "archive"), archive_rows(root / "archive")
    bad, *others = sorted(load(files).files)
    opened = LocalFiles.open

    class Unreadable(io.RawIOBase):
        def readinto(self, buffer: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "open", lambda self, path: Unreadable() if path == bad else opened(self, path))
        out = run(str(root / "data"), files, replace(SMALL, merge=True))
    assert out.damaged
    assert list(out.problems) == [bad]
    assert out.problems[bad].startswith(f"{files.named(bad)}: cannot be read: ")
    assert (out.merged_from, out.merged_to) == (len(others), 1)
    assert not run(str(root / "data"), files, replace(SMALL, merge=True)).problems
    assert check_all(root / "data", root / "archive") == before


FAULTS: dict[str, Callable[[tuple[Span, ...]], tuple[Span, ...]]] = {
    "its footer says radiator.spans": lambda spans: (spans[0]._replace(next_offset=9999), *spans[1:]),
    "has records of partition": lambda spans: spans[1:],
    "has offsets of partition": lambda spans: (spans[0]._replace(first=3), *spans[1:]),
    "from offset 0 to": lambda spans: (spans[0]._replace(records=3), *spans[1:]),
    "no file has the offsets": lambda spans: spans[:-1],
}


@pytest.mark.thorough
@pytest.mark.parametrize("text", FAULTS)
def test_verify_reports_spans_that_are_not_those_of_the_rows(root: Path, text: str) -> None:
    merge(root)
    files = open_files(root / "archive")
    state = load(files)
    (each,) = state.files.values()
    assert list(verify(files, state, records=True)) == []
    wrong = replace(each, spans=FAULTS[text](tuple(each.spans)))
    found = list(verify(files, replace(state, files={each.path: wrong}), records=True))
    assert any(text in fault for fault in found), found


@pytest.mark.thorough
def test_a_gap_of_a_log_is_judged_by_its_own_destinations(root: Path) -> None:
    """The other logs in the file do not make a lost range of one a loss for all."""
    merge(root)
    state = load(open_files(root / "archive"))
    lost = replace(state, lost=(archive.Lost(name_of(3), 2, 4, "damaged"),))
    finder = GapFinder(lost)
    assert len(list(finder.gaps(Selection()))) == 1
    assert len(list(finder.gaps(Selection().destination("in", name_of(3))))) == 1
    assert list(finder.gaps(Selection().destination("in", name_of(4)))) == []


@pytest.mark.thorough
def test_the_times_around_a_gap_are_never_those_of_other_logs(tmp_path: Path) -> None:
    """A log that ends early shares a file with one that goes on: its gap may have any time of the day since then."""
    writer = Writer(tmp_path / "data", 4096)
    write_logs(writer, [1], 40)
    write_logs(writer, [2], 40, first=10_000)
    writer.close()
    run(str(tmp_path / "data"), open_files(tmp_path / "archive"), replace(SMALL, merge=True))
    state = load(open_files(tmp_path / "archive"))
    (each,) = state.files.values()
    end = state.ends[name_of(1)]
    finder = GapFinder(replace(state, lost=(archive.Lost(name_of(1), end, end + 4, "damaged"),)))
    assert list(finder.gaps(Selection().received(high_ns=each.min_receive_ns))) == []
    for high in (each.min_receive_ns + 10**9, each.max_receive_ns):
        assert len(list(finder.gaps(Selection().received(high_ns=high)))) == 1


# --- how often --------------------------------------------------------------------------------------------------------


def one(partition: str, first: int, count: int, token: int, date: str = "2023-11-14") -> DataFile:
    span = Span(partition, first, first + count, count)
    path = data_path(date, [span], f"{token:08x}")
    return DataFile(path, (span,), date, (partition,), count, 5000 + 40 * count, 200 * count, 0, 0)


def merged(group: list[DataFile], token: int) -> DataFile:
    spans, rows = spans_of(group), sum(each.records for each in group)
    path = data_path(group[0].date, spans, f"{token:016x}")
    return DataFile(path, spans, group[0].date, None, rows, 5000 + 40 * rows, 200 * rows, 0, 0)


@pytest.mark.parametrize(("logs", "runs"), [(40, 200), pytest.param(500, 720, marks=pytest.mark.thorough)])
def test_a_day_has_some_dozens_of_small_files_and_no_record_is_rewritten_often(logs: int, runs: int) -> None:
    """Each run archives a tenth of the logs, as segments are sealed."""
    files: dict[str, DataFile] = {}
    ends = dict.fromkeys(map(name_of, range(logs)), 0)
    dice, token = random.Random(logs), 0
    rewritten = most = 0
    for _ in range(runs):
        for name in dice.sample(sorted(ends), logs // 10):
            token += 1
            count = dice.randrange(1, 60)
            each = one(name, ends[name], count, token)
            files[each.path] = each
            ends[name] += count
        for group in groups_to_merge(State(files=files)):
            token += 1
            for each in group:
                del files[each.path]
            new = merged(group, token)
            files[new.path] = new
            rewritten += new.records
        most = max(most, sum(each.bytes < Sizes.small_bytes for each in files.values()))
        assert max(len(each.spans) for each in files.values()) <= logs * 1.5
    total = sum(ends.values())
    assert sum(each.records for each in files.values()) == total
    assert most <= OPEN_DAY_FILES + 8, most
    assert rewritten <= 7 * total, rewritten / total


def test_a_file_has_no_more_spans_than_allowed() -> None:
    files = [one(name_of(each), 0, 3, each) for each in range(40)]
    state = State(files={each.path: each for each in files})
    groups = groups_to_merge(state, Sizes(spans_max=15), force=True)
    assert [len(group) for group in groups] == [15, 15, 10]
    again = [merged(group, 99 + place) for place, group in enumerate(groups)]
    assert groups_to_merge(State(files={each.path: each for each in again}), Sizes(spans_max=15), force=True) == []


# --- kills and histories ----------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_killed_at_some_twenty_steps_of_a_merge_the_table_is_exact(made: Path, tmp_path: Path) -> None:
    options = replace(SMALL, merge=True, retention_seconds=0)

    def copy(name: str) -> tuple[Path, Path]:
        shutil.copytree(made, tmp_path / name)
        return tmp_path / name / "data", tmp_path / name / "archive"

    whole = copy("whole")
    out, steps = run_until(None, *whole, options)
    assert out is not None and out.merged_to == 1 and out.vacuumed
    expected = check_all(*whole)
    for step in range(0, steps, 1 + steps // 20):
        data, place = copy(str(step))
        assert run_until(step, data, place, options)[0] is None
        assert archive_rows(place).items() <= expected.items()
        assert run_until(None, data, place, options)[0] is not None
        assert check_all(data, place) == expected
        shutil.rmtree(tmp_path / str(step))


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(n, marks=pytest.mark.thorough) for n in range(6)),
        *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 200)),
    ],
)
def test_whatever_happens_every_version_has_what_it_had(tmp_path: Path, seed: int) -> None:
    """Writes to many logs, runs, merges, vacuums and retention in any order, against a model of each version."""
    dice = random.Random(seed)
    data, files = str(tmp_path / "data"), open_files(tmp_path / "archive")
    writer = Writer(data, 4096)
    ever: Rows = {}
    versions: dict[int, set[tuple[str, int]]] = {}
    first = day = 0
    write_logs(writer, range(6), 20)
    for _ in range(25):
        what = dice.choice(["write", "write", "next day", "run", "run", "merge", "vacuum", "retain"])
        day += what == "next day"
        if what == "write":
            first += 1000
            write_logs(writer, dice.sample(range(9), dice.randrange(1, 6)), dice.randrange(5, 60), first, day)
        elif what == "retain":
            name = dice.choice([*sealed_ends(data)])
            retain(tmp_path, name, load(files).ends.get(name, 0))
        elif what != "next day":
            options = replace(SMALL, unit_bytes=dice.choice([1, 100_000]), merge=what == "merge" or None)
            if what == "vacuum":
                options = replace(options, retention_seconds=0)
            else:
                options = replace(options, retention_seconds=86_400)
            ever.update(log_rows(data))
            assert not run(data, files, options).problems
            state = load(files)
            assert list(verify(files, state, records=True)) == []
            found = archive_rows(files)
            assert found.items() <= ever.items()
            assert len(found) == sum(state.ends.values())
            versions[state.version] = set(found)
            for version, keys in versions.items():
                try:
                    earlier = load_as_of(files, version)
                except StorageError:
                    assert version < state.version and state.vacuumed_ms
                    continue
                assert sum(each.records for each in earlier.files.values()) == len(keys)
                chosen = dice.choice(sorted(earlier.ends))
                of_log = [
                    each for each in earlier.files.values() if may_hold(each, Selection().partition("in", chosen))
                ]
                rows = [row for each in of_log for row in rows_of(tmp_path, each) if row["partition"] == chosen]
                assert sorted(row["offset"] for row in rows) == sorted(
                    offset for name, offset in keys if name == chosen
                )
    writer.close()


def retain(root: Path, name: str, end: int) -> None:
    """Remove the oldest archived segments of a log."""
    segments = sorted(Path(partition_path(str(root / "data"), name)).glob("*.rlog"))
    for each, following in pairwise(segments):
        if int(following.stem) <= end:
            each.unlink()
