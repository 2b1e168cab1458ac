"""Two windows of time, compared: which they are, what is different, and in which words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from radiator.spark import units
from radiator.spark.report import make_report
from radiator.spark.sections.compare import times, windows
from radiator.spark.sections.options import Options, parse
from tests.spark.stores import MS, START_NS, Message, Writer

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

S = 1000 * MS
MIDDLE = START_NS + 100 * S


def messages(name: str, start_ns: int, count: int, way_ns: int | None = None) -> list[Message]:
    """Some, within 100 s."""
    step = 100 * S // count
    times_ns = [start_ns + i * step for i in range(count)]
    return [Message(name, b"12345", b"", at, None if way_ns is None else at - way_ns) for at in times_ns]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    writer = Writer(tmp_path_factory.mktemp("compare") / "data")
    for name, before, now, ways in (
        ("/topic/more", 10, 40, (10 * MS, 50 * MS)),
        ("/topic/same", 20, 20, (None, None)),
        ("/topic/new<i>", 0, 5, (MS, MS)),
        ("/topic/gone", 50, 0, (MS, MS)),
    ):
        for start, count, way in ((START_NS, before, ways[0]), (MIDDLE, now, ways[1])):
            if count:
                writer.write(name, messages(name, start, count, way))
    writer.close()
    return writer.root


WINDOWS = {"start": str(MIDDLE), "until": str(MIDDLE + 100 * S)}


def test_each_destination_is_there_with_both_sides_the_largest_change_first(spark: Any, store: str) -> None:
    rows = make_report(store, spark=spark, sections=["compare"], **WINDOWS).answers["compare"]
    found = [(row["destination"], row["kind"], row["messages"], row["messages_before"], row["ratio"]) for row in rows]
    assert found == [
        ("/topic/gone", "vanished", 0, 50, None),
        ("/topic/more", "both", 40, 10, 4.0),
        ("/topic/new<i>", "new", 5, 0, None),
        ("/topic/same", "both", 20, 20, 1.0),
    ]
    more, same = rows[1], rows[3]
    assert (more["bytes"], more["bytes_before"], more["rate"], more["difference"]) == (200, 50, 0.4, pytest.approx(0.3))
    assert (more["p50_ms"], more["p50_ms_before"], more["p99_ratio"]) == (50.0, 10.0, 5.0)
    assert (same["p50_ms"], same["p99_ms_before"], same["p99_ratio"]) == (None, None, None)


def test_the_section_says_what_is_different(spark: Any, store: str, tmp_path: Any) -> None:
    report = make_report(store, tmp_path, spark=spark, sections=["compare"], **WINDOWS)
    (section,) = report.page.sections
    assert section.summary == "65 messages now, 80 before: −19%."
    assert section.findings == [
        "silent now: /topic/gone (50)",
        "new: /topic/new<i> (5)",
        "/topic/more: 4.0 ×, 40 now and 10 before",
        "/topic/more is slower: p99 latency 50 ms, before 10 ms",
    ]
    assert [row["remark"] for row in section.tables[0].rows] == ["vanished", "4.0 ×", "new", "the same"]
    assert {path.name for path in report.files} == {"compare.html", "compare.json", "compare.png"}


def test_dead_letters_are_no_new_destination_and_chance_is_no_change(spark: Any, writer: Writer) -> None:
    for name, before, now in (("/topic/a", 20, 33), ("/topic/few", 1, 3)):
        writer.write(name, [*messages(name, START_NS, before, MS), *messages(name, MIDDLE, now, 90 * MS)])
    writer.write("/topic/rare", messages("/topic/rare", START_NS, 3))  # none may well follow in a window as long
    for name, start, count in (
        ("/queue/dead", MIDDLE, 4),
        ("/queue/dead.more", START_NS, 2),
        ("/queue/gone", MIDDLE, 9),
    ):
        letters = [each._replace(block=b"dlq-reason:rejected") for each in messages(name, start, count)]
        writer.write(name, letters)
    writer.write("/queue/gone", messages("/queue/gone", MIDDLE + 99 * S, 1))  # holds other messages too
    report = make_report(writer.root, spark=spark, sections=["compare"], **WINDOWS)
    found = {row["destination"]: (row["dead_letters"], row["dead_letters_before"]) for row in report.answers["compare"]}
    assert found == {
        "/topic/a": (0, 0), "/topic/few": (0, 0), "/topic/rare": (0, 0), "/queue/dead": (4, 0),
        "/queue/dead.more": (0, 2), "/queue/gone": (9, 0),
    }  # fmt: skip
    (section,) = report.page.sections
    assert section.findings == [
        "new: /queue/gone (10)",
        "/topic/a is slower: p99 latency 90 ms, before 1 ms",
        "4 dead letters now in /queue/dead, none before",
    ]
    remarks = {row["destination"]: row["remark"] for row in section.tables[0].rows}
    assert remarks["/queue/dead"] == remarks["/queue/dead.more"] == "dead letters" and remarks["/queue/gone"] == "new"


def test_a_window_that_begins_in_the_future_is_reported_as_that(spark: Any, store: str) -> None:
    (section,) = make_report(store, spark=spark, sections=["compare"], start="2200-01-01T00:00:00Z").page.sections
    assert section.empty and "--from, 2200-01-01 00:00:00, is in the future" in section.summary
    (section,) = make_report(store, spark=spark, sections=["compare"]).page.sections
    assert section.summary.startswith("The log is too short")
    (section,) = make_report(store, spark=spark, sections=["compare"], until="2001-01-01T00:00:00Z").page.sections
    assert section.summary.startswith("The log before --until, 2001-01-01 00:00:00, is too short")


def test_windows_of_different_length_are_compared_by_rate(spark: Any, store: str) -> None:
    window = {"with_start": str(START_NS), "with_until": str(START_NS + 50 * S)}
    (section,) = make_report(store, spark=spark, sections=["compare"], **WINDOWS, **window).page.sections
    assert "rates are compared" in section.text
    assert section.summary == "65 messages now, 40 before: −19% by rate."


def test_an_empty_window_before_or_now_is_reported_as_such(spark: Any, store: str) -> None:
    early = {"start": str(START_NS), "until": str(MIDDLE)}
    (section,) = make_report(store, spark=spark, sections=["compare"], **early).page.sections
    assert section.summary == "80 messages now, none before."
    silent = {"start": str(MIDDLE + 100 * S), "until": str(MIDDLE + 200 * S)}
    (section,) = make_report(store, spark=spark, sections=["compare"], **silent).page.sections
    assert section.summary == "No message now, 65 before."
    nothing = {"start": str(MIDDLE + 500 * S), "until": str(MIDDLE + 600 * S)}
    (section,) = make_report(store, spark=spark, sections=["compare"], **nothing).page.sections
    assert section.summary == "Neither window has a message."


def test_which_windows_are_meant() -> None:
    last = units.utc(START_NS + 10 * 86_400 * S)
    first = units.utc(START_NS)
    assert first is not None and last is not None
    day, end = 86_400 * S, START_NS + 10 * 86_400 * S + 1000
    assert windows(Options(), first, last) == ((end - day, end), (end - 2 * day, end - day))
    half = windows(Options(), first, first + timedelta(hours=2))
    assert half is not None
    assert half[0].start_ns == half[1].until_ns
    assert (half[0].seconds, half[1].seconds) == (pytest.approx(3600), pytest.approx(3600))
    before = START_NS + 6 * 86_400 * S
    assert windows(Options(until=before), first, units.utc(before - S)) == (
        (before - S + 1000 - day, before - S + 1000), (before - S + 1000 - 2 * day, before - S + 1000 - day),
    )  # fmt: skip
    assert windows(Options(until=before), first, first) is None
    assert windows(Options(), first, first) is None
    assert windows(Options(), None, None) is None
    asked = Options(start=START_NS, until=START_NS + S, shift=-7 * 86_400)
    assert windows(asked, None, None) == (
        (START_NS, START_NS + S), (START_NS - 7 * day, START_NS - 7 * day + S),
    )  # fmt: skip
    since = windows(Options(start=START_NS), None, None)
    assert since is not None and since[0].until_ns > START_NS  # nothing came since: it ends now


def test_shifts_are_written_as_they_are_read() -> None:
    assert [parse({"shift": text}, 0).shift for text in ("-7d", "7d", "+1h")] == [-604_800, 604_800, 3600]


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (12.4, "12 ×"),
        (2.0, "2.0 ×"),
        (1.5, "+50%"),
        (1.0, "the same"),
        (1.001, "about the same"),
        (0.25, "−75%"),
        (0.004, "1/250"),
        (0.99, "−1%"),
    ],
)
def test_how_many_times_as_many(ratio: float, words: str) -> None:
    assert times(ratio) == words
