"""A real broker reads its configuration again: by SIGHUP, by the admin channel, by the command; also under load."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator import client
from radiator.cli.main import run
from radiator.client import admin
from radiator.client.errors import ConnectFailed, ServerError
from tests.running import BrokerProcess, free_port

StartBroker = Callable[..., BrokerProcess]
ROOT = Path(__file__).parents[2]
PLAIN = "destinations: [{match: /queue/a}]\n"
WAIT_SECONDS = 30.0


class Reloadable:
    """A broker whose file the test rewrites."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.path = process.data.parent / "radiator.yaml"
        self.address = process.address

    def write(self, text: str) -> None:
        self.path.write_text(text.replace("{address}", self.address))

    def ask(self, text: str, **args: Any) -> dict[str, Any]:
        """Rewrite the file, and let the broker reload it."""
        self.write(text)
        with client.connect(self.address) as connection:
            return admin.ask(connection, "config.reload", **args)

    def hang_up(self, text: str) -> None:
        self.write(text)
        os.kill(self.process.pid, signal.SIGHUP)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloadable]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), PLAIN)
    process.start()
    yield Reloadable(process)
    assert process.stop() == 0, process.text()
    assert "Traceback" not in process.text()


@pytest.fixture(autouse=True)
def plain(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins and ends with the plain file."""
    yield
    if "broker" in request.fixturenames:
        found = request.getfixturevalue("broker").ask(PLAIN)
        assert found["applied"] or not found["changed"], found


def paths(found: dict[str, Any]) -> list[str]:
    return [change["path"] for change in found["changes"]]


# --- the verb ---------------------------------------------------------------------------------------------------------


def test_the_answer_lists_what_changed_and_the_new_values_hold(broker: Reloadable) -> None:
    found = broker.ask("destinations: [{match: /queue/a, max_messages: 1}]\n")
    assert found["changed"] and found["applied"]
    assert found["changes"] == [
        {"path": "destinations[0].max_messages", "rule": "/queue/a", "before": "none", "after": "1", "effect": "now",
         "reason": None}
    ]  # fmt: skip
    with client.connect(broker.address) as connection:
        connection.send("/queue/a", b"1")
        with pytest.raises(ServerError, match="full"):
            connection.send("/queue/a", b"2")
    with client.connect(broker.address) as connection, connection.subscribe("/queue/a", ack="auto") as messages:
        assert messages.fetch(WAIT_SECONDS) is not None


def test_a_check_changes_nothing(broker: Reloadable) -> None:
    found = broker.ask("limits: {connections: 77}\n" + PLAIN, check=True)
    assert found["changed"] and not found["applied"] and paths(found) == ["limits.connections"]
    assert paths(broker.ask("limits: {connections: 77}\n" + PLAIN, check=True)) == ["limits.connections"]


def test_an_unchanged_file_changes_nothing(broker: Reloadable) -> None:
    assert broker.ask(PLAIN) == {"do": "config.reload", "changed": False, "applied": False, "changes": []}


def test_a_broken_file_changes_nothing_and_all_its_faults_are_reported(broker: Reloadable) -> None:
    with pytest.raises(ServerError) as caught:
        broker.ask("limts: {}\ndestinations:\n  - {match: /queue/a, prefetch: x}\n")
    assert "radiator.yaml:1: limts" in caught.value.detail and "radiator.yaml:3: destinations[0]" in caught.value.detail
    assert not broker.ask(PLAIN)["changed"]


def test_options_of_the_command_line_still_hold(broker: Reloadable) -> None:
    """The test's broker has --listen and --data; the file has neither."""
    assert broker.ask("limits: {connections: 78}\n" + PLAIN)["applied"]


def test_a_text_is_compared_and_never_applied(broker: Reloadable) -> None:
    with client.connect(broker.address) as connection:
        text = "limits: {connections: '${N}'}\n" + PLAIN
        found = admin.ask(connection, "config.reload", check=True, text=text, environ={"N": "5"})
        assert found["changes"][0]["after"] == "5" and not found["applied"]
        with pytest.raises(ServerError, match="compared only"):
            admin.ask(connection, "config.reload", text=PLAIN)
        with pytest.raises(ServerError) as caught:  # the environment of the broker is not shown to a client
            admin.ask(connection, "config.reload", check=True, text="data_dir: '${HOME}'\n")
        assert "HOME to be set" in caught.value.detail


def test_a_text_cannot_let_the_broker_import_a_module(broker: Reloadable) -> None:
    with client.connect(broker.address) as connection:
        text = "destinations: [{match: /queue/a, middleware: 'no.such.module:f', schema: /nowhere}]"
        found = admin.ask(connection, "config.reload", check=True, text=text)
        assert paths(found) == ["destinations[0].schema", "destinations[0].middleware"]
    with pytest.raises(ServerError) as caught:
        broker.ask(text, check=True)  # in the file of the broker, it is a fault
    assert "no module" in caught.value.detail or "cannot read the schema" in caught.value.detail


# --- SIGHUP, the commands ---------------------------------------------------------------------------------------------


def test_sighup_reloads_and_logs_the_changes(broker: Reloadable) -> None:
    broker.hang_up("destinations: [{match: /queue/hup, prefetch: 3}, {match: /queue/a}]\n")
    assert broker.process.logs("destinations[0]: new: /queue/hup, prefetch: 3", "the new configuration is in force")


def test_sighup_with_a_broken_file_is_logged_and_changes_nothing(broker: Reloadable) -> None:
    broker.hang_up("nonsense: 1\n")
    assert broker.process.logs("reload: refused, nothing has changed", "radiator.yaml:1: nonsense")
    assert not broker.ask(PLAIN)["changed"]


def test_the_command_prints_the_changes_and_its_exit_code_says_whether_they_are_refused(
    broker: Reloadable, capsys: pytest.CaptureFixture[str]
) -> None:
    with client.connect(broker.address) as connection:
        connection.send("/queue/a", b"1")
    broker.write("limits: {connections: 80}\n" + PLAIN)
    assert run(["reload", "--url", broker.address]) == 0
    assert capsys.readouterr().out == "limits.connections: 10000 -> 80\napplied\n"
    broker.write("destinations: [{match: /queue/a, store: memory}]\n")
    assert run(["reload", "--url", broker.address]) == 1
    assert "destinations[0].store (/queue/a): file -> memory: REFUSED: /queue/a: " in capsys.readouterr().out
    assert broker.process.logs('{"check": false}: refused (unsupported: nothing has changed: destinations[0].store: ')
    broker.write("x: 1\n")
    assert run(["reload", "--url", broker.address]) == 2
    assert "radiator.yaml:1: x: unknown key" in capsys.readouterr().err


def test_check_config_against_shows_the_same_beforehand(
    broker: Reloadable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with client.connect(broker.address) as connection:
        connection.send("/queue/a", b"1")
    new = tmp_path / "new.yaml"
    new.write_text("limits: {connections: 81}\n" + PLAIN)
    assert run(["check-config", str(new), "--against", broker.address]) == 0
    assert capsys.readouterr().out == "limits.connections: 10000 -> 81\n"
    new.write_text("destinations: [{match: /queue/a, partitions: 3}]\n")
    assert run(["check-config", str(new), "--against", broker.address, "--json"]) == 1
    assert '"effect":"refused"' in capsys.readouterr().out


@pytest.mark.thorough
def test_declared_subscriptions_exist_after_the_start_after_a_reload_and_after_apply(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = "subscriptions: [{name: first, destination: /topic/a}"
    broker = Reloadable(start_broker(first + "]\n"))

    def names() -> set[str]:
        with client.connect(broker.address) as connection:
            return {each["cursor"] for each in admin.ask_all(connection, "cursors.ls", "cursors")}

    with client.connect(broker.address) as connection:
        connection.send("/topic/a", b"1")
    assert names() == {"sub:first"}
    broker.hang_up(first + ", {group: second, destination: /topic/a, start: first}]\n")
    assert broker.process.logs("subscriptions[1]: new: group:second", "the new configuration is in force")
    assert names() == {"sub:first", "group:second"}
    own = tmp_path / "own.yaml"
    own.write_text("subscriptions: [{name: third, destination: /topic/a, selector: 'size = 1'}]\n")
    assert run(["apply", "--config", str(own), "--url", broker.address]) == 0
    assert "subscriptions[0]: new: sub:third, /topic/a, selector size = 1" in capsys.readouterr().out
    assert run(["apply", "--config", str(own), "--url", broker.address]) == 0
    assert capsys.readouterr().out == "nothing changes\n"
    assert names() == {"sub:first", "group:second", "sub:third"}
    broker.hang_up(first + "]\n")
    assert broker.process.logs("subscriptions[1]: removed: group:second")
    assert run(["apply", "--config", str(own), "--url", broker.address, "--prune"]) == 0
    assert names() == {"sub:first", "sub:third"}


def test_apply_names_the_line_of_a_declaration_that_cannot_be_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("subscriptions:\n  - {name: a, destination: /topic/a}\n  - {name: b, destination: /queue/b}\n")
    assert run(["apply", "--config", str(own), "--url", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == f"radiator: {own}:3: subscriptions[1]: expected topics, got '/queue/b'\n"


# --- what belongs to the server ---------------------------------------------------------------------------------------


def test_listeners_come_and_go_connections_stay_and_an_address_in_use_refuses_all(start_broker: StartBroker) -> None:
    listen = "listen: [stomp://{address}%s]\n"
    broker = Reloadable(start_broker(listen % ""))
    port = free_port()
    with client.connect(broker.address) as stays:
        assert broker.ask(listen % f", ws://127.0.0.1:{port}")["applied"]
        with client.connect(f"ws://127.0.0.1:{port}") as web:
            web.send("/queue/a", b"1")
            assert broker.ask(listen % f", stomp://127.0.0.1:{port}")["applied"]  # the same port, without WebSocket
            with client.connect(f"127.0.0.1:{port}") as plain:
                plain.send("/queue/a", b"2")
                assert broker.ask(listen % "")["applied"]
                with pytest.raises(ConnectFailed):
                    client.connect(f"127.0.0.1:{port}", connect_timeout=5)
                for each in (stays, web, plain):
                    each.send("/queue/a", b"3")
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ServerError) as caught:
        broker.ask("limits: {connections: 5}\n" + listen % f", stomp://127.0.0.1:{port}")
    assert "in use" in caught.value.detail
    assert not broker.ask(listen % "")["changed"]


def health(port: int) -> int | None:
    """The status of /health; None if nobody listens there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
    except ConnectionRefusedError:
        return None
    return connection.getresponse().status


def test_the_admin_listener_comes_moves_and_goes_and_an_address_in_use_refuses_all(broker: Reloadable) -> None:
    one, other = free_port(), free_port()
    assert paths(broker.ask(f"admin: http://127.0.0.1:{one}\n{PLAIN}")) == ["admin"]
    assert health(one) == 200
    assert broker.ask(f"admin: http://127.0.0.1:{other}\nadmin_hosts: [broker.example]\n{PLAIN}")["applied"]
    assert (health(one), health(other)) == (None, 200)
    with http_get(other, "broker.example") as answer:
        assert answer.status == 200
    assert broker.ask(f"admin: http://127.0.0.1:{other}\n{PLAIN}")["applied"]
    with http_get(other, "broker.example") as answer:
        assert answer.status == 403
    with socket.create_server(("127.0.0.1", one)), pytest.raises(ServerError) as caught:
        broker.ask(f"admin: http://127.0.0.1:{one}\nlimits: {{connections: 5}}\n{PLAIN}")
    assert "in use" in caught.value.detail and health(other) == 200
    broker.ask(PLAIN)
    assert health(other) is None


def http_get(port: int, host: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/health", headers={"Host": host})
    return connection.getresponse()


def test_the_log_goes_where_the_new_file_says_in_its_format(broker: Reloadable, tmp_path: Path) -> None:
    one, other = tmp_path / "one.log", tmp_path / "other.log"

    def logged(path: Path, text: str) -> bool:
        return poll(lambda: path.exists() and text in path.read_text())

    assert broker.ask(f"logging: {{file: {one}}}\nlimits: {{connections: 81}}\n{PLAIN}")["applied"]
    assert logged(one, "limits.connections"), "the lines of the reload itself are in the new file"
    assert broker.ask(f"logging: {{file: {other}, format: json}}\nlimits: {{connections: 82}}\n{PLAIN}")["applied"]
    assert logged(other, "limits.connections")
    assert all(json.loads(line)["level"] for line in other.read_text().splitlines())
    with pytest.raises(ServerError) as caught:
        broker.ask(f"logging: {{file: {tmp_path}}}\nlimits: {{connections: 83}}\n{PLAIN}")
    assert "expected a regular file" in caught.value.detail
    assert broker.ask(f"limits: {{connections: 84}}\n{PLAIN}")["applied"]
    assert poll(lambda: "-> 84" in broker.process.text()), "on stderr again"
    assert "-> 84" not in one.read_text() + other.read_text()


def poll(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.thorough
def test_logins_follow_the_file(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = Reloadable(start_broker(PLAIN))
    users = tmp_path / "users.yaml"
    subprocess.run(
        [sys.executable, "-m", "radiator", "passwd", str(users), "ann", "--stdin"],
        input="secret\n", text=True, cwd=ROOT, check=True, timeout=WAIT_SECONDS, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    users.write_text(users.read_text() + "    admin: true\n    write: '#'\n")
    anonymous = client.connect(broker.address)
    broker.hang_up(f"auth: {{users_file: {users}, anonymous: never}}\n{PLAIN}")
    assert broker.process.logs("auth.anonymous: loopback -> never", "the new configuration is in force")
    with pytest.raises(ServerError, match="denied"):
        anonymous.send("/queue/a", b"1")
    with client.connect(broker.address, login="ann", passcode="secret") as ann:
        ann.send("/queue/a", b"1")
        users.write_text(users.read_text().replace("write: '#'", "write: /queue/b"))  # this file is watched now
        with pytest.raises(ServerError, match="denied"):
            while True:
                ann.send("/queue/a", b"1")
    with client.connect(broker.address, login="ann", passcode="secret"):
        broker.hang_up(PLAIN)
        assert broker.process.logs("auth.anonymous: never -> loopback")
    with client.connect(broker.address) as again:
        assert not admin.ask(again, "config.reload", check=True)["changed"]


@pytest.mark.thorough
def test_a_schema_is_read_again(start_broker: StartBroker, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    text = f"destinations: [{{match: /queue/a, schema: {schema}, schema_changes: any}}]\n"
    broker = Reloadable(start_broker(PLAIN))
    assert broker.ask(text)["applied"]
    with client.connect(broker.address) as connection, pytest.raises(ServerError, match="schema"):
        connection.send("/queue/a", b"[]")
    schema.write_text('{"type": "array"}')
    broker.ask(text)  # the file of the broker is the same
    with client.connect(broker.address) as connection:
        connection.send("/queue/a", b"[]")


# --- under load -------------------------------------------------------------------------------------------------------

ONE = """
defaults: {fsync: always}
destinations:
  - {match: /queue/busy, max_messages: 100000, ack_timeout: 1m}
  - {match: /topic/busy, retention: {age: 1d}}
"""
OTHER = """
limits: {memory: 512MiB, connections: 500}
defaults: {fsync: 5ms, prefetch: 3}
destinations:
  - {match: '/queue/new.*', partitions: 3}
  - {match: /topic/busy, dedup: {window: none}}
  - {match: '/queue/*', message_ttl: 1h, redeliver: {max: 5}}
"""
RELOADS = 50


class Producer(threading.Thread):
    """Sends numbered messages, each with a receipt, until it is stopped."""

    def __init__(self, address: str, destination: str, name: str) -> None:
        super().__init__(daemon=True)
        self.address, self.destination, self.title = address, destination, name
        self.sent = 0
        self.ending = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with client.connect(self.address) as connection:
                while not self.ending.is_set():
                    bodies = [f"{self.title} {self.sent + number}".encode() for number in range(20)]
                    connection.send_many((self.destination, body) for body in bodies)
                    self.sent += len(bodies)
        except BaseException as error:
            self.failure = error


class Reader(threading.Thread):
    """Acknowledges what comes, until everything that the producers have sent is there."""

    def __init__(self, address: str, destination: str, ack: str) -> None:
        super().__init__(daemon=True)
        self.address, self.destination, self.ack = address, destination, ack
        self.bodies: list[bytes] = []
        self.expected: int | None = None
        self.ready = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with client.connect(self.address) as connection:
                with connection.subscribe(self.destination, ack=self.ack) as messages:
                    self.ready.set()
                    while self.expected is None or len(self.bodies) < self.expected:
                        message = messages.fetch(0.05)
                        if message is not None:
                            self.bodies.append(message.body)
                            if self.ack != "auto":
                                message.ack()
        except BaseException as error:
            self.failure = error


def test_fifty_reloads_under_load_lose_nothing_and_disturb_nobody(start_broker: StartBroker) -> None:
    broker = Reloadable(start_broker(ONE))
    readers = [
        Reader(broker.address, "/queue/busy", "client-individual"),
        Reader(broker.address, "/topic/busy", "auto"),
    ]
    for reader in readers:
        reader.start()
        assert reader.ready.wait(WAIT_SECONDS)
    producers = [Producer(broker.address, each.destination, name) for each in readers for name in "ab"]
    for producer in producers:
        producer.start()
    with client.connect(broker.address) as connection:
        for number in range(RELOADS):
            broker.write(OTHER if number % 2 == 0 else ONE)
            found = admin.ask(connection, "config.reload")
            assert found["applied"], found
    for producer in producers:
        producer.ending.set()
        producer.join(WAIT_SECONDS)
        assert producer.failure is None and producer.sent > 0
    for reader in readers:
        mine = [each for each in producers if each.destination == reader.destination]
        reader.expected = sum(each.sent for each in mine)
        reader.join(WAIT_SECONDS)
        assert reader.failure is None and not reader.is_alive()
        for each in mine:  # each once, and in the order of its producer
            bodies = [f"{each.title} {number}".encode() for number in range(each.sent)]
            assert [body for body in reader.bodies if body.startswith(each.title.encode() + b" ")] == bodies
    assert broker.process.stop() == 0 and "Traceback" not in broker.process.text()
