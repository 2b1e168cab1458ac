"""What durable subscriptions are about: in the entries of the journal, and in a file that checkpoints replace."""

from __future__ import annotations

import errno
import json
from random import Random

import pytest

from radiator.storage import definitions, layout
from radiator.storage.definitions import DefinitionsJob
from radiator.storage.store import Store
from tests.storage.driving import ALWAYS, NOW, checkpoint, commit, error_of, opened, put
from tests.storage.faults import FaultyFileSystem

FILE = layout.subscriptions_path("/data")
A, B = {"destination": "/topic/a"}, {"destination": "/topic/b"}
SECOND = 1_000_000_000


def in_file(fs: FaultyFileSystem) -> dict[str, object]:
    return {**definitions.decode(bytes(fs.nodes[FILE].cache))} if FILE in fs.nodes else {}


def reopened(fs: FaultyFileSystem, end: str, store: Store) -> dict[str, definitions.Entry]:
    store.close() if end == "stop" else getattr(fs, end)()
    store, notes = opened(fs)
    assert not notes
    return store.definitions.entries


@pytest.mark.parametrize("end", ["kill", "power_cut", "stop"])
@pytest.mark.parametrize("seed", range(4))
def test_what_was_put_is_there_after_its_group(end: str, seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store, _ = opened(fs)
    store.definitions.put("sub:a", A)
    commit(store)
    store.definitions.put("sub:b", B)
    assert error_of(commit(store)) is None and in_file(fs) == {}
    assert store.definitions.stored == {"sub:a": A, "sub:b": B}
    assert reopened(fs, end, store) == {"sub:a": A, "sub:b": B}
    assert in_file(fs) == ({"sub:a": A, "sub:b": B} if end == "stop" else {})


@pytest.mark.parametrize("end", ["kill", "power_cut", "stop"])
@pytest.mark.parametrize("checkpoints", [1, 2, 3])
def test_one_that_is_gone_does_not_come_back_from_files_that_are_to_be_used_again(checkpoints: int, end: str) -> None:
    fs = FaultyFileSystem(Random(checkpoints))
    store, _ = opened(fs)
    store.definitions.put("sub:a", A)
    commit(store)
    checkpoint(store)
    store.definitions.put("sub:a", None)
    store.definitions.put("sub:b", B)
    commit(store)
    for _ in range(checkpoints):
        put(store.partition("p", ALWAYS), b"x")
        checkpoint(store)
    assert in_file(fs) == {"sub:b": B}
    assert reopened(fs, end, store) == {"sub:b": B}


def test_a_name_and_its_cursor_are_in_one_entry() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("p", ALWAYS), b"x")
    commit(store)
    store.cursors.open("sub:a", "p", 0)
    store.definitions.put("sub:a", A)
    number = store.journal.next_entry
    commit(store)
    assert store.journal.next_entry == number + 1
    fs.nodes[store.journal.path(1)].cache[store.journal.position - 12] ^= 1
    fs.kill()
    store, _ = opened(fs)
    assert (store.cursors.names(), store.definitions.entries) == ([], {})


@pytest.mark.parametrize("verb, error", [("pwritev", errno.EIO), ("pwritev", errno.ENOSPC), ("fdatasync", errno.EIO)])
def test_what_the_journal_does_not_take_is_reported_and_stored_later(verb: str, error: int) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    fs.fail(verb, 1, error, under="/journal/")
    store.definitions.put("sub:a", A)
    store.definitions.waiters.append("receipt")
    (job,) = [job for job in commit(store) if isinstance(job, DefinitionsJob)]
    assert job.error is not None and job.waiters == ["receipt"] and store.definitions.stored == {}
    assert not store.definitions.is_stored("sub:a")
    commit(store, NOW + 3 * SECOND)
    assert store.definitions.failed is None and store.definitions.is_stored("sub:a")
    fs.power_cut()
    store, _ = opened(fs)
    assert store.definitions.entries == {"sub:a": A}


def test_what_could_not_be_stored_is_in_the_entry_of_the_next_acks() -> None:
    """Otherwise a start would not know whose acks these are, and delete their cursor."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("p", ALWAYS), b"x")
    commit(store)
    fs.fail("pwritev", 1, errno.EIO, under="/journal/")
    store.definitions.put("sub:a", A)
    assert error_of(commit(store)) is not None
    assert not commit(store)  # by itself it waits
    store.cursors.open("sub:a", "p", 0).ack([0])
    assert error_of(commit(store)) is None
    fs.power_cut()
    store, _ = opened(fs)
    assert store.definitions.entries == {"sub:a": A} and store.cursors.names() == [("sub:a", "p")]


def test_a_file_that_cannot_be_replaced_keeps_the_entries_of_the_journal() -> None:
    fs = FaultyFileSystem(Random(1))
    store, _ = opened(fs)
    store.definitions.put("sub:a", A)
    commit(store)
    fs.fail("rename", 1, errno.EIO, under="subscriptions")
    assert error_of(checkpoint(store)) is not None and in_file(fs) == {}
    fs.power_cut()
    store, _ = opened(fs)
    assert store.definitions.entries == {"sub:a": A}
    checkpoint(store)
    assert in_file(fs) == {"sub:a": A}


@pytest.mark.parametrize("run", [False, True], ids=["only begun", "run"])
def test_a_stop_while_a_checkpoint_is_under_way_takes_no_name(run: bool) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    store.definitions.put("sub:a", A)
    store.journal.wants_checkpoint = True
    commit(store)
    begun = store.checkpoints.take()
    assert begun is not None
    if run:
        begun.run(threads=1)
    assert reopened(fs, "stop", store) == {"sub:a": A}


def test_a_name_that_is_used_again_costs_no_checkpoint_another_file() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    store.definitions.put("sub:a", A)
    checkpoint(store)
    node = fs.nodes[FILE]
    checkpoint(store)
    assert fs.nodes[FILE] is node
    store.definitions.update("sub:a", A | {"used_ns": 1})
    checkpoint(store)
    assert in_file(fs) == {"sub:a": A | {"used_ns": 1}}


def test_changes_that_are_none_are_refused() -> None:
    assert definitions.decode_changes(json.dumps({"a": None, "b": {}}).encode()) == {"a": None, "b": {}}
    for data in (b"", b"[]", b'{"a": 1}', b"{", b"\xff"):
        with pytest.raises(ValueError):
            definitions.decode_changes(data)
