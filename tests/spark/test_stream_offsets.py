"""The offsets of a stream as numbers: no record in two batches, none in no batch, whatever is planned again."""

from __future__ import annotations

import random
from typing import Any

import pytest

from radiator.errors import StorageError
from radiator.spark.stream_offsets import between, first, following, progress_of, spread

pytestmark = pytest.mark.spark


def test_a_batch_takes_what_is_new_and_the_next_one_goes_on_there() -> None:
    start = first({"a": 10, "b": 0})
    one = following(start, {"a": 15, "b": 0}, {})
    assert between(start, one) == {"a": (10, 15)}
    two = following(one, {"a": 17, "b": 3}, {})
    assert between(one, two) == {"a": (15, 17), "b": (0, 3)}
    assert following(two, {"a": 17, "b": 3}, {}) is two


def test_a_partition_that_is_created_begins_where_its_log_does_and_the_batch_says_so() -> None:
    start = following(first({"a": 0}), {"a": 5}, {})
    batch = following(start, {"a": 5, "new": 30}, {"new": 20})
    assert batch == {"a": 5, "new": {"from": 20, "next": 30}}
    assert between(start, batch) == {"new": (20, 30)}
    assert between(batch, batch) == {}
    assert following(batch, {"a": 6, "new": 30}, {}) == {"a": 6, "new": 30}


def test_the_first_batch_planned_again_is_the_same_whatever_latest_is_by_now() -> None:
    planned = following(first({"a": 100}), {"a": 120}, {})
    assert between(first({"a": 150}), planned) == {"a": (100, 120)}
    empty = first({"a": 100})  # nothing was new: the checkpoint of such a batch says where `latest` was
    later = following(empty, {"a": 130}, {})
    assert between(empty, later) == {"a": (100, 130)}
    assert between(first({"a": 150}), empty) == {}


def test_a_limit_is_divided_in_proportion_and_no_partition_starves() -> None:
    assert spread({"a": 900, "b": 100}, 100) == {"a": 90, "b": 10}
    assert spread({"a": 1_000_000, "b": 1, "c": 2}, 10) == {"a": 9, "b": 1, "c": 1}
    assert spread({"a": 3, "b": 4}, 7) == {"a": 3, "b": 4}


def test_a_partition_that_holds_nothing_wanted_moves_on_and_takes_nothing_of_the_limit() -> None:
    batch = following(first({"a": 0, "idle": 0}), {"a": 100, "idle": 1_000_000}, {}, 10, idle={"idle"})
    assert {name: progress.next for name, progress in progress_of(batch).items()} == {"a": 10, "idle": 1_000_000}


@pytest.mark.parametrize("limit", [None, 1, 7, 1000])
def test_random_histories_give_every_offset_to_one_batch(limit: int | None) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        log = {f"p{i}": chance.randrange(20) for i in range(chance.randrange(4))}
        begins = {name: chance.randrange(end + 1) for name, end in log.items()}
        offsets, read = first(begins), {name: set(range(begin)) for name, begin in begins.items()}
        for step in range(30):
            if chance.random() < 0.2:
                log[f"new{step}"] = chance.randrange(1, 20)
            log = {name: end + chance.randrange(10) for name, end in log.items()}
            after = following(offsets, log, dict.fromkeys(log, 0), limit)
            for _ in range(2 if chance.random() < 0.3 else 1):  # planned once more after a crash, from where it stood
                planned = between(offsets, after)
            for name, (low, high) in planned.items():
                fresh = set(range(low, high))
                assert not fresh & read.setdefault(name, set())
                read[name] |= fresh
            offsets = after
        while (after := following(offsets, log, dict.fromkeys(log, 0), limit)) is not offsets:
            for name, (low, high) in between(offsets, after).items():
                read.setdefault(name, set()).update(range(low, high))
            offsets = after
        assert {name: len(found) for name, found in read.items() if found} == {n: e for n, e in log.items() if e}


def test_a_partition_that_goes_takes_nothing_along_and_nothing_is_read_again() -> None:
    planned = following(first({"a": 0, "gone": 0}), {"a": 4, "gone": 3}, {})
    after = following(planned, {"a": 4}, {}, gone=["gone"])
    assert after == {"a": 4}
    assert between(planned, after) == {}
    newborn = following(after, {"a": 4, "gone": 2, "born": 5}, {"born": 0, "gone": 0})
    after = following(newborn, {"a": 4, "born": 5}, {}, gone=["gone"])
    assert between(newborn, after) == {}
    assert between(after, following(after, {"a": 4, "born": 6}, {})) == {"born": (5, 6)}


FOREIGN = [
    {"topic": {"0": 5}},
    {"a": -1},
    {"a": "5"},
    {"a": 1.0},
    {"a": True},
    {"a": {"from": 3, "next": 2}},
    {"a": {"from": 0.5, "next": 2}},
    {"a": {"from": None, "next": 2}},
    {"a": {"from": "x", "next": 3}},
    [1],
]


@pytest.mark.parametrize("offsets", FOREIGN)
def test_a_checkpoint_of_another_source_is_refused_with_the_reason(offsets: Any) -> None:
    with pytest.raises(StorageError, match="the checkpoint is not one of a radiator stream"):
        progress_of(offsets)
