"""A sweep: what has moved is looked at soon, everything in the end, and only so much of it at a time."""

from __future__ import annotations

from typing import Any

from radiator.config import Settings
from radiator.storage import sweep
from radiator.storage.partition import Agenda
from radiator.storage.sweep import EVERY_NS, OTHERS_MAX, TICK_PARTITIONS_MAX, Sweep
from tests.clocks import both
from tests.storage.driving import NOW, commit, opened, put
from tests.storage.faults import FaultyFileSystem

COUNT = 25_000


class Partition:
    def __init__(self, number: int) -> None:
        self.name = f"p{number}"


def made(count: int) -> tuple[Sweep, Any, list[Any]]:
    every: list[Any] = [Partition(number) for number in range(count)]
    agenda = Agenda()
    return Sweep({each.name: each for each in every}, agenda), agenda, every


def test_a_tick_looks_at_so_many_partitions_and_no_more() -> None:
    sweep, agenda, every = made(COUNT)
    agenda.sweep_candidates.update(dict.fromkeys(every))
    looked = [sweep.take(NOW + tick) for tick in range(COUNT // TICK_PARTITIONS_MAX + 5)]
    assert max(map(len, looked)) == TICK_PARTITIONS_MAX
    assert [each for few in looked for each in few] == every, "all of them, once"


def test_what_has_moved_comes_first_and_the_others_have_their_turn_in_the_end() -> None:
    sweep, agenda, every = made(COUNT)
    moved, seen = every[-1], dict[Any, int]()
    for number in range(COUNT // OTHERS_MAX):
        agenda.sweep_candidates[moved] = None
        looked = [each for tick in range(3) for each in sweep.take(NOW + number * EVERY_NS + tick)]
        assert looked[0] is moved and len(looked) <= OTHERS_MAX + 1
        for each in looked:
            seen[each] = seen.get(each, 0) + 1
    assert seen.keys() == set(every) and seen[moved] >= COUNT // OTHERS_MAX
    assert max(count for each, count in seen.items() if each is not moved) == 1


def test_a_removed_partition_is_not_scanned() -> None:
    partitions = {each.name: each for each in made(3)[2]}
    sweep = Sweep(partitions, Agenda())
    first = next(iter(partitions.values()))
    sweep._begin()
    del partitions[first.name]
    assert first not in sweep.take(NOW)


def test_a_store_looks_at_few_of_many_partitions(monkeypatch: Any) -> None:
    monkeypatch.setattr(sweep, "OTHERS_MAX", 2)
    store, _ = opened(FaultyFileSystem())
    options = Settings(segment_bytes=1_000, reclaim_acked=True)
    for number in range(20):
        for _ in range(2):
            put(store.partition(f"p{number}", options), b"x" * 600)
            commit(store)
    asked: list[str] = []
    for each in store.partitions.values():
        each.settled_in = lambda start, stop, name=each.name: asked.append(name) or []  # type: ignore[misc]
        each.retain_from = 0
    at = NOW
    for _ in range(30):
        at += EVERY_NS
        store.tick(both(at))
    assert set(asked) == set(store.partitions), "each has moved once"
    before = len(asked)
    for _ in range(30):
        at += EVERY_NS
        store.tick(both(at))
    assert len(asked) == before, "nothing has moved since"
    store.partitions["p7"].retain_from = 0
    store.tick(both(at + EVERY_NS))
    assert asked[before:] == ["p7"]
