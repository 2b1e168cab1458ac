"""The client without I/O: bytes in, bytes out, over several connections."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from radiator.client import ConnectFailed, Disconnected, ServerError
from radiator.client.address import parse
from radiator.client.sending import Sendable
from radiator.client.session import Hello, Inbox, OnLoss, Request, Session, run_encoder
from radiator.stomp.connection import ServerConnection
from radiator.stomp.encoder import encode
from radiator.stomp.frames import Frame

CUT = Disconnected("cut")


class Server:
    """The other end of one connection."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.protocol = ServerConnection()
        self.protocol.receive(session.hello(parse("here")))
        assert session.opened(self.protocol.connected_frame(), "here") == []
        self.frames: list[Frame] = self.protocol.receive(session.resume())

    def answer(self, command: str, body: bytes = b"", **headers: object) -> None:
        pairs = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        self.session.receive(encode(command, pairs, body, "1.2"))

    def seen(self) -> list[tuple[str, str | None]]:
        return [(frame.command, frame.receipt and frame.receipt.decode()) for frame in self.frames]


def new_session(*, reconnects: bool = True) -> Session:
    return Session(Hello(), reconnects=reconnects, transmit_time=False)


def sends(session: Session, messages: Sequence[Sendable], receipts: int) -> Request:
    encoder = run_encoder(session, messages, receipts, 0)
    first = session.reserve(receipts)
    numbers = range(first, first + receipts)
    request = Request(first, receipts, lambda missing: encoder(numbers, missing), OnLoss.REPEAT)
    session.register(request)
    return request


def test_what_has_no_receipt_is_among_the_bytes_of_the_next_connection() -> None:
    session = new_session()
    request = sends(session, [("/a", b"%d" % number) for number in range(4)], 3)
    first = Server(session)
    assert first.seen() == [("SEND", None), ("SEND", "1"), ("SEND", "2"), ("SEND", "3")]
    first.answer("RECEIPT", receipt_id=1)
    assert session.lost(CUT)
    second = Server(session)
    assert second.seen() == [("SEND", "2"), ("SEND", "3")]
    second.answer("RECEIPT", receipt_id=2)
    second.answer("RECEIPT", receipt_id=3)
    assert request.decided
    assert not session.expects_receipts
    assert session.lost(CUT)
    assert Server(session).seen() == []


def test_a_refused_frame_is_left_out_of_the_next_connection() -> None:
    session = new_session()
    request = sends(session, [("/a", b"%d" % number) for number in range(3)], 3)
    first = Server(session)
    with pytest.raises(Disconnected):
        first.answer("ERROR", error_code="rejected", message="no", receipt_id=2)
    assert session.lost(CUT)
    second = Server(session)
    assert second.seen() == [("SEND", "1"), ("SEND", "3")]
    second.answer("RECEIPT", receipt_id=1, offset=0)
    second.answer("RECEIPT", receipt_id=3, offset=1)
    assert [type(result).__name__ for result in request.results()] == ["Receipt", "ServerError", "Receipt"]


@pytest.mark.parametrize(
    ("on_loss", "outcome"), [(OnLoss.DONE, None), (OnLoss.UNKNOWN, "Disconnected"), (OnLoss.STALE, "StaleDelivery")]
)
def test_what_is_not_repeated_has_an_outcome_when_the_connection_is_lost(on_loss: OnLoss, outcome: str | None) -> None:
    session = new_session()
    Server(session)
    request = Request(session.reserve(1), 1, lambda _: b"", on_loss)
    session.register(request)
    assert session.lost(CUT)
    assert request.decided
    assert (request.error and type(request.error).__name__) == outcome


def test_subscriptions_come_before_messages_and_positions_are_bounded() -> None:
    session = new_session()
    Server(session)
    inbox = Inbox(session, "s1", "/topic/>", "auto")
    inbox.set_headers({"start-position": "first"})
    request = Request(session.reserve(1), 1, lambda _: inbox.subscribe_frame("1"), OnLoss.REPEAT)
    session.register_subscribe(request, inbox)
    for number in range(2_000):
        session.receive(
            encode(
                "MESSAGE",
                [("subscription", "s1"), ("partition", f"p{number}"), ("offset", "7"), ("message-id", f"p{number}@7")],
                b"",
                "1.2",
            )
        )
    sends(session, [("/a", b"x")], 1)
    assert session.lost(CUT)
    server = Server(session)
    assert [command for command, _ in server.seen()] == ["SUBSCRIBE", "SEND"]
    named = server.frames[0].headers["start-at"]
    assert 7_900 < len(named) <= 8_000
    for number in range(2_000):  # those that were not named come again from the start, and are dropped
        server.answer("MESSAGE", subscription="s1", partition=f"p{number}", offset=7, message_id=f"p{number}@7")
    server.answer("MESSAGE", subscription="s1", partition="p0", offset=8, message_id="p0@8")
    assert inbox.pending == 2_001


def test_a_session_without_reconnects_ends_with_its_connection() -> None:
    session = new_session(reconnects=False)
    server = Server(session)
    with pytest.raises(ServerError, match="no"):
        server.answer("ERROR", message="no", receipt_id=1)
    assert not session.lost(CUT)


def test_a_peer_that_does_not_speak_stomp_is_refused() -> None:
    session = new_session()
    session.hello(parse("here"))
    with pytest.raises(ConnectFailed, match="does not speak STOMP"):
        session.opened(b"HTTP/1.1 400 Bad Request\r\n\r\n", "here")
