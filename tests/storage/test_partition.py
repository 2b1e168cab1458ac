"""The hub's side of a log."""

from __future__ import annotations

import pytest

from radiator import limits
from radiator.clock import WallNs
from radiator.config import Settings
from radiator.storage import partition as module
from radiator.storage.header import MISSING
from radiator.storage.partition import IDLE, BatchBuilder
from tests.clocks import both
from tests.storage.driving import ALWAYS, BLOCK, NOW, answer, appends, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem


def test_append_does_no_io_and_gives_dense_offsets() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    before = fs.calls.copy()
    assert put(partition, b"a", b"b") == [0, 1]
    assert [partition.append("/queue/a", BLOCK, body, NOW) for body in (b"c", b"d", b"e")] == [2, 3, 4]
    assert fs.calls == before
    assert (partition.next_offset, partition.high_watermark) == (5, 0)
    commit(store)
    assert partition.high_watermark == 5
    assert read_all(partition) == dict(enumerate([b"a", b"b", b"c", b"d", b"e"]))


def test_receipts_wait_for_the_batch_that_holds_their_record() -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("q", ALWAYS)
    assert partition.open_batch is IDLE
    with pytest.raises(AttributeError):
        partition.open_batch.waiters.append("nobody would ever release this one")
    put(partition, b"a")
    partition.open_batch.waiters.append("a")
    (first,) = appends(store.take(both(NOW)))
    put(partition, b"b")
    partition.open_batch.waiters.append("b")
    (second,) = appends(store.take(both(NOW)))
    assert (first.waiters, second.waiters) == (["a"], ["b"])
    assert first.batch is not None and first.batch.bodies == [b"a"]


def test_a_batch_is_split_at_its_limits_and_the_parts_are_committed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("RECORDS_MAX", 3), ("BYTES_MAX", 100)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, limit)
            store, _ = opened(FaultyFileSystem())
            partition = store.partition("q", ALWAYS)
            waiters = []
            for number in range(10):
                put(partition, b"%d" % number * 10)
                waiters.append(partition.open_batch)
            jobs = appends(commit(store))
            assert len(jobs) > 2 and len({id(each) for each in waiters}) == len(jobs)
            assert [job.batch.base_offset for job in jobs] == sorted(job.batch.base_offset for job in jobs)
            assert list(read_all(partition)) == list(range(10))
    assert module.BYTES_MAX == limits.BATCH_BYTES_MAX


@pytest.mark.parametrize("event_ns", [None, 5])
@pytest.mark.parametrize("at", [NOW, NOW - 7])
def test_records_that_differ_in_their_bodies_are_appended_together(event_ns: int | None, at: WallNs) -> None:
    batches = []
    for together in (True, False):
        store, _ = opened(FaultyFileSystem())
        partition = store.partition("q", ALWAYS)
        assert partition.append_many("/queue/a", BLOCK, [b"x"], 1, at, None, None) is None, "no batch is open"
        assert partition.append("/queue/a", BLOCK, b"first", NOW, event_ns) == 0
        assert partition.append_many("/queue/b", BLOCK, [b"x"], 1, at, None, None) is None, (
            "the name is new to the batch"
        )
        bodies = [b"a", b"", b"ccc"]
        if together:
            assert partition.append_many("/queue/a", BLOCK, bodies, 4, at, event_ns, None) == 1
        else:
            assert [partition.append("/queue/a", BLOCK, body, at, event_ns) for body in bodies] == [1, 2, 3]
        assert partition.next_offset == 4
        builder = partition.open_batch
        batches.append([getattr(builder, name) for name in BatchBuilder.__slots__ if name not in ("turn", "waiters")])
        commit(store)
        assert read_all(partition) == {0: b"first", 1: b"a", 2: b"", 3: b"ccc"}
    assert batches[0] == batches[1]


def test_records_that_do_not_fit_into_the_open_batch_are_not_appended_together(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("q", ALWAYS)
    put(partition, b"first")
    name = next(iter(partition.open_batch.ids))
    for limit, value in (("RECORDS_MAX", 2), ("BYTES_MAX", partition.open_batch.size_bytes + 2 * len(BLOCK) + 1)):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, value)
            assert partition.append_many(name, BLOCK, [b"a", b"b"], 2, NOW, None, None) is None
            assert (partition.next_offset, len(partition.open_batch)) == (1, 1)
            patch.setattr(module, limit, value + 1)
            assert partition.append_many(name, BLOCK, [b"a", b"b"], 2, NOW, None, None) == 1
        store, _ = opened(FaultyFileSystem())
        partition = store.partition("q", ALWAYS)
        put(partition, b"first")


def test_a_clock_that_steps_back_does_not_reorder() -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("q", ALWAYS)
    for at in (5, 3, 9, 1):
        put(partition, b"", at=NOW + at)
    commit(store)
    batch = partition.read(0)
    assert batch is not None and [time - NOW for time in batch.receive_ns] == [5, 5, 9, 9]


def test_times_that_do_not_fit_are_refused_and_leave_nothing_behind() -> None:
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("q", ALWAYS)
    for times in ((1 << 63, None), (None, -(1 << 63)), (MISSING, None)):
        with pytest.raises(ValueError, match="64 bits"):
            partition.append("q", b"", b"", NOW, *times)
    assert partition.next_offset == 0 and commit(store) == []


def test_event_and_transmit_times_come_back_from_disk() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    partition.append("q", b"", b"", NOW, 7, None)
    partition.append("q", b"", b"", NOW, None, 8)
    commit(store)
    store.close()
    store, _ = opened(fs)
    job = store.partitions["q"].fetch(0)
    job.run()
    assert job.result is not None and job.result.event_ns is not None and job.result.transmit_ns is not None
    assert (list(job.result.event_ns), list(job.result.transmit_ns)) == ([7, MISSING], [MISSING, 8])


def test_memory_stays_bounded_whatever_the_backlog() -> None:
    store, _ = opened(FaultyFileSystem(), tail_bytes_max=100_000)
    partitions = [store.partition(f"p{number}", ALWAYS) for number in range(4)]
    for number in range(300):
        put(partitions[number % 4], b"x" * 1_000)
        commit(store)
        assert store.facts()["tail_bytes"] <= 100_000
    for partition in partitions:
        assert len(read_all(partition)) == 75
    assert len(store._cold.order) == 1 or store._cold.bytes <= 100_000
    oldest = partitions[0].tail.oldest()
    assert oldest is None or oldest.base_offset > 50


def test_a_batch_never_has_more_names_than_the_format_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.NAMES_MAX == limits.BATCH_NAMES_MAX == 0xFFFF
    monkeypatch.setattr(module, "NAMES_MAX", 3)
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("q", ALWAYS)
    for number in range(10):
        put(partition, b"", destination=f"/t/{number}")
        put(partition, b"", destination=f"/t/{number}")
    jobs = appends(commit(store))
    assert [len(job.batch.names) for job in jobs] == [3, 3, 3, 1] and [len(job.batch) for job in jobs] == [6, 6, 6, 2]
    assert list(read_all(partition)) == list(range(20))


def test_long_names_fill_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES_MAX", 1_000)
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("q", ALWAYS)
    for number in range(20):
        partition.append(f"{number:0200}", b"", b"", NOW)
    assert [len(job.batch) for job in appends(commit(store))] == [5, 5, 5, 5]


@pytest.mark.parametrize("limit", ["NAMES_MAX", "BYTES_MAX"])
def test_room_for_a_transaction_is_room_for_its_names(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, {"NAMES_MAX": 5, "BYTES_MAX": 1_000}[limit])
    store, _ = opened(FaultyFileSystem())
    partition = store.partition("q", ALWAYS)
    for number in range(3):
        put(partition, b"", destination=f"{number:0100}")
    partition.make_room(3, 3 * (len(BLOCK)))
    for number in range(3):
        put(partition, b"", destination=f"{number:0200}")
    assert [len(job.batch) for job in appends(commit(store))] == [3, 3]


def test_a_time_is_found_in_front_of_a_segment_that_began_after_the_clock_was_set_back() -> None:
    store, _ = opened(FaultyFileSystem(), tail_bytes_max=0)
    partition = store.partition("q", Settings(roll_at_seconds=0))
    put(partition, b"one", b"two", at=NOW + 1_000)
    commit(store)
    partition.roll_wanted = True  # type: ignore[attr-defined]
    partition.queue()
    commit(store, NOW)
    assert len(partition.segments) == 2
    assert answer(partition.offset_for_time(NOW + 1_000)) == 0
