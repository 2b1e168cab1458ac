"""What a report can be asked, as text: what is understood, what is refused, and in which words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from radiator.cli import main as command_line
from radiator.errors import ConfigError
from radiator.spark.sections import SECTIONS, chosen
from radiator.spark.sections.options import Options, parse
from tests.spark.stores import START_NS

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("@2023-11-14T22:13:20Z", START_NS),
        ("2023-11-14T23:13:20+01:00", START_NS),
        (f"@{START_NS}", START_NS),
        ("-1h30m", START_NS - 5400 * SECOND),
        ("-7d", START_NS - 7 * 86_400 * SECOND),
    ],
)
def test_a_time_is_absolute_or_before_now(text: str, ns: int) -> None:
    assert parse({"start": text}, START_NS).start == ns


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1h30m", 5400), ("2 hours", 7200), ("1 day", 86_400)])
def test_a_width_is_short_or_an_interval_of_spark(text: str, seconds: int) -> None:
    assert parse({"every": text}, 0).every == seconds


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("start", "the other day", "--from: expected a time such as"),
        ("until", "-1y", "--until: expected a time such as"),
        ("every", "0s", "--every: expected a width such as 30s, 5m"),
        ("limit", 0, "--limit: expected a whole number from 1 to 1000, got '0'"),
        ("evry", "1h", "a report has no option 'evry': expected by, destination"),
    ],
)
def test_what_does_not_fit_is_reported_with_what_was_expected(option: str, value: str | int, words: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse({option: value}, START_NS)
    assert words in str(told.value)


def test_by_destination_is_what_it_is_without() -> None:
    assert parse({"by": "destination"}, 0) == Options() and parse({"by": "partition"}, 0).by == "partition"


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match="--from must be before --until"):
        parse({"start": "-1h", "until": "-2h"}, START_NS)


def test_a_width_that_makes_too_many_pieces_is_refused() -> None:
    assert Options(every=60).width(timedelta(days=1)) == (60, "60 seconds")
    assert Options().width(timedelta(days=1))[1] == "30 minutes"
    with pytest.raises(ConfigError, match="--every 1s would cut 365 d into 31,536,000 pieces: expected at most 5,000"):
        Options(every=1).width(timedelta(days=365))


def test_sections_are_chosen_by_name_and_stand_in_the_order_of_the_page() -> None:
    assert chosen(None) == chosen(["all"]) == list(SECTIONS)
    assert chosen(["latency", "traffic"]) == ["traffic", "latency"]
    with pytest.raises(ConfigError, match="there is no section trafic: expected traffic, latency"):
        chosen(["trafic"])


def test_the_command_refuses_an_option_that_no_chosen_section_looks_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["report", "integrity", "--every", "5m"]) == 2
    assert "--every cannot be used with integrity; it belongs to traffic" in capsys.readouterr().err


def test_the_help_of_the_command_lists_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["report", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, entry in SECTIONS.items():
        assert f"{name} {entry.question}" in shown
