"""A forked broker ends, and is watched, as a new process is."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forking import Forked, can_fork, fork
from tests.running import BrokerProcess

pytestmark = pytest.mark.skipif(not can_fork(), reason="brokers are new processes here")


def test_a_broker_is_forked_and_reports_how_it_ended(start_broker: Callable[..., BrokerProcess]) -> None:
    stopped, killed = start_broker(), start_broker()
    assert isinstance(stopped.process, Forked) and isinstance(killed.process, Forked)
    with pytest.raises(subprocess.TimeoutExpired):
        stopped.process.wait(0.01)
    assert stopped.process.poll() is None and stopped.stop() == 0 and stopped.process.poll() == 0
    killed.kill()
    assert killed.process.returncode == -signal.SIGKILL


def test_it_has_the_environment_and_the_output_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADIATOR_URL", "nonsense://")
    with (tmp_path / "out").open("wb") as output:
        process = fork(["stats"], output)
    assert process.wait(30) == 2
    assert "nonsense" in (tmp_path / "out").read_text()


def test_a_changed_environment_of_python_needs_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    assert not can_fork()
