"""The conversations of ``fuzz/wire.py``, and what mutation makes of them, with a real broker over real sockets: whole,
in pieces and byte by byte, many at once. Whatever is said, the broker goes on, others are served, nothing is a bug."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from fuzz.wire import CONVERSATIONS, cut, mutated
from radiator.errors import ERROR_CODES
from radiator.stomp.connection import ClientConnection
from radiator.stomp.frames import Frame
from tests.running import BrokerProcess
from tests.server.wire import WAIT_SECONDS, Wire

SEED, CHANGED = 7, 400


def said(broker: BrokerProcess, pieces: Iterable[bytes]) -> list[Frame]:
    """What is heard until the broker, too, has no more to say."""
    end = ClientConnection()
    frames: list[Frame] = []
    with socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_SECONDS) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has been answered ERROR, and closed
        try:
            while data := sock.recv(65_536):
                if not data.startswith((b"HTTP/1.1 400", b"\x15\x03")):
                    frames += end.receive(data)
        except ConnectionResetError:
            pass
    assert end.failed is None, end.failed
    return frames


def check(frames: list[Frame]) -> None:
    errors = [frame for frame in frames if frame.command == "ERROR"]
    assert errors in ([], frames[-1:])
    for error in errors:
        assert error.headers["error-code"] in ERROR_CODES
        assert int(error.headers["content-length"]) == len(error.body) > 0


@pytest.mark.thorough
@pytest.mark.parametrize("how", [0, 1, 6], ids=["whole", "byte by byte", "in pieces"])
def test_every_conversation_is_held_to_its_end(start_broker: Callable[..., BrokerProcess], how: int) -> None:
    broker = start_broker("defaults: {fsync: never}")
    for data in CONVERSATIONS:
        check(said(broker, cut(data, how)))
    with Wire(broker) as wire:
        wire.open().barrier()
    assert broker.stop() == 0
    assert "a bug in the broker" not in broker.text()


def test_many_mutated_conversations_at_once_affect_no_other_client(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker("defaults: {fsync: never}")
    random = Random(SEED)
    changed = [mutated(random, random.choice(CONVERSATIONS)) for _ in range(CHANGED)]
    with Wire(broker) as bystander, ThreadPoolExecutor(8) as pool:
        bystander.open().say("SUBSCRIBE", destination="/topic/bystander", id="0")
        for frames in pool.map(lambda pair: said(broker, cut(pair[1], 4 * pair[0] + 2)), enumerate(changed)):
            check(frames)
        bystander.say("SEND", b"still here", destination="/topic/bystander")
        assert bystander.hear("MESSAGE").body == b"still here"
    assert broker.stop() == 0
    assert "a bug in the broker" not in broker.text()
