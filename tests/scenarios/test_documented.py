"""The example of ``docs/protocol.md``, said to the broker: it answers what is printed there, byte by byte.

What no document can know (the session's id, the time, the version of radiator) is put in its place first.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.broker.harness import Client, World

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "protocol.md"


def frames() -> list[tuple[str, bytes]]:
    """(side, bytes) of each frame, in order."""
    block = re.search(r"```conversation\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert block is not None
    sides = re.findall(r"((?:^([<>]) ?.*\n)+?)(?<=\^@\n)", block.group(1), re.MULTILINE)
    return [(side, re.sub(r"(?m)^[<>] ?", "", text).replace("^@\n", "\0").encode()) for text, side in sides]


def normal(data: bytes) -> bytes:
    for name in (b"session", b"receive-time", b"server"):
        data = re.sub(rb"(?m)^%b:.*$" % name, name + b":*", data)
    return data.replace(b"\0\n", b"\0")


def test_the_broker_says_what_the_example_prints() -> None:
    world = World()
    client = Client(world)
    offered = world.config.heart_beat
    client.session.heart_beat = (offered.send_ms, offered.expect_ms)
    printed = b""
    conversation = frames()
    assert len(conversation) == 10
    for side, data in conversation:
        if side == ">":
            client.say_bytes(data)
        else:
            printed += data
            world.settle()
    assert normal(client.raw) == normal(printed)
