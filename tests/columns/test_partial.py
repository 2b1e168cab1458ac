"""Batches read in part: the same values as of whole ones, few bytes, no damage unseen in what is read."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radiator.columns import partial
from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.partial import Reach, reach_of
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.scan import Loss, LostRecords, SegmentRange
from radiator.columns.schema import COLUMNS, arrow_schema
from radiator.columns.selection import Selection
from radiator.storage import format as codec
from radiator.storage.header import PARTIAL_CRCS, column_places, decode_header
from tests.columns.segments import Placed, read_rows, whole, write_segment
from tests.columns.test_decode import BATCHES
from tests.spark.stores import Message, Writer, numbered

pytestmark = pytest.mark.spark
FEW = ["destination", "offset", "receive_ns", "event_ns", "transmit_ns", "size"]
BLOCKS = [*FEW, "headers", "tags"]
PLACES = ["partition", "offset", "message_id"]
FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)


@pytest.fixture
def every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch has partial crcs, however small."""
    monkeypatch.setattr(codec, "PARTIAL_CRC_BYTES_MIN", 0)


def long(destination: str, count: int, first: int = 0) -> list[Message]:
    return [each._replace(body=each.body.ljust(900, b".")) for each in numbered(destination, count, first, city="Rome")]


def columns(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def test_what_each_column_is_made_of() -> None:
    expected = {"body": Reach.WHOLE, "tags": Reach.HEADERS, "headers": Reach.HEADERS}
    expected |= dict.fromkeys(PLACES, Reach.BATCH_HEADERS)
    for column in COLUMNS:
        assert reach_of([column.name]) is expected.get(column.name, Reach.COLUMNS)
    assert reach_of(["offset", "size"]) is Reach.COLUMNS
    assert reach_of(["size", "tags"]) is Reach.HEADERS
    assert reach_of(["tags", "body", "size"]) is Reach.WHOLE
    assert reach_of([]) is Reach.WHOLE  # a count of the log as it is


@pytest.mark.parametrize(
    ("reach", "names", "most"),
    [(Reach.BATCH_HEADERS, PLACES, 0.001), (Reach.COLUMNS, FEW, 0.15), (Reach.HEADERS, BLOCKS, 0.3)],
)
def test_bodies_are_not_read(tmp_path: Path, reach: Reach, names: list[str], most: float) -> None:
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [long("/topic/a", 200, first) for first in range(0, 2000, 200)])
    part, all_of_it = Counters(), Counters()
    wanted = whole(path, placed)
    assert read_rows(wanted, columns=names, counters=part, reach=reach) == columns(
        read_rows(wanted, counters=all_of_it), names
    )
    assert part.batches_checked == all_of_it.batches_checked == 10
    assert all_of_it.bytes_read == path.stat().st_size
    assert 0 < part.bytes_read < most * all_of_it.bytes_read


@pytest.mark.thorough
@FIXTURES
@given(
    BATCHES, st.sampled_from([0, 3]), st.booleans(), st.sampled_from([64, 400, 4096]), st.sampled_from([600, 1 << 22])
)
@pytest.mark.usefixtures("every_batch")
def test_every_value_is_that_of_whole_batches(
    tmp_path: Path, batches: list[list[Message]], level: int, gaps: bool, first: int, room: int
) -> None:
    deltas = [None if i % 3 else [3 + 2 * n for n in range(len(each))] for i, each in enumerate(batches)]
    placed = write_segment(tmp_path / "s.rlog", batches, deltas if gaps else None, level)
    wanted = whole(tmp_path / "s.rlog", placed)
    rows = read_rows(wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial, "_FIRST_BYTES", first)
        patch.setattr(partial, "PART_BYTES", room)  # some do not go in
        patch.setattr(partial, "HEADERS_MAX", 3 if room == 600 else 4096)
        assert read_rows(wanted, columns=PLACES, reach=Reach.BATCH_HEADERS) == columns(rows, PLACES)
        assert read_rows(wanted, columns=FEW, reach=Reach.COLUMNS) == columns(rows, FEW)
        assert read_rows(wanted, columns=BLOCKS, reach=Reach.HEADERS) == columns(rows, BLOCKS)


def test_batches_with_and_without_partial_crcs_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    sizes = [1, 1, 300, 2, 300, 300, 1, 50, 300, 1]
    batches = [long("/topic/a", size, sum(sizes[:place])) for place, size in enumerate(sizes)]
    wanted = whole(path, write_segment(path, batches))
    assert read_rows(wanted, columns=FEW, reach=Reach.COLUMNS) == columns(read_rows(wanted), FEW)
    assert read_rows(wanted, columns=PLACES, reach=Reach.BATCH_HEADERS) == columns(read_rows(wanted), PLACES)


@pytest.mark.parametrize("headers", [2, 3, 5, 4096])
@pytest.mark.parametrize("records", [1, 250, 1 << 17])
def test_a_sparse_batch_is_read_with_its_columns_and_the_others_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: int, records: int
) -> None:
    monkeypatch.setattr(partial, "HEADERS_MAX", headers)
    monkeypatch.setattr(partial, "PART_RECORDS", records)
    path = tmp_path / "s.rlog"
    batches = [long("/topic/a", 100, first) for first in range(0, 1000, 100)]
    deltas = [[2 * n + 1 for n in range(100)] if number in (0, 4, 5) else None for number in range(10)]
    wanted = whole(path, write_segment(path, batches, deltas, level=3))
    counters = Counters()
    found = read_rows(wanted, columns=PLACES, reach=Reach.BATCH_HEADERS, counters=counters)
    assert found == columns(read_rows(wanted), PLACES)
    assert counters.batches_checked == 10


def test_the_last_offsets_of_a_batch_are_cut_off_where_only_its_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    write_segment(path, [long("/topic/a", 100, first) for first in range(0, 300, 100)])
    wanted = SegmentRange("p", str(path), 0, path.stat().st_size, 0, 250)
    selection = Selection().offsets(low=42)
    found = read_rows(wanted, selection, columns=["offset"], reach=Reach.BATCH_HEADERS)
    assert [row["offset"] for row in found] == list(range(42, 250))


@pytest.mark.parametrize(
    "name", ["total_len", "base_offset", "count", "flags", "names_len", "headers_len", "bodies_len"]
)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_wrong_number_in_a_batch_header_is_damage(tmp_path: Path, name: str, number: int) -> None:
    """A query of offsets uses only some of them, and checks the length against all of them."""
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [long("/topic/a", 100, first) for first in range(0, 300, 100)])
    data = bytearray(path.read_bytes())
    place = {"total_len": 8, "base_offset": 16, "count": 40, "flags": 44, "names_len": 48, "headers_len": 52}
    at = placed[number].position + place.get(name, 56)
    data[at] ^= 0x40
    path.write_bytes(data)
    losses: list[Loss] = []
    found = read_rows(whole(path, placed), columns=["offset"], losses=losses, reach=Reach.BATCH_HEADERS)
    assert [row["offset"] for row in found] == [n for n in range(300) if n // 100 != number]
    assert [(each.first, each.following) for each in losses] == [(100 * number, 100 * number + 100)]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_count_that_fits_the_length_of_its_batch_must_fit_the_next_offset_too(tmp_path: Path, number: int) -> None:
    """Eight records less are 288 bytes of columns less, which the bodies have more."""
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [long("/topic/a", 100, first) for first in range(0, 300, 100)])
    data = bytearray(path.read_bytes())
    at = placed[number].position
    before = decode_header(data, at)
    struct.pack_into("<I", data, at + 40, 92)
    gone = before.columns.names - column_places(92, before.flags).names
    struct.pack_into("<I", data, at + 56, before.bodies_len + gone)
    path.write_bytes(data)
    assert decode_header(data, at).records == 92
    losses: list[Loss] = []
    found = read_rows(whole(path, placed), columns=["offset"], losses=losses, reach=Reach.BATCH_HEADERS)
    assert [row["offset"] for row in found] == [n for n in range(300) if n // 100 != number]
    assert [(each.first, each.following) for each in losses] == [(100 * number, 100 * number + 100)]


def test_a_part_of_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [long("/topic/a", 100, first) for first in range(0, 1000, 100)])
    for first in range(10):
        for end in range(first, 10):
            stop = placed[end + 1].position if end < 9 else path.stat().st_size
            wanted = SegmentRange("p", str(path), placed[first].position, stop, 100 * first, 100 * (end + 1))
            found = read_rows(wanted, columns=["offset"], reach=Reach.COLUMNS)
            assert [row["offset"] for row in found] == list(range(100 * first, 100 * (end + 1)))


def parts_of(path: Path, placed: list[Placed], number: int) -> tuple[int, int, int, int]:
    """Where the columns, header blocks, bodies and partial crcs of a batch end."""
    data, at = path.read_bytes(), placed[number].position
    header = decode_header(data, at)
    assert header.flags & PARTIAL_CRCS and header.bodies + (header.bodies_len + 7 & ~7) + 8 == header.total_len
    end = at + header.total_len
    bodies = end - 8 - ((header.bodies_len + 7) & ~7)
    return bodies - ((header.headers_len + 7) & ~7), bodies, end - 8, end


@pytest.mark.parametrize("count", [20, 300])
@pytest.mark.usefixtures("every_batch")
def test_columns_that_fill_the_memory_to_its_end(tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch has no deltas, as another has, and nothing stands behind its names."""
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [long("/topic/a", 3), long("/topic/a", count, 3)], [[0, 2, 4], None])
    room = sum(parts_of(path, placed, number)[0] - placed[number].position + 8 for number in range(2))
    wanted = whole(path, placed)
    rows = columns(read_rows(wanted), FEW)
    monkeypatch.setattr(partial, "PART_BYTES", room)
    assert read_rows(wanted, columns=FEW, reach=Reach.COLUMNS) == rows


@pytest.mark.parametrize("deltas", [None, [0, 2, 4]])
@pytest.mark.usefixtures("every_batch")
def test_a_batch_that_is_larger_than_any_is_damage_in_part_as_well(tmp_path: Path, deltas: list[int] | None) -> None:
    """Its columns hold, and yet nobody reads it whole."""
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [long("/topic/a", 3)], [deltas])
    front = bytearray(path.read_bytes()[: parts_of(path, placed, 0)[0]])
    header = decode_header(path.read_bytes())
    total = len(front) + ((header.headers_len + 7) & ~7) + (65 << 20) + 8
    struct.pack_into("<I", front, 8, total)
    struct.pack_into("<I", front, 56, 65 << 20)
    with path.open("wb") as file:
        file.write(front)
        file.seek(total - 8)
        file.write(struct.pack("<II", crc32(front[16:]), 0))
    losses: list[Loss] = []
    assert read_rows(whole(path, placed), columns=["offset"], losses=losses, reach=Reach.COLUMNS) == []
    assert [(each.first, each.following) for each in losses] == [(0, placed[0].next_offset)]


@FIXTURES
@given(st.data())
@pytest.mark.usefixtures("every_batch")
def test_a_flipped_bit_is_reported_unless_it_is_in_a_skipped_part(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "s.rlog"
    sizes = [3, 1, 5, 2, 1, 8, 4]
    placed = write_segment(path, [numbered("/topic/a", n, sum(sizes[:i])) for i, n in enumerate(sizes)])
    wanted, good = whole(path, placed), path.read_bytes()
    rows = read_rows(wanted)
    number = data.draw(st.integers(0, len(placed) - 1))
    batch = placed[number]
    heads, bodies, tail, end = parts_of(path, placed, number)
    at = data.draw(st.integers(batch.position, end - 1))
    harmed = bytearray(good)
    harmed[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(harmed)
    left = [row for row in rows if not batch.base_offset <= row["offset"] < batch.next_offset]
    for reach, names, begin in ((Reach.COLUMNS, FEW, heads), (Reach.HEADERS, BLOCKS, bodies)):
        losses: list[Loss] = []
        found = read_rows(wanted, columns=names, losses=losses, reach=reach)
        lost = [(loss.first, loss.following) for loss in losses]
        if begin <= at < tail or 12 <= at - batch.position < 16:  # nobody looks there: of the whole batch is the crc
            assert (found, lost) == (columns(rows, names), [])
        elif at >= tail and not losses:  # one of the two numbers there is not for this reach
            assert found == columns(rows, names)
        else:
            assert (found, lost) == (columns(left, names), [(batch.base_offset, batch.next_offset)])
    losses = []
    found = read_rows(wanted, columns=PLACES, losses=losses, reach=Reach.BATCH_HEADERS)
    if losses:
        assert at - batch.position < 64
        assert [(loss.first, loss.following) for loss in losses] == [(batch.base_offset, batch.next_offset)]
        assert found == columns(left, PLACES)
    else:
        assert found == columns(rows, PLACES)
    losses = []
    assert read_rows(wanted, columns=FEW, losses=losses) == columns(left, FEW)
    assert [(loss.first, loss.following) for loss in losses] == [(batch.base_offset, batch.next_offset)]


@pytest.mark.usefixtures("every_batch")
def test_a_file_that_ends_within_a_body_has_lost_its_last_batch(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [numbered("/topic/a", 5), numbered("/topic/a", 5, 5)])
    wanted = whole(path, placed)
    data = path.read_bytes()
    for size in range(placed[1].position, len(data)):
        path.write_bytes(data[:size])
        losses: list[Loss] = []
        found = read_rows(wanted, columns=["offset"], losses=losses, reach=Reach.COLUMNS)
        assert [row["offset"] for row in found] == list(range(5))
        assert [(loss.first, loss.following) for loss in losses] == [(5, 10)]
        losses = []
        assert read_rows(wanted, columns=["offset"], losses=losses, reach=Reach.BATCH_HEADERS) == found
        assert [(loss.first, loss.following) for loss in losses] == [(5, 10)]


def test_damage_in_a_body_is_reported_with_and_without_reading_bodies(tmp_path: Path) -> None:
    store = Writer(tmp_path)
    store.write("/topic/a", long("/topic/a", 200))
    store.close()
    path = next(tmp_path.rglob("*.rlog"))
    data = bytearray(path.read_bytes())
    data[data.index(b"body 50") + 20] ^= 1
    path.write_bytes(data)

    def offsets(names: list[str], strict: bool) -> list[int]:
        options = ReadOptions(str(tmp_path), Selection(), fail_on_data_loss=strict)
        schema = arrow_schema(names)
        batches = [each for ranges in plan(options) for each in read(ranges, options, schema, Counters())]
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    assert offsets(["offset", "size"], strict=True) == list(range(200))
    assert offsets(["offset", "tags"], strict=True) == list(range(200))
    with pytest.raises(LostRecords, match="offsets 0 to 99 .*crc expected"):
        offsets(["offset", "body"], strict=True)
    assert offsets(["offset", "size"], strict=False) == list(range(100, 200))
    assert offsets(["offset", "body"], strict=False) == list(range(100, 200))


@pytest.mark.parametrize(
    "selection",
    [
        Selection().received(low_ns=1),
        Selection().destination("in", "/topic/a"),
        Selection().destination("in", "/topic/b", negated=True),
    ],
)
def test_offsets_under_a_filter_of_times_or_destinations_come_from_checked_columns(
    tmp_path: Path, selection: Selection
) -> None:
    store = Writer(tmp_path)
    store.write("/topic/a", long("/topic/a", 200))
    store.close()
    path = next(tmp_path.rglob("*.rlog"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1  # a receive time
    path.write_bytes(data)

    def offsets(selection: Selection) -> list[int]:
        options = ReadOptions(str(tmp_path), selection)
        schema = arrow_schema(["offset"])
        batches = [each for ranges in plan(options) for each in read(ranges, options, schema, Counters())]
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    assert offsets(Selection().offsets(low=3)) == list(range(3, 200))
    with pytest.raises(LostRecords, match="offsets 0 to 99 .*crc expected"):
        offsets(selection)
