"""The header codec: escapes per version, wire lines to pairs, and the stored form of a header block.

There are three forms:

* *wire lines* of some version: ``name:value`` joined by LF, escaped as that version demands (``Head.raw``);
* *pairs*: decoded ``(name, value)`` in order, repeated names included;
* the *stored block*: wire lines of STOMP 1.2, always escaped, without the headers of one hop and those that only the
  broker may write (``dlq-reason`` and the like too), each name once. The log stores it, a 1.2 subscriber is sent it
  unchanged, and Spark splits it.

STOMP 1.0 has no escapes, and 1.1 none for CR. What a version cannot encode (``spec.UNENCODABLE``) is replaced when its
peer is sent such a header: by a space in values, by ``_`` in names (there also ``:`` for 1.0). So no header can be
forged and no frame broken, even if a client ends lines at a CR. A header without a value, which 1.0 does not know
either, is left out: it stops some clients of 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from radiator.errors import ProtocolError
from radiator.stomp.frames import Head
from radiator.stomp.spec import DEAD_LETTER, ESCAPES, HOP_BY_HOP, INSTRUCTIONS, RESERVED, UNENCODABLE

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

_DROPPED = HOP_BY_HOP | RESERVED | DEAD_LETTER | INSTRUCTIONS


def escape(text: str, version: str) -> str:
    """Return the wire form of a header's value."""
    return text if _NEEDS_ESCAPE[version].search(text) is None else text.translate(_VALUES[version])


def escape_name(text: str, version: str) -> str:
    """Return the wire form of a header's name."""
    return text if _NEEDS_ESCAPE[version].search(text) is None else text.translate(_NAMES[version])


def unescape(text: str, version: str) -> str:
    """Return a header's name or value. Raises ProtocolError for an escape that the version does not define."""
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
    """Return the wire lines of pairs, each with its LF in front, so that they can follow a command."""
    return "".join([f"\n{escape_name(name, version)}:{escape(value, version)}" for name, value in headers])


def stored_block(head: Head) -> bytes:
    """Return the block that the log stores.

    It has STOMP 1.2 wire lines without the headers of the hop and of the broker, and without repeated ones.
    """
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
    """Return the pairs of a stored block."""
    if not block:
        return []
    if b"\\" in block:
        return pairs(block, "1.2")
    lines = block.decode().split("\n")
    return [(name, value) for name, _, value in [line.partition(":") for line in lines]]


def block_for(block: bytes, version: str) -> bytes:
    """Return a stored block in the form for a peer of ``version``."""
    if not needs_conversion(block, version):
        return block
    found = pairs(block, "1.2")
    if version == "1.0":
        found = [(name, value) for name, value in found if value]
    return join(found, version)[1:].encode()


def needs_conversion(block: bytes, version: str) -> bool:
    """Return whether a peer of ``version`` needs another form than the stored one."""
    if version == "1.2":
        return False
    if version == "1.1":
        return b"\\r" in block
    return b"\\" in block or b":\n" in block or block.endswith(b":")
