"""Maintenance: what it has rewritten, what it leaves alone, and what a crash in between leaves."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from radiator import limits
from radiator.config import Settings, SyncPolicy
from radiator.storage import archived, layout
from radiator.storage.batch import RecordBatch
from radiator.storage.compaction import KeyOf
from radiator.storage.file_partition import FilePartition
from radiator.storage.header import decode_header
from radiator.storage.rewrite import runs
from radiator.storage.segment_states import State
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import NOW, checkpoint, commit, opened, read_all
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
DIRECTORY = layout.partition_path("/data", "q")
SEGMENT_BYTES = 2_000


def key_of(name: str) -> KeyOf:
    """A block is ``key:VALUE`` or nothing."""
    prefix = name.encode() + b":"
    return lambda block: block[len(prefix) :] if block.startswith(prefix) else None


class Log:
    """A log ``q`` on a file system that can fail, with its maintenance."""

    def __init__(self, fs: FaultyFileSystem | None = None, **options: object) -> None:
        self.fs = fs or FaultyFileSystem()
        self.options = Settings(**{"segment_bytes": SEGMENT_BYTES, **options})  # type: ignore[arg-type]
        self.now = NOW
        self.settled: set[int] = set()
        self.queue = False
        self.history = False  # topics are in it
        self.unsafe = False  # a power cut may take what is not synced
        self.notes: list[str] = []
        self.open()

    def open(self) -> None:
        self.store: Store
        self.store, notes = opened(self.fs)
        assert self.unsafe or not [note for note in notes if note.kind == "damage"], notes
        partition = self.store.partition("q", self.options)
        assert isinstance(partition, FilePartition)
        self.partition = partition
        partition.history = self.history
        self.store.maintenance.key_of = key_of
        if self.queue:
            self.pin()

    def put(self, *records: tuple[str, bytes], size: int = 0) -> None:
        for key, body in records:
            block = f"key:{key}".encode() if key else b""
            self.partition.append("q", block, body.ljust(size, b"."), self.now)
            commit(self.store, self.now)

    def fill(self, count: int, size: int = 150) -> None:
        start = self.partition.next_offset
        self.put(*[("", b"%d:" % number) for number in range(start, start + count)], size=size)

    def settle(self, *offsets: int) -> None:
        self.queue = True
        self.settled.update(offsets)
        self.pin()

    def pin(self) -> None:
        end = self.partition.high_watermark
        self.partition.settled_in = self._settled_in
        self.partition.retain_from = min(set(range(end + 1)) - self.settled)

    def _settled_in(self, start: int, stop: int) -> list[tuple[int, int]]:
        return [(offset, offset + 1) for offset in range(start, stop) if offset in self.settled]

    def maintain(self, seconds: int = 20, breathe: Callable[[], bool] = lambda: True) -> int:
        """A sweep, and all that it brings; how many jobs."""
        self.now += seconds * SECOND
        self.store.tick(both(self.now))
        jobs = 0
        while True:
            commit(self.store, self.now)
            job = self.store.maintenance.take()
            if job is None:
                return jobs
            job.run(breathe)
            if note := self.store.maintenance.done(job, both(self.now)):
                self.notes.append(note)
            jobs += 1

    def sizes(self) -> dict[int, int]:
        found = {}
        for name in self.fs.listdir(DIRECTORY):
            base = layout.segment_base(name)
            if base is not None:
                found[base] = len(self.fs.nodes[f"{DIRECTORY}/{name}"].cache)
        return found

    def all(self, memory: bool = False) -> dict[int, bytes]:
        return {offset: body.rstrip(b".") for offset, body in read_all(self.partition, memory=memory).items()}

    @property
    def size(self) -> int:
        return sum(self.sizes().values())

    def sealed(self) -> dict[int, int]:
        """The sizes of all but the active one, which may have zeros behind its end."""
        return {base: size for base, size in self.sizes().items() if base != self.partition.segments[-1].base_offset}

    def batches(self, base: int) -> list[int]:
        """How many records each batch of a segment has."""
        data, at, found = bytes(self.fs.nodes[layout.segment_path(DIRECTORY, base)].cache), 0, []
        while at < len(data):
            header = decode_header(data, at)
            found.append(header.records)
            at += header.total_len
        return found

    def restart(self) -> None:
        self.store.close()
        self.open()

    def leftovers(self) -> list[str]:
        return [name for name in self.fs.listdir(DIRECTORY) if name.endswith(layout.NEW_SUFFIX)]


# --- holes ------------------------------------------------------------------------------------------------------------


def test_settled_records_around_an_unsettled_one_are_removed_and_nothing_moves() -> None:
    log = Log()
    log.fill(60)
    before = log.all()
    log.settle(*[offset for offset in range(58) if offset != 3])
    whole = log.size
    assert log.maintain() > 0
    assert log.size < whole / 3
    after = log.all()
    assert after[3] == before[3] and after[58] == before[58] and after[59] == before[59]
    assert all(before[offset] == body for offset, body in after.items())
    lasts = {segment.base_offset - 1 for segment in log.partition.segments[1:]}
    assert set(after) == {3, 58, 59} | lasts | {
        offset for offset in before if offset >= log.partition.segments[-1].base_offset
    }
    assert all(info.size_bytes == log.sizes()[info.base_offset] for info in log.partition.segments)
    assert log.maintain() == 0, "and that was that"
    log.restart()
    assert log.all() == after
    log.settle(3)
    log.maintain()
    assert log.partition.log_start_offset > 3 and len(log.sizes()) < 4


def test_what_has_gone_from_a_file_has_gone_from_memory_and_the_rest_has_not() -> None:
    log = Log()
    log.fill(40)
    partition = log.partition
    assert partition.read(0) is not None and partition.read(39) is not None
    pending = partition.fetch(2)
    pending.run()
    end = partition.segments[1].base_offset
    log.settle(*(offset for offset in range(end) if offset != 3))
    assert log.maintain() > 0
    assert partition.segments[0].sparse
    assert all(partition.read(offset) is None for offset in range(end))
    assert partition.tail.newest_first()[-1].base_offset == end
    pending.done()
    assert pending.result is not None and partition.read(2) is None, "it was read before, and is for nobody else"
    job = partition.fetch(0)
    job.run()
    job.done()
    found = partition.read(3)
    assert found is not None and list(found.offsets) == [3, end - 1]


def test_a_segment_is_left_alone_until_half_of_it_is_settled() -> None:
    log = Log()
    log.fill(30)
    second = log.partition.segments[1].base_offset
    for offset in range(1, second):
        log.settle(offset)
        if log.maintain():
            break
    assert second / 2 <= offset < second - 1
    assert log.sizes()[0] < SEGMENT_BYTES * 0.6


def test_half_of_the_bytes_counts_and_not_half_of_the_messages() -> None:
    log = Log()
    log.fill(6, size=10)
    log.fill(1, size=1_000)
    log.fill(1, size=1_500)
    assert [segment.base_offset for segment in log.partition.segments] == [0, 7]
    log.settle(*range(1, 6))
    before = log.sizes()
    log.maintain()
    assert log.sizes() == before


@pytest.mark.parametrize("why", ["keep", "topics", "archive", "nobody"])
def test_no_records_are_removed_where_history_is_wanted(why: str) -> None:
    log = Log(reclaim_acked=why != "keep", wait_for_archive=why == "archive")
    log.fill(30)
    if why != "nobody":
        log.settle(*range(1, 29))
    log.partition.history = why == "topics"
    before = log.sizes()
    log.maintain()
    assert log.sizes() == before
    if why == "archive":
        archived.write(log.fs, DIRECTORY, 30)
        log.maintain()
        log.maintain()
        assert log.size < sum(before.values()) / 2


def test_acks_are_on_disk_before_what_they_settled_goes() -> None:
    log = Log()
    log.fill(30)
    cursor = log.store.cursors.open("queue:q", "q", 0)
    commit(log.store)
    cursor.ack_range(1, 25)
    log.settle(*range(1, 25))
    log.fs.fail("fdatasync", under="/journal/")
    before = log.sizes()
    assert log.maintain() == 0 and log.sizes() == before
    commit(log.store)
    checkpoint(log.store, NOW + 10_000_000_000)
    assert log.maintain() > 0 and log.sizes() != before


# --- compression ------------------------------------------------------------------------------------------------------


def test_sealed_segments_are_compressed_once_and_read_as_before() -> None:
    log = Log(compress="zstd", segment_bytes=20_000)
    log.fill(300)
    before, whole = log.all(), log.size
    assert log.maintain() == len(log.partition.segments) - 1
    assert log.size < whole / 2
    assert log.all() == before
    assert log.maintain() == 0
    log.restart()
    smaller = log.sizes()
    log.maintain()
    assert log.sizes() == smaller and log.all() == before
    assert log.store.maintenance.counts["rewritten"] == 0, "a look at the first header was enough"


def test_what_does_not_get_smaller_stays_as_it_was() -> None:
    log = Log(compress="zstd", segment_bytes=20_000)
    random = Random(1)
    log.put(*[("", random.randbytes(1_800)) for _ in range(40)])
    before = log.sizes()
    assert log.maintain() == len(before) - 1
    assert log.sizes() == before and log.leftovers() == [] and log.maintain() == 0


def test_compression_makes_large_batches_of_small_ones_too() -> None:
    log = Log(compress="zstd", segment_bytes=100_000)
    log.put(*[(f"k{number % 7}", b"%d" % number) for number in range(1_000)])
    before = log.all()
    log.maintain()
    assert log.all() == before
    assert log.sizes()[0] < 25_000


# --- merging ----------------------------------------------------------------------------------------------------------


def topic(segment_bytes: int = 20_000, **options: object) -> Log:
    """A log that keeps history."""
    log = Log(segment_bytes=segment_bytes, **options)
    log.history = log.partition.history = True
    return log


def records(log: Log) -> list[tuple[object, ...]]:
    """All there is of each record, from the files."""
    found: list[tuple[object, ...]] = []
    for batch in _batches(log):
        none = [None] * len(batch)
        found += zip(
            batch.offsets,
            batch.receive_ns,
            batch.event_ns or none,
            batch.transmit_ns or none,
            [batch.names[number] for number in batch.destination_ids],
            batch.blocks,
            batch.bodies,
            strict=True,
        )
    missing = -(1 << 63)
    return [tuple(None if value == missing else value for value in row) for row in found]


def _batches(log: Log) -> Iterator[RecordBatch]:
    segments = log.partition.segments
    for segment, end in zip(segments, [*(each.base_offset for each in segments[1:]), 1 << 62], strict=True):
        yield from runs(log.fs, DIRECTORY, segment.base_offset, end)  # type: ignore[arg-type]


def test_small_commits_of_sealed_segments_become_one_batch_of_the_same_records() -> None:
    log = topic()
    for number in range(400):
        times = (log.now + number, log.now - 5 if number % 3 else None, log.now - 7 if number % 5 else None)
        block = b"key:%d" % (number % 7) if number % 2 else b""
        log.partition.append(f"/topic/{number % 3}", block, b"%d" % number * (number % 40), *times)
        commit(log.store, log.now)
    before, sizes, bases = records(log), log.sizes(), [info.base_offset for info in log.partition.segments]
    assert len(bases) > 3 and [row[0] for row in before] == list(range(400))
    assert log.maintain() == len(bases) - 1
    for base, end in pairwise(bases):
        assert log.batches(base) == [end - base]
        assert log.sizes()[base] < sizes[base] * 0.7
    assert log.sizes()[bases[-1]] == sizes[bases[-1]], "the active one is left alone"
    assert records(log) == before and len(log.all()) == 400
    counts = log.store.maintenance.counts
    assert counts["rewritten"] == len(bases) - 1 and counts["removed_records"] == 0
    assert counts["saved_bytes"] == sum(sizes.values()) - log.size
    assert {info.base_offset: info.size_bytes for info in log.partition.segments[:-1]} == log.sealed()
    assert not any(info.sparse for info in log.partition.segments)


def test_what_was_merged_is_not_merged_again() -> None:
    log = topic()
    log.fill(300, size=20)
    assert log.maintain() > 0
    before, sizes = log.all(), log.sealed()
    assert log.maintain() == 0, "it is remembered"
    log.restart()
    calls = log.fs.calls["pwritev"]
    assert log.maintain() == len(sizes), "looked at"
    assert log.fs.calls["pwritev"] == calls and log.leftovers() == [], "and left alone"
    assert log.sealed() == sizes and log.all() == before and log.store.maintenance.counts["rewritten"] == 0


@pytest.mark.parametrize("per_commit", [1, 7, 100])
@pytest.mark.parametrize("size", [0, 300, 3_000, 14_000, 20_000])
def test_merged_are_commits_of_less_than_16_kib(size: int, per_commit: int) -> None:
    log = topic(segment_bytes=300_000)
    while len(log.partition.segments) < 2:
        for _ in range(per_commit):
            log.partition.append("q", b"", bytes(size), log.now)
        commit(log.store, log.now)
    before, sizes, batches = records(log), log.sizes(), log.batches(0)
    small = sizes[0] / len(batches) < 16 * 1024
    assert log.maintain() == 1
    assert records(log) == before
    merged = len(log.batches(0))
    assert merged < len(batches) / 2 if small else merged == len(batches) and log.sizes() == sizes
    assert log.store.maintenance.counts["rewritten"] == small
    log.restart()
    log.maintain()
    assert log.store.maintenance.counts["rewritten"] == 0


def test_one_commit_that_is_a_whole_segment_is_no_small_commit() -> None:
    log = topic(segment_bytes=5_000)
    for number in range(4):
        for _ in range(100):
            log.partition.append("q", b"", b"%d" % number * 60, log.now)
        commit(log.store, log.now)
    sizes = log.sizes()
    assert len(sizes) == 4
    log.maintain()
    assert log.sizes() == sizes and log.store.maintenance.counts["rewritten"] == 0


@pytest.mark.parametrize(
    ("options", "history", "sealed"),
    [
        ({}, True, True),
        ({"merge_commits": False}, True, False),
        ({"merge_commits": False, "compress": "zstd"}, True, True),
        ({}, False, False),
        ({"compress": "zstd"}, False, True),
        ({"reclaim_acked": False}, False, True),
    ],
    ids=["topic", "left", "compressed", "queue", "compressed queue", "kept queue"],
)
def test_a_segment_that_will_be_merged_is_sealed_after_so_many_commits(
    options: dict[str, object], history: bool, sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEGMENT_COMMITS", 100)
    log = Log(segment_bytes=1_000_000, **options)
    log.history = log.partition.history = history
    log.fill(100, size=20)
    assert len(log.partition.segments) == 1, "the next one may not come"
    log.fill(250, size=20)
    assert [info.base_offset for info in log.partition.segments] == ([0, 100, 200, 300] if sealed else [0])
    before = log.all()
    log.restart()
    assert log.all() == before
    log.maintain()
    assert log.all() == before
    assert len(log.batches(0)) == (1 if sealed else 350)


def test_a_full_disk_where_a_segment_was_to_be_sealed_for_its_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEGMENT_COMMITS", 10)
    log = topic(segment_bytes=1_000_000)
    log.fill(10, size=20)
    log.fs.fill()
    log.fill(1, size=200_000)  # more than the zeros give back that were ahead
    assert log.partition.failed is not None
    log.fs.capacity = None
    log.maintain()
    assert log.partition.failed is None
    log.fill(20, size=20)
    assert [info.base_offset for info in log.partition.segments] == [0, 10, 20]
    before = log.all()
    assert sorted(before) == [*range(30)]
    log.restart()
    assert log.all() == before


def test_a_segment_of_less_than_a_block_of_the_disk_is_not_worth_it() -> None:
    log = topic(segment_bytes=3_000)
    log.fill(50)
    assert log.maintain() == 0


@pytest.mark.parametrize("why", ["rule", "reclaimed", "unknown"])
def test_small_commits_stay_where_the_rule_says_so_and_where_what_is_settled_goes(why: str) -> None:
    log = topic(merge_commits=why != "rule")
    if why != "rule":
        log.history = log.partition.history = False
    log.fill(300)
    if why == "reclaimed":
        log.settle(*range(0, 300, 30))
    sizes = log.sizes()
    assert log.maintain() == 0 and log.sizes() == sizes


@pytest.mark.parametrize("options", [{"reclaim_acked": False}, {"wait_for_archive": True}])
def test_small_commits_of_queues_are_merged_where_they_are_kept(options: dict[str, object]) -> None:
    log = Log(segment_bytes=20_000, **options)
    log.fill(300)
    log.settle(1)
    before = records(log)
    assert log.maintain() == len(log.partition.segments) - 1 == log.store.maintenance.counts["rewritten"]
    assert records(log) == before


def test_a_rule_that_changes_is_obeyed() -> None:
    log = topic(merge_commits=False, segment_bytes=60_000)
    log.fill(800)
    assert log.maintain() == 0
    log.partition.configure(replace(log.options, merge_commits=True))
    assert log.maintain() == len(log.partition.segments) - 1 == log.store.maintenance.counts["rewritten"]
    log.partition.configure(replace(log.options, compress="zstd"))
    assert log.maintain() == len(log.partition.segments) - 1
    sizes = log.sealed()
    log.partition.configure(log.options)
    log.restart()
    log.partition.configure(replace(log.options, merge_commits=True))
    assert log.maintain() == len(sizes) and log.sealed() == sizes, "what is compressed stays so"


def test_what_compaction_has_left_is_no_small_commit_and_stays_sparse() -> None:
    log = topic(segment_bytes=60_000, compact_by="key")
    for number in range(1_500):
        log.put((f"k{number % 100}" if number % 2 else "", b"v%d" % number), size=40)
    log.maintain()
    expected, sizes = records(log), log.sealed()
    assert len(expected) < 1_000 and min(sizes.values()) > 4_096
    log.restart()
    assert log.maintain() > len(sizes), "a search, and a look at each"
    assert log.sealed() == sizes and records(log) == expected
    assert all(info.sparse for info in log.partition.segments[:-1])


# --- damage, and disks that let us down -------------------------------------------------------------------------------


def to_do(how: str) -> Log:
    """A log of which all that is sealed is to be compressed, or merged."""
    log = topic() if how == "merge" else Log(compress="zstd", segment_bytes=20_000)
    log.fill(300)
    return log


HOW = pytest.mark.parametrize("how", ["compress", "merge"])
SMALLER = {"compress": 0.5, "merge": 0.75}


@HOW
@pytest.mark.parametrize("at", [70, 500, 5_000])
def test_a_damaged_segment_is_left_alone_and_reported_once(how: str, at: int) -> None:
    log = to_do(how)
    path = layout.segment_path(DIRECTORY, log.partition.segments[1].base_offset)
    log.fs.nodes[path].cache[at] ^= 1
    damaged = bytes(log.fs.nodes[path].cache)
    log.maintain()
    log.maintain()
    (note,) = log.notes
    assert path in note and "so it is not rewritten" in note
    assert bytes(log.fs.nodes[path].cache) == damaged and log.leftovers() == []
    assert log.store.maintenance.counts["damaged"] == 1
    assert log.store.maintenance.counts["rewritten"] == len(log.partition.segments) - 2


CALLS = {"open": 2, "open_read": 2, "pread": 3, "pwritev": 2, "fdatasync": 1, "rename": 1, "sync_dir": 1, "truncate": 1}


@pytest.mark.parametrize(("verb", "nth"), [(verb, nth + 1) for verb, count in CALLS.items() for nth in range(count)])
@pytest.mark.parametrize("crash", sampled(["power", "kill", "none"], 1))
@HOW
def test_an_error_leaves_the_old_segment_or_the_new_one_and_is_tried_again(
    verb: str, nth: int, crash: str, how: str
) -> None:
    log = to_do(how)
    before, whole = log.all(), sum(log.sealed().values())
    log.store.tick(both(log.now + 20 * SECOND))
    commit(log.store)
    job = log.store.maintenance.take()
    assert job is not None
    log.fs.fail(verb, nth, errno.ENOSPC)
    job.run(lambda: True)
    assert not log.fs.harmless
    log.fs.heal()
    note = log.store.maintenance.done(job, both(log.now))
    assert (note != "") == (job.error is not None)
    if crash != "none":
        getattr(log.fs, {"kill": "kill", "power": "power_cut"}[crash])()
        log.open()
    assert log.all() == before
    assert log.leftovers() == []
    log.maintain(60)
    log.maintain(60)
    assert log.all() == before and sum(log.sealed().values()) < whole * SMALLER[how]


@pytest.mark.parametrize("power", sampled([True, False], 1))
@pytest.mark.parametrize("merges", [False, True])
def test_a_crash_between_any_two_calls_leaves_every_segment_whole(power: bool, merges: bool) -> None:
    class Crash(BaseException):
        pass

    for after in range(1, 200):
        log = Log(FaultyFileSystem(Random(after)), segment_bytes=6_000 if merges else SEGMENT_BYTES)
        log.fill(80 if merges else 40)
        if merges:
            log.history = log.partition.history = True
        else:
            log.settle(*[offset for offset in range(39) if offset % 9])
        before = log.all()
        calls = iter(range(10_000))
        original = log.fs._call

        def call(verb: str, path: str, after: int = after, original: Callable[[str, str], None] = original) -> None:
            if next(calls) == after:  # noqa: B023
                raise Crash
            original(verb, path)

        log.store.tick(both(log.now + 20 * SECOND))
        commit(log.store)
        log.fs._call = call  # type: ignore[method-assign]
        finished = False
        try:
            while (job := log.store.maintenance.take()) is not None:
                job.run(lambda: True)
                log.store.maintenance.done(job, both(log.now))
            finished = True
        except Crash:
            pass
        log.fs._call = original  # type: ignore[method-assign]
        log.fs.power_cut() if power else log.fs.kill()
        log.open()
        found = log.all()
        assert log.leftovers() == []
        assert all(before[offset] == body for offset, body in found.items())
        assert {offset for offset in before if offset not in log.settled} <= set(found)
        if finished:
            assert after > 20 and (not merges or log.batches(0) == [log.partition.segments[1].base_offset])
            return
    raise AssertionError("it never came to an end")


@HOW
def test_a_stop_leaves_nothing_behind(how: str) -> None:
    log = to_do(how)
    before, sizes = log.all(), log.sizes()
    for steps in range(50):
        left = [steps]

        def breathe(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] >= 0

        log.store.tick(both(log.now + 20 * SECOND))
        job = log.store.maintenance.take()
        assert job is not None
        job.run(breathe)
        log.store.maintenance.done(job, both(log.now))
        if not job.stopped:
            assert steps > 2
            break
        assert log.sizes() == sizes and log.leftovers() == [] and log.all() == before


@HOW
def test_retention_waits_for_a_segment_that_is_being_rewritten(how: str) -> None:
    log = to_do(how)
    log.store.tick(both(log.now + 20 * SECOND))
    job = log.store.maintenance.take()
    assert job is not None
    log.partition.configure(replace(log.options, retention_count=1))
    commit(log.store)
    assert 0 in log.sizes()
    job.run(lambda: True)
    log.store.maintenance.done(job, both(log.now))
    commit(log.store)
    assert list(log.sizes()) == [log.partition.segments[-1].base_offset]


@HOW
def test_a_reader_goes_on_through_a_segment_that_is_swapped_under_it(how: str) -> None:
    log = to_do(how)
    before = log.all()
    first = log.partition.fetch(0, 4_000)
    first.run()
    first.done()
    assert first.result is not None
    pending = log.partition.fetch(first.result.next_offset, 4_000)
    log.maintain()
    pending.run()
    pending.done()
    assert pending.result is not None
    place = pending.result.index_at(pending.offset)
    assert pending.result.offsets[place] == pending.offset
    assert pending.result.bodies[place].rstrip(b".") == before[pending.offset]


# --- compaction -------------------------------------------------------------------------------------------------------


def latest(log: Log) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for offset in sorted(log.all()):
        batch = log.partition.read(offset)
        if batch is None:
            job = log.partition.fetch(offset)
            job.run()
            batch = job.result
        assert batch is not None
        place = batch.index_at(offset)
        key = key_of("key")(batch.blocks[place])
        if key is not None:
            found[key] = batch.bodies[place].rstrip(b".")
    return found


def table(log: Log, rounds: int = 20, keys: int = 10) -> dict[bytes, bytes]:
    for number in range(rounds * keys):
        log.put((f"k{number % keys}", b"v%d" % number), size=100)
    return {b"k%d" % key: b"v%d" % (rounds * keys - keys + key) for key in range(keys)}


def lasts(log: Log) -> set[int]:
    return {segment.base_offset - 1 for segment in log.partition.segments[1:]}


@pytest.mark.parametrize("policy", [0, SECOND, None])
def test_the_last_value_of_each_key_is_kept_at_its_offset(policy: int | None) -> None:
    log = Log(compact_by="key", sync=SyncPolicy(policy))
    expected = table(log)
    before, whole = log.all(), log.size
    assert latest(log) == expected
    log.maintain()
    assert log.size < whole / 3
    after = log.all()
    assert latest(log) == expected
    assert all(before[offset] == body for offset, body in after.items())
    active = log.partition.segments[-1].base_offset
    assert set(after) <= lasts(log) | set(range(190, 200)) | set(range(active - 10, 200))
    assert log.maintain() == 0
    log.restart()
    assert latest(log) == expected and log.all() == after


def test_messages_without_a_key_stay() -> None:
    log = Log(compact_by="key")
    for number in range(40):
        log.put(("a", b"a%d" % number), ("", b"plain%d" % number), size=60)
    log.maintain()
    bodies = list(log.all().values())
    assert [body for body in bodies if body.startswith(b"plain")] == [b"plain%d" % number for number in range(40)]
    assert len(bodies) < 60 and b"a39" in bodies


def test_a_tombstone_deletes_its_key_and_goes_a_day_later() -> None:
    log = Log(compact_by="key")
    log.put(("gone", b"value"), size=60)
    log.fill(15)
    log.put(("gone", b""), ("kept", b"1"))
    log.fill(30)
    log.maintain()
    assert b"value" not in log.all().values() and latest(log) == {b"gone": b"", b"kept": b"1"}
    log.fill(30)
    log.maintain(3_600)
    assert latest(log) == {b"gone": b"", b"kept": b"1"}
    log.fill(30)
    log.maintain(86_400)
    assert latest(log) == {b"kept": b"1"}


def test_a_tombstone_stays_while_an_older_value_of_its_key_does() -> None:
    """The last record of a segment is never removed; without its tombstone it would be the value again."""
    log = Log(compact_by="key")
    while len(log.partition.segments) < 2:
        log.put(("k", b"old"), size=150)
    log.put(("k", b""))
    log.fill(30)
    log.maintain(2 * 86_400)
    log.fill(30)
    log.maintain(2 * 86_400)
    assert b"old" in log.all().values(), "it is the last of its segment"
    assert latest(log) == {b"k": b""}


@pytest.mark.parametrize("policy", [3_600 * SECOND, None])
def test_what_is_not_safe_yet_replaces_nothing(policy: int | None) -> None:
    """A later value that a power cut may take must not have taken the earlier one with it."""
    for seed in range(10):
        log = Log(FaultyFileSystem(Random(seed)), compact_by="key", sync=SyncPolicy(policy))
        log.put(("k", b"old"), size=60)
        log.fill(12)
        if policy is not None:  # a part of the active one is on disk, too
            log.now += policy + SECOND
            log.store.tick(both(log.now))
            commit(log.store, log.now)
        log.put(("k", b"new"))
        assert len(log.partition.segments) == 2
        for node in log.fs.nodes.values():  # the sealed one is on disk, whatever the policy
            if node is not log.fs.nodes[layout.segment_path(DIRECTORY, log.partition.segments[-1].base_offset)]:
                node.disk, node.pending = bytearray(node.cache), []
        log.maintain()
        log.unsafe = True
        log.fs.power_cut()
        log.open()
        assert b"k" in latest(log), seed


def test_more_keys_than_memory_take_several_turns() -> None:
    log = Log(compact_by="key", segment_bytes=30_000)
    log.store.maintenance.keys_max = 256
    random = Random(2)
    expected = {}
    for number in range(6_000):
        key = f"k{random.randrange(1_500)}"
        log.put((key, b"v%d" % number))
        expected[key.encode()] = b"v%d" % number
    for _ in range(40):
        log.maintain()
    assert latest(log) == expected
    assert len(log.all()) < 1_500 + 300 + len(log.partition.segments)
    assert log.maintain() == 0


def test_nothing_is_compacted_in_a_log_with_a_queue_or_before_enough_is_new() -> None:
    log = Log(compact_by="key")
    table(log)
    log.partition.retain_from = 0
    assert log.maintain() == 0
    log.partition.retain_from = None
    assert log.maintain() > 0
    log.fill(60)
    log.maintain()
    assert log.maintain() == 0


def test_damage_keeps_tombstones_and_loses_nothing_that_can_be_read() -> None:
    log = Log(compact_by="key")
    log.put(("k", b"old"), size=60)
    log.fill(40)
    log.put(("k", b""))
    log.fill(30)
    path = layout.segment_path(DIRECTORY, 0)
    log.fs.nodes[path].cache[900] ^= 1
    damaged = bytes(log.fs.nodes[path].cache)
    log.maintain(2 * 86_400)
    assert bytes(log.fs.nodes[path].cache) == damaged
    assert b"k" in latest(log) and latest(log)[b"k"] == b""


# --- what is remembered -----------------------------------------------------------------------------------------------


def test_a_segment_remembers_that_it_was_compressed_and_how_much_is_left_of_it() -> None:
    log = Log(reclaim_acked=True, compress="zstd")
    log.fill(60)
    log.settle(*[offset for offset in range(60) if offset % 8])
    log.maintain()
    sealed = log.partition.segments[:-1]
    assert len(sealed) > 3 and {each.state for each in sealed} == {State.COMPRESSED}
    assert all(each.remaining is not None for each in sealed)
    log.settle(*range(50))
    log.maintain()
    log.maintain()
    gone = [each for each in sealed if each not in log.partition.segments]
    assert gone and {each.state for each in gone} == {State.DELETED}


def test_merged_segments_are_deleted_by_retention() -> None:
    log = topic()
    log.fill(500)
    log.maintain()
    sealed = log.partition.segments[:-1]
    assert len(sealed) > 3 and {each.state for each in sealed} == {State.MERGED}
    log.partition.configure(replace(log.options, retention_count=100))
    log.maintain()
    log.maintain()
    assert len(log.sealed()) < 3
    assert {each.state for each in sealed if each not in log.partition.segments} == {State.DELETED}
