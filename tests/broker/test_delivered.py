"""What went to whom, remembered in bounded space."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.subscriptions.delivered import RUNS_MAX, Delivered

RISING = st.lists(st.integers(0, 200), min_size=1, max_size=12, unique=True).map(sorted)


@given(st.lists(RISING, max_size=20), st.lists(RISING, max_size=3))
def test_it_is_a_set(added: list[list[int]], others: list[list[int]]) -> None:
    delivered, other, model = Delivered(), Delivered(), set()
    for offsets in added:
        delivered.add(offsets)
        model.update(offsets)
    for offsets in others:
        other.add(offsets)
        model.update(offsets)
    delivered.update(other)
    assert {offset for offset in range(-1, 203) if offset in delivered} == model


@given(RISING, st.lists(st.integers(0, 200), max_size=20))
def test_what_is_discarded_is_not_in_it(added: list[int], discarded: list[int]) -> None:
    delivered = Delivered()
    delivered.add(added)
    for offset in discarded:
        delivered.discard(offset)
    left = set(added).difference(discarded)
    assert {offset for offset in range(-1, 203) if offset in delivered} == left
    assert bool(delivered) == bool(left) and (not left or delivered.first == min(left))


def test_what_is_discarded_here_and_there_takes_bounded_space_too() -> None:
    delivered = Delivered()
    delivered.add(range(10_000))
    for offset in range(0, 10_000, 2):
        delivered.discard(offset)
        assert len(delivered) <= RUNS_MAX
    assert all(offset in delivered for offset in range(1, 10_000, 2)) and 9_998 not in delivered


def test_what_lies_long_back_is_remembered_kindly_and_never_forgotten() -> None:
    delivered = Delivered()
    for offset in range(0, 10_000, 2):
        delivered.add([offset])
        assert len(delivered._starts) <= RUNS_MAX
    assert all(offset in delivered for offset in range(0, 10_000, 2))
    assert 9_999 not in delivered and 9_997 not in delivered, "lately it is exact"
    assert 10_000 not in delivered
