"""The removal of whole logs: after a crash at any point each log either exists as it was or is gone."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.journal.format import REMOVED
from radiator.storage.removal import RETRY_EVERY_NS
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import ALWAYS, NEVER, NOW, checkpoint, commit, opened, put, read_all
from tests.storage.faults import Crash, FaultyFileSystem

LOGS = ("q-0", "q-1")
STEPS_MAX = 10  # group commits that a removal takes at most


class Outcome:
    """What ``committed`` of a removal was called with; the cursors go with the logs, as the broker does it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.errors: list[StorageError | None] = []

    def __call__(self, error: StorageError | None) -> None:
        self.errors.append(error)
        if error is None:
            for name in LOGS:
                self.store.cursors.delete("queue:q", name)


def filled(fs: Any, settings: Any = ALWAYS) -> Store:
    """A store with two logs of three messages, of which a cursor has settled one each, and another log."""
    store, _ = opened(fs)
    for name in LOGS:
        put(store.partition(name, settings), b"a", b"b", b"c")
        store.cursors.open("queue:q", name, 0).ack([0])
    put(store.partition("other", ALWAYS), b"stays")
    commit(store)
    return store


def remove(store: Store) -> Outcome:
    outcome = Outcome(store)
    store.remove([store.partitions[name] for name in LOGS], outcome)
    return outcome


def drive(store: Store) -> None:
    for _ in range(STEPS_MAX):
        if store.removals.names:
            commit(store)


def run_checkpoint(store: Store, now_ns: int) -> None:
    """Run a checkpoint that has begun: the cursors may need one."""
    begun = store.checkpoints.take()
    if begun is not None:
        begun.run(threads=1)
        store.checkpoints.done(begun)
        commit(store, both(now_ns))


def check_whole_or_gone(store: Store) -> bool:
    """Return whether the logs are gone. All of them are whole, with their cursors, or none is there."""
    names = {name for name in LOGS if name in store.partitions}
    cursors = {name: store.cursors.get("queue:q", name) for name in LOGS}
    assert read_all(store.partitions["other"]) == {0: b"stays"}
    if not names:
        assert not any(cursors.values())
        return True
    assert names == set(LOGS)
    for name in LOGS:
        assert read_all(store.partitions[name]) == {0: b"a", 1: b"b", 2: b"c"}
        cursor = cursors[name]
        assert cursor is not None and cursor.floor == 1
    return False


def files_of(fs: FaultyFileSystem) -> list[str]:
    return [path for path in fs.nodes if "/q-" in path or "/removed" in path or path.endswith("/removals")]


def test_a_removed_log_leaves_no_file_no_cursor_and_no_name() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    tail = store.facts()["tail_bytes"]
    outcome = remove(store)
    assert store.removals.names == set(LOGS)
    drive(store)
    assert outcome.errors == [None] and not store.removals.names
    commit(store)
    assert not files_of(fs) and list(store.partitions) == ["other"] and list(store.cursors.names()) == []
    assert store.facts()["tail_bytes"] < tail
    store.close()
    assert not fs.descriptors


def test_the_name_begins_again_at_offset_0_and_a_start_does_not_mix_the_two_logs() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    remove(store)
    drive(store)
    assert put(store.partition("q-0", ALWAYS), b"new") == [0]
    commit(store)
    fs.kill()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q-0"]) == {0: b"new"} and "q-1" not in store.partitions
    fs.kill()  # again, with the journal of two runs
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["q-0"]) == {0: b"new"}


def test_messages_of_the_next_log_that_are_only_in_the_journal_are_restored() -> None:
    fs = FaultyFileSystem(Random(1))
    store = filled(fs)
    remove(store)
    drive(store)
    put(store.partition("q-0", ALWAYS), b"new")
    commit(store)
    for path in [path for path in fs.nodes if "/q-0/" in path]:  # nothing of its segment was synced
        del fs.nodes[path]
    fs.kill()
    store, _ = opened(fs)
    assert read_all(store.partitions["q-0"]) == {0: b"new"}


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("settings", [ALWAYS, pytest.param(NEVER, marks=pytest.mark.thorough)], ids=["always", "never"])
def test_after_a_crash_at_any_call_the_logs_are_whole_or_gone(power: bool, settings: Any) -> None:
    seen = set()
    for nth in range(1, 200):
        fs = FaultyFileSystem(Random(nth))
        store = filled(fs, settings)
        if settings is NEVER:
            checkpoint(store)  # else a power cut may take messages, which is no question of the removal
        remove(store)
        fs.crash_at(nth)
        try:
            drive(store)
            commit(store)
        except Crash:
            pass
        else:
            break
        (fs.power_cut if power else fs.kill)()
        store, _ = opened(fs)
        gone = check_whole_or_gone(store)
        seen.add(gone)
        if gone:
            drive(store)
            assert not store.removals.names
            for name in LOGS:
                store.cursors.delete("queue:q", name)
                assert put(store.partition(name, ALWAYS), b"new") == [0]
            commit(store)
            (fs.power_cut if power else fs.kill)()
            store, _ = opened(fs)
            assert [read_all(store.partitions[name]) for name in LOGS] == [{0: b"new"}] * 2
            assert not [path for path in files_of(fs) if "/removed" in path or path.endswith("/removals")]
    assert seen == {False, True} and nth > 15


@pytest.mark.parametrize("verb", ["open", "pwritev", "fdatasync", "rename", "sync_dir", "remove", "mkdir", "rmdir"])
@pytest.mark.parametrize(
    "error", [errno.ENOSPC, pytest.param(errno.EIO, marks=pytest.mark.thorough)], ids=["ENOSPC", "EIO"]
)
def test_a_failing_call_keeps_the_logs_or_is_tried_again_until_they_are_gone(verb: str, error: int) -> None:
    for nth in range(1, 8):
        fs = FaultyFileSystem()
        store = filled(fs)
        outcome = remove(store)
        fs.fail(verb, nth, error)
        now_ns = NOW
        for _ in range(STEPS_MAX):
            commit(store, both(now_ns))
            run_checkpoint(store, now_ns)
            if store.removals.failed is not None:
                assert any("removal" in text for text in store.failures())
            now_ns += RETRY_EVERY_NS
            store.tick(both(now_ns))
        assert not store.removals.names and len(outcome.errors) == 1
        fs.heal()
        if outcome.errors[0] is not None:
            assert not check_whole_or_gone(store)
            put(store.partitions["q-0"], b"d")
            commit(store, both(now_ns))
            assert read_all(store.partitions["q-0"])[3] == b"d"
        else:
            assert check_whole_or_gone(store)


def test_no_directory_is_moved_while_a_checkpoint_syncs_files_by_name() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    store.journal.wants_checkpoint = True
    commit(store)
    begun = store.checkpoints.take()
    assert begun is not None
    outcome = remove(store)
    for _ in range(4):
        commit(store)
    assert outcome.errors == [None] and store.removals.names  # it is gone, and its directory is still in its place
    begun.run(threads=1)
    store.checkpoints.done(begun)
    commit(store)
    drive(store)
    assert not store.removals.names and not files_of(fs)


def test_a_removal_is_noted_in_the_journal_only_once_and_a_clean_stop_needs_it_no_more() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    remove(store)
    drive(store)
    store.close()
    assert not [path for path in fs.nodes if path.startswith(layout.journal_path("/data"))]
    store, notes = opened(fs)
    assert not notes and list(store.partitions) == ["other"]


def test_a_damaged_list_of_removals_is_reported_and_nothing_is_removed() -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    store.close()
    fd = fs.open(layout.removals_path("/data"), create=True)
    fs.pwritev(fd, [b"radiator removals 1 00000000\n{}\n"], 0)
    fs.close(fd)
    store, notes = opened(fs)
    assert [note.kind for note in notes] == ["removals"] and not check_whole_or_gone(store)


def test_a_log_with_unwritten_messages_is_not_removable() -> None:
    store = filled(FaultyFileSystem())
    partition = store.partitions["q-0"]
    assert partition.is_removable  # type: ignore[attr-defined]
    put(partition, b"d")
    assert not partition.is_removable  # type: ignore[attr-defined]
    commit(store)
    assert partition.is_removable  # type: ignore[attr-defined]


assert REMOVED == 4  # docs/storage-format.md


def test_no_directory_is_moved_while_maintenance_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    busy = True
    monkeypatch.setattr(store.removals, "_release", lambda _: not busy)
    outcome = remove(store)
    for _ in range(4):
        commit(store)
    assert outcome.errors == [None] and store.removals.names and store.dirty
    busy = False
    drive(store)
    assert not store.removals.names and not files_of(fs)


@pytest.mark.parametrize("times", [1, 2])
def test_a_list_of_removals_that_may_be_on_the_disk_is_written_again_before_anything_is_decided(times: int) -> None:
    fs = FaultyFileSystem()
    store = filled(fs)
    outcome = remove(store)
    fs.fail("rename", under="/removals", times=times)
    fs.fail("sync_dir")  # so it is not known whether the file is there
    commit(store)
    assert not outcome.errors and store.removals.failed is not None and store.removals.names == set(LOGS)
    now_ns = NOW
    for _ in range(STEPS_MAX):
        now_ns += RETRY_EVERY_NS
        store.tick(both(now_ns))
        commit(store, both(now_ns))
    assert store.removals.failed is None and not store.removals.names
    assert check_whole_or_gone(store) == (outcome.errors == [None]) == (times == 1)


@pytest.mark.parametrize("when", ["at a start", "in a run"])
def test_the_next_log_of_a_name_does_not_get_a_cursor_whose_deletion_is_not_stored(when: str) -> None:
    """The snapshot cannot be written, and the journal takes no changes of cursors until there is one."""
    fs = FaultyFileSystem()
    store = filled(fs)
    if when == "at a start":
        remove(store)
        commit(store)
        assert any(path.endswith("/removals") for path in fs.nodes)
    fs.kill()
    fs.fail("pwritev", error=errno.ENOSPC, under="/cursors/snapshot", times=1_000)
    store, _ = opened(fs)
    assert store.cursors.failed is not None
    if when == "in a run":
        remove(store)
    drive(store)
    assert store.removals.names == set(LOGS), "no log of these names may begin"
    fs.kill()
    store, _ = opened(fs)
    now = both(NOW + RETRY_EVERY_NS)
    commit(store, now)
    assert not store.removals.names
    put(store.partition(LOGS[0], ALWAYS), b"next")
    assert store.cursors.open("queue:q", LOGS[0], 0).floor == 0
    commit(store, now)
    fs.kill()
    store, _ = opened(fs)
    cursor = store.cursors.get("queue:q", LOGS[0])
    assert cursor is not None and not cursor.is_acked(0)
