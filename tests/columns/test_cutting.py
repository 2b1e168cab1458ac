"""Offsets cut into tasks, by offsets alone."""

from __future__ import annotations

import random

from radiator.columns import cutting
from radiator.columns.cutting import Piece, cut


def test_each_offset_is_in_one_piece_and_a_task_has_one_piece_of_a_partition_at_most() -> None:
    rng = random.Random(5)
    for _ in range(300):
        lows = {f"p{number}": rng.choice([0, 7, 1 << 40]) for number in range(rng.randrange(8))}
        wanted = {name: (low, low + rng.choice([0, 1, 2, 50, 300])) for name, low in lows.items()}
        tasks = cut(wanted, rng.choice([1, 3, 40]), rng.choice([None, 1, 5_000]))
        found: dict[str, list[int]] = {name: [] for name in wanted}
        for pieces in tasks:
            assert len({piece.partition for piece in pieces}) == len(pieces)
            for name, low, high in pieces:
                found[name] += range(low, high)
        assert found == {name: list(range(*pair)) for name, pair in wanted.items()}


def test_tasks_are_equal_and_as_many_as_are_asked_for() -> None:
    assert cut({"b": (0, 3), "a": (5, 8)}, 2) == [(Piece("a", 5, 8),), (Piece("b", 0, 3),)]
    assert [len(range(*task[0][1:])) for task in cut({"a": (0, 100)}, 3)] == [33, 33, 34]
    assert len(cut({"a": (0, 2)}, 9)) == 2
    assert len(cut({"a": (0, 1000)}, bytes_per_task=100 * cutting.RECORD_BYTES)) == 10
    assert len(cut({"a": (0, cutting.OFFSETS_MIN)})) == 1
    assert len(cut({"a": (0, 1_000 * cutting.OFFSETS_MAX)})) == 1_000
    assert cut({"a": (4, 4)}) == cut({}) == []
