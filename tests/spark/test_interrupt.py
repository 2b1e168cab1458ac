"""Ctrl-C while Java is starting, and while it works: the command ends as interrupted, and takes its Java along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.spark.stores import START_NS, Message, Writer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.thorough,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
]
ROOT = Path(__file__).parents[2]
SECONDS_MAX = 60.0


def processes(mark: str) -> list[tuple[int, str]]:
    """Those that have ``mark`` in their environment, with their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            pass  # it ended just now, or is somebody else's
    return found


@pytest.mark.parametrize(("running", "when"), [("/java", "Java starts"), ("pyspark.daemon", "records are read")])
def test_ctrl_c_leaves_no_java_and_no_empty_folder(running: str, when: str, writer: Writer, tmp_path: Path) -> None:
    writer.write("/topic/a", [Message("/topic/a", b"1", b"", START_NS, None, None)])
    mark, folder = uuid.uuid4().hex, tmp_path / "report"
    command = [sys.executable, "-m", "radiator", "report", "--data", writer.root, "--out", str(folder)]
    environ = {**os.environ, "RADIATOR_TEST": mark}
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not any(running in words for _, words in processes(mark)):
            assert time.monotonic() < deadline and process.poll() is None, f"before {when}"
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
        deadline = time.monotonic() + SECONDS_MAX
        while left := processes(mark):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
        assert not folder.exists()
    finally:
        for pid, _ in processes(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
