"""A start appends what the journal has and the segments lack: many small batches at once, and byte for byte."""

from __future__ import annotations

import errno

import pytest

from radiator import limits
from radiator.config import Settings, SyncPolicy
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

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
