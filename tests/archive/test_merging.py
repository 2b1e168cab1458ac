"""Files are merged in the memory that a few pieces take, however many they are and whatever they had been
compressed to."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from radiator.archive import sorting
from radiator.archive.manifest import DataFile, Span, State
from radiator.archive.merging import groups_to_merge, merge_files
from radiator.archive.opening import open_files
from radiator.archive.parquet import SCHEMA, DataWriter
from radiator.archive.paths import data_path
from radiator.archive.split import Settings
from radiator.limits import MIB
from tests.archive.stores import START_ROW, old_path

NAMES = 300
GROWTH_BYTES_MAX = 280 * MIB

MERGE = """
import pickle, re, sys
from radiator.archive.opening import open_files
from radiator.archive.merging import merge_files
from radiator.archive.split import Settings

def peak():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s*(\\d+) kB", file.read())[1]) * 1024

root, run, before = sys.argv[1], pickle.load(sys.stdin.buffer), peak()
made = merge_files(open_files(root), run, Settings(root), "0123abcd", "source")
print(made.file.records, peak() - before)
"""


def sorted_files(root: Path, count: int, rows_of_name: int, body_bytes: int) -> list[DataFile]:
    """Of all names each, with offsets that follow those of the file before."""
    made = []
    for number in range(count):
        first = number * NAMES * rows_of_name
        rows = [
            {
                **START_ROW,
                "destination": f"/topic/{place // rows_of_name:04d}",
                "offset": first + place % rows_of_name * NAMES + place // rows_of_name,
                "body": b"%d" % number + bytes(body_bytes - 3),
                "size": body_bytes,
            }
            for place in range(NAMES * rows_of_name)
        ]
        path = data_path("2023-11-14", [("p", first, first + len(rows))], f"{number:08x}")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        writer = DataWriter(str(root / path))
        for start in range(0, len(rows), 8000):
            writer.write_group([pa.RecordBatch.from_pylist(rows[start : start + 8000], SCHEMA)])
        names = [f"/topic/{place:04d}" for place in range(NAMES)]
        made.append(
            writer.close(path, (Span("p", first, first + len(rows), len(rows)),), "2023-11-14", names, "source")
        )
    return made


def test_they_are_one_file_in_order_and_nothing_is_left_of_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "PIECE_BYTES_MIN", 5000)
    monkeypatch.setattr(sorting, "PIECES_BYTES", 5000)
    run = sorted_files(tmp_path, 5, 3, 500)
    spool = tmp_path / "spool"
    spool.mkdir()
    made = merge_files(open_files(tmp_path), run, Settings(str(spool)), "0123abcd", "source")
    assert [each.name for each in spool.iterdir()] == [Path(made.spooled).name]
    keys = [(row["destination"], row["offset"]) for row in pq.read_table(made.spooled).to_pylist()]
    assert keys == sorted(keys)
    assert len(set(keys)) == made.file.records == 5 * 3 * NAMES


def test_files_of_earlier_versions_merge_with_new_ones_to_one_file(tmp_path: Path) -> None:
    """Their ranges overlap: those of one unit had a directory for each destination, and one for the rest."""
    a, b, c = "/topic/a", "/topic/b", "/topic/c"
    layout = [([a], range(0, 6, 2)), ([b, c], range(1, 6, 2)), ([b], range(6, 9)), ([a, c], range(9, 12))]
    made = []
    for number, (names, offsets) in enumerate(layout):
        rows = [
            {**START_ROW, "destination": names[place % len(names)], "offset": offset, "body": b"", "size": 0}
            for place, offset in enumerate(offsets)
        ]
        rows.sort(key=lambda row: (row["destination"], row["offset"]))
        ends = (0, 6) if number < 2 else (offsets[0], offsets[-1] + 1)
        old = old_path("2023-11-14", names[0] if len(names) == 1 else None, "p", *ends, "0123abcd")
        path = old if number < 3 else data_path("2023-11-14", [("p", *ends)], "0123abcd")
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        writer = DataWriter(str(tmp_path / path))
        writer.write_group([pa.RecordBatch.from_pylist(rows, SCHEMA)])
        made.append(writer.close(path, (Span("p", *ends, len(rows)),), "2023-11-14", names, "source"))
    (run,) = groups_to_merge(State(files={each.path: each for each in made}), force=True)
    assert {each.path for each in run} == {each.path for each in made}
    merged = merge_files(open_files(tmp_path), run, Settings(str(tmp_path)), "89abcdef", "source")
    assert merged.file.path == "date=2023-11-14/p@0-12.89abcdef.parquet"
    assert merged.file.destinations == (a, b, c)
    keys = [(row["destination"], row["offset"]) for row in pq.read_table(merged.spooled).to_pylist()]
    assert keys == sorted(keys) and sorted(offset for _, offset in keys) == list(range(12))


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is asked of Linux")
def test_many_that_had_been_compressed_well_are_merged_in_bounded_memory(tmp_path: Path) -> None:
    run = sorted_files(tmp_path, 48, 20, 2500)
    assert sum(each.body_bytes for each in run) > 1.7 * GROWTH_BYTES_MAX
    done = subprocess.run(
        [sys.executable, "-c", MERGE, str(tmp_path)], input=pickle.dumps(run), capture_output=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    records, growth = map(int, done.stdout.split())
    assert records == sum(each.records for each in run)
    assert growth < GROWTH_BYTES_MAX, f"{growth / MIB:.0f} MiB"
