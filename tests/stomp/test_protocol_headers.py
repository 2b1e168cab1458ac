"""Every header that the broker reads or says stands in a table of docs/protocol.md, and no table has one that it does
not know; and the document's contents list what it has."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from fuzz.wire import CONVERSATIONS, SMALL
from radiator.broker.headers import send, subscribe
from radiator.broker.outcomes import dead_letters
from radiator.stomp import spec
from radiator.stomp.connection import ClientConnection
from tests.broker.harness import Client, World
from tests.stomp.test_protocol_doc import TEXT, rows, ticked

ROOT = Path(__file__).parents[2]
CLIENT = ("CONNECT, STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK, NACK", "BEGIN, COMMIT, ABORT")
BROKER = ("CONNECTED", "RECEIPT", "ERROR")

# Headers of clients that are not asked for by name: those of any frame, and those that are taken and mean nothing here.
OF_ANY_FRAME = {"receipt", "content-length"}
MEAN_NOTHING = {"host", "persistent", "content-type", "tag-<key>", "partition_by"}


@cache
def read_by_name() -> set[str]:
    """The names that the broker looks up in the headers of a frame, as its syntax trees have them."""
    found: set[str] = set()
    for path in [*sorted((ROOT / "radiator/broker").rglob("*.py")), ROOT / "radiator/stomp/connection.py"]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name: ast.expr | None = None
            where = ""
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "get"
                and node.args
            ):
                name, where = node.args[0], ast.unparse(node.func.value)
            elif isinstance(node, ast.Subscript):
                name, where = node.slice, ast.unparse(node.value)
            elif isinstance(node, ast.Compare):
                name, where = node.left, ast.unparse(node.comparators[0])
            elif (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("time_ns", "time_ms", "_required", "flag", "values.flag")
                and len(node.args) > 1
            ):
                name, where = node.args[1], "headers"
            if "headers" in where and isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.add(name.value)
    return found


def understood() -> set[str]:
    tables = {*send.IDENTITY, *send.TIMED, subscribe.GROUP}
    for each in (
        subscribe.START_HEADERS,
        subscribe.STOP_HEADERS,
        subscribe.PREFETCH_HEADERS,
        subscribe.EXCLUSIVE_HEADERS,
        subscribe.NAME_HEADERS,
    ):
        tables.update(each)
    return read_by_name() | tables


@cache
def spoken_of() -> set[str]:
    """Every word that stands as a string of its own in the broker's code, a table of headers included."""
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "radiator/broker").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def documented(section: str) -> set[str]:
    return {name for cell, *_ in rows(f"### {section}") for name in ticked(cell)}


def test_every_header_that_the_broker_reads_is_documented_with_a_command() -> None:
    parts = [TEXT.split(f"\n### {section}\n", 1)[1].split("\n### ", 1)[0] for section in CLIENT]
    named = {name.partition(":")[0] for part in parts for name in ticked(part)}
    aliases = {name for name in understood() if name.startswith(("activemq.", "durable-"))}  # "and its aliases"
    assert understood() - aliases - {"version"} <= named | {"correlation-id"}


@pytest.mark.parametrize("section", CLIENT)
def test_a_documented_header_of_a_client_is_one_that_the_broker_knows(section: str) -> None:
    assert documented(section) <= understood() | spoken_of() | OF_ANY_FRAME | MEAN_NOTHING


@pytest.mark.parametrize("command", spec.CLIENT_COMMANDS)
def test_required_headers_are_in_the_table_of_their_command(command: str) -> None:
    required = {name for names in spec.CLIENT_COMMANDS[command].values() for name in names}
    if required:
        section = next(each for each in CLIENT if command in each.split(", "))
        assert required <= documented(section)


def said() -> dict[str, set[str]]:
    """The headers of every frame that the broker says in the conversations of the fuzzers, by command."""
    found: dict[str, set[str]] = {}
    for data in CONVERSATIONS:
        world = World(SMALL)
        client = Client(world)
        client.end = ClientConnection()
        client.say_bytes(data)
        world.settle()
        client.flush()
        for frame in client.inbox:
            found.setdefault(frame.command, set()).update(frame.headers)
    return found


@pytest.mark.parametrize("command", BROKER)
def test_every_header_of_an_answer_is_documented(command: str) -> None:
    assert said()[command] <= documented(command)


def test_every_header_of_a_message_was_sent_or_is_documented() -> None:
    sent = {line.partition(b":")[0].decode() for data in CONVERSATIONS for line in re.findall(rb"(?m)^[\w-]+:", data)}
    assert said()["MESSAGE"] <= documented("MESSAGE") | sent | {"destination", "content-length", "odd"}


def test_the_contents_list_every_chapter_and_every_command() -> None:
    contents = TEXT.split("\n## Contents\n", 1)[1].split("\n## ", 1)[0]
    links = dict(re.findall(r"\[([^\]]+)\]\(#([^)]+)\)", contents))
    headings = [each for each in re.findall(r"(?m)^##+ (.*)$", TEXT) if each != "Contents"]
    chapters = re.findall(r"(?m)^## (.*)$", TEXT)
    assert set(chapters) - {"Contents"} <= {heading for heading in headings if slug(heading) in links.values()}
    assert {slug(heading) for heading in headings} >= set(links.values())


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_header_of_a_dead_letter_is_documented_and_no_other() -> None:
    said = {*dead_letters.HEADERS, dead_letters.SUBSCRIPTION, dead_letters.RECEIVED, dead_letters.HOPS}
    assert {name for cell, *_ in rows("## Dead letters") for name in ticked(cell)} == said
