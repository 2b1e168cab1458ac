"""Sample stores of every format version open, and hold what they held when they were written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from radiator.storage import reader
from radiator.storage.batch import RecordBatch
from radiator.storage.files import FileSystem
from radiator.storage.header import (
    BODIES_ZSTD,
    COMPRESSED,
    FORMAT_VERSION,
    HEADERS_ZSTD,
    MISSING,
    SPARSE,
    BatchHeader,
    UnknownVersion,
    decode_header,
)
from radiator.storage.store import Store
from tests.clocks import both
from tests.formats.newer import newer

HERE = Path(__file__).parent
SAMPLES = sorted(path.name for path in HERE.glob("v*") if path.is_dir())


def facts(name: str, batch: RecordBatch) -> list[list[Any]]:
    def time(column: Any, at: int) -> int | None:
        return None if column is None or column[at] == MISSING else column[at]

    return [
        [
            name,
            offset,
            batch.names[batch.destination_ids[at]],
            batch.blocks[at].decode(),
            batch.bodies[at].hex(),
            batch.receive_ns[at],
            time(batch.event_ns, at),
            time(batch.transmit_ns, at),
        ]
        for at, offset in enumerate(batch.offsets)
    ]


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[list[Any]]]:
    root = tmp_path / "store"
    shutil.copytree(HERE / request.param, root)
    return root, sorted(json.loads((root / "expected.json").read_text("utf-8")))


def test_there_is_a_sample_of_this_version() -> None:
    assert f"v{FORMAT_VERSION}" in SAMPLES


def test_there_is_one_of_rewritten_segments_with_everything_that_they_have() -> None:
    flags = 0
    for path in (HERE / f"v{FORMAT_VERSION}-rewritten").rglob("*.rlog"):
        for _, found in reader.segment_batches(str(path)):
            assert isinstance(found, BatchHeader)
            flags |= found.flags
    assert flags & (SPARSE | COMPRESSED) == SPARSE | HEADERS_ZSTD | BODIES_ZSTD


def test_it_can_be_read_from_outside(sample: tuple[Path, list[list[Any]]]) -> None:
    root, expected = sample
    found = []
    for partition in reader.list_partitions(str(root)):
        for batch in reader.batches(partition, on_gap=lambda first, last, _: pytest.fail(f"gap {first} to {last}")):
            found += facts(partition.name, batch)
    assert sorted(found) == expected
    assert [(each.name, each.floor, each.intervals, each.counts) for each in reader.list_cursors(str(root))] == [
        ("durable", 4, [], {}),
        ("queue:/queue/orders", 4, [(5, 6)], {}),
    ]


def test_a_broker_takes_it_over_and_goes_on(sample: tuple[Path, list[list[Any]]]) -> None:
    root, expected = sample
    store = Store(str(root), FileSystem())
    notes = store.open(both(0))
    assert [note.kind for note in notes if note.kind != "foreign"] == []
    found = []
    for name, partition in store.partitions.items():
        offset = partition.log_start_offset
        while offset < partition.high_watermark:
            job = partition.fetch(offset)
            job.run()
            job.done()
            assert job.result is not None
            found += facts(name, job.result)
            offset = job.result.next_offset
    assert sorted(found) == expected
    assert store.partitions["weather-ä"].destinations.keys() == {f"/topic/weather.{letter}" for letter in "ABC"}
    assert store.cursors.open("queue:/queue/orders", "/queue/orders", 0).floor == 4
    store.close()


def versions() -> dict[str, int]:
    return {path: int(path[1:].partition("-")[0]) for path in SAMPLES}


def test_every_version_up_to_this_one_has_a_sample_that_is_read() -> None:
    """A version that is released stays readable: who raises the number adds a sample and leaves the others."""
    assert set(versions().values()) == set(range(1, FORMAT_VERSION + 1))
    for name, version in versions().items():
        digits = {path.read_bytes()[4:5] for path in (HERE / name).rglob("*.rlog") if path.stat().st_size}
        assert digits == {b"%d" % version}


@pytest.mark.parametrize("where", ["first", "last", "alone"])
def test_a_newer_version_is_refused_by_every_reader_and_nothing_is_changed(
    sample: tuple[Path, list[list[Any]]], where: str
) -> None:
    root, _ = sample
    path = (
        max((root / "partitions" / "%2Fqueue%2Forders").glob("*.rlog"))
        if where != "first"
        else min((root / "partitions" / "%2Fqueue%2Forders").glob("*.rlog"))
    )
    data = path.read_bytes()
    header = decode_header(data)
    coming = newer(data[: header.total_len], FORMAT_VERSION + 1, bytes(16))
    path.write_bytes({"first": coming + data[header.total_len :], "last": data + coming, "alone": coming}[where])
    before = {each: each.read_bytes() for each in root.rglob("*.rlog")}
    with pytest.raises(UnknownVersion, match=f"orders.*version {FORMAT_VERSION + 1}.*newer one"):
        Store(str(root), FileSystem()).open(both(0))
    assert before == {each: each.read_bytes() for each in root.rglob("*.rlog")}


def test_a_flipped_version_digit_refuses_nothing(sample: tuple[Path, list[list[Any]]]) -> None:
    root, expected = sample
    for path in sorted(root.rglob("*.rlog")):
        whole = path.read_bytes()
        for bit in range(8):
            path.write_bytes(whole[:4] + bytes([whole[4] ^ 1 << bit]) + whole[5:])
            copy = root.with_name(f"copy-{bit}-{path.stem}-{path.parent.name}")
            shutil.copytree(root, copy)
            store = Store(str(copy), FileSystem())
            store.open(both(0))
            store.close()
            shutil.rmtree(copy)
        path.write_bytes(whole)
    assert expected
