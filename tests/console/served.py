"""A broker with an admin listener, and with users if a test needs them."""

from __future__ import annotations

import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

from radiator.client import Connection, connect
from radiator.client.admin import ask
from tests.running import START_SECONDS_MAX, BrokerProcess, free_port

RIGHTS = {
    "root": {"read": "#", "write": "#", "browse": "#", "admin": "#"},
    "watcher": {"monitor": "#"},
    "worker": {"read": "/queue/>", "write": "/queue/>"},
}
PASSCODE = "secret"


@cache
def _hash() -> str:
    """The hash of the passcode: one for all users, since it takes time on purpose."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1).hash(PASSCODE)


class Served(BrokerProcess):
    """``admin_port`` is that of the console; ``more`` is added to the configuration."""

    def __init__(self, directory: Path, more: str = "", *, users: bool = False) -> None:
        self.admin_port = free_port()
        text = f"version: 1\nadmin: http://127.0.0.1:{self.admin_port}\n{more}"
        if users:
            lines = ["users:"]
            for name, rights in RIGHTS.items():
                lines += [f"  {name}:", f'    password: "{_hash()}"']
                lines += [f'    {right}: ["{pattern}"]' for right, pattern in rights.items()]
            (directory / "users.yaml").write_text("\n".join(lines) + "\n")
            text += f"auth: {{users_file: {directory / 'users.yaml'}}}\n"
        super().__init__(directory, text)
        self._users = users
        self.url = f"http://127.0.0.1:{self.admin_port}/console/"

    def start(self) -> None:
        """Start, and wait until it answers; a login may be needed to get a CONNECTED."""
        if not self._users:
            super().start()
            return
        self.spawn()
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                for port in (self.admin_port, self.port):
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                return
            except OSError:
                assert self.running and time.monotonic() < deadline, self.text()
                time.sleep(0.01)

    def connect(self) -> Connection:
        """As the user with all rights."""
        login = {"login": "root", "passcode": PASSCODE} if self._users else {}
        return connect(self.address, **login)

    def fill(self, messages: dict[str, list[bytes]], **headers: str) -> None:
        with self.connect() as client:
            for destination, bodies in messages.items():
                for body in bodies:
                    client.send(destination, body, headers)

    def ask(self, verb: str, **fields: Any) -> Any:
        with self.connect() as client:
            return ask(client, verb, **fields)
