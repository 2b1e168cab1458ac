"""Values of headers in stored header blocks, for ``compact_by: header:NAME`` and selectors. Pure, for any thread."""

from __future__ import annotations

from collections.abc import Callable

from radiator.stomp.headers import escape


def header_value(name: str) -> Callable[[bytes], bytes | None]:
    """Return a function that finds the value of a header in a stored header block.

    Args:
        name: The name of the header.

    Returns:
        A function from the block to the value in its stored (escaped) form, or None if the block does not have it.
    """
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
