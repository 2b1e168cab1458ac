"""Ticks of an axis are round, whatever the range is."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from radiator.spark.ticks import DAY_MS, YEAR_MS, Tick, calendar, linear, logarithmic

UNITS = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": DAY_MS, "y": YEAR_MS}
STEPS = {
    **{name: {digit * 10**zeros for digit in (1, 2, 5) for zeros in range(8)} for name in ("ns", "µs", "ms", "y")},
    **{name: {1, 2, 5, 10, 20, 30} for name in ("s", "min")},
    "h": {1, 2, 3, 6, 12},
    "d": {1, 2, 5, 10, 20, 50, 100, 200},
}
START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def _ranges(count: int, low: float, high: float) -> list[tuple[float, float, int]]:
    chance = random.Random(7)
    return [
        (first, min(first * 10 ** chance.uniform(0.02, 9), 1e14), chance.randint(3, 9))
        for first in (10 ** chance.uniform(low, high) for _ in range(count))
    ]


def _hold(ticks: list[Tick], low: float, high: float, at_most: int, fewest: int = 2) -> None:
    values = [tick.value for tick in ticks]
    assert values == sorted(values) and all(low <= value <= high for value in values)
    assert len({tick.text for tick in ticks}) == len(ticks)
    assert fewest <= len(ticks) <= at_most + 1


def test_linear_durations_are_whole_numbers_of_one_unit_in_round_steps() -> None:
    for _, high, at_most in _ranges(3000, -3, 10):
        ticks = linear(0.0, high, "duration", at_most)
        _hold(ticks, 0.0, high, at_most)
        assert ticks[0].text == "0"
        told = [re.fullmatch(r"([\d,]+) (\S+)", tick.text) for tick in ticks[1:]]
        names = {match[2] for match in told if match}
        assert all(told) and len(names) == 1, ticks
        numbers = [int(match[1].replace(",", "")) for match in told if match]
        assert numbers[0] in STEPS[names.pop()] and numbers == [numbers[0] * n for n in range(1, len(numbers) + 1)]


def test_logarithmic_durations_are_whole_numbers_of_their_unit() -> None:
    for low, high, at_most in _ranges(3000, -3, 9):
        ticks = logarithmic(low, high, "duration", at_most)
        _hold(ticks, low, high, at_most, fewest=2 if high / low > 3 else 0)
        for tick in ticks:
            number, _, name = tick.text.partition(" ")
            assert float(number.replace(",", "")) <= 2000 or name == "y", ticks
            if high / low > 10:  # of less there may be no two numbers of the ladders
                assert re.fullmatch(r"[\d,]+", number) and number.rstrip("0") in {*"1235", "6", "7", "12"}, ticks
            assert float(number.replace(",", "")) * UNITS[name] == pytest.approx(tick.value, rel=0.01)


def test_a_tick_of_nanoseconds_is_not_written_as_nothing() -> None:
    assert [tick.text for tick in logarithmic(1e-6, 1e-3, "duration", 4)] == ["1 ns", "10 ns", "100 ns", "1 µs"]


@pytest.mark.parametrize("unit", ["count", "short"])
def test_what_counts_things_has_no_ticks_between_numbers_and_no_halves(unit: str) -> None:
    for _, high, at_most in _ranges(3000, 0, 9):
        ticks = linear(0.0, high, unit, at_most)
        _hold(ticks, 0.0, high, at_most)
        assert all(tick.value == round(tick.value) for tick in ticks)
        digits = [tick.text.split(" ")[0].replace(",", "") for tick in ticks]
        assert not any(text.endswith((".5", ".25", ".75")) and ticks[1].text != text for text in digits[:2]), ticks


def test_sizes_stand_at_powers_of_two() -> None:
    for _, high, at_most in _ranges(1000, 1, 12):
        ticks = linear(0.0, high, "size", at_most)
        _hold(ticks, 0.0, high, at_most)
        assert float(ticks[1].value).hex().startswith("0x1.0000000000000p")


def _drawn(span: timedelta) -> tuple[list[str], str]:
    """The texts of the ticks of an axis of time that begins at START, and the one below its end."""
    figure = Figure(figsize=(9.6, 4.1))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([START, START + span], [1, 2])
    calendar(axes.xaxis, 8)
    figure.canvas.draw()
    low, high = axes.get_xlim()
    ticks = [text for text in axes.get_xticklabels() if low <= text.get_position()[0] <= high]
    return [text.get_text() for text in ticks], axes.xaxis.get_offset_text().get_text()


@pytest.mark.parametrize(
    ("span", "texts", "below"),
    [
        (timedelta(seconds=50), ["22:13:20", "22:13:30", "22:13:40", "22:13:50", "22:14:00", "22:14:10"], "2023-11-14"),
        (timedelta(hours=40), ["11-15", "06:00", "12:00", "18:00", "11-16", "06:00", "12:00"], "2023-11-16"),
        (timedelta(days=6), [f"11-{day}" for day in range(15, 22)], "2023"),
        (timedelta(days=420), [*(f"2024-{month:02}" for month in (1, 3, 5, 7, 9, 11)), "2025-01"], ""),
        (timedelta(days=4000), ["2024", "2026", "2028", "2030", "2032", "2034"], ""),
    ],
)
def test_an_axis_of_time_has_round_times_and_its_date(span: timedelta, texts: list[str], below: str) -> None:
    drawn, offset = _drawn(span)
    assert drawn[-len(texts) :] == texts and len(drawn) <= len(texts) + 1
    assert offset == below


def test_an_axis_of_time_has_a_few_different_ticks_whatever_its_length_is() -> None:
    chance = random.Random(7)
    for _ in range(60):
        texts, below = _drawn(timedelta(seconds=10 ** chance.uniform(0.8, 9.3)))
        assert 2 <= len(texts) <= 11
        assert below or all(text.startswith(("1", "2")) and ":" not in text for text in texts)  # a year


def test_hours_have_no_halves() -> None:
    assert [tick.text for tick in linear(0.0, 1.6 * 3.6e6, "duration", 5)] == [
        "0", "20 min", "40 min", "60 min", "80 min",
    ]  # fmt: skip
    assert [tick.text for tick in linear(0.0, 15 * 3.6e6, "duration", 5)] == ["0", "3 h", "6 h", "9 h", "12 h", "15 h"]
    assert [tick.text for tick in logarithmic(2.0, 5e6, "duration", 8)] == [
        "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h",
    ]  # fmt: skip
