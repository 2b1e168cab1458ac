"""The header codec: escapes per version, wire lines to pairs, and the stored form of a header block.

Three forms of the same thing meet here:

* *wire lines* of some version: ``name:value`` joined by LF, escaped as that version says (``Head.raw``);
* *pairs*: decoded ``(name, value)`` in order, repeated names included;
* the *stored block*: wire lines of STOMP 1.2, always escaped, without the headers that belong to a hop or to the
  broker (``dlq-reason`` and the like too), each name once. It is what the log keeps, what a 1.2 subscriber is sent as
  it lies, and what Spark splits.

STOMP 1.0 has no escapes, and 1.1 none for CR. What a version cannot say (``spec.UNSAYABLE``) is replaced when its peer
is sent such a header: by a space in values, by ``_`` in names (there also ``:`` for 1.0). So no header can be forged
and no frame broken, also where a client ends lines at a CR. A header without a value, which 1.0 does not know either,
is left out: there are clients of 1.0 that it stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from radiator.errors import ProtocolError
from radiator.stomp.frames import Head
from radiator.stomp.spec import DEAD_LETTER, ESCAPES, HOP_BY_HOP, RESERVED, UNENCODABLE

_VALUES = {
    version: str.maketrans({**table, **dict.fromkeys(UNENCODABLE[version], " ")}) for version, table in ESCAPES.items()
}
_NAMES = {
    version: str.maketrans({**table, **dict.fromkeys(UNENCODABLE[version], "_")}) for version, table in ESCAPES.items()
}
_NAMES["1.0"][ord(":")] = "_"
_NEEDS_ESCAPE = {version: re.compile(f"[{re.escape(''.join(map(chr, table)))}]") for version, table in _NAMES.items()}
_UNESCAPE = {version: {wire: char for char, wire in table.items()} for version, table in ESCAPES.items()}
_SEQUENCE = re.compile(r"\\(?s:.?)")

_DROPPED = HOP_BY_HOP | RESERVED | DEAD_LETTER


def escape(text: str, version: str) -> str:
    """The wire form of a header's value."""
    return text if _NEEDS_ESCAPE[version].search(text) is None else text.translate(_VALUES[version])


def escape_name(text: str, version: str) -> str:
    """The wire form of a header's name."""
    return text if _NEEDS_ESCAPE[version].search(text) is None else text.translate(_NAMES[version])


def unescape(text: str, version: str) -> str:
    """The meaning of a header's name or value; an escape that the version does not define is an error."""
    if "\\" not in text or version == "1.0":
        return text
    table = _UNESCAPE[version]

    def meaning(match: re.Match[str]) -> str:
        sequence = match.group()
        char = table.get(sequence)
        if char is None:
            allowed = " ".join(table)
            raise ProtocolError(
                "bad-header",
                "an escape in a header is not defined",
                f"STOMP {version} defines the escapes {allowed}; got {sequence!r} in {text[:200]!r}",
            )
        return char

    return _SEQUENCE.sub(meaning, text)


def pairs(raw: bytes, version: str, *, trim: bool = True) -> list[tuple[str, str]]:
    """Decode wire lines; every header in order, repeated ones included. Raises ProtocolError, nothing else.

    Values of 1.0 lose the blanks around them, because its own examples write ``login: name``; never those of 1.1, 1.2.
    """
    if not raw:
        return []
    try:
        text = raw.decode()
    except UnicodeDecodeError as problem:
        raise ProtocolError("bad-header", "a header is not valid UTF-8", str(problem)) from None
    found: list[tuple[str, str]] = []
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise ProtocolError(
                "bad-header", "a header line is not name:value", f"expected 'name:value', got {line[:200]!r}"
            )
        if version == "1.0":
            value = value.strip(" \t") if trim else value
        elif "\\" in line:
            name, value = unescape(name, version), unescape(value, version)
        found.append((name, value))
    return found


def join(headers: Iterable[tuple[str, str]], version: str) -> str:
    """Wire lines of pairs, each with its LF in front (so that a command and its lines simply follow one another)."""
    return "".join([f"\n{escape_name(name, version)}:{escape(value, version)}" for name, value in headers])


def stored_block(head: Head) -> bytes:
    """The block that the log keeps: STOMP 1.2 wire lines without the headers of the hop and of the broker, and
    without repeated ones."""
    raw = head.raw
    if not raw:
        return b""
    lines = raw.split(b"\n")
    if (
        len(lines) == len(head.headers)
        and raw.count(b":") == len(lines)
        and b"\r" not in raw
        and (head.version != "1.0" or (b"\\" not in raw and b" " not in raw and b"\t" not in raw))
    ):
        return b"\n".join([line for line, name in zip(lines, head.headers, strict=True) if name not in _DROPPED])
    kept = [(name, value) for name, value in head.headers.items() if name not in _DROPPED]
    return join(kept, "1.2")[1:].encode()


def split_block(block: bytes) -> list[tuple[str, str]]:
    """Decode a stored block."""
    if not block:
        return []
    if b"\\" in block:
        return pairs(block, "1.2")
    lines = block.decode().split("\n")
    return [(name, value) for name, _, value in [line.partition(":") for line in lines]]


def block_for(block: bytes, version: str) -> bytes:
    """A stored block as a peer of ``version`` is sent it."""
    if not needs_conversion(block, version):
        return block
    found = pairs(block, "1.2")
    if version == "1.0":
        found = [(name, value) for name, value in found if value]
    return join(found, version)[1:].encode()


def needs_conversion(block: bytes, version: str) -> bool:
    """Whether a peer of ``version`` is sent a stored block otherwise than it is stored."""
    if version == "1.2":
        return False
    if version == "1.1":
        return b"\\r" in block
    return b"\\" in block or b":\n" in block or block.endswith(b":")
