"""What was receipted is kept, whatever dies when: the store against a model, on a file system that lets it down."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from random import Random

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.config import Settings, SyncPolicy
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.reader import list_partitions
from tests.clocks import both
from tests.storage.driving import ALWAYS, NEVER, NOW, answer, appends, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.storage.model import Model
from tests.tiers import sampled

DIRECTORY = layout.partition_path("/data", "q")
SEGMENT = layout.segment_path(DIRECTORY, 0)
HEAD = layout.head_path(DIRECTORY)


@pytest.mark.parametrize("seed", sampled(range(60), 10))
def test_what_was_receipted_is_kept_over_kills_and_power_cuts(seed: int) -> None:
    random = Random(seed)
    fs = FaultyFileSystem(random)
    fs.short_writes = seed % 3 == 0
    model = Model()
    policies = {"a": SyncPolicy(0), "b": SyncPolicy(0), "c": SyncPolicy(None)}
    for life in range(6):
        store, _ = opened(fs)
        model.check(store)
        options = {
            name: Settings(sync=policy, segment_bytes=random.choice([2_000, 128 << 20]))
            for name, policy in policies.items()
        }
        partitions = {name: store.partition(name, options[name]) for name in policies}
        power = random.random() < 0.6
        if random.random() < 0.4:
            fs.fail(random.choice(["fdatasync", "pwritev", "sync_dir", "open"]), random.randrange(1, 12))
        crash_at = random.randrange(1, 14)
        for step in range(14):
            for _ in range(random.randrange(4)):
                name = random.choice("abc")
                body = b"%d.%d.%d." % (seed, life, step) + random.randbytes(random.choice([0, 10, 300]))
                try:
                    model.append(name, partitions[name].append("/queue/x", b"h:1", body, NOW + step), body)
                except StorageError:
                    assert partitions[name].failed is not None
            jobs = store.take(both(NOW + step))
            where = random.choice(["write", "sync", "done"]) if step == crash_at else "on"
            for job in jobs:
                job.write()
                if where == "write" and random.random() < 0.5:
                    break
            if where == "write":
                break
            for job in jobs:
                if job.needs_sync and job.error is None:
                    job.sync()
                if where == "sync" and random.random() < 0.5:
                    break
            if where == "sync":
                break
            for job in jobs:
                job.done(both(NOW + step))
                if job.batch is not None and job.error is None and (job.needs_sync or not power):
                    model.promise(
                        job.partition.name, range(job.batch.base_offset, job.batch.next_offset), job.batch.bodies
                    )
            if where == "done":
                break
        if power:
            fs.power_cut()
            model.promised.pop("c", None)  # `never` promises nothing to those who pull the plug
        else:
            fs.kill()
    store, _ = opened(fs)
    model.check(store)


def small_store(batches: int = 6) -> tuple[FaultyFileSystem, bytes, list[int]]:
    """A file system with one partition, its segment's bytes, and where its batches end."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    ends = []
    for number in range(batches):
        put(partition, *[b"body %d.%d" % (number, each) for each in range(number % 3 + 1)])
        commit(store)
        ends.append(partition.log.position)  # type: ignore[attr-defined]
    store.close()
    return fs, bytes(fs.nodes[SEGMENT].cache), ends


@pytest.mark.parametrize("how", sampled(["cut", "flipped"], 1))
def test_an_offset_that_was_committed_is_never_given_again(how: str) -> None:
    """Whatever became of its bytes: somebody may have read it, and goes on behind it."""
    fs, whole, ends = small_store()
    store, _ = opened(fs)
    everything = read_all(store.partitions["q"])
    counts = [1, 2, 3, 1, 2, 3]
    for at in range(0, len(whole), 7):
        fs, whole, ends = small_store()
        if how == "cut":
            del fs.nodes[SEGMENT].cache[at:]
        else:
            fs.nodes[SEGMENT].cache[at] ^= 0x55
        store, notes = opened(fs)
        partition = store.partitions["q"]
        assert {note.kind for note in notes} <= {"damage", "torn"} and "damage" in {note.kind for note in notes}
        kept = {}
        for number, end in enumerate(ends):
            begin = ends[number - 1] if number else 0
            if (end <= at) or (how == "flipped" and not begin <= at < end):
                first = sum(counts[:number])
                kept.update({offset: everything[offset] for offset in range(first, first + counts[number])})
        assert read_all(partition, memory=False) == kept
        assert put(partition, b"goes on") == [12]
        commit(store)
        fs.kill()
        store, notes = opened(fs)
        assert read_all(store.partitions["q"]) == {**kept, 12: b"goes on"}


def test_a_log_that_lost_all_its_segments_goes_on_behind_them() -> None:
    fs, _, _ = small_store()
    del fs.nodes[SEGMENT]
    store, notes = opened(fs)
    assert [note.kind for note in notes] == ["damage"] and "0 to 11" in str(notes[0])
    partition = store.partitions["q"]
    assert read_all(partition) == {}
    assert put(partition, b"goes on") == [12]
    commit(store)
    fs.kill()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {12: b"goes on"}


def test_foreign_files_beside_the_partitions_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "partitions").mkdir()
    (tmp_path / "partitions" / "README").write_text("mine")
    store, notes = opened(root=str(tmp_path))
    store.close()
    assert [note.kind for note in notes] == ["foreign"] and not store.partitions
    assert list_partitions(str(tmp_path)) == []
    assert (tmp_path / "partitions" / "README").read_text() == "mine"


@pytest.mark.thorough
def test_a_torn_tail_is_cut_at_every_byte() -> None:
    fs, whole, ends = small_store()
    store, _ = opened(fs)
    everything = read_all(store.partitions["q"])
    store.close()
    counts = [1, 2, 3, 1, 2, 3]
    for cut in range(len(whole)):
        fs.nodes[SEGMENT].cache[:] = whole[:cut]
        del fs.nodes[HEAD]  # nothing of it was committed
        store, notes = opened(fs)
        kept = sum(count for count, end in zip(counts, ends, strict=True) if end <= cut)
        partition = store.partitions["q"]
        assert partition.next_offset == kept
        assert read_all(partition) == {offset: everything[offset] for offset in range(kept)}
        torn = cut not in (0, *ends)
        assert [note.kind for note in notes] == (["torn"] if torn else [])
        assert len(fs.nodes[SEGMENT].cache) == max([0, *[end for end in ends if end <= cut]])
        put(partition, b"goes on")
        commit(store)
        assert read_all(partition)[kept] == b"goes on"
        store.close()


def test_a_tail_of_zeros_is_a_clean_end() -> None:
    fs, whole, _ = small_store()
    fs.nodes[SEGMENT].cache[:] = whole + bytes(70_000)
    store, notes = opened(fs)
    assert not notes and store.partitions["q"].next_offset == 12
    assert len(fs.nodes[SEGMENT].cache) == len(whole)


def test_batches_behind_damage_are_kept_and_the_gap_is_reported() -> None:
    for batch, lost in ((0, range(1)), (2, range(3, 6)), (4, range(7, 9))):
        fs, whole, ends = small_store()
        at = ([0, *ends])[batch] + 70
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        fs.nodes[SEGMENT].cache[:] = damaged
        del fs.nodes[layout.index_path(DIRECTORY, 0)]  # so that the whole segment is walked
        store, notes = opened(fs)
        partition = store.partitions["q"]
        assert [(note.kind, note.first_offset, note.last_offset) for note in notes] == [("damage", lost[0], lost[-1])]
        assert partition.next_offset == 12
        assert set(read_all(partition)) == set(range(12)) - set(lost)
        assert fs.nodes[SEGMENT].cache == damaged, "damage is left as it is"
        store.close()


@pytest.mark.parametrize("seed", sampled(range(40), 8))
def test_a_flipped_bit_never_changes_a_body_and_never_refuses_a_start(seed: int) -> None:
    random = Random(seed)
    fs, whole, _ = small_store()
    store, _ = opened(fs)
    everything = read_all(store.partitions["q"])
    store.close()
    for _ in range(20):
        damaged = bytearray(whole)
        place = random.randrange(len(damaged))
        damaged[place] ^= 1 << random.randrange(8)
        fs.nodes[SEGMENT].cache[:] = damaged
        try:
            store, _ = opened(fs)
        except StorageError as error:
            assert "newer" in str(error), error  # the version digit was hit: refused in words
            fs.kill()
            continue
        found = read_all(store.partitions["q"])
        assert found.items() <= everything.items()
        store.close()
        fs.nodes[SEGMENT].cache[:] = whole


def test_caches_may_be_deleted_or_zeroed() -> None:
    for name in ("head", "names", layout.index_path("", 0)[1:]):
        for zeroed in (False, True):
            fs = FaultyFileSystem()
            store, _ = opened(fs)
            partition = store.partition("q", ALWAYS)
            for number in range(40):
                put(partition, b"x" * 4_000, destination=f"/topic/{number % 3}")
                commit(store)
            before = read_all(partition)
            store.close()
            path = f"{DIRECTORY}/{name}"
            if zeroed:
                fs.nodes[path].cache[:] = bytes(len(fs.nodes[path].cache))
            else:
                del fs.nodes[path]
            store, notes = opened(fs)
            partition = store.partitions["q"]
            assert not notes
            assert read_all(partition) == before
            assert partition.destinations.keys() == {"/topic/0", "/topic/1", "/topic/2"}
            head = layout.decode_head(bytes(fs.nodes[f"{DIRECTORY}/head"].cache))
            assert head is not None and head.next_offset == 40


def test_a_wrong_index_costs_time_and_nothing_else() -> None:
    from radiator.storage import index

    fs, whole, ends = small_store()
    lies = [index.IndexEntry(0, 0, NOW), index.IndexEntry(5, ends[0], NOW), index.IndexEntry(9, ends[2] + 8, NOW)]
    path = layout.index_path(DIRECTORY, 0)
    fs.nodes[path].cache[:] = index.encode_head(0) + index.encode_entries(lies)
    store, notes = opened(fs)
    assert not notes and len(read_all(store.partitions["q"])) == 12
    assert bytes(fs.nodes[SEGMENT].cache) == whole


def test_a_failed_sync_is_final_for_its_file_and_for_no_other() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    first, second = store.partition("q", ALWAYS), store.partition("r", ALWAYS)
    put(first, b"kept")
    commit(store)
    put(first, b"lost")
    fs.fail("fdatasync")
    jobs = commit(store)
    error = error_of(jobs)
    assert error is not None and "/data/journal/" in str(error) and "check the disk" in str(error)
    assert str(first.failed) == str(error)
    assert first.high_watermark == 1 and first.next_offset == 1
    with pytest.raises(StorageError):
        put(first, b"refused")
    syncs = fs.nodes["/data/journal/0000000001.rjl"].writes
    put(second, b"goes on")
    assert error_of(commit(store)) is None
    put(first, b"goes on")
    assert error_of(commit(store)) is None
    assert fs.nodes["/data/journal/0000000001.rjl"].writes == syncs, "the kernel would say yes now; we must not ask"
    fs.power_cut()
    store, _ = opened(fs)
    assert read_all(store.partitions["r"]) == {0: b"goes on"}
    assert read_all(store.partitions["q"]) == {0: b"kept", 1: b"goes on"}


def test_what_is_queued_behind_a_failure_fails_as_well_and_its_waiters_hear_of_it() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    put(partition, b"one")
    partition.open_batch.waiters.append("first")
    fs.fail("pwritev", 1, errno.ENOSPC)
    jobs = store.take(both(NOW))
    put(partition, b"two")
    partition.open_batch.waiters.append("second")
    for job in jobs:
        job.write()
        job.done(both(NOW))
    with pytest.raises(StorageError, match="free space"):
        put(partition, b"three")
    failed = appends([*jobs, *commit(store)])
    assert [(job.waiters, job.error is not None) for job in failed] == [(["first"], True), (["second"], True)]
    assert partition.next_offset == partition.high_watermark == 0


def test_a_full_disk_leaves_no_half_record() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    put(partition, b"kept")
    commit(store)
    size = len(fs.nodes[SEGMENT].cache)
    fs.capacity = sum(len(node.cache) for node in fs.nodes.values()) + 100
    put(partition, b"x" * 100_000)
    error = error_of(commit(store))
    assert error is not None and "free space" in str(error)
    assert len(fs.nodes[SEGMENT].cache) == size
    fs.capacity = None
    fs.kill()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {0: b"kept"}


def test_time_does_not_fall_over_a_restart() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("q", ALWAYS), b"one", at=NOW + 3_600_000_000_000)
    commit(store)
    fs.kill()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    put(partition, b"two", at=NOW)
    commit(store)
    assert answer(partition.offset_for_time(NOW + 1)) == 0
    batch = partition.read(1)
    assert batch is not None and batch.receive_ns[-1] == NOW + 3_600_000_000_000


def test_the_broken_broker_that_receipts_before_the_sync_is_caught() -> None:
    """The model must be able to see a lie: with syncs that do nothing, a power cut loses what was promised."""

    class Untruthful(FaultyFileSystem):
        def fdatasync(self, fd: int) -> None:
            pass

    caught = 0
    for seed in range(10):
        fs = Untruthful(Random(seed))
        store, _ = opened(fs)
        model = Model()
        partition = store.partition("q", ALWAYS)
        for number in range(5):
            body = b"body %d" % number
            model.append("q", put(partition, body)[0], body)
            (job,) = appends(commit(store))
            model.promise("q", range(job.batch.base_offset, job.batch.next_offset), job.batch.bodies)
        fs.power_cut()
        store, _ = opened(fs)
        try:
            model.check(store)
        except (AssertionError, KeyError):
            caught += 1
    assert caught


def test_never_keeps_what_was_written_over_a_kill() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    syncs = fs.calls["fdatasync"]
    put(store.partition("q", NEVER), b"one", b"two")
    commit(store)
    assert fs.calls["fdatasync"] == syncs
    fs.kill()
    store, _ = opened(fs)
    assert read_all(store.partitions["q"]) == {0: b"one", 1: b"two"}


@pytest.mark.parametrize("late_after", [0, 3, 7])
def test_a_close_that_is_late_leaves_the_rest_to_the_journal(late_after: int) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    relaxed = Settings(sync=SyncPolicy(NS_PER_SECOND))
    logs = [store.partition(f"q{number}", relaxed if number % 2 else ALWAYS) for number in range(10)]
    for log in logs:
        put(log, b"1")
    commit(store)
    for log in logs:
        put(log, b"2")
    commit(store)
    before, looks = fs.calls["fdatasync"], itertools.count(-1)
    store.close(lambda: next(looks) >= late_after)
    assert fs.calls["fdatasync"] - before < late_after + 3
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes
    assert [read_all(store.partitions[log.name]) for log in logs] == [{0: b"1", 1: b"2"}] * 10
