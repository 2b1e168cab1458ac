"""What a worker does once in its life: the last words of Spark's daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

# As in pyspark/daemon.py, which is the main module of every worker.
DAEMON = """
import sys, traceback
from radiator.spark.worker import settle
settle()
try:
    raise {error}
except BaseException:
    traceback.print_exc()
"""


@pytest.mark.parametrize(
    ("error", "last_line"), [("BrokenPipeError(32, 'Broken pipe')", ""), ("ValueError('bad')", "ValueError: bad\n")]
)
def test_a_query_that_has_enough_leaves_no_traceback_and_every_other_end_does(error: str, last_line: str) -> None:
    command = [sys.executable, "-c", DAEMON.format(error=error)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stderr.endswith(last_line)
    assert bool(done.stderr) == bool(last_line)
