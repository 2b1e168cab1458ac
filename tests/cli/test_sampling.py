"""radiator cursors sample, with a real broker: the history of lags is messages like others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.client import connect
from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent.parent
QUEUE = "/queue/sampled"


@pytest.fixture(autouse=True)
def address(shared_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("RADIATOR_URL", shared_broker.address)
    yield shared_broker.address


def stored(address: str, topic: str) -> list[Any]:
    with connect(address) as connection:
        found = connection.subscribe(topic, start_position="first", stop_position="end")
        return [(json.loads(each.body), dict(each.headers)) for each in found]


@pytest.mark.thorough
def test_a_sample_has_every_cursor_that_matches_with_one_time(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    topic = "/topic/ops.sampled"
    with connect(address) as connection:
        connection.send_many([(QUEUE, b"x")] * 3)
    arguments = ["cursors", "sample", f"queue:{QUEUE}*", "--to", topic, "--every", "1s", "--count", "2"]
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"samples": 2, "published": 2, "to": topic}
    found = stored(address, topic)
    for row, headers in found:
        assert (row["cursor"], row["partition"], row["lag"], row["end"]) == (f"queue:{QUEUE}", QUEUE, 3, 3)
        assert (row["position"], row["in_flight"], row["members"]) == (0, 0, 0)
        assert headers["event-time"] == str(row["time_ns"])
        assert headers["content-type"] == "application/json"
    assert found[0][0]["time_ns"] < found[1][0]["time_ns"]


def test_samples_can_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["send", QUEUE, "x"]) == 0
    capsys.readouterr()
    assert run(["cursors", "sample", f"queue:{QUEUE}", "--to", "-", "--count", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["cursor"] == f"queue:{QUEUE}"


def test_nothing_that_matches_is_no_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cursors", "sample", "sub:nobody", "--to", "/topic/ops.none", "--count", "1"]) == 0
    assert capsys.readouterr().out == "1 sample, 0 messages to /topic/ops.none\n"


def test_a_width_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for every in ("soon", "0s"):
        assert run(["cursors", "sample", "--every", every]) == 2
        assert f"--every: expected a duration such as 30s or 5m, got '{every}'" in capsys.readouterr().err


def test_it_goes_on_until_it_is_interrupted(address: str) -> None:
    command = [sys.executable, "-m", "radiator", "cursors", "sample", f"queue:{QUEUE}", "--to", "-", "--every", "1ms"]
    with connect(address) as connection:
        connection.send(QUEUE, b"x")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None and process.stderr is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip()) == (130, b"")
    assert lines[0]["time_ns"] < lines[1]["time_ns"] < lines[2]["time_ns"]
