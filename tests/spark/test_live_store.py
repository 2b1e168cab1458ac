"""What Spark reads is what the broker hands out, while it is being written: ``tests/spark/live_store.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.live_store import run

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.mark.parametrize("records", [50_000, pytest.param(5_600_000, marks=pytest.mark.slow)])
def test_spark_counts_and_hashes_what_the_broker_hands_out(spark: Any, tmp_path: Path, records: int) -> None:
    outcome = run(spark, tmp_path, records)
    assert outcome.records > records * 3 // 4
    assert outcome.given_up > 0
    print(outcome)
