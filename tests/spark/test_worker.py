"""What a worker does once in its life: the last words of Spark's daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

# As in pyspark/daemon.py, which is the main module of every worker.
DAEMON = """
import pickle, sys, traceback
from radiator.spark.source import RadiatorSource
from radiator.spark.worker import settle
made = pickle.dumps(RadiatorSource(dict(path='.')))  # by somebody else, who is no daemon
manager = None
{begin}
try:
    raise {error}
except BaseException:
    traceback.print_exc()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("begin", ["settle()", "RadiatorSource(dict(path='.'))", "pickle.loads(made)"])
@pytest.mark.parametrize(
    ("error", "last_line"), [("BrokenPipeError(32, 'Broken pipe')", ""), ("ValueError('bad')", "ValueError: bad\n")]
)
def test_a_query_that_has_enough_leaves_no_traceback_and_every_other_end_does(
    begin: str, error: str, last_line: str
) -> None:
    command = [sys.executable, "-c", DAEMON.format(begin=begin, error=error)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stderr.endswith(last_line)
    assert bool(done.stderr) == bool(last_line)


MEMORY = """
import resource
import numpy as np
from radiator.spark.worker import settle
settle()
for number in range(20):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    columns = [np.ones(1 << 23, np.uint8) for _ in range(6)]
    del columns
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(os, "confstr") or "glibc" not in str(os.confstr("CS_GNU_LIBC_VERSION")), reason="glibc")
def test_memory_of_columns_is_kept_from_batch_to_batch() -> None:
    command = [sys.executable, "-c", MEMORY]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100  # pages; ten times six columns have 120,000


COLLECTED = """
import gc, sys
from radiator.spark.worker import settle
settle()
brought = [[] for _ in range(100_000)]
settle()
left = len(gc.get_objects())
settle()
later = [[] for _ in range(1000)]
settle()
print(left < 1000, len(gc.get_objects()) >= 1000)
"""


def test_what_the_first_task_brings_in_stays_out_of_collections_and_what_later_ones_make_does_not() -> None:
    command = [sys.executable, "-c", COLLECTED]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
