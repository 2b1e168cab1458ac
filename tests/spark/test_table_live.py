"""``table`` beside a broker that writes, rolls and removes, and an archiver that takes what it can: always everything,
always once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from radiator.archive import open_files
from radiator.archive.merging import Sizes
from radiator.archive.run import Options, run
from radiator.client import connect
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.spark import table
from tests.running import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.thorough]
StartBroker = Callable[..., BrokerProcess]

CONFIG = """
defaults: {segment: {size: 64KiB}, fsync: always, retention: {age: 1s, wait_for: archive}}
destinations:
  - {match: /topic/flights.*, partition: flights}
"""
LOOKS_MAX = 300
PAUSE_SECONDS = 0.3  # between two runs: each leaves files behind, and a look opens all of them
TO = ("/topic/flights.JFK", "/topic/flights.LGA", "/topic/solo")


class Traffic:
    """Threads that publish and archive until the end; what has a receipt is counted."""

    def __init__(self, broker: BrokerProcess, archive: Path, options: Options) -> None:
        self.broker, self.archive, self.options, self.runs = broker, archive, options, 0
        self.receipted: dict[str, int] = {}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(each,)) for each in (self._publish, self._keep)]
        self.faults: list[BaseException] = []

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                work()
        except BaseException as error:
            self.faults.append(error)

    def _publish(self) -> None:
        with connect(self.broker.address) as connection:
            while not self._stop.wait(0.05):  # others want to run, too
                receipts = connection.send_many((TO[number % 3], b"x" * 1500) for number in range(60))
                self.receipted.update({each.partition: each.offset + 1 for each in receipts})

    def _keep(self) -> None:
        run(str(self.broker.data), open_files(self.archive), self.options)
        self.runs += 1
        self._stop.wait(PAUSE_SECONDS)

    @contextmanager
    def going(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()
        assert not self.faults


def starts(data: Path) -> dict[str, int]:
    return {each.name: each.log_start_offset for each in partitions(open_store(str(data)))}


def check_whole(spark: Any, traffic: Traffic) -> None:
    """Every offset from 0 on, once, at least up to what was receipted before."""
    receipted = dict(traffic.receipted)
    df = table(spark, traffic.broker.data, traffic.archive, columns=["partition", "offset"])
    facts = F.count("*").alias("n"), F.count_distinct("offset").alias("each"), F.min("offset"), F.max("offset")
    found = {row["partition"]: tuple(row)[1:] for row in df.groupBy("partition").agg(*facts).collect()}
    for partition, (count, distinct, first, last) in found.items():
        assert (count, distinct, first) == (last + 1, last + 1, 0), (partition, found)
        assert last + 1 >= receipted.get(partition, 0)
    assert set(receipted) <= set(found)


def check_for(spark: Any, start_broker: StartBroker, archive: Path, times: int, options: Options) -> int:
    """How often a query had to be made again, since files of its were merged."""
    broker = start_broker(CONFIG)
    traffic = Traffic(broker, archive, options)
    done = again = 0
    with traffic.going():
        while done < times or (done < LOOKS_MAX and min(starts(broker.data).values(), default=0) == 0):
            if traffic.faults:
                break
            try:
                check_whole(spark, traffic)
                done += 1
            except Exception as error:
                if "FAILED_READ_FILE" not in str(error) or options.merge is False:
                    raise
                again += 1
    assert traffic.runs > 1 and min(starts(broker.data).values()) > 0  # retention was at work
    check_whole(spark, traffic)
    assert broker.stop() == 0
    check_whole(spark, traffic)
    return again


def test_nothing_is_missing_or_doubled_whatever_the_broker_does(
    spark: Any, start_broker: StartBroker, tmp_path: Path
) -> None:
    check_for(spark, start_broker, tmp_path / "archive", 3, Options(merge=False))


@pytest.mark.slow
def test_nothing_is_missing_or_doubled_however_often_one_looks(
    spark: Any, start_broker: StartBroker, tmp_path: Path
) -> None:
    check_for(spark, start_broker, tmp_path / "archive", 60, Options(merge=False))


@pytest.mark.slow
def test_merging_small_files_ends_a_query_at_worst(spark: Any, start_broker: StartBroker, tmp_path: Path) -> None:
    check_for(spark, start_broker, tmp_path / "archive", 30, Options(sizes=Sizes(open_day_files=4)))
