"""The scene of ``make console``: it shows what docs/console.md says, and ends when it is asked to."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from radiator.client import connect
from radiator.client.admin import ask
from tests.running import free_port

pytestmark = pytest.mark.thorough
ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 60


def test_one_group_lags_and_delays_become_dead_letters(tmp_path: Path) -> None:
    port, admin = free_port(), free_port()
    config = tmp_path / "scene.yaml"
    text = (ROOT / "examples" / "flights" / "scene.yaml").read_text()
    config.write_text(text.replace("61613", str(port)).replace("8161", str(admin)))
    command = [sys.executable, "-m", "examples.flights.scene", "--config", config, "--out", tmp_path / "out"]
    scene = subprocess.Popen([*command, "--speed", "5000"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert scene.stdout is not None
        lines = [scene.stdout.readline() for _ in range(3)]
        assert f"the console: http://127.0.0.1:{admin}/console/\n" in lines
        deadline = time.monotonic() + WAIT_SECONDS
        with connect(f"127.0.0.1:{port}") as client:
            while True:
                lag = {}
                for row in ask(client, "cursors.ls", match="group:*")["cursors"]:
                    lag[row["cursor"]] = lag.get(row["cursor"], 0) + row["lag"]
                dead = ask(client, "destinations.ls", dead_letters=True)["destinations"]
                letters = sum(each["total"] for each in dead)
                if lag.get("group:billing", 0) > 10 and letters:
                    break
                assert time.monotonic() < deadline, (lag, dead)
                time.sleep(0.2)
        scene.send_signal(signal.SIGINT)
        assert scene.wait(WAIT_SECONDS) == 0
    finally:
        scene.kill()
        scene.wait()
