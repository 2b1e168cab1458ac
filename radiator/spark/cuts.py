"""Where the axis of bars over time is cut, so that a burst does not flatten all the rest to a line.

    find([(0, 5), (1, 6), (2, 2004), (3, 4), (4, 6)])     # Cut(top=6, groups=[[2]])

A cut is made only where it shows more than it hides: little is cut, it is far higher than the rest, and each group of
bars that are cut has room for its figure. Else, and where nothing is far above the usual, there is none: a day that is
ten times as busy as its night is no burst.

Knows: numbers. Must not know: matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

BARS_MIN = 5  # of fewer nothing is usual
USUAL_MAX = 2.0  # times the median: up to there everything is usual, and left whole
WORTH_MIN = 5.0  # times the highest that is left whole: a peak below is seen beside it
SHARE_MAX = 0.25  # of the bars may be cut
GROUPS_MAX = 4  # figures above the picture
NEAR_SHARE = 0.1  # of its width: bars that are nearer share one figure


class Cut(NamedTuple):
    top: float  # the highest that is left whole
    groups: list[list[int]]  # indexes of what is higher, those that share a figure together


def find(bars: Sequence[tuple[int, float]]) -> Cut | None:
    """``bars`` are places, which rise, and values. None if the axis is best left as it is."""
    if len(bars) < BARS_MIN:
        return None
    values = [value for _, value in bars]
    usual, highest = USUAL_MAX * median(values), max(values)
    lowest = max(value for value in values if value <= usual)
    near = NEAR_SHARE * (bars[-1][0] - bars[0][0] + 1)
    for top in sorted({value for value in values if value >= lowest}):
        if top * WORTH_MIN > highest:
            return None
        above = [i for i, value in enumerate(values) if value > top]
        groups = _groups(bars, above, near)
        if len(above) <= SHARE_MAX * len(bars) and len(groups) <= GROUPS_MAX:
            return Cut(top, groups)
    return None


def _groups(bars: Sequence[tuple[int, float]], above: Sequence[int], near: float) -> list[list[int]]:
    groups = [[i] for i in above[:1]]
    for before, i in pairwise(above):
        if bars[i][0] - bars[before][0] <= near:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
