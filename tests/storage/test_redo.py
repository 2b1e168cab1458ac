"""A start appends what the journal has and the segments lack: many small batches at once, and byte for byte."""

from __future__ import annotations

import errno
import re
from random import Random

import pytest

from radiator import limits
from radiator.clock import WallNs
from radiator.config import Settings, SyncPolicy
from radiator.errors import StorageError
from radiator.storage.batch import RecordBatch
from radiator.storage.format import decode
from radiator.storage.journal.reading import JournalFiles
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, checkpoint, commit, opened, put, read_all
from tests.storage.faults import Crash, FaultyFileSystem
from tests.tiers import sampled

LOGS = "abc"


def segments(fs: FaultyFileSystem) -> dict[str, bytes]:
    return {path: bytes(node.cache) for path, node in fs.nodes.items() if path.endswith(".rlog")}


def filled(fs: FaultyFileSystem, groups: int = 40) -> dict[str, dict[int, bytes]]:
    """Many batches of one to three messages in three logs; what is in them. The last stores several destinations."""
    store, _ = opened(fs)
    for number in range(groups):
        for name in LOGS:
            bodies = [b"%d.%d" % (number, each) for each in range(1 + number % 3)]
            put(store.partition(name, ALWAYS), *bodies, at=NOW + number, destination=name)
        put(store.partition("c", ALWAYS), b"other", at=NOW + number, destination=f"other{number % 5}")
        commit(store, NOW + number)
    return {name: read_all(store.partitions[name]) for name in LOGS}


def opened_again(fs: FaultyFileSystem) -> Store:
    store, notes = opened(fs)
    assert not [note for note in notes if note.kind == "damage"]
    return store


def test_what_a_power_cut_has_taken_is_written_again_as_it_was() -> None:
    fs = FaultyFileSystem()
    expected, before = filled(fs), segments(fs)
    fs.power_cut()
    assert segments(fs) != before
    store = opened_again(fs)
    assert {name: read_all(store.partitions[name], memory=False) for name in LOGS} == expected
    after = segments(fs)
    assert {path: after[path][: len(data)].rstrip(b"\0") for path, data in before.items()} == {
        path: data.rstrip(b"\0") for path, data in before.items()
    }
    assert store.restored == sum(map(len, expected.values()))


def test_small_batches_that_follow_one_another_are_written_at_once() -> None:
    fs = FaultyFileSystem()
    filled(fs)
    fs.power_cut()
    calls: list[str] = []
    pwritev = fs.pwritev

    def counted(fd: int, pieces: object, position: int) -> int:
        path = fs.descriptors[fd][0]
        calls.extend([path] * path.endswith(".rlog"))
        return pwritev(fd, pieces, position)

    fs.pwritev = counted  # type: ignore[method-assign]
    opened_again(fs)
    assert len(calls) == len(set(calls)) == len(LOGS)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_batches_that_cannot_be_written_wait_and_are_served(code: int) -> None:
    fs = FaultyFileSystem()
    expected = filled(fs)
    fs.power_cut()
    fs.fail("pwritev", error=code, times=1_000, under="/partitions/b")
    store, notes = opened(fs)
    assert any("wait until they can be written" in note.text for note in notes)
    assert {name: read_all(store.partitions[name]) for name in LOGS} == expected
    fs.heal()
    for seconds in range(3, 12, 3):
        now = both(NOW + seconds * 1_000_000_000)
        store.tick(now)
        commit(store, now)
    assert {name: read_all(store.partitions[name], memory=False) for name in LOGS} == expected


def test_a_log_that_has_some_of_the_batches_gets_the_others() -> None:
    fs = FaultyFileSystem()
    expected = filled(fs)
    fs.kill()
    for path, node in fs.nodes.items():
        if path.endswith(".rlog"):
            del node.cache[len(node.cache.rstrip(b"\0")) // 2 :]
    store = opened_again(fs)
    assert {name: read_all(store.partitions[name], memory=False) for name in LOGS} == expected


def test_what_is_lost_before_a_batch_that_the_journal_makes_good_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of a batch that passed the journal by, and is lost, is filled with the one that came behind it."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("a", Settings(sync=SyncPolicy(None)))
    ends = []
    for number, passes_by in enumerate((False, True, False, True)):
        monkeypatch.setattr(limits, "JOURNAL_PASSED_BYTES_MIN", 1 if passes_by else limits.MIB)
        put(log, b"%d" % number * 100, b"more", destination="a")
        commit(store)
        ends.append(log.segments[-1].size_bytes)
    (path,) = segments(fs)
    fs.kill()
    fs.nodes[path].cache[ends[0] : ends[2]] = bytes(ends[2] - ends[0])
    store, notes = opened(fs)
    (told,) = [note for note in notes if "are lost" in note.text]
    assert (told.kind, told.first_offset, told.last_offset) == ("damage", 2, 3)
    assert read_all(store.partitions["a"]) == {
        0: b"0" * 100, 1: b"more", 4: b"2" * 100, 5: b"more", 6: b"3" * 100, 7: b"more"
    }  # fmt: skip


@pytest.mark.parametrize("damaged", range(6))
@pytest.mark.parametrize("left", ["nothing", "no bytes", "half", "zeros", "noise behind a batch"])
def test_a_damaged_entry_costs_its_messages_though_the_segment_is_lost_too(left: str, damaged: int) -> None:
    """The head is newer than what a power failure has left of the segment."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    ends = []
    for number in range(6):
        put(store.partition("a", Settings()), b"%d" % number, destination="a")
        commit(store)
        ends.append(store.partitions["a"].segments[-1].size_bytes)
    (path,) = segments(fs)
    (journal,) = [each for each in fs.nodes if each.endswith(".rjl")]
    fs.kill()
    data, stored = fs.nodes[journal].cache, fs.nodes[path].cache
    data[[found.start() for found in re.finditer(b"\x89RDB1", bytes(data))][damaged] + 70] ^= 1
    kept = {"half": 3, "noise behind a batch": 1}.get(left, 0)
    if left == "nothing":
        del fs.nodes[path]
        fs.nodes.pop(path.replace(".rlog", ".idx"), None)
    elif left in ("no bytes", "half"):
        del stored[ends[kept - 1] if kept else 0 :]
    else:
        at = ends[kept - 1] if kept else 0
        stored[at:] = (b"\0" if left == "zeros" else b"noise!!!") * ((len(stored) - at) // len(b"noise!!!"))
    for node in [fs.nodes[each] for each in (journal, path) if each in fs.nodes]:
        node.disk = bytes(node.cache)
        node.pending.clear()
    expected = {number: b"%d" % number for number in range(6) if number != damaged or number < kept}
    if damaged > kept:
        fs.fail("pwritev", error=errno.ENOSPC, nth=2, under="/partitions/")
        with pytest.raises(StorageError, match="No space left"):
            opened(fs)
        fs.heal()
    store, notes = opened(fs)
    assert read_all(store.partitions["a"]) == expected
    lost = [(each.first_offset, each.last_offset) for each in notes if " lost" in each.text]
    assert ((damaged, damaged) in lost) == (damaged >= kept)
    put(store.partitions["a"], b"next", destination="a")
    commit(store)
    for _ in range(2):
        fs.power_cut()
        store, _ = opened(fs)
        assert read_all(store.partitions["a"], memory=False) == expected | {6: b"next"}


def spoil(random: Random, fs: FaultyFileSystem) -> None:
    """Damages or removes some of the files of the journal and segments, as the disk has them."""
    for path in [each for each in fs.nodes if each.endswith((".rjl", ".rlog"))]:
        node = fs.nodes[path]
        at, how = random.randrange(len(node.cache)), random.choice(["nothing", "flip", "cut", "zeros", "remove"])
        if how == "flip":
            node.cache[at] ^= 1 << random.randrange(8)
        elif how == "cut":
            del node.cache[at:]
        elif how == "zeros":
            end = min(len(node.cache), at + random.randrange(1, 3_000))
            node.cache[at:end] = bytes(end - at)
        elif how == "remove":
            del fs.nodes[path]
        node.disk = bytes(node.cache)
        node.pending.clear()


@pytest.mark.parametrize("seed", sampled(range(60), 12))
def test_all_that_the_journal_has_is_served_whatever_is_damaged(seed: int) -> None:
    random = Random(seed)
    fs = FaultyFileSystem(random)
    store, _ = opened(fs, journal_file_bytes=random.choice([3_000, limits.JOURNAL_FILE_BYTES]))
    stored: list[bytes] = []
    for number in range(random.randrange(2, 30)):
        bodies = [b"%d.%d" % (number, each) + bytes(random.choice([0, 900])) for each in range(random.randrange(1, 4))]
        put(store.partition("a", Settings()), *bodies, destination=random.choice("ab"))
        stored += bodies
        commit(store)
    fs.kill()
    spoil(random, fs)
    served = {
        offset
        for data in JournalFiles(fs, store.root).batches("a", 0, len(stored))
        for offset in RecordBatch(*decode(data)[1]).offsets
    }
    store, _ = opened(fs)
    found = read_all(store.partition("a", Settings()), memory=False)
    assert served <= found.keys() and all(stored[offset] == body for offset, body in found.items())
    put(store.partitions["a"], b"next", destination="a")
    commit(store)
    found[store.partitions["a"].next_offset - 1] = b"next"
    for _ in range(2):
        fs.kill()
        store, _ = opened(fs)
        assert read_all(store.partitions["a"], memory=False) == found


def test_a_file_ends_after_so_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOURNAL_FILE_BATCHES", 10)
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for _ in range(10):
        put(store.partition("a", Settings()), b"x", destination="a")
        commit(store)
    assert sum("/journal/" in path for path in fs.nodes) == 1
    for _ in range(31):
        assert not store.checkpoints_behind
        put(store.partition("a", Settings()), b"x", destination="a")
        commit(store)
    assert store.checkpoints_behind, "nobody has run the checkpoints that it asked for"


def out_of_order(fs: FaultyFileSystem) -> Store:
    """A store whose journal has the second of two batches before both: a checkpoint has copied them.

    It has released the files that had them, but the newest of these is still there, and read.
    """
    store, _ = opened(fs, journal_file_bytes=64 * limits.KIB)
    log, other = store.partition("a", ALWAYS), store.partition("b", ALWAYS)
    put(log, b"0")
    commit(store)
    fs.fail("pwritev", under="/a/", error=errno.ENOSPC)
    put(log, b"1")
    commit(store)
    later = both(NOW + 10**10)
    store.tick(later)
    commit(store, later)
    assert log.failed is None and log.postponed
    fs.fail("pwritev", under="/a/", error=errno.ENOSPC)
    put(log, b"2", at=NOW + 10**10)
    put(other, bytes(60 * limits.KIB), at=NOW + 10**10)  # for another file of the journal
    commit(store, later)
    assert [batch.base_offset for batch in log.postponed] == [1, 2] and store.journal.file_number == 2
    checkpoint(store, later)
    assert store.journal.file_number == 3 and len(fs.listdir(store.journal.directory)) == 2
    parts = [part for entry in JournalFiles(fs, "/data").entries() for part in entry.parts if part.partition == "a"]  # type: ignore[arg-type]
    assert [part.header.base_offset for part in parts] == [2, 1, 2]
    return store


def test_batches_are_appended_in_the_order_of_their_offsets() -> None:
    fs = FaultyFileSystem()
    out_of_order(fs)
    fs.kill()
    store = opened_again(fs)
    assert read_all(store.partitions["a"], memory=False) == {0: b"0", 1: b"1", 2: b"2"}


def test_ids_outlive_a_power_cut_and_a_start_that_is_killed() -> None:
    """Messages with ids are in the journal only, and the first start ends when it has written them to a segment."""
    settings = Settings()
    identity = b"0123456789abcdef"
    for nth in range(1, 60):
        fs = FaultyFileSystem(Random(nth))
        store, _ = opened(fs)
        log = store.partition("a", settings)
        put(log, b"first")
        log.remember(identity, 0)
        commit(store)
        fs.power_cut()
        fs.crash_at(nth)
        try:
            opened(fs, identify=lambda name, block: identity)
        except Crash:
            pass
        fs.kill()
        store, _ = opened(fs, identify=lambda name, block: identity)
        log = store.partition("a", settings)
        assert read_all(log) == {0: b"first"} and log.find_duplicate(identity, WallNs(NOW)) == 0


@pytest.mark.parametrize("in_journal", [False, True])
@pytest.mark.parametrize("removed", [False, True])
def test_a_log_without_segments_does_not_call_lost_what_retention_may_have_removed(
    removed: bool, in_journal: bool
) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("a", Settings(segment_bytes=1_000 if removed else limits.MIB))
    for number in range(4):
        put(log, b"%d" % number * 400, destination="a")
        commit(store)
    store.close()
    if in_journal:
        store, _ = opened(fs)
        put(store.partition("a", ALWAYS), b"last", destination="a")
        commit(store)
    fs.kill()
    for path in segments(fs):
        del fs.nodes[path]
    store, notes = opened(fs)
    (note,) = [note for note in notes if note.kind == "damage"]
    assert (note.first_offset, note.last_offset) == (0, 3), "their ids are forgotten"
    assert ("apart from those below 3 that retention had removed" in note.text) == removed
    assert read_all(store.partitions["a"]) == ({4: b"last"} if in_journal else {})
