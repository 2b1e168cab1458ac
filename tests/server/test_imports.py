"""What a start loads: what only some configurations need is loaded with those."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from radiator.server.passwords import make_hash
from tests.certificates import Authority
from tests.running import BrokerProcess

StartBroker = Callable[..., BrokerProcess]

# What begins a subject, and the packages that it brings.
FILE = {"radiator.config.yaml_lines", "yaml"}
USERS = {"radiator.server.users_file", "radiator.server.passwords", "radiator.config.users", "argon2"}
TLS = {"radiator.tunnels.certificates", "radiator.tunnels.tls", "ssl"}
WEBSOCKET = {"radiator.tunnels.websocket", "websockets"}
OPTIONAL = FILE | USERS | TLS | WEBSOCKET
NEVER = {"asyncio", "http.client", "email", "importlib.metadata", "multiprocessing", "concurrent.futures", "rich"}


@pytest.fixture
def loads(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """Starts a broker, which answers a CONNECT, and returns the modules that it has loaded."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")

    def loaded(config: str | None = None) -> set[str]:
        broker = start_broker(config)
        assert broker.stop() == 0
        found = set(re.findall(r"^import time:.*\| +(\S+)$", broker.text(), re.MULTILINE))
        assert "radiator.server.app" in found
        return found

    return loaded


def test_a_broker_without_a_configuration_loads_nothing_optional(loads: Callable[..., set[str]]) -> None:
    assert loads() & (OPTIONAL | NEVER) == set()


def test_argon2_is_loaded_with_a_users_file(loads: Callable[..., set[str]], tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    users.write_text(f'users: {{ada: {{password: "{make_hash("x")}"}}}}\nanonymous: {{read: /topic/a}}')
    assert loads(f"auth: {{users_file: {users}}}") & OPTIONAL == FILE | USERS


def test_websockets_is_loaded_with_a_websocket_listener(loads: Callable[..., set[str]]) -> None:
    assert loads("listen: ['stomp://{address}', 'ws://127.0.0.1:0']") & OPTIONAL == FILE | WEBSOCKET


def test_openssl_is_loaded_with_a_tls_listener(loads: Callable[..., set[str]], tmp_path: Path) -> None:
    cert, key = Authority(tmp_path / "tls").issue("localhost")
    config = "listen: ['stomp://{address}', 'stomp+tls://127.0.0.1:0']\n" + f"tls: {{cert: {cert}, key: {key}}}"
    assert loads(config) & OPTIONAL == FILE | TLS
