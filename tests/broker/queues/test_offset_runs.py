"""Runs: a set or a map of offsets, whatever is added and removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.queues.offset_runs import RunMap, Runs

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


@given(st.lists(st.tuples(st.sampled_from((b"", b"a", b"b")), ranges), max_size=40), ranges)
def test_a_run_map_has_the_value_that_each_offset_was_given_last(
    steps: list[tuple[bytes, tuple[int, int]]], asked: tuple[int, int]
) -> None:
    runs, known = RunMap(), dict[int, bytes]()
    for value, (start, length) in steps:
        if value and length:
            runs.set(start, start + length, value)
            known |= dict.fromkeys(range(start, start + length), value)
        elif length:
            runs.remove(start, start + length)
            known = {offset: value for offset, value in known.items() if not start <= offset < start + length}
        found = [(offset, value) for first, end, value in runs.within(0, 60) for offset in range(first, end)]
        assert found == [(offset, known.get(offset)) for offset in range(60)]
    start, stop = asked[0], asked[0] + asked[1]
    found = [(offset, value) for first, end, value in runs.within(start, stop) for offset in range(first, end)]
    assert found == [(offset, known.get(offset)) for offset in range(start, stop)]
