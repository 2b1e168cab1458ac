"""systemd is told when the broker is ready, reloads, stops and hangs: real processes, and its protocol."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging" / "systemd" / "radiator.service"
WAIT_SECONDS = 20.0


class Manager:
    """The end of the service manager: a datagram socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(WAIT_SECONDS)

    def next(self) -> dict[str, str]:
        lines = self.socket.recv(4_096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def next_with(self, name: str) -> dict[str, str]:
        while name not in (found := self.next()):
            pass
        return found


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    address = str(tmp_path / "n") if request.param == "path" else f"@radiator-test-{os.getpid()}"
    manager = Manager(address)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    yield manager
    manager.socket.close()


def test_the_manager_hears_of_the_whole_life(manager: Manager, start_broker: StartBroker) -> None:
    broker = start_broker("drain: {on_stop: 100ms}\n")
    ready = manager.next()
    assert ready["READY"] == "1" and broker.address in ready["STATUS"]
    os.kill(broker.pid, signal.SIGHUP)
    assert "MONOTONIC_USEC" in manager.next_with("RELOADING")
    assert manager.next() == ready
    with Wire(broker) as client:
        client.open()
        assert broker.stop() == 0
        assert [frame.headers["error-code"] for frame in client.rest()] == ["draining"]
    stopping = manager.next()
    assert (stopping["STOPPING"], stopping["STATUS"]) == ("1", "Disconnecting clients for 0.1 s")
    assert 100_000 < int(stopping["EXTEND_TIMEOUT_USEC"]) < 30_000_000  # so long it waits


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_the_manager_hears_of_the_end_of_a_reload_when_the_new_values_hold(
    manager: Manager, start_broker: StartBroker
) -> None:
    broker = start_broker("limits: {connections: 7}\n")
    ready = manager.next()
    path = broker.data.parent / "radiator.yaml"
    for text, words in (("limits: {connections: 8}\n", "limits.connections: 7 -> 8"), ("x: 1\n", "x: unknown key")):
        path.write_text(text)
        before_us = time.monotonic_ns() // 1_000
        os.kill(broker.pid, signal.SIGHUP)
        assert int(manager.next_with("RELOADING")["MONOTONIC_USEC"]) >= before_us
        assert manager.next() == ready
        assert broker.logs(words)


def test_a_broker_whose_event_loop_stands_still_sends_no_beat(
    manager: Manager, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    broker = start_broker()
    for _ in range(3):
        manager.next_with("WATCHDOG")
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        manager.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            for _ in range(9):  # those that were sent before
                manager.next()
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    manager.socket.settimeout(WAIT_SECONDS)
    manager.next_with("WATCHDOG")


def test_the_watchdog_of_another_process_is_ignored(
    manager: Manager, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    broker = start_broker()
    assert "READY" in manager.next()
    assert broker.stop() == 0
    assert "STOPPING" in manager.next()


def test_a_manager_that_is_gone_stops_nothing(manager: Manager, start_broker: StartBroker) -> None:
    manager.socket.close()
    broker = start_broker()
    assert broker.stop() == 0 and "Traceback" not in broker.text()


def test_a_wrong_configuration_ends_with_the_code_that_is_not_restarted(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("listn: x")
    command = [sys.executable, "-m", "radiator", "serve", "--config", str(wrong)]
    code = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=WAIT_SECONDS).returncode
    assert f"RestartPreventExitStatus={code}" in UNIT.read_text().splitlines()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "radiator.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/radiator", "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit]
    assert subprocess.run(command, capture_output=True).returncode == 0, "exposure above 2.0"
