"""An axis is cut where a burst would flatten the rest, nowhere else, and says so."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from matplotlib.figure import Figure

from radiator.spark.axis_cut import GROUPS_MAX, SHARE_MAX, WORTH_MIN, Cut, find
from radiator.spark.charts import LIGHT, stacked

pytestmark = pytest.mark.spark
FIRST = datetime(2023, 11, 14, tzinfo=UTC)


def quiet(count: int = 80, **higher: float) -> list[tuple[int, float]]:
    """About a hundred in each place, and ``p40=2000`` in that one."""
    chance = random.Random(7)
    values = {place: float(chance.randint(90, 110)) for place in range(count)}
    values |= {int(name[1:]): value for name, value in higher.items()}
    return sorted(values.items())


def test_a_burst_is_cut_above_all_that_is_usual() -> None:
    assert find(quiet(p20=2000)) == Cut(max(value for _, value in quiet()), [[20]])
    assert find(quiet(p20=2000, p60=190)) == Cut(190, [[20]])  # what is twice the usual is left whole


def test_what_is_not_far_above_the_rest_is_left_whole() -> None:
    assert find(quiet(p20=450)) is None
    assert find([(hour, 1000 + 900 * math.sin(hour / 24 * 2 * math.pi)) for hour in range(96)]) is None
    assert find([]) is None and find([(0, 5.0)]) is None and find([(0, 1.0), (1, 1.0), (2, 900.0)]) is None
    assert find([(place, 7.0) for place in range(50)]) is None


def test_bars_that_are_near_share_a_figure_and_others_have_their_own() -> None:
    found = find(quiet(p20=2000, p21=1500, p25=900, p60=3000))
    assert found is not None and found.groups == [[20, 21, 25], [60]]


def test_a_slope_is_cut_where_the_usual_begins() -> None:
    found = find(quiet(p20=2000, p21=1200, p22=700, p23=400, p24=250, p25=150))
    assert found is not None and found.top == 150 and found.groups == [[20, 21, 22, 23, 24]]


def test_a_cut_hides_little_and_is_worth_it_whatever_is_drawn() -> None:
    chance = random.Random(7)
    made = 0
    for _ in range(2000):
        places = sorted(chance.sample(range(200), chance.randint(1, 120)))
        bars = [(place, 10 ** chance.expovariate(chance.choice((0.5, 1, 3)))) for place in places]
        found = find(bars)
        if found is None:
            continue
        made += 1
        above = [i for i, (_, value) in enumerate(bars) if value > found.top]
        assert above == [i for group in found.groups for i in group]
        assert len(above) <= SHARE_MAX * len(bars) and len(found.groups) <= GROUPS_MAX
        assert max(value for _, value in bars) >= WORTH_MIN * found.top
    assert 100 < made < 1900


def _drawn(burst: int) -> tuple[Any, str]:
    rows = [{"at": FIRST + timedelta(hours=hour), "name": "a", "n": value} for hour, value in quiet(p20=burst)]
    rows.append({"at": FIRST + timedelta(hours=20), "name": "b", "n": 3})
    picture = stacked("s", "S", rows, x="at", series="name", value="n", width_seconds=3600, note="Messages")
    figure = Figure()
    picture.draw(figure, LIGHT)
    assert picture.png().startswith(b"\x89PNG")
    return figure.axes[0], picture.note


def test_the_chart_has_the_figure_of_a_cut_bar() -> None:
    axes, note = _drawn(20_000)
    assert [text.get_text() for text in axes.texts] == ["20,003"]  # of both series
    assert axes.get_ylim()[1] < 200
    assert note == "Messages; bars over 110 are cut, and their number is shown above"
    axes, note = _drawn(400)
    assert not axes.texts and axes.get_ylim()[1] > 403 and note == "Messages"
