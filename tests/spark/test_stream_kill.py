"""Killed, query and broker, again and again: each record of the log is in the sink, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.killing import new_seed
from tests.spark.query_killing import QueryKilling

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def kill(directory: Path, queries: int, brokers: int) -> dict[str, int]:
    seed = new_seed()
    killing = QueryKilling(directory, seed)
    try:
        killing.start()
        for number in range(queries - 1):  # the last one is killed by ``finish``
            if number * brokers % queries < brokers:
                killing.kill_broker()
            killing.kill_query()
        killing.finish()
        return killing.compare()
    except BaseException as error:
        error.add_note(f"seed {seed}, in {directory}")
        raise
    finally:
        killing.close()


def test_nothing_is_lost_and_nothing_doubled_by_kills_of_query_and_broker(tmp_path: Path) -> None:
    assert kill(tmp_path, queries=2, brokers=1)["records"] > 0


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_doubled_by_a_hundred_kills_of_the_query_and_twenty_of_the_broker(
    tmp_path: Path,
) -> None:
    figures = kill(tmp_path, queries=100, brokers=20)
    print(figures)
    assert figures["begun again"] > 0  # some kills came in the middle of a batch
