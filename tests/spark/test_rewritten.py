"""Segments that the broker rewrites: compressed, with holes, and swapped between planning and reading."""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import radiator.spark
from radiator.columns import decode, rows, scan
from radiator.columns.batches import Batches
from radiator.columns.decode import Counters, Decoder
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.scan import LostRecords, SegmentRange
from radiator.columns.selection import Selection
from radiator.limits import BATCH_BYTES_MAX, INDEX_INTERVAL_BYTES, KIB
from radiator.spark.options import parse
from radiator.spark.schema import SCHEMA, arrow_schema, select
from radiator.storage import layout
from radiator.storage.header import HEADER_BYTES, DamagedBatch
from tests.columns.segments import encode, read_rows, whole, write_segment
from tests.spark.stores import MS, START_NS, Message, Writer, numbered
from tests.storage.rewriting import Keep, everything, rewritten

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

COUNT = 1500
NOISE = random.Random(1).randbytes(COUNT * 500)


def even(offset: int) -> bool:
    return offset % 2 == 0


def blocks(offset: int) -> bool:
    return offset % 200 > 120


def store(tmp_path: Path) -> str:
    """Several segments, several index entries in each; half of every body cannot be compressed."""
    writer = Writer(tmp_path / "data", 512 * KIB)
    messages = [
        each._replace(destination=f"/topic/{n % 2}", body=bytes(500) + NOISE[500 * n : 500 * (n + 1)])
        for n, each in enumerate(numbered("", COUNT))
    ]
    writer.write("p", messages, per_batch=10)
    writer.close()
    return writer.root


def rewrite(root: str, keep: Keep, level: int = 3, per_batch: int = 50, index: bool = False) -> list[int]:
    """All sealed segments, as a broker leaves them. The offsets that are left."""
    left = []
    segments = sorted(Path(layout.partition_path(root, "p")).glob("*.rlog"))
    assert len(segments) > 3
    ends = [*(int(segment.stem) for segment in segments[1:]), COUNT]
    for segment, end in zip(segments, ends, strict=True):
        base, sealed = int(segment.stem), segment is not segments[-1]
        left += [each for each in range(base, end) if not sealed or keep(each) or each == end - 1]
        if sealed:
            new = segment.with_name(segment.name + ".new")
            new.write_bytes(rewritten(segment.read_bytes(), base, keep, level, per_batch))
            new.rename(segment)
            if index:
                segment.with_suffix(".idx").unlink()
    return left


def offsets(tasks: list[tuple[SegmentRange, ...]], options: ReadOptions, counters: Counters | None = None) -> list[int]:
    schema, found = arrow_schema(select(["offset", "body"])), []
    for task in tasks:
        for batch in read(task, options, schema, counters or Counters()):
            for row in batch.to_pylist():
                assert row["body"] == bytes(500) + NOISE[500 * row["offset"] : 500 * (row["offset"] + 1)]
                found.append(row["offset"])
    return found


SELECTIONS: list[dict[str, Any]] = [
    {},
    {"starting_offsets": 333, "ending_offsets": 1111},
    {"start_time": START_NS + 333 * MS, "end_time": START_NS + 1111 * MS},
]


@pytest.mark.parametrize(("keep", "level"), [(everything, 3), (even, 3), (blocks, 0)])
@pytest.mark.parametrize("when", ["before", "between", "between, index too"])
def test_a_task_returns_exactly_the_offsets_of_its_ranges(tmp_path: Path, keep: Keep, level: int, when: str) -> None:
    for number, given in enumerate(SELECTIONS):
        root = store(tmp_path / str(number))
        options = [parse({"path": root, "split_bytes": str(size), **given}) for size in (1, 150_000, 10**9)]
        plans = [plan(each) for each in options] if when != "before" else []
        left = rewrite(root, keep, level, per_batch=(400, 50, 7)[number], index="too" in when)
        if given:
            left = [each for each in left if 333 <= each < 1111]
        for each, tasks in zip(options, plans or [plan(each) for each in options], strict=True):
            assert offsets(tasks, each) == left


def test_what_was_yielded_before_the_way_was_lost_does_not_come_twice(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    placed = write_segment(path, [numbered("/topic/a", 5, 5 * n) for n in range(4)])
    for end in range(placed[1].position, path.stat().st_size, 40):  # as planned of a file with other positions
        wanted = SegmentRange("p", str(path), 0, end // 8 * 8, 0, 17)
        assert [row["offset"] for row in read_rows(wanted, columns=["offset"])] == list(range(17))


def test_a_swap_while_a_file_is_being_read_changes_nothing(tmp_path: Path) -> None:
    root = store(tmp_path)
    options = parse({"path": root})
    tasks, schema = plan(options), arrow_schema(select(["offset"]))
    batches = (batch for task in tasks for batch in read(task, options, schema, Counters()))
    first = next(batches).column("offset").to_pylist()
    left = rewrite(root, even)
    rest = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    found = first + rest
    assert found == sorted(set(found)) and set(left) <= set(found)


def test_a_segment_that_retention_took_after_it_was_rewritten_is_left_out(tmp_path: Path) -> None:
    root = store(tmp_path)
    options = parse({"path": root})
    tasks = plan(options)
    left = rewrite(root, even)
    gone, following, *_ = sorted(Path(layout.partition_path(root, "p")).glob("*.rlog"))
    gone.unlink()
    assert offsets(tasks, options) == [each for each in left if each >= int(following.stem)]


def test_damage_in_a_swapped_segment_is_reported_with_the_offsets_of_the_range(tmp_path: Path) -> None:
    root = store(tmp_path)
    options = parse({"path": root, "split_bytes": str(2 * INDEX_INTERVAL_BYTES)})
    tasks = plan(options)
    left = rewrite(root, even, per_batch=100)
    segment = min(Path(layout.partition_path(root, "p")).glob("*.rlog"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(LostRecords):
        offsets(tasks, options)
    found = offsets(tasks, parse({"path": root, "fail_on_data_loss": "false"}))
    lost = sorted(set(left) - set(found))
    assert set(found) < set(left) and found == sorted(set(found))
    assert 1 <= len(lost) <= 100 and lost == [each for each in left if lost[0] <= each <= lost[-1]]


def test_offset_gaps_within_batches_are_no_loss_and_between_batches_are(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    batches = [numbered("/topic/a", 3), numbered("/topic/a", 2, 3), numbered("/topic/a", 3, 5)]
    placed = write_segment(path, batches, [[2, 5, 6], [0, 9], [4, 5, 7]], level=3)
    wanted = whole(path, placed)
    assert [row["offset"] for row in read_rows(wanted)] == [2, 5, 6, 7, 16, 21, 22, 24]
    data = path.read_bytes()
    path.write_bytes(data[: placed[1].position] + data[placed[2].position :])
    losses: list[scan.Loss] = []
    assert [row["offset"] for row in read_rows(wanted, losses=losses)] == [2, 5, 6, 21, 22, 24]
    assert [(loss.first, loss.following) for loss in losses] == [(7, 17)]


def test_a_message_at_the_planned_position_is_not_taken_for_a_batch(tmp_path: Path) -> None:
    forged = encode(2, numbered("/topic/evil", 1, 2))
    path = tmp_path / "00000000000000000000.rlog"
    salted = bytearray(forged)
    salted[60:64] = b"evil"
    salted[12:16] = struct.pack("<I", zlib.crc32(salted[16:]))
    messages = [Message("/topic/a", bytes(salted)), *numbered("/topic/a", 3, 1)]
    placed = write_segment(path, [messages])
    place = path.read_bytes().index(salted)
    assert place % 8 == 0
    wanted = SegmentRange("p", str(path), place, path.stat().st_size, 2, placed[-1].next_offset)
    found = read_rows(wanted, columns=["offset", "destination"])
    assert found == [{"offset": 2, "destination": "/topic/a"}, {"offset": 3, "destination": "/topic/a"}]


def test_columns_that_are_not_selected_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[int] = []
    real = rows.decompress

    def counted(frame: bytes, length: int) -> bytes:
        unpacked.append(length)
        return real(frame, length)

    monkeypatch.setattr(rows, "decompress", counted)
    messages = [each._replace(body=b"alike " * 50) for each in numbered("/topic/a", 40, color="red")]
    placed = write_segment(tmp_path / "s.rlog", [messages[:20], messages[20:]], level=3)
    wanted = whole(tmp_path / "s.rlog", placed)
    for column in set(SCHEMA.names) - {"body", "tags", "headers"}:
        assert len(read_rows(wanted, columns=[column])) == 40
    assert read_rows(wanted, Selection().destination("in", "/topic/b")) == []
    assert unpacked == []
    read_rows(wanted, Selection().offsets(5, 6), ["body"])
    assert unpacked == [20 * 300], "one batch, one region"


def test_a_chunk_that_would_become_large_is_unpacked_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "UNPACKED_BYTES", 100_000)
    messages = [each._replace(body=bytes(30_000)) for each in numbered("/topic/a", 40)]
    placed = write_segment(tmp_path / "s.rlog", [messages[n : n + 2] for n in range(0, 40, 2)], level=3)
    wanted = whole(tmp_path / "s.rlog", placed)
    assert wanted.end < 10_000
    sizes = []
    decoder = Decoder("p", arrow_schema(select(["body"])), Selection(), 16_384, Counters())
    for chunk in scan.scan(wanted, lambda loss: pytest.fail(str(loss)), Counters()):
        sizes += [batch.nbytes for batch in decoder.decode(*chunk)]
    assert len(sizes) >= 10 and max(sizes) < 200_000 and sum(sizes) > 40 * 30_000


@pytest.mark.parametrize("length", [-1, 0, 5, 7, BATCH_BYTES_MAX + 1, (1 << 31) - 1])
def test_garbage_and_bombs_are_damage(tmp_path: Path, length: int) -> None:
    data = bytearray(encode(0, [Message("/topic/a", b"alike " * 100)], level=3))
    body_off = HEADER_BYTES + 8 + 8
    data[body_off + 4 : body_off + 8] = struct.pack("<i", length)
    data[12:16] = struct.pack("<I", zlib.crc32(data[16:]))
    chunk = np.frombuffer(bytes(data), np.uint8)
    decoder = Decoder("p", pa.schema([arrow_schema(SCHEMA).field("body")]), Selection(), 10, Counters())
    with pytest.raises(DamagedBatch):
        list(decoder.decode(Batches(chunk, np.array([0], np.int64))))


def test_a_query_over_a_store_with_compressed_and_sparse_segments(spark: Any) -> None:
    root = Path(__file__).parents[1] / "formats" / "v1-rewritten"
    expected = json.loads((root / "expected.json").read_text("utf-8"))
    df = radiator.spark.read(spark, str(root))
    found = [(row.partition, row.offset, row.destination, bytes(row.body).hex()) for row in df.collect()]
    assert sorted(found) == sorted((each[0], each[1], each[2], each[4]) for each in expected)
    assert df.where("partition = '/topic/log' and offset >= 5").count() == 13
