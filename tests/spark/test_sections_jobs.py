"""The sections about what is late, frequent, in sessions, dead or absent: one store, one report, and what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from radiator.spark.page import Section
from radiator.spark.report import Report, make_report
from radiator.spark.sections.options import Options
from radiator.spark.sections.sessions import section as sessions_section
from radiator.spark.sections.top import section as top_section
from tests.spark.stores import MS, START_NS, Message, Writer, numbered
from tests.spark.test_source import damage

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

SECTIONS = ["lateness", "top", "sessions", "dead-letters", "integrity"]
MINUTE_NS = 60_000 * MS


def order(number: int) -> Message:
    """One a minute. Every tenth is half an hour late; half of them are the first customer's."""
    customer = 1 if number % 2 else number
    block = f"partition-key:customer-{customer}\nproducer-id:till-{number % 3}\nsequence:{number}\ntag-country:NZ"
    received = START_NS + number * MINUTE_NS
    late_ns = 30 * MINUTE_NS if number % 10 == 0 else 100 * MS
    return Message("/topic/orders", json.dumps({"shop": "a"}).encode(), block.encode(), received, received - late_ns)


def letter(number: int, reason: str) -> Message:
    died = START_NS + number * MINUTE_NS
    block = f"dlq-reason:{reason}\ndlq-destination:/queue/mail\ndlq-deliveries:3\ndlq-time:{died}\nerror:no such <host>"
    return Message("/queue/dead", b"", block.encode(), died)


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Report:
    writer = Writer(tmp_path_factory.mktemp("sections") / "data")
    writer.write("orders", [order(number) for number in range(200)])
    writer.write("dead", [*[letter(n, "rejected") for n in range(4)], letter(90, "expired")])
    writer.write("twice", [Message("/queue/twice", b"", b"dedup-id:pay-1", START_NS + n * MINUTE_NS) for n in range(2)])
    writer.write("harmed", numbered("/topic/harmed", 30), per_batch=10)
    writer.close()
    damage(writer.root, "harmed")
    folder = tmp_path_factory.mktemp("out")
    return make_report(writer.root, folder, spark=spark, sections=SECTIONS, fail_on_data_loss=False, limit=5, gap="2m")


def found(made: Report, title: str) -> str:
    (text,) = [section.summary for section in made.page.sections if section.title == title]
    return text


def test_lateness_says_how_long_a_watermark_waits(made: Report) -> None:
    rows = {row["destination"]: row for row in made.answers["disorder"]}
    assert rows["/topic/orders"]["disordered"] == 19  # the first one has none before it
    assert rows["/topic/orders"]["keep_all_ms"] == 29 * 60_000 - 100
    assert "came after a later event. A watermark delay of" in found(made, "Lateness")
    assert made.answers["lateness_all"][0]["late_1h"] == 0


def test_top_names_the_key_that_has_half_of_everything(made: Report) -> None:
    assert made.answers["keys"][0]["value"] == "customer-1"
    assert "101 values of partition-key: 1 of them has half of the messages" in found(made, "Top")
    assert "customer-1 alone is 50%." in found(made, "Top")
    assert "till-0 sends most" in found(made, "Top")
    assert len(made.answers["keys"]) == 5


def test_sessions_end_where_the_gap_is(made: Report) -> None:
    assert "sessions of partition-key, with gaps of up to 2 min" in found(made, "Sessions")
    busiest = made.answers["sessions"][0]
    assert (busiest["key"], busiest["sessions"], busiest["messages"]) == ("customer-1", 1, 100)


def test_dead_letters_are_reported_by_cause_with_their_reasons(made: Report) -> None:
    text = found(made, "Dead letters")
    assert "5 dead letters; most, 80%, are from /queue/mail: rejected." in text
    assert "The most frequent value: no such <host> (5)." in text
    assert made.folder is not None
    assert "<host>" not in (made.folder / "report.html").read_text("utf-8")


def test_integrity_says_what_is_missing_and_why(made: Report) -> None:
    assert made.missing == 10
    text = found(made, "Integrity")
    assert "Incomplete: 10 offsets missing, 0 twice" in text
    assert "In harmed: batch at offset 10: crc" in text
    (lost,) = made.answers["absent"]
    assert (lost["partition"], lost["first_missing"], lost["last_missing"]) == ("harmed", 10, 19)


def test_integrity_reports_messages_that_were_stored_twice_with_one_id(made: Report) -> None:
    (again,) = made.answers["repeats"]
    assert (again["identity"], again["messages"], again["destination"]) == ("pay-1", 2, "/queue/twice")
    (section,) = [section for section in made.page.sections if section.title == "Integrity"]
    told = "1 message stored again with the same message id: dedup-id pay-1 exists 2 times in /queue/twice"
    assert section.findings[-1] == told
    assert "Stored again with the same message id" in [table.title for table in section.tables]


def test_their_pictures_are_files(made: Report) -> None:
    assert {path.name for path in made.files} >= {
        "lateness.png", "lateness-time.png", "watermark.png", "keys.png", "senders.png", "tags.png",
        "session-lengths.png", "sessions.png", "dead-letters.png", "dead-letters-time.png",
    }  # fmt: skip


def test_the_end_of_a_log_that_is_lost_is_missing_too(spark: Any, writer: Writer) -> None:
    """Nothing behind it shows a gap."""
    writer.write("p", numbered("/topic/a", 20), per_batch=10)
    writer.close()
    damage(writer.root, "p")
    report = make_report(writer.root, spark=spark, sections=["integrity"], fail_on_data_loss=False)
    assert report.missing == 10
    assert report.answers["integrity"][0]["last_offset"] == 9


def test_a_section_without_anything_to_show_says_what_it_looked_for() -> None:
    nothing = sessions_section({"session_lengths": [], "sessions": []}, Options(key="$.tail"))
    assert nothing.empty
    assert nothing.summary.startswith("No message carries $.tail;")


def test_a_share_of_few_messages_says_nothing() -> None:
    def made(times: int) -> Section:
        keys = [
            {"value": f"k{n}", "messages": times * (3 if n == 0 else 1), "share": 0.12, "bytes": 0} for n in range(22)
        ]
        skew = [{"values": 23, "values_50": 9, "values_90": 20}]
        balance = [{"destination": "/topic/a", "partition": "p", "messages": 3 * times, "share": 1.0, "even": 3.0}]
        tags = [{"key": "t", "value": "v", "messages": times, "share": 1.0, "values": 1}]
        answers = {"tags": tags, "keys": keys, "key_skew": skew, "partition_balance": balance, "senders": []}
        return top_section(answers, Options(limit=100))

    few, many = made(1), made(10)
    assert few.findings == [] and "even share" not in few.summary
    assert many.findings == ["k0 has 12% of the messages with partition-key"]
    assert "Partition p has 3.0 times its even share" in many.summary
    assert "The most frequent is t, with 1 value; 100% of its messages have v." in many.summary
    tags, keys = many.charts
    assert tags.note.endswith("the 10 most frequent at most") and keys.note == "Messages by partition-key"
