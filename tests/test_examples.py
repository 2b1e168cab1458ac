"""Every program in examples/ runs to its end against a real broker, and says what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

# program -> a part of its output
EXPECTED = {
    "publish.py": "300 messages stored in 3 topics",
    "follow.py": "300 messages of 3 destinations, every offset once and in order",
    "workers.py": "1 was given to a second worker",
    "replay.py": "1000 messages from the start",
    "request_reply.py": "primes below 100: 2 3 5 7",
    "asyncio_workers.py": "300 jobs done, the sum of their squares is 8955050",
    "transactions.py": "order: 3 teapots, delivery 2",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs(name: str, broker: BrokerProcess) -> None:
    if name == "follow.py":
        run("publish.py", broker)
    assert EXPECTED[name] in run(name, broker)


def run(name: str, broker: BrokerProcess) -> str:
    command = [sys.executable, str(EXAMPLES / name), "--url", broker.address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # also where radiator is not installed
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("_")} == set(EXPECTED)
