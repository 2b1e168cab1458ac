"""Batches in memory."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from radiator.clock import WallNs
from radiator.storage.batch import RecordBatch, Run, densify
from radiator.storage.header import MISSING
from radiator.storage.partition import BatchBuilder
from tests.storage.driving import ALWAYS, add_record, opened
from tests.storage.faults import FaultyFileSystem

GROUPS = st.lists(
    st.tuples(
        st.sampled_from(["/q/a", "/q/b", "/q/c"]),
        st.integers(1, 3),  # records
        st.sampled_from([None, 5]),  # event time
        st.sampled_from([None, 6]),  # transmit time
        st.booleans(),  # as a run
    ),
    min_size=1,
    max_size=6,
)


def built(*bodies: bytes, base: int = 10) -> RecordBatch:
    builder = BatchBuilder(base)
    for at, body in enumerate(bodies):
        add_record(builder, f"/q/{at % 2}", b"h", body, 100 + at, 5 if at == 1 else None, None)
    return builder.finish()


def test_a_builder_finishes_as_columns() -> None:
    batch = built(b"a", b"bb", b"ccc")
    assert (batch.base_offset, batch.next_offset, len(batch)) == (10, 13, 3)
    assert batch.offsets == range(10, 13)
    assert list(batch.receive_ns) == [100, 101, 102]
    assert batch.event_ns is not None and list(batch.event_ns) == [MISSING, 5, MISSING]
    assert batch.transmit_ns is None
    assert [batch.names[number] for number in batch.destination_ids] == ["/q/0", "/q/1", "/q/0"]
    assert batch.size_bytes == 3 + 6


def test_index_at_finds_the_first_at_or_after() -> None:
    batch = built(b"a", b"b", b"c")
    assert [batch.index_at(offset) for offset in (0, 10, 11, 12, 13, 99)] == [0, 0, 1, 2, 3, 3]
    sparse = RecordBatch(array("Q", [10, 14, 19]), [1, 2, 3], None, None, [0] * 3, ["q"], [b""] * 3, [b""] * 3, 0)
    assert [sparse.index_at(offset) for offset in (0, 10, 11, 14, 15, 19, 20)] == [0, 0, 1, 1, 2, 2, 3]
    assert (sparse.base_offset, sparse.next_offset) == (10, 20)
    covering = RecordBatch(array("Q", [14, 19]), [1, 2], None, None, [0] * 2, ["q"], [b""] * 2, [b""] * 2, 0, 10)
    assert (covering.base_offset, covering.next_offset) == (10, 20), "what was removed before the first is covered"
    assert [covering.index_at(offset) for offset in (10, 13, 14, 15)] == [0, 0, 0, 1]


def test_densify_changes_the_memory_and_not_the_values() -> None:
    batch = built(b"a", b"b")
    before = (list(batch.receive_ns), list(batch.event_ns or ()), list(batch.destination_ids))
    densify(batch)
    assert type(batch.receive_ns) is array
    assert (list(batch.receive_ns), list(batch.event_ns or ()), list(batch.destination_ids)) == before


def test_the_cost_grows_with_bytes_and_records() -> None:
    assert built(b"a" * 100).cost_bytes > 100
    assert built(b"", b"").cost_bytes > built(b"").cost_bytes


def test_names_count_for_the_size_of_an_open_batch_but_not_of_a_finished_one() -> None:
    builder = BatchBuilder(0)
    for name in ("/q/a", "/q/bb", "/q/a"):
        add_record(builder, name, b"h", b"body", 1, None, None)
    assert builder.size_bytes == 15 + len("/q/a") + len("/q/bb")
    assert builder.finish().size_bytes == 15


@given(GROUPS)
def test_columns_that_begin_late_hold_the_records_before(
    groups: list[tuple[str, int, int | None, int | None, bool]],
) -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("q", ALWAYS)
    expected = []
    for name, count, event_ns, transmit_ns, as_run in groups:
        if as_run:
            run = Run()
            for _ in range(count):
                run.add(name, b"h", b"x", event_ns, transmit_ns)
            partition.extend(run, WallNs(100))
        else:
            partition.append(name, b"h", b"x", WallNs(100), event_ns, transmit_ns)
            if count > 1:
                bodies = [b"x"] * (count - 1)
                partition.append_many(name, b"h", bodies, len(bodies), WallNs(100), event_ns, transmit_ns)
        expected += [(name, event_ns, transmit_ns)] * count
    names = {name for name, _, _ in expected}
    assert partition.open_batch.size_bytes == 2 * len(expected) + sum(map(len, names))
    batch = partition.open_batch.finish()
    missing = [MISSING] * len(expected)
    events, transmits = list(batch.event_ns or missing), list(batch.transmit_ns or missing)
    assert [batch.names[number] for number in batch.destination_ids] == [name for name, _, _ in expected]
    assert events == [MISSING if event_ns is None else event_ns for _, event_ns, _ in expected]
    assert transmits == [MISSING if transmit_ns is None else transmit_ns for _, _, transmit_ns in expected]
    assert (batch.event_ns is None) == all(event_ns is None for _, event_ns, _ in expected)
    assert batch.size_bytes == 2 * len(expected) and len(batch) == partition.next_offset
