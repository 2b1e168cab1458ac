"""A query that is killed, a broker that is killed, a task that Spark runs again: each row is stored once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from radiator.client import connect
from tests.running import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
KILLS_OF_THE_QUERY, KILLS_OF_THE_BROKER = 8, 4
FILES, LINES = 12, 400


def written(directory: Path) -> list[str]:
    directory.mkdir()
    for file in range(FILES):
        (directory / f"{file:02}.txt").write_text("".join(f"{file}.{line}\n" for line in range(LINES)))
    return sorted(f"{file}.{line}" for file in range(FILES) for line in range(LINES))


def held(broker: BrokerProcess) -> list[str]:
    with connect(broker.address) as connection:
        history = connection.subscribe("/topic/lines", start_position="first", stop_position="end")
        return sorted(message.text for message in history)


def program(broker: BrokerProcess, tmp_path: Path, master: str, flag: str = "-") -> subprocess.Popen[bytes]:
    words = [master, f"stomp://{broker.address}", str(tmp_path / "lines"), str(tmp_path / "checkpoint"), flag]
    command = [sys.executable, "-m", "tests.spark.sink_program", *words]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """Its Java and its workers too, as when a machine fails."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_task_that_spark_runs_again_stores_each_row_once(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker, expected = start_broker(), written(tmp_path / "lines")
    process = program(broker, tmp_path, "local[2,3]", str(tmp_path / "flag"))
    try:
        assert process.wait(300) == 0
    finally:
        end(process)
    assert (tmp_path / "flag").exists()
    assert held(broker) == expected


def test_a_query_and_a_broker_that_are_killed_at_any_time_store_each_row_once(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker, expected = start_broker(), written(tmp_path / "lines")
    chance, pause = random.Random(7), threading.Event()
    kills = ["query"] * KILLS_OF_THE_QUERY + ["broker"] * KILLS_OF_THE_BROKER
    chance.shuffle(kills)
    process = program(broker, tmp_path, "local[2]")
    try:
        for what in kills:
            count, enough = len(held(broker)), chance.randrange(1, 500)
            while len(held(broker)) < min(count + enough, len(expected)) and process.poll() is None:
                pause.wait(0.02)
            if process.poll() is not None:
                break
            if what == "broker":
                broker.kill()
                broker.start()
            else:
                end(process)
                process = program(broker, tmp_path, "local[2]")
        assert process.wait(600) == 0
    finally:
        end(process)
    assert held(broker) == expected
