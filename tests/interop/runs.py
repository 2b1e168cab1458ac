"""What ``test_clients.py`` and ``test_restart.py`` share: cases, a broker that listens in every way, and runs.

A *run* is one process of a client that does all scenarios of one case. Some go on at the same time, since most of a
run is waiting; their outcomes are kept until a test asks.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from argon2 import PasswordHasher

from tests.certificates import Authority
from tests.interop import scenarios
from tests.interop.clients import CLIENTS, PROGRAMS, REQUIRED, WEBSOCKET, Client, why_missing
from tests.interop.driver import Connection, Driver, DriverError, Endpoint
from tests.interop.tap import Tap
from tests.running import BrokerProcess, free_port

AT_ONCE = 6
CONFIG = """
heart_beat: {{send: 100ms, expect: 100ms, grace: 3.0}}
tls: {{cert: {cert}, key: {key}}}
auth: {{users_file: {users}}}
"""
LISTEN = {  # besides plain TCP
    "tls": "stomp+tls://127.0.0.1:{port}",
    "ws": "ws://127.0.0.1:{port}/stomp",
    "wss": "wss://127.0.0.1:{port}/stomp",
}
BY_NAME = dict(zip(scenarios.NAMES, scenarios.SCENARIOS, strict=True))


class Case(NamedTuple):
    client: Client
    transport: str
    version: str

    def __str__(self) -> str:
        return f"{self.client.name}-{self.transport}-{self.version}"

    @property
    def missing(self) -> str:
        return why_missing(self.client, self.transport)


def cases() -> list[Case]:
    return [
        Case(client, transport, version)
        for client in CLIENTS
        for transport in client.transports
        for version in (client.websocket_versions if transport in WEBSOCKET else client.versions)
    ]


def todo(case: Case) -> list[str]:
    """The scenarios that this client can be asked for."""
    lacks = set(case.client.lacks)
    if case.version == "1.0":
        lacks |= {"nack", "heart_beat"}
    return [name for name in scenarios.NAMES if not {name, f"{name}/{case.transport}-{case.version}"} & lacks]


class Place:
    """A broker that listens in every way, the certificate authority of its TLS, and a user for each case."""

    def __init__(self, folder: Path, users: Iterable[Case]) -> None:
        hash_ = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(scenarios.PASSCODE)
        rights = f'{{password: "{hash_}", read: "#", write: "#", browse: "#"}}'
        lines = ["anonymous: {read: /topic/none}", "users:", *(f'  "{case}": {rights}' for case in users)]
        users_file = folder / "users.yaml"
        users_file.write_text("\n".join(lines))
        authority = Authority(folder / "ca")
        cert, key = authority.issue("localhost", "127.0.0.1")
        self.ca = authority.ca
        self.folder = folder
        self.ports = {transport: free_port() for transport in LISTEN}
        options = [
            part
            for transport, url in LISTEN.items()
            for part in ("--listen", url.format(port=self.ports[transport]))
        ]  # fmt: skip
        self.broker = BrokerProcess(folder, CONFIG.format(cert=cert, key=key, users=users_file), options)
        self.ports["tcp"] = self.broker.port

    def tap(self, case: Case) -> Tap:
        return Tap(self.ports[case.transport], encrypted=case.transport in ("tls", "wss"))

    def driver(self, case: Case) -> Driver:
        environ = {"NODE_EXTRA_CA_CERTS": self.ca}
        return Driver(case.client.command, PROGRAMS, environ, self.folder / f"{case}.log")

    def stage(self, case: Case, name: str, driver: Driver, tap: Tap) -> scenarios.Stage:
        path = "/stomp" if case.transport in WEBSOCKET else ""
        endpoint = Endpoint(case.transport, tap, self.ca, path)
        stage = scenarios.Stage(
            lambda label: Connection(driver, label), endpoint, str(case), case.version, f"{case}.{name}"
        )
        stage.plain = case.version in case.client.plain
        stage.beats = "heart_beat" in todo(case)
        return stage


class Run:
    """All scenarios of one case, one after the other, in one process of the client."""

    def __init__(self, case: Case, names: list[str], place: Place) -> None:
        self._case = case
        self._names = names
        self._place = place

    def __call__(self) -> dict[str, str]:
        """For each scenario what went wrong, or nothing."""
        tap = self._place.tap(self._case)
        driver: Driver | None = None
        found: dict[str, str] = {}
        try:
            for name in self._names:
                if driver is None or not driver.running:
                    driver = self._place.driver(self._case)
                found[name] = self._one(name, driver, tap)
        finally:
            if driver is not None:
                driver.kill()
            tap.close()
        return found

    def _one(self, name: str, driver: Driver, tap: Tap) -> str:
        case = self._case
        tap.forget()
        stage = self._place.stage(case, name, driver, tap)
        try:
            BY_NAME[name](stage)
        except (Exception, pytest.fail.Exception) as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            told = f"on the wire:\n{tap.dump()}\n\nthe client said:\n{driver.complaints()}"
            return f"{type(error).__name__}: {error}\n{where}\n{told}"
        finally:
            if driver.running:
                try:
                    driver.do("forget")
                except DriverError:
                    driver.kill()
        return ""


class Runs:
    def __init__(self, wanted: dict[Case, list[str]], place: Place) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._futures: dict[Case, Future[dict[str, str]]] = {
            case: self._pool.submit(Run(case, names, place)) for case, names in wanted.items()
        }

    def outcome(self, case: Case, name: str) -> str:
        return self._futures[case].result()[name]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def must_be_here(client: Client, transport: str) -> None:
    """Skip the test, or let it fail where no client may be missing, if the client cannot be run over the transport."""
    if why := why_missing(client, transport):
        (pytest.fail if REQUIRED else pytest.skip)(why)
