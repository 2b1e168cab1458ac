"""The clients of other makes that are tried: how each is started, what it can choose, and what it has not got.

``lacks`` are scenarios that make no sense for a client, with the reason; docs/clients.md has the same table for people,
and ``tests/test_docs_clients.py`` compares the two.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER / "clients"
NODE_MODULES = FOLDER / "node_modules"
REQUIRED = os.environ.get("RADIATOR_INTEROP") == "require"  # a client that is missing is a failure

ALL = ("1.0", "1.1", "1.2")
TCP = ("tcp", "tls")
WEBSOCKET = ("ws", "wss")
NO_BEATS = "has no heart-beats"
TEXT_ONLY = "carries text, and cuts a body at its first NUL"


@dataclass(frozen=True, eq=False)
class Client:
    name: str
    command: tuple[str, ...]
    probe: tuple[str, ...]  # ends with 0 where the client is installed
    package: str  # where it comes from
    versions: tuple[str, ...] = ALL
    transports: tuple[str, ...] = TCP
    websocket_versions: tuple[str, ...] = ALL
    lacks: Mapping[str, str] = field(default_factory=dict)  # a scenario, or scenario/transport-version: why
    plain: tuple[str, ...] = ()  # versions in which it neither escapes nor unescapes headers

    @property
    def missing(self) -> str:
        return why_missing(self)


@cache
def why_missing(client: Client) -> str:
    """Why the client cannot be run on this machine, or nothing."""
    if shutil.which(client.command[0]) is None:
        return f"{client.name}: no {client.command[0]} here; `make clients` installs it"
    done = subprocess.run(client.probe, cwd=FOLDER, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return f"{client.name} ({client.package}) is not here; `make clients` installs it: {last}"


def python(name: str, program: str, module: str, package: str, **more: object) -> Client:
    command = (sys.executable, str(PROGRAMS / program))
    return Client(name, command, (sys.executable, "-c", f"import {module}"), package, **more)  # type: ignore[arg-type]


def node(name: str, program: str, **more: object) -> Client:
    found = f"import({name!r}).then(() => import('ws')).catch((e) => {{ console.error(`${{e}}`); process.exit(1) }})"
    command, probe = ("node", str(PROGRAMS / program)), ("node", "--input-type=module", "-e", found)
    return Client(name.split("/")[-1], command, probe, f"npm: {name}", **more)  # type: ignore[arg-type]


# fmt: off
CLIENTS = (
    python("raw", "raw.py", "socket", "Python's socket", transports=TCP + WEBSOCKET),
    python(
        "stomp.py", "stomp_py.py", "stomp", "PyPI: stomp.py", transports=TCP + WEBSOCKET, websocket_versions=("1.2",),
        lacks={"reconnect/tls-1.0": "notices a lost TLS connection by missing heart-beats only"},
    ),
    python("stompest", "stompest_sync.py", "stompest.sync", "PyPI: stompest"),
    node("@stomp/stompjs", "stompjs.mjs", transports=TCP + WEBSOCKET, plain=("1.1",)),
    node("@stomp/rx-stomp", "rx_stomp.mjs", transports=TCP + WEBSOCKET, plain=("1.1",)),
    node("stompit", "stompit.mjs"),
    node(
        "webstomp-client", "webstomp_client.mjs", transports=WEBSOCKET, plain=("1.1", "1.2"),
        lacks={"binary_body": TEXT_ONLY, "four_mebibytes": TEXT_ONLY},
    ),
    Client(
        "net-stomp", ("perl", str(PROGRAMS / "net_stomp.pl")), ("perl", "-MNet::Stomp", "-e1"),
        "Debian: libnet-stomp-perl", plain=("1.1", "1.2"), lacks={"heart_beat": NO_BEATS},
    ),
    Client(
        "stomp-gem", ("ruby", str(PROGRAMS / "stomp_gem.rb")), ("ruby", "-rstomp", "-e1"),
        "Debian: ruby-stomp",
    ),
    Client(
        "php-stomp", ("php", str(PROGRAMS / "php_stomp.php")), ("php", "-r", "exit((int) !class_exists('Stomp'));"),
        "Debian: php-stomp", transports=("tcp",), plain=("1.1", "1.2"),
        lacks={"heart_beat": NO_BEATS, "nack": "has no NACK"},
    ),
)
# fmt: on
