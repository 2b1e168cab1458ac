"""A carrier as a socket: what it says was sent has left."""

from __future__ import annotations

import socket
import threading

import pytest

from radiator.client.sockets import PIECE_BYTES, Carrier
from radiator.tunnels.websocket import ClientSocket, MessageEncoder, ServerSocket


def opened(near: socket.socket) -> tuple[Carrier, ServerSocket]:
    end, client = ServerSocket("", (), MessageEncoder(), secure=False), ClientSocket("h", "/")
    end.receive(client.control())
    client.receive(end.control())
    return Carrier(near, client), end


def hearing(far: socket.socket, end: ServerSocket) -> tuple[bytearray, threading.Thread]:
    """What comes out at the far end, until its peer shuts down."""
    heard = bytearray()

    def read() -> None:
        while data := far.recv(65_536):
            heard.extend(end.receive(data))
            while end.has_backlog:
                heard.extend(end.receive(b""))

    reader = threading.Thread(target=read)
    reader.start()
    return heard, reader


def test_what_was_not_taken_in_time_is_no_success_and_goes_on_where_it_was() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        carrier, end = opened(near)
        carrier.settimeout(0.01)
        body = bytes(range(256)) * (PIECE_BYTES // 256)
        with pytest.raises(TimeoutError):
            carrier.send(body)
        with pytest.raises(TimeoutError):
            carrier.send(body)
        carrier.settimeout(20)
        heard, reader = hearing(far, end)
        assert carrier.send(body) == PIECE_BYTES
        carrier.sendall(b"behind it")
        near.shutdown(socket.SHUT_WR)
        reader.join(20)
        assert bytes(heard) == body + b"behind it"


def test_a_heart_beat_that_was_given_up_does_not_stand_for_what_comes_after_it() -> None:
    near, far = socket.socketpair()
    with near, far:
        carrier, end = opened(near)
        carrier.settimeout(0.01)
        filled = 0
        near.setblocking(False)
        try:
            while True:
                filled += near.send(b"\x8a\x80\0\0\0\0" * 100)  # pongs, which say nothing
        except BlockingIOError:
            pass
        carrier.settimeout(0.01)
        with pytest.raises(TimeoutError):
            carrier.send(b"\n")
        carrier.settimeout(20)
        heard, reader = hearing(far, end)
        near.sendall(b"\x8a\x80\0\0\0\0"[filled % 6 :] if filled % 6 else b"")
        carrier.sendall(b"a frame")
        near.shutdown(socket.SHUT_WR)
        reader.join(20)
        assert bytes(heard).replace(b"\n", b"") == b"a frame"
