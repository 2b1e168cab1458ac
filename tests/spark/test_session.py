"""The session that get_session gives: what it sets, and that a running one stays as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from radiator.errors import ConfigError
from radiator.limits import GIB
from radiator.spark import get_session, read, read_stream, session
from radiator.spark.session import driver_memory
from tests.spark.stores import Writer

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


@pytest.mark.parametrize(
    ("machine", "heap"), [(2 * GIB, "1024m"), (16 * GIB, "4096m"), (24 * GIB, "6144m"), (512 * GIB, "16384m")]
)
def test_the_driver_gets_a_quarter_of_the_memory_of_the_machine(machine: int, heap: str) -> None:
    assert driver_memory(machine) == heap


def test_the_memory_is_that_of_the_container_if_it_has_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = tmp_path / "memory.max"
    for text, expected in (("1073741824\n", GIB), ("max\n", machine), (f"{1 << 62}\n", machine)):
        limit.write_text(text)
        monkeypatch.setattr(session, "_CGROUP_LIMITS", (str(tmp_path / "none"), str(limit)))
        assert session._memory_bytes() == expected


def test_a_new_session_has_the_heap_and_the_address_that_it_needs(spark: Any) -> None:
    conf = spark.sparkContext.getConf()
    if "SPARK_DRIVER_MEMORY" not in os.environ:
        assert conf.get("spark.driver.memory") == driver_memory(session._memory_bytes())
    # executors of a local-cluster inherit it; without it they take the address of the name of the machine
    assert spark._jvm.java.lang.System.getenv("SPARK_LOCAL_IP") == os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")


def test_read_raises_for_a_wrong_option_before_it_calls_spark(spark: Any, writer: Writer) -> None:
    with pytest.raises(ConfigError, match="option 'startingOffset' is not known .did you mean startingOffsets"):
        read(spark, writer.root, columns=["offset"], startingOffset=3)
    with pytest.raises(ConfigError, match="option ending_offsets is for batch queries"):
        read_stream(spark, writer.root, columns=["offset"], ending_offsets=3)
