"""A run takes the memory that docs/pipeline.md says, whatever the store holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from radiator.limits import MIB
from tests.spark.stores import MS, START_NS, Message, Writer

PEAK_BYTES_MAX = 640 * MIB  # of the process, what it imports too; 250 to 550 MiB are usual
BLOCK = b"tag-carrier:UA\nnote:a word or two\nsource:here\ncontent-type:application/json"

RUN = """
import re, sys
from radiator.archive.opening import open_files
from radiator.archive.run import Options, run

out = run(sys.argv[1], open_files(sys.argv[2]), Options(merge=True))
assert not out.problems, out.problems
with open("/proc/self/status") as file:
    print(out.records, int(re.search(r"VmHWM:\\s*(\\d+) kB", file.read())[1]) * 1024)
"""


def messages(count: int, body_bytes: int, names: int) -> Iterator[Message]:
    body = b'{"dep_delay": 12, "carrier": "UA", "rest": "' + bytes(range(32, 127)) * (body_bytes // 95 + 1)
    for number in range(count):
        text = b"%d" % number + body[: body_bytes - 20]
        yield Message(f"/topic/flights.{number * 7 % names}", text, BLOCK, START_NS + number * MS)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is asked of Linux")
@pytest.mark.parametrize("segment_bytes", [64 * MIB, 384 * MIB])
@pytest.mark.parametrize(
    ("count", "body_bytes", "names"),
    [(1_500_000, 200, 1), (1_500_000, 200, 10_000), (300_000, 2_000, 50), (170, 4 * MIB, 3)],
)
def test_memory_has_a_bound_whatever_the_store(
    tmp_path: Path, count: int, body_bytes: int, names: int, segment_bytes: int
) -> None:
    writer, pending = Writer(tmp_path / "data", segment_bytes), list[Message]()
    for each in messages(count, body_bytes, names):
        pending.append(each)
        if len(pending) * (body_bytes + 200) >= 4 * MIB:
            writer.write("p", pending, per_batch=1000)
            pending.clear()
    writer.write("p", [*pending, Message("/topic/end", bytes(1000), b"", START_NS + count * MS)], per_batch=1000)
    writer.write("p", [Message("/topic/end", bytes(1000), b"", START_NS + count * MS)] * 3, per_batch=1)
    writer.close()
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "data"), str(tmp_path / "archive")], capture_output=True, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records, peak = map(int, done.stdout.split())
    assert records > count / 2
    assert peak < PEAK_BYTES_MAX, f"{peak / MIB:.0f} MiB"
