"""Who reads a store needs memory for some batches, however large the store is and whatever is in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from radiator.limits import BATCH_BYTES_MAX, MIB
from tests.columns.bulk import RECORDS_OF_HUGE, huge, tiny, write_log

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is asked of Linux"),
]

GROWTH_BYTES_MAX = 16 * BATCH_BYTES_MAX  # a batch, its regions unpacked, its columns, and what making them takes

READ = """
import re, sys
from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection

def peak():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s*(\\d+) kB", file.read())[1]) * 1024

options, schema, before = ReadOptions(sys.argv[1], Selection(), split_bytes=1 << 40), arrow_schema(), peak()
rows = size = 0
for task in plan(options):
    for batch in read(task, options, schema, Counters()):
        rows, size = rows + batch.num_rows, size + batch.nbytes
print(rows, size, peak() - before)
"""


@pytest.mark.thorough
def test_a_store_larger_than_the_memory_is_read_in_it(tmp_path: Path) -> None:
    """All columns of tiny commits, of the largest batches, and of those in a twentieth of their size, in one task."""
    records, _ = write_log(tmp_path, "tiny", tiny(40_000))
    large, stored = write_log(tmp_path, "huge", huge(8))
    packed, packed_bytes = write_log(tmp_path, "packed", huge(24, level=3))
    assert packed_bytes < 3 * stored / 10
    command = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    rows, size, growth = map(int, done.stdout.split())
    assert rows == records + large + packed == 40_000 + 32 * RECORDS_OF_HUGE
    assert size > 2 * GROWTH_BYTES_MAX
    assert growth < GROWTH_BYTES_MAX, f"{growth / MIB:.0f} MiB for {size / MIB:.0f} MiB of rows"
