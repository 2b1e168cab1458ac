"""docs/protocol.md says what the code does: its tables are read here, and its example is spoken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from radiator import limits
from radiator.errors import ERROR_CODES
from radiator.stomp import spec
from radiator.stomp.connection import ClientConnection, ServerConnection
from radiator.stomp.frames import Frame
from radiator.stomp.headers import split_block, stored_block

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


def rows(heading: str, after: str = "") -> list[list[str]]:
    """The cells of the first table after a heading (and after that text); header and rule lines left out."""
    after = TEXT.split(f"\n{heading}\n", 1)[1].split(after or "\n", 1)[1]
    lines = re.search(r"(?m)^\|.*(?:\n\|.*)*", after)
    assert lines is not None, heading
    found = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines.group().split("\n")]
    return found[2:]


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(
    ("heading", "commands"),
    [("## Commands of the client", spec.CLIENT_COMMANDS), ("## Commands of the broker", spec.SERVER_COMMANDS)],
)
def test_commands_and_their_required_headers_are_those_of_the_tables(heading: str, commands: object) -> None:
    documented = {
        command: {version: tuple(ticked(cell)) for version, cell in zip(spec.VERSIONS, cells, strict=True)}
        for command, *cells in rows(heading)
    }
    assert documented == commands


@pytest.mark.parametrize("command", [*spec.CLIENT_COMMANDS, *spec.SERVER_COMMANDS])
def test_every_command_has_a_section(command: str) -> None:
    sections = re.findall(r"(?m)^### (.*)$", TEXT)
    assert sum(command in section.split(", ") for section in sections) == 1


def test_error_codes_and_their_meanings_are_those_of_the_table() -> None:
    assert {ticked(code)[0]: meaning for code, meaning in rows("### ERROR", "within the limit.")} == ERROR_CODES


def test_errors_named_in_the_text_exist() -> None:
    for sentence in re.findall(r"Errors: ([^.]*)\.", TEXT):
        codes = [word for word in ticked(sentence) if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
        assert codes
        assert set(codes) - {"heart-beat", "max-in-flight"} <= set(ERROR_CODES)


def test_reserved_headers_are_all_in_the_table_of_message_and_no_others() -> None:
    assert {name for cell, _ in rows("### MESSAGE") for name in ticked(cell)} == spec.RESERVED
    assert {name for cell, _ in rows("## Dead letters") for name in ticked(cell)} == spec.DEAD_LETTER


def test_headers_of_the_hop_are_named() -> None:
    listed = re.search(r"Not carried: (.*?) \(", TEXT, re.DOTALL)
    assert listed is not None
    assert set(ticked(listed.group(1))) == spec.HOP_BY_HOP
    not_carried = TEXT[listed.start() : TEXT.index("the broker's own headers", listed.start())]
    assert all(f"`{name}`" in not_carried for name in spec.INSTRUCTIONS)


def test_escapes_are_those_of_the_tables() -> None:
    characters = {r"`\`": "\\", "LF": "\n", "`:`": ":", "CR": "\r"}
    documented: dict[str, dict[str, str]] = {version: {} for version in spec.VERSIONS}
    for name, *cells in rows("## Versions and escapes"):
        for version, cell in zip(spec.VERSIONS, cells, strict=True):
            if cell.startswith("`"):
                documented[version][characters[name]] = cell.strip("`")
    assert documented == spec.ESCAPES


def test_limits_are_those_of_the_code() -> None:
    for what, most, constant in rows("## Limits"):
        assert int(most.split()[0]) == getattr(limits, ticked(constant)[0]), what


def conversation() -> list[tuple[str, bytes]]:
    """(side, bytes) of each frame of the example, in order."""
    block = re.search(r"```conversation\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    frames: list[tuple[str, bytes]] = []
    side, lines = "", []
    for line in block.group(1).splitlines():
        side = line[0]
        lines.append(line[2:])
        if line.endswith("^@"):
            end = "\0\n" if side == "<" else "\0"
            frames.append((side, "\n".join(lines).replace("^@", end).encode()))
            lines = []
    assert not lines
    return frames


def test_the_example_is_what_both_ends_say_and_understand() -> None:
    server, client = ServerConnection(heart_beat=(10_000, 10_000)), ClientConnection()
    seen: dict[str, list[Frame]] = {">": [], "<": []}
    for side, data in conversation():
        seen[side] += server.receive(data) if side == ">" else client.receive(data)
    assert server.failed is None
    assert client.failed is None
    assert [frame.command for frame in seen[">"]] == ["CONNECT", "SUBSCRIBE", "SEND", "ACK", "DISCONNECT"]
    assert [frame.command for frame in seen["<"]] == ["CONNECTED", "RECEIPT", "RECEIPT", "MESSAGE", "RECEIPT"]
    wire = {side + data.partition(b"\n")[0].decode(): data for side, data in conversation()}
    limits_told = [("max-message-size", "4194304"), ("max-header-size", "65536"), ("max-header-count", "200")]
    answer = [("server", "radiator/0.1.0"), ("session", "s1"), *limits_told]
    assert server.connected_frame(answer) == wire["<CONNECTED"]
    message, sent = seen["<"][3], seen[">"][2]
    assert message.body == sent.body == b"apple"
    carried = dict(split_block(stored_block(sent.head)))
    assert carried == {"content-type": "text/plain", "event-time": "2013-01-01T05:15:00Z"}
    own = spec.RESERVED | {"destination", "content-length"}
    assert {name: value for name, value in message.headers.items() if name not in own} == carried
    assert client.ack(message.headers) == wire[">ACK"]
