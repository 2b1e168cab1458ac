"""A socket of a real broker, where the ends of a connection matter: raw bytes, no client in between."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from tests.running import BrokerProcess

StartBroker = Callable[..., BrokerProcess]

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


def test_a_client_that_closes_its_sending_side_at_once_still_gets_its_receipts(shared_broker: BrokerProcess) -> None:
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


def test_a_client_that_has_closed_its_sending_side_gets_an_error(shared_broker: BrokerProcess) -> None:
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


def test_frames_that_are_much_work_are_not_overtaken_by_those_behind_them(start_broker: StartBroker) -> None:
    """The broker turns to others in between, and then goes on where it was, not where the socket is."""
    broker = start_broker("defaults: {store: memory}\n")
    born = b"".join(b"SEND\ndestination:/topic/born.%d\n\n\0" % number for number in range(2_000))
    work, names = [], []
    for number in range(200):
        pad = b"x" * 500  # more than one recv, far more than one portion of work
        work.append(
            b"SUBSCRIBE\nid:%d\ndestination:/queue/%d.*\npad:%b\nreceipt:s%d\n\n\0" % (number, number, pad, number)
        )
        work.append(b"SEND\ndestination:/topic/order\nreceipt:m%d\n\n\0" % number)
        names += [f"s{number}", f"m{number}"]
    answer = conversation(broker, CONNECT + born + b"".join(work) + b"DISCONNECT\nreceipt:bye\n\n\0")
    assert re.findall(r"RECEIPT\nreceipt-id:(\w+)\n", answer.decode()) == [*names, "bye"]


def test_an_error_before_the_version_is_agreed_is_not_escaped(shared_broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", shared_broker.port), 30) as peer:
        peer.sendall(b"CONNECT\naccept-version:1.2\nhost:h\nmax-in-flight:no\n\n\0")
        heard = b"".join(iter(lambda: peer.recv(4096), b""))
    assert heard.startswith(b"ERROR\nmessage:header max-in-flight: expected a number")
