"""Frames as the unmodified stomp.py writes and reads them, without a socket between."""

from __future__ import annotations

import pytest

from radiator.stomp import encoder
from radiator.stomp.connection import ServerConnection
from radiator.stomp.frames import Frame
from radiator.stomp.spec import CLIENT_COMMANDS, VERSIONS

stomp = pytest.importorskip("stomp")

AWKWARD = "a:b \\ ü"


class Wire:
    """What stomp.py calls its transport: keeps the bytes."""

    current_host_and_port = ("localhost", 61613)
    vhost = None

    def __init__(self) -> None:
        self.data = b""

    def transmit(self, frame: object) -> None:
        self.data += b"".join(stomp.utils.convert_frame(frame))

    def is_connected(self) -> bool:
        return True

    def set_listener(self, *_: object) -> None:
        pass

    def notify(self, *_: object) -> None:
        pass


def said(version: str) -> list[Frame]:
    """What a server hears when stomp.py uses every frame that it has."""
    wire = Wire()
    protocol = getattr(stomp.protocol, f"Protocol{version.replace('.', '')}")(wire)
    protocol.set_receipt = lambda *_: None  # its connection classes mix this in
    subscription = {} if version == "1.0" else {"id": "0"}
    protocol.connect("me", "pass:word")
    protocol.subscribe("/queue/a", ack="client-individual", **subscription)
    protocol.begin("t")
    protocol.send("/queue/a", "grüße\0", receipt="r-1", transaction="t", odd=AWKWARD, content_type="text/plain")
    protocol.commit("t")
    protocol.abort("u")
    if version == "1.0":
        protocol.ack("a@1")
    elif version == "1.1":
        protocol.ack("a@1", "0", receipt="r-2")
        protocol.nack("a@1", "0")
    else:
        protocol.ack("s1-0-1", receipt="r-2")
        protocol.nack("s1-0-1")
    protocol.unsubscribe(**(subscription or {"destination": "/queue/a"}))
    protocol.disconnect(receipt="r-3")
    server = ServerConnection()
    frames = server.receive(wire.data)
    assert server.failed is None
    assert server.version == version
    return frames


@pytest.mark.parametrize("version", VERSIONS)
def test_every_frame_of_stomp_py_is_understood(version: str) -> None:
    frames = said(version)
    heard = {frame.command for frame in frames}
    assert heard >= set(CLIENT_COMMANDS) - {"CONNECT", "STOMP", "NACK"}
    assert ("NACK" in heard) == (version != "1.0")
    for frame in frames:
        assert set(CLIENT_COMMANDS[frame.command][version]) <= set(frame.headers)
    assert frames[0].headers["passcode"] == "pass:word"
    (send,) = [frame for frame in frames if frame.command == "SEND"]
    assert send.body == "grüße\0".encode()
    assert send.headers["odd"] == AWKWARD
    assert send.receipt == b"r-1"
    assert frames[-1].receipt == b"r-3"


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_stomp_py_understands_what_is_encoded(version: str) -> None:
    headers = [("subscription", "0"), ("message-id", "%2Fa@1"), ("odd", AWKWARD + "\n")]
    frame = stomp.utils.parse_frame(encoder.encode("MESSAGE", headers, b"body", version))
    assert frame.cmd == "MESSAGE"
    assert frame.headers == {**dict(headers), "content-length": "4"}
    assert frame.body.removesuffix(encoder.SERVER_END) == b"body"
