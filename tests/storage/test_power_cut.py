"""The power fails at every single call to the file system: what was promised is there, and every name that it needs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from radiator.config import Settings
from radiator.storage import layout
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

SMALL = Settings(segment_bytes=1_000, retention_count=8)
VERBS = ["open", "pwritev", "fdatasync", "truncate", "rename", "remove", "mkdir", "sync_dir"]


class PowerFailed(BaseException):
    """No error that anybody handles."""


class Failing(FaultyFileSystem):
    """The power fails in place of the ``at``-th call that changes something."""

    def __init__(self, random: Random, at: int) -> None:
        super().__init__(random)
        self.left = at
        self.dead = False

    def _call(self, verb: str, path: str) -> None:
        super()._call(verb, path)
        if self.dead:
            raise PowerFailed  # a clean-up on the way out does nothing any more
        if verb in VERBS:
            self.left -= 1
            if not self.left:
                self.dead = True
                raise PowerFailed


class Promises:
    """What was told to clients: bodies by partition and offset, acks by cursor."""

    def __init__(self) -> None:
        self.bodies: dict[str, dict[int, bytes]] = {}
        self.acked: set[int] = set()


def life(fs: FaultyFileSystem, number: int, promises: Promises) -> None:
    """Begins partitions, rolls, drops by retention, adds names, acks, and stops."""
    store, _ = opened(fs)
    check(store, promises)
    rolling, plain = store.partition("rolling", SMALL), store.partition("plain", ALWAYS)
    cursor = store.cursors.open("queue:plain", "plain", 0)
    for step in range(6):
        sent: list[tuple[str, int, bytes]] = []
        for name, partition in (("rolling", rolling), ("plain", plain), (f"new{number}{step}", None)):
            body = b"%d.%d." % (number, step) + b"x" * 200
            target = partition if partition is not None else store.partition(name, ALWAYS)
            (offset,) = put(target, body, destination=f"/topic/{step}", at=NOW + 1_000 * number + step)
            sent.append((name, offset, body))
        if number + step:
            cursor.ack([6 * number + step - 1])
            store.cursors.waiters.append("receipt")
        jobs = commit(store, NOW + 1_000 * number + step)
        assert all(job.error is None for job in jobs)
        for name, offset, body in sent:
            promises.bodies.setdefault(name, {})[offset] = body
        if number + step:
            promises.acked.add(6 * number + step - 1)
    store.tick(both(NOW + 20_000_000_000 * (number + 1)))
    commit(store, NOW + 20_000_000_000 * (number + 1))
    store.close()


def check(store: Any, promises: Promises) -> None:
    for name, promised in promises.bodies.items():
        partition = store.partitions[name]
        found = read_all(partition)
        for offset, body in promised.items():
            assert found.get(offset) == body or (name == "rolling" and offset < partition.log_start_offset + 8), name
        assert {f"/topic/{step}" for step in range(6)} >= partition.destinations.keys()
        for offset in promised.keys() & found.keys():
            assert found[offset] == promised[offset]
    cursor = store.cursors.get("queue:plain", "plain")
    assert not promises.acked or cursor is not None
    assert all(cursor.is_acked(offset) for offset in promises.acked)
    names = {"rolling", "plain"} & promises.bodies.keys()
    for name in names:
        assert layout.names_path(layout.partition_path("/data", name)) in store.fs.nodes, "no list of names is lost"


def calls_of_two_lives() -> int:
    fs = Failing(Random(0), -1)
    promises = Promises()
    life(fs, 0, promises)
    fs.power_cut()
    life(fs, 1, promises)
    return -1 - fs.left


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12)]])
def test_the_power_may_fail_at_every_call(seed: int) -> None:
    calls = calls_of_two_lives()
    assert calls > 200
    for at in range(1, calls):
        fs = Failing(Random(1_000 * seed + at), at)
        promises = Promises()
        number = 0
        for _ in range(3):
            try:
                life(fs, number, promises)
                number += 1
            except PowerFailed:
                fs.power_cut()
                fs.dead, fs.left = False, -1
                store, notes = opened(fs)
                check(store, promises)
                assert {note.kind for note in notes} <= {"torn", "damage", "cursors", "journal"}
                fs.kill()
                break
            fs.power_cut()


def test_a_build_that_forgets_to_sync_directories_is_caught() -> None:
    """The test above can fail: names that were promised upon are gone."""

    class Forgetful(Failing):
        def sync_dir(self, path: str) -> None:
            self._call("sync_dir", path)
            if path == "/" or path == "/data":
                super().sync_dir(path)

    caught = 0
    for at in range(5, 200, 5):
        fs = Forgetful(Random(at), at)
        promises = Promises()
        try:
            life(fs, 0, promises)
        except PowerFailed:
            pass
        fs.power_cut()
        fs.dead, fs.left = False, -1
        try:
            store, _ = opened(fs)
            check(store, promises)
        except (AssertionError, KeyError):
            caught += 1
    assert caught
