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
from typing import NamedTuple

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER / "clients"
NODE_MODULES = FOLDER / "node_modules"
REQUIRED = os.environ.get("RADIATOR_INTEROP") == "require"  # a client that is missing is a failure

ALL = ("1.0", "1.1", "1.2")
TCP = ("tcp", "tls")
WEBSOCKET = ("ws", "wss")
NO_BEATS = "has no heart-beats"
TEXT_ONLY = "carries text, and cuts a body at its first NUL"


class Need(NamedTuple):
    """What a client needs for one of its transports."""

    probe: tuple[str, ...]  # ends with 0 where it is installed
    package: str  # where it comes from


@dataclass(frozen=True, eq=False)
class Client:
    name: str
    command: tuple[str, ...]
    probe: tuple[str, ...]  # ends with 0 where the client is installed
    package: str  # where it comes from
    needs: Mapping[str, Need] = field(default_factory=dict)  # by transport, besides the client itself
    versions: tuple[str, ...] = ALL
    transports: tuple[str, ...] = TCP
    websocket_versions: tuple[str, ...] = ALL
    lacks: Mapping[str, str] = field(default_factory=dict)  # a scenario, or scenario/transport-version: why
    plain: tuple[str, ...] = ()  # versions in which it neither escapes nor unescapes headers


@cache
def why_missing(client: Client, transport: str) -> str:
    """Return why the client cannot be run over that transport on this machine, or "" if it can."""
    if shutil.which(client.command[0]) is None:
        return f"{client.name}: no {client.command[0]} here; `make clients` installs it"
    if fault := _fault(client.probe):
        return f"{client.name} ({client.package}) is not here; `make clients` installs it: {fault}"
    need = client.needs.get(transport)
    if need is not None and (fault := _fault(need.probe)):
        return f"{client.name} over {transport} needs {need.package}; `make clients` installs it: {fault}"
    return ""


@cache
def _fault(probe: tuple[str, ...]) -> str:
    """Return the last line of what a failing probe says, or "" if it succeeds."""
    done = subprocess.run(probe, cwd=FOLDER, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]


def forget_probes() -> None:
    """Ask the machine again from now on."""
    why_missing.cache_clear()
    _fault.cache_clear()


def python(name: str, program: str, module: str, package: str, **more: object) -> Client:
    command = (sys.executable, str(PROGRAMS / program))
    return Client(name, command, (sys.executable, "-c", f"import {module}"), package, **more)  # type: ignore[arg-type]


def node(name: str, program: str, **more: object) -> Client:
    command = ("node", str(PROGRAMS / program))
    return Client(name.split("/")[-1], command, _imports(name), f"npm: {name}", **more)  # type: ignore[arg-type]


def _imports(name: str) -> tuple[str, ...]:
    found = f"import({name!r}).catch((e) => {{ console.error(`${{e}}`); process.exit(1) }})"
    return "node", "--input-type=module", "-e", found


PYTHON_TLS = Need((sys.executable, "-c", "import ssl"), "a Python with ssl")
STOMP_PY_WS = Need((sys.executable, "-c", "import stomp.adapter.ws"), "PyPI: websocket-client")
NODE_TLS = Need(_imports("node:tls"), "a Node with crypto")
NODE_WS = Need(_imports("ws"), "npm: ws")
PERL_TLS = Need(("perl", "-MIO::Socket::SSL", "-e1"), "Debian: libio-socket-ssl-perl")
RUBY_TLS = Need(("ruby", "-ropenssl", "-e1"), "a Ruby with openssl")
NODE_NEEDS = {"tls": NODE_TLS, "ws": NODE_WS, "wss": NODE_WS}


# fmt: off
CLIENTS = (
    python(
        "raw", "raw.py", "socket", "Python's socket", transports=TCP + WEBSOCKET,
        needs={"tls": PYTHON_TLS, "wss": PYTHON_TLS},
    ),
    python(
        "stomp.py", "stomp_py.py", "stomp", "PyPI: stomp.py", transports=TCP + WEBSOCKET, websocket_versions=("1.2",),
        needs={"tls": PYTHON_TLS, "ws": STOMP_PY_WS, "wss": STOMP_PY_WS},
        lacks={"reconnect/tls-1.0": "notices a lost TLS connection by missing heart-beats only"},
    ),
    python("stompest", "stompest_sync.py", "stompest.sync", "PyPI: stompest", needs={"tls": PYTHON_TLS}),
    python(
        "stompman", "stompman_asyncio.py", "stompman", "PyPI: stompman", versions=("1.2",),
        transports=(*TCP, "ws"), websocket_versions=("1.2",), needs={"tls": PYTHON_TLS},
        lacks={
            "awkward_headers": "drops carriage returns from headers",
            "binary_body/ws-1.2": "sends text messages of WebSocket only",
            "four_mebibytes/ws-1.2": "sends text messages of WebSocket only",
        },
    ),
    node("@stomp/stompjs", "stompjs.mjs", transports=TCP + WEBSOCKET, plain=("1.1",), needs=NODE_NEEDS),
    node("@stomp/rx-stomp", "rx_stomp.mjs", transports=TCP + WEBSOCKET, plain=("1.1",), needs=NODE_NEEDS),
    node("stompit", "stompit.mjs", needs=NODE_NEEDS),
    node(
        "webstomp-client", "webstomp_client.mjs", transports=WEBSOCKET, plain=("1.1", "1.2"), needs=NODE_NEEDS,
        lacks={"binary_body": TEXT_ONLY, "four_mebibytes": TEXT_ONLY},
    ),
    Client(
        "net-stomp", ("perl", str(PROGRAMS / "net_stomp.pl")), ("perl", "-MNet::Stomp", "-e1"),
        "Debian: libnet-stomp-perl", plain=("1.1", "1.2"), lacks={"heart_beat": NO_BEATS},
        needs={"tls": PERL_TLS},
    ),
    Client(
        "stomp-gem", ("ruby", str(PROGRAMS / "stomp_gem.rb")), ("ruby", "-rstomp", "-e1"),
        "Debian: ruby-stomp", needs={"tls": RUBY_TLS},
    ),
    Client(
        "php-stomp", ("php", str(PROGRAMS / "php_stomp.php")), ("php", "-r", "exit((int) !class_exists('Stomp'));"),
        "Debian: php-stomp", transports=("tcp",), plain=("1.1", "1.2"),
        lacks={"heart_beat": NO_BEATS, "nack": "has no NACK"},
    ),
)
# fmt: on
