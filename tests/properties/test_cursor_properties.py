"""Compare a cursor with a set of numbers, and a partition with a list."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from radiator.config import Settings, SyncPolicy
from radiator.storage import cursor_records as journal
from radiator.storage.cursor import Cursor
from radiator.storage.file_partition import FilePartition
from tests.storage.driving import NOW, LastOf, answer, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

OFFSET = st.integers(0, 40)
OPERATION = st.one_of(
    st.tuples(st.just("ack"), st.lists(OFFSET, max_size=8)),
    st.tuples(st.just("range"), st.tuples(OFFSET, OFFSET)),
    st.tuples(st.just("count"), st.tuples(OFFSET, st.integers(1, 9))),
    st.tuples(st.just("take"), st.none()),
)


class SetOfInts:
    """What a cursor means."""

    def __init__(self, start: int) -> None:
        self.settled = set(range(start))
        self.counts: dict[int, int] = {}

    def apply(self, kind: str, value: object) -> None:
        if kind == "ack":
            self.settled |= set(value)  # type: ignore[call-overload]
        elif kind == "range":
            self.settled |= set(range(*value))  # type: ignore[misc]
        elif kind == "count" and value[0] not in self.settled:  # type: ignore[index]
            self.counts[value[0]] = value[1]  # type: ignore[index]
        self.counts = {offset: count for offset, count in self.counts.items() if offset not in self.settled}


def agree(cursor: Cursor, model: SetOfInts) -> None:
    floor = next(offset for offset in range(100) if offset not in model.settled)
    assert cursor.floor == floor
    assert cursor.ceiling == max(model.settled, default=-1) + 1
    assert list(cursor.unacked(50)) == [offset for offset in range(50) if offset not in model.settled]
    assert [cursor.is_acked(offset) for offset in range(50)] == [offset in model.settled for offset in range(50)]
    assert dict(cursor.counts) == model.counts
    intervals = cursor.intervals
    assert all(start < stop for start, stop in intervals)
    assert cursor.settled_above == sum(stop - start for start, stop in intervals)
    assert all(first[1] < second[0] for first, second in pairwise(intervals))
    assert not intervals or intervals[0][0] > floor


@given(st.integers(0, 5), st.lists(OPERATION, max_size=25))
def test_a_cursor_is_a_set_of_ints_and_so_are_its_journal_records(
    start: int, operations: list[tuple[str, object]]
) -> None:
    cursor, model = Cursor(start), SetOfInts(start)
    cursor.attach(lambda each: None, memoryview(bytearray(8)).cast("Q"), 0)
    written = [journal.block([journal.create(1, 0, start, "n", "p")])]
    for kind, value in [*operations, ("take", None)]:
        if kind == "count" and cursor.is_acked(value[0]):  # type: ignore[index]
            continue
        model.apply(kind, value)
        if kind == "ack":
            cursor.ack(value)  # type: ignore[arg-type]
        elif kind == "range":
            cursor.ack_range(*value)  # type: ignore[misc]
        elif kind == "count":
            cursor.set_count(*value)  # type: ignore[misc]
        elif kind == "take":
            changes = cursor.take_changes()
            if changes is not None:
                records = [journal.counts(1, changes.counts), journal.acked(1, changes.ranges)]
                written.append(journal.block(records))
        agree(cursor, model)
    states: dict[int, journal.CursorState] = {}
    data = b"".join(written)
    assert journal.replay(data, states) == (len(data), 0)
    told = Cursor(states[1].floor)
    for first, stop in states[1].changes:
        told.ack_range(first, stop)
    for offset, count in states[1].counts.items():
        if not told.is_acked(offset):
            told.counts[offset] = count
    agree(told, model)


STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("commit"), st.just(0)),
    st.tuples(st.just("commit"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("roll"), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 60)),
    st.tuples(st.just("time"), st.integers(-5, 60)),
    st.tuples(st.just("last"), st.integers(1, 10)),
)


@settings(max_examples=150)
@given(
    st.lists(STEP, max_size=40),
    st.sampled_from([200, 600, 1 << 20]),
    st.sampled_from([0, None, 10**9]),
    st.sampled_from([0, 3_000, 1 << 20]),
)
def test_a_partition_is_a_list(
    steps: list[tuple[str, int]], segment_bytes: int, interval_ns: int | None, tail_bytes: int
) -> None:
    fs = FaultyFileSystem()
    options = Settings(sync=SyncPolicy(interval_ns), segment_bytes=segment_bytes)
    store, _ = opened(fs, tail_bytes_max=tail_bytes)
    partition = store.partition("p", options)
    model: list[tuple[str, bytes, int]] = []
    pending: list[tuple[str, bytes, int]] = []
    clock = 0
    for kind, value in steps:
        if kind == "append":
            for each in range(value):
                clock += each % 2
                name, body = f"/q/{clock % 3}", b"%d" % (len(model) + len(pending))
                assert put(partition, body, at=NOW + clock, destination=name) == [len(model) + len(pending)]
                pending.append((name, body, NOW + clock))
        elif kind == "commit":
            commit(store)
            model += pending
            pending = []
        elif kind in ("restart", "kill"):
            if kind == "restart":
                store.close()
                model += pending
            else:
                fs.kill()
            pending = []
            store, notes = opened(fs, tail_bytes_max=tail_bytes)
            assert not notes
            partition = store.partition("p", options)
            assert partition.next_offset == len(model)
        elif kind == "roll":
            assert isinstance(partition, FilePartition)
            partition.roll_wanted = bool(partition.segments)
            partition.queue()
            commit(store)
            model += pending
            pending = []
        elif kind == "read":
            start = min(value, len(model))
            assert read_all(partition, start) == {at: model[at][1] for at in range(start, len(model))}
        elif kind == "time":
            expected = next((at for at, record in enumerate(model) if record[2] >= NOW + value), len(model))
            assert answer(partition.offset_for_time(NOW + value)) == expected
        elif kind == "last":
            wanted = [at for at, record in enumerate(model) if record[0] == "/q/1"][-value:]
            job = LastOf(partition, value, lambda name: name == "/q/1")
            begin, first = answer(job), wanted[0] if wanted else len(model)
            assert begin <= first  # earlier, where nothing of it lies in between
            assert all(model[at][0] != "/q/1" for at in range(begin, first))
        assert partition.high_watermark == len(model)
        assert partition.next_offset == len(model) + len(pending)
    assert read_all(partition) == {at: record[1] for at, record in enumerate(model)}
    assert read_all(partition, memory=False) == {at: record[1] for at, record in enumerate(model)}
