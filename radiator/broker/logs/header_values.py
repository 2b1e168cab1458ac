"""The key of a stored message: what ``compact_by: header:NAME`` means to storage, which knows no headers.

Knows: the stored form of a header block. Pure: any thread.
"""

from __future__ import annotations

from collections.abc import Callable

from radiator.stomp.headers import escape


def header_value(name: str) -> Callable[[bytes], bytes | None]:
    """A function from a stored header block to the value of that header as it stands there; None if it has none."""
    first = escape(name, "1.2").encode() + b":"
    later = b"\n" + first

    def value(block: bytes) -> bytes | None:
        if block.startswith(first):
            start = len(first)
        else:
            start = block.find(later) + len(later)
            if start < len(later):
                return None
        stop = block.find(b"\n", start)
        return block[start:] if stop < 0 else block[start:stop]

    return value
