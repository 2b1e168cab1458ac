"""The cursors' files cut, flipped, zeroed and deleted: nothing unacknowledged is skipped, and no more comes again than
must."""

from __future__ import annotations

import errno
import gc
from copy import deepcopy
from functools import cache
from random import Random

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.errors import StorageError
from radiator.storage import cursor_records as journal
from radiator.storage.journal.format import FILE_HEADER_BYTES
from radiator.storage.store import Store
from tests.storage.driving import ALWAYS, NEVER, NOW, checkpoint, commit, opened, put, read_all
from tests.storage.faults import Crash, FaultyFileSystem

DIRECTORY = "/data/cursors"
SNAPSHOT = f"{DIRECTORY}/snapshot"
COPY = f"{DIRECTORY}/snapshot.copy"
DELIVERED = f"{DIRECTORY}/delivered"
MESSAGES = 60
CURSORS = ["queue:a", "queue:b"]

Acked = dict[str, list[int]]


def acked(store: Store) -> Acked:
    """What each cursor has settled; a cursor that is gone begins at the start, as the broker lets it."""
    found = {}
    for name in CURSORS:
        cursor = store.cursors.open(name, "q", 0)
        found[name] = [offset for offset in range(MESSAGES) if cursor.is_acked(offset)]
    return found


def built() -> tuple[FaultyFileSystem, Acked, list[tuple[int, Acked]]]:
    """A copy of the killed store."""
    fs, before, steps = killed()
    return deepcopy(fs), before, steps


@cache
def killed() -> tuple[FaultyFileSystem, Acked, list[tuple[int, Acked]]]:
    """A killed store: half of the acks are in the snapshot, half in the journal. What was acked then, and what with
    each entry of the journal (where it ends in the file; the first is that of the new file)."""
    random = Random(3)
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("q", ALWAYS), *[b"x"] * MESSAGES)
    commit(store)
    cursors = [store.cursors.open(name, "q", 0) for name in CURSORS]
    for _ in range(6):
        for cursor in cursors:
            cursor.ack(random.sample(range(MESSAGES), 3))
        commit(store)
    checkpoint(store)
    before = acked(store)
    steps = [(FILE_HEADER_BYTES, before)]
    for _ in range(6):
        for cursor in cursors:
            cursor.ack(random.sample(range(MESSAGES), 3))
        cursors[0].set_count(random.randrange(MESSAGES), 2)
        commit(store)
        steps.append((store.journal.position, acked(store)))
    fs.kill()
    del fs.nodes[store.journal.path(1)]  # which was to be used again
    del store
    gc.collect()  # and with it the mapping of the file ``delivered``
    return fs, before, steps


def journal_of(fs: FaultyFileSystem) -> str:
    return max(path for path in fs.nodes if path.endswith(".rjl"))


def reopened(fs: FaultyFileSystem) -> tuple[Store, list[str]]:
    store, notes = opened(fs)
    return store, [str(note) for note in notes]


@pytest.mark.thorough
def test_a_journal_cut_at_every_byte_keeps_the_entries_before_the_cut() -> None:
    fs, before, steps = built()
    path = journal_of(fs)
    data = bytes(fs.nodes[path].cache)
    ends = [begin + 32 + int.from_bytes(data[begin + 8 : begin + 12], "little") for begin, _ in steps[:-1]]
    for cut in range(FILE_HEADER_BYTES, steps[-1][0] + 1):
        fs, _, _ = built()
        del fs.nodes[path].cache[cut:]
        store, _ = reopened(fs)
        entries = len([end for end in ends if end <= cut])  # what pads an entry to 8 bytes may be missing
        assert acked(store) == steps[entries][1]
    assert steps[0][1] == before


@pytest.mark.thorough
def test_a_bit_flipped_in_the_journal_costs_the_acks_of_its_entry() -> None:
    fs, before, steps = built()
    path, everything = journal_of(fs), steps[-1][1]
    for at in range(FILE_HEADER_BYTES, steps[-1][0]):
        fs, _, _ = built()
        fs.nodes[path].cache[at] ^= 1 << at % 8
        store, _ = reopened(fs)
        hit = next(number for number, each in enumerate(steps) if each[0] > at)
        for name, found in acked(store).items():
            assert set(before[name]) <= set(found) <= set(everything[name])
            lost = set(steps[hit][1][name]) - set(steps[hit - 1][1][name])
            assert set(everything[name]) - set(found) <= lost


@pytest.mark.parametrize("how", ["deleted", "zeroed", "garbage", "cut", "empty"])
@pytest.mark.parametrize("which", [SNAPSHOT, COPY])
def test_one_snapshot_that_is_lost_costs_nothing(which: str, how: str) -> None:
    fs, _, steps = built()
    spoil(fs, which, how)
    store, notes = reopened(fs)
    assert acked(store) == steps[-1][1]
    assert bool(notes) == (which == SNAPSHOT)
    assert fs.nodes[SNAPSHOT].cache == fs.nodes[COPY].cache
    store.close()
    store, notes = reopened(fs)
    assert not notes and acked(store) == steps[-1][1]


@pytest.mark.thorough
def test_a_snapshot_cut_at_every_byte_costs_nothing() -> None:
    fs, _, steps = built()
    for cut in range(len(fs.nodes[SNAPSHOT].cache)):
        fs, _, _ = built()
        del fs.nodes[SNAPSHOT].cache[cut:]
        store, _ = reopened(fs)
        assert acked(store) == steps[-1][1]


@pytest.mark.parametrize("how", ["deleted", "zeroed", "garbage"])
def test_without_both_snapshots_the_acks_of_the_journal_are_those_of_cursors_that_it_created(how: str) -> None:
    """Nothing is skipped: those that only the snapshots knew begin anew."""
    fs, _, _ = built()
    spoil(fs, SNAPSHOT, how)
    spoil(fs, COPY, how)
    store, notes = reopened(fs)
    assert acked(store) == {name: [] for name in CURSORS}
    assert any("start again" in note for note in notes)


@pytest.mark.parametrize("how", ["deleted", "zeroed", "garbage"])
def test_without_the_journal_exactly_the_acks_since_the_snapshot_are_lost(how: str) -> None:
    fs, before, _ = built()
    spoil(fs, journal_of(fs), how)
    store, _ = reopened(fs)
    assert acked(store) == before


@pytest.mark.parametrize("how", ["deleted", "zeroed", "garbage", "cut", "empty"])
def test_what_may_have_been_delivered_decides_about_a_mark_only(how: str) -> None:
    fs, _, steps = built()
    spoil(fs, DELIVERED, how)
    store, notes = reopened(fs)
    assert not notes and acked(store) == steps[-1][1]
    store.cursors.open(CURSORS[0], "q", 0).ack(range(MESSAGES))
    commit(store)
    fs.kill()
    store, _ = reopened(fs)
    assert acked(store)[CURSORS[0]] == list(range(MESSAGES))


def spoil(fs: FaultyFileSystem, path: str, how: str) -> None:
    cache = fs.nodes[path].cache
    if how == "deleted":
        del fs.nodes[path]
    elif how == "zeroed":
        cache[:] = bytes(len(cache))
    elif how == "garbage":
        cache[:] = Random(5).randbytes(len(cache))
    else:
        del cache[0 if how == "empty" else len(cache) // 2 :]


@pytest.mark.parametrize("generation, used", [(4, True), (5, True), (6, False)])
def test_beside_the_journal_of_an_earlier_version_an_older_copy_is_not_used(generation: int, used: bool) -> None:
    """It would know of acks above an end of the log that has been set back since."""
    fs, _, _ = built()
    for path in [path for path in fs.nodes if path.endswith(".rjl") or path == SNAPSHOT]:
        del fs.nodes[path]
    created = journal.create(1, 0, 7, CURSORS[0], "q")
    fs.nodes[COPY].cache[:] = journal.snapshot(5, [created])
    fd = fs.open(f"{DIRECTORY}/journal-{generation:010d}", create=True)
    fs.pwritev(fd, [journal.block([journal.acked(1, [(7, 9)])])], 0)
    fs.close(fd)
    store, notes = reopened(fs)
    assert any(("copy" if used else "start again") in note for note in notes)
    assert len(acked(store)[CURSORS[0]]) == (0 if not used else 9 if generation == 5 else 7)
    assert sorted(fs.listdir(DIRECTORY)) == ["delivered", "snapshot", "snapshot.copy"]


def test_two_cursors_of_one_slot_are_given_one_each() -> None:
    fs, _, _ = built()
    records = [journal.create(number, 5, 0, name, "q") for number, name in enumerate(CURSORS, 1)]
    data = journal.snapshot(9, [*records, journal.create(3, 1 << 31, 0, "queue:c", "q")])
    for path in (SNAPSHOT, COPY):
        fs.nodes[path].cache[:] = data
    store, _ = reopened(fs)
    cursors = [store.cursors.open(name, "q", 0) for name in [*CURSORS, "queue:c"]]
    for number, cursor in enumerate(cursors):
        cursor.delivered = number
    assert [cursor.delivered for cursor in cursors] == [0, 1, 2]


def test_a_file_that_only_looks_like_a_journal_refuses_no_start() -> None:
    fs, _, steps = built()
    for name in ("journal-", "journal-x", "journal-²", "journal-99999999999999999999999", "journal-1"):
        fs.close(fs.open(f"{DIRECTORY}/{name}", create=True))
    store, _ = reopened(fs)
    assert acked(store) == steps[-1][1]


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_that_a_start_has_used_outlives_a_power_cut(seed: int) -> None:
    """The process ends with the last sync of a checkpoint: that of the name of the snapshot."""
    fs = FaultyFileSystem(Random(seed))
    store, _ = opened(fs)
    put(store.partition("p", ALWAYS), b"0", b"1")
    cursor = store.cursors.open("queue:q", "p", 0)
    checkpoint(store)
    store.cursors.fail(StorageError("the journal takes no changes"))
    cursor.ack([0])
    fs.fail("sync_dir", 2, under="/cursors", fatal=True)
    with pytest.raises(Crash):
        for seconds in (10, 20):
            checkpoint(store, NOW + seconds * NS_PER_SECOND)
    fs.kill()
    for _ in range(2):
        store, _ = opened(fs)
        found = store.cursors.get("queue:q", "p")
        assert found is not None and found.floor == 1
        fs.power_cut()


def lose_messages(fs: FaultyFileSystem) -> None:
    """Kill the broker, and remove the segments and the journal, but not the cursors."""
    fs.kill()
    for path in [each for each in fs.nodes if each.endswith((".rlog", "/head", ".rjl"))]:
        del fs.nodes[path]


def test_offsets_that_a_cursor_has_settled_are_not_given_again_before_that_is_undone() -> None:
    """The log has lost its end, and there is no room for a snapshot that says so."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("p", NEVER), b"0", b"1")
    store.cursors.open("queue:q", "p", 0).ack([0, 1])
    checkpoint(store)
    lose_messages(fs)
    fs.fail("pwritev", error=errno.ENOSPC, under="/cursors/snapshot")
    with pytest.raises(StorageError, match="free space"):
        opened(fs)
    fs.kill()
    store, _ = opened(fs)
    put(store.partition("p", NEVER), b"other", b"more")
    commit(store)
    fs.kill()
    store, _ = opened(fs)
    cursor = store.cursors.get("queue:q", "p")
    assert cursor is not None and cursor.floor == 0 and len(read_all(store.partitions["p"])) == 2


def test_the_note_about_a_snapshot_without_room_names_its_directory_once() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("p", NEVER), b"0")
    store.cursors.open("queue:q", "p", 0).ack([0])
    commit(store)
    fs.kill()
    fs.fail("pwritev", error=errno.ENOSPC, under="/cursors/snapshot")
    store, notes = opened(fs)
    (note,) = map(str, notes)
    path = store.cursors.directory
    assert note.startswith(f"{path}: cannot write the snapshot: ") and note.count(path) == 1


def test_a_delivery_count_of_a_lost_message_is_not_that_of_the_next_one() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("p", NEVER), b"0", b"1")
    store.cursors.open("queue:q", "p", 0).set_count(1, 7)
    for _ in range(2):
        checkpoint(store)
    lose_messages(fs)
    store, _ = opened(fs)
    put(store.partition("p", NEVER), b"other", b"more")
    commit(store)
    fs.kill()
    store, _ = opened(fs)
    cursor = store.cursors.get("queue:q", "p")
    assert cursor is not None and not cursor.counts
