"""What goes against a cursor's will, what goes as soon as it may, and what stays until an archive has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from radiator.config import Settings
from radiator.errors import StorageError
from radiator.storage import archived
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.storage.test_retention import DIRECTORY, HOUR, filled, on_disk

# --- by force ---------------------------------------------------------------------------------------------------------


def test_forced_retention_ignores_a_cursor_and_reports_to_its_queue_before_deleting() -> None:
    fs, store, partition = filled()
    told: list[tuple[int, list[int]]] = []
    partition.on_forced = lambda start: told.append((start, on_disk(fs)))
    partition.retain_from = 3
    partition.configure(Settings(segment_bytes=400, retention_count=1, retention_force=True))
    commit(store)
    assert told == [(8, [0, 2, 4, 6, 8])]
    assert on_disk(fs) == [8]


def test_forced_retention_reports_no_settled_messages() -> None:
    _, store, partition = filled()
    told: list[int] = []
    partition.on_forced = told.append
    partition.retain_from = 8
    partition.configure(Settings(segment_bytes=400, retention_count=1, retention_force=True, reclaim_acked=False))
    commit(store)
    assert partition.log_start_offset == 8 and told == []


# --- what queues have settled -----------------------------------------------------------------------------------------


def test_what_every_queue_has_settled_goes_in_the_same_turn() -> None:
    fs, store, partition = filled()
    partition.retain_from = 3
    commit(store)
    assert on_disk(fs) == [2, 4, 6, 8]
    partition.retain_from = 4
    commit(store)
    assert on_disk(fs) == [4, 6, 8]
    partition.retain_from = 10
    commit(store)
    assert on_disk(fs) == [8], "the active segment stays"


@pytest.mark.parametrize("why", ["keep", "topics", "nobody"])
def test_history_is_kept_where_it_is_wanted(why: str) -> None:
    fs, store, partition = filled(reclaim_acked=why != "keep")
    if why != "nobody":
        partition.history = why == "topics"
        partition.retain_from = 10
    store.tick(both(NOW + HOUR))
    commit(store, NOW + HOUR)
    assert on_disk(fs) == [0, 2, 4, 6, 8]


def test_an_ack_is_on_disk_before_the_segment_that_it_lets_go_is_deleted() -> None:
    """Else a power cut might leave a cursor that asks for what is gone."""
    fs, store, partition = filled()
    cursor = store.cursors.open("queue:q", "q", 0)
    commit(store)
    commit(store, NOW + HOUR)
    cursor.ack_range(0, 4)
    partition.retain_from = 4
    jobs = store.take(both(NOW))
    for job in jobs:
        job.write()
    assert on_disk(fs) == [0, 2, 4, 6, 8]
    fs.fail("fdatasync")
    for job in jobs:
        if job.needs_sync:
            job.sync()
    assert on_disk(fs) == [0, 2, 4, 6, 8], "the journal could not be synced"
    fs.heal()
    fs.power_cut()
    store, _ = opened(fs)
    again = store.cursors.get("queue:q", "q")
    assert again is not None and again.floor >= store.partitions["q"].log_start_offset


def test_an_active_segment_goes_too_when_all_of_it_is_settled_and_it_is_large() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings())
    for number in range(5):
        put(partition, bytes(1024 * 1024), destination="q")
        commit(store)
        partition.retain_from = number
        store.tick(both(NOW + (number + 1) * HOUR))
        commit(store)
    assert on_disk(fs) == [0], "something is not settled"
    partition.retain_from = 5
    store.tick(both(NOW + 10 * HOUR))
    commit(store)
    commit(store)
    assert on_disk(fs) == [5] and partition.size_bytes == 0
    assert put(partition, b"next", destination="q") == [5]
    commit(store)
    store.close()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q"]) == {5: b"next"}


def test_a_small_settled_segment_is_left_in_peace() -> None:
    fs, store, partition = filled(1)
    partition.configure(Settings())
    partition.retain_from = 2
    store.tick(both(NOW + HOUR))
    commit(store)
    assert on_disk(fs) == [0]


# --- waiting for an archive -------------------------------------------------------------------------------------------


def swept(store: Store, hours: int) -> list[object]:
    store.tick(both(NOW + hours * HOUR))
    errors = [job.error for job in commit(store) + commit(store) if job.error is not None]
    return list(errors)


def test_nothing_goes_that_the_archive_does_not_have() -> None:
    fs, store, partition = filled(retention_count=1, retention_force=True, wait_for_archive=True)
    partition.retain_from = 10
    swept(store, 1)
    assert on_disk(fs) == [0, 2, 4, 6, 8]
    archived.write(fs, DIRECTORY, 5)
    assert archived.read(fs, DIRECTORY) == 5
    swept(store, 2)
    assert on_disk(fs) == [4, 6, 8]
    archived.write(fs, DIRECTORY, 10)
    swept(store, 3)
    assert on_disk(fs) == [8]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: bytes([data[0] ^ 1]) + data[1:]]
)
def test_a_damaged_retention_mark_keeps_everything_and_is_reported_once(damage: Callable[[bytes], bytes]) -> None:
    fs, store, _ = filled(retention_count=1, wait_for_archive=True)
    archived.write(fs, DIRECTORY, 10)
    node = fs.nodes[f"{DIRECTORY}/archived"]
    node.cache[:] = damage(bytes(node.cache))
    (error,) = swept(store, 1)
    assert "archived: damaged" in str(error)
    assert swept(store, 2) == []
    assert on_disk(fs) == [0, 2, 4, 6, 8]
    archived.write(fs, DIRECTORY, 10)
    assert swept(store, 3) == []
    assert on_disk(fs) == [8]


@pytest.mark.parametrize(("told", "left"), [(4, 4), (10, 10), (15, 10)])
def test_a_log_that_lost_its_end_is_not_taken_for_archived_beyond_it(told: int, left: int) -> None:
    fs, store, _ = filled()
    store.close()
    archived.write(fs, DIRECTORY, told)
    store, notes = opened(fs)
    store.close()
    assert [note.kind for note in notes] == ["archived"] * (told > 10)
    assert archived.read(fs, DIRECTORY) == left
    assert opened(fs)[1] == []


def test_where_the_word_of_the_archive_cannot_be_lowered_it_is_taken_away() -> None:
    fs, store, _ = filled()
    store.close()
    archived.write(fs, DIRECTORY, 15)
    fs.fail("rename")
    assert archived.lower(fs, DIRECTORY, 10)
    fs.power_cut()
    assert archived.read(fs, DIRECTORY) == 0


def test_a_damaged_retention_mark_stays_until_the_archiver_writes_it_again() -> None:
    fs, store, _ = filled()
    store.close()
    archived.write(fs, DIRECTORY, 15)
    node = fs.nodes[f"{DIRECTORY}/archived"]
    node.cache[0] ^= 1
    damaged = bytes(node.cache)
    assert opened(fs)[1] == []
    assert bytes(fs.nodes[f"{DIRECTORY}/archived"].cache) == damaged


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_failure_a_mark_without_a_sync_is_the_old_one_the_new_one_or_damaged(seed: int) -> None:
    fs, _, _ = filled()
    archived.write(fs, DIRECTORY, 15)
    assert archived.lower(fs, DIRECTORY, 10)
    syncs = fs.calls["fdatasync"], fs.calls["sync_dir"]
    archived.write(fs, DIRECTORY, 12, synced=False)
    assert (fs.calls["fdatasync"], fs.calls["sync_dir"]) == syncs
    assert archived.read(fs, DIRECTORY) == 12
    fs.random.seed(seed)
    fs.power_cut()
    try:
        assert archived.read(fs, DIRECTORY) in (10, 12)
    except StorageError as error:
        assert "damaged; nothing is removed until it is written again" in str(error)
    archived.write(fs, DIRECTORY, 12, synced=False)
    assert archived.read(fs, DIRECTORY) == 12


@pytest.mark.parametrize("verb", ["open", "pwritev", "fdatasync", "rename", "sync_dir"])
def test_a_word_of_the_archive_is_the_old_one_or_the_new_one(verb: str) -> None:
    fs, _, _ = filled()
    archived.write(fs, DIRECTORY, 4)
    fs.fail(verb)
    with pytest.raises(OSError):
        archived.write(fs, DIRECTORY, 6)
    fs.power_cut()
    assert archived.read(fs, DIRECTORY) in (4, 6)
