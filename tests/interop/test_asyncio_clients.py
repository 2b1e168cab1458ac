"""stompman and FastStream: the programs of docs/clients.md run against a broker."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
SECONDS_MAX = 60


def program_of(heading: str, port: int) -> str:
    """The first Python program below a heading, for the broker on this port."""
    text = PAGE.read_text("utf-8").split(f"\n## {heading}\n", 1)[1]
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].replace("61613", str(port)).replace("localhost", "127.0.0.1")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("heading", "module", "lines"),
    [
        ("stompman", "stompman", ["stored", "got wash", "replayed hello"]),
        ("FastStream", "faststream_stomp", ["stored", "got wash", "wash: done"]),
    ],
)
def test_the_program_of_an_asyncio_client_runs(heading: str, module: str, lines: list[str], tmp_path: Path) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install {module.replace('_', '-')}")
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program_of(heading, broker.port)],
            capture_output=True, text=True, timeout=SECONDS_MAX,
        )  # fmt: skip
        assert sorted(line for line in done.stdout.splitlines() if line in lines) == sorted(lines), done.stderr
        assert done.returncode == 0, done.stderr
    finally:
        broker.kill()
