"""Charts, numbers and the page, without Spark."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from radiator.spark import units
from radiator.spark.charts import DARK, LIGHT, Chart, Theme, bars, lines, pairs, ranges, stacked
from radiator.spark.page import Field, Page, Section, Table, Tile

pytestmark = pytest.mark.spark

ROWS: list[dict[str, Any]] = [
    {
        "name": f"/topic/with.a.rather.long.name.of.its.own.{i}",
        "kind": f"kind {i % 4}",
        "n": i * 100,
        "p50_ms": 0.05 * 10**i if i else None,
        "p95_ms": 0.2 * 10**i,
        "p99_ms": 0.3 * 10**i,
        "at": datetime(2013, 1, 1, tzinfo=UTC) + timedelta(hours=i),
    }
    for i in range(12)
]
KINDS = {
    "bars": lambda rows: bars("bars", "Bars", rows, label="name", value="n"),
    "panels": lambda rows: bars("panels", "Panels", rows, label="name", value="n", panel="kind"),
    "ranges": lambda rows: ranges("ranges", "Ranges", rows, label="name", points=("p50_ms", "p95_ms", "p99_ms")),
    "linear": lambda rows: ranges("linear", "Linear", rows, label="name", points=("n",), log=False, unit="count"),
    "stacked": lambda rows: stacked("s", "Stacked", rows, x="at", series="name", value="n", width_seconds=3600),
    "lines": lambda rows: lines("lines", "Lines", rows, x="at", y="n", series="kind"),
    "curve": lambda rows: lines("curve", "Curve", rows, x="n", y="p95_ms", x_label="delay"),
    "pairs": lambda rows: pairs("pairs", "Pairs", rows, label="name", before="n", now="p95_ms", remark="kind"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 12])
def test_every_kind_draws_many_rows_one_and_none(kind: str, count: int) -> None:
    picture: Chart = KINDS[kind](ROWS[:count])
    for theme in (LIGHT, DARK):
        assert picture.png(theme).startswith(b"\x89PNG")


# Light as it reaches eyes without one kind of cone (Machado, Oliveira and Fernandes, 2009), and what eyes make of it.
EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
XYZ = np.array([[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8729]])  # over that of white


def _lab(colour: str, eyes: list[list[float]]) -> Any:
    sent = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    light = np.where(sent <= 0.04045, sent / 12.92, ((sent + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(XYZ @ np.clip(np.array(eyes) @ light, 0.0, 1.0))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("eyes", EYES)
def test_colours_are_distinguishable_for_all_eyes_and_from_the_paper(theme: Theme, eyes: str) -> None:
    seen = [_lab(colour, EYES[eyes]) for colour in (*theme.colours, theme.paper)]
    apart = {float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)}
    assert min(apart) > 15  # 2 is just noticeable side by side


def test_values_that_are_all_the_same_have_round_marks_around_them() -> None:
    rows = [{"name": name, "p50_ms": 3.0, "p99_ms": 3.0} for name in "ab"]
    figure = Figure()
    ranges("same", "Same", rows, label="name", points=("p50_ms", "p99_ms")).draw(figure, LIGHT)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == [
        "1 ms", "2 ms", "3 ms", "5 ms", "7 ms", "10 ms",
    ]  # fmt: skip


def test_panels_of_bars_have_one_scale() -> None:
    rows = [{"name": "a", "kind": "many", "n": 100}, {"name": "a", "kind": "few", "n": 5}]
    figure = Figure()
    bars("bars", "Bars", rows, label="name", value="n", panel="kind").draw(figure, LIGHT)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_a_series_has_one_colour_in_all_pictures_of_it() -> None:
    one = [{"at": ROWS[i]["at"], "name": name, "n": n} for i, (name, n) in enumerate([("a", 9), ("b", 5), ("c", 7)])]
    other = [row for row in one if row["name"] != "a"]
    drawn = []
    for rows in (one, other):
        figure = Figure()
        picture = stacked("s", "S", rows, x="at", series="name", value="n", width_seconds=3600, order=["a", "b", "c"])
        picture.draw(figure, LIGHT)
        (axes,) = figure.axes
        drawn.append({each.get_label(): tuple(each.get_facecolor()[0]) for each in axes.collections})
    assert list(drawn[0]) == ["a", "b", "c"] and drawn[1] == {name: drawn[0][name] for name in "bc"}


def test_bars_of_several_kinds_have_a_legend() -> None:
    figure = Figure()
    bars("bars", "Bars", ROWS, label="name", value="n", series="kind").draw(figure, LIGHT)
    (legend,) = figure.legends
    shown = [
        (text.get_text(), patch.get_facecolor()) for text, patch in zip(legend.texts, legend.get_patches(), strict=True)
    ]
    assert [text for text, _ in shown] == ["kind 0", "kind 1", "kind 2", "kind 3"]
    drawn = [bar for bar in figure.axes[0].patches if bar.get_width()]
    colours = [colour for _, colour in shown]
    assert {(int(bar.get_width()), colours.index(bar.get_facecolor())) for bar in drawn} == {
        (row["n"], i % 4) for i, row in enumerate(ROWS) if row["n"]
    }


def test_rows_with_one_name_are_parts_of_one_bar_with_their_sum() -> None:
    rows = [
        {"name": "a", "kind": "x", "n": 0}, {"name": "a", "kind": "y", "n": 3}, {"name": "a", "kind": "z", "n": 0},
        {"name": "b", "kind": "x", "n": 1}, {"name": "b", "kind": "y", "n": 2}, {"name": "c", "kind": "y", "n": 9},
    ]  # fmt: skip
    figure = Figure()
    bars("bars", "Bars", rows, label="name", value="n", series="kind", limit=2).draw(figure, LIGHT)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axes.texts] == ["3", "3"]
    assert [text.get_text() for text in figure.legends[0].texts] == ["x", "y"]
    parts = sorted((bar.get_y(), bar.get_x(), bar.get_width()) for bar in axes.patches if bar.get_width())
    assert [(x, width) for _, x, width in parts] == [(0, 3), (0, 1), (1, 2)]


@pytest.mark.thorough
def test_a_name_with_dollars_is_a_name_and_no_formula() -> None:
    for name in (r"$\nosuch{$", "$x^2$"):
        rows = [{**row, "name": f"{name}{i}", "kind": name} for i, row in enumerate(ROWS)]
        for kind in KINDS.values():
            assert kind(rows).png().startswith(b"\x89PNG")


def test_a_picture_is_saved_under_its_name(tmp_path: Path) -> None:
    path = KINDS["bars"](ROWS).save(tmp_path)
    assert path == tmp_path / "bars.png"
    assert path.stat().st_size > 5_000


def test_the_folder_of_pictures_and_pages_need_not_be_there(tmp_path: Path) -> None:
    assert KINDS["bars"](ROWS).save(tmp_path / "new" / "pictures").stat().st_size > 5_000
    assert Page("A", "b").save(tmp_path / "other" / "pages").is_file()


@pytest.mark.parametrize("letter", ["i ", "m ", "W ", "several words "])
def test_title_and_note_end_within_the_picture(letter: str) -> None:
    figures = []
    Chart("x", letter * 100, letter * 100, lambda figure, _: figures.append(figure), 3.0).png()
    (figure,) = figures
    assert len(figure.texts) == 2
    for line in figure.texts:
        assert 0 < line.get_window_extent().x1 <= figure.bbox.x1, line.get_text()


def test_numbers_as_people_read_them() -> None:
    assert [units.count(1234567), units.short(1_234_567), units.short(999), units.size(1536), units.size(10)] == [
        "1,234,567",
        "1.23 M",
        "999",
        "1.5 KiB",
        "10 B",
    ]
    assert [units.duration(ms) for ms in (None, 0, 0.25, 1.5, 42.3, 1500, 90_000, 86_400_000, -5)] == [
        "–",
        "0",
        "250 µs",
        "1.5 ms",
        "42.3 ms",
        "1.5 s",
        "1.5 min",
        "1 d",
        "-5 ms",
    ]


def test_what_is_rounded_up_to_the_next_unit_is_written_in_it() -> None:
    assert [units.short(value) for value in (999_999, -999_999, 999_499, 999_999_999)] == [
        "1 M",
        "-1 M",
        "999 k",
        "1 G",
    ]
    assert [units.size(value) for value in (2**20 - 1, 2**30 - 1, 1000 * 2**10)] == ["1 MiB", "1 GiB", "1,000 KiB"]
    assert [units.duration(ms) for ms in (999.9, 59_999, 0.9999, 364 * 86_400_000.0)] == [
        "1 s",
        "1 min",
        "1 ms",
        "364 d",
    ]
    assert [units.duration(ms) for ms in (1e-6, 2e-5, 3e-4, -1e-6)] == ["1 ns", "20 ns", "300 ns", "-1 ns"]
    assert units.moment(datetime(2013, 1, 31, 12, 5)) == "2013-01-31 12:05:00"
    assert [units.share(value) for value in (0.1234, 0, 0.0001, 0.9999, 1, None)] == [
        "12.3%", "0", "< 0.1%", "> 99.9%", "100%", "–",
    ]  # fmt: skip
    assert [units.percent(value) for value in (0.39, 0.001, 0, 0.997, 1)] == [
        "39%", "less than 1%", "0%", "more than 99%", "100%",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(0), "1 second"),
        (timedelta(seconds=100), "1 second"),
        (timedelta(minutes=50), "30 seconds"),
        (timedelta(days=5), "1 hour"),
        (timedelta(days=31), "12 hours"),
        (timedelta(days=365), "7 days"),
        (timedelta(days=365 * 40), "122 days"),
    ],
)
def test_buckets_are_round_and_not_too_many(span: timedelta, words: str) -> None:
    seconds, told = units.bucket(span)
    assert told == words
    assert span.total_seconds() / seconds <= 120


def test_what_clients_sent_is_text_on_the_page_never_markup() -> None:
    evil = '<script>alert("1")</script>&'
    table = Table(evil, [Field("a", evil)], [{"a": evil}])
    folded = Table(evil, [Field("a", evil)], [{"a": evil}], folded=True)
    picture = bars("p", evil, [{"a": evil, "n": 1}], label="a", value="n", note=evil)
    page = Page(evil, evil, [Section(evil, evil, [Tile(evil, evil)], [picture], [table, folded])], evil)
    text = page.html()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 12


def test_a_destination_named_like_a_tag_is_text_on_the_page() -> None:
    rows = [{"destination": "<script>", "messages": 5}]
    table = Table("Destinations", [Field("destination", "destination"), Field("messages", "messages", "count")], rows)
    chart = bars("volume", "Messages", rows, label="destination", value="messages")
    text = Page(
        "T", "s", [Section("S", "in <script>", findings=["<script> is new"], charts=[chart], tables=[table])]
    ).html()
    assert "<script" not in text
    assert '<td class="t">&lt;script&gt;</td><td class="n">5</td>' in text
    assert "<li>&lt;script&gt; is new</li>" in text


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = Page("T", "s", [Section("S", charts=[KINDS["bars"](ROWS)])]).html()
    assert not re.findall(r'(?:src|href|srcset)="(?!data:)', text)
    assert text.count("data:image/png;base64,") == 2  # light and dark
    assert "prefers-color-scheme: dark" in text


def test_a_long_table_says_what_it_leaves_out() -> None:
    table = Table("T", [Field("n", "n", "count")], [{"n": i} for i in range(30)], rows_max=10)
    assert "20 more rows left out here" in Page("T", "s", [Section("S", tables=[table])]).html()
    assert table.rich(5).row_count == 5


def test_a_narrow_terminal_shows_fewer_columns_whole_and_names_the_others() -> None:
    numbers = [Field(name, name, "count") for name in ("largest", "average", "growth", "settled")]
    table = Table("T", [Field("name", "name"), *numbers], [{"name": "n" * 90, **{each.key: 1e8 for each in numbers}}])
    for width in range(40, 120):
        with (console := Console(width=width)).capture() as shown:
            console.print(table.rich(width=width))
        text = shown.get()
        assert "n" * 20 in text  # who it is
        there = [each.heading for each in numbers if each.heading in text.splitlines()[2]]
        assert text.count("100,000,000") == len(there)
        left_out = [each.heading for each in numbers if each.heading not in there]
        assert not left_out or f"{', '.join(left_out)} in the report" in " ".join(text.split())


def test_a_peak_over_time_is_drawn_logarithmically_where_all_else_would_be_flat_and_it_is_said() -> None:
    def drawn(*values: float) -> Any:
        rows = [{"at": ROWS[0]["at"] + timedelta(hours=hour), "late": value} for hour, value in enumerate(values)]
        figure = Figure()
        lines("l", "L", rows, x="at", y="late", unit="duration", label="late by", log=True).draw(figure, LIGHT)
        return figure.axes[0]

    steep = drawn(*[100.0] * 9, 5_400_000.0)
    assert (steep.get_yscale(), steep.get_ylabel()) == ("log", "late by, logarithmic")
    assert [text.get_text() for text in steep.get_yticklabels()] == ["100 ms", "1 s", "10 s", "1 min", "10 min", "1 h"]
    for values in ((100.0, 200.0, 300.0), (*[100.0] * 9, 0.0, 5_400_000.0), ()):
        assert (drawn(*values).get_yscale(), drawn(*values).get_ylabel()) == ("linear", "late by")


def test_a_line_over_time_does_not_lead_through_what_is_not_known() -> None:
    many = [*range(50), 70, *range(90, 95)]
    figure = Figure()
    lines("l", "L", [{"at": ROWS[0]["at"] + timedelta(hours=n), "n": 5} for n in many], x="at", y="n").draw(
        figure, LIGHT
    )
    assert figure.axes[0].lines[0].get_marker() == "o"  # the one at 70 would not be seen
    hours = [*range(10), *range(20, 30)]
    rows = [{"at": ROWS[0]["at"] + timedelta(hours=hour), "n": 5} for hour in hours]
    figure = Figure()
    lines("l", "L", rows, x="at", y="n").draw(figure, LIGHT)
    (line,) = figure.axes[0].lines
    values = np.asarray(line.get_ydata(), float)
    assert len(values) == 21 and [*np.flatnonzero(np.isnan(values))] == [10]
    figure = Figure()
    lines("l", "L", [{"at": hour, "n": 5} for hour in hours], x="at", y="n").draw(figure, LIGHT)
    assert len(figure.axes[0].lines[0].get_ydata()) == 20  # of numbers nothing is missing in between
