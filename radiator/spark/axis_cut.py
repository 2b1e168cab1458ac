"""Choose where to cut the axis of a bar chart over time, so that a burst does not flatten the other bars.

    find([(0, 5), (1, 6), (2, 2004), (3, 4), (4, 6)])     # Cut(top=6, groups=[[2]])

The axis is cut only if that shows more than it hides: few bars are cut, they are far higher than the rest, and each
group of cut bars has room for its number. A day with ten times the traffic of its night is not a burst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BARS_MIN = 5  # fewer bars have no usual value
USUAL_MAX = 2.0  # values up to this multiple of the median are usual and not cut
WORTH_MIN = 5.0  # a peak below this multiple of the highest uncut bar is left as it is
SHARE_MAX = 0.25  # the maximum share of cut bars
GROUPS_MAX = 4  # the maximum number of numbers above the chart
NEAR_SHARE = 0.1  # bars closer than this share of the width have one number


class Cut(NamedTuple):
    """A cut axis.

    Attributes:
        top: The highest value that is not cut.
        groups: The indexes of the cut bars; bars of a group share one number.
    """

    top: float
    groups: list[list[int]]


def find(bars: Sequence[tuple[int, float]]) -> Cut | None:
    """Return where to cut the axis, or None if it should not be cut.

    Args:
        bars: The position and the value of each bar, sorted by position.
    """
    if len(bars) < BARS_MIN:
        return None
    places, values = np.array(bars, float).T
    usual = values[values <= USUAL_MAX * np.median(values)]
    near = NEAR_SHARE * (places[-1] - places[0] + 1)
    for top in np.unique(values[values >= usual.max()]):
        if top * WORTH_MIN > values.max():
            return None
        above = np.flatnonzero(values > top)
        groups = np.split(above, np.flatnonzero(np.diff(places[above]) > near) + 1)
        if len(above) <= SHARE_MAX * len(bars) and len(groups) <= GROUPS_MAX:
            return Cut(float(top), [group.tolist() for group in groups if len(group)])
    return None
