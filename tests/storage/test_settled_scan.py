"""A scan for segments that are half settled: the same whatever its steps, and never much of it at a time."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from radiator.storage.cursor import Cursor
from radiator.storage.segment import SegmentInfo
from radiator.storage.settled_scan import SCAN_COST_MAX, STEP_OFFSETS_MAX, SettledScan


def sealed(*bases: int) -> list[tuple[SegmentInfo, int]]:
    return [(SegmentInfo(base, 0, 0, 1), end) for base, end in pairwise(bases)]


def look(segments: list[tuple[SegmentInfo, int]], most: int = 16, left: dict[int, int] | None = None) -> SettledScan:
    for segment, _ in segments:
        if left and segment.base_offset in left:
            segment.leave(left[segment.base_offset])
    return SettledScan(segments, most, 0, ())


def islands(random: Random, end: int) -> Cursor:
    cursor, at = Cursor(0), 0
    while at < end:
        share = random.choice([0.1, 0.6, 0.9, 1.0])
        for offset in range(at, min(at + 3_000, end)):
            if random.random() < share:
                cursor.ack_range(offset, offset + 1)
        at += 3_000
    return cursor


@pytest.mark.parametrize("cost", [1, 500, 1 << 30])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_found_does_not_depend_on_the_steps(seed: int, cost: int) -> None:
    random = Random(seed)
    cursor = islands(random, 40_000)
    segments = sealed(0, *sorted(random.sample(range(1, 40_000), 9)), 40_000)
    left = {segment.base_offset: random.randrange(20_000) for segment, _ in segments[::2]}
    found = look(segments, 99, left)
    while not found.done:
        found.advance(cursor.settled_in, cost, 1)
    expected = []
    for segment, end in segments:
        base = segment.base_offset
        unsettled = sum(not cursor.is_acked(offset) for offset in range(base, end))
        if 2 * (unsettled + 1) <= left.get(base, end - base):
            expected.append((base, end, unsettled))
    assert [(segment.base_offset, end, unsettled) for segment, end, _, unsettled in found.found] == expected
    for segment, end, settled, _ in found.found:
        acked = {offset for offset in range(segment.base_offset, end) if cursor.is_acked(offset)}
        assert {offset for start, stop in settled for offset in range(start, stop)} == acked
        assert all(one[1] <= two[0] for one, two in pairwise(settled))


def test_a_turn_is_given_so_many_intervals_and_hardly_more() -> None:
    cursor, size = Cursor(0), 1_000_000
    cursor._starts, cursor._stops = list(range(1, size, 4)), list(range(4, size + 1, 4))
    given = 0

    def settled_in(start: int, stop: int) -> list[tuple[int, int]]:
        nonlocal given
        found = cursor.settled_in(start, stop)
        given += len(found)
        return found

    found, turns = look(sealed(0, size)), []
    while not found.done:
        given = 0
        found.advance(settled_in, SCAN_COST_MAX, 1)
        turns.append(given)
    assert len(found.found) == 1 and found.found[0][3] == size // 4
    assert sum(turns) >= size // 4 and max(turns) <= SCAN_COST_MAX + STEP_OFFSETS_MAX // 2


def test_a_segment_of_which_too_much_is_left_is_given_up_at_once() -> None:
    asked: list[int] = []

    def settled_in(start: int, stop: int) -> list[tuple[int, int]]:
        asked.append(start)
        return []

    found = look(sealed(0, 10_000_000, 20_000_000), left={0: 100, 10_000_000: 100})
    found.advance(settled_in, SCAN_COST_MAX, 1)
    assert found.done and asked == [0, 10_000_000]


def test_many_cursors_cost_more_and_so_fewer_questions_are_asked_in_a_turn() -> None:
    asked = [0, 0]
    for number, pins in enumerate((1, 1_000)):

        def settled_in(start: int, stop: int, number: int = number) -> list[tuple[int, int]]:
            asked[number] += 1
            return [(start, stop)]

        look(sealed(*range(0, 100_000_000, 1_000_000)), 99).advance(settled_in, SCAN_COST_MAX, pins)
    assert asked[1] <= 3 < asked[0]


def test_no_more_are_found_than_are_asked_for() -> None:
    found = look(sealed(*range(0, 1_000, 100)), most=2)
    assert found.advance(lambda start, stop: [(start, stop)], SCAN_COST_MAX, 1) > 0
    assert found.done and len(found.found) == 2
