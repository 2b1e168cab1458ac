"""Runs: a set of offsets, whatever is added and removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.queues.offset_runs import Runs

ranges = st.tuples(st.integers(0, 40), st.integers(0, 8))


@given(st.lists(st.tuples(st.booleans(), ranges), max_size=40), ranges)
def test_runs_are_a_set(steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    runs, known = Runs(), set()
    for add, (start, length) in steps:
        offsets = set(range(start, start + length))
        if add and length:
            runs.add(start, start + length)
            known |= offsets
        elif length:
            assert runs.remove(start, start + length) == len(known & offsets)
            known -= offsets
        assert len(runs) == len(known)
        assert runs.runs == sum(offset - 1 not in known for offset in known)
        assert {offset for offset in range(50) if offset in runs} == known
    start, stop = asked[0], asked[0] + asked[1]
    assert runs.first(start) == min((offset for offset in known if offset >= start), default=None)
    within = [offset for first, end in runs.within(start, stop) for offset in range(first, end)]
    assert within == sorted(offset for offset in known if start <= offset < stop)
