"""A receive time in which a bit has changed, in the first header of a segment, hides nothing but its own batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan, resolved
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.export.records import choose
from radiator.limits import KIB
from radiator.storage.reader import list_partitions
from tests.spark.stores import MS, START_NS, Writer, numbered

pytestmark = pytest.mark.spark

RECORDS, PER_BATCH = 100, 5
TIME_AT = 24  # of min_receive_ns in a header
BITS = (21, 24, 26, 60, 62)  # changes of 2 ms, of 17, and of 67; of years, down (60) and up


@pytest.fixture(scope="module", params=BITS)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int]]:
    """Stores, each with another segment whose first header is damaged, and the base offset of that one."""
    stores: list[tuple[str, int]] = []
    above = tmp_path_factory.mktemp("damaged")
    while not stores or len(stores) < len(list(Path(stores[0][0]).glob("partitions/*/*.rlog"))):
        writer = Writer(above / f"data{len(stores)}", 64 * KIB)
        writer.write("p", [each._replace(body=bytes(4 * KIB)) for each in numbered("p", RECORDS)], PER_BATCH)
        writer.close()
        segment = sorted(Path(writer.root).glob("partitions/*/*.rlog"))[len(stores)]
        data = bytearray(segment.read_bytes())
        data[TIME_AT + request.param // 8] ^= 1 << request.param % 8
        segment.write_bytes(data)
        stores.append((writer.root, int(segment.stem)))
    assert len(stores) > 5
    return stores


def offsets_of(options: ReadOptions) -> list[int]:
    options = resolved(options)
    schema, found = arrow_schema(["offset"]), []
    for task in plan(options):
        for batch in read(task, options, schema, Counters()):
            found += batch.column(0).to_pylist()
    return found


def moment(number: int) -> int:
    return START_NS + number * MS


WINDOWS = [(low, high) for low in (0, 7, 16, 33, 64, 85) for high in (16, 17, 50, 65, 100) if low < high]


def test_a_window_of_time_has_all_good_records(damaged: list[tuple[str, int]]) -> None:
    for root, base in damaged:
        for low, high in WINDOWS:
            selection = Selection().received(moment(low), moment(high))
            good = [n for n in range(low, high) if not base <= n < base + PER_BATCH]
            assert offsets_of(ReadOptions(root, selection, fail_on_data_loss=False)) == good


@pytest.mark.thorough
def test_times_of_a_partition_become_offsets_of_good_records(damaged: list[tuple[str, int]]) -> None:
    for root, base in damaged:
        for low, high in WINDOWS:
            times = {"start_times_ns": {"p": moment(low)}, "end_times_ns": {"p": moment(high)}}
            good = [n for n in range(low, high) if not base <= n < base + PER_BATCH]
            found = offsets_of(ReadOptions(root, Selection(), fail_on_data_loss=False, **times))
            assert [n for n in found if low <= n < high] == good
            assert all(base <= n <= base + PER_BATCH for n in set(found).symmetric_difference(good))


def test_an_export_of_a_time_on_has_all_good_records(damaged: list[tuple[str, int]]) -> None:
    for root, base in damaged:
        for low in sorted({low for low, _ in WINDOWS}):
            (partition,) = list_partitions(root)
            chosen = choose(Selection().received(moment(low)), partition, lambda *lost: None)
            found = [each.batch.offsets[index] for each in chosen for index in each.indexes]
            assert found == [n for n in range(low, RECORDS) if not base <= n < base + PER_BATCH]
