"""Format a message for ``radiator tail``: by a format string, as JSON line, as bare body, or as a line for people.

``LETTERS`` is the table of letters in a format string, which follow kcat; documentation and tests read it. Bodies are
bytes: ``%s`` and the bare body write them unchanged; JSON has ``body`` for UTF-8 and ``body_base64`` for other bytes.
The line for people escapes control characters, and those that turn text around, so that a message cannot control the
terminal or look like another one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from unicodedata import category

import msgspec

from radiator.client.message import Message
from radiator.clock import rfc3339

Show = Callable[[Message], bytes]


class Letter(NamedTuple):
    """A letter of a format string."""

    about: str
    show: Show


def _number(value: int | None) -> bytes:
    return b"" if value is None else b"%d" % value


def _pairs(headers: Mapping[str, str]) -> bytes:
    return ",".join(f"{name}={value}" for name, value in headers.items()).encode()


def _time_text(ns: int | None) -> str:
    return "" if ns is None else rfc3339(ns)


def to_the_second(ns: int | None) -> str:
    """Return epoch nanoseconds as a time in UTC for a table, such as ``2026-01-31 12:00:00``; empty for None."""
    return _time_text(ns)[:19].replace("T", " ")


LETTERS: Mapping[str, Letter] = {
    "t": Letter("destination", lambda m: m.destination.encode()),
    "p": Letter("partition", lambda m: (m.partition or "").encode()),
    "o": Letter("offset", lambda m: _number(m.offset)),
    "i": Letter("message-id", lambda m: m.id.encode()),
    "T": Letter("receive-time, epoch nanoseconds", lambda m: _number(m.receive_time)),
    "D": Letter("receive-time, RFC 3339 in UTC", lambda m: _time_text(m.receive_time).encode()),
    "e": Letter("event-time as the publisher wrote it", lambda m: m.headers.get("event-time", "").encode()),
    "x": Letter("transmit-time as the publisher wrote it", lambda m: m.headers.get("transmit-time", "").encode()),
    "S": Letter("size of the body in bytes", lambda m: b"%d" % len(m.body)),
    "s": Letter("the body", lambda m: m.body),
    "k": Letter("the header partition-key", lambda m: m.headers.get("partition-key", "").encode()),
    "g": Letter("the tags, name=value with commas", lambda m: _pairs(m.tags)),
    "h": Letter("all headers, name=value with commas", lambda m: _pairs(m.headers)),
    "d": Letter("delivery-count", lambda m: b"%d" % m.delivery_count),
    "%": Letter("a percent sign", lambda m: b"%"),
}
ESCAPES: Mapping[str, bytes] = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

_TOKEN = re.compile(r"%(.?)|\\x([0-9a-fA-F]{2})|\\(.?)|([^%\\]+)", re.DOTALL)


def compile_format(text: str) -> Show:
    """Return a function that formats a message by a format string.

    Raises:
        ValueError: The format string is not valid; the message says which part.
    """
    pieces: list[bytes | Show] = []
    for letter, byte, escape, plain in (match.groups() for match in _TOKEN.finditer(text)):
        if plain is not None:
            pieces.append(plain.encode())
        elif byte is not None:
            pieces.append(bytes.fromhex(byte))
        elif letter is not None:
            if letter not in LETTERS:
                raise ValueError(f"expected one of %{' %'.join(LETTERS)}, got %{letter}")
            pieces.append(LETTERS[letter].show)
        elif escape in ESCAPES:
            pieces.append(ESCAPES[escape])
        else:
            known = " ".join(f"\\{name}" for name in ESCAPES)
            raise ValueError(f"expected one of {known} or \\xHH, got \\{escape}")
    return lambda message: b"".join([piece if isinstance(piece, bytes) else piece(message) for piece in pieces])


def bare(message: Message) -> bytes:
    """Return the body and a line end."""
    return message.body + b"\n"


def json_line(message: Message) -> bytes:
    """Return one JSON object on a line, which ``radiator send --as records`` accepts."""
    data = msgspec.json.encode(json_record(message))
    return (data if data.isascii() else escaped(data.decode()).encode()) + b"\n"


def json_record(message: Message) -> dict[str, object]:
    """Return the fields of a message for JSON."""
    record: dict[str, object] = {
        "destination": message.destination,
        "partition": message.partition,
        "offset": message.offset,
        "message_id": message.id,
        "receive_time": message.receive_time,
        "event_time": _time(message, "event-time"),
        "transmit_time": _time(message, "transmit-time"),
        "tags": message.tags,
        "headers": dict(message.headers),
        "size": len(message.body),
    }
    try:
        record["body"] = message.body.decode()
    except UnicodeDecodeError:
        record["body_base64"] = base64.b64encode(message.body).decode()
    return record


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {10: "\\n", 9: "\\t", 13: "\\r"}
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # categories; these turn or join the text around


def _time(message: Message, name: str) -> int | str | None:
    """Return epoch nanoseconds as a number, any other value as the publisher wrote it."""
    text = message.headers.get(name)
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def visible(text: str) -> str:
    """Return text with its control characters, and those that are invisible or turn the text around, escaped."""
    return text if text.isprintable() else escaped(text.translate(_CONTROL))  # most are printable now


def escaped(text: str) -> str:
    r"""Return text with the same characters as ``\uXXXX``, as JSON reads them."""
    if text.isprintable():
        return text
    return "".join(each if category(each) not in _INVISIBLE else _escape(each) for each in text)


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) > 127 else f"\\u{ord(char):04x}"


def for_people(colour: bool) -> Show:
    """Return a function that formats a message as a line with time, destination, offset and body."""
    dim, name, end = ("\x1b[2m", "\x1b[36m", "\x1b[0m") if colour else ("", "", "")

    def show(message: Message) -> bytes:
        time = _time_text(message.receive_time)[:-7].replace("T", " ")
        where = visible(message.destination)
        mark = "" if message.offset is None else f"@{message.offset}"
        body = visible(message.body.decode(errors="replace"))
        return f"{dim}{time}{end} {name}{where}{end}{dim}{mark}{end} {body}\n".lstrip().encode()

    return show
