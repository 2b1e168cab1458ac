"""Names in pictures are cut, stay different, and stand in full on the page."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from matplotlib.figure import Figure

from radiator.spark.charts import LIGHT, bars, lines, pairs, ranges, stacked
from radiator.spark.labels import EMPTY, cut, in_full, shortened
from radiator.spark.page import Page, Section

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
LONG = "/topic/eu-central-1.production.billing.invoices.of-customer-{}.by-the-nightly-run"
NAMES = [LONG.format(number) for number in range(6)]


def test_a_long_name_is_cut_in_its_middle() -> None:
    assert cut(["/topic/a.very.long.name.of.berlin", "/topic/b"], 21) == ["/topic/a.v….of.berlin", "/topic/b"]
    assert shortened("abcdefghij", 7) == "abc…hij" and shortened("abcdefg", 7) == "abcdefg"


def test_names_that_differ_where_the_middle_is_are_cut_elsewhere() -> None:
    names = [f"/topic/{'a' * 20}.{number}.{'b' * 20}" for number in range(3)]
    labels = cut(names, 34)
    assert len(set(labels)) == 3 and all(len(label) <= 34 for label in labels)


def test_names_that_differ_only_far_from_both_ends_show_where_they_differ() -> None:
    names = [f"/topic/{'a' * 60}.{number}/0 of /queue/{'b' * 60}" for number in range(3)]
    labels = cut(names, 34)
    assert all(f".{number}" in label for number, label in enumerate(labels)) and len(labels[0]) <= 34


def test_labels_are_as_many_and_as_different_as_names_whatever_they_are() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        letters = chance.choice(("ab", "a", "ab日", "a\nb\x1b", "aé\u0301"))
        names = ["".join(chance.choices(letters, k=chance.randint(0, 60))) for _ in range(chance.randint(0, 12))]
        length = chance.randint(8, 34)
        labels = cut(names, length)
        assert len(labels) == len(names)
        assert len({*zip(labels, names, strict=True)}) == len({*names}) == len({*labels}), (names, labels)
        assert all(len(label.partition(" (")[0]) <= max(length, len(EMPTY)) for label in labels)
        assert all(label.isprintable() for label in labels)


def test_what_has_two_columns_in_a_terminal_takes_as_much_room_here() -> None:
    (label,) = cut(["日本語" * 10], 21)
    assert label == "日本語日本…本語日本語" and in_full(["日本語" * 3], 18) == ()


def test_no_name_is_longer_than_its_room_in_any_picture() -> None:
    at = datetime(2023, 11, 14, tzinfo=UTC)
    rows = [
        {"name": name, "n": number + 1, "p": 2.0, "panel": name, "at": at + timedelta(hours=hour)}
        for hour in range(3)
        for number, name in enumerate(NAMES)
    ]
    first = rows[: len(NAMES)]
    pictures = [
        bars("a", "A", first, label="name", value="n"),
        bars("b", "B", first, label="name", value="n", panel="panel"),
        bars("c", "C", first, label="name", value="n", series="name"),
        ranges("d", "D", first, label="name", points=("n", "p")),
        stacked("e", "E", rows, x="at", series="name", value="n", width_seconds=3600),
        lines("f", "F", rows, x="at", y="n", series="name"),
        pairs("g", "G", first, label="name", before="n", now="p", remark="p"),
    ]
    for picture in pictures:
        figure = Figure(figsize=(9.6, 4))
        picture.draw(figure, LIGHT)
        legends = [each for each in [*figure.legends, *(axes.get_legend() for axes in figure.axes)] if each]
        shown = [text.get_text() for each in legends for text in each.texts]
        for axes in figure.axes:
            shown += [axes.get_title(loc="left"), *(text.get_text() for text in axes.get_yticklabels())]
        assert max(map(len, shown)) <= 34, picture.name
        assert sorted(picture.cut) == NAMES, picture.name
        page = Page("T", "s", [Section("S", charts=[picture])]).html()
        assert f'title="In full: {", ".join(picture.cut)}"' in page


def test_the_names_in_full_are_text_on_the_page() -> None:
    evil = '"><script>alert("1")</script>' + "x" * 40
    page = Page("T", "s", [Section("S", charts=[bars("a", "A", [{"a": evil, "n": 1}], label="a", value="n")])]).html()
    assert "<script" not in page and "&#34;&gt;&lt;script" in page


def test_a_picture_without_long_names_has_no_title_on_the_page() -> None:
    picture = bars("a", "A", [{"a": "/topic/a", "n": 1}, {"a": "", "n": 1}], label="a", value="n")
    assert picture.cut == () and " title=" not in Page("T", "s", [Section("S", charts=[picture])]).html()
    figure = Figure()
    picture.draw(figure, LIGHT)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["/topic/a", EMPTY]
