"""The session that get_session gives: a running one stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.spark import get_session

pytestmark = pytest.mark.spark

ZONE, PARTITIONS = "spark.sql.session.timeZone", "spark.sql.shuffle.partitions"


def test_a_session_that_runs_keeps_its_settings(spark: Any) -> None:
    before = {key: spark.conf.get(key) for key in (ZONE, PARTITIONS)}
    assert before[ZONE] == "UTC"  # as get_session makes one
    try:
        spark.conf.set(ZONE, "America/New_York")
        spark.conf.set(PARTITIONS, "77")
        assert get_session() is spark
        assert (spark.conf.get(ZONE), spark.conf.get(PARTITIONS)) == ("America/New_York", "77")
        get_session(config={PARTITIONS: "5"})
        assert (spark.conf.get(ZONE), spark.conf.get(PARTITIONS)) == ("America/New_York", "5")
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
