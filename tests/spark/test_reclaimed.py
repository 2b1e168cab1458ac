"""Queues that are worked off between planning and reading: what the broker has removed on purpose is no loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.client import connect
from radiator.columns.decode import Counters
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.scan import LostRecords
from radiator.limits import KIB
from radiator.spark.options import parse
from radiator.spark.schema import arrow_schema, select
from radiator.storage.files import FileSystem
from radiator.storage.reader import batches, list_partitions
from tests.running import BrokerProcess
from tests.spark.stores import Writer, numbered

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

QUEUE = "/queue/jobs"
CONFIG = """
destinations:
  - {match: '/queue/>', segment: {size: 64KiB}, fsync: never, prefetch: 1000}
"""
COUNT = 400  # of 2 KiB: a dozen segments
BODY = bytes(2 * KIB)


def segments(root: Path | str, partition: str) -> list[Path]:
    (directory,) = [each.directory for each in list_partitions(str(root)) if each.name == partition]
    return sorted(Path(directory).glob("*.rlog"))


def offsets(tasks: Any, options: Any) -> list[int]:
    schema = arrow_schema(select(["offset"]))
    return [
        row["offset"] for task in tasks for each in read(task, options, schema, Counters()) for row in each.to_pylist()
    ]


# --- the files alone --------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> str:
    writer = Writer(tmp_path / "data", 64 * KIB)
    writer.write("p", [each._replace(body=BODY) for each in numbered("/queue/a", 200)], per_batch=5)
    writer.close()
    assert len(segments(writer.root, "p")) > 5
    return writer.root


def test_what_was_removed_since_planning_is_left_out_like_what_was_removed_before(root: str) -> None:
    options = parse({"path": root})
    tasks = plan(options)
    first, second, third = segments(root, "p")[:3]
    first.unlink()
    second.unlink()
    assert offsets(tasks, options) == offsets(plan(options), options) == list(range(int(third.stem), 200))


def test_offsets_that_the_query_names_must_be_there_when_they_are_read(root: str) -> None:
    options = parse({"path": root, "startingOffsets": '{"p": 3}'})
    tasks = plan(options)
    segments(root, "p")[0].unlink()
    with pytest.raises(LostRecords, match="the broker removed it after this read was planned"):
        offsets(tasks, options)
    with pytest.raises(LostRecords, match="have been removed by retention"):
        plan(options)


@pytest.mark.parametrize("place", [1, 2, -1])
def test_a_segment_that_the_broker_cannot_have_removed_is_lost(root: str, place: int) -> None:
    options = parse({"path": root})
    tasks = plan(options)
    segments(root, "p")[place].unlink()
    with pytest.raises(LostRecords, match="the broker did not remove it"):
        offsets(tasks, options)
    skipping = parse({"path": root, "failOnDataLoss": "false"})
    assert 0 < len(offsets(tasks, skipping)) < 200


def test_readers_of_records_distinguish_removed_and_lost_segments(root: str) -> None:
    gaps: list[tuple[int, int, bool]] = []
    (log,) = list_partitions(root)
    first, second, third, fourth = segments(root, "p")[:4]
    first.unlink()
    found = batches(log, 0, lambda *gap: gaps.append(gap), FileSystem())
    assert next(found).base_offset == int(second.stem)
    assert gaps.pop() == (int(first.stem), int(second.stem) - 1, True)
    third.unlink()
    assert {each for batch in found for each in batch.offsets} >= set(range(int(fourth.stem), 200))
    assert gaps == [(int(third.stem), int(fourth.stem) - 1, False)]


# --- a real broker ----------------------------------------------------------------------------------------------------


class Jobs:
    """A queue of a real broker with jobs in small segments, and its worker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.root = broker.data
        self.connection = connect(broker.address, timeout=60)
        self.worker = self.connection.subscribe(QUEUE)

    def put(self) -> None:
        self.connection.send_many((QUEUE, BODY) for _ in range(COUNT))

    def work_off(self) -> None:
        """Until the oldest segment of now is gone."""
        oldest = segments(self.root, QUEUE)[0]
        for _ in range(COUNT):
            message = self.worker.fetch(60)
            assert message is not None
            message.ack()
        while oldest.exists():
            time.sleep(0.01)


@pytest.fixture
def jobs(start_broker: Callable[..., BrokerProcess]) -> Iterator[Jobs]:
    made = Jobs(start_broker(CONFIG))
    yield made
    made.connection.close()


def test_a_read_of_a_queue_that_is_worked_off_meanwhile_has_what_is_left(jobs: Jobs) -> None:
    options = parse({"path": str(jobs.root), "partition": QUEUE})
    for round_ in range(1, 4):
        jobs.put()
        tasks = plan(options)
        jobs.work_off()
        found = offsets(tasks, options)
        assert found == sorted(set(found)) and len(found) < COUNT
        assert all(each < round_ * COUNT for each in found)


def test_a_query_keeps_working_while_a_queue_is_worked_off(spark: Any, jobs: Jobs) -> None:
    from radiator.spark import read as dataframe

    for _ in range(2):
        jobs.put()
        df = dataframe(spark, str(jobs.root), columns=["offset"], partition=QUEUE)
        assert df.count() >= COUNT
        jobs.work_off()
        assert df.count() < COUNT, "the plan is kept, and most of its segments are gone"
