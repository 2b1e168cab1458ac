from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from radiator.cli.formats import ESCAPES, LETTERS, bare, compile_format, for_people, json_line, to_the_second
from radiator.client.message import Message
from radiator.clock import rfc3339


def message(body: bytes = b"body", **headers: Any) -> Message:
    base = {"destination": "/topic/a", "message-id": "p@7", "partition": "p", "offset": "7"}
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return Message({**base, **named}, body, None)  # type: ignore[arg-type]


FULL = {
    "receive_time": 1_357_034_400_000_000_007,
    "event_time": "2013-01-01T05:00:00Z",
    "transmit_time": 13,
    "tag_dest": "IAH",
    "partition_key": "k",
    "delivery_count": 3,
}

SHOWN = {
    "t": b"/topic/a",
    "p": b"p",
    "o": b"7",
    "i": b"p@7",
    "T": b"1357034400000000007",
    "D": b"2013-01-01T10:00:00.000000007Z",
    "e": b"2013-01-01T05:00:00Z",
    "x": b"13",
    "S": b"4",
    "s": b"body",
    "k": b"k",
    "g": b"dest=IAH",
    "d": b"3",
    "%": b"%",
}


@pytest.mark.parametrize("letter", [letter for letter in LETTERS if letter != "h"])
def test_every_letter_shows_its_value(letter: str) -> None:
    assert compile_format(f"<%{letter}>")(message(**FULL)) == b"<" + SHOWN[letter] + b">"


def test_all_headers_are_shown_with_commas() -> None:
    assert compile_format("%h")(message()) == b"destination=/topic/a,message-id=p@7,partition=p,offset=7"


def test_missing_values_are_empty() -> None:
    for letter in "TDexkg":
        assert compile_format(f"[%{letter}]")(message()) == b"[]"


def test_escapes_and_plain_text_stand_for_themselves() -> None:
    assert compile_format(r"a\n\t\r\0\\\x41é%%%s")(message()) == "a\n\t\r\0\\Aé%body".encode()
    assert set(ESCAPES) == set("ntr0\\")


@pytest.mark.parametrize("text", ["%q", "%", "\\q", "\\", "\\x4"])
def test_an_unknown_letter_or_escape_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        compile_format(text)


def test_a_body_is_written_byte_for_byte() -> None:
    body = bytes(range(256))
    assert bare(message(body)) == body + b"\n"
    assert compile_format("%s")(message(body)) == body


def test_json_has_everything_and_base64_where_the_body_is_not_text() -> None:
    record = json.loads(json_line(message("grün".encode(), **FULL)))
    assert record["body"] == "grün"
    assert record["destination"] == "/topic/a"
    assert (record["offset"], record["partition"], record["message_id"]) == (7, "p", "p@7")
    assert record["receive_time"] == FULL["receive_time"]
    assert record["event_time"] == "2013-01-01T05:00:00Z"
    assert record["tags"] == {"dest": "IAH"}
    assert record["headers"]["tag-dest"] == "IAH"
    binary = json.loads(json_line(message(b"\xff\0")))
    assert "body" not in binary
    assert base64.b64decode(binary["body_base64"]) == b"\xff\0"


def test_the_line_for_people_cannot_play_with_the_terminal() -> None:
    line = for_people(colour=False)(message(b"a\x1b[2Jb\nc\xff", **FULL, destination="/topic/\x1b]0;x\x07"))
    assert line.endswith("@7 a\\x1b[2Jb\\nc\ufffd\n".encode())
    assert line.startswith(b"2013-01-01 10:00:00.000 /topic/\\x1b]0;x\\x07")
    assert for_people(colour=False)(message()) == b"/topic/a@7 body\n"
    assert b"\x1b[36m/topic/a\x1b[0m" in for_people(colour=True)(message())


def test_times_are_exact_to_the_nanosecond() -> None:
    assert rfc3339(1) == "1970-01-01T00:00:00.000000001Z"
    assert rfc3339(-1) == "1969-12-31T23:59:59.999999999Z"
    assert to_the_second(1_999_999_999) == "1970-01-01 00:00:01"
    assert to_the_second(None) == ""
