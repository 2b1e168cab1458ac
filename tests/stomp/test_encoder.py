"""What is encoded is what the parser reads."""

from __future__ import annotations

import pytest

from radiator.errors import ERROR_CODES, ProtocolError
from radiator.stomp import encoder
from radiator.stomp.frames import Frame
from radiator.stomp.parser import Parser
from radiator.stomp.spec import SERVER_COMMANDS, VERSIONS


def parse(data: bytes, version: str = "1.2") -> Frame:
    parser = Parser()
    parser.version = version
    (frame,) = parser.feed(data)
    if parser.paused:
        assert parser.resume(version) == []
    assert parser.failed is None
    assert parser.idle
    return frame


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_any_header_and_body_come_back(version: str) -> None:
    headers = [("destination", "/a:b"), ("odd\nname", "back\\slash"), ("umlaut", "ü"), ("empty", "")]
    frame = parse(encoder.encode("SEND", headers, b"\0\n\0", version), version)
    assert frame.headers == {**dict(headers), "content-length": "3"}
    assert frame.body == b"\0\n\0"


def test_content_length_is_the_encoders_own() -> None:
    assert parse(encoder.encode("SEND", [("content-length", "99")], b"abc")).headers == {"content-length": "3"}
    assert b"content-length" not in encoder.encode("ACK", [("id", "1"), ("content-length", "99")])
    assert parse(encoder.encode("MESSAGE", [("content-length", "99")])).headers == {"content-length": "0"}


def test_a_frame_of_the_server_ends_with_nul_and_lf() -> None:
    """PHP's extension reads one byte more behind the NUL."""
    frames = [encoder.encode(command, [("a", "b")], body) for command in SERVER_COMMANDS for body in (b"", b"body")]
    frames += [encoder.receipt(b"1"), encoder.error(ProtocolError("timeout", "silent")), encoder.connected("1.2")]
    assert all(frame.endswith(b"\0\n") for frame in frames)
    assert encoder.encode("SEND", [("a", "b")], b"body").endswith(b"\nbody\0")


def test_opening_frames_are_not_escaped() -> None:
    for command in ("CONNECT", "STOMP", "CONNECTED"):
        assert b"a:b:c\\d\n" in encoder.encode(command, [("a", "b:c\\d"), ("e", "f")], version="1.2")


@pytest.mark.parametrize("version", VERSIONS)
def test_connected_says_what_its_version_knows(version: str) -> None:
    frame = parse(encoder.connected(version, [("session", "s-1")], (1000, 2000)))
    assert frame.headers.pop("session") == "s-1"
    assert frame.headers == ({} if version == "1.0" else {"version": version, "heart-beat": "1000,2000"})
    assert set(SERVER_COMMANDS["CONNECTED"][version]) <= set(frame.headers)


def test_a_receipt_id_goes_back_byte_by_byte() -> None:
    assert encoder.receipt(rb"a\c b") == b"RECEIPT\nreceipt-id:a\\c b\n\n\0\n"
    frame = parse(encoder.receipt(b"7", b"\noffset:12\npartition:p"))
    assert frame.headers == {"receipt-id": "7", "offset": "12", "partition": "p"}


@pytest.mark.parametrize("version", [*VERSIONS, None])
@pytest.mark.parametrize("code", ERROR_CODES)
def test_an_error_carries_code_message_receipt_and_detail(code: str, version: str | None) -> None:
    problem = ProtocolError(code, "one line", "expected a:b\ngot c")
    frame = parse(encoder.error(problem, b"r-1", version), version or "1.2")
    assert frame.command == "ERROR"
    assert frame.headers["error-code"] == code
    assert frame.headers["message"] == "one line"
    assert frame.headers["receipt-id"] == "r-1"
    assert frame.headers["content-type"] == "text/plain;charset=utf-8"  # a bare text/plain ends stompit's process
    assert frame.body == b"expected a:b\ngot c"


def test_an_error_without_detail_has_its_message_as_body() -> None:
    frame = parse(encoder.error(ProtocolError("timeout", "silent: 10 s")))
    assert frame.body == b"silent: 10 s"
    assert "receipt-id" not in frame.headers


def test_an_error_about_the_version_lists_ours() -> None:
    assert parse(encoder.error(ProtocolError("bad-version", "none"))).headers["version"] == ",".join(VERSIONS)


def test_a_beat_is_one_line_end() -> None:
    assert encoder.HEARTBEAT == b"\n"
