"""A socket of a real broker, where the ends of a connection matter: raw bytes, no client in between."""

from __future__ import annotations

import socket

from tests.running import BrokerProcess

CONNECT = b"CONNECT\naccept-version:1.2\nhost:test\n\n\0"


def conversation(broker: BrokerProcess, data: bytes) -> bytes:
    """Everything that the broker answers to ``data`` when the client ends its side at once, as ``nc -N`` does."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while more := sock.recv(65536):
            answer += more
        return answer


def test_who_ends_its_side_at_once_is_still_sent_its_receipts(shared_broker: BrokerProcess) -> None:
    send = b"SEND\ndestination:/queue/ended\nreceipt:%d\n\nbody\0"
    answer = conversation(shared_broker, CONNECT + b"".join(send % number for number in range(50)))
    assert answer.count(b"RECEIPT\n") == 50
    assert b"RECEIPT\nreceipt-id:49\noffset:49\n" in answer


def test_a_whole_session_may_be_piped_in(shared_broker: BrokerProcess) -> None:
    answer = conversation(
        shared_broker,
        CONNECT + b"SEND\ndestination:/queue/piped\nreceipt:1\n\nbody\0" + b"DISCONNECT\nreceipt:bye\n\n\0",
    )
    assert answer.startswith(b"CONNECTED\n")
    assert answer.endswith(b"RECEIPT\nreceipt-id:bye\n\n\0\n")


def test_an_error_is_sent_to_who_has_ended_its_side(shared_broker: BrokerProcess) -> None:
    answer = conversation(shared_broker, CONNECT + b"SEND\nreceipt:1\n\nbody\0")
    assert b"ERROR\n" in answer and b"receipt-id:1\n" in answer


def test_what_the_ended_side_held_goes_back_at_once(shared_broker: BrokerProcess) -> None:
    subscribe = b"SUBSCRIBE\nid:1\ndestination:/queue/held\nack:client\n\n\0"
    answer = conversation(shared_broker, CONNECT + subscribe + b"SEND\ndestination:/queue/held\nreceipt:1\n\nbody\0")
    assert b"RECEIPT\nreceipt-id:1\n" in answer
    with socket.create_connection(("127.0.0.1", shared_broker.port), timeout=20) as sock:
        sock.sendall(CONNECT + subscribe)
        answer = b""
        while b"\n\nbody\0" not in answer:
            more = sock.recv(65536)
            assert more
            answer += more
