"""A real Celery worker over a real broker, both restarted in the middle of a hundred tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running import BrokerProcess

pytest.importorskip("celery")

ROOT = Path(__file__).parents[2]
TASKS = 100
WAIT_SECONDS = 120.0


class Worker:
    """``celery worker`` with two processes."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.log = directory / "worker.log"
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "celery", "-A", "tests.kombu.tasks", "worker", "-c", "2", "-l", "info"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=self.environment,
                start_new_session=True,
            )  # fmt: skip

    def end(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)
            self.process.wait(WAIT_SECONDS)
        self.process = None


def until(condition: Callable[[], bool], words: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, words()
        time.sleep(0.05)


@pytest.mark.thorough
def test_a_hundred_tasks_run_with_worker_and_broker_restarted_in_the_middle(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    notes = tmp_path / "notes"
    notes.touch()
    environment = {**os.environ, "BROKER": f"radiator://{broker.address}//", "NOTES": str(notes)}
    worker = Worker(tmp_path, environment)

    def done() -> set[int]:
        return {int(line) for line in notes.read_text().split()}

    def asked(code: str) -> str:
        program = f"from tests.kombu.tasks import app, note\n{code}"
        return subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, env=environment, text=True)

    try:
        worker.start()
        assert asked("print(note.delay(12).get(timeout=60))") == "144\n"
        notes.write_text("")
        asked(f"for number in range({TASKS}): note.delay(number)")
        until(lambda: len(done()) >= TASKS // 4, worker.log.read_text)
        worker.end(signal.SIGKILL)
        worker.start()
        until(lambda: len(done()) >= TASKS // 2, worker.log.read_text)
        broker.kill()
        broker.start()
        until(lambda: done() == set(range(TASKS)), worker.log.read_text)
        ping = "print(app.control.broadcast('ping', reply=True, limit=1, timeout=5))"  # back with the first answer
        until(lambda: "pong" in asked(ping), worker.log.read_text)  # on its way back itself it may not hear the first
        repeated = len(notes.read_text().split()) - TASKS
        assert repeated <= 12, "no more may run twice than were held when worker and broker were killed"
    finally:
        worker.end(signal.SIGTERM)
        broker.stop()
