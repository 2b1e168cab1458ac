"""One SparkSession for all tests here: starting one costs more than all of them together."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.stores import Writer

HAVE_SPARK = importlib.util.find_spec("pyspark") is not None and importlib.util.find_spec("pyarrow") is not None
collect_ignore_glob = [] if HAVE_SPARK else ["test_*.py"]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from radiator.spark import get_session

    quick = {  # many small queries: starting matters, running does not
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    session = get_session("radiator tests", "local[2]", quick, log_level="OFF")
    yield session
    session.stop()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A store at ``writer.root``, being written."""
    made = Writer(tmp_path / "data")
    yield made
    made.close()
