"""Logins and rights of a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from radiator.config.users import load_users
from radiator.server.passwords import make_hash
from radiator.server.users_file import load
from radiator.stomp.encoder import encode
from tests.running import BrokerProcess
from tests.server.wire import WAIT_SECONDS, Wire

ROOT = Path(__file__).parents[2]
USERS = f"""\
users:
  alice: {{password: "{make_hash("secret")}", read: "#", write: /queue/a}}
anonymous: {{read: /topic/barrier, write: /topic/barrier}}
"""
CLIENTS = 300


class Guarded(BrokerProcess):
    """A broker with a users file."""

    def __init__(self, directory: Path, auth: str = "", more: str = "") -> None:
        self.users = directory / "users.yaml"
        self.users.write_text(USERS)
        super().__init__(directory, f"auth: {{users_file: {self.users}{auth}}}\n{more}")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    broker = Guarded(tmp_path_factory.mktemp("guarded"))
    broker.start()
    yield broker
    if broker.running:
        assert broker.stop() == 0, broker.text()


def test_a_login_opens_and_what_was_sent_behind_it_is_done_as_that_user(guarded: Guarded) -> None:
    with Wire(guarded) as wire:
        wire.say("CONNECT", accept_version="1.2", host="test", login="alice", passcode="secret")
        wire.say("SEND", b"1", destination="/queue/a", receipt="r")
        wire.say("SUBSCRIBE", destination="/queue/a", id="0", ack="auto")
        assert wire.hear("CONNECTED")
        assert wire.hear("RECEIPT", receipt_id="r")
        assert wire.hear("MESSAGE").body == b"1"
        wire.say("SEND", b"2", destination="/queue/b")
        assert wire.hear("ERROR").headers["error-code"] == "denied"


def test_a_wrong_login_is_answered_error_and_what_was_sent_behind_it_is_not_done(guarded: Guarded) -> None:
    with Wire(guarded) as wire:
        wire.say("CONNECT", accept_version="1.2", host="test", login="alice", passcode="wrong", receipt="c")
        wire.say("SEND", b"1", destination="/queue/a", receipt="r")
        (error,) = wire.rest()
        assert error.headers["receipt-id"] == "c"
        assert (error.command, error.headers["error-code"]) == ("ERROR", "denied")
        assert b"alice" not in error.body and b"wrong" not in error.body
    assert guarded.logs("login of 'alice' from 127.0.0.1:")
    assert "wrong" not in guarded.text().replace("login or passcode is wrong", "")


def test_many_clients_that_connect_at_once_are_all_let_in(guarded: Guarded) -> None:
    wires = [Wire(guarded) for _ in range(CLIENTS)]
    for wire in wires:
        wire.say("CONNECT", accept_version="1.2", host="test", login="alice", passcode="secret")
    for wire in wires:
        assert wire.hear("CONNECTED")
        wire.close()


@pytest.mark.thorough
def test_a_login_that_takes_too_long_times_out_and_delays_no_other(tmp_path: Path) -> None:
    broker = Guarded(tmp_path, ", plugin: 'tests.server.slow_plugin:ask'", "limits: {connect_timeout: 1s}\n")
    broker.start()
    gate = tmp_path / "open"
    try:
        with Wire(broker) as slow, Wire(broker) as other:
            slow.say("CONNECT", accept_version="1.2", host="test", login="slow", passcode=str(gate))
            slow.say("SEND", b"1", destination="/topic/a")
            other.open(login="quick", passcode="x")
            other.barrier()
            (error,) = slow.rest()
            assert error.headers["error-code"] == "timeout"
            assert "login" in error.headers["message"]
        gate.touch()
    finally:
        assert broker.stop() == 0, broker.text()


@pytest.mark.thorough
def test_hanging_calls_of_a_plug_in_lock_out_no_user_of_the_file(tmp_path: Path) -> None:
    broker = Guarded(tmp_path, ", plugin: 'tests.server.slow_plugin:ask', plugin_timeout: 300ms")
    broker.start()
    gate = tmp_path / "open"
    try:
        hanging = [Wire(broker) for _ in range(6)]
        for number, wire in enumerate(hanging):
            wire.say("CONNECT", accept_version="1.2", host="test", login="slow", passcode=f"{gate}{number}")
        with Wire(broker) as alice:
            alice.open(login="alice", passcode="secret")
        for wire in hanging:
            (error,) = wire.rest()
            assert error.headers["error-code"] == "timeout" and b"auth.plugin_timeout" in error.body
            wire.close()
        with Wire(broker) as other, Wire(broker) as alice:
            other.say("CONNECT", accept_version="1.2", host="test", login="quick", passcode="x")
            assert "earlier logins" in other.hear("ERROR").headers["message"]
            alice.open(login="alice", passcode="secret")
        assert broker.logs("no call of the plug-in returns")
        assert broker.text().count("no call of the plug-in returns") == 1
    finally:
        assert broker.stop() == 0, broker.text()
    assert broker.logs("stopped:")


@pytest.mark.thorough
def test_what_comes_behind_a_login_is_not_read_before_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "radiator.sock"
    broker = Guarded(tmp_path, ", plugin: 'tests.server.slow_plugin:ask'")
    broker._options += ["--listen", f"unix:{path}"]
    broker.start()
    gate = tmp_path / "open"
    body = bytes(4 << 20)
    try:
        with Wire(str(path)) as wire:
            wire.say("CONNECT", accept_version="1.2", host="test", login="slow", passcode=str(gate))
            frame = encode(
                "SEND", [("destination", "/topic/a"), ("content-length", str(len(body))), ("receipt", "r")], body
            )
            wire.socket.settimeout(1)
            with pytest.raises(TimeoutError):
                frame = frame[wire.socket.send(frame) :]
                while frame:
                    frame = frame[wire.socket.send(frame) :]
            assert len(frame) > 2 << 20
            gate.touch()
            wire.socket.settimeout(WAIT_SECONDS)
            wire.send(frame)
            assert wire.hear("CONNECTED")
            assert wire.hear("RECEIPT", receipt_id="r")
    finally:
        assert broker.stop() == 0, broker.text()


def test_a_user_who_is_removed_is_disconnected_on_sighup_and_may_not_come_back(tmp_path: Path) -> None:
    broker = Guarded(tmp_path)
    broker.start()
    try:
        with Wire(broker) as wire, Wire(broker) as anonymous:
            wire.open(login="alice", passcode="secret")
            anonymous.open()
            broker.users.write_text(USERS.replace("alice", "bob"))
            assert broker.process is not None
            broker.process.send_signal(signal.SIGHUP)
            (error,) = wire.rest()
            assert error.headers["error-code"] == "denied"
            anonymous.barrier()
        with Wire(broker) as wire:
            wire.say("CONNECT", accept_version="1.2", host="test", login="alice", passcode="secret")
            assert wire.hear("ERROR").headers["error-code"] == "denied"
        with Wire(broker) as wire:
            wire.open(login="bob", passcode="secret")
    finally:
        assert broker.stop() == 0, broker.text()


def test_a_changed_passcode_ends_the_connections_that_have_logged_in_by_the_old_one(tmp_path: Path) -> None:
    broker = Guarded(tmp_path)
    broker.start()
    try:
        with Wire(broker) as wire, Wire(broker) as anonymous:
            wire.open(login="alice", passcode="secret")
            anonymous.open()
            text = USERS.splitlines()
            text[1] = f'  alice: {{password: "{make_hash("rotated")}", read: "#", write: /queue/a}}'
            broker.users.write_text("\n".join(text))
            assert broker.process is not None
            broker.process.send_signal(signal.SIGHUP)
            (error,) = wire.rest()
            assert (error.headers["error-code"], error.headers["message"]) == (
                "denied",
                "the passcode of this user has changed",
            )
            anonymous.barrier()
        with Wire(broker) as wire:
            wire.open(login="alice", passcode="rotated")
    finally:
        assert broker.stop() == 0, broker.text()
    assert broker.logs("alice: the passcode of this user has changed")


def test_a_broker_with_a_fault_in_its_users_file_does_not_start(tmp_path: Path) -> None:
    broker = Guarded(tmp_path)
    broker.users.write_text("users: {alice: {password: plain}}")
    broker.spawn()
    assert broker.process is not None
    assert broker.process.wait(30) == 2
    assert broker.logs(f"{broker.users}:1: users.alice.password: expected a hash that begins with $argon2")
    assert "plain" not in broker.text()


def test_a_public_address_without_users_is_warned_about(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, options=["--listen", "stomp://0.0.0.0:0"])
    broker.start()
    assert broker.stop() == 0
    assert broker.logs("stomp://0.0.0.0:0 can be reached from other machines, but there are no users")
    assert broker.logs("auth.users_file")


def test_the_example_of_a_users_file_is_one() -> None:
    path = str(ROOT / "conf" / "users" / "users.yaml")
    users = load_users(path, {})
    assert set(users.users) == {"alice", "operator"}
    assert users.anonymous is not None and users.certificates
    assert load(path).rights["operator"].everything


# --- the command line -------------------------------------------------------------------------------------------------


def radiator(*args: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "radiator", *args]
    env = {**os.environ, **environ}
    return subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=ROOT, env=env)


def test_a_command_logs_in_with_a_passcode_from_the_environment_or_from_a_file(
    guarded: Guarded, tmp_path: Path
) -> None:
    send = ("send", "/queue/a", "hello", "--url", guarded.address)
    assert radiator(*send, "--user", "alice", RADIATOR_PASSCODE="secret").returncode == 0
    file = tmp_path / "passcode"
    file.write_text("secret\n")
    assert radiator(*send, "--login", "alice", "--passcode-file", str(file)).returncode == 0
    wrong = radiator(*send, "--login", "alice", RADIATOR_PASSCODE="wrong")
    assert wrong.returncode == 4 and b"wrong" not in wrong.stderr
    assert radiator(*send).returncode == 4  # anonymous has no such right
    assert radiator("clients", "--url", guarded.address, "--user", "alice", RADIATOR_PASSCODE="secret").returncode == 4


def test_check_config_checks_the_users_file_too(tmp_path: Path) -> None:
    users, config = tmp_path / "users.yaml", tmp_path / "radiator.yaml"
    users.write_text("users: {a: {read: '/topic/>.x'}}")
    config.write_text(f"auth: {{users_file: {users}}}")
    done = radiator("check-config", str(config))
    assert done.returncode == 2
    assert f"{users}:1: users.a: malformed pattern".encode() in done.stderr
