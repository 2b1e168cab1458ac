"""Batches that contradict themselves under a crc that holds are damage, never a crash; a large good batch behind damage
is found; a batch of a newer radiator that has a new column is refused by that name; what is remembered of dictionaries
has a bound.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest

from radiator.columns import names
from radiator.columns.decode import Counters, Decoder
from radiator.columns.scan import Loss, scan
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.limits import MIB
from radiator.storage.header import UnknownVersion
from tests.columns.segments import read_rows, whole, write_segment
from tests.spark.stores import Message, numbered

# (place in the header, value): what the codec calls DamagedBatch
HUGE = (1 << 31) - 1
CONTRADICTIONS = [
    *((40, count) for count in (0, 7, 1 << 20, HUGE, 1 << 31)),
    (44, 0x2C0),  # flags
    *((48, names) for names in (0, 4096, HUGE)),
    (52, 100),  # headers
    *((56, bodies) for bodies in (1 << 20, (1 << 32) - 1)),
]

READ = """
import sys
from pathlib import Path
from radiator.columns.scan import SegmentRange
from tests.columns.segments import read_rows
for name in sys.argv[1:]:
    path, losses = Path(name), []
    print(path.stem, end=" ", flush=True)
    found = read_rows(SegmentRange("p", str(path), 0, path.stat().st_size, 0, 6), losses=losses)
    print([row["offset"] for row in found], [(loss.first, loss.following) for loss in losses], flush=True)
"""


def write_contradiction(path: Path, place: int, value: int) -> None:
    """Write three batches; the header of the second one has the value at that place, and a crc that holds."""
    write_segment(path, [numbered("/topic/a", 2), numbered("/topic/a", 2, 2), numbered("/topic/b", 2, 4)])
    data = bytearray(path.read_bytes())
    at = int.from_bytes(data[8:12], "little")
    total = int.from_bytes(data[at + 8 : at + 12], "little")
    struct.pack_into("<H" if place == 44 else "<I", data, at + place, value)
    struct.pack_into("<I", data, at + 12, crc32(data[at + 16 : at + total]))
    path.write_bytes(data)


@pytest.fixture(scope="module")
def read_apart(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One process reads all the contradictions; it may end by a signal."""
    paths = [tmp_path_factory.mktemp("c") / f"{place}-{value}.rlog" for place, value in CONTRADICTIONS]
    for path, contradiction in zip(paths, CONTRADICTIONS, strict=True):
        write_contradiction(path, *contradiction)
    return subprocess.run(
        [sys.executable, "-c", READ, *map(str, paths)], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )


@pytest.mark.parametrize(("place", "value"), CONTRADICTIONS)
def test_a_batch_that_contradicts_itself_is_damage_though_its_crc_holds(
    read_apart: subprocess.CompletedProcess[str], place: int, value: int
) -> None:
    expected = f"{place}-{value} [0, 1, 4, 5] [(2, 4)]"
    assert expected in read_apart.stdout.splitlines(), (read_apart.stdout, read_apart.stderr[-500:])


def test_a_good_batch_larger_than_the_look_behind_damage_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    big = [each._replace(body=bytes(MIB)) for each in numbered("/topic/a", 17, 2)]
    damaged = numbered("/topic/a", 1, 1)[0]._replace(body=bytes(3 * MIB + MIB // 2))
    placed = write_segment(path, [numbered("/topic/a", 1), [damaged], big, numbered("/topic/a", 1, 19)])
    data = bytearray(path.read_bytes())
    data[placed[1].position + 200] ^= 1
    path.write_bytes(data)
    losses: list[Loss] = []
    found = read_rows(whole(path, placed), columns=["offset"], losses=losses)
    assert [row["offset"] for row in found] == [0, *range(2, 20)]
    assert [(loss.first, loss.following) for loss in losses] == [(1, 2)]


def test_a_flag_of_a_newer_radiator_that_adds_a_column_is_refused_and_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [numbered("/topic/a", 1), numbered("/topic/a", 1, 1), numbered("/topic/a", 1, 2)])
    data = path.read_bytes()
    one, two = placed[1].position, placed[2].position
    batch = bytearray(data[one:two] + bytes(8))  # a column more
    struct.pack_into("<I", batch, 8, len(batch))
    struct.pack_into("<H", batch, 44, int.from_bytes(batch[44:46], "little") | 1 << 11)
    struct.pack_into("<I", batch, 12, crc32(batch[16:]))
    path.write_bytes(data[:one] + batch + data[two:])
    with pytest.raises(UnknownVersion, match="flags .* of a newer radiator"):
        read_rows(whole(path, placed), losses=[])


def test_what_is_remembered_of_dictionaries_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "CACHED_MAX", 20)
    monkeypatch.setattr("radiator.columns.scan.CHUNK_BYTES", 4096)
    pairs = [[Message(f"/topic/{number % 17}"), Message(f"/topic/{number % 23}")] for number in range(391)]
    placed = write_segment(tmp_path / "s.rlog", pairs)
    decoder = Decoder("p", arrow_schema(["destination"]), Selection(), 100, Counters())
    found = []
    for chunk in scan(whole(tmp_path / "s.rlog", placed), lambda loss: None, Counters()):
        for batch in decoder.decode(*chunk):
            found += batch.column(0).to_pylist()
    assert found == [each.destination for pair in pairs for each in pair]
    assert len(decoder._names._flat) < 120


@pytest.mark.thorough
def test_dictionaries_of_many_names_are_bounded_by_their_names() -> None:
    table = names.NameTable()
    encoded = [len(name).to_bytes(4, "little") + name for name in (b"/topic/%05d" % number for number in range(2_000))]
    for number in range(1_000):
        table.forget()
        at = table.place(b"".join(encoded[number : number + 1_000]), 1_000)
        assert table.names[table.flat[at + 17]] == f"/topic/{number + 17:05d}"
        assert len(table.flat) < 100_000
