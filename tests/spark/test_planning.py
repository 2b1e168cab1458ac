"""Planning: every committed record in exactly one range, nothing beyond head, and as few bytes as the index allows."""

from __future__ import annotations

import errno
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from radiator.columns import planning
from radiator.columns.decode import Counters
from radiator.columns.planning import plan, resolved, snapshot
from radiator.columns.read import read
from radiator.columns.scan import LostRecords, SegmentRange
from radiator.columns.selection import HIGH, LOW
from radiator.errors import ConfigError, StorageError
from radiator.limits import INDEX_INTERVAL_BYTES, KIB
from radiator.spark.options import parse
from radiator.spark.schema import arrow_schema, select
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.index import IndexEntry, encode_entries, encode_head
from radiator.storage.reader import StoredSegment
from tests.bench.records import compress_sealed
from tests.clocks import both
from tests.spark.stores import MS, START_NS, Message, Writer, numbered

pytestmark = pytest.mark.spark

BODY = bytes(1000)


def big(root: Path, records: int = 3000, segment_bytes: int = 512 * KIB) -> str:
    """About 1 KiB a record, several segments, an index entry for every 64 of them."""
    writer = Writer(root, segment_bytes)
    writer.write("big", [each._replace(body=BODY) for each in numbered("/topic/big", records)], per_batch=10)
    writer.close()
    return writer.root


def offsets_of(root: str, counters: Counters | None = None, **options: object) -> dict[str, list[int]]:
    """What all tasks together read, by partition."""
    parsed = parse({"path": root, **{name: str(value) for name, value in options.items()}})
    schema, counters = arrow_schema(select(["partition", "offset"])), counters or Counters()
    found: dict[str, list[int]] = {}
    for task in plan(parsed):
        for batch in read(task, parsed, schema, counters):
            for row in batch.to_pylist():
                found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_ranges_of_all_tasks_are_the_log_once_in_order(tmp_path: Path) -> None:
    root = big(tmp_path / "data")
    tasks = plan(parse({"path": root, "split_bytes": "200000"}))
    ranges = [piece for task in tasks for piece in task]
    assert len(tasks) > 10
    assert len({piece.path for piece in ranges}) > 4
    assert [piece.first_offset for piece in ranges] == [0, *[piece.next_offset for piece in ranges[:-1]]]
    assert ranges[-1].next_offset == 3000
    assert all(piece.end - piece.start < 200_000 + 2 * INDEX_INTERVAL_BYTES for piece in ranges)
    assert offsets_of(root, split_bytes=200_000) == {"big": list(range(3000))}


@pytest.mark.parametrize("left", [3, 1, 0])
def test_the_last_segments_that_are_gone_are_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], left: int
) -> None:
    root = big(tmp_path / "data")
    segments = sorted(Path(layout.partition_path(root, "big")).glob("*.rlog"))
    first = int(segments[left or -1].stem)  # where nothing is left, no one knows how much of it retention took before
    for path in segments[left:]:
        path.unlink()
    with pytest.raises(LostRecords, match=f"partition 'big': offsets {first} to 2999 "):
        offsets_of(root)
    assert offsets_of(root, failOnDataLoss="false") == ({"big": list(range(first))} if left else {})
    assert f"skipped: partition 'big': offsets {first} to 2999 " in capfd.readouterr().err


@pytest.mark.parametrize("segment_bytes", [200 * KIB, 700 * KIB, 8000 * KIB])
def test_tasks_have_equal_shares(tmp_path: Path, segment_bytes: int) -> None:
    def cost(task: Sequence[SegmentRange]) -> int:
        return sum(piece.end - piece.start + planning.FILE_COST_BYTES for piece in task)

    root = big(tmp_path / "data", 3000, segment_bytes)
    total = sum(cost(task) for task in plan(parse({"path": root})))
    for count in range(1, 12):
        tasks = plan(parse({"path": root, "split_bytes": str(-(-total // count))}))
        assert len(tasks) == count
        even = total / count
        assert all(abs(cost(task) - even) < even / 4 + 2 * INDEX_INTERVAL_BYTES for task in tasks)


def test_tasks_have_equal_shares_of_records_where_most_are_compressed(tmp_path: Path) -> None:
    """The sealed segments have a few per cent of the bytes: by bytes one task would have nearly all records."""
    root = big(tmp_path / "data", 3400)
    compress_sealed(root, ["big"])
    (whole,) = plan(parse({"path": root, "split_bytes": str(1 << 40)}))
    assert sum(piece.end - piece.start for piece in whole[:-1]) < whole[-1].end / 2
    shares = [
        sum(piece.next_offset - piece.first_offset for piece in task)
        for task in plan(parse({"path": root, "min_partitions": "2"}))
    ]
    assert len(shares) == 2
    assert max(shares) < 2 * min(shares)


def test_offsets_without_records_are_no_work() -> None:
    few = SegmentRange("p", "path", 0, 2_000, 0, 1_000_000)
    many = SegmentRange("p", "path", 0, 2_000_000, 1_000_000, 1_010_000)
    segment = StoredSegment("path", 0, 1_010_000, 2_002_000, None)
    line = planning._Line([planning._Cut(segment, each, []) for each in (few, many)], parse({"path": "/x"}))
    assert line.costs[0] * 40 < line.costs[1]


def test_a_task_for_each_core_as_long_as_there_is_enough_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = big(tmp_path / "data")
    monkeypatch.setattr(planning, "SPLIT_BYTES_MIN", 200 * KIB)
    for cores, tasks in (1, 1), (2, 2), (3, 3), (64, 17):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        assert abs(len(plan(parse({"path": root}))) - tasks) <= (cores == 64)
    monkeypatch.setattr(planning, "SPLIT_BYTES_MAX", 400 * KIB)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert len(plan(parse({"path": root}))) > 7


def test_only_indexes_of_segments_that_are_split_between_tasks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, read_index, asked = big(tmp_path / "data", 3000, 128 * KIB), planning.index_of, []

    def noted(fs: FileSystem, segment: StoredSegment) -> list[IndexEntry]:
        asked.append(segment.path)
        return read_index(fs, segment)

    monkeypatch.setattr(planning, "index_of", noted)
    monkeypatch.setattr(planning, "SPLIT_BYTES_MIN", KIB)
    for cores in 1, 2, 4:
        asked.clear()
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        tasks = plan(parse({"path": root}))
        assert len(tasks) == cores
        assert len({piece.path for task in tasks for piece in task}) > 20
        assert len(asked) == cores - 1


def test_offsets_and_times_read_a_small_part_of_the_bytes(tmp_path: Path) -> None:
    root = big(tmp_path / "data")
    everything, some = Counters(), Counters()
    offsets_of(root, everything)
    assert everything.bytes_read > 3_000_000
    assert offsets_of(root, some, starting_offsets=1500, ending_offsets=1510) == {"big": list(range(1500, 1510))}
    assert some.bytes_read < 3 * INDEX_INTERVAL_BYTES
    assert some.batches_decoded == 1
    some = Counters()
    times = {"start_time": START_NS + 2000 * MS, "end_time": START_NS + 2020 * MS}
    assert offsets_of(root, some, **times) == {"big": list(range(2000, 2020))}
    assert some.bytes_read < 3 * INDEX_INTERVAL_BYTES
    assert some.batches_decoded == 2


def test_segments_outside_the_selection_are_not_even_opened(tmp_path: Path) -> None:
    root = big(tmp_path / "data")
    every = {piece.path for task in plan(parse({"path": root})) for piece in task}
    late = parse({"path": root, "start_time": str(START_NS + 2990 * MS)})
    assert {piece.path for task in plan(late) for piece in task} == {max(every)}
    assert plan(parse({"path": root, "start_time": str(START_NS + 10_000 * MS)}))[0][0].path == max(every)
    assert plan(parse({"path": root, "end_time": str(START_NS)})) == []
    assert plan(parse({"path": root, "starting_offsets": "3000"})) == []
    assert plan(parse({"path": root, "partition": "other"})) == []


@pytest.mark.parametrize("harm", ["missing", "junk", "lies"])
def test_an_index_that_is_missing_or_wrong_costs_time_only(tmp_path: Path, harm: str) -> None:
    root = big(tmp_path / "data")
    directory = Path(layout.partition_path(root, "big"))
    indexes = sorted(directory.glob("*.idx"))
    for index in indexes[:-1]:
        if harm == "missing":
            index.unlink()
        elif harm == "junk":
            index.write_bytes(index.read_bytes()[:32] + random.Random(1).randbytes(320))
        else:  # well formed, and nothing of it is true
            base = int(index.stem)
            lies = [IndexEntry(base + 5 + i, 8 + 64 * i, START_NS + base * MS) for i in range(9)]
            index.write_bytes(encode_head(base) + encode_entries(lies))
    assert offsets_of(root, split_bytes=100_000) == {"big": list(range(3000))}
    assert offsets_of(root, starting_offsets=7, ending_offsets=1000) == {"big": list(range(7, 1000))}
    times = {"start_time": START_NS + 100 * MS, "end_time": START_NS + 2900 * MS}
    assert offsets_of(root, **times) == {"big": list(range(100, 2900))}


def test_random_selections_agree_with_arithmetic(tmp_path: Path) -> None:
    root, rng = big(tmp_path / "data", 600, 128 * KIB), random.Random(7)
    for _ in range(60):
        low, high, early, late = (rng.randrange(-5, 606) for _ in range(4))
        low, high, split = max(low, 0), max(high, 0), rng.choice([1, 70_000, 10**9])

        def found(low: int, high: int, early: int, late: int, split: int = split) -> list[int]:
            offsets = {"starting_offsets": low, "ending_offsets": high}
            times = {"start_time": START_NS + early * MS, "end_time": START_NS + late * MS}
            return offsets_of(root, **offsets, **times, split_bytes=split).get("big", [])

        if low > high or early > late:
            with pytest.raises(ConfigError, match="expected a start before the end"):
                found(low, high, early, late)
            (low, high), (early, late) = sorted((low, high)), sorted((early, late))
        assert found(low, high, early, late) == [n for n in range(600) if low <= n < high and early <= n < late]


def test_many_small_partitions_share_tasks(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    for i in range(200):
        writer.append(f"p{i}", numbered(f"/topic/{i}", 3))
    writer.commit()
    writer.close()
    assert len(plan(parse({"path": writer.root}))) < 10
    found = offsets_of(writer.root)
    assert len(found) == 200
    assert all(offsets == [0, 1, 2] for offsets in found.values())


def test_records_behind_head_are_not_planned(writer: Writer) -> None:
    writer.write("p", numbered("/topic/a", 50))
    writer.append("p", numbered("/topic/a", 50, 50))
    decided, *jobs = writer.store.take(both(START_NS))
    decided.write()  # in the journal, and in no segment yet
    assert offsets_of(writer.root) == {"p": list(range(50))}
    for job in jobs:
        job.write()
    for job in (decided, *jobs):
        job.done(both(START_NS))
    assert offsets_of(writer.root) == {"p": list(range(100))}


def test_the_end_of_a_snapshot_holds_while_the_log_grows(writer: Writer) -> None:
    writer.write("p", numbered("/topic/a", 50))
    writer.write("q/ä", numbered("/topic/b", 7))
    ends = snapshot(writer.root)
    assert ends == {"p": 50, "q/ä": 7}
    writer.write("p", numbered("/topic/a", 50, 50))
    writer.write("new", numbered("/topic/c", 5))
    found = offsets_of(writer.root, ending_offsets=json.dumps(ends))
    assert found == {"p": list(range(50)), "q/ä": list(range(7))}


@pytest.mark.parametrize("harm", ["missing", "damaged", "unreadable"])
def test_without_a_head_the_log_ends_where_its_crcs_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    root = big(tmp_path / "data", 600, 128 * KIB)
    head = Path(layout.head_path(layout.partition_path(root, "big")))
    if harm == "missing":
        head.unlink()
    elif harm == "unreadable":
        open_read = FileSystem.open_read

        def refuse(fs: FileSystem, path: str) -> int:
            if path == str(head):
                raise OSError(errno.EIO, "Input/output error")
            return open_read(fs, path)

        monkeypatch.setattr(FileSystem, "open_read", refuse)
    else:
        head.write_bytes(head.read_bytes()[:20] + b"x" + head.read_bytes()[21:])
    assert offsets_of(root) == {"big": list(range(600))}


def test_a_partition_in_which_nothing_has_been_committed_is_empty(writer: Writer) -> None:
    writer.append("p", [Message("/topic/a")])
    decided, *jobs = writer.store.take(both(START_NS))
    decided.write()
    assert offsets_of(writer.root) == {}
    for job in jobs:
        job.write()
    for job in (decided, *jobs):
        job.done(both(START_NS))


def test_no_store_is_reported_with_what_was_expected(tmp_path: Path, writer: Writer) -> None:
    writer.write("p", numbered("/topic/a", 1))
    (tmp_path / "other").mkdir()
    (tmp_path / "archive" / "_delta_log").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    for path, told in [
        (tmp_path / "none", "there is no such directory; expected a broker's data_dir"),
        (tmp_path / "archive", "it looks like an archive, which radiator.spark.table(spark, None, archive) reads"),
        (tmp_path / "file", "it has no directory partitions/"),
        (tmp_path / "other", "it has no directory partitions/; expected a broker's data_dir"),
        (Path(writer.root) / "partitions", f"it is a part of a store; use the path {writer.root}"),
        (Path(writer.root) / "partitions" / "p", f"it is a part of a store; use the path {writer.root}"),
    ]:
        with pytest.raises(StorageError, match=re.escape(told)):
            plan(parse({"path": str(path)}))


def test_a_store_without_records_is_empty(tmp_path: Path) -> None:
    Writer(tmp_path / "data").close()
    assert plan(parse({"path": str(tmp_path / "data")})) == []


def test_offsets_that_the_log_does_not_have_are_reported(writer: Writer) -> None:
    writer.write("p", numbered("/topic/a", 10))
    for options, told in [
        ({"ending_offsets": '{"p": 11}'}, "partition 'p' ends at offset 10, got 11"),
        ({"starting_offsets": '{"p": 11}'}, "partition 'p' ends at offset 10, got 11"),
        (
            {"starting_offsets": '{"p": 9223372036854775807}'},
            "partition 'p' ends at offset 10, got 9223372036854775807",
        ),
        ({"starting_offsets": '{"x": 0}'}, "has no partition 'x'; it has 'p'"),
    ]:
        with pytest.raises(StorageError, match=re.escape(told)):
            plan(parse({"path": writer.root, **options}))


def test_damage_outside_the_offsets_that_are_asked_for_is_no_error(writer: Writer) -> None:
    writer.write("p", numbered("/topic/a", 50), per_batch=10)
    writer.close()
    segment = next(Path(layout.partition_path(writer.root, "p")).glob("*.rlog"))
    data = bytearray(segment.read_bytes())
    data[100] ^= 1  # in the first batch
    segment.write_bytes(data)
    assert offsets_of(writer.root, starting_offsets=10) == {"p": list(range(10, 50))}
    with pytest.raises(LostRecords, match="offsets 0 to 9"):
        offsets_of(writer.root, starting_offsets=9)
    assert offsets_of(writer.root, fail_on_data_loss="false") == {"p": list(range(10, 50))}


def test_records_that_retention_has_removed_are_reported(tmp_path: Path) -> None:
    root = big(tmp_path / "data", 600, 128 * KIB)
    first, second = sorted(Path(layout.partition_path(root, "big")).glob("*.rlog"))[:2]
    first.unlink()
    start = int(second.stem)
    assert offsets_of(root) == {"big": list(range(start, 600))}
    with pytest.raises(StorageError, match=f"offsets 3 to {start - 1} have been removed by retention"):
        offsets_of(root, starting_offsets='{"big": 3}')
    found = offsets_of(root, starting_offsets='{"big": 3}', fail_on_data_loss="false")
    assert found == {"big": list(range(start, 600))}


def test_times_of_single_partitions_are_looked_up_when_the_read_is_planned(writer: Writer) -> None:
    for name in ("a", "b", "c"):
        writer.write(name, numbered(name, 50), per_batch=7)

    def found(**given: str) -> dict[str, tuple[int, int]]:
        options = resolved(parse({"path": writer.root, **given}))
        return {name: options.selection.offsets_of(name) for name in "abc" if options.selection.wants_partition(name)}

    starts = json.dumps({"a": START_NS + 20 * MS, "b": (START_NS + 1000 * MS) // 1_000_000})
    assert found(startingOffsetsByTimestamp=starts) == {"a": (20, HIGH), "b": (50, HIGH), "c": (LOW, HIGH)}
    ends = json.dumps({"a": START_NS + 20 * MS + 1, "b": "2100-01-01"})
    assert found(endingOffsetsByTimestamp=ends) == {"a": (LOW, 21), "b": (LOW, 50)}
    with pytest.raises(StorageError, match="has no partition 'x'; it has 'a', 'b', 'c'"):
        found(startingOffsetsByTimestamp='{"x": "2100-01-01"}')


def test_min_partitions_cuts_as_finely_as_the_index_allows(tmp_path: Path) -> None:
    root = big(tmp_path / "data")
    assert len(plan(parse({"path": root, "minPartitions": "20"}))) >= 20
    assert offsets_of(root, minPartitions=20) == {"big": list(range(3000))}


def test_partitions_whose_names_have_nothing_wanted_are_not_read(writer: Writer) -> None:
    writer.write("/topic/a", numbered("/topic/a", 10))
    writer.write("shared", [*numbered("/topic/b", 10), *numbered("/topic/c", 10)])
    for wanted, partitions in [
        ("/topic/a", {"/topic/a"}),
        ("/topic/c", {"shared"}),
        ("/topic/d", set()),
        ("/topic/>", 2),
    ]:
        tasks = plan(parse({"path": writer.root, "destination": wanted}))
        names = {piece.partition for task in tasks for piece in task}
        assert (len(names) if isinstance(partitions, int) else names) == partitions
