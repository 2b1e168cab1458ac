"""docs/clients.md: its programs run, its table is the one that the interop tests go by, its headers exist.

A block says in a comment before it what it is:

    <!-- test: output -->                what each program prints
    <!-- test: program CLIENT FILE -->   a program of one of the clients of ``tests/interop/clients.py``
    <!-- test: instead TRANSPORT -->     the program before it, over that transport: the lines that take the place of
                                         the one that begins as one of them does, up to its first = : or (
    <!-- test: framework MODULE FILE --> a program of a framework; it prints what the text says: "It prints `a` and `b`"

The ports of the page are those of a broker of the test here, and ca.pem is the authority of its certificate.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.certificates import Authority
from tests.interop.clients import ALL, CLIENTS, NODE_MODULES
from tests.interop.runs import must_be_here
from tests.running import BrokerProcess, free_port

PAGE_PATH = Path(__file__).parent.parent / "docs" / "clients.md"
PAGE = PAGE_PATH.read_text("utf-8")
PROTOCOL = (PAGE_PATH.parent / "protocol.md").read_text("utf-8")
BLOCK = re.compile(r"^<!-- test: (\w+) ?([^>]*?) ?-->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BEGINNING = re.compile(r"\s*([^=:(]+[=:(])")
PORTS = {"61613": "stomp://127.0.0.1:{}", "61614": "stomp+tls://127.0.0.1:{}"}
PORTS |= {"15674": "ws://127.0.0.1:{}/stomp", "15673": "wss://127.0.0.1:{}/stomp"}
SECONDS_MAX = 60
BY_NAME = {client.name: client for client in CLIENTS}


class Program(NamedTuple):
    client: str
    transport: str
    file: str
    text: str


def instead(program: str, lines: str) -> str:
    """``program`` with the one line replaced that begins as one of ``lines`` does."""
    for line in lines.splitlines():
        beginning = BEGINNING.match(line)
        found = beginning and re.search(rf"^\s*{re.escape(beginning[1])}.*\n", program, re.MULTILINE)
        if found:
            return program[: found.start()] + lines + program[found.end() :]
    raise AssertionError(f"no line of the program begins like one of\n{lines}")


def programs() -> list[Program]:
    found: list[Program] = []
    for kind, argument, text in BLOCK.findall(PAGE):
        if kind == "program":
            name, file = argument.split()
            first = "ws" if "ws://" in text else "tcp"
            found.append(Program(name, first, file, text))
            plain = found[-1]
        elif kind == "instead":
            found.append(Program(plain.client, argument, plain.file, instead(plain.text, text)))
    return found


PROGRAMS = programs()
FRAMEWORKS = [
    Program(argument.split()[0], "tcp", argument.split()[1], text)
    for kind, argument, text in BLOCK.findall(PAGE)
    if kind == "framework"
]
(OUTPUT,) = [text for kind, _, text in BLOCK.findall(PAGE) if kind == "output"]


class Ground:
    """A broker that listens in every way, and a folder for programs."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        cert, key = authority.issue("localhost", "127.0.0.1")
        self.folder = folder
        self.ports = {port: str(free_port()) for port in PORTS}
        options = [part for port, url in PORTS.items() for part in ("--listen", url.format(self.ports[port]))]
        self.broker = BrokerProcess(folder, f"tls: {{cert: {cert}, key: {key}}}", options[2:])
        self.ports["61613"] = str(self.broker.port)
        (folder / "node_modules").symlink_to(NODE_MODULES)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("clients"))
    made.broker.start()
    yield made
    assert made.broker.stop() == 0, made.broker.text()


def run(command: str, program: Program, text: str, ground: Ground) -> subprocess.CompletedProcess[str]:
    text = re.sub("|".join(PORTS), lambda port: ground.ports[port[0]], text)
    own = f"{program.client}-{program.transport}"  # the others' messages are in the same broker
    text = text.replace("/queue/jobs", f"/queue/{own}").replace("/topic/greetings", f"/topic/{own}")
    (ground.folder / program.file).write_text(text)
    return subprocess.run(
        [command, program.file],
        cwd=ground.folder, env={**os.environ, "NODE_EXTRA_CA_CERTS": "ca.pem"},
        capture_output=True, text=True, timeout=SECONDS_MAX,
    )  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.client}-{program.transport}")
def test_a_program_of_the_page_runs_and_prints_what_the_page_says(program: Program, ground: Ground) -> None:
    client = BY_NAME[program.client]
    must_be_here(client, program.transport)
    done = run(client.command[0], program, program.text, ground)
    assert (done.returncode, done.stdout) == (0, OUTPUT), f"{program.text}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("program", FRAMEWORKS, ids=lambda program: program.client)
def test_a_framework_of_the_page_runs_and_prints_what_the_page_says(program: Program, ground: Ground) -> None:
    pytest.importorskip(program.client)
    printed = re.search(r"It prints `([^`]+)` and `([^`]+)`", PAGE[PAGE.index(program.text) :])
    assert printed is not None
    done = run(sys.executable, program, program.text, ground)
    assert done.returncode == 0, done.stderr
    assert [line for line in printed.groups() if line in done.stdout.splitlines()] == list(printed.groups()), (
        done.stdout
    )


def test_each_client_has_a_program_for_each_of_its_transports() -> None:
    """WebSocket in TLS is one more word in an address for those that have the two."""
    for client in CLIENTS:
        shown = {program.transport for program in PROGRAMS if program.client == client.name}
        assert shown & set(client.transports) == shown, client.name
        assert shown, client.name
        if client.name not in ("stompjs", "rx-stomp", "raw"):
            assert shown | {"wss"} >= set(client.transports), client.name


def test_the_table_of_clients_is_what_the_interop_tests_go_by() -> None:
    rows = re.findall(r"^\| \[`([^`]+)`\]\([^)]*\) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(BY_NAME)
    for name, rest in rows:
        client = BY_NAME[name]
        package, versions, tcp, tls, websocket, lacks = (cell.strip() for cell in rest.split("|"))
        assert package == client.package
        assert versions == ", ".join(client.versions)
        assert [tcp, tls] == ["yes" if way in client.transports else "no" for way in ("tcp", "tls")]
        some = "yes" if client.websocket_versions == ALL else ", ".join(client.websocket_versions)
        assert websocket == (some if "ws" in client.transports else "no")
        assert bool(lacks) == bool([what for what in client.lacks if "/" not in what])


def test_the_links_of_the_table_lead_to_sections() -> None:
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^##+ (.*)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors


@pytest.mark.parametrize(
    "name",
    [
        "prefetch-count",
        "activemq.prefetchSize",
        "x-stream-offset",
        "subscription-name",
        "activemq.subscriptionName",
        "client-id",
        "activemq.exclusive",
        "browser",
        "expires",
        "delay",
    ],
)
def test_a_header_of_another_broker_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE
    assert f"`{name}`" in PROTOCOL
