"""Named cursors outlive the process, and a receipt of an ACK is a promise."""

from __future__ import annotations

import errno
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from radiator import limits
from radiator.config import SyncPolicy
from radiator.errors import StorageError
from radiator.storage import cursor_records, cursor_snapshot, cursor_store, layout
from radiator.storage.cursor import Cursor, ranges
from radiator.storage.cursor_store import SYNC_WITHIN_NS, CursorJob
from radiator.storage.journal.checkpoint import BeginJob
from radiator.storage.journal.journal import ROOM_BYTES
from radiator.storage.store import Store
from tests.clocks import both, deadline
from tests.storage.driving import ALWAYS, NOW, checkpoint, commit, error_of, opened, put
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled

SNAPSHOT = "/data/cursors/snapshot"
SECOND = 1_000_000_000


def filled(fs: FaultyFileSystem) -> Store:
    """A store with a log that is long enough for the cursors over it: one ahead of its log is set back."""
    store, notes = opened(fs)
    assert not notes
    put(store.partition("p", ALWAYS), *[b""] * 1_000)
    commit(store)
    return store


def reported(jobs: list[Any]) -> CursorJob:
    """The one of these jobs that is about cursors."""
    (job,) = [job for job in jobs if isinstance(job, CursorJob)]
    return job


def test_a_cursor_comes_back_as_it_was() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursor = store.cursors.open("queue:/queue/a", "p", 3)
    assert cursor.stored and cursor.floor == 3 == cursor.delivered
    cursor.ack([3, 4, 9])
    cursor.set_count(6, 2)
    cursor.delivered = 12
    commit(store)
    for how in ("kill", "close"):
        fs.kill() if how == "kill" else store.close()
        store, notes = opened(fs)
        again = store.cursors.open("queue:/queue/a", "p", 777)
        assert not notes
        assert (again.floor, again.intervals, again.counts, again.delivered) == (5, [(9, 10)], {6: 2}, 12)
    assert store.cursors.names() == [("queue:/queue/a", "p")]
    assert store.cursors.get("queue:/queue/a", "p") is again
    assert store.cursors.get("queue:/queue/a", "q") is None


def test_delivered_survives_a_kill_without_any_call() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursors = [store.cursors.open(f"c{number}", "p", 0) for number in range(3)]
    commit(store)
    before = fs.calls.copy()
    for number, cursor in enumerate(cursors):
        cursor.delivered = number + 100
    assert fs.calls == before
    fs.kill()
    store, _ = opened(fs)
    assert [store.cursors.open(f"c{number}", "p", 0).delivered for number in range(3)] == [100, 101, 102]


def test_a_deleted_cursor_is_gone_and_its_place_starts_afresh() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursor = store.cursors.open("a", "p", 0)
    cursor.delivered = 50
    cursor.ack([0])
    commit(store)
    store.cursors.delete("a")
    other = store.cursors.open("b", "p", 7)
    assert other.delivered == 7
    cursor.ack([1])  # whoever still holds it does no harm
    commit(store)
    fs.kill()
    store, _ = opened(fs)
    assert store.cursors.names() == [("b", "p")]
    assert store.cursors.open("a", "p", 4).floor == 4


def test_a_receipt_waits_for_the_sync_and_other_acks_are_synced_soon() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursor = store.cursors.open("a", "p", 0)
    commit(store)
    cursor.ack([0])
    job = reported(commit(store))
    assert not job.needs_sync and deadline(store, NOW) == NOW + SYNC_WITHIN_NS
    syncs = fs.calls["fdatasync"]
    cursor.ack([1])
    store.cursors.waiters.append("receipt")
    job = reported(commit(store))
    assert job.needs_sync and job.waiters == ["receipt"] and fs.calls["fdatasync"] == syncs + 1
    assert store.cursors.waiters == [] and deadline(store, NOW) is None
    cursor.ack([2])
    commit(store)
    job = reported(commit(store, NOW + SYNC_WITHIN_NS))
    assert job.needs_sync and fs.calls["fdatasync"] == syncs + 2
    assert commit(store) == []


def test_a_receipt_for_an_ack_that_changed_nothing_still_covers_what_went_before() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursor = store.cursors.open("a", "p", 0)
    cursor.ack([0])
    commit(store)
    cursor.ack([0])
    store.cursors.waiters.append("receipt")
    job = reported(commit(store))
    assert job.needs_sync and job.waiters == ["receipt"]


def test_a_cursor_whose_rule_never_syncs_delays_no_receipt() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursor = store.cursors.open("a", "p", 0, SyncPolicy(None))
    commit(store)
    commit(store, NOW + SYNC_WITHIN_NS)
    cursor.ack([0])
    store.cursors.waiters.append("receipt")
    job = reported(commit(store, NOW + SYNC_WITHIN_NS))
    assert not job.needs_sync


def waiting_for_a_snapshot(fs: FaultyFileSystem) -> Store:
    """A sync of the journal has failed, so a receipt of two acks waits."""
    store = filled(fs)
    cursor = store.cursors.open("a", "p", 0)
    cursor.ack([0])
    commit(store)  # and not synced
    fs.fail("fdatasync", 1, under="/journal/")
    cursor.ack([1])
    store.cursors.waiters.append("receipt")
    jobs = commit(store)
    assert store.cursors.failed is not None and not any(job.waiters for job in jobs)
    assert not any(job.waiters for job in commit(store)) and store.cursors.waiters == ["receipt"]
    return store


def test_after_a_failed_sync_receipts_wait_for_a_snapshot() -> None:
    fs = FaultyFileSystem()
    store = waiting_for_a_snapshot(fs)
    now = deadline(store, NOW) or 0
    assert NOW < now <= NOW + 5 * SECOND
    assert not any(job.waiters for job in checkpoint(store, now)[:-1])
    assert store.cursors.failed is None
    assert reported(commit(store, now)).waiters == ["receipt"]
    fs.power_cut()
    store, _ = opened(fs)
    assert store.cursors.open("a", "p", 0).floor == 2


@pytest.mark.parametrize("place", ["/cursors/", "/journal/"])
def test_receipts_that_wait_for_a_snapshot_are_refused_if_there_is_none(place: str) -> None:
    fs = FaultyFileSystem()
    store = waiting_for_a_snapshot(fs)
    fs.fail("pwritev", 1, errno.EIO, under=place)
    (failed,) = [job for job in checkpoint(store, NOW + 5 * SECOND) if job.waiters]
    assert failed.error is not None and failed.waiters == ["receipt"]
    assert store.cursors.failed is not None and store.cursors.waiters == []
    checkpoint(store, NOW + 10 * SECOND)
    assert store.cursors.failed is None


def test_acks_that_the_journal_does_not_take_are_in_the_next_snapshot() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursor = store.cursors.open("a", "p", 0)
    commit(store)
    cursor.ack([0])
    fs.fail("pwritev", 1, errno.EIO)
    assert error_of(commit(store)) is not None
    cursor.ack([1])
    commit(store)
    checkpoint(store, NOW + 5 * SECOND)
    assert store.cursors.failed is None
    cursor.ack([2])
    store.cursors.waiters.append("receipt")
    assert reported(commit(store, NOW + 5 * SECOND)).waiters == ["receipt"]
    fs.power_cut()
    store, _ = opened(fs)
    assert store.cursors.open("a", "p", 0).floor == 3


def test_acks_are_stored_though_the_messages_of_their_group_are_not() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursor = store.cursors.open("a", "p", 0)
    commit(store)
    fs.fail("pwritev", 1, errno.ENOSPC, under="/journal/")
    put(store.partition("p", ALWAYS), b"no room")
    cursor.ack([0])
    store.cursors.waiters.append("receipt")
    jobs = commit(store)
    assert error_of([job for job in jobs if job.batch is not None]) is not None
    assert reported(jobs).error is None and reported(jobs).waiters == ["receipt"]
    fs.power_cut()
    store, _ = opened(fs)
    assert store.cursors.open("a", "p", 0).floor == 1


def test_a_start_over_a_full_disk_is_not_refused_and_makes_up_for_it_when_there_is_room() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    store.cursors.open("a", "p", 0).ack([0, 1])
    commit(store)
    for _ in range(2):
        fs.kill()
        fs.capacity = sum(len(node.cache) for node in fs.nodes.values())
        store, notes = opened(fs)
        assert "No space left" in str(notes[0])
        cursor = store.cursors.open("a", "p", 0)
        assert cursor.floor == 2 and store.cursors.failed is not None
    cursor.ack([2])
    commit(store)
    fs.capacity = None
    now = deadline(store, NOW) or 0
    assert now <= NOW + 5_000_000_000
    checkpoint(store, now)
    assert store.cursors.failed is None
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and store.cursors.open("a", "p", 0).floor == 3


def test_a_snapshot_and_the_entries_behind_it_are_all_there_is() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    cursors = [store.cursors.open(f"c{number}", "p", 0) for number in range(5)]
    for number in range(200):
        cursors[number % 5].ack([number * 2])
        cursors[number % 5].set_count(number * 2 + 1, 2)
        commit(store)
        if number % 60 == 59:
            checkpoint(store)
    assert sorted(fs.listdir("/data/cursors")) == ["delivered", "snapshot", "snapshot.copy"]
    before = [state_of(cursor) for cursor in cursors]
    fs.kill()
    store, notes = opened(fs)
    assert not notes
    assert [state_of(store.cursors.open(f"c{number}", "p", 0)) for number in range(5)] == before


def state_of(cursor: Cursor) -> tuple[int, list[tuple[int, int]], dict[int, int]]:
    return cursor.floor, cursor.intervals, dict(cursor.counts)


@pytest.mark.parametrize("seed", sampled(range(20), 4))
def test_a_snapshot_that_is_encoded_in_slices_has_the_state_of_its_begin(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_store, "SLICE_BYTES", 150)
    random = Random(seed)
    fs = FaultyFileSystem(random)
    store = filled(fs)
    decided: list[bool] = []

    def settle(cursor: Cursor, offsets: list[int], stored: object) -> None:
        if stored and seed % 2:
            cursors.decided(cursor, ranges(offsets))
        elif stored:
            cursor.ack(offsets)
        decided.append(bool(stored))

    cursors = store.cursors
    for number in range(20):
        cursors.open(f"c{number}", "p", 0)
    snapshots = made = 0
    for step in range(400):
        name = f"c{random.randrange(25)}"
        cursor = cursors.get(name, "p")
        match random.randrange(6):
            case 0 if cursor is not None:
                cursors.delete(name)
            case 1:
                cursors.open(name, "p", random.randrange(10))
            case 2 if cursor is not None:
                offset = random.randrange(cursor.ceiling, 950)
                cursor.set_count(offset, 2)
            case 3 if cursor is not None:
                put(store.partition("p", ALWAYS), b"")
                acked = [random.randrange(500)]
                store.together([store.partition("p", ALWAYS)], [(cursor, acked)], partial(settle, cursor, acked))
            case _:
                for each in random.sample(cursors.names(), 3):
                    found = cursors.get(*each)
                    assert found is not None
                    found.ack([random.randrange(900)])
        if step % 40 == 0:
            fs.fail("rename", 1, errno.EIO, under="/cursors/")  # that of the next snapshot
        store.journal.wants_checkpoint |= step % 7 == 0
        now = both(NOW + step * SECOND)
        jobs = store.take(now)
        begins = any(isinstance(job, BeginJob) for job in jobs)
        expected = {each: state_of(found) for each in cursors.names() if (found := cursors.get(*each)) is not None}
        for job in jobs:
            job.write()
        for job in jobs:
            if job.needs_sync and job.error is None:
                job.sync()
        for job in jobs:
            job.done(now)
        made += len(jobs)
        checkpoint_begun = store.checkpoints.take()
        if checkpoint_begun is None:
            assert not begins
            continue
        checkpoint_begun.run(threads=1)
        store.checkpoints.done(checkpoint_begun)
        if checkpoint_begun.snapshot_error is None:
            snapshots += 1
            found_states = {}
            for state in cursor_snapshot.read(fs, "/data/cursors", 0).states.values():  # type: ignore[arg-type]
                again = Cursor(state.floor)
                for start, stop in state.changes:
                    again.ack_range(start, stop)
                left = {at: count for at, count in state.counts.items() if not again.is_acked(at)}
                found_states[state.name, state.partition] = again.floor, again.intervals, left
            assert found_states == expected
    assert snapshots >= 3 and made > 300 and True in decided
    while cursors.failed is not None:
        step += 1
        checkpoint(store, NOW + step * SECOND)
    commit(store, NOW + step * SECOND)
    expected = {each: state_of(found) for each in cursors.names() if (found := cursors.get(*each)) is not None}
    fs.kill()
    store, _ = opened(fs)
    assert {each: state_of(store.cursors.open(*each, 0)) for each in store.cursors.names()} == expected


def test_no_turn_encodes_more_than_a_slice_of_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_store, "SLICE_BYTES", 2_000)
    fs = FaultyFileSystem()
    store = filled(fs)
    for number in range(1_000):
        store.cursors.open(f"c{number}", "p", 0)
    commit(store)
    encoded = 0
    create = cursor_records.create

    def counted(*args: Any) -> bytes:
        nonlocal encoded
        encoded += 1
        return create(*args)

    monkeypatch.setattr(cursor_records, "create", counted)
    store.journal.wants_checkpoint = True
    turns = [encoded]
    for number in range(100):
        store.cursors.open(f"c{number}", "p", 0).ack([number])
        commit(store)
        turns.append(encoded)
        if (begun := store.checkpoints.take()) is not None:
            break
        assert (deadline(store, NOW) or NOW) < NOW, "the next turn goes on, whether or not somebody asks for it"
    else:
        pytest.fail("no snapshot")
    begun.run(threads=1)
    assert encoded >= 1_000 - 100
    assert max(after - before for before, after in pairwise(turns)) <= 2_000 // len(create(1, 1, 0, "c1", "p")) + 1
    fs.kill()
    store, notes = opened(fs)
    assert not notes and len(store.cursors.names()) == 1_000


def test_a_damaged_snapshot_is_reported_and_start_is_not_refused() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    store.cursors.open("a", "p", 0).ack([0])
    commit(store)
    store.close()
    store, _ = opened(fs)  # folds the journal into a snapshot
    store.close()
    fs.nodes[SNAPSHOT].cache[:] = bytes(len(fs.nodes[SNAPSHOT].cache))
    store, notes = opened(fs)
    assert [note.kind for note in notes] == ["cursors"]
    cursor = store.cursors.open("a", "p", 0)
    cursor.ack([0, 1])
    commit(store)
    store.close()
    store, notes = opened(fs)
    assert not notes and store.cursors.open("a", "p", 0).floor == 2


def settled_by(cursor: Cursor) -> set[int]:
    return {offset for offset in range(300) if cursor.is_acked(offset)}


@pytest.mark.parametrize("seed", sampled(range(40), 8))
def test_what_was_receipted_is_acked_for_ever(seed: int) -> None:
    random = Random(seed)
    fs = FaultyFileSystem(random)
    fs.short_writes = seed % 3 == 0
    promised: dict[str, set[int]] = {"a": set(), "b": set()}
    acked: dict[str, set[int]] = {"a": set(), "b": set()}
    filled(fs)
    fs.kill()
    for _ in range(6):
        store, _ = opened(fs)
        cursors = {name: store.cursors.open(name, "p", 0) for name in promised}
        for name, cursor in cursors.items():
            settled = settled_by(cursor)
            assert promised[name] <= settled <= acked[name]
            promised[name] |= settled  # seen by readers: it must not come back
        if random.random() < 0.4:
            fs.fail(random.choice(["fdatasync", "pwritev", "rename", "sync_dir", "open"]), random.randrange(1, 10))
        for step in range(random.randrange(1, 15)):
            name = random.choice("ab")
            offsets = random.sample(range(300), random.randrange(1, 6))
            cursors[name].ack(offsets)
            acked[name] |= set(offsets)
            if random.random() < 0.5:
                store.cursors.waiters.append(name)
            everything = {each: settled_by(cursor) for each, cursor in cursors.items()}
            commits = checkpoint if random.random() < 0.3 else commit
            for job in commits(store, NOW + step * SECOND):
                if job.error is None and job.waiters:
                    for each in acked:
                        promised[each] |= everything[each]
        if random.random() < 0.6:
            fs.power_cut()
        else:
            fs.kill()


def test_there_is_room_for_so_many_and_then_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CURSORS_MAX", 3)
    store = filled(FaultyFileSystem())
    for number in range(3):
        store.cursors.open(str(number), "p", 0)
    with pytest.raises(StorageError, match="3 cursors is the limit"):
        store.cursors.open("one more", "p", 0)
    store.cursors.delete("1", "p")
    store.cursors.open("one more", "p", 0)


def test_a_cursor_ahead_of_a_log_that_lost_its_end_is_set_back() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    store.cursors.open("a", "p", 0).ack(range(1_000))
    commit(store)
    store.close()
    path = layout.segment_path(layout.partition_path("/data", "p"), 0)
    fs.nodes[path].cache.clear()
    del fs.nodes[layout.head_path(layout.partition_path("/data", "p"))]
    store, notes = opened(fs)
    assert [note.kind for note in notes] == ["cursors"] and "set to the end" in str(notes[0])
    assert store.cursors.open("a", "p", 0).floor == 0, "those offsets are going to be given to new messages"


# --- deletion ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "kill", "power"])
def test_what_is_deleted_stays_deleted_and_may_begin_again(end: str) -> None:
    fs = FaultyFileSystem(Random(1))
    store, _ = opened(fs)
    put(store.partition("p", ALWAYS), *[b"x"] * 10)
    commit(store)
    for name in ("never used", "used", "again", "other"):
        store.cursors.open(name, "p", 0).ack([0, 1, 5])
    commit(store)
    for name in ("never used", "used", "again"):
        store.cursors.delete(name)
    again = store.cursors.open("again", "p", 7)
    again.ack([8])
    store.cursors.waiters.append("receipt")
    commit(store)
    for _ in range(2):
        if end == "close":
            store.close()
        elif end == "kill":
            fs.kill()
        else:
            fs.power_cut()
        store, notes = opened(fs)
        assert not notes
        assert sorted(store.cursors.names()) == [("again", "p"), ("other", "p")]
        again, other = store.cursors.get("again", "p"), store.cursors.get("other", "p")
        assert again is not None and (again.floor, again.intervals) == (7, [(8, 9)])
        assert other is not None and (other.floor, other.intervals) == (2, [(5, 6)])
        assert store.cursors.get("used", "p") is None


def test_a_deletion_is_synced_soon_without_a_receipt() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    store.cursors.open("a", "p", 0)
    commit(store)
    commit(store, NOW + SYNC_WITHIN_NS)
    store.cursors.delete("a")
    commit(store, NOW + 1_000_000_000)
    due = deadline(store, NOW + 1_000_000_000)
    assert due is not None and due <= NOW + 1_000_000_000 + SYNC_WITHIN_NS
    commit(store, due)
    fs.power_cut()
    store, _ = opened(fs)
    assert store.cursors.names() == []


def test_using_a_deleted_cursor_changes_no_other() -> None:
    store, _ = opened(FaultyFileSystem())
    old = store.cursors.open("old", "p", 0)
    store.cursors.delete("old")
    new = store.cursors.open("new", "p", 3)
    old.delivered = 99
    old.ack([0, 1])
    old.set_count(5, 2)
    assert new.delivered == 3 and old.delivered == 99
    commit(store)
    assert (new.floor, new.counts) == (3, {})
    assert not old.stored


def test_all_partitions_of_a_name_are_deleted_or_one() -> None:
    store, _ = opened(FaultyFileSystem())
    for partition in "pqr":
        for name in ("a", "b"):
            store.cursors.open(name, partition, 0)
    store.cursors.delete("a", "q")
    store.cursors.delete("a", "q")
    store.cursors.delete("not there")
    assert sorted(store.cursors.names()) == [("a", "p"), ("a", "r"), ("b", "p"), ("b", "q"), ("b", "r")]
    store.cursors.delete("a")
    assert sorted(store.cursors.names()) == [("b", "p"), ("b", "q"), ("b", "r")]


def test_thousands_of_names_that_come_and_go_leave_nothing() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for number in range(3_000):
        store.cursors.open(f"queue:{number}", "p", 0)
        if number >= 10:
            store.cursors.delete(f"queue:{number - 10}")
        if number % 100 == 0:
            commit(store)
    commit(store)
    assert len(store.cursors.names()) == 10 and store.cursors._next_slot <= 11
    fs.kill()
    store, _ = opened(fs)
    assert len(store.cursors.names()) == 10


def test_of_two_of_one_name_the_later_holds() -> None:
    """A deletion stood in an entry that was damaged; the creation behind it did not."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("p", ALWAYS), *[b"x"] * 10)
    store.cursors.open("a", "p", 1)
    commit(store)
    before = store.journal.position
    store.cursors.delete("a")
    commit(store)
    store.cursors.open("a", "p", 5)
    commit(store)
    fs.nodes[store.journal.path(1)].cache[before + 20] ^= 1
    for damaged in (True, False):
        fs.kill()
        store, notes = opened(fs)
        assert bool(notes) is damaged
        cursor = store.cursors.get("a", "p")
        assert cursor is not None and cursor.floor == 5
        checkpoint(store)
        fs.nodes.pop("/data/journal/0000000001.rjl", None)  # which was to be used again
    assert len(store.cursors._facts) == 1


def test_acks_are_stored_on_a_disk_that_is_full() -> None:
    """The journal has room ahead; when that is used up an ACK's receipt is refused, and a snapshot makes up for it."""
    fs = FaultyFileSystem()
    store = filled(fs)
    cursor = store.cursors.open("a", "p", 0)
    commit(store)
    fs.capacity = sum(len(node.cache) for node in fs.nodes.values())
    written = 0
    cursor.ack([3])
    while not any(job.error for job in commit(store)):
        written += 40
        cursor.set_count(5, written)
    assert written > ROOM_BYTES // 2
    fs.kill()
    fs.capacity = None
    store, _ = opened(fs)
    found = store.cursors.get("a", "p")
    assert found is not None and found.is_acked(3) and found.counts[5] >= written - 40


def test_a_stop_stores_the_acks_that_a_failed_sync_has_left_in_doubt() -> None:
    fs = FaultyFileSystem()
    store = waiting_for_a_snapshot(fs)
    store.close()
    store, _ = opened(fs)
    assert store.cursors.open("a", "p", 0).floor == 2


def test_nothing_is_removed_for_acks_in_a_file_of_the_journal_whose_sync_has_failed() -> None:
    fs = FaultyFileSystem()
    store = waiting_for_a_snapshot(fs)
    with pytest.raises(StorageError, match="cannot sync"):
        store._sync_acks([], None, store.journal.sync_error)


def test_cursors_of_which_a_change_is_not_stored_are_not_reported_as_stored() -> None:
    """Their later changes need no entry of the journal, so that no write fails: the next snapshot will have them."""
    fs = FaultyFileSystem()
    store = waiting_for_a_snapshot(fs)
    with pytest.raises(StorageError, match="cannot sync"):
        store.store_cursors(both(NOW))
    assert error_of(checkpoint(store, NOW + 5 * SECOND)) is None
    store.store_cursors(both(NOW + 5 * SECOND))
    fs.power_cut()
    store, _ = opened(fs)
    assert store.cursors.open("a", "p", 0).floor == 2
