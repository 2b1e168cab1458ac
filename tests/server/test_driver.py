"""How many turns the driver has for what clients do."""

from __future__ import annotations

import socket

import pytest

from radiator.server.driver import Driver
from radiator.server.embedded import Broker

MESSAGES = 400


def test_an_ack_costs_one_turn_and_not_one_more_for_acks_that_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Driver] = []
    turn = Driver._turn

    def counted(self: Driver) -> None:
        turns.append(self)
        turn(self)

    monkeypatch.setattr(Driver, "_turn", counted)
    memory = {"match": "/queue/*", "store": "memory"}
    with Broker({"destinations": [memory]}, listen=["stomp://127.0.0.1:0"]) as broker:
        with socket.create_connection(("127.0.0.1", int(broker.url.rpartition(":")[2]))) as client:
            client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
            client.sendall(b"SEND\ndestination:/queue/a\n\nx\0" * MESSAGES)
            client.sendall(b"SUBSCRIBE\ndestination:/queue/a\nid:0\nack:client-individual\n\n\0")
            stream = client.makefile("rb")
            acked = 0
            while acked < MESSAGES:
                line = stream.readline()
                assert line
                if line.startswith(b"ack:"):
                    acked += 1
                    if acked == 2:
                        turns.clear()
                    client.sendall(b"ACK\nid:%b\n\n\0" % line[4:].strip())
        # A timer settles the acks that are gathered, so there are a few turns more.
        assert len(turns) < 1.7 * MESSAGES
