"""What a report says of queues that nobody consumes, without samples of cursors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from radiator.client import connect
from radiator.spark import cursors
from radiator.spark import waiting as module
from radiator.spark.report import make_report
from radiator.spark.waiting import WAITING_NS, waiting
from tests.running import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
CONFIG = "destinations: [{match: /queue/poison, redeliver: {max: 1}, dead_letter: /queue/dead}]"


@pytest.fixture
def store(start_broker: Any) -> str:
    """280 messages wait in one queue, 3 of 5 in another; a third has a dead letter, a fourth is empty again."""
    broker: BrokerProcess = start_broker(CONFIG)
    with connect(broker.address) as connection:
        connection.send_many([("/queue/jobs", b"x")] * 280)
        connection.send_many([("/queue/some", b"x")] * 5)
        connection.send_many([("/queue/done", b"x"), ("/queue/poison", b"x")])
        for name, count in (("/queue/some", 2), ("/queue/done", 1)):
            with connection.subscribe(name) as inbox:
                for _ in range(count):
                    message = inbox.fetch(30)
                    assert message is not None
                    message.ack(receipt=True)
        with connection.subscribe("/queue/poison") as inbox:
            message = inbox.fetch(30)
            assert message is not None
            message.reject(receipt=True)
    assert broker.stop() == 0
    return str(broker.data)


def test_what_waits_for_long_is_found_in_the_files(store: str) -> None:
    now_ns = time.time_ns()
    assert waiting(store, now_ns) == []  # it came just now
    rows = waiting(store, now_ns + WAITING_NS)
    assert [(row["cursor"], row["partition"], row["lag"]) for row in rows if "dead" not in row["cursor"]] == [
        ("queue:/queue/jobs", "/queue/jobs", 280),
        ("queue:/queue/some", "/queue/some", 3),
    ]
    assert abs(rows[0]["oldest"].timestamp() - time.time()) < 600


def test_the_cursors_of_a_store_are_a_dataframe(spark: Any, store: str) -> None:
    rows = {row.cursor: row for row in cursors(spark, store).collect() if "dead" not in row.cursor}
    assert {name.removeprefix("queue:/queue/"): (row.settled_to, row.end, row.lag) for name, row in rows.items()} == {
        "done": (1, 1, 0),
        "jobs": (0, 280, 280),
        "poison": (1, 1, 0),
        "some": (2, 5, 3),
    }
    assert all(row.settled_ranges == [] for row in rows.values())


def test_a_report_says_that_a_queue_waits(
    spark: Any, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_NS", 0)
    report = make_report(store, tmp_path / "report", spark=spark)
    head = report.page.sections[0]
    assert head.summary == "Findings:"
    (jobs, some) = [line for line in head.findings if line.startswith("Lag: ")]
    assert jobs.startswith("Lag: queue:/queue/jobs: 280 messages unacknowledged, the oldest received at 20")
    assert some.startswith("Lag: queue:/queue/some: 3 messages unacknowledged")
    assert [row["lag"] for row in report.answers["waiting"]] == [280, 3]
